"""What a benchmark is made of: a case, and a group of cases with the ratios that are read off them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Case", "Part", "Work"]


@dataclass(frozen=True)
class Work:
    """What one call of a case does, for its rate and its place under the roofline.

    Args:
        units: how many `unit`s one call makes.
        unit: what is counted: "model-step", "run-step", "error", "byte", ...
        operations: floating-point operations of one unit (a fused multiply-add counts as two).
        bytes: bytes of one unit that cross the border of the memory named in `level`.
        level: where they come from: "L2", "L3", "memory", or "" where nothing but registers and L1 is used.
        dtype: "float32" or "float64".
        kernel: the loop, as the chapter on kernels names it; empty for a probe of the machine.
    """

    units: float
    unit: str
    operations: float = 0.0
    bytes: float = 0.0
    level: str = ""
    dtype: str = "float32"
    kernel: str = ""


@dataclass(frozen=True)
class Case:
    """`prepare()` runs the correctness gate and returns the callable to time; `limit` is the budget in seconds, if one is promised.

    The callable ends when the work has ended: on a GPU it synchronises.
    `memory`, if given, is called instead for the peak memory of one call: without the gate, which may need more than what it guards.
    `repeats`, if given, is how often it is called, without a call to warm up: for cases of minutes.
    """

    name: str
    what: str
    prepare: Callable[[], Callable[[], object]]
    limit: float | None = None
    memory: Callable[[], object] | None = None
    work: Work | None = None
    threads: int = 1
    repeats: int | None = None


@dataclass(frozen=True)
class Part:
    """Cases in the order of the table, ratios of their medians by name, and a tiny call that fills the libraries' own pools."""

    name: str
    cases: tuple[Case, ...]
    ratios: Callable[[Mapping[str, float]], dict[str, float]]
    warm: Callable[[], object] = field(default=lambda: None)
