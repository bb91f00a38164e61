r"""The second time scale: how long after memorising its flipped labels a model attends to the relevant token of fresh data.

Two times of one run of gradient flow (time is the sum of the step sizes): $t_{\rm fit}$, when every observed label is fitted, and
$t_{\rm sel}$, when the mean attention of a fresh sample on $x_1$ reaches $\tfrac12$. The theorem (arXiv 2409.17625, poster, part 2)
puts an exponential of $1/(n\,\mathrm{SNR}^2)$ between them. $t_{\rm sel}$ runs over tens of decades, so it is found on
`train_flow`, and the fresh attention is an exact integral: no draws stand between the two.
"""

import bisect
import functools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.token_selection.horizon import fittable, train_flow
from attnbook.token_selection.the_delay.limits import (
    critical_discrimination,
    discrimination_at,
    exponent_at,
    gap_differences,
    late_gaps,
    laws_at,
    mean_field_distance,
)
from attnbook.token_selection.theory import (
    fresh_attention,
    laws_of_strength,
    n_d_snr_fourth,
    n_snr_squared,
    selection_time,
    uniform_attention_accuracy,
)
from attnlib.randomness import stream
from attnlib.token_selection.errors import population
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.model import outputs

STRENGTHS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # 1 / (n SNR^2) of the delay
SHARP = (2.0, 4.0, 8.0)  # 1 / (n SNR^2) between which slopes are taken
THETA = 4.0  # time at which training p alone is compared with the orthogonal-noise prediction
_EVERY = 4  # the state is kept every so many steps; fresh attention is interpolated in log time between
_LOOK = 16  # steps after which a coarse look says whether a run may end
_COUNT = 400  # fresh points of that look, which only brackets the crossing; it is found with the exact mean
_AFTER = 0.53  # training goes on until the coarse look sees this much

# --- t_fit and t_sel -----------------------------------------------------------------------------------------------------------


def attention_on_relevant(law, direction_on_signals, direction_norm_squared):
    """Mean attention of fresh samples on x_1, over both classes, exactly (no draws): see `theory.fresh_attention`.

    Args: of one model, (2,) and ().
    """
    plus, minus = (law.signal_norm * direction_on_signals).tolist()
    variance = law.noise_std**2 * float(direction_norm_squared)
    return (fresh_attention(law, plus, minus, variance)[0] + fresh_attention(law, minus, plus, variance)[0]) / 2


def _sampled(law, on_signals, norm_squared, normals):
    """The same for R models at once, (R,), from draws of the scores: normals (R, count, T), the two classes alternate."""
    means = law.means(torch.tensor([1.0, -1.0], dtype=normals.dtype))  # (2, T, 2)
    mean = torch.einsum("ctk,rk->rct", means, on_signals).repeat(1, normals.shape[1] // 2, 1)
    spread = law.noise_std * norm_squared.sqrt().view(-1, 1, 1)
    return torch.softmax(mean + spread * normals, -1)[..., 0].mean(1)


def delay_times(laws, *, runs, seed, steps=4000, largest_move=0.05):
    """Follow the flow of K laws until all R runs have fitted their labels and selected x_1 on fresh data; laws share the streams.

    strength (K,), 1 / (n SNR^2); fit, select (K, R): times, nan for a run that did not get there; steps (K,) that this took, at most
    `steps`, with `largest_move` as in `train_flow`.
    """
    found = [_delay(law, runs, seed, steps, largest_move) for law in laws]
    fit, select, taken = (np.stack(column) for column in zip(*found, strict=True))
    strength = np.array([1 / n_snr_squared(law) for law in laws])
    return SimpleNamespace(laws=laws, strength=strength, fit=fit, select=select, steps=taken)


def _delay(law, runs, seed, steps, largest_move):
    gram = draw_gram(law, seed, runs)
    normals = torch.as_tensor(
        np.stack([stream(seed, "test", r).standard_normal((_COUNT, law.tokens)) for r in range(runs)])
    )
    fit, calls = torch.full((runs,), math.nan, dtype=torch.float64), 0
    selected, waited_for = torch.zeros(runs, dtype=torch.bool), fittable(gram)

    def done(state):
        nonlocal calls, fit, selected
        if fit.isnan().any():
            fitted = (outputs(state.scores, gram.head_scores) * gram.labels.observed > 0).all(-1)
            fit = torch.where(fit.isnan() & fitted, state.time, fit)
        if calls % _LOOK == 0:
            seen = _sampled(law, state.direction_on_signals, state.direction_norm_squared, normals)
            selected = selected | (seen >= _AFTER)
        calls += 1
        return selected & ~(fit.isnan() & waited_for)  # nobody waits for a label that no attention fits

    path = train_flow(gram, steps=steps, largest_move=largest_move, record_every=_EVERY, done=done).trajectory
    return fit.numpy(), selection_times(path), path.steps[-1]


def selection_times(path):
    """(R,): time at which the exact fresh attention on x_1 crosses 1/2, linear in log time between records; nan: never."""
    return np.array([_selection_time(path, run) for run in range(path.runs)])


def _selection_time(path, run):
    on_signals, norms, times = path.direction_on_signals[:, run], path.direction_norm_squared[:, run], path.time[:, run]

    @functools.cache
    def at(s):
        return attention_on_relevant(path.law, on_signals[s], norms[s])

    row = bisect.bisect_left(range(len(times)), 0.5, key=at)  # attention rises until it is 1/2
    if row == len(times):
        return math.nan
    if row < 2:
        return times[row].item()  # before the first record: no log time to interpolate in
    earlier, later = times[row - 1 : row + 1].log().tolist()
    return math.exp(earlier + (later - earlier) * (0.5 - at(row - 1)) / (at(row) - at(row - 1)))


def local_slopes(delays):
    """(R, 2): slope of log t_sel in 1/(n SNR^2), from 2 to 4 and from 4 to 8; these must be among the strengths."""
    rows = [int(np.argmin(np.abs(delays.strength - s))) for s in SHARP]
    return (np.diff(np.log(delays.select[rows]), axis=0) / np.diff(delays.strength[rows])[:, None]).T


# --- courses -------------------------------------------------------------------------------------------------------------------


def along_time(time, values, grid):
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


def course(law, times, *, runs, seed, steps=4000, count=4000):
    """Follow the flow up to the last of `times` (G,), positive and rising, and read off at all of them, linearly in log time between steps.

    attention (on x_1), loss and error of `count` fresh points; clean_fitted, noisy_fitted in training: (R, G), nan after a run's end.
    """
    gram = draw_gram(law, seed, runs)
    path = train_flow(gram, steps=steps, record_every=_EVERY, done=lambda state: state.time >= times[-1]).trajectory
    names = ("attention", "loss", "error", "clean_fitted", "noisy_fitted")
    columns = zip(*(_read(path, run, times, count) for run in range(runs)), strict=True)
    return SimpleNamespace(law=law, times=times, **dict(zip(names, map(np.stack, columns), strict=True)))


def read_beside(path, run, grid, count):
    """The records of one run on both sides of every time of the grid, and what `count` fresh points see of them."""
    time = path.time[:, run].numpy()
    after = np.clip(np.searchsorted(time, grid), 1, len(time) - 1)
    rows = np.unique(np.concatenate([[0], after - 1, after]))
    rng = stream(path.seed, "test", path.first_run + run)
    v, norms = path.direction_on_signals[rows, run], path.direction_norm_squared[rows, run]
    return rows, population(path.law, v, norms, count=count, rng=rng)


def _read(path, run, grid, count):
    """The columns of a `course` of one run."""
    rows, fresh = read_beside(path, run, grid, count)
    fitted = (path.train_accuracy(kind)[rows, run] for kind in ("clean", "noisy"))
    columns = fresh.attention[:, 0], fresh.loss, fresh.error, *fitted
    return [along_time(path.time[rows, run : run + 1], column.unsqueeze(1), grid)[0] for column in columns]


# --- what the page measures ----------------------------------------------------------------------------------------------------


def delay_study(weak, *, runs=5, seed=0):
    """Train R sets per law and collect; the d of the law `weak` is replaced by those that follow from STRENGTHS.

    delays: at fixed signal norm. sharp: at SHARP and one large n d SNR^4, (8 |mu| / sigma)^2, the page's law first, then other label
    noise and T; blurred: a small one, (|mu| / 2 sigma)^2. closed, closed_equal: log t_sel of each sharp law in closed form, and with
    all late gaps equal. slopes: the constant in the exponent as it may be read, and as derived. late: training p alone, far beyond
    memorisation. apart (R, laws): the largest distance of a score from the orthogonal-noise prediction at THETA, n SNR^2 = 1/2, d a
    factor 4 apart. never: strength 8, discrimination 0.6 of the critical one; growing: the benign side at strength 2; harmed: a weak
    signal.
    """
    s, common = SimpleNamespace(), {"runs": runs, "seed": seed}
    laws, strength = laws_of_strength(weak, STRENGTHS), (weak.signal_norm / weak.noise_std) ** 2
    s.delays = delay_times(laws, **common)
    others = [weak, *(replace(weak, label_noise=eta) for eta in (0.0, 0.3))]
    others.append(replace(weak, tokens=max(4, weak.same_class_tokens + 2)))
    s.sharp = [delay_times(laws_at(law, SHARP, 64 * strength), **common) for law in others]
    s.blurred = delay_times(laws_at(weak, SHARP, strength / 4), **common)
    s.closed = [np.array([selection_time(law, 1.0)[0] for law in one.laws]) for one in s.sharp]
    s.closed_equal = [
        closed - [gap_differences(law) for law in one.laws] for closed, one in zip(s.closed, s.sharp, strict=True)
    ]
    s.slopes = {"read": 1.0, "derived": float(np.diff(s.closed[0])[-1] / np.diff(s.sharp[0].strength)[-1])}
    low, high = (exponent_at(one.laws[0], n_d_snr_fourth(one.laws[0])) for one in (s.blurred, s.sharp[0]))
    s.exponent_ratio = low / high
    s.late = late_gaps(laws_at(weak, (2.0,), 64 * strength)[0], 20.0, **common)
    near = laws_of_strength(weak, [2.0])[0]
    s.apart_laws = [replace(near, d=4**k * near.d, signal_norm=2**k * weak.signal_norm) for k in range(4)]
    s.apart = torch.stack([mean_field_distance(law, THETA, **common) for law in s.apart_laws], 1)
    critical = strength * (0.6 * critical_discrimination(weak) / discrimination_at(weak, strength)) ** 2
    s.never = course(laws_at(weak, (8.0,), critical)[0], np.geomspace(0.01, 1e40, 22), **common)
    s.growing = course(laws[STRENGTHS.index(2.0)], np.geomspace(0.01, 1e9, 34), **common)
    s.uniform_error = 1 - uniform_attention_accuracy(s.growing.law)
    harmful = replace(weak, signal_norm=4.0, d=2000)
    s.harmed = course(harmful, np.geomspace(0.01, 1e6, 25), count=8000, **common)
    return s
