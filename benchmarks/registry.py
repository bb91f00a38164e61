"""What a benchmark is made of: a case, and a wing's cases with the ratios that are read off them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Case", "Wing"]


@dataclass(frozen=True)
class Case:
    """`prepare()` runs the correctness gate and returns the callable to time; `limit` is the budget in seconds, if one is promised.

    `memory`, if given, is called instead for the peak memory of one call: without the gate, which may need more than what it guards.
    """

    name: str
    what: str
    prepare: Callable[[], Callable[[], object]]
    limit: float | None = None
    memory: Callable[[], object] | None = None


@dataclass(frozen=True)
class Wing:
    """Cases in the order of the table, ratios of their medians by name, and a tiny call that fills the libraries' own pools."""

    name: str
    cases: tuple[Case, ...]
    ratios: Callable[[Mapping[str, float]], dict[str, float]]
    warm: Callable[[], object] = field(default=lambda: None)
