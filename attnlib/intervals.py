"""Arrays of intervals with outward rounding: each operation returns bounds that hold for all real numbers of its arguments.

numpy rounds sums, products, quotients and roots to the nearest double, off by at most 2^-53 of the result or 2^-1075: one step outwards
of twice that size makes them bounds. Its exp may be off by a few units in the last place: eight are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Interval", "hull"]

_ULP, _TINY = 2.0**-52, 2.0**-1074
_LIBRARY = 8 * _ULP  # relative error allowed to exp


def _down(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = x - (np.abs(x) * _ULP + _TINY)  # faster than nextafter, and never nearer than it
    return result


def _up(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = x + (np.abs(x) * _ULP + _TINY)
    return result


@dataclass(frozen=True)
class Interval:
    """All real numbers from `low` to `high`, entry by entry; two float64 arrays that broadcast."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, low: object, high: object | None = None) -> Interval:
        """The interval between two given doubles, taken as exact; one number when `high` is left out."""
        first = np.asarray(low, dtype=np.float64)
        return cls(first, first if high is None else np.asarray(high, dtype=np.float64))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __add__(self, other: Interval | float) -> Interval:
        o = _interval(other)
        return Interval(_down(self.low + o.low), _up(self.high + o.high))

    __radd__ = __add__

    def __sub__(self, other: Interval | float) -> Interval:
        o = _interval(other)
        return Interval(_down(self.low - o.high), _up(self.high - o.low))

    def __rsub__(self, other: float) -> Interval:
        return _interval(other) - self

    def __mul__(self, other: Interval | float) -> Interval:
        o = _interval(other)
        if self.low.size > o.low.size:
            self, o = o, self
        if (self.low >= 0).all():  # the usual case costs two products, not four
            low = np.where(o.low >= 0, self.low, self.high) * o.low
            high = np.where(o.high >= 0, self.high, self.low) * o.high
        else:
            a, b, c, d = self.low * o.low, self.low * o.high, self.high * o.low, self.high * o.high
            low, high = np.minimum(np.minimum(a, b), np.minimum(c, d)), np.maximum(np.maximum(a, b), np.maximum(c, d))
        return Interval(_down(low), _up(high))

    __rmul__ = __mul__

    def __truediv__(self, other: Interval | float) -> Interval:
        o = _interval(other)
        return self * Interval(_down(1 / o.high), _up(1 / o.low))

    def __rtruediv__(self, other: float) -> Interval:
        return _interval(other) / self

    def square(self) -> Interval:
        a, b = np.abs(self.low), np.abs(self.high)
        least = np.where((self.low <= 0) & (self.high >= 0), 0.0, np.minimum(a, b))
        return Interval(np.maximum(_down(least * least), 0.0), _up(np.maximum(a, b) ** 2))

    def sqrt(self) -> Interval:
        """Of what is at least 0; what lies below is cut off."""
        low, high = np.sqrt(np.maximum(self.low, 0.0)), np.sqrt(np.maximum(self.high, 0.0))
        return Interval(np.maximum(_down(low), 0.0), _up(high))

    def exp(self) -> Interval:
        with np.errstate(over="ignore", under="ignore"):
            low, high = np.exp(np.minimum(self.low, 700.0)), np.exp(self.high)
        return Interval(np.maximum(_down(low * (1 - _LIBRARY)), 0.0), _up(high * (1 + _LIBRARY)))

    def sigmoid(self) -> Interval:
        """1/(1 + exp(-x)); below -700 it lies between 0 and its value there."""
        low, high = np.maximum(self.low, -700.0), np.clip(self.high, -700.0, 700.0)
        s = 1.0 / (1.0 + Interval(-high, -low).exp())
        return Interval(np.where(self.low < -700.0, 0.0, s.low), np.minimum(s.high, 1.0))

    def magnitude(self) -> np.ndarray:
        """The largest absolute value."""
        result: np.ndarray = np.maximum(np.abs(self.low), np.abs(self.high))
        return result

    def spread(self) -> Interval:
        """[-m, m] with the largest absolute value m."""
        m = self.magnitude()
        return Interval(-m, m)

    def with_zero(self) -> Interval:
        return Interval(np.minimum(self.low, 0.0), np.maximum(self.high, 0.0))

    def over(self, axis: int) -> Interval:
        """The hull along one axis."""
        return Interval(self.low.min(axis), self.high.max(axis))

    def meet(self, other: Interval) -> Interval:
        """What lies in both, for two intervals that hold the same number."""
        return Interval(np.maximum(self.low, other.low), np.minimum(self.high, other.high))


def _interval(x: Interval | float) -> Interval:
    return x if isinstance(x, Interval) else Interval.of(x)


def hull(first: Interval, second: Interval) -> Interval:
    """The least interval that holds both."""
    return Interval(np.minimum(first.low, second.low), np.maximum(first.high, second.high))
