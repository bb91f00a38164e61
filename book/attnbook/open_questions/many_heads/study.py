r"""Everything that the claims about many heads look at, trained once: page *Many heads*.

Fixed-size parts (the same whatever the page's parameters): the two-step window and the long runs at the size of the paper's
experiment, fates of classes, growth of differences, several directions. At the page's own law: random starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from attnbook.open_questions.many_heads.equal_heads import (
    Window,
    heads_courses,
    heads_fates,
    long_clock,
    two_step_window,
)
from attnbook.open_questions.many_heads.law import ManyDirectionsLaw
from attnbook.open_questions.many_heads.random_starts import HeadsCourse, difference_growth, random_heads
from attnbook.single_head.flow import own_thresholds
from attnbook.single_head.long_run import Course, Fates, law_at, log_steps
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw

PAPER_SIZE = SignalNoiseLaw(200, 40_000, 30.0, 0.05)
WINDOW_ROWS = {1: (1.0, 1.0), 2: (2.0, 1 / 2), 4: (4.0, 1 / 4), 8: (8.0, 1 / 8), "frozen": (1.0, 0.0)}
WINDOW_STEPS = (1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 8.0, 12.0)
GROWTH_BINS = (0.35, 0.5, 0.7, 0.85, 0.95, 1.05, 1.15, 1.35, 1.7, 2.3, 3.5)  # of x / x*


@dataclass(frozen=True)
class ManyHeadsStudy:
    """Everything the claims look at."""

    law: SignalNoiseLaw
    heads: int
    small: Sample  # for checks of algebra
    window: Window  # rows of WINDOW_ROWS, step sizes of WINDOW_STEPS
    frozen: Window  # frozen attention at 5 and 8 n/d, 40 draws
    slow: dict[int, list[Course]]  # H -> courses at signal norms 16 and 24
    no_noise: dict[int, Fates]  # H -> fates, eta = 0
    flips: dict[int, Fates]  # H -> fates, eta = 0.2
    starts: dict[float, HeadsCourse]  # size -> random starts at the page's law
    growth: HeadsCourse  # small starts, x across the threshold
    predicted_growth: np.ndarray  # (R, K) at its last step
    division: HeadsCourse  # starts of norm 0.3, x across the threshold
    directions: HeadsCourse  # two directions per class, near the threshold
    sequence: HeadsCourse  # two directions of different frequency per class, both above it


def thresholds(course: HeadsCourse) -> np.ndarray:
    """x* of every class of a course, from its own share of flips: (R, K)."""
    return own_thresholds(course.clean, course.clean * course.flipped / (1 - course.flipped))


def many_heads_study(
    law: SignalNoiseLaw, heads: int = 4, *, sizes: Sequence[float] = (0.01, 0.1, 0.3, 1.0, 3.0), steps: int = 10_000,
    draws: int = 20, seed: int = 1,
) -> ManyHeadsStudy:  # fmt: skip
    """Train and collect. steps >= 1000, draws >= 2, heads >= 2. Raises ValueError for a bad argument before any work."""
    checks.whole_number("heads", heads, at_least=2, hint="the claims compare heads")
    checks.whole_number("steps", steps, at_least=1000, hint="the claims look at step 1000")
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    n, d, eta = 100, 20_000, 0.05
    record = sorted({1, 2, 3, 5, 10, 20, 50, 100, 300, 1000, 3000, steps} & set(range(steps + 1)))
    growth = random_heads(
        [law_at(x, n, d, eta) for x in np.geomspace(0.42, 3.6, 16)], 4, 0.02, 1.0, 1000, draws=6, seed=seed, record=[100, 300]
    )  # fmt: skip
    near = [law_at(x, n, d, eta) for x in (0.4, 0.55, 0.7, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.6, 2.2, 3.0)]
    clock = long_clock(26)
    return ManyHeadsStudy(
        law=law,
        heads=heads,
        small=SignalNoiseLaw(12, 400, 8.0, 0.1).draw(seed, 3, start_vectors=6),
        window=two_step_window(PAPER_SIZE, list(WINDOW_ROWS.values()), WINDOW_STEPS, draws=10, seed=seed),
        frozen=two_step_window(PAPER_SIZE, [WINDOW_ROWS["frozen"]], (5.0, 8.0), draws=40, seed=seed),
        slow=heads_courses(
            [replace(PAPER_SIZE, signal_norm=norm) for norm in (16.0, 24.0)], (1, 2, 4, 8), 0.025, 2000, draws=10, seed=seed,
            record=[1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000],
        ),
        no_noise=heads_fates([law_at(x, n, 10**6, 0.0) for x in np.geomspace(0.6, 1.6, 7)], (1, 2, 4), clock, seed=seed),
        flips=heads_fates([law_at(x, n, 10**6, 0.2) for x in np.geomspace(0.9, 2.5, 9)], (1, 2, 4), clock, seed=seed),
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
    )  # fmt: skip


def _two_directions(x: float, shares: tuple[float, float]) -> ManyDirectionsLaw:
    """n = 200, d = 40000, eta = 0.05; x = rho^2 |C_k| / d on average over the four directions."""
    norm = float(np.sqrt(x * 40_000 / (200 * 0.95 / 4)))
    return ManyDirectionsLaw(200, 40_000, norm, 0.05, shares=shares)
