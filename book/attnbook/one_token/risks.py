r"""Exact risks of heads that know the directions $k^*$ and $v^*$, for labels without flips.

The Bayes risk is the probability that the largest of L sums (score plus Gumbel noise) is not that of the hidden token. All sums below
have positive terms only and are convolutions of smooth functions on uniform grids, so a risk of $10^{-80}$ has as many digits as one of
one half.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch

from attnbook.one_token.law import OneTokenLaw
from attnlib import checks
from attnlib.arrays import Floats

_STEP = 0.2  # of the grid of Gumbel variables: the trapezoidal rule is then exact to exp(-pi^2 / step)
_LARGEST = 2000.0  # strength; beyond it the convolutions take too long


@checks.checked
def bayes_risk(law: OneTokenLaw) -> float:
    r"""The smallest risk of any predictor, which is that of softmax weights at the slope $\sqrt\nu$.

    $$ R_{\mathrm{Bayes}} = 1-E\,s_\varepsilon = \int p(u-\nu)\,\bigl(1-F(u)^{L-1}\bigr)\,du
       = (L-1)\,e^{-\nu/2}\int_0^\infty M'(t)^2M(t)^{L-2}\,dt . $$

    $F$ and $p$ are distribution function and density of $\sqrt\nu\,z+G$ with a Gaussian $z$ and a Gumbel variable $G$, and
    $M(t)=E\,e^{-te^{\sqrt\nu z}}$. The first integral is computed: it neither overflows nor loses digits.

    Args:
        law: with $L$, of any size below $10^{300}$, and $\nu\le2000$. Label noise is not looked at.

    Returns:
        a number between 0 and $1-\frac1L$.

    Raises:
        ValueError: a strength above 2000.

    Source:
        derived in the chapter "Proofs for Part VII".

    Example:
        >>> round(bayes_risk(OneTokenLaw(tokens=8, strength=6.0)), 4)
        0.2511
    """
    if law.strength > _LARGEST:
        raise ValueError(f"strength must be at most {_LARGEST:g} here; got {law.strength!r}: use risk_bounds")
    step, density, above, log_below = _grids(float(law.strength))
    beaten = -np.expm1((float(law.tokens) - 1) * log_below)
    return float(step * (density * np.where(above > 0, beaten, 0.0)).sum())


@checks.checked
def own_score_risk(law: OneTokenLaw) -> float:
    r"""The smallest risk of weights that depend on the token's own score only, which is that of `sigmoid_weights`.

    $$ R_{\mathrm{own}} = E\,\sigma\bigl(\log(L-1)-\tfrac\nu2-\sqrt\nu\,z\bigr), \qquad z\sim N(0,1). $$

    Args:
        law: with $L$ and $\nu$. Label noise is not looked at.

    Returns:
        a number between 0 and $1-\frac1L$.

    Raises:
        nothing: a law out of its range cannot be made.

    Source:
        derived in the chapter "Proofs for Part VII".

    Example:
        >>> round(own_score_risk(OneTokenLaw(tokens=8, strength=6.0)), 4)
        0.3628
    """
    root = math.sqrt(law.strength)
    step = min(0.3, 0.3 / root)
    z = np.arange(-root / 2 - 12, 12, step)
    odds = math.log(law.tokens - 1) - law.strength / 2 - root * z
    return float(step / math.sqrt(2 * math.pi) * np.exp(-z * z / 2 - np.logaddexp(0, -odds)).sum())


@checks.checked
def linear_risk(law: OneTokenLaw, *, centred: bool = False) -> float:
    r"""The risk of `linear_weights`: the smallest one of weights $b+c\chi_i$, or of $b+c(\chi_i-\bar\chi)$.

    $$ \frac{L(L-1)}{L^2+\nu(L-1)}, \qquad\text{centred}\quad \frac{L-1}{L+\nu}. $$

    Args:
        law: with $L$ and $\nu$. Label noise is not looked at.
        centred: whether the mean score of the sample is taken off first.

    Returns:
        a number between 0 and $1-\frac1L$.

    Raises:
        nothing: a law out of its range cannot be made.

    Source:
        derived in the chapter "Proofs for Part VII".

    Example:
        >>> law = OneTokenLaw(tokens=8, strength=6.0)
        >>> round(linear_risk(law), 4), linear_risk(law, centred=True)
        (0.5283, 0.5)
    """
    if centred:
        return float((law.tokens - 1) / (law.tokens + law.strength))
    return float(1 / (1 + 1 / (law.tokens - 1) + law.strength / law.tokens))


@checks.checked
def erf_risk(law: OneTokenLaw, scale: float) -> float:
    r"""The risk of `erf_weights` at one scale.

    $$ E\bigl(1-\operatorname{erf}(\lambda(\sqrt\nu+z))\bigr)^2 + (L-1)\,\frac2\pi\arcsin\frac{2\lambda^2}{1+2\lambda^2}. $$

    Args:
        law: with $L$ and $\nu$. Label noise is not looked at.
        scale: $\lambda>0$.

    Returns:
        a number above 0.

    Raises:
        ValueError: a scale that is not a finite number above 0.

    Source:
        derived here. The closed form in the authors' code of 2410.01537 is this risk without the second term at these directions, where
        that term does not change with the trained vectors.

    Example:
        >>> round(erf_risk(OneTokenLaw(tokens=8, strength=6.0), 0.3), 4)
        0.8388
    """
    checks.positive_number("scale", scale)
    step = min(0.2, 0.2 / scale)
    z = torch.arange(-12, 12, step, dtype=torch.float64)
    missed = torch.erfc(scale * (math.sqrt(law.strength) + z)).square()
    hidden = step / math.sqrt(2 * math.pi) * float((torch.exp(-z * z / 2) * missed).sum())
    return hidden + (law.tokens - 1) * 2 / math.pi * math.asin(2 * scale**2 / (1 + 2 * scale**2))


@checks.checked
def risk_bounds(law: OneTokenLaw, *, own_score: bool = False) -> tuple[float, float]:
    r"""Bounds of the Bayes risk, or with `own_score` of the best risk of own-score weights, that hold for all $L$ and $\nu$.

    $$ \frac{e^{-\nu/4}}{2\sqrt{1+\nu/2}} \le R_{\mathrm{Bayes}}
       \le (L-1)\,e^{-\nu/4}\min\Bigl(\tfrac12,\sqrt{\tfrac{\pi}{4\nu}}\Bigr), \qquad
       \frac{e^{-\ell^2/(8+2\nu)}}{2\sqrt{1+\nu/4}} \le \frac{R_{\mathrm{own}}}{\sqrt{L-1}\,e^{-\nu/8}}
       \le \min\Bigl(\tfrac12,\sqrt{\tfrac{\pi}{2\nu}}\Bigr), $$

    with $\ell=\log(L-1)$.

    Args:
        law: with $L$ and $\nu$.
        own_score: which of the two risks.

    Returns:
        lower and upper bound.

    Raises:
        nothing: a law out of its range cannot be made.

    Source:
        derived in the chapter "Proofs for Part VII".

    Example:
        >>> low, high = risk_bounds(OneTokenLaw(tokens=2, strength=8.0))
        >>> low < bayes_risk(OneTokenLaw(tokens=2, strength=8.0)) < high
        True
    """
    others, strength = float(law.tokens) - 1, law.strength
    if own_score:
        factor, spread, middle = math.sqrt(others) * math.exp(-strength / 8), strength, math.log(others)
        low = factor * math.exp(-(middle**2) / (8 + 2 * spread))
    else:
        factor, spread = others * math.exp(-strength / 4), 2 * strength
        low = math.exp(-strength / 4)
    return low / (2 * math.sqrt(1 + spread / 4)), factor * min(0.5, math.sqrt(math.pi / (2 * spread)))


@checks.checked
def concave_floor(law: OneTokenLaw) -> float:
    r"""A risk that weights $g(\chi_i)$ cannot go below if $g$ is odd, nondecreasing, and concave on $[0,\infty)$, at any scale.

    $$ R \ge \frac{(L-1)\,q}{\kappa^2\nu+(L-1)\,q}, \qquad \kappa=1+\frac1{\sqrt{2\pi\nu}}, \qquad q=E\bigl[z^2;\,|z|\le\sqrt\nu\bigr]. $$

    Linear weights without bias, erf and tanh are of this kind; the sigmoid with its bias is not.

    Args:
        law: with $L$ and $\nu$.

    Returns:
        the bound, of order $(L-1)/\nu$.

    Raises:
        nothing: a law out of its range cannot be made.

    Source:
        derived in the chapter "Proofs for Part VII".

    Example:
        >>> round(concave_floor(OneTokenLaw(tokens=8, strength=100.0)), 4)
        0.0608
    """
    root = math.sqrt(law.strength)
    inner = math.erf(root / math.sqrt(2)) - root * math.sqrt(2 / math.pi) * math.exp(-law.strength / 2)
    reach = 1 + 1 / (math.sqrt(2 * math.pi) * root)
    mass = (law.tokens - 1) * inner
    return float(mass / (reach**2 * law.strength + mass))


@lru_cache(maxsize=256)
def _grids(strength: float) -> tuple[float, Floats, Floats, Floats]:
    """Step, and on a grid of u: p(u - nu), 1 - F(u) and log F(u)."""
    root = math.sqrt(strength)
    if root < 0.5:  # the Gaussian is narrower than the grid: Gauss-Hermite nodes instead of a convolution
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        step = _STEP / 2
        u: Floats = np.arange(-14, 60, step, dtype=np.float64)[:, None] - root * nodes
        smooth = [f(u - shift) @ weights / math.sqrt(2 * math.pi) for f, shift in _gumbel(strength)]
    else:
        step = min(_STEP, 0.4 * root)
        low, high = math.floor((-root / 2 - 10) * root / step), math.ceil((root + 10) * root / step)
        at = step / root * np.arange(low, high + 1, dtype=np.float64)
        kernel: Floats = step / root * np.exp(-at * at / 2) / math.sqrt(2 * math.pi)
        first, count = -10 * root - 8, math.ceil((strength + 21 * root + 53) / step)
        x: Floats = first + step * np.arange(-high, count - low, dtype=np.float64)
        smooth = [np.convolve(f(x - shift), kernel, mode="valid") for f, shift in _gumbel(strength)]
    density, above, below = smooth
    with np.errstate(divide="ignore"):
        log_below = np.where(above < 0.5, np.log1p(-np.minimum(above, 0.5)), np.log(below))
    return step, density, above, log_below


def _gumbel(strength: float) -> tuple[tuple[Callable[[Floats], Floats], float], ...]:
    """Density, upper tail and distribution function of a Gumbel variable, and by how much each is moved."""

    def density(x: Floats) -> Floats:
        return np.exp(-x - np.exp(np.minimum(-x, 700.0)))

    def above(x: Floats) -> Floats:
        return -np.expm1(-np.exp(np.minimum(-x, 700.0)))

    def below(x: Floats) -> Floats:
        return np.exp(-np.exp(np.minimum(-x, 700.0)))

    return (density, strength), (above, 0.0), (below, 0.0)
