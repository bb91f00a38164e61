r"""End to end: the last stage of EfficientNet-Lite0 trained together with attention. Does the fraction of copying fall or rise?

On the page the backbone is frozen. Here Lite0 is cut where its map has 14 x 14 cells. The stem below is frozen; the stage above, five
inverted bottlenecks and the 1 x 1 convolution that ends in 7 x 7 cells, is trained in one of two ways that differ in nothing else:

    frozen        query and key of the attention layer alone, as in our way of the trial
    end to end    query and key, and every convolution of the stage: 2.7 million numbers more

Phase 1, samples, flips and the start of query and key are those of the plan `SET_lite0` (`plans`). Batch norm stays in inference mode: its
statistics are frozen and multiplied into the convolutions, whose weights and biases are then trained.
Everything that is trained has Adam of step size 2e-4, constant after 20 steps of warm-up, in batches of 20. A run ends `TAIL` epochs after
the first epoch in which each label, flipped or not, was given before its own step; at the latest after `MOST` epochs, 1500 steps.

**The rule.** Written on 29 November 2026, before any of its runs. n = 200, eta = 0 and 0.2, seeds 0 to 4, CIFAR-10 and MNIST, at most 1000
test pictures a seed: all 846 of CIFAR-10's file of tests here, and 1000 of the 2500 of MNIST's plan. With F as in `trial`, of the one
level 0.2, each way with its own a_0,

    D = F(end to end) - F(frozen),        its 95 % interval over seeds and pictures as that of F (`trial.two_way`)

"falls" if the whole interval lies below 0, "rises" if it lies above, else "not decided". Nothing is decided where the registered rule would
not ask (`trial`): flipped labels not fitted, or u < 1/2, in one of the two ways. Each set is told; no seed is added after a look.
Known beforehand: F of our way on these seeds, with these samples, from the stored tables; and of seed 50 (CIFAR-10, eta = 0.2 and 0.4)
after how many steps training labels are fitted. No test picture of a network trained end to end was looked at.

    python -m attnbook.token_selection.real_data.end_to_end SET [--data FOLDER] [--cache FOLDER]

makes `tables/end_to_end/SET_end_to_end.json` again, seed by seed; about a quarter of an hour for a set, one core. Its `seconds` are
those of phase 2. What it found: not decided on either set, D = -0.05 +- 0.11 (CIFAR-10) and -0.06 +- 0.08 (MNIST).
"""

import argparse
import json
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from attnbook.draws import Estimate
from attnbook.files import require_writable
from attnbook.stored import sealed
from attnbook.token_selection.real_data.experiment import nested_flips
from attnbook.token_selection.real_data.lite0 import NETS, Lite, Net, load_lite, prepared
from attnbook.token_selection.real_data.loaders import DATA_SETS, RealData, load, told
from attnbook.token_selection.real_data.plans import PLANS, Plan
from attnbook.token_selection.real_data.setups import Rows, fixed_backbone, parts_of
from attnbook.token_selection.real_data.study import SETS
from attnbook.token_selection.real_data.tables import TABLES, add_cell, hits_record
from attnbook.token_selection.real_data.trial import FITTED, Trial, judge, two_way
from attnbook.token_selection.real_data.vit import SmallViT, ViTShape, train_vit
from attnlib.randomness import stream
from bookkit.parser import answered

STORED = TABLES / "end_to_end"
NAMES, WAYS = ("cifar10", "mnist"), ("frozen", "end to end")
N, LEVELS, SEEDS, TEST = 200, (0.0, 0.2), range(5), 1000
BATCH, STEP_SIZE, WARMUP, TAIL, MOST = 20, 2e-4, 20, 5, 150
_STAGES_BELOW = 5  # of seven
_AT_ONCE = 20  # pictures whose answers are computed together
_NORMS = {
    "_conv_stem": "_bn0",
    "_expand_conv": "_bn0",
    "_depthwise_conv": "_bn1",
    "_project_conv": "_bn2",
    "_conv_head": "_bn1",
}


def halves(net: Net, network: Lite) -> tuple[nn.Sequential, nn.Sequential]:
    """The stem and the last stage, batch norm multiplied in; of Lite0 a picture to (112, 14, 14), and this to (1280, 7, 7)."""
    network = deepcopy(network)
    for module in list(network.modules()):
        for conv, norm in _NORMS.items():
            if hasattr(module, conv):
                setattr(module, conv, fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm)))
                setattr(module, norm, nn.Identity())
    below = sum(blocks for _, blocks in net.sizes[:_STAGES_BELOW])
    stem = nn.Sequential(network._conv_stem, nn.ReLU6(), *network._blocks[:below])
    stage = nn.Sequential(*network._blocks[below:], network._conv_head, nn.ReLU6())
    return tuple(part.to(memory_format=torch.channels_last) for part in (stem, stage))


class Joint(nn.Module):
    """The stage, whose cells are tokens, and the transformer layer that reads them."""

    def __init__(self, stage: nn.Module, reader: SmallViT) -> None:
        super().__init__()
        self.stage, self.reader = stage, reader

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes)."""
        return self.reader(self.stage(maps).flatten(2).mT)


@torch.no_grad()
def in_parts(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What the network gives, some pictures at a time."""
    return torch.cat([network(part) for part in x.split(_AT_ONCE)])


def fresh(reader: SmallViT, seed: int) -> SmallViT:
    """A copy with the new query and key from which phase 2 starts (`FrozenLastLayer.start`, run 1); they alone ask for a gradient."""
    reader = deepcopy(reader).requires_grad_(False)
    layer, width = reader.stack[-1], reader.shape.width
    drawn = torch.from_numpy((0.02 * stream(seed, "start", 1).standard_normal((2, width, width))).astype(np.float32))
    for part, weight in zip((layer.query, layer.key), drawn, strict=True):
        part.weight.data, part.bias.data = weight.T.contiguous(), torch.zeros(width)
    for parameter in (layer.query.weight, layer.query.bias, layer.key.weight):
        parameter.requires_grad_(True)
    return reader


def train(network: nn.Module, x: torch.Tensor, labels: torch.Tensor, *, seed: int) -> int:
    """Adam on all that asks for a gradient, until `TAIL` epochs after the labels (N,) are fitted: the number of epochs."""
    optimiser = torch.optim.Adam([one for one in network.parameters() if one.requires_grad], lr=STEP_SIZE, fused=True)
    warm = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1.0, (step + 1) / WARMUP))
    orders, last = stream(seed, "batches", 1), MOST
    for epoch in range(1, MOST + 1):
        right = 0
        for rows in torch.from_numpy(orders.permutation(len(x))).split(BATCH):
            optimiser.zero_grad()
            logits = network(x[rows])
            right += int((logits.argmax(1) == labels[rows]).sum())
            functional.cross_entropy(logits, labels[rows]).backward()
            optimiser.step()
            warm.step()
        if right == len(x):
            last = min(last, epoch + TAIL)
        if epoch == last:
            break
    return last


def both_ways(
    stage: nn.Module, reader: SmallViT, x: torch.Tensor, true: torch.Tensor, test: torch.Tensor, *, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers on the test maps (ways, levels, M); on the training maps, 1 where the label is given (ways, levels, N); epochs.

    x, test: maps that enter the stage. true: (N,) labels of the training samples, some of which are flipped here.
    """
    labels, _ = nested_flips(true, reader.shape.classes, LEVELS, seed=seed, run=1)
    fixed = in_parts(stage, x), in_parts(stage, test)
    found = []
    for way in WAYS:
        for wanted in labels:
            own = deepcopy(stage).requires_grad_(True) if way == WAYS[1] else nn.Identity()
            here, there = (x, test) if way == WAYS[1] else fixed
            network = Joint(own, fresh(reader, seed))
            epochs = train(network, here, wanted, seed=seed)
            given = in_parts(network, here).argmax(1) == wanted
            found.append((in_parts(network, there).argmax(1).numpy(), given.numpy(), epochs))
            print(f"  seed {seed}, {way}: {epochs} epochs, {int(given.sum())} of {len(x)} labels given", flush=True)
    answers, given, epochs = (np.array(part) for part in zip(*found, strict=True))
    sizes = len(WAYS), len(LEVELS)
    return answers.reshape(*sizes, -1), given.reshape(*sizes, -1), epochs.reshape(sizes)


def seed_parts(
    plan: Plan, data: RealData, seed: int, cache: Path | None
) -> tuple[SmallViT, nn.Sequential, torch.Tensor, torch.Tensor]:
    """Of one seed: the layer after phase 1, the last stage, and the maps that enter it, of n training samples and of the test pictures."""
    phase1, pool, (held, test) = parts_of(data, plan, seed)
    known, shape = data.split(plan.official), ViTShape(classes=data.classes, **plan.shape)
    tokens = fixed_backbone(plan, cache).transform(known.x, phase1)
    labels = torch.from_numpy(known.y[phase1])
    reader = train_vit(tokens, labels, shape, seed=seed, epochs=plan.epochs, step_size=plan.head_step_size)
    net = NETS[plan.fixed]
    stem, stage = halves(net, load_lite(net))
    samples = known.x[drawn(pool, seed)], data.split(held).x[test]
    x, y = (in_parts(stem, prepared(pictures).to(memory_format=torch.channels_last)) for pictures in samples)
    return reader, stage, x, y


def drawn(pool: np.ndarray, seed: int) -> np.ndarray:
    """The rows of the training samples, as `noise_study` draws them."""
    return pool[stream(seed, "resampling", 1).permutation(len(pool))[:N]]


def plan_of(name: str) -> Plan:
    """That of our way on Lite0, with fewer test pictures."""
    return replace(PLANS[f"{name}_lite0"], test=TEST)


def remake(name: str, data: RealData, out: Path, *, cache: Path | None = None, seeds: Sequence[int] = SEEDS) -> None:
    """Add each seed that the table `out` does not hold."""
    plan = plan_of(name)
    require_writable(out)
    done = [cell["seed"] for cell in _cells(out)] if out.is_file() else []
    for seed in [one for one in seeds if one not in done]:
        _, pool, (held, test) = parts_of(data, plan, seed)
        rows, true = Rows.of(data, plan, seed), torch.from_numpy(data.split(plan.official).y[drawn(pool, seed)])
        parts = seed_parts(plan, data, seed, cache)
        begin = time.process_time()
        answers, given, epochs = both_ways(parts[1], parts[0], parts[2], true, parts[3], seed=seed)
        _, flipped = nested_flips(true, data.classes, LEVELS, seed=seed, run=1)
        hits = answers == data.split(held).y[test]
        settings = {
            "command": f"python -m attnbook.token_selection.real_data.end_to_end {name}",
            "data": DATA_SETS[name].recorded,
            "sha256": {**rows.files, "weights": NETS[plan.fixed].sha256},
            "phase2": {
                "n": N,
                "step_size": STEP_SIZE,
                "warmup": WARMUP,
                "batch": BATCH,
                "epochs after the fit": TAIL,
                "at most": MOST,
            },
            "ways": WAYS,
        }
        record = {
            "seed": seed,
            "n": N,
            "seconds": round(time.process_time() - begin),
            "rows_sha256": rows.drawn,
            "epochs": epochs.tolist(),
            "given": given.sum(-1).tolist(),
            "fit": given[:, 1][:, flipped[1].numpy()].mean(-1).tolist(),
        }
        add_cell(out, name, settings, LEVELS, record | hits_record(hits.reshape(-1, len(test)), rows.test))
        print(f"{name}, seed {seed}: {record['seconds']} seconds", flush=True)


def table_of(name: str, folder: Path = STORED) -> Path:
    """The file of a set's table."""
    return folder / f"{name}_end_to_end.json"


def _cells(path: Path) -> list[dict]:
    return json.loads(sealed(path).read_text(encoding="utf-8"))["cells"]


@dataclass(frozen=True)
class EndToEnd:
    """One table, judged by the rule of the module's text. trials: the two `WAYS`, on the same samples and test pictures."""

    name: str
    trials: tuple[Trial, Trial]

    @property
    def difference(self) -> Estimate:
        """D with its interval."""
        frozen, joint = self.trials
        return two_way(joint.fraction() - frozen.fraction(), joint.fraction_without() - frozen.fraction_without())

    @property
    def outcome(self) -> str:
        """ "falls", "rises" or "not decided"."""
        judged, found = [judge(one) for one in self.trials], self.difference
        if (
            any(one.fit.low < FITTED or not np.isfinite(one.fraction.value) for one in judged)
            or found.low <= 0 <= found.high
        ):
            return "not decided"
        return "falls" if found.high < 0 else "rises"


def read_end_to_end(name: str, folder: Path = STORED) -> EndToEnd:
    """The stored table of a set. Raises FileNotFoundError where there is none."""
    cells = _cells(table_of(name, folder))
    bits = [
        [np.unpackbits(np.frombuffer(bytes.fromhex(row), np.uint8)) for row in (cell["tested"], *cell["hits"])]
        for cell in cells
    ]
    rows = np.array([np.flatnonzero(tested) for tested, *_ in bits])
    hits = np.array([[row[: rows.shape[1]] for row in own] for _, *own in bits]).astype(bool)
    hits = hits.reshape(len(cells), len(WAYS), len(LEVELS), -1)
    fit, classes = np.array([cell["fit"] for cell in cells]), len(DATA_SETS[name].class_names)
    return EndToEnd(name, tuple(Trial(hits[:, k], rows, fit[:, k, None], LEVELS, classes) for k in range(len(WAYS))))


def as_sentence(folder: Path = STORED) -> str:
    """What the tables say, for the page."""
    said = []
    for one in (read_end_to_end(name, folder) for name in NAMES):
        found = *(judge(trial).fraction for trial in one.trials), one.difference
        frozen, joint, moved = (f"${each.value:.2f}\\pm{each.high - each.value:.2f}$" for each in found)
        said.append(f"on {SETS[one.name]} from {frozen} to {joint} (difference {moved}: {one.outcome})")
    return f"$F$ goes {' and '.join(said)}."


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit codes are those of `told`."""
    parser = argparse.ArgumentParser(prog="python -m attnbook.token_selection.real_data.end_to_end")
    parser.add_argument("name", choices=NAMES, metavar="SET", help=" or ".join(NAMES))
    parser.add_argument("--data", metavar="FOLDER", help="of published files; default: $ATTNLIB_DATA, else a library")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where the tokens of phase 1 are kept")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: the package's own table")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    out = options.out or table_of(options.name)
    return told("end_to_end", lambda: remake(options.name, load(options.name, options.data), out, cache=options.cache))


if __name__ == "__main__":
    raise SystemExit(answered("end_to_end", main))
