"""What the page of the staircase trains and measures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from attnbook.staircase import (
    Heads,
    Path,
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
from attnbook.staircase.measure import alignment, crossing_times, plateau_heights, without_plateau
from attnlib import checks

MERGED_SIZES = (1e-2, 1e-3, 1e-4)
SOFTMAX_HEADS = 6
ALIGNED_SIZES = (0.05, 0.025)  # u, of keys and queries on the first eigenvector
SHORT_LENGTH = 10
SUM_STEP = 0.5


def authors_spectrum(dimension: int) -> tuple[float, ...]:
    """D, D - 1, ..., 1 over their sum, as in the authors' code."""
    total = dimension * (dimension + 1) / 2
    return tuple((dimension - i) / total for i in range(dimension))


@dataclass(frozen=True)
class Linear:
    """Linear heads from random starts of one size."""

    law: SpectrumLaw
    start: Heads
    path: Path
    levels: torch.Tensor  # (D + 1,)
    predicted: torch.Tensor  # (R, D), times of the drops
    crossings: torch.Tensor  # (R, D), the same, measured
    heights: torch.Tensor  # (R, D - 1), of the plateaus between the drops

    @property
    def no_plateau(self) -> torch.Tensor:
        """(R, D - 1): see `without_plateau`."""
        return without_plateau(self.path, self.crossings)

    @property
    def missed(self) -> torch.Tensor:
        """(R, D): drops that had not come when the training ended."""
        return self.crossings.isnan() & self.path.loss.isfinite().all(1, keepdim=True)


def linear_study(law: SpectrumLaw, start: Heads, time: float, *, every: float = 5.0, step: float = 0.5) -> Linear:
    """Predict, train, measure."""
    path, levels = train_separate(law, start, time, every=every, step=step), plateau_levels(law)
    crossings = crossing_times(path, levels)
    return Linear(law, start, path, levels, predicted_drops(law, start), crossings, plateau_heights(path, crossings))


def first_drops(
    law: SpectrumLaw, start: Heads, factors: Sequence[float], size: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Times of the first drop from a start times each factor, (R, F), and the fraction outside A_11 there, (R, F)."""
    paths = [train_separate(law, start.scaled(f), 16 / (f * size), every=2.0, step=2.0) for f in factors]
    times = [crossing_times(path, plateau_levels(law)[:2])[:, 0] for path in paths]
    off = [1 - alignment(path, at)[:, 0] for path, at in zip(paths, times, strict=True)]
    return torch.stack(times, 1), torch.stack(off, 1)


@dataclass(frozen=True)
class Softmax:
    """Several softmax heads on prompts, from random starts."""

    law: SpectrumLaw
    path: Path
    values: torch.Tensor  # (R, S, H)
    levels: torch.Tensor  # (D + 1,), of linear attention with N - 1 examples
    crossings: torch.Tensor  # (R, D)
    heights: torch.Tensor  # (R, D - 1)

    @property
    def no_plateau(self) -> torch.Tensor:
        """(R, D - 1): see `without_plateau`."""
        return without_plateau(self.path, self.crossings)


def softmax_study(law: SpectrumLaw, *, size: float, time: float, draws: int, prompts: int, seed: int) -> Softmax:
    """Train and measure."""
    start = small_heads(seed, heads=SOFTMAX_HEADS, dimension=law.dimension, size=size, runs=draws)
    path, values = train_softmax(law, start, seed, time, prompts=prompts, every=2)
    levels = plateau_levels(SpectrumLaw(law.spectrum, law.length - 1, law.noise))
    crossings = crossing_times(path, levels)
    return Softmax(law, path, values, levels, crossings, plateau_heights(path, crossings))


def opposite_times(law: SpectrumLaw, number: int, *, draws: int, seed: int) -> torch.Tensor:
    """When the loss has fallen by a tenth of the trace, (R, 2), for the starts v = 0, k = u e_1, q = u e_1 and -u e_1 (`number` 1 or 2)."""
    found = []
    for size in ALIGNED_SIZES:
        key = torch.zeros(draws, number, law.dimension, dtype=torch.float64)
        key[..., 0] = size
        query = key * torch.tensor([1.0, -1.0])[:number, None]
        start = Heads(torch.zeros(draws, number, dtype=torch.float64), key, query)
        time = 3.0 * (single_time if number == 1 else pair_time)(
            law, size
        )  # one of 240 sets of prompts took more than twice
        path, _ = train_softmax(law, start, seed, time, prompts=100, every=2)
        found.append(crossing_times(path, law.trace * torch.tensor([1.0, 0.8]))[:, 0])
    return torch.stack(found, dim=1)


def single_time(law: SpectrumLaw, size: float) -> float:
    r"""$\mathrm{tr}\,\Lambda/(2Ng^2u^2)$, $g=(1-1/N)\lambda_1^2$: escape of one softmax head from v = 0 and k = q = u e_1, small u."""
    g = (1 - 1 / law.length) * law.spectrum[0] ** 2
    return (law.trace + law.noise) / (2 * law.length * g**2 * size**2)


def pair_time(law: SpectrumLaw, size: float) -> float:
    r"""$\pi/(2gu)$: escape of two opposite softmax heads from v = 0, k = u e_1 and q = u e_1 or -u e_1, small u."""
    return math.pi / (2 * (1 - 1 / law.length) * law.spectrum[0] ** 2 * size)


@dataclass(frozen=True)
class Study:
    """All that the page shows and judges; R runs are independent starts (and prompts, for softmax heads)."""

    main: Linear  # with distinct eigenvalues
    equal: Linear  # with equal ones
    sampled: torch.Tensor  # (R,), losses of one matrix on prompts
    matrix: torch.Tensor  # that matrix
    best: torch.Tensor  # (5, D - 1), least losses of each rank, by search
    sizes: tuple[float, ...]  # of starts, each half of the one before
    first: torch.Tensor  # (R, 3), time of the first drop from starts of these sizes
    first_predicted: torch.Tensor  # (R, 3)
    off: torch.Tensor  # (R, 3), fraction of the learned matrix outside its first entry, at the first drop
    merged: torch.Tensor  # (R, 3, D), times of the drops with merged key and query from starts of MERGED_SIZES
    merged_path: Path  # the first of them
    softmax: Softmax
    softmax_equal: Softmax  # with equal eigenvalues
    sums: torch.Tensor  # (R, 2), sum of the values of tiny softmax heads, at time 0 and later
    sums_time: float
    short: SpectrumLaw  # of the next two
    single: torch.Tensor  # (R, 2), escape of one softmax head from starts of ALIGNED_SIZES
    pair: torch.Tensor  # (R, 2), the same for two opposite heads


def make_study(
    dimension: int, length: int, heads: int, size: float, *, draws: int, softmax_draws: int, prompts: int, seed: int
) -> Study:
    """Train everything. ValueError for an argument out of its range."""
    checks.whole_number("dimension", dimension, at_least=2)
    checks.whole_number("heads", heads, at_least=dimension)
    checks.whole_number("length", length, at_least=2)
    law = SpectrumLaw(authors_spectrum(dimension), length)
    flat = SpectrumLaw((1 / dimension,) * dimension, length)
    start = small_heads(seed, heads=heads, dimension=dimension, size=size, runs=draws)
    main, equal = linear_study(law, start, 140 / size), linear_study(flat, start, 60 / size, step=1.0)

    matrix = torch.diag(torch.as_tensor(law.eigenvalues() / law.second_moment()))
    matrix = matrix + 0.5 * torch.ones_like(matrix)
    sampled = loss_sampled(law, matrix, seed, runs=draws, prompts=8000)

    sizes = (2 * size, size, size / 2)
    first, off = first_drops(law, start, [s / size for s in sizes], size)
    early = torch.stack([predicted_drops(law, start.scaled(s / size), 1)[:, 0] for s in sizes], 1)

    merged_paths = [train_merged(law, seed, 200.0, heads=heads, size=s, runs=draws, every=0.5) for s in MERGED_SIZES]
    merged = torch.stack([crossing_times(path, main.levels) for path in merged_paths], 1)

    small = SpectrumLaw(authors_spectrum(3), length)
    softmax = softmax_study(small, size=0.03, time=450.0, draws=softmax_draws, prompts=prompts, seed=seed)
    softmax_equal = softmax_study(
        SpectrumLaw((1 / 3,) * 3, length), size=0.03, time=360.0, draws=softmax_draws, prompts=prompts, seed=seed
    )
    tiny = small_heads(seed, heads=SOFTMAX_HEADS, dimension=3, size=1e-4, runs=softmax_draws)
    sums_time = 10.0
    _, values = train_softmax(small, tiny, seed, sums_time, prompts=prompts, step=SUM_STEP)
    sums = values.sum(-1)[:, [0, -1]]

    few = SpectrumLaw(authors_spectrum(3), SHORT_LENGTH)
    single, pair = (opposite_times(few, number, draws=softmax_draws, seed=seed) for number in (1, 2))
    best = best_losses(law, seed, starts=5)
    return Study(
        main, equal, sampled, matrix, best, sizes, first, early, off, merged, merged_paths[0],
        softmax, softmax_equal, sums, sums_time, few, single, pair,
    )  # fmt: skip
