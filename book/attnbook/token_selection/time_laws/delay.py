r"""The second time scale: how long after memorising its flipped labels a model attends to the relevant token of fresh data.

Two times of one run of gradient flow (time is the sum of the step sizes): $t_{\rm fit}$, when every observed label is fitted, and
$t_{\rm sel}$, when the mean attention of a fresh sample on $x_1$ reaches $\tfrac12$. The theorem (arXiv 2409.17625, poster, part 2)
puts an exponential of $1/(n\,\mathrm{SNR}^2)$ between them. $t_{\rm sel}$ runs over tens of decades, so it is found on
`train_flow`, and the fresh attention is an exact integral: no draws stand between the two.
"""

import bisect
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.token_selection.theory import fresh_attention, n_snr_squared
from attnbook.token_selection.time_laws.horizon import train_flow
from attnlib import checks
from attnlib.randomness import stream
from attnlib.token_selection.gram import Gram, draw_gram
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.model import outputs
from attnlib.token_selection.population import Population, population
from attnlib.token_selection.training import Recursion, Trajectory

_EVERY = 4  # the state is kept every so many steps; fresh attention is interpolated in log time between
_LOOK = 16  # steps after which a coarse look says whether a run may end
_COUNT = (
    400  # fresh points of that look, which only brackets the crossing; the crossing itself is found with the exact mean
)
_AFTER = 0.53  # training goes on until the coarse look sees this much


def delay_strength(law: TokenLaw) -> float:
    """1 / (n SNR^2), the theorem's exponent."""
    return 1 / n_snr_squared(law)


def laws_of_strength(law: TokenLaw, strengths: Sequence[float]) -> list[TokenLaw]:
    """`law` in the dimensions that make 1 / (n SNR^2) each of `strengths` (rounded to a whole d)."""
    wanted = [
        checks.positive_number("strengths", s) * law.n * (law.signal_norm / law.noise_std) ** 2 for s in strengths
    ]
    return [replace(law, d=round(d)) for d in wanted]


def attention_on_relevant(
    law: TokenLaw, direction_on_signals: torch.Tensor, direction_norm_squared: torch.Tensor
) -> float:
    """Mean attention of fresh samples on x_1, over both classes, exactly (no draws): see `theory.fresh_attention`.

    Args: of one model, (2,) and ().
    """
    plus, minus = (law.signal_norm * direction_on_signals).tolist()
    variance = law.noise_std**2 * float(direction_norm_squared)
    return (fresh_attention(law, plus, minus, variance)[0] + fresh_attention(law, minus, plus, variance)[0]) / 2


def _sampled(
    law: TokenLaw, on_signals: torch.Tensor, norm_squared: torch.Tensor, normals: torch.Tensor
) -> torch.Tensor:
    """The same for R models at once, (R,), from draws of the scores: normals (R, count, T), the two classes alternate."""
    means = law.means(torch.tensor([1.0, -1.0], dtype=normals.dtype))  # (2, T, 2)
    mean = torch.einsum("ctk,rk->rct", means, on_signals).repeat(1, normals.shape[1] // 2, 1)
    spread = law.noise_std * norm_squared.sqrt().view(-1, 1, 1)
    return torch.softmax(mean + spread * normals, -1)[..., 0].mean(1)


@dataclass(frozen=True)
class Delays:
    """K laws, R runs each: times in units of step size x steps; nan for a run that did not get there."""

    laws: tuple[TokenLaw, ...]
    fit: np.ndarray  # (K, R), every observed label fitted for the first time
    select: np.ndarray  # (K, R), fresh attention on x_1 is 1/2 for the first time
    steps: np.ndarray  # (K,), steps that this took

    @property
    def strength(self) -> np.ndarray:
        """(K,): 1 / (n SNR^2)."""
        return np.array([delay_strength(law) for law in self.laws])


def delay_times(
    laws: Sequence[TokenLaw], *, runs: int, seed: int, steps: int = 4000, largest_move: float = 0.05, start: Start | None = None
) -> Delays:  # fmt: skip
    """Follow the flow of every law until all its runs have fitted their labels and selected x_1 on fresh data.

    Args:
        runs: training sets 0 ... runs - 1 of `seed` per law; laws share the streams.
        steps: at most so many per law, with `largest_move` as in `train_flow`.

    Raises ValueError for a bad argument before any work.
    """
    laws = tuple(laws)
    if not laws:
        raise ValueError("laws must hold one TokenLaw or more; got none")
    runs = checks.whole_number("runs", runs, at_least=1)
    found = [_delay(law, runs, seed, steps, largest_move, start) for law in laws]
    return Delays(laws, *(np.stack(column) for column in zip(*found, strict=True)))


def _delay(
    law: TokenLaw, runs: int, seed: int, steps: int, largest_move: float, start: Start | None
) -> tuple[np.ndarray, np.ndarray, int]:
    gram = draw_gram(law, seed, runs, start=start)
    normals, calls = _normals(law, seed, 0, runs), 0
    fit = torch.full((runs,), math.nan, dtype=torch.float64)
    selected, fittable = torch.zeros(runs, dtype=torch.bool), _fittable(gram)

    def done(state: Recursion) -> torch.Tensor:
        nonlocal calls, fit, selected
        if fit.isnan().any():
            fitted = (outputs(state.scores, gram.head_scores) * gram.labels.observed > 0).all(-1)
            fit = torch.where(fit.isnan() & fitted, state.time, fit)
        if calls % _LOOK == 0:
            seen = _sampled(law, state.direction_on_signals, state.direction_norm_squared, normals)
            selected = selected | (seen >= _AFTER)
        calls += 1
        return selected & ~(fit.isnan() & fittable)  # nobody waits for a label that no attention fits

    path = train_flow(gram, steps=steps, largest_move=largest_move, record_every=_EVERY, done=done).trajectory
    return fit.numpy(), selection_times(path), path.steps[-1]


def _fittable(gram: Gram) -> torch.Tensor:
    """(R,) bool: every sample has a token whose value agrees with its observed label. Without one no attention fits it."""
    return ((gram.head_scores * gram.labels.observed[..., None]).amax(-1) > 0).all(-1)


def fit_times(laws: Sequence[TokenLaw], *, runs: int, seed: int, steps: int = 2000) -> np.ndarray:
    """(K, R): time of the flow at which every observed label is fitted for the first time; inf for a training set with a label that no
    attention fits, nan after `steps` steps without.

    Raises ValueError for a bad argument before any work.
    """
    runs, times = checks.whole_number("runs", runs, at_least=1), []
    for law in laws:
        gram = draw_gram(law, seed, runs)
        hopeless = ~_fittable(gram)

        def done(state: Recursion, gram: Gram = gram, hopeless: torch.Tensor = hopeless) -> torch.Tensor:
            return hopeless | (outputs(state.scores, gram.head_scores) * gram.labels.observed > 0).all(-1)

        path = train_flow(gram, steps=steps, done=done)
        at = path.trajectory.time.gather(0, path.done.clamp(min=0).unsqueeze(0))[0]
        times.append(at.masked_fill(path.done < 0, math.nan).masked_fill(hopeless, math.inf).numpy())
    return np.stack(times)


def _normals(law: TokenLaw, seed: int, first_run: int, runs: int) -> torch.Tensor:
    draws = [stream(seed, "test", first_run + r).standard_normal((_COUNT, law.tokens)) for r in range(runs)]
    return torch.as_tensor(np.stack(draws))


def selection_times(path: Trajectory) -> np.ndarray:
    """(R,): time at which the exact fresh attention on x_1 crosses 1/2, linear in log time between records; nan: never."""
    return np.array([_selection_time(path, run) for run in range(path.runs)])


def _selection_time(path: Trajectory, run: int) -> float:
    on_signals, norms, times = path.direction_on_signals[:, run], path.direction_norm_squared[:, run], path.time[:, run]

    @functools.cache
    def at(s: int) -> float:
        return attention_on_relevant(path.law, on_signals[s], norms[s])

    row = bisect.bisect_left(range(len(times)), 0.5, key=at)  # attention rises until it is 1/2
    if row == len(times):
        return math.nan
    if row < 2:
        return times[row].item()  # before the first record: no log time to interpolate in
    earlier, later = times[row - 1 : row + 1].log().tolist()
    return math.exp(earlier + (later - earlier) * (0.5 - at(row - 1)) / (at(row) - at(row - 1)))


def along_time(time: torch.Tensor, values: torch.Tensor, grid: np.ndarray) -> np.ndarray:
    """Values of runs with their own times, read off at common times: linear in log time, nan beyond a run's end.

    time, values: (S, R), times rising from 0. grid: (G,) positive; before the first positive time it is linear in time.
    Returns (R, G).
    """
    rows = []
    for run in range(time.shape[1]):
        t, y = time[:, run].numpy(), values[:, run].numpy()
        late = np.interp(np.log(grid), np.log(t[1:]), y[1:], right=math.nan)
        rows.append(np.where(grid < t[1], np.interp(grid, t[:2], y[:2]), late))
    return np.stack(rows)


@dataclass(frozen=True)
class Course:
    """What R runs of one law show at G common times; nan after a run's end. All (R, G), populations from fresh draws."""

    law: TokenLaw
    times: np.ndarray  # (G,)
    attention: np.ndarray  # mean fresh attention on x_1
    loss: np.ndarray  # on fresh data
    error: np.ndarray  # on fresh data
    clean_fitted: np.ndarray  # training
    noisy_fitted: np.ndarray


def course(
    law: TokenLaw, times: Sequence[float], *, runs: int, seed: int, steps: int = 4000, count: int = 4000
) -> Course:
    """Follow the flow up to the last of `times` and read everything off at all of them, linearly in log time between steps.

    Raises ValueError for times that are not positive and rising, and for a bad argument, before any work.
    """
    grid = np.asarray(times, dtype=np.float64)
    if grid.ndim != 1 or not len(grid) or not (np.isfinite(grid).all() and grid[0] > 0 and (np.diff(grid) > 0).all()):
        raise ValueError(f"times must be positive and rising; got {times!r}")
    runs = checks.whole_number("runs", runs, at_least=1)
    gram = draw_gram(law, seed, runs)
    path = train_flow(gram, steps=steps, record_every=_EVERY, done=lambda state: state.time >= grid[-1]).trajectory
    columns = [_read(path, run, grid, count) for run in range(runs)]
    return Course(law, grid, *(np.stack(column) for column in zip(*columns, strict=True)))


def read_beside(path: Trajectory, run: int, grid: np.ndarray, count: int) -> tuple[np.ndarray, Population]:
    """The records of one run on both sides of every time of the grid, and what `count` fresh points see of them."""
    time = path.time[:, run].numpy()
    after = np.clip(np.searchsorted(time, grid), 1, len(time) - 1)
    rows = np.unique(np.concatenate([[0], after - 1, after]))
    rng = stream(path.seed, "test", path.first_run + run)
    v, norms = path.direction_on_signals[rows, run], path.direction_norm_squared[rows, run]
    return rows, population(path.law, v, norms, count=count, rng=rng)


def _read(path: Trajectory, run: int, grid: np.ndarray, count: int) -> list[np.ndarray]:
    """The columns of a `Course` of one run."""
    rows, fresh = read_beside(path, run, grid, count)
    fitted = (path.train_accuracy(kind)[rows, run] for kind in ("clean", "noisy"))
    columns = fresh.attention[:, 0], fresh.loss, fresh.error, *fitted
    return [along_time(path.time[rows, run : run + 1], column.unsqueeze(1), grid)[0] for column in columns]
