"""What a benchmark is made of: a case and its work, and ratios that are read off several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Case", "Work", "of_one_unit"]


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
    """`gate()` raises AssertionError where what is timed is wrong; `prepare()` returns the callable to time.

    The callable ends when the work has ended: on a GPU it synchronises.
    """

    name: str
    what: str
    prepare: Callable[[], Callable[[], object]]
    work: Work
    threads: int = 1
    gate: Callable[[], object] = lambda: None


def of_one_unit(median: Mapping[str, float], pairs: Mapping[str, tuple[str, str, float]]) -> dict[str, float]:
    """median[slow] / median[fast] x factor of every (slow, fast, factor) by name; without those of cases that were not run."""
    return {name: median[a] / median[b] * k for name, (a, b, k) in pairs.items() if a in median and b in median}
