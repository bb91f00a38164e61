"""How wide a rule must be to reject what is true with probability `level` only, and what it then sees. Used by `rules` and `sharpness`.

scipy is imported where it is called: whoever only reads stored verdicts needs none.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

LEDGER = 0.05  # the false alarms of all rules together
LEVEL = 1e-4  # of one rule
POWER = 0.9  # with which a change of the size that is stated would have been refused
CONFIDENCE = 0.95  # of the share of draws that is excluded


def student(draws: float, level: float = LEVEL, *, sides: int = 2) -> float:
    """t with P(|T| > t) = level (`sides` 2) or P(T > t) = level (1) for Student's T with draws - 1 degrees of freedom.

    A mean of that many Gaussian draws is further than t standard errors from its expectation with probability `level`: 4.33 for 40
    draws at LEVEL, 6.59 for 10, 15.5 for 5, 6366 for 2.
    """
    from scipy.special import stdtrit

    return -float(stdtrit(draws - 1, level / sides))


def binomial_tail(draws: int, probability: float, at_least: int) -> float:
    """P(Binomial(draws, probability) >= at_least)."""
    if at_least <= 0 or probability >= 1:
        return 1.0
    from scipy.special import bdtrc

    return float(bdtrc(at_least - 1, draws, probability)) if probability > 0 and at_least <= draws else 0.0


def fewest_draws(share: float, level: float = LEVEL) -> int:
    """The least number of draws with which `within(share=share)` can reject anything: (1 - share)^draws <= level."""
    return 1 if share >= 1 else math.ceil(math.log(level) / math.log1p(-share))


def median_interval(draws: int, level: float = LEVEL) -> int:
    """k such that the k-th smallest and the k-th largest of `draws` draws hold the median between them, but for `level`.

    The largest k with 2 P(Binomial(draws, 1/2) < k) <= level; 0 where there is none, with fewer than 15 draws at LEVEL.
    """
    k = 0
    while 2 * (1 - binomial_tail(draws, 0.5, k + 1)) <= level and k + 1 <= draws // 2:
        k += 1
    return k


def least_share(inside: int, draws: int, tail: float = 1 - CONFIDENCE) -> float:
    """The share of draws at which `inside` of `draws`, or more, come with probability `tail`: the lower Clopper-Pearson limit."""
    from scipy.special import betaincinv

    return float(betaincinv(inside, draws - inside + 1, tail)) if inside else 0.0


@cache
def seen_shift(draws: float, multiple: float) -> float:
    """By how many standard errors a mean must be off to be refused with probability POWER.

    Refused is what lies further than `multiple` measured standard errors: the shift c solves P(T > multiple) = POWER for T of the
    noncentral t law with draws - 1 degrees of freedom and noncentrality c.
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    # T <= m for T = (Z + c)/(S/sqrt f), S^2 chi-square with f degrees of freedom: P(Z <= m s - c) averaged over s = S/sqrt f.
    nodes, weights = _chi_quantiles(draws - 1)

    def missed(shift: float) -> float:
        return float(norm.cdf(multiple * nodes - shift) @ weights) - (1 - POWER)

    high = multiple * float(nodes[-1]) + 10
    return float(brentq(missed, 0.0, high, xtol=1e-6 * high))


@cache
def _chi_quantiles(freedom: float) -> tuple[Any, Any]:
    """Nodes of s = sqrt(chi-square/f) and their weights: Gauss-Legendre over the probability."""
    import numpy as np
    from scipy.special import chdtri

    points, weights = np.polynomial.legendre.leggauss(200)
    return np.sqrt(chdtri(freedom, (1 - points) / 2) / freedom), weights / 2
