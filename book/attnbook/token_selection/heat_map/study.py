r"""Maps over signal norm and dimension: training and fresh data after a fixed number of steps, several training sets per cell.

A cell is one `TokenLaw`; its training is exact gradient descent (`train`), its averages on fresh data are taken in score space. The
step of the recursion sees a law only through its inner products, so cells of any $d$ and $|\mu|$ are trained in one batch.

Run r of every cell draws from the streams (seed, role, r). So a cell's numbers depend neither on the other cells nor on how the
batches are cut, and cells of one run share their draws (*common random numbers*): borders are smooth, neighbouring cells are not
independent, and an interval must come from runs, not from cells.
"""

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from attnbook.files import read_arrays, require_writable, rising, write_arrays
from attnbook.stored import seal, sealed
from attnlib import checks
from attnlib.extras import progress_bar
from attnlib.randomness import stream
from attnlib.token_selection.gram import draw_gram, join
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.population import population
from attnlib.token_selection.training import checked_steps, train
from bookkit.parser import answered

PHASES = ("does not overfit", "harmful", "selection still to come", "benign")
TABLE = Path(__file__).parent / "tables" / "heat_map_39x39.npz"  # of `published_plan`
FORMAT = 1  # of saved maps; another one when the same plan would give other numbers
_BATCH = 32  # cells trained together at n T = 160: 25 MB; fewer for larger samples
_OUTCOMES = (
    "train_loss", "clean_fitted", "noisy_fitted", "attention_clean", "attention_noisy", "loss", "loss_se", "error", "error_se",
)  # fmt: skip


@dataclass(frozen=True)
class HeatPlan:
    """What to compute: a rising axis of signal norms (columns), one of dimensions (rows), and all that cells share."""

    law: TokenLaw  # everything but d and signal_norm
    signal_norms: np.ndarray  # (columns,)
    dims: np.ndarray  # (rows,)
    start: Start
    step_size: float
    steps: int
    runs: int
    seed: int
    count: int  # fresh points per cell and run

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.dims), len(self.signal_norms), self.runs

    def cell(self, row: int, column: int) -> TokenLaw:
        return replace(self.law, d=int(self.dims[row]), signal_norm=float(self.signal_norms[column]))

    def over_cells(self, function) -> np.ndarray:
        """(rows, columns): a function of the law in every cell."""
        rows, columns, _ = self.shape
        return np.array([[function(self.cell(i, j)) for j in range(columns)] for i in range(rows)])

    @property
    def key(self) -> str:
        """Fingerprint of every number that goes in."""
        words = repr((self.law, self.start, self.step_size, self.steps, self.runs, self.seed, self.count))
        digest = hashlib.sha256(words.encode())
        for axis in (self.signal_norms, self.dims):
            digest.update(np.ascontiguousarray(axis, dtype=np.float64).tobytes())
        return digest.hexdigest()


def heat_plan(
    signal_norms: Sequence[float], dims: Sequence[int], *, law: TokenLaw, step_size: float, steps: int, runs: int = 5, seed: int = 0,
    start: Start | None = None, count: int = 4000,
) -> HeatPlan:  # fmt: skip
    """Check and complete a plan. `law` gives n, T and the rest; its own d and signal_norm are not used.

    Raises ValueError for an empty axis or one that does not rise, dimensions below 3, runs < 1, an odd count, and for whatever
    `TokenLaw` and `train` refuse, all before any work.

    >>> plan = heat_plan([5, 20], [250, 2000], law=TokenLaw(20, 3, 8, 1.0), step_size=0.005, steps=1000)
    >>> plan.shape, plan.cell(1, 0).d
    ((2, 2, 5), 2000)
    """
    norms, sizes = rising("signal_norms", signal_norms, at_least=1), rising("dims", dims, at_least=1)
    if (sizes != np.rint(sizes)).any() or sizes[0] < 3:
        raise ValueError(f"dims must be whole numbers >= 3; got {sizes.tolist()}: use numpy.rint, or drop the smallest")
    if norms[0] <= 0:
        raise ValueError(f"signal_norms must be > 0; got {norms.tolist()}")
    if not isinstance(law, TokenLaw):
        raise ValueError(f"law must be a TokenLaw; got {type(law).__name__}")
    checked_steps(step_size, steps)
    if checks.whole_number("count", count, at_least=4) % 2:
        raise ValueError(f"count must be even, half of each class; got {count}: use {count + 1}")
    return HeatPlan(
        replace(law, d=3, signal_norm=1.0), norms, sizes.astype(np.int64), Start() if start is None else start, float(step_size),
        int(steps), checks.whole_number("runs", runs, at_least=1), checks.whole_number("seed", seed, at_least=0), int(count),
    )  # fmt: skip


@dataclass(frozen=True)
class HeatMap:
    """A plan and its outcome: arrays (rows, columns, runs); `attention` has one more axis, the tokens. Accuracies are shares."""

    plan: HeatPlan
    train_loss: np.ndarray
    clean_fitted: np.ndarray  # training accuracy on clean samples
    noisy_fitted: np.ndarray  # on flipped ones, against their observed labels; nan without any
    attention_clean: np.ndarray  # mean training attention on x_1 of clean samples
    attention_noisy: np.ndarray
    loss: np.ndarray  # on fresh data, with its standard error
    loss_se: np.ndarray
    error: np.ndarray
    error_se: np.ndarray
    attention: np.ndarray  # (rows, columns, runs, T), mean attention of fresh samples on every token
    uniform_error: np.ndarray = field(init=False)  # (rows, columns), of uniform attention: before training

    def __post_init__(self) -> None:
        object.__setattr__(self, "uniform_error", self.plan.over_cells(_uniform_error))

    def phases(self) -> np.ndarray:
        """(rows, columns, runs): index into `PHASES`, training set by training set; see `phases`."""
        uniform = self.uniform_error[..., None]
        return phases(self.noisy_fitted, self.attention[..., 0], self.error, self.error_se, uniform)

    def phase(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns): the phase of most training sets, and bool: where not all of them agree."""
        each = self.phases()
        counts = np.stack([(each == k).sum(-1) for k in range(len(PHASES))], -1)
        return counts.argmax(-1), counts.max(-1) < self.plan.runs


def phases(noisy_fitted, fresh_attention, error, error_se, uniform_error) -> np.ndarray:
    """Index into `PHASES`, elementwise; the arguments are arrays that broadcast against each other.

    Fewer than half of the flipped labels fitted: *does not overfit*. Otherwise, fresh attention on x_1 of one half or more:
    *benign*. Otherwise, an error on fresh data above 1/1000 and above that of uniform attention by more than two standard
    errors: *harmful*, training has made the model worse. Otherwise *selection still to come*.
    """
    worse = (error > 1e-3) & (error - 2 * error_se > uniform_error)
    late = np.where(worse, PHASES.index("harmful"), PHASES.index("selection still to come"))
    fitted = np.where(fresh_attention >= 0.5, PHASES.index("benign"), late)
    return np.where(noisy_fitted < 0.5, PHASES.index("does not overfit"), fitted)


def _uniform_error(law: TokenLaw) -> float:
    """1 - `theory.uniform_attention_accuracy`, also where that is 1 to sixteen digits."""
    strength = law.signal_norm * (1 + (law.same_class_tokens - 1) * law.weak_signal)
    return 0.5 * math.erfc(strength / (law.noise_std * math.sqrt(2 * law.tokens)) / math.sqrt(2))


@checks.checked
def heat_map(plan: HeatPlan, *, save: str | os.PathLike = "", progress: bool = False) -> HeatMap:
    """Compute a plan.

    Args:
        save: an .npz file that is written, atomically, after every batch. If it is there already, the computation goes on where it
            stopped (or is not done at all), with the same numbers. A file of another plan or version is refused.
        progress: a progress bar on stderr (needs tqdm).

    Raises ValueError for a bad argument, and for a file that cannot be written, cannot be read, or is not this plan's; nothing is
    overwritten then.
    """
    path = Path(save) if str(save) else None
    size, tokens = int(np.prod(plan.shape)), plan.law.tokens
    outcome = {name: np.full(size, np.nan) for name in _OUTCOMES} | {"attention": np.full((size, tokens), np.nan)}
    done = 0
    if path is not None:
        require_writable(path)
        if path.exists():
            outcome, done = _load(path, plan)
    with progress_bar(progress, size, "heat map") as bar:
        bar.update(done)
        for units in _batches(plan, done):
            _compute(plan, units, outcome)
            if path is not None:
                write_arrays(
                    path, key=np.array(plan.key), format=np.array(FORMAT), done=np.array(units[-1] + 1), **outcome
                )
            bar.update(len(units))
    return _as_map(plan, outcome)


def _as_map(plan: HeatPlan, outcome: dict[str, np.ndarray]) -> HeatMap:
    # Units are numbered run by run; cells want the runs last.
    rows, columns, runs = plan.shape
    shaped = {k: np.moveaxis(v.reshape(runs, rows, columns, *v.shape[1:]), 0, 2) for k, v in outcome.items()}
    return HeatMap(plan, **shaped)


def _batches(plan: HeatPlan, done: int) -> Iterator[np.ndarray]:
    """Units (run, row, column), numbered in that order, from number `done` on."""
    width = max(1, int(_BATCH * (160 / (plan.law.n * plan.law.tokens)) ** 2))
    size = int(np.prod(plan.shape))
    for first in range(done, size, width):
        yield np.arange(first, min(first + width, size))


def _compute(plan: HeatPlan, units: np.ndarray, outcome: dict[str, np.ndarray]) -> None:
    rows, columns, runs = plan.shape
    which = list(zip(*np.unravel_index(units, (runs, rows, columns)), strict=True))
    laws = [plan.cell(int(i), int(j)) for _, i, j in which]
    grams = [
        draw_gram(law, plan.seed, start=plan.start, first_run=int(r))
        for law, (r, _, _) in zip(laws, which, strict=True)
    ]
    # The law of the joined Gram is the first cell's. Of a law, training and a Trajectory use n and T alone, which all cells share.
    path = train(join(grams), plan.step_size, plan.steps, record=[plan.steps])
    outcome["train_loss"][units] = path.loss[-1].numpy()
    for kind in ("clean", "noisy"):
        outcome[f"{kind}_fitted"][units] = path.train_accuracy(kind)[-1].numpy()
        outcome[f"attention_{kind}"][units] = path.attention_of(kind)[-1, :, 0].numpy()
    for place, (unit, law, (run, _, _)) in enumerate(zip(units, laws, which, strict=True)):
        rng = stream(plan.seed, "test", int(run))
        at = path.direction_on_signals[-1, place], path.direction_norm_squared[-1, place]
        fresh = population(law, *at, count=plan.count, rng=rng)
        for name in ("loss", "loss_se", "error", "error_se"):
            outcome[name][unit] = getattr(fresh, name).item()
        outcome["attention"][unit] = fresh.attention.numpy()


# --- progress and the file ---------------------------------------------------------------------------------------------------


def _load(path: Path, plan: HeatPlan) -> tuple[dict[str, np.ndarray], int]:
    stored = read_arrays(path, "heat map", "key", "done")
    if stored.get("format") != FORMAT:
        raise ValueError(
            f"save must be a file of format {FORMAT}; got {path.name}, made by an earlier or a later version: delete it or "
            "choose another name"
        )
    size = int(np.prod(plan.shape))
    wanted = {name: (size,) for name in _OUTCOMES} | {"attention": (size, plan.law.tokens)}
    if str(stored["key"]) != plan.key or any(
        name not in stored or stored[name].shape != s for name, s in wanted.items()
    ):
        raise ValueError(
            f"save must be a new file or one of this plan; got {path.name}, a map of other parameters: delete it or choose "
            "another name"
        )
    return {name: stored[name].astype(np.float64) for name in wanted}, int(stored["done"])


def write_map(found: HeatMap, path: str | os.PathLike) -> None:
    """A finished map as a small compressed .npz, float32, written atomically: the axes and every outcome, (rows, columns, runs)."""
    path = Path(path)
    require_writable(path)
    arrays = {name: getattr(found, name).astype(np.float32) for name in (*_OUTCOMES, "attention")}
    key, done = np.array(found.plan.key), np.array(int(np.prod(found.plan.shape)))
    write_arrays(path, compressed=True, key=key, format=np.array(FORMAT), done=done, **_axes(found.plan), **arrays)


def read_map(path: str | os.PathLike, plan: HeatPlan) -> HeatMap:
    """A map of `plan` that `write_map` wrote. Raises ValueError for a file that is none, or of another plan."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"path must be a file that write_map wrote; there is no {path.name}")
    stored = read_arrays(sealed(path), "heat map", "key", "done")
    if str(stored["key"]) != plan.key or stored["train_loss"].shape != plan.shape:
        raise ValueError(f"path must be a map of this plan; got {path.name}, a map of other parameters")
    return HeatMap(plan, **{name: stored[name].astype(np.float64) for name in (*_OUTCOMES, "attention")})


def _axes(plan: HeatPlan) -> dict[str, np.ndarray]:
    return {"signal_norms": plan.signal_norms, "dims": plan.dims}


def published_plan() -> HeatPlan:
    """The paper's map: 39 x 39 cells, one training set each."""
    law, axes = TokenLaw(20, 3, 8, 1.0), (np.linspace(5, 100, 39), np.arange(250, 5001, 125))
    return heat_plan(*axes, law=law, step_size=0.005, steps=1000, runs=1, count=20_000)


def main() -> None:
    """Make the stored map again: some minutes."""
    write_map(heat_map(published_plan(), progress=True), TABLE)
    seal(TABLE)


if __name__ == "__main__":
    raise SystemExit(answered("heat_map", main))
