r"""Everything that the claims of the page *Random starts* look at, trained once.

At the page's own law: heads from random starts of several sizes. At fixed sizes: growth of differences and division across the
threshold, several directions, heads whose vectors are products of matrices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnbook.open_questions.random_starts.courses import HeadsCourse, difference_growth, random_heads
from attnbook.open_questions.random_starts.factors import FactorStudy, factor_study
from attnbook.open_questions.random_starts.law import ManyDirectionsLaw
from attnbook.single_head.flow import own_thresholds
from attnbook.single_head.long_run import law_at, log_steps
from attnlib import checks
from attnlib.single_head.law import SignalNoiseLaw

GROWTH_BINS = (0.35, 0.5, 0.7, 0.85, 0.95, 1.05, 1.15, 1.35, 1.7, 2.3, 3.5)  # of x / x*


@dataclass(frozen=True)
class RandomStartsStudy:
    """Everything the claims look at."""

    law: SignalNoiseLaw
    heads: int
    starts: dict[float, HeadsCourse]  # size -> random starts at the page's law
    growth: HeadsCourse  # small starts, x across the threshold
    predicted_growth: np.ndarray  # (R, K) at its last step
    division: HeadsCourse  # starts of norm 0.3, x across the threshold
    directions: HeadsCourse  # two directions per class, near the threshold
    sequence: HeadsCourse  # two directions of different frequency per class, both above it
    factors: FactorStudy  # products of matrices


def thresholds(course: HeadsCourse) -> np.ndarray:
    """x* of every class of a course, from its own share of flips: (R, K)."""
    return own_thresholds(course.clean, course.clean * course.flipped / (1 - course.flipped))


def random_starts_study(
    law: SignalNoiseLaw, heads: int = 4, *, sizes: Sequence[float] = (0.01, 0.1, 0.3, 1.0, 3.0), steps: int = 10_000,
    draws: int = 20, seed: int = 1,
) -> RandomStartsStudy:  # fmt: skip
    """Train and collect. steps >= 1000, draws >= 2, heads >= 2. Raises ValueError for a bad argument before any work."""
    checks.whole_number("heads", heads, at_least=2, hint="the claims compare heads")
    checks.whole_number("steps", steps, at_least=1000, hint="the claims look at step 1000")
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    n, d, eta = 100, 20_000, 0.05
    record = sorted({1, 2, 3, 5, 10, 20, 50, 100, 300, 1000, 3000, steps} & set(range(steps + 1)))
    growth = random_heads(
        [law_at(x, n, d, eta) for x in np.geomspace(0.42, 3.6, 16)], 4, 0.02, 1.0, 1000, draws=24, seed=seed, record=[100, 300]
    )  # fmt: skip
    near = [law_at(x, n, d, eta) for x in (0.4, 0.55, 0.7, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.6, 2.2, 3.0)]
    return RandomStartsStudy(
        law=law,
        heads=heads,
        starts={
            size: random_heads(
                [law], heads, size, 5.0, steps, draws=draws, seed=seed, record=record,
                error_steps=sorted({2, 1000, steps}),
            )
            for size in sizes
        },
        growth=growth,
        predicted_growth=difference_growth(
            growth.x.ravel(), growth.flipped.ravel(), growth.clean.ravel(), 4, 1.0, 1000, [1000]
        )[0].reshape(growth.x.shape),
        division=random_heads(near, 4, 0.3, 1.0, 3000, draws=6, seed=seed, record=log_steps(3000, 4)),
        directions=random_heads([_two_directions(1.15, (0.5, 0.5))], 4, 0.3, 1.0, 1000, draws=40, seed=seed, record=[100]),
        sequence=random_heads(
            [_two_directions(5.0, (0.7, 0.3))], 4, 0.1, 0.1, 1000, draws=20, seed=seed, record=[*range(0, 200, 10), *range(200, 1000, 40)]
        ),
        factors=factor_study(draws=10, seed=seed),
    )  # fmt: skip


def _two_directions(x: float, shares: tuple[float, float]) -> ManyDirectionsLaw:
    """n = 200, d = 40000, eta = 0.05; x = rho^2 |C_k| / d on average over the four directions."""
    norm = float(np.sqrt(x * 40_000 / (200 * 0.95 / 4)))
    return ManyDirectionsLaw(200, 40_000, norm, 0.05, shares=shares)
