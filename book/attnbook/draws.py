r"""What a few independent draws tell about all of them: a median, a share and a mean, with intervals.

A mean of logarithms is no such thing: where one training set in fourteen has an error of $10^{-5000}$ and the others one of $1/4$, the
mean of ten is $-0.4$ or $-1400$ by the seed. The median and the share of draws below a limit stay where they are.

The intervals of a median and of a share hold for any law of the draws and any number of them: they cover the truth with at least the
confidence that they name (exactly binomial; ties and few draws make them wider, never narrower). The interval of a mean is Student's,
which is exact for Gaussian draws only; where one draw outweighs all others, read the median.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from attnlib import checks
from bookkit.widths import least_share, median_interval, student


@dataclass(frozen=True)
class Estimate:
    """A number from draws, with an interval for what infinitely many draws would give. Format codes go to all three numbers."""

    value: float
    low: float
    high: float

    def __format__(self, code: str) -> str:
        value, low, high = (format(number, code) for number in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"

    def named(self, name: str) -> dict[str, float]:
        """As named results: `name`, `name_low`, `name_high`."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def about(value: float, standard_error: float) -> Estimate:
    """A number whose standard error is known otherwise: value +- 1.96 standard errors, 95 % for a Gaussian error."""
    reach = student(math.inf, 0.05) * standard_error
    return Estimate(value, value - reach, value + reach)


def mean(values: Any, confidence: float = 0.95) -> Estimate:
    r"""The mean of draws (R,), with Student's interval: mean +- t sd / sqrt(R), t of R - 1 degrees of freedom.

    A draw that is nan had nothing to measure, a training set without flipped labels say, and is left out. One draw that is left has no
    interval: it is then the whole line. With none left all three numbers are nan.

    Raises ValueError for no draws, another shape, or a confidence outside (0, 1).

    >>> f"{mean([1.0, 2.0, 3.0]):.2f}"
    '2.00 [-0.48, 4.48]'
    """
    draws = np.asarray(values, dtype=np.float64)
    if draws.ndim != 1 or not draws.size:
        raise ValueError(f"values must be (draws,) with one draw or more; got shape {draws.shape}")
    level = 1 - checks.probability("confidence", confidence, open_ends=True)
    draws = draws[~np.isnan(draws)]
    if draws.size < 2:
        return Estimate(float(draws[0]), -math.inf, math.inf) if draws.size else Estimate(math.nan, math.nan, math.nan)
    middle, reach = float(draws.mean()), student(draws.size, level) * float(draws.std(ddof=1)) / math.sqrt(draws.size)
    return Estimate(middle, middle - reach, middle + reach)


def median(values: Any, confidence: float = 0.95) -> Estimate:
    r"""The median of draws (R,), between two of them: the k-th from below and the k-th from above, k as large as `confidence` allows.

    Fewer than k of R draws lie below the true median with probability $P(\mathrm{Bin}(R,\frac12)<k)$ at most, and as many above. With
    fewer than six draws not even the extremes enclose it 95 times in 100: the interval is then the whole line. nan if a draw is nan.

    Raises ValueError for no draws, another shape, or a confidence outside (0, 1).

    >>> f"{median([-1.0, -2.0, -3.0, -4.0, -5.0, -600.0]):g}"
    '-3.5 [-600, -1]'
    """
    draws = np.sort(np.asarray(values, dtype=np.float64))
    if draws.ndim != 1 or not draws.size:
        raise ValueError(f"values must be (draws,) with one draw or more; got shape {draws.shape}")
    rank = median_interval(draws.size, 1 - checks.probability("confidence", confidence, open_ends=True))
    if np.isnan(draws[-1]):  # nan sorts last
        return Estimate(math.nan, math.nan, math.nan)
    low, high = (draws[rank - 1], draws[-rank]) if rank else (-math.inf, math.inf)
    return Estimate(float(np.median(draws)), float(low), float(high))


@lru_cache(maxsize=4096)
def share(count: int, total: int, confidence: float = 0.95) -> Estimate:
    r"""`count` of `total` draws, with the interval of Clopper and Pearson.

    Its ends are the shares at which as many draws, or as few, would come with probability $(1-\text{confidence})/2$. Of no draws in
    ten it says [0, 0.31].

    Raises ValueError for total < 1, a count outside 0 ... total, or a confidence outside (0, 1).

    >>> f"{share(0, 10):.2f}"
    '0.00 [0.00, 0.31]'
    """
    checks.whole_number("total", total, at_least=1)
    if checks.whole_number("count", count, at_least=0) > total:
        raise ValueError(f"count must be at most total = {total}; got {count}")
    tail = (1 - checks.probability("confidence", confidence, open_ends=True)) / 2
    return Estimate(count / total, least_share(count, total, tail), 1 - least_share(total - count, total, tail))
