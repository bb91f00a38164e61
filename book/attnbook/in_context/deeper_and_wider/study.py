r"""The trainings beyond the authors' main setting: stored results, and the command that makes them again.

    python -m attnbook.in_context.deeper_and_wider.study [NAME ...] [-o FILE]

| name | what is trained |
|---|---|
| `one layer`, `two layers`, `two tied layers`, `two layers, inclusive mask` | stacks with two heads a layer, on a small problem |
| `anisotropic` | four heads, covariates with covariance rho^abs(i-j) |
| `mean` | four heads, covariates with a mean |
| `2 heads, two tasks`, `3 heads, two tasks`, `4 heads, two tasks` | the authors' two overlapping tasks |

A stored training is used if every one of its settings is what is asked for, otherwise it is trained anew. The file is written whole
after every training; what is in it already is not trained again.
"""

import argparse
import json
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnbook.files import require_writable, write_arrays
from attnbook.in_context.causal import LayerWeights
from attnbook.in_context.deeper_and_wider.multi_task import MultiTaskLaw
from attnbook.in_context.deeper_and_wider.stack import StackWeights
from attnbook.in_context.deeper_and_wider.training import DeepHistory, train_deep
from attnbook.in_context.resumable import made_with
from attnbook.stored import seal, sealed
from attnlib import checks
from attnlib.in_context.circuits import Circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from bookkit.parser import answered

TABLE = Path(__file__).parent / "tables" / "wider.npz"
TRAINING_SEED = 0  # of every training: the page's own seed is that of held-out prompts and of untrained starts
DEPTH_NAMES = ("one layer", "two layers", "two tied layers", "two layers, inclusive mask")
TASK_NAMES = ("2 heads, two tasks", "3 heads, two tasks", "4 heads, two tasks")


@dataclass(frozen=True)
class Spec:
    """One training: everything that decides its numbers."""

    name: str
    experiment: Experiment
    law: RegressionLaw | MultiTaskLaw
    mask: str = "strict"
    cooldown: float = 0.0

    @property
    def key(self) -> str:
        """All settings as JSON: a stored training is the wanted one if and only if the keys are equal."""
        settings = {"experiment": self.experiment.as_record(), "law": asdict(self.law)}
        return json.dumps(settings | {"mask": self.mask, "cooldown": self.cooldown}, sort_keys=True)


@dataclass(frozen=True)
class Trained:
    """A training of R runs, from the file or fresh: K records of every layer's circuits and of the loss."""

    spec: Spec
    steps: np.ndarray  # (K,)
    loss: torch.Tensor  # (R, K)
    loss_se: torch.Tensor  # (R, K)
    key_query: torch.Tensor  # (R, K, layers, H, n, n), float64
    output_value: torch.Tensor  # (R, K, layers, H, written, n)
    final: torch.Tensor  # (R, outputs, written)
    stored: bool

    def stack(self) -> StackWeights:
        """A stack with the circuits of the last record; tied layers are written out."""
        M, V = self.key_query[:, -1], self.output_value[:, -1]
        R, depth, H, n, _ = M.shape
        eye = torch.eye(n, dtype=M.dtype).expand(R, H, n, n)
        layers = tuple(LayerWeights(M[:, k] * n**0.5, eye, eye, V[:, k]) for k in range(depth))
        return StackWeights(layers, self.final, depth, self.spec.mask)

    def circuits(self, layer: int = 0) -> Circuits:
        """(R, K, H, ...) of a model with one output: V is what the last map reads of it."""
        return Circuits(
            self.key_query[:, :, layer], (self.final[:, None, None] @ self.output_value[:, :, layer])[..., 0, :]
        )

    def maps(self) -> torch.Tensor:
        """(R, K, N, d, d): G_k = sum over heads of V_hk M_h^T on the covariates, what heads of small scale compute for task k."""
        d = self.spec.law.d
        labels = self.output_value[:, :, 0, :, :, d:].diagonal(dim1=-2, dim2=-1)  # V_hk: label k into answer k
        return torch.einsum("rchk,rchij->rckji", labels, self.key_query[:, :, 0, :, :d, :d])


@dataclass(frozen=True)
class WiderSetting:
    """The parameters of the page. Raises ValueError for arguments outside their range (checked by experiment and laws)."""

    d: int = 5
    length: int = 40
    noise_std: float = 0.01
    heads: int = 4  # of the models on other covariates; two heads are often trapped there
    batch: int = 128
    learning_rate: float = 1e-3
    optimiser: str = "Adam"
    steps: int = 12_000
    seed: int = 0  # of held-out prompts and untrained starts; trainings have `TRAINING_SEED`
    runs: int = 5
    rho: float = 0.5
    mean: float = 0.6  # every entry of m
    depth_d: int = 3
    depth_length: int = 24
    depth_heads: int = 2


def specs(setting: WiderSetting = WiderSetting()) -> dict[str, Spec]:
    """Every training of the study by name."""
    s = setting
    checks.whole_number("runs", s.runs, at_least=2, hint="one run has no standard error")
    checks.whole_number("depth_d", s.depth_d, at_least=1)
    common = {
        "noise_std": s.noise_std, "learning_rate": s.learning_rate, "optimiser": s.optimiser, "steps": s.steps,
        "seed": TRAINING_SEED, "runs": s.runs, "records": 28,
    }  # fmt: skip
    small = Experiment(d=s.depth_d, length=s.depth_length, heads=s.depth_heads, batch=max(1, s.batch // 2), **common)
    stacks = (
        (small, "strict"),
        (small.replace(layers=2), "strict"),
        (small.replace(layers=2, weight_tying=True), "strict"),
        (small.replace(layers=2), "inclusive"),
    )
    found = [
        Spec(name, experiment, small.law, mask, 0.25)
        for name, (experiment, mask) in zip(DEPTH_NAMES, stacks, strict=True)
    ]
    full = Experiment(d=s.d, length=s.length, heads=s.heads, batch=s.batch, **common)
    laws = {
        "anisotropic": RegressionLaw(s.d, s.length, s.noise_std, covariance=toeplitz_covariance(s.d, s.rho)),
        "mean": RegressionLaw(s.d, s.length, s.noise_std, mean=(s.mean,) * s.d),
    }
    found += [Spec(name, full, law, cooldown=0.25) for name, law in laws.items()]
    tasks = MultiTaskLaw(noise_std=s.noise_std)
    for name in TASK_NAMES:
        wide = Experiment(d=tasks.d, length=tasks.length, outputs=2, heads=int(name[0]), batch=s.batch, **common)
        found.append(Spec(name, wide, tasks, cooldown=0.25))
    return {spec.name: spec for spec in found}


@checks.checked
def obtain(spec: Spec, *, progress: bool = False, table: Path = TABLE) -> Trained:
    """The training of a spec, from the table if it is there, otherwise now: float32, minutes at full size, announced on stderr."""
    stored = _read(table).get(spec.name)
    if stored is not None and stored["key"] == spec.key:
        return _trained(spec, stored, stored=True)
    lacks = "of these settings" if table.exists() else "at all, as the file is missing"
    print(
        f"{table.name} holds no training {spec.name!r} {lacks}: it is trained now, {spec.experiment.steps} steps, minutes at full "
        f"size. `python -m attnbook.in_context.deeper_and_wider.study {spec.name}` stores that of the page's settings",
        file=sys.stderr,
    )
    return _trained(
        spec, _arrays(train_deep(spec.experiment, spec.law, **_options(spec), progress=progress)), stored=False
    )


def replay(trained: Trained, steps: int) -> tuple[float, int]:
    """Train the first recorded steps up to `steps` again: largest difference of any circuit entry, and the step compared.

    Rounding in float32 is amplified by training, so the agreement is close and not exact.
    """
    e = trained.spec.experiment
    count = int((trained.steps <= steps).sum()) - 1
    last = int(trained.steps[count])
    if last == 0:
        return 0.0, 0
    short = e.replace(steps=last, records=2)
    cooldown = trained.spec.cooldown if last == e.steps else 0.0  # it ends with the whole training
    again = train_deep(short, trained.spec.law, mask=trained.spec.mask, cooldown=cooldown, compiled=False)
    gaps = [
        (getattr(layer, name)[:, -1] - getattr(trained, name)[:, count, k]).abs().max().item()
        for k, layer in enumerate(again.layers)
        for name in ("key_query", "output_value")
    ]
    return max(gaps), last


def _options(spec: Spec) -> dict[str, Any]:
    return {"mask": spec.mask, "cooldown": spec.cooldown}


def _arrays(history: DeepHistory) -> dict[str, Any]:
    return {
        "steps": history.steps,
        "loss": history.loss.numpy(),
        "loss_se": history.loss_se.numpy(),
        "key_query": torch.stack([layer.key_query for layer in history.layers], 2).numpy().astype(np.float32),
        "output_value": torch.stack([layer.output_value for layer in history.layers], 2).numpy().astype(np.float32),
        "final": history.stack.final.numpy(),
    }


_FIELDS = ("steps", "loss", "loss_se", "key_query", "output_value", "final")


def _trained(spec: Spec, arrays: dict[str, Any], *, stored: bool) -> Trained:
    steps, *tensors = (arrays[name] for name in _FIELDS)
    return Trained(spec, steps, *(torch.as_tensor(array).double() for array in tensors), stored)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Every stored training by name; empty without a file. Raises ValueError for a file that is damaged or something else."""
    if not path.exists():
        return {}
    return _read_file(sealed(path), path.stat().st_mtime_ns)


@cache
def _read_file(path: Path, _: int) -> dict[str, dict[str, Any]]:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        names = json.loads(str(arrays["trainings"]))
        return {
            name: {field: arrays[f"{name}/{field}"] for field in _FIELDS} | {"key": str(arrays[f"{name}/key"])}
            for name in names
        }
    except (OSError, KeyError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"table {path.name!r} must be a file of python -m attnbook.in_context.deeper_and_wider.study; got {type(error).__name__}: "
            "remove it and make it again"
        ) from None


def _write(path: Path, trainings: dict[str, dict[str, Any]]) -> None:
    arrays = {f"{name}/{field}": np.asarray(value) for name, one in trainings.items() for field, value in one.items()}
    arrays |= {"trainings": np.array(json.dumps(list(trainings))), "made_with": np.array(json.dumps(made_with()))}
    write_arrays(path, compressed=True, **arrays)
    seal(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: train what the file lacks, in the page's setting."""
    known = specs()
    parser = argparse.ArgumentParser(
        prog="python -m attnbook.in_context.deeper_and_wider.study", description="Train and store."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="trainings: " + ", ".join(known) + " (default: all)")
    parser.add_argument("-o", "--output", type=Path, default=TABLE, metavar="FILE", help="the table (an .npz file)")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in known:
            parser.error(f"NAME must be one of {', '.join(known)}; got {name!r}")
    try:
        require_writable(options.output)
        trainings = dict(_read(options.output))
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(1)  # two threads are slower than one on matrices of this size
    for name in options.names or known:
        spec = known[name]
        if name in trainings and trainings[name]["key"] == spec.key:
            print(f"{name}: stored already")
            continue
        print(f"{name}: {spec.experiment.steps} steps")
        history = train_deep(spec.experiment, spec.law, **_options(spec), progress=True)
        trainings[name] = _arrays(history) | {"key": spec.key}
        _write(options.output, {known_name: trainings[known_name] for known_name in known if known_name in trainings})
    return 0


if __name__ == "__main__":
    raise SystemExit(answered("study", main))
