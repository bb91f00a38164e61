"""How fast the GPU programs could be at most: computed from their machine code, for one kind of chip, never measured.

A step takes so many instructions a warp, and the schedulers of a chip start so many in a second; a step also moves bytes between the
second cache and the processors. Source of the instructions: the programs compiled for sm_90, loops counted as often as they are run
(`book/kernels.md`, "On a GPU", whose table a test compares with this one). The chip: H100 or H200 (132 multiprocessors at 1.98 GHz,
four schedulers each); the bytes per second of its second cache are an assumption.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.registry import Case

__all__ = ["CHIP", "Chip", "ceilings", "holds_for", "reached"]


@dataclass(frozen=True)
class Chip:
    """What the ceilings are computed for."""

    processors: int
    schedulers: int
    clock: float
    second_cache: float

    @property
    def instructions(self) -> float:
        """Warp instructions per second."""
        return self.processors * self.schedulers * self.clock


CHIP = Chip(processors=132, schedulers=4, clock=1.98e9, second_cache=5.5e12)


@dataclass(frozen=True)
class _Counted:
    """Instructions of one warp for `units` units of work, in a program of so many warps."""

    instructions: int
    warps: int
    units: int = 1


# Case, or the beginning of its name up to a last "-r" (replicas): instructions.
_INSTRUCTIONS = {
    "a-gpu-float32": _Counted(2150, 8),
    "a-gpu-float64": _Counted(3250, 8),
    "token-selection-triton-f32": _Counted(2400, 8),
    "token-selection-triton-f64": _Counted(3900, 8),
    "gpu-h1": _Counted(8900, 4),
    "gpu-h2": _Counted(9900, 4),
    "gpu-h4": _Counted(12_800, 4),
    "gpu-h8": _Counted(17_900, 4),
    "d-gpu": _Counted(137_000, 1, 32),
}


def ceilings(case: Case) -> dict[str, float]:
    r"""Units per second that a GPU program cannot pass, by what sets the limit; empty for a case without a count.

    "instructions": $u \cdot I / (i w)$ with I warp instructions a second of the chip, i instructions of a warp for u units, w warps in
    a program. "second cache": its bytes per second over the bytes of a unit, where bytes cross its border; a matrix that stays in the
    first cache can be faster than this one.
    """
    counted = _INSTRUCTIONS.get(case.name.rpartition("-r")[0]) or _INSTRUCTIONS.get(case.name)
    if counted is None:
        return {}
    found = {"instructions": counted.units * CHIP.instructions / (counted.instructions * counted.warps)}
    if case.work is not None and case.work.level == "L2":
        found["second cache"] = CHIP.second_cache / case.work.bytes
    return found


def holds_for(processors: int, capability: tuple[int, int]) -> bool:
    """Whether a card with so many multiprocessors, of this compute capability, is of the kind that the ceilings are computed for."""
    return processors == CHIP.processors and capability == (9, 0)


def reached(case: Case, seconds: float) -> dict[str, float]:
    """The case's rate, units of one call over `seconds`, as a fraction of each of its ceilings."""
    units = case.work.units if case.work is not None else 0.0
    return {name: units / seconds / rate for name, rate in ceilings(case).items()}
