r"""The exact clean error in ball arithmetic: an enclosure of log err for the five numbers of a head, from 1/2 to below $10^{-16000}$.

For V > 0 and $x(t) = e^{a - \omega t} V/\tau + (c/\tau)\, t$ the error is $I = \int \varphi(t)\, \Phi(-x(t))\, dt$, for V < 0 it is
$1 - I$ with V and c of the other sign. The logarithm h of $e^{-t^2/2}\Phi(-x(t))$ is concave, because x is convex, so that

* beyond a point b where $h'(b) < 0$ the integral of $e^h$ is at most $e^{h(b)}/|h'(b)|$, and on the left likewise: no tail is left out;
* between two such points it is a sum over panels $|t - m| \le r$. On each,
  $e^h = \sum_{k<n} c_k (t-m)^k + C (t-m)^n$, with the Taylor coefficients $c_k$ at m, and with C in the ball of the n-th Taylor
  coefficient at $[m - r, m + r]$ (Lagrange). n is even, so the last term adds $C' \cdot 2 r^{n+1}/(n+1)$ with C' in the same ball.

Where the panels lie is chosen by rough computations, which prove nothing and need not: any choice gives an enclosure, a bad one a wide
one. Derived in the chapter "How a number is proved".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from attnbook.certified.certificate import ball, precision, series_terms, sign

if TYPE_CHECKING:
    from flint import arb

BITS = (128, 256, 512)
ACCURACY = (
    1e-18  # of the logarithm where it exceeds 1, else of the error: what an enclosure is to reach before it is given
)
_ORDER = 24  # n
_DROP = 52.0  # nats below the peak where the tails begin: e^-52 = 3e-23
_FINE = 66  # a panel's remainder is at most 2^-66 of the integral, roughly
_FAR = 12.0  # beyond it Phi(-x) is taken from its asymptotic series
_TERMS, _SMALL = 40, 1e-32  # of that series at most; the next term, relative to the first, at which it ends
_DEPTH = 200  # halvings of a panel at most
_TRIED = 2000  # panels at most, halved ones among them; the heads of the book need less than 400


class TooWide(ArithmeticError):
    """No enclosure as narrow as wanted at the highest precision that was tried."""


@dataclass(frozen=True)
class Head:
    """The five numbers of a head and a class, as floats, which stand for themselves: nothing is rounded before the balls."""

    logit: float  # a = p . mu_k
    value: float  # V
    omega: float  # >= 0
    along: float  # c
    tau: float  # > 0

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            if not isinstance(number, float | int) or not math.isfinite(number):
                raise ValueError(f"{name} must be a finite number; got {number!r}")
        if self.omega < 0:
            raise ValueError(f"omega must be >= 0: it is a standard deviation; got {self.omega!r}")
        if self.tau <= 0:
            raise ValueError(f"tau must be > 0: a step has its own formula; got {self.tau!r}")

    def balls(self) -> tuple[arb, ...]:
        """logit, V, omega, c, tau."""
        return tuple(ball(float(number)) for number in vars(self).values())


@dataclass(frozen=True)
class Enclosed:
    """log err as a ball, the bits of its computation and the number of panels."""

    log_error: arb
    bits: int
    panels: int


class Balls(Protocol):
    """Anything that has the five numbers as balls, at the precision of the moment."""

    def balls(self) -> tuple[arb, ...]: ...


def enclose(head: Balls, accuracy: float = ACCURACY, bits: Sequence[int] = BITS) -> Enclosed:
    """log of the head's error. Raises `TooWide` where the last precision does not reach the accuracy."""
    for number in bits:
        with precision(number):
            found, panels = _log_error(numbers(head))
            if found.is_finite() and float(found.rad()) <= accuracy * max(1.0, float(found.abs_lower())):
                return Enclosed(found, number, panels)
    raise TooWide(f"undecided at {bits[-1]} bits: {head}")


def log10_of_classes(first: arb, second: arb) -> arb:
    """log10 of the mean of two errors, from their natural logarithms."""
    one = ball(1)
    return (first + ((one + (second - first).exp()) / 2).log()) / one.const_log10()


# --- the integral ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbers:
    level: Any  # log |V| + a - log tau
    omega: Any
    slope: Any  # c/tau, of the sign for V > 0
    sign: int  # of V
    root: Any  # sqrt 2
    normaliser: Any  # sqrt(2 pi)


def numbers(head: Balls) -> _Numbers:
    """The numbers of the integral, in balls."""
    logit, value, omega, along, tau = head.balls()
    side = sign(value)
    if side is None:
        raise TooWide(f"undecided: the sign of V in {value}")
    level = abs(value).log() + logit - tau.log() if side else value.neg_inf()
    return _Numbers(level, omega, (along if side >= 0 else -along) / tau, side, ball(2).sqrt(), (2 * tau.pi()).sqrt())


def _log_error(n: _Numbers) -> tuple[Any, int]:
    if n.sign == 0:  # x is odd
        return -ball(2).log(), 0
    mass, panels = _mass(n)
    log_mass = (mass / n.normaliser).log()
    return (log_mass if n.sign > 0 else (-log_mass.exp()).log1p()), panels


def _mass(n: _Numbers) -> tuple[Any, int]:
    """The integral of e^h over the line."""
    mode, left, right = where(n)
    peak = density(mode, n)
    width = _distance(mode, -1, peak, 1.0, n) + _distance(mode, 1, peak, 1.0, n)
    allowed = _exact((peak.exp() * width).upper()) * ball(2) ** -_FINE
    total = tail(left, -1, n) + tail(right, 1, n)
    todo, panels = [(left, mode, 0), (mode, right, 0)], 0
    for _ in range(_TRIED):
        if not todo:
            return total, panels
        start, end, depth = todo.pop()
        middle = _exact((start + end) / 2)
        remainder = _remainder(start, end, middle, n)
        if not remainder.rad() < allowed and depth < _DEPTH:
            todo += [(start, middle, depth + 1), (middle, end, depth + 1)]
            continue
        total += _panel(start, end, middle, remainder, n)
        panels += 1
    return total.nan(), panels


def where(n: _Numbers) -> tuple[Any, Any, Any]:
    """Roughly the mode of h, and the points left and right of it beyond which its tails are bounded. Proves nothing."""
    mode = _mode(n)
    peak = density(mode, n)
    left, right = (_exact(mode + side * _distance(mode, side, peak, _DROP, n)) for side in (-1, 1))
    return mode, left, right


def _series(numbers: Iterable[Any], order: int) -> Any:
    import flint

    return flint.arb_series(list(numbers), prec=order)


def _cap() -> int:
    import flint

    return int(flint.ctx.cap)


def _parts(t: Any, n: _Numbers) -> tuple[Any, Any]:
    """x and -(x^2 + t^2)/2 as series around t."""
    s = _series([t, 1], _cap())
    x = (n.level - n.omega * s).exp() + n.slope * s
    return x, -(x * x + s * s) / 2


def _integrand(t: Any, x: Any, exponent: Any, n: _Numbers) -> Any:
    """Taylor coefficients of e^h from those of x and of the exponent."""
    order = _cap()
    if x[0] > _FAR:
        return _mills(x, order) * exponent.exp() / n.normaliser
    s = _series([t, 1], order)
    return (x / n.root).erfc() * (-(s * s) / 2).exp() / 2


def _centred(around: Any, middle: Any, u: Any) -> Any:
    """The series of a function around every point m + u of a panel, its first two coefficients from those at m, which depend on u less."""
    second = around[2]
    first = [middle[0] + middle[1] * u + second * u * u, middle[1] + 2 * second * u]
    return _series([*first, *(around[k] for k in range(2, _cap()))], _cap())


def _remainder(start: Any, end: Any, middle: Any, n: _Numbers) -> Any:
    """The ball of the n-th Taylor coefficient over the panel, times the integral of (t - m)^n."""
    panel, u = start.union(end), (start - middle).union(end - middle)
    with series_terms(2):
        x_middle, exponent_middle = _parts(middle, n)
    with series_terms(_ORDER + 1):
        s = _series([panel, 1], _ORDER + 1)
        x = _centred(_parts(panel, n)[0], x_middle, u)
        exponent = _centred(-(x * x + s * s) / 2, exponent_middle, u)
        coefficient = _integrand(panel, x, exponent, n)[_ORDER]
    return coefficient * ((end - middle) ** (_ORDER + 1) - (start - middle) ** (_ORDER + 1)) / (_ORDER + 1)


def _mills(x: Any, order: int) -> Any:
    r"""Taylor coefficients of $m(x) = \Phi(-x)/\varphi(x)$ for a series x whose first coefficient exceeds `_FAR`.

    $m(x) = \int_0^\infty e^{-xu - u^2/2} du$. With J terms of the series of $e^{-u^2/2}$, which alternates, the rest is at most the
    next term; so each Taylor coefficient of m in x is off by at most that of the next term, $(2J-1)!!\,x^{-2J-1}$.
    """
    import flint

    total, power, factor = _partial_sum(1 / _series([x[0], 1], order), float(x[0].lower()))
    total += _series([power[k].abs_upper() * abs(factor) * flint.arb(0, 1) for k in range(order)], order)
    return total(_series([0, *(x[k] for k in range(1, order))], order))


def _mills_at(x: Any) -> Any:
    """m(x) of a ball beyond `_FAR`."""
    total, power, factor = _partial_sum(1 / x, float(x.lower()))
    return total + power * abs(factor) * ball(-1).union(ball(1))


def _partial_sum(inverse: Any, least: float) -> tuple[Any, Any, int]:
    """The sum of the asymptotic series in 1/x, the power of 1/x of its first term that is left out, and that term's factor."""
    square, power, total, factor, size, j = inverse * inverse, inverse, 0 * inverse, 1, 1.0, 0
    while j < _TERMS and size > _SMALL:
        total += power * factor
        power, factor, size, j = power * square, -factor * (2 * j + 1), size * (2 * j + 1) / least / least, j + 1
    return total, power, factor


def _panel(start: Any, end: Any, middle: Any, remainder: Any, n: _Numbers) -> Any:
    with series_terms(_ORDER):
        series = _integrand(middle, *_parts(middle, n), n)
    right, left = end - middle, start - middle
    total, up, down = remainder, right, left
    for k in range(_ORDER):
        total += series[k] * (up - down) / (k + 1)
        up, down = up * right, down * left
    return total


def tail(end: Any, side: int, n: _Numbers) -> Any:
    """A ball that holds the integral of e^h beyond `end`, on the right (side 1) or on the left (-1)."""
    import flint

    fall = -side * _force(end, n)
    if not fall > 0:
        return flint.arb("nan")
    bound = (density(end, n).exp() / fall).upper()
    return bound / 2 + bound / 2 * flint.arb(0, 1)


# --- h and h', and where to look ------------------------------------------------------------------------------------------


def _argument(t: Any, n: _Numbers) -> tuple[Any, Any]:
    """x(t) and x'(t)."""
    grown = (n.level - n.omega * t).exp()
    return grown + n.slope * t, n.slope - n.omega * grown


def density(t: Any, n: _Numbers) -> Any:
    """h(t), the logarithm of e^(-t^2/2) Phi(-x(t))."""
    x, _ = _argument(t, n)
    if x > _FAR:
        return _mills_at(x).log() - (x * x + t * t) / 2 - (2 * x.pi()).log() / 2
    return ((x / n.root).erfc() / 2).log() - t * t / 2


def _force(t: Any, n: _Numbers) -> Any:
    """h'(t)."""
    x, rate = _argument(t, n)
    if x > _FAR:
        return -t - rate / _mills_at(x)
    return -t - rate * (-(x * x) / 2).exp() / ((x / n.root).erfc() / 2) / (2 * x.pi()).sqrt()


def _exact(value: Any) -> Any:
    """The middle of a ball, as an exact number."""
    return value.mid()


def _mode(n: _Numbers) -> Any:
    """Roughly where h is largest: a bracket that grows, then halves. Proves nothing."""
    zero = ball(0)
    force = _exact(_force(zero, n))
    side = 1 if force > 0 else -1
    near, far = zero, ball(1)
    while side * _exact(_force(side * far, n)) > 0:
        near, far = far, 2 * far
    for _ in range(80):
        middle = _exact((near + far) / 2)
        if side * _exact(_force(side * middle, n)) > 0:
            near = middle
        else:
            far = middle
    return side * far


def _distance(mode: Any, side: int, peak: Any, drop: float, n: _Numbers) -> Any:
    """Roughly how far from the mode h has fallen by `drop`; not less than that. At most sqrt(2 drop), as h'' <= -1."""
    near, far = ball(0), ball(math.sqrt(2 * drop))
    level = _exact(peak) - drop
    for _ in range(100):
        middle = _exact((near + far) / 2)
        if _exact(density(mode + side * middle, n)) > level:
            near = middle
        else:
            far = middle
        if far < near * 2 and far - near < far / 8:
            break
    return far
