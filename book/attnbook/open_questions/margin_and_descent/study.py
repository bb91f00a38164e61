"""Everything that the claims of the page *Margin and descent* look at, measured once."""

from dataclasses import dataclass

import numpy as np
import torch

from attnbook.open_questions.equal_heads import LONG_CLOCK, heads_fates
from attnbook.open_questions.margin_and_descent.enumerations import HeadMarginStudy, head_margin_study
from attnbook.open_questions.margin_and_descent.schedules import schedule_fates
from attnbook.open_questions.outcomes import Outcome, rule_fates
from attnbook.single_head.long_run import Fates, law_at
from attnlib import checks
from attnlib.single_head.rules import GRADIENT_DESCENT


@dataclass(frozen=True)
class MarginStudy:
    """Everything the claims look at."""

    margin: HeadMarginStudy
    flips: dict[int, Fates]  # one head by gradient descent: {1: fates}, eta = 0.2
    schedules: dict[str, tuple[torch.Tensor, torch.Tensor]]  # eta = 0.2, x = 4
    strong: dict[float, Outcome]  # eta = 0.05, x = 400, by beta d / n


def margin_study(*, draws: int = 10, seed: int = 0) -> MarginStudy:
    """Measure and train; draws >= 2, of the margins and schedules. Raises ValueError for a bad argument before any work."""
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    flips = [law_at(x, 100, 10**6, 0.2) for x in np.geomspace(0.9, 2.5, 9)]
    strong = law_at(400.0, 200, 40_000, 0.05)
    return MarginStudy(
        margin=head_margin_study(draws=draws, seed=seed),
        flips=heads_fates(flips, (1,), LONG_CLOCK, seed=seed),
        schedules=schedule_fates(4.0, 200, 40_000, 0.2, draws=2 * draws, seed=seed),
        strong={size: rule_fates([strong], GRADIENT_DESCENT, size, 1000, draws=30, seed=seed) for size in (0.05, 0.2)},
    )
