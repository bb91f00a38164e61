"""The answers of the exercises, computed. Part of the repository, not of the installed package: students install no answers.

Each exercise with a number as its answer is a function here that computes it with `attnlib`:

    @exercise("02-two-steps/2", "The smallest signal norm ...", digits=3)
    def smallest_norm() -> float: ...

`python -m attnbook.answers` makes the table of hashes from them that `bookkit.exercises.check` reads. Where a page's exercise is a proof,
or asks what happens, its sentence names the number in which the answer shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

from bookkit.exercises.table import COST, Entry, entry


@dataclass(frozen=True)
class Exercise:
    """One number asked for: `digits` significant digits (None: whole), `tolerance` in units of the last, either way."""

    name: str
    asks: str
    digits: int | None
    tolerance: int
    slow: bool  # more than a second
    answer: Callable[[], float | int]

    def entry(self, cost: int = COST) -> Entry:
        """What the table holds of it."""
        return entry(self.name, self.asks, self.answer(), self.digits, self.tolerance, cost)


_FOUND: dict[str, Exercise] = {}


def exercise(
    name: str, asks: str, digits: int | None, *, tolerance: int | None = None, slow: bool = False
) -> Callable[[Callable[[], float | int]], Callable[[], float | int]]:
    """Register the decorated function as the answer of an exercise. `tolerance`: 1 by default, 0 for a whole number.

    Raises ValueError for a name used twice.
    """

    def register(answer: Callable[[], float | int]) -> Callable[[], float | int]:
        if name in _FOUND:
            raise ValueError(f"name must be used once; got {name!r} twice: number the exercises of a page apart")
        allowed = (0 if digits is None else 1) if tolerance is None else tolerance
        _FOUND[name] = Exercise(name, asks, digits, allowed, slow, answer)
        return answer

    return register


def exercises() -> dict[str, Exercise]:
    """All exercises that can be checked, by name."""
    for module in iter_modules(__path__, f"{__name__}."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return dict(sorted(_FOUND.items()))


def crossing(function: Callable[[float], float], low: float, high: float) -> float:
    """Where `function` changes its sign between `low` and `high`."""
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-12 * max(1.0, abs(high)), rtol=1e-12))
