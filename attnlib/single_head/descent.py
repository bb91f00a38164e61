r"""Gradient descent on a single head: any number of steps, R runs at once.

$$ v_{t+1} = v_t - \beta \nabla_v L(v_t, p_t), \qquad p_{t+1} = p_t - \beta \nabla_p L(v_t, p_t), $$

both from the same point, from zero or from a Gaussian start. Source: arXiv 2410.07746 (simultaneous steps, v_0 = p_0 = 0).
`trainer.train_heads` is the same for more heads, other attention maps and other update rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.single_head.law import Sample
from attnlib.single_head.trainer import train_heads
from attnlib.single_head.trajectory import Trajectory

__all__ = ["TrainingPlan", "Trajectory", "gaussian_start", "gradient_descent"]


def gaussian_start(sample: Sample, std: float) -> tuple[torch.Tensor, torch.Tensor]:
    """v_0 and p_0 with independent N(0, std^2) entries in R^d, as (R, m) in the sample's coordinates.

    Needs a sample drawn with `start_vectors=2`. Raises ValueError otherwise.
    """
    if sample.start_directions.shape[1] < 2:
        raise ValueError("sample must hold two start directions; got fewer: draw it with start_vectors=2")
    std = checks.positive_number("std", std)
    return std * sample.start_directions[:, 0], std * sample.start_directions[:, 1]


@dataclass(frozen=True)
class TrainingPlan:
    """The arguments of a training, checked: what the readable trainer and its fast twin have in common."""

    step_size: float
    attention_step_size: float
    steps: int
    recorded: tuple[int, ...]
    start: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    def checked(cls, sample: Sample, step_size, steps, attention_step_size, start, record) -> TrainingPlan:
        """Raises ValueError for a bad argument, before any work."""
        step_size = checks.positive_number("step_size", step_size)
        if attention_step_size is None:
            attention_step_size = step_size
        elif attention_step_size != 0:
            attention_step_size = checks.positive_number(
                "attention_step_size", attention_step_size, hint="or 0 to freeze it"
            )
        steps = checks.whole_number("steps", steps, at_least=0)
        recorded = tuple(range(steps + 1) if record is None else sorted({*record, steps}))
        for step in recorded:
            if not 0 <= checks.whole_number("record", step, at_least=0) <= steps:
                raise ValueError(f"record must hold steps in 0 ... {steps}; got {step!r}")
        shape = (sample.runs, sample.tokens.shape[-1])
        v, p = start if start is not None else (sample.tokens.new_zeros(shape), sample.tokens.new_zeros(shape))
        checks.tensor("start[0]", v, shape, like=sample.tokens)
        checks.tensor("start[1]", p, shape, like=sample.tokens)
        return cls(step_size, float(attention_step_size), steps, recorded, (v, p))


def gradient_descent(
    sample: Sample,
    step_size: float,
    steps: int,
    *,
    attention_step_size: float | None = None,
    start: tuple[torch.Tensor, torch.Tensor] | None = None,
    record: Iterable[int] | None = None,
) -> Trajectory:
    """Train on every run of `sample`.

    Args:
        step_size: beta > 0.
        steps: number of updates >= 0.
        attention_step_size: beta for p when it differs; 0 freezes attention where it starts (the linear model on mean tokens).
        start: (v_0, p_0), both (R, m); zero when left out. They are not changed in place.
        record: steps to keep, each in 0 ... steps; all of them when left out. The last step is always kept.

    Returns a `Trajectory`. Raises ValueError for a bad argument before any work.

    >>> from attnlib.single_head.law import SignalNoiseLaw
    >>> sample = SignalNoiseLaw(n=200, d=40_000, signal_norm=30.0, label_noise=0.05).draw(seed=0, runs=3)
    >>> path = gradient_descent(sample, step_size=0.025, steps=2)
    >>> path.margins.shape, path.train_accuracy[-1].tolist()
    (torch.Size([3, 3, 200]), [1.0, 1.0, 1.0])
    """
    plan = TrainingPlan.checked(sample, step_size, steps, attention_step_size, start, record)
    return train_heads(
        sample, plan.step_size, plan.steps, attention_step_size=plan.attention_step_size,
        start=tuple(vector.unsqueeze(1) for vector in plan.start), record=plan.recorded, engine="vectors",
    ).single()  # fmt: skip
