"""A training that diverged raises one exception, whatever the model, and never returns a result."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class TrainingDiverged(RuntimeError):
    """A training holds a number that is not finite. `run` is its number, `step` where that was seen first."""

    def __init__(self, step: int, run: int, told: str) -> None:
        super().__init__(step, run, told)  # all of them: an error goes to another process by its `args`
        self.step, self.run, self.told = step, run, told

    def __str__(self) -> str:
        return f"training diverged: {self.told}"


def require_finite(steps: Sequence[int], first_run: int, *parts: torch.Tensor) -> None:
    """Raise `TrainingDiverged` unless all numbers of `parts`, each (S, R, ...) at the S recorded `steps`, are finite."""
    if all(bool(part.sum().isfinite()) for part in parts):  # one pass; only a sum that overflowed needs the second look
        return
    bad = torch.stack([~part.isfinite().flatten(2).all(2) for part in parts]).any(0)  # (S, R)
    if bad.any():
        row = int(bad.any(1).nonzero()[0])
        step, run = steps[row], first_run + int(bad[row].nonzero()[0])
        told = f"run {run} is not finite at step {step}, the first recorded one of this kind: take a smaller step_size"
        raise TrainingDiverged(step, run, told)
