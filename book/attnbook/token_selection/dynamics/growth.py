r"""The growth function: what makes the time course of a saturating attention weight a straight line.

If $T-1$ competitors have equal scores and lie a gap $x$ below the selected token, $s = e^x/(e^x+T-1)$. A force proportional to
$s(1-s)$ then gives

$$ \dot x = \lambda\,s(1-s) \quad\Longleftrightarrow\quad \frac{d}{d\tau}\,g(x) = \lambda, \qquad
   g(x) = 2x + 2\sinh\bigl(x-\log(T-1)\bigr), $$

so $g(x(\tau)) - g(x(0)) = \lambda\tau$ exactly. Source: derived in the theory chapter of Part II; the paper is reported
(second-hand) to use the same function with $\log T$ in place of $\log(T-1)$. Everything here is numpy, float64, elementwise.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from attnlib import checks

_NEWTON_STEPS = 12  # quadratic from a start that is never more than a factor 2 off: 12 reach rounding from anywhere


def _log_competitors(tokens: int) -> float:
    return math.log(checks.whole_number("tokens", tokens, at_least=2, hint="a gap needs a competitor") - 1)


def growth(x: ArrayLike, tokens: int) -> np.ndarray:
    r"""$g(x) = 2x + 2\sinh(x-\log(T-1))$, the first integral of $\dot x = \lambda s(1-s)$.

    Args:
        x: gaps, any shape, finite and at most about 700 in size (beyond, float64 has no room for the answer).
        tokens: T >= 2.

    Returns an array of the shape of x. Raises ValueError for a bad `tokens`. Source: derived.

    >>> growth(0.0, tokens=8).round(12)  # 1/(T-1) - (T-1)
    np.float64(-6.857142857143)
    >>> bool(np.isclose(growth(np.log(7), tokens=8), 2 * np.log(7)))  # attention one half
    True
    """
    x = np.asarray(x, dtype=np.float64)
    return 2 * x + 2 * np.sinh(x - _log_competitors(tokens))


def inverse_growth(y: ArrayLike, tokens: int) -> np.ndarray:
    r"""The gap x with $g(x) = y$: where $\dot x=\lambda s(1-s)$ is after a time $(y-g(x_0))/\lambda$.

    With $w = x-\log(T-1)$ the equation is $w+\sinh w=(y-2\log(T-1))/2=:C$. The left side is odd and, for $w>0$, convex, and its root
    lies below both $C/2$ and $\operatorname{arsinh}C$; Newton's method from the smaller of the two falls monotonically to the root.

    Args:
        y: values of g, any shape, up to about 1e300 in size.
        tokens: T >= 2.

    Returns an array of the shape of y. Raises ValueError for a bad `tokens`. Source: derived.

    >>> inverse_growth(growth([-3.0, 0.0, 0.25, 40.0, 690.0], tokens=8), tokens=8).round(9).tolist()
    [-3.0, 0.0, 0.25, 40.0, 690.0]
    """
    shift = _log_competitors(tokens)
    target = np.asarray(y, dtype=np.float64) / 2 - shift
    size = np.abs(target)
    w = np.minimum(size / 2, np.arcsinh(size))
    for _ in range(_NEWTON_STEPS):
        w = w - (w - size + np.sinh(w)) / (1 + np.cosh(w))
    return shift + np.sign(target) * w
