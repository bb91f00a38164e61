r"""Maps over signal norm and dimension: training and fresh data after a fixed number of steps, several training sets per cell.

A cell is one `TokenLaw`; its training is exact gradient descent (`train`), its averages on fresh data are taken in score space. The
step of the recursion sees a law only through its inner products, so cells of any $d$ and $|\mu|$ are trained in one batch.

Run r of every cell draws from the streams (seed, role, r). So a cell's numbers depend neither on the other cells nor on how the
batches are cut, and cells of one run share their draws (*common random numbers*): borders are smooth, neighbouring cells are not
independent, and an interval must come from runs, not from cells.
"""

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from attnbook.files import read_arrays, require_writable, write_arrays
from attnbook.stored import seal, sealed
from attnbook.token_selection.mean_field import CLEAN, FLIPPED, mean_field
from attnbook.token_selection.theory import fresh_attention
from attnlib.extras import progress_bar
from attnlib.randomness import stream
from attnlib.token_selection.errors import population
from attnlib.token_selection.gram import draw_gram, join
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.training import train
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


def heat_plan(signal_norms, dims, *, law, step_size, steps, runs=5, seed=0, start=None, count=4000) -> HeatPlan:
    """A plan of rising axes. `law` gives n, T and the rest; its own d and signal_norm are not used.

    >>> plan = heat_plan([5, 20], [250, 2000], law=TokenLaw(20, 3, 8, 1.0), step_size=0.005, steps=1000)
    >>> plan.shape, plan.cell(1, 0).d
    ((2, 2, 5), 2000)
    """
    norms, sizes = np.asarray(signal_norms, dtype=np.float64), np.asarray(dims).astype(np.int64)
    law, start = replace(law, d=3, signal_norm=1.0), Start() if start is None else start
    return HeatPlan(law, norms, sizes, start, step_size, steps, runs, seed, count)


class HeatMap(SimpleNamespace):
    """A plan and its outcome, arrays (rows, columns, runs); accuracies are shares.

    train_loss; clean_fitted, noisy_fitted: training accuracy, of flipped samples against their observed labels, nan without any;
    attention_clean, attention_noisy: mean training attention on x_1. On fresh data loss and error, loss_se and error_se their standard
    errors, and attention (rows, columns, runs, T), the mean on every token.
    """

    def phases(self) -> np.ndarray:
        """(rows, columns, runs): index into `PHASES`, training set by training set; see `phases`."""
        uniform = self.plan.over_cells(uniform_error)[..., None]
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


def uniform_error(law):
    """1 - `theory.uniform_attention_accuracy`, also where that is 1 to sixteen digits."""
    strength = law.signal_norm * (1 + (law.same_class_tokens - 1) * law.weak_signal)
    return 0.5 * math.erfc(strength / (law.noise_std * math.sqrt(2 * law.tokens)) / math.sqrt(2))


def heat_map(plan, *, save="", progress=False) -> HeatMap:
    """Compute a plan.

    Args:
        save: an .npz file that is written, atomically, after every batch. If it is there already, the computation goes on where it
            stopped (or is not done at all), with the same numbers. A file of another plan or version is refused.
        progress: a progress bar on stderr (needs tqdm).

    Raises ValueError for a file that cannot be written, cannot be read, or is not this plan's; nothing is overwritten then.
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
                key, last = np.array(plan.key), np.array(units[-1] + 1)
                write_arrays(path, key=key, format=np.array(FORMAT), done=last, **outcome)
            bar.update(len(units))
    # Units are numbered run by run; cells want the runs last.
    rows, columns, runs = plan.shape
    shaped = {k: np.moveaxis(v.reshape(runs, rows, columns, *v.shape[1:]), 0, 2) for k, v in outcome.items()}
    return HeatMap(plan=plan, **shaped)


def _batches(plan, done):
    """Units (run, row, column), numbered in that order, from number `done` on."""
    width = max(1, int(_BATCH * (160 / (plan.law.n * plan.law.tokens)) ** 2))
    size = int(np.prod(plan.shape))
    for first in range(done, size, width):
        yield np.arange(first, min(first + width, size))


def _compute(plan, units, outcome):
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


# --- the prediction ------------------------------------------------------------------------------------------------------------


def predicted_map(plan):
    """The mean field after the same number of steps, from p_0 = 0, (rows, columns) each; a few milliseconds per cell.

    attention: mean fresh attention on x_1; margin_noisy: Y f of a flipped training sample, Y the observed label; attention_clean and
    attention_noisy: training attention on x_1.
    """

    def cell(law):
        scale, horizon = plan.start.weight_scale, float(plan.steps)
        path = mean_field(law, plan.step_size, weight_scale=scale, horizon=horizon, largest_move=0.2)
        score, variance = path.signal_score[-1], path.score_variance[-1]
        return (
            fresh_attention(law, score, score, variance)[0],
            path.margins[-1, FLIPPED],
            path.attention[-1, CLEAN, 0],
            path.attention[-1, FLIPPED, 0],
        )

    names = ("attention", "margin_noisy", "attention_clean", "attention_noisy")
    return SimpleNamespace(**dict(zip(names, np.moveaxis(plan.over_cells(cell), -1, 0), strict=True)))


def heat_study(found):
    """A map, its prediction, and reach (rows, columns): value of the confusing token over the standard deviation of the noise on values,
    rho |mu| / (sqrt 2 sigma)."""
    reach = found.plan.over_cells(lambda law: law.weak_signal * law.signal_norm / (math.sqrt(2) * law.noise_std))
    return SimpleNamespace(found=found, predicted=predicted_map(found.plan), reach=reach)


def border_exponents(plan, values, level):
    r"""(R,): e in $d \propto |\mu|^e$ on the border where a quantity that rises with $|\mu|$ crosses `level`, run by run.

    values: (rows, columns, R). In each row the first crossing is used, linear in log |mu|; rows without one are left out. log |mu|
    is regressed on log d and the slope inverted. nan for a run with fewer than three crossings, or with a value that is no number.
    """
    norms = np.log(plan.signal_norms)
    slopes = []
    for run in range(values.shape[-1]):
        x, y = [], []
        for i, size in enumerate(plan.dims):
            row = values[i, :, run]
            cross = np.flatnonzero((row[:-1] < level) & (row[1:] >= level))
            if len(cross):
                k = cross[0]
                x.append(math.log(size))
                y.append(norms[k] + (norms[k + 1] - norms[k]) * (level - row[k]) / (row[k + 1] - row[k]))
        known = len(x) >= 3 and not np.isnan(values[..., run]).any()
        slopes.append(1 / np.polyfit(x, y, 1)[0] if known else math.nan)
    return np.array(slopes)


# --- progress and the file -----------------------------------------------------------------------------------------------------


def _load(path, plan):
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


def write_map(found, path):
    """A finished map as a small compressed .npz, float32, written atomically: the axes and every outcome, (rows, columns, runs)."""
    path = Path(path)
    require_writable(path)
    arrays = {name: getattr(found, name).astype(np.float32) for name in (*_OUTCOMES, "attention")}
    axes = {"signal_norms": found.plan.signal_norms, "dims": found.plan.dims}
    key, done = np.array(found.plan.key), np.array(int(np.prod(found.plan.shape)))
    write_arrays(path, compressed=True, key=key, format=np.array(FORMAT), done=done, **axes, **arrays)


def read_map(path, plan) -> HeatMap:
    """A map of `plan` that `write_map` wrote. Raises ValueError for a file that is none, or of another plan."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"path must be a file that write_map wrote; there is no {path.name}")
    stored = read_arrays(sealed(path), "heat map", "key", "done")
    if str(stored["key"]) != plan.key or stored["train_loss"].shape != plan.shape:
        raise ValueError(f"path must be a map of this plan; got {path.name}, a map of other parameters")
    return HeatMap(plan=plan, **{name: stored[name].astype(np.float64) for name in (*_OUTCOMES, "attention")})


def published_plan():
    """The paper's map: 39 x 39 cells, one training set each."""
    law, axes = TokenLaw(20, 3, 8, 1.0), (np.linspace(5, 100, 39), np.arange(250, 5001, 125))
    return heat_plan(*axes, law=law, step_size=0.005, steps=1000, runs=1, count=20_000)


def main():
    """Make the stored map again: some minutes."""
    write_map(heat_map(published_plan(), progress=True), TABLE)
    seal(TABLE)


if __name__ == "__main__":
    raise SystemExit(answered("heat_map", main))
