r"""The same-sign trap: how often do the heads of a random start end with one sign only, and when is it decided?

Two heads that end as $(\omega,\mu)$, $(-\omega,-\mu)$ cancel the mean of the labels; two heads of one sign act as one head. The two ends
are told apart by the imbalance

$$ b = \frac{|\sum_h\mu_h|}{\sum_h|\mu_h|}\in[0,1], $$

near 0 at the first, 1 at the second; a run is *trapped* if $b>0.9$. Every start has its own data: the fraction of trapped runs is a
binomial proportion, and its interval is Wilson's. Source: measured here; the same-sign minimum of the approximate loss is derived in
the theory chapter of Part III.

    python -m attnbook.in_context.trap_study

remakes the stored table (minutes with numba); stopped anywhere, it goes on where it was.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from attnbook.files import read_arrays, require_writable, write_arrays
from attnbook.in_context.resumable import made_with
from attnbook.stored import seal, sealed
from attnlib.extras import progress_bar
from attnlib.in_context import circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.training import train
from bookkit.parser import answered

STORED = Path(__file__).parent / "tables" / "trap.npz"
_LIMIT = 0.9  # imbalance above which a run is trapped; between this and 0, a run is on its way out
_PIECE = 5  # runs between two writes of the table

# name -> what is trained; "long" is filled with the first trapped runs of "2"
PLAN: Mapping[str, Experiment] = {
    "2": Experiment(heads=2, steps=30_000, runs=300, records=24),
    "3": Experiment(heads=3, steps=20_000, runs=100, records=24),
    "4": Experiment(heads=4, steps=20_000, runs=100, records=24),
    "long": Experiment(heads=2, steps=500_001, runs=10, records=40),
}
_FIELDS = ("run", "omega", "mu", "off_diagonal", "loss")


def imbalance(mu: np.ndarray) -> np.ndarray:
    """`circuits.imbalance` of a numpy array (..., H), float64."""
    return circuits.imbalance(torch.from_numpy(np.array(mu, dtype=np.float64))).numpy()


@dataclass(frozen=True)
class Share:
    """A proportion with Wilson's interval."""

    count: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.count / self.total

    def __str__(self) -> str:
        percent = f"{100 * self.value:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}]"
        return f"{self.count} of {self.total}, {percent}"


def share(count: int, total: int) -> Share:
    r"""`count` of `total` with Wilson's interval of 95 %: all p with $(\hat p-p)^2\le z^2p(1-p)/n$."""
    from scipy.stats import binomtest

    interval = binomtest(int(count), int(total)).proportion_ci(method="wilson")
    return Share(int(count), int(total), interval.low, interval.high)


def ranking(score: np.ndarray, event: np.ndarray) -> float:
    """Probability that a run with the event has the larger score than one without (half for ties): the area under the ROC curve.

    1/2 is no prediction, 1 a perfect one; nan if all runs or none have the event. score (R,), event (R,) bool.
    """
    score, event = np.asarray(score, dtype=np.float64), np.asarray(event, dtype=bool)
    if event.all() or not event.any():
        return math.nan
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(score[event], score[~event]).statistic / (event.sum() * (~event).sum()))


@dataclass(frozen=True)
class TrapRuns:
    """Two numbers per head of R runs at K recorded steps."""

    steps: np.ndarray  # (K,)
    run: np.ndarray  # (R,) number of the run: of its start and of its data
    omega: np.ndarray  # (R, K, H)
    mu: np.ndarray  # (R, K, H)
    off_diagonal: np.ndarray  # (R, H) at the end: largest |M_ij|, i != j
    loss: np.ndarray  # (R,) mean training loss since the last record but one

    @property
    def imbalance(self) -> np.ndarray:
        """(R, K)."""
        return imbalance(self.mu)

    @property
    def trapped(self) -> np.ndarray:
        """(R,) bool: the heads have one sign, or all but, at the end."""
        return self.imbalance[:, -1] > _LIMIT

    @property
    def share(self) -> Share:
        """Fraction of trapped runs with its 95 % interval."""
        return share(int(self.trapped.sum()), len(self.run))

    def at(self, step: int) -> int:
        """Index of the last record at or before `step`."""
        return int(np.searchsorted(self.steps, step, side="right")) - 1


def _of_history(history):
    e = history.experiment
    circuits = history.final
    return TrapRuns(
        history.steps, np.arange(e.first_run, e.first_run + e.runs), history.omega.numpy(), history.mu.numpy(),
        circuits.off_diagonal.numpy(), history.loss[:, -1].numpy(),
    )  # fmt: skip


def trap_runs(experiment: Experiment, **options: object) -> TrapRuns:
    """Train and keep what the trap needs. Options are those of `train`."""
    return _of_history(train(experiment, **options))


# --- the stored table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrapTable:
    """Runs by number of heads, and the first trapped runs of two heads, trained on to the authors' full length."""

    by_heads: dict[int, TrapRuns]
    long: TrapRuns


def _key(plan):
    words = repr([(name, sorted(e.as_record().items())) for name, e in plan.items()])
    return hashlib.sha256(words.encode()).hexdigest()


def _empty(e):
    shapes = {"run": (), "omega": (len(e.recorded_steps), e.heads), "mu": (len(e.recorded_steps), e.heads)}
    shapes |= {"off_diagonal": (e.heads,), "loss": ()}
    arrays = {name: np.full((e.runs, *shape), np.nan, dtype=np.float32) for name, shape in shapes.items()}
    return arrays | {"run": np.full(e.runs, -1, dtype=np.int64)}


def _numbers(name, plan, tables):
    """The runs of a part: 0, 1, 2, ...; of "long", those of "2" that are trapped, as many as wanted and found."""
    if name != "long":
        return list(range(plan[name].first_run, plan[name].first_run + plan[name].runs))
    found = tables["2"]
    return found["run"][imbalance(found["mu"])[:, -1] > _LIMIT][: plan["long"].runs].tolist()


def trap_table(
    save: str | os.PathLike = STORED, *, plan: Mapping[str, Experiment] = PLAN, progress: bool = False, threads: int = 1
) -> TrapTable:
    """Train every run of the plan and write the table.

    Args:
        save: an .npz file, written whole after every few runs. If it is there, the work goes on where it stopped, with the same
            numbers. A file of another plan is refused.
        plan: parts by name; "2" and "long" are needed.

    Raises ValueError for a file that cannot be written or is not of this plan, before any work.
    """
    path = Path(save)
    require_writable(path)
    tables = _read(path, plan) if path.exists() else {name: _empty(e) for name, e in plan.items()}
    total = sum(e.steps * e.runs for e in plan.values())
    with progress_bar(progress, total, "same-sign trap", unit="step") as bar:
        for name, e in plan.items():
            numbers = _numbers(name, plan, tables)
            done = int((tables[name]["run"] >= 0).sum())
            bar.update(done * e.steps)
            while done < len(numbers):
                piece = _consecutive(numbers[done : done + _PIECE])
                part = trap_runs(e.replace(runs=len(piece), first_run=piece[0]), threads=threads)
                for field in _FIELDS:
                    tables[name][field][done : done + len(piece)] = getattr(part, field)
                done += len(piece)
                _write(path, plan, tables)
                bar.update(len(piece) * e.steps)
    return _as_table(plan, tables)


def _consecutive(numbers):
    """The longest beginning of the form k, k + 1, k + 2, ..."""
    return [n for place, n in enumerate(numbers) if n == numbers[0] + place]


def _write(path, plan, tables):
    arrays = {f"{name}_{field}": values for name, part in tables.items() for field, values in part.items()}
    about = {"command": "python -m attnbook.in_context.trap_study", **made_with()}
    about["plan"] = {name: e.as_record() for name, e in plan.items()}
    write_arrays(path, compressed=True, key=np.array(_key(plan)), about=np.array(json.dumps(about)), **arrays)
    seal(path)


def _read(path, plan):
    stored = read_arrays(sealed(path), "table of the trap", "key")
    if str(stored["key"]) != _key(plan):
        raise ValueError(
            f"save must be a table of this plan; got {path.name}, of other settings: delete it or choose another name"
        )
    return {name: {field: stored[f"{name}_{field}"] for field in _FIELDS} for name in plan}


def _as_table(plan, tables):
    parts = {}
    for name, stored in tables.items():
        kept = stored["run"] >= 0
        fields = {field: values[kept] for field, values in stored.items()}
        parts[name] = TrapRuns(np.array(plan[name].recorded_steps), **fields)
    return TrapTable({int(name): part for name, part in parts.items() if name != "long"}, parts["long"])


def read_table(path: str | os.PathLike, plan: Mapping[str, Experiment] = PLAN) -> TrapTable:
    """A finished table. Raises ValueError for a file that is missing, foreign, of another plan, or not finished."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"path must be a table of the trap; there is no {path.name}: python -m attnbook.in_context.trap_study"
        )
    tables = _read(path, plan)
    for name in plan:
        wanted, done = len(_numbers(name, plan, tables)), int((tables[name]["run"] >= 0).sum())
        if done < wanted:
            raise ValueError(
                f"path must be a finished table; {path.name} has {done} of {wanted} runs of part {name!r}: go on with trap_table"
            )
    return _as_table(plan, tables)


def stored_table() -> TrapTable:
    """The table that comes with the package."""
    return read_table(STORED)


def main() -> None:
    """Make the stored table, and say how many runs are trapped."""
    table = trap_table(progress=True, threads=os.cpu_count() or 1)
    for heads, runs in table.by_heads.items():
        print(f"{heads} heads: trapped {runs.share}")
    left = int((~table.long.trapped).sum())
    print(
        f"trapped runs trained on to {table.long.steps[-1]} steps: {len(table.long.run)}, of which {left} left the trap"
    )


if __name__ == "__main__":
    raise SystemExit(answered("trap_study", main))
