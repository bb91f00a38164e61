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


def selection_gap(attention: ArrayLike, tokens: int) -> np.ndarray:
    r"""$x = \log\frac{s\,(T-1)}{1-s}$: the gap over $T-1$ equal competitors that gives attention $s$.

    For unequal competitors it is the gap over their log-mean-exp. Infinite at s = 0 and s = 1.

    Args:
        attention: s in [0, 1], any shape.
        tokens: T >= 2.

    Returns an array of the shape of s. Raises ValueError outside [0, 1]. Source: derived.

    >>> selection_gap([1 / 8, 0.5], tokens=8).round(6).tolist()
    [0.0, 1.94591]
    """
    shift = _log_competitors(tokens)
    s = np.asarray(attention, dtype=np.float64)
    if not np.all((s >= 0) & (s <= 1)):
        raise ValueError(
            f"attention must be in [0, 1]; got values from {s.min():g} to {s.max():g}: pass softmax weights, not scores"
        )
    with np.errstate(divide="ignore"):
        return np.log(s) - np.log1p(-s) + shift


def attention_at_gap(x: ArrayLike, tokens: int) -> np.ndarray:
    r"""$s = e^x/(e^x+T-1)$, the inverse of `selection_gap`. x: any shape. Raises ValueError for a bad `tokens`.

    >>> attention_at_gap([0.0, np.log(7.0), 800.0], tokens=8).round(6).tolist()
    [0.125, 0.5, 1.0]
    """
    w = np.asarray(x, dtype=np.float64) - _log_competitors(tokens)
    return np.where(w >= 0, 1.0, np.exp(-np.abs(w))) / (1 + np.exp(-np.abs(w)))
