"""Gradient descent with a schedule of step sizes: where the classes end."""

import math
from collections.abc import Callable

from attnbook.open_questions.outcomes import UNIT
from attnbook.single_head.long_run import class_attention, law_at
from attnlib import checks
from attnlib.single_head.population import log10_clean_error
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
