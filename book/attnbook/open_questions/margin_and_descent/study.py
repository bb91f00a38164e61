"""Everything that the claims of the page *Margin and descent* look at, measured once."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.open_questions.equal_heads import LONG_CLOCK, heads_fates
from attnbook.open_questions.margin_and_descent.enumerations import HeadMarginStudy, head_margin_study
from attnbook.open_questions.outcomes import UNIT, Outcome, rule_fates
from attnbook.single_head.long_run import Fates, class_attention, law_at
from attnlib import checks
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.rules import GRADIENT_DESCENT
from attnlib.single_head.training import train_heads


def schedules(steps: int) -> dict[str, Callable[[int], float]]:
    """Factors on the step size over `steps` steps."""
    return {
        "constant": lambda t: 1.0,
        "warm-up over 100 steps": lambda t: min(1.0, (t + 1) / 100),
        "n/5d for 500 steps, then full": lambda t: 0.04 if t < 500 else 1.0,
        "decay 1/sqrt(1 + t)": lambda t: 1 / math.sqrt(1 + t),
        "full for 5 steps, then n/5d": lambda t: 1.0 if t < 5 else 0.04,
    }


def schedule_fates(x: float, n: int, d: int, label_noise: float, *, steps: int = 1000, draws: int = 10, seed: int = 0):
    """Classes on the signal and log10 clean errors after gradient descent with beta = 5n/d times each schedule, same draws.

    Returns {name: (attention (R, 2), log10 error (R,))}. Raises ValueError for a bad argument.
    """
    sample = law_at(x, n, d, label_noise).draw(seed, checks.whole_number("draws", draws, at_least=1))
    found = {}
    for name, factor in schedules(steps).items():
        path = train_heads(sample, UNIT * n / d, steps, schedule=factor, record=[])
        error = log10_clean_error(path.v[-1, :, 0], path.p[-1, :, 0], sample)
        found[name] = class_attention(sample, path.attention_on_signal[-1, :, 0]), error
    return found


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
