"""What the page of the staircase trains and measures."""

import math
from types import SimpleNamespace

import torch

from attnbook.staircase import (
    Heads,
    SpectrumLaw,
    loss_sampled,
    plateau_levels,
    predicted_drops,
    small_heads,
    train_separate,
    train_softmax,
)
from attnbook.staircase.flow import train_merged
from attnbook.staircase.loss import best_losses
from attnlib import checks

MERGED_SIZES = (1e-2, 1e-3, 1e-4)
SOFTMAX_HEADS = 6
ALIGNED_SIZES = (0.05, 0.025)  # u, of keys and queries on the first eigenvector
SHORT_LENGTH = 10
SUM_STEP = 0.5

# --- what is read off a curve --------------------------------------------------------------------------------------------------


def crossing_times(path, levels):
    """When the loss passes the middle between levels m - 1 and m, (R, M) for M + 1 levels; nan where it never does.

    Times between records are interpolated linearly.
    """
    found = []
    for middle in (levels[1:] + levels[:-1]) / 2:
        below = path.loss < middle
        last = below.int().argmax(1).clamp(min=1)
        row = torch.arange(len(last))
        high, low = path.loss[row, last - 1], path.loss[row, last]
        time = path.times[last - 1] + (high - middle) / (high - low) * (path.times[last] - path.times[last - 1])
        found.append(torch.where(below.any(1), time, torch.nan))
    return torch.stack(found, dim=1)


def plateau_heights(path, crossings):
    """Loss where it falls most slowly between two crossings, or after the last one that there is, (R, M - 1); nan where there is none."""
    fall = -(path.loss[:, 2:] - path.loss[:, :-2]) / (path.times[2:] - path.times[:-2])
    between = _between(path, crossings)
    slowest = torch.where(between, fall[:, None], torch.inf).argmin(-1)
    return torch.where(between.any(-1), path.loss.gather(1, slowest + 1), torch.nan)


def without_plateau(path, crossings):
    """Plateaus that a training does not have, (R, M - 1): it ends before the drop, or no record lies between that and the next one."""
    return ~_between(path, crossings).any(-1) & path.loss.isfinite().all(1, keepdim=True)


def _between(path, crossings):
    """(R, M - 1, S - 2): the inner records after a drop that come before the next one, or where there is none."""
    times = path.times[1:-1]
    return (times > crossings[:, :-1, None]) & ~(times >= crossings[:, 1:, None])


def time_ratio(path, crossings, predicted):
    """Measured over predicted times of the drops, (R, D); a drop that had not come when the training ended comes at an infinite time."""
    missed = crossings.isnan() & path.loss.isfinite().all(1, keepdim=True)
    return torch.where(missed, math.inf, crossings / predicted)


def alignment(path, times):
    r"""Fractions $A_{ii}^2/\sum_{jk}A_{jk}^2$ of the learned matrix at one time for each run, (R, D); `times` is (R,)."""
    at = torch.searchsorted(path.times, times.nan_to_num(0.0)).clamp(max=len(path.times) - 1)
    square = path.matrix[torch.arange(len(at)), at] ** 2
    return torch.diagonal(square, dim1=-2, dim2=-1) / square.sum((-2, -1))[:, None]


def _terms(heads, directions):
    """|v_h k_hi q_hi|, (R, H, directions)."""
    return (heads.value[..., None] * heads.key * heads.query)[..., :directions].abs()


def largest_part(heads, directions):
    r"""Of the terms $v_hk_{hi}q_{hi}$ that make up $A_{ii}$, the fraction of their absolute sum in the largest one, (R, directions)."""
    terms = _terms(heads, directions)
    return terms.max(1).values / terms.sum(1)


def different_heads(heads, directions):
    """Whether these largest terms belong to as many heads as there are directions, (R,)."""
    return (_terms(heads, directions).argmax(1).sort(1).values.diff(dim=1) > 0).all(1)


# --- formulas ------------------------------------------------------------------------------------------------------------------


def authors_spectrum(dimension):
    """D, D - 1, ..., 1 over their sum, as in the authors' code."""
    total = dimension * (dimension + 1) / 2
    return tuple((dimension - i) / total for i in range(dimension))


def single_time(law, size):
    r"""$\mathrm{tr}\,\Lambda/(2Ng^2u^2)$, $g=(1-1/N)\lambda_1^2$: escape of one softmax head from v = 0 and k = q = u e_1, small u."""
    g = (1 - 1 / law.length) * law.spectrum[0] ** 2
    return (law.trace + law.noise) / (2 * law.length * g**2 * size**2)


def pair_time(law, size):
    r"""$\pi/(2gu)$: escape of two opposite softmax heads from v = 0, k = u e_1 and q = u e_1 or -u e_1, small u."""
    return math.pi / (2 * (1 - 1 / law.length) * law.spectrum[0] ** 2 * size)


# --- trainings -----------------------------------------------------------------------------------------------------------------


def _read(path, levels):
    """The path, the levels (D + 1,), crossings (R, D) and heights (R, D - 1) of its plateaus, and which it does not have."""
    crossings = crossing_times(path, levels)
    heights, none = plateau_heights(path, crossings), without_plateau(path, crossings)
    return SimpleNamespace(path=path, levels=levels, crossings=crossings, heights=heights, no_plateau=none)


def linear_study(law, start, time, *, step=0.5):
    """Linear heads from R starts: what `_read` reads, the predicted times of the drops (R, D), and the ratio of measured to predicted."""
    found = _read(train_separate(law, start, time, every=5.0, step=step), plateau_levels(law))
    found.law, found.start, found.predicted = law, start, predicted_drops(law, start)
    found.ratio = time_ratio(found.path, found.crossings, found.predicted)
    return found


def first_drops(law, start, factors, size):
    """Times of the first drop from a start times each factor, (R, F), and the fraction outside A_11 there, (R, F)."""
    paths = [train_separate(law, start.scaled(f), 16 / (f * size), every=2.0, step=2.0) for f in factors]
    times = [crossing_times(path, plateau_levels(law)[:2])[:, 0] for path in paths]
    off = [1 - alignment(path, at)[:, 0] for path, at in zip(paths, times, strict=True)]
    return torch.stack(times, 1), torch.stack(off, 1)


def softmax_study(law, *, size, time, draws, prompts, seed):
    """Several softmax heads on prompts, from random starts; the levels are those of linear attention with N - 1 examples."""
    start = small_heads(seed, heads=SOFTMAX_HEADS, dimension=law.dimension, size=size, runs=draws)
    path, _ = train_softmax(law, start, seed, time, prompts=prompts, every=2)
    found = _read(path, plateau_levels(SpectrumLaw(law.spectrum, law.length - 1, law.noise)))
    found.law = law
    return found


def opposite_times(law, number, *, draws, seed):
    """When the loss has fallen by a tenth of the trace, (R, 2), for the starts v = 0, k = u e_1, q = u e_1 and -u e_1 (`number` 1 or 2)."""
    found = []
    for size in ALIGNED_SIZES:
        key = torch.zeros(draws, number, law.dimension, dtype=torch.float64)
        key[..., 0] = size
        query = key * torch.tensor([1.0, -1.0])[:number, None]
        start = Heads(torch.zeros(draws, number, dtype=torch.float64), key, query)
        time = 3.0 * (single_time if number == 1 else pair_time)(law, size)  # one of 240 sets took more than twice
        path, _ = train_softmax(law, start, seed, time, prompts=100, every=2)
        found.append(crossing_times(path, law.trace * torch.tensor([1.0, 0.8]))[:, 0])
    return torch.stack(found, dim=1)


def make_study(dimension, length, heads, size, *, draws, softmax_draws, prompts, seed):
    """All that the page shows and judges; R runs are independent starts (and prompts, for softmax heads).

    main, equal: with distinct and with equal eigenvalues; softmax, softmax_equal. sampled (R,): losses of one matrix on prompts. best
    (5, D - 1): least losses of each rank, by search. sizes of starts, each half of the one before: first, first_predicted (R, 3), time of
    the first drop, and off, the fraction of the learned matrix outside its first entry there. merged (R, 3, D): times of the drops with
    merged key and query from starts of MERGED_SIZES. sums (R, 2): sum of the values of tiny softmax heads, at time 0 and at sums_time.
    single, pair (R, 2): escape of one softmax head, and of two opposite ones, from starts of ALIGNED_SIZES, under the law `short`.

    Raises ValueError for fewer heads than dimensions.
    """
    checks.whole_number("heads", heads, at_least=dimension, hint="each direction needs a head")
    law = SpectrumLaw(authors_spectrum(dimension), length)
    flat = SpectrumLaw((1 / dimension,) * dimension, length)
    start = small_heads(seed, heads=heads, dimension=dimension, size=size, runs=draws)
    s = SimpleNamespace(main=linear_study(law, start, 140 / size), equal=linear_study(flat, start, 60 / size, step=1.0))

    matrix = torch.diag(torch.as_tensor(law.eigenvalues() / law.second_moment()))
    s.matrix = matrix + 0.5 * torch.ones_like(matrix)
    s.sampled = loss_sampled(law, s.matrix, seed, runs=draws, prompts=8000)
    s.best = best_losses(law, seed, starts=5)

    s.sizes = (2 * size, size, size / 2)
    s.first, s.off = first_drops(law, start, [one / size for one in s.sizes], size)
    s.first_predicted = torch.stack([predicted_drops(law, start.scaled(one / size), 1)[:, 0] for one in s.sizes], 1)

    merged = [train_merged(law, seed, 200.0, heads=heads, size=one, runs=draws, every=0.5) for one in MERGED_SIZES]
    s.merged = torch.stack([crossing_times(path, s.main.levels) for path in merged], 1)
    s.merged_path = merged[0]

    small, third = SpectrumLaw(authors_spectrum(3), length), SpectrumLaw((1 / 3,) * 3, length)
    common = {"size": 0.03, "draws": softmax_draws, "prompts": prompts, "seed": seed}
    s.softmax = softmax_study(small, time=450.0, **common)
    s.softmax_equal = softmax_study(third, time=360.0, **common)
    tiny = small_heads(seed, heads=SOFTMAX_HEADS, dimension=3, size=1e-4, runs=softmax_draws)
    s.sums_time = 10.0
    _, values = train_softmax(small, tiny, seed, s.sums_time, prompts=prompts, step=SUM_STEP)
    s.sums = values.sum(-1)[:, [0, -1]]

    s.short = SpectrumLaw(authors_spectrum(3), SHORT_LENGTH)
    s.single, s.pair = (opposite_times(s.short, number, draws=softmax_draws, seed=seed) for number in (1, 2))
    return s
