"""Bisection: where a condition that is first true and then false changes."""

from collections.abc import Callable


def halved(below: Callable[[float], bool], low: float, high: float, times: int) -> tuple[float, float]:
    """The ends of the interval after so many halvings; `below` is true at the lower end and false at the upper one."""
    for _ in range(times):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


def crossing_above(below: Callable[[float], bool], times: int = 50) -> float:
    """The change above 0: doublings from 1 until `below` is false, then halvings."""
    low, high = 0.0, 1.0
    while below(high):
        low, high = high, 2 * high
    return sum(halved(below, low, high, times)) / 2
