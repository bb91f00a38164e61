r"""Gradient descent on a single head: any number of steps, R runs at once.

$$ v_{t+1} = v_t - \beta \nabla_v L(v_t, p_t), \qquad p_{t+1} = p_t - \beta \nabla_p L(v_t, p_t), $$

both from the same point, from zero or from a Gaussian start. Source: arXiv 2410.07746 (simultaneous steps, v_0 = p_0 = 0).
`trainer.train_heads` is the same for more heads, alternatives to softmax and other update rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from attnlib import checks
from attnlib.single_head.law import Sample
from attnlib.single_head.maps import SOFTMAX
from attnlib.single_head.rules import GRADIENT_DESCENT
from attnlib.single_head.trainer import HeadsPlan, Start, with_vectors
from attnlib.single_head.trajectory import Trajectory

__all__ = ["TrainingPlan", "Trajectory", "checked_start", "descend", "gaussian_start", "gradient_descent", "heads_plan"]


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
    """The arguments of a training, whatever the sample, and what follows from them. Raises ValueError for a bad one."""

    step_size: float
    steps: int
    attention_step_size: float | None = None
    record: Iterable[int] | None = None
    attention_step: float = field(init=False)  # the step size of p
    recorded: tuple[int, ...] = field(init=False)  # the steps to keep

    def __post_init__(self) -> None:
        step_size = attention = checks.positive_number("step_size", self.step_size)
        if self.attention_step_size is not None:
            attention = self.attention_step_size
            if attention != 0:
                checks.positive_number("attention_step_size", attention, hint="or 0 to freeze it")
        steps = checks.whole_number("steps", self.steps, at_least=0)
        recorded = checks.recorded_steps(self.record, steps)
        own = {"step_size": step_size, "steps": steps, "attention_step": float(attention), "recorded": recorded}
        for name, value in own.items():
            object.__setattr__(self, name, value)


def checked_start(sample: Sample, start: Start | None) -> Start:
    """(v_0, p_0), both (R, m), zero when left out. Raises ValueError for tensors that do not fit the sample."""
    shape = (sample.runs, sample.tokens.shape[-1])
    if start is None:
        return sample.tokens.new_zeros(shape), sample.tokens.new_zeros(shape)
    v, p = start
    return checks.tensor("start[0]", v, shape, like=sample.tokens), checks.tensor(
        "start[1]", p, shape, like=sample.tokens
    )


def gradient_descent(
    sample: Sample,
    step_size: float,
    steps: int,
    *,
    attention_step_size: float | None = None,
    start: Start | None = None,
    record: Iterable[int] | None = None,
) -> Trajectory:
    r"""Train one head on every run of `sample` by full-batch gradient descent, and record what it does.

    $$ v_{t+1} = v_t - \beta \nabla_v L(v_t, p_t), \qquad p_{t+1} = p_t - \beta \nabla_p L(v_t, p_t) $$

    Args:
        sample: R training sets, any number of tokens.
        step_size: beta > 0.
        steps: number of updates >= 0.
        attention_step_size: beta for p when it differs; 0 freezes attention where it starts (the linear model on mean tokens).
        start: (v_0, p_0), both (R, m); zero when left out. They are not changed in place.
        record: steps to keep, each in 0 ... steps; all of them when left out. The last step is always kept.

    Returns:
        parameters, loss, margins and attention at the recorded steps, in the sample's dtype and on its device.

    Raises:
        ValueError: a bad argument, before any work.

    Source:
        arXiv 2410.07746 (both parameters move at once, from zero).

    Example:
        >>> sample = SignalNoiseLaw(n=200, d=40_000, signal_norm=30.0, label_noise=0.05).draw(seed=0, runs=3)
        >>> gradient_descent(sample, step_size=0.025, steps=2).train_accuracy[-1].tolist()
        [1.0, 1.0, 1.0]
    """
    plan = TrainingPlan(step_size, steps, attention_step_size, record)
    return descend(sample, plan, checked_start(sample, start))


def descend(sample: Sample, plan: TrainingPlan, start: Start | None = None) -> Trajectory:
    """`gradient_descent` for a plan and a start that have been checked."""
    return with_vectors(heads_plan(sample, plan, start, sample.tokens.dtype)).single()


def heads_plan(sample: Sample, plan: TrainingPlan, start: Start | None, dtype: torch.dtype) -> HeadsPlan:
    """The same training as the general trainer takes it: one softmax head, gradient descent; step sizes in `dtype`."""
    v, p = start if start is not None else checked_start(sample, None)
    of_v, of_p = (
        sample.tokens.new_full((sample.runs,), size, dtype=dtype) for size in (plan.step_size, plan.attention_step)
    )
    ones = torch.ones(plan.steps, dtype=torch.float64)
    return HeadsPlan(
        sample, of_v, of_p, ones, plan.recorded, v.unsqueeze(1), p.unsqueeze(1), SOFTMAX, GRADIENT_DESCENT, 1.0, None
    )
