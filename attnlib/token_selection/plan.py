"""The arguments of a training, checked: what the dense trainer and the recursion have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnlib import checks

__all__ = ["TrainingPlan", "plan_of"]


@dataclass(frozen=True)
class TrainingPlan:
    """Step sizes, the steps to keep, and which of the two parameters move."""

    step_sizes: tuple[float, ...]
    recorded: tuple[int, ...]
    trains_weight: bool
    trains_prompt: bool

    @property
    def steps(self) -> int:
        return len(self.step_sizes)

    @property
    def kept(self) -> frozenset[int]:
        return frozenset(self.recorded)


def plan_of(
    step_size: float | Sequence[float], steps: int, record: Iterable[int] | None = None, trained: str = "both"
) -> TrainingPlan:
    """Raises ValueError for a bad argument, before any work."""
    steps = checks.whole_number("steps", steps, at_least=0)
    checks.one_of("trained", trained, ("both", "p", "W"))
    if isinstance(step_size, Sequence):
        sizes = tuple(checks.positive_number("step_size", size) for size in step_size)
        if len(sizes) != steps:
            raise ValueError(f"step_size must be a number or one per step ({steps}); got {len(sizes)} of them")
    else:
        sizes = (checks.positive_number("step_size", step_size),) * steps
    return TrainingPlan(sizes, checks.recorded_steps(record, steps), trained != "p", trained != "W")
