r"""Phase diagrams of two steps: accuracy and the exact clean error in every cell of a grid, many draws per cell, in one computation.

Two steps need little of a training set: the Gram matrix of its noise tokens, the classes, and who is flipped. A draw fixes the noise, the
classes and one uniform number per sample; a label is flipped where its uniform is below $\eta$. So at fixed $(n, d)$ one draw serves every
$(\rho, \eta, \beta)$, and all cells together are a few matrix products $\Xi\,(\Xi^\top C)$ with one column of $C$ per cell. In
Bartlett's coordinates of $\Xi$ two dimensions above n differ on the diagonal only, and share these products. Each cell gets the very
numbers of `summarise` for its law and seed.

Cells of a diagram share their draws (*common random numbers*): boundaries are smooth, neighbouring cells are not independent, and an
interval must come from resampling draws, not cells.
"""

import os
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch

from attnbook.files import write_arrays
from attnbook.single_head.phase_cells import two_step_cells
from attnlib import limits
from attnlib.randomness import stream
from attnlib.single_head.errors import FreshScores, log10_error_of_scores

_BLOCK = 1 << 19  # samples x cells of one product: a few arrays of 4 MB at once
_CHUNK_CELLS = 1024  # cells integrated together
_SETTINGS = ("n", "d", "signal_norm", "label_noise", "step_size")
_OUTCOMES = (
    "train_accuracy_step1", "train_accuracy", "smallest_margin", "preference", "attention_clean", "attention_noisy", "p_signal",
    "log10_error",
)  # fmt: skip


@dataclass(frozen=True)
class PhasePlan:
    """What to compute: two sorted axes and, in every cell, the setting. Cell arrays are (rows, columns) = (y, x)."""

    x: np.ndarray  # (columns,)
    y: np.ndarray  # (rows,)
    n: np.ndarray
    d: np.ndarray
    signal_norm: np.ndarray
    label_noise: np.ndarray
    step_size: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.y), len(self.x)

    @property
    def snr(self) -> np.ndarray:
        return self.signal_norm / np.sqrt(self.d)


def phase_plan(x, y, *, n, d, signal_norm, label_noise, step_size):
    """A plan with two rising axes; settings are numbers, or arrays that broadcast to (len(y), len(x)).

    Write a setting that follows x as `f(x)[None, :]` and one that follows y as `f(y)[:, None]`.

    >>> import numpy as np
    >>> snr, eta = np.geomspace(0.05, 0.5, 3), np.array([0.0, 0.1])
    >>> plan = phase_plan(snr, eta, n=200, d=40_000, signal_norm=200 * snr, label_noise=eta[:, None], step_size=0.025)
    >>> plan.shape, plan.signal_norm.shape
    ((2, 3), (2, 3))
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    whole = (np.broadcast_to(np.asarray(values, np.int64), (len(y), len(x))).copy() for values in (n, d))
    settings = (signal_norm, label_noise, step_size)
    return PhasePlan(x, y, *whole, *(np.broadcast_to(np.asarray(v, float), (len(y), len(x))).copy() for v in settings))


@dataclass(frozen=True)
class PhaseDiagram:
    """A plan and its outcome: all arrays (rows, columns, draws). `log10_error` is all nan when it was not asked for."""

    plan: PhasePlan
    seed: int
    train_accuracy_step1: np.ndarray
    train_accuracy: np.ndarray
    smallest_margin: np.ndarray
    preference: np.ndarray
    attention_clean: np.ndarray
    attention_noisy: np.ndarray
    p_signal: np.ndarray
    log10_error: np.ndarray

    @property
    def draws(self) -> int:
        return self.train_accuracy.shape[-1]

    @property
    def interpolates(self) -> np.ndarray:
        """(rows, columns, draws) bool: every observed label is fitted after two steps."""
        return self.smallest_margin > 0

    def phases(self) -> np.ndarray:
        """(rows, columns, draws): 0 not interpolating, 1 harmful, 2 benign (interpolates, error below a tenth)."""
        return np.where(self.interpolates, np.where(self.log10_error < -1, 2, 1), 0)

    def phase(self) -> tuple[np.ndarray, np.ndarray]:
        """Majority phase of each cell, and bool: *uncertain* cells, in which more than a tenth of the draws disagree."""
        each = self.phases()
        counts = np.stack([(each == k).sum(-1) for k in range(3)], -1)  # (rows, columns, 3)
        return counts.argmax(-1), counts.max(-1) < 0.9 * self.draws


def phase_diagram(plan, *, draws=10, seed=0, errors=True):
    """Compute a plan. Draw r of a cell is draw r of `summarise` with the cell's law and the same seed.

    Args:
        plan: from `phase_plan`.
        draws: training sets per cell.
        errors: also integrate the exact clean error (nearly all of the time on small n).
    """
    outcome = {name: np.full((plan.n.size, draws), np.nan) for name in _OUTCOMES}
    for units in _chunks(plan, draws):
        _compute(plan, units, seed, errors, outcome)
    return PhaseDiagram(plan, seed, **{k: v.reshape(*plan.shape, draws) for k, v in outcome.items()})


def _chunks(plan, draws):
    """Lists of units (draw, flat indices of cells with one n and one rank of the noise), about _CHUNK_CELLS cells each."""
    n, d = plan.n.ravel(), plan.d.ravel()
    _, group = np.unique(np.stack([n, np.minimum(n, d - 2)]), axis=1, return_inverse=True)
    units, size = [], 0
    for label in range(group.max() + 1):
        cells = np.flatnonzero(group.ravel() == label)
        width = max(1, min(_CHUNK_CELLS, _BLOCK // int(n[cells[0]])))
        for draw in range(draws):
            for first in range(0, len(cells), width):
                units.append((draw, cells[first : first + width]))
                size += len(units[-1][1])
                if size >= _CHUNK_CELLS:
                    yield units
                    units, size = [], 0
    if units:
        yield units


def _compute(plan, units, seed, errors, outcome):
    """Two steps in every unit, then one integration for all of them; results go into `outcome` (cells, draws)."""
    fresh = []
    for draw, cells in units:
        n, d, *settings = (getattr(plan, name).ravel()[cells] for name in _SETTINGS)
        *drawn, diagonal = _draw(seed, draw, int(n[0]), d)
        result = two_step_cells(*(torch.as_tensor(part) for part in (*drawn, *settings, diagonal)))
        for name in _OUTCOMES[:-1]:
            outcome[name][cells, draw] = getattr(result, name).numpy()
        fresh.append(result.fresh)
    if errors:
        joined = FreshScores(*(torch.cat([getattr(f, part.name) for f in fresh]) for part in fields(FreshScores)))
        values, first = log10_error_of_scores(joined).numpy(), 0
        for draw, cells in units:
            outcome["log10_error"][cells, draw] = values[first : first + len(cells)]
            first += len(cells)


def _draw(seed, run, n, d):
    """Noise below its diagonal, classes, the uniforms behind the flips, and the diagonals (rank, K) for K dimensions of one rank.

    The streams of `SignalNoiseLaw.draw`, before eta and rho are chosen: `bartlett_rows` draws the diagonal last.
    """
    rng, dims, dim_of_cell = stream(seed, "noise", run), *np.unique(d - 2, return_inverse=True)
    rank = min(n, int(dims[0]))
    limits.require_memory(lambda n, rank: 8 * n * rank, n=n, rank=rank)
    noise, diagonals = np.tril(rng.standard_normal((n, rank)), -1), []
    state = rng.bit_generator.state
    for dim in dims:
        rng.bit_generator.state = state
        diagonals.append(np.sqrt(rng.chisquare(dim - np.arange(rank))))
    classes, uniforms = stream(seed, "labels", run).integers(0, 2, n), stream(seed, "flips", run).random(n)
    return noise, classes, uniforms, np.stack(diagonals, 1)[:, dim_of_cell]


# --- the file ---------------------------------------------------------------------------------------------------


def write_grid(diagram: PhaseDiagram, path: str | os.PathLike) -> None:
    """A diagram as a small .npz for other programs, written atomically: x, y, the settings and the mean over draws in each cell.

    Arrays: x, y, n, d, signal_norm, label_noise, step_size, train_accuracy, interpolating_fraction, log10_error_mean,
    log10_error_min, log10_error_max, phase (0 not interpolating, 1 harmful, 2 benign), uncertain.
    """
    plan, error = diagram.plan, diagram.log10_error
    phase, uncertain = diagram.phase()
    write_arrays(
        Path(path), x=plan.x, y=plan.y, **{name: getattr(plan, name) for name in _SETTINGS},
        train_accuracy=diagram.train_accuracy.mean(-1), interpolating_fraction=diagram.interpolates.mean(-1),
        log10_error_mean=error.mean(-1), log10_error_min=error.min(-1), log10_error_max=error.max(-1),
        phase=phase.astype(np.int8), uncertain=uncertain,
    )  # fmt: skip
