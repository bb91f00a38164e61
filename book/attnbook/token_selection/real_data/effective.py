r"""A frozen network in the terms of Part II: signal, noise and dimension of its relevant tokens, confidence and class overlap of its head.

    relevant token of a sample    the position that gives the largest margin of the true label if every head attends to it alone
    x_i                           that token at the entrance of the last layer: scores are linear in it
    |mu|^2                        mean over pairs of classes of |m_j - m_k|^2 / 2, with class means m_k (without bias)
    sigma^2 d = tr S              S: covariance within the classes
    d                             (tr S)^2 / tr S^2, the participation ratio (without the bias of few samples)
    SNR                           |mu| / (sigma sqrt(d))

For the Gaussian model of Part II, with its two orthogonal signals of norm |mu| and noise sigma^2 I, these are its own |mu|, sigma^2 d, d
and SNR. Derived here; no paper defines them for a trained network.

Stored by ``python -m attnbook.token_selection.real_data.effective SET ...``, one record per seed, in ``effective.json``.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from attnbook.files import require_writable
from attnbook.stored import seal, sealed
from attnbook.token_selection.real_data.frozen import FrozenLastLayer
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.setups import Setup, head_confidence, prepare
from bookkit.files import one_line_each, written_aside
from bookkit.parser import answered

STORED = Path(__file__).with_name("effective.json")
_NEIGHBOURS = 5


@dataclass(frozen=True)
class Effective:
    """One frozen network (one seed of a plan). See the module's text.

    confidence: see `setups.head_confidence`.
    overlap: fraction of test samples whose five nearest pool samples, in the head's input, vote for another class.
    head_only: test accuracy under the query and key of phase 1.
    """

    signal: float  # |mu|^2
    noise: float  # sigma^2 d
    dimension: float  # d
    confidence: float
    overlap: float
    head_only: float

    @property
    def snr(self) -> float:
        return (max(self.signal, 0.0) / self.noise) ** 0.5


@torch.no_grad()
def relevant_tokens(layer: FrozenLastLayer, labels: torch.Tensor) -> torch.Tensor:
    """Position, (N,) int64, that gives the largest margin of the true label if every head attends to it alone."""
    positions = range(layer.tokens.shape[1])
    margins = torch.stack([_margins(layer.finish(layer.values[:, p], layer.residual), labels) for p in positions], 1)
    if layer.mask is not None:
        margins = margins.masked_fill(~layer.mask, -torch.inf)
    return margins.argmax(1)


def _margins(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Logit of the label minus the largest other: (N, classes), (N,) to (N,)."""
    own = logits.gather(1, labels[:, None])
    return (own - logits.scatter(1, labels[:, None], -torch.inf).amax(1, keepdim=True))[:, 0]


def signal_and_noise(x: torch.Tensor, labels: torch.Tensor) -> tuple[float, float, float]:
    """(|mu|^2, sigma^2 d, d) of tokens x (N, D) with labels (N,) int64; float64. For Gaussian noise |mu|^2, tr S, (tr S)^2
    and tr S^2 are without bias; their quotient d is so to leading order.

    With N - K degrees of freedom, S the pooled covariance within K classes and n_k samples of class k:
    |m_j - m_k|^2 exceeds its true value by tr S (1/n_j + 1/n_k), tr S^2 by ((tr S)^2 + tr S^2) / (N - K) up to one order more.
    """
    x = x.double()
    groups = [x[labels == k] for k in range(int(labels.max()) + 1)]
    groups = [group for group in groups if len(group)]
    sizes = torch.tensor([len(group) for group in groups], dtype=torch.float64)
    means = torch.stack([group.mean(0) for group in groups])
    within = torch.cat([group - mean for group, mean in zip(groups, means, strict=True)])
    freedom = len(x) - len(groups)
    covariance = within.T @ within / freedom
    trace = covariance.trace()
    square = freedom**2 / ((freedom - 1) * (freedom + 2)) * (covariance.square().sum() - trace**2 / freedom)
    trace_squared = trace**2 - 2 * square / freedom
    first, second = torch.triu_indices(len(groups), len(groups), 1)
    distances = (means[first] - means[second]).square().sum(1) - trace * (1 / sizes[first] + 1 / sizes[second])
    return distances.mean().item() / 2, trace.item(), (trace_squared / square).item()


@torch.no_grad()
def describe(setup: Setup) -> Effective:
    """The frozen network of a setup, measured on pool and test samples; nothing of phase 2 enters."""
    from sklearn.neighbors import KNeighborsClassifier  # an extra; a page that reads stored numbers needs none

    parts = ((setup.pool, setup.pool_labels), (setup.test, setup.test_labels))
    chosen = [layer.tokens[torch.arange(len(layer)), relevant_tokens(layer, labels)] for layer, labels in parts]
    labels = torch.cat([setup.pool_labels, setup.test_labels])
    signal, noise, dimension = signal_and_noise(torch.cat(chosen), labels)
    known, asked = (part.flatten(1).numpy() for part in setup.features)
    neighbours = KNeighborsClassifier(_NEIGHBOURS).fit(known, setup.pool_labels.numpy())
    overlap = 1 - neighbours.score(asked, setup.test_labels.numpy())
    return Effective(signal, noise, dimension, head_confidence(setup), overlap, setup.head_only)


def read_effective(path: str | Path = STORED) -> dict[str, dict[int, Effective]]:
    """Plan -> seed -> what was stored of its frozen network. Raises FileNotFoundError where nothing is stored."""
    stored = json.loads(sealed(path).read_text(encoding="utf-8"))
    return {name: {int(seed): Effective(**one) for seed, one in seeds.items()} for name, seeds in stored.items()}


def _store(name: str, seed: int, found: Effective, path: Path) -> None:
    document = json.loads(sealed(path).read_text(encoding="utf-8")) if path.is_file() else {}
    record = {key: float(f"{value:.5g}") for key, value in asdict(found).items()}
    seeds = document.setdefault(name, {}) | {str(seed): record}
    document[name] = dict(sorted(seeds.items(), key=lambda item: int(item[0])))
    with written_aside(path) as temporary:
        temporary.write_text(one_line_each(dict(sorted(document.items()))), encoding="utf-8", newline="\n")
    seal(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; what is there already is kept."""
    parser = argparse.ArgumentParser(prog="python -m attnbook.token_selection.real_data.effective", description=__doc__)
    parser.add_argument("names", choices=tuple(PLANS), metavar="SET", nargs="+", help=", ".join(PLANS))
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="default: those of the plan")
    parser.add_argument("--encoder", metavar="FOLDER", help="folder or hub name of a pretrained ViT or BERT-like model")
    parser.add_argument("--data", metavar="FOLDER", help="of published files; default: $ATTNLIB_DATA, else a library")
    parser.add_argument("--out", type=Path, default=STORED, metavar="FILE", help="default: the package's own")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    require_writable(options.out)
    done = read_effective(options.out) if options.out.is_file() else {}
    for name in options.names:
        for seed in options.seeds or PLANS[name].all_seeds:
            if seed not in done.get(name, {}):
                found = describe(prepare(name, seed, data=options.data, encoder=options.encoder))
                _store(name, seed, found, options.out)
                print(f"{name}, seed {seed}: SNR {found.snr:.3g}, d {found.dimension:.3g}", flush=True)


if __name__ == "__main__":
    raise SystemExit(answered("effective", main))
