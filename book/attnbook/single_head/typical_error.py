"""Named results of the clean errors of many draws that one rare draw cannot rule: their median, and the fraction of benign draws.

The mean of the logarithms is a page's headline only where draws are alike. Next to a border of the phase diagram they are not: there a
few draws have errors of 10^-1000, most have one of 1/4, and the mean of their logarithms says how many of the few came.
"""

import math
from typing import Any

import numpy as np

from attnbook.draws import Estimate, mean, median, share


def benign_share(log10_error: Any, label_noise: float) -> Estimate:
    """Fraction of draws (R,) whose exact clean error is below `label_noise`, eta: the head errs less often than its labels do.

    Whether the head fits its labels does not enter (that is `interpolating_fraction`), nor does the fixed limit of 1/10 by which the phase
    diagrams colour their cells. nan without label noise: no label is wrong, and no error is below 0, so there is nothing to count.
    nan as well if a draw has no error (nan).
    """
    errors = np.asarray(log10_error, dtype=np.float64)
    if label_noise == 0 or np.isnan(errors).any():
        return Estimate(math.nan, math.nan, math.nan)
    return share(int((errors < math.log10(label_noise)).sum()), errors.size)


def typical_error(log10_error: Any, label_noise: float, prefix: str = "") -> dict[str, float]:
    """Six named results of exact log10 clean errors (R,), for a page's `record(...)`; `prefix` goes before each name.

    `log10_clean_error_median` and `benign_share` (error below eta, see there), each with `_low` and `_high`: intervals that cover the truth
    with probability 95 % or more for any law of the errors. With fewer than six draws the interval of the median is the whole line. What is
    infinite or nan here is a missing value in a notebook.

    >>> typical_error([-0.6, -0.3, -4000.0, -0.6, -0.6, -0.3], 0.05)["log10_clean_error_median"]
    -0.6
    """
    named = median(log10_error).named("log10_clean_error_median")
    named |= benign_share(log10_error, label_noise).named("benign_share")
    return {prefix + name: number for name, number in named.items()}


def two_step_results(measured: Any, error: Any, label_noise: float) -> dict[str, float]:
    """What page `single_head/02_two_steps` records of its draws (R,): attributes of `summarise`, and the exact log10 clean errors."""
    return {
        **mean(measured.train_accuracy_step1).named("train_accuracy_step1"),
        **mean(measured.train_accuracy).named("train_accuracy"),
        **share(int(measured.interpolates.sum()), len(measured.interpolates)).named("interpolating_fraction"),
        **typical_error(error, label_noise),
        "log10_clean_error_mean": float(error.mean()),
        "log10_clean_error_min": float(error.min()),
        "log10_clean_error_max": float(error.max()),
        **mean(measured.attention_clean).named("attention_clean"),
        **mean(measured.attention_noisy).named("attention_noisy"),
    }
