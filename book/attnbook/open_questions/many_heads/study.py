r"""Everything that the claims about many heads look at, trained once: page *Many heads*.

The two-step window and the long runs at the size of the paper's experiment, and the fates of classes on a very long clock.
"""

from dataclasses import dataclass, replace

import numpy as np

from attnbook.open_questions.equal_heads import LONG_CLOCK, Window, heads_courses, heads_fates, two_step_window
from attnbook.single_head.long_run import Course, Fates, law_at
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw

PAPER_SIZE = SignalNoiseLaw(200, 40_000, 30.0, 0.05)
WINDOW_ROWS = {1: (1.0, 1.0), 2: (2.0, 1 / 2), 4: (4.0, 1 / 4), 8: (8.0, 1 / 8), "frozen": (1.0, 0.0)}
WINDOW_STEPS = (1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 8.0, 12.0)


@dataclass(frozen=True)
class ManyHeadsStudy:
    """Everything the claims look at."""

    small: Sample  # for checks of algebra
    window: Window  # rows of WINDOW_ROWS, step sizes of WINDOW_STEPS
    frozen: Window  # frozen attention at 5 and 8 n/d, four times the draws
    slow: dict[int, list[Course]]  # H -> courses at signal norms 16 and 24
    no_noise: dict[int, Fates]  # H -> fates, eta = 0
    flips: dict[int, Fates]  # H = 2 and 4 -> fates, eta = 0.2


def many_heads_study(*, draws: int = 10, seed: int = 1) -> ManyHeadsStudy:
    """Train and collect; draws >= 2, of the window and of the long runs. Raises ValueError for a bad argument before any work."""
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    return ManyHeadsStudy(
        small=SignalNoiseLaw(12, 400, 8.0, 0.1).draw(seed, 3),
        window=two_step_window(PAPER_SIZE, list(WINDOW_ROWS.values()), WINDOW_STEPS, draws=draws, seed=seed),
        frozen=two_step_window(PAPER_SIZE, [WINDOW_ROWS["frozen"]], (5.0, 8.0), draws=4 * draws, seed=seed),
        slow=heads_courses(
            [replace(PAPER_SIZE, signal_norm=norm) for norm in (16.0, 24.0)], (1, 2, 4, 8), 0.025, 2000, draws=draws, seed=seed,
            record=[1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000],
        ),
        no_noise=heads_fates([law_at(x, 100, 10**6, 0.0) for x in np.geomspace(0.6, 1.6, 7)], (1, 2, 4), LONG_CLOCK, seed=seed),
        flips=heads_fates([law_at(x, 100, 10**6, 0.2) for x in np.geomspace(0.9, 2.5, 9)], (2, 4), LONG_CLOCK, seed=seed),
    )  # fmt: skip
