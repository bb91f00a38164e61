r"""Risks of trained models on laws without a closed form for them, measured against a neighbour that has one.

A linear predictor close to the model has an exactly known risk; on common prompts the two errors nearly cancel, so

$$ \mathrm{risk}(\text{model}) = \mathrm{risk}(\text{linear}) + \mathbb E\big[(\hat y-t)^2-(\hat y_{\text{lin}}-t)^2\big] $$

has a standard error many times smaller than the plain average. `t` is the target without noise. Source: derived (control variate).
"""

import math

import numpy as np
import torch

from attnbook.in_context.closed_form import preconditioned_gd_risk
from attnbook.in_context.deeper_and_wider.multi_task import MultiTaskLaw, centred_linear_answers, linear_risks
from attnbook.in_context.deeper_and_wider.stack import StackWeights, predict_stack
from attnlib import checks
from attnlib.in_context.law import Prompts, RegressionLaw

_PART = 200  # prompts at a time


def centred_linear_answer(gamma: object, prompts: Prompts, offset: float = 0.0) -> torch.Tensor:
    """(B,): x_q' Gamma sum_i (x_i - mean) y_i / L + offset * mean of the labels."""
    G = torch.as_tensor(np.asarray(gamma, dtype=np.float64))
    centred = prompts.x - prompts.x.mean(-2, keepdim=True)
    moment = (centred * prompts.y.unsqueeze(-1)).mean(-2)
    return ((prompts.query @ G) * moment).sum(-1) + offset * prompts.y.mean(-1)


def risk_beside_linear(
    stack: StackWeights,
    law: RegressionLaw | MultiTaskLaw,
    maps: object,
    *,
    offset: float = 0.0,
    prompts: int = 20_000,
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Risk and its standard error, (R,) for one task and (R, N) for N, beside the centred linear predictor with `maps`.

    Args:
        stack: R runs of a model.
        law: single task, `maps` (d, d); or several, `maps` (N, d, d).
        offset: a, what the linear predictor adds of the labels' mean (single task).
        prompts: held-out prompts of the stream (seed, "test", 0), common to all runs.

    Raises ValueError for maps of another shape or fewer than two prompts.
    """
    checks.whole_number("prompts", prompts, at_least=2, hint="one prompt has no standard error")
    several = isinstance(law, MultiTaskLaw)
    exact = (
        linear_risks(law, maps) if several else float(preconditioned_gd_risk(law, maps, centred=True, offset=offset))
    )

    def difference(part: object) -> torch.Tensor:
        if several:
            target, linear = part.target, centred_linear_answers(maps, part)
        else:
            target, linear = part.clean_target.unsqueeze(-1), centred_linear_answer(maps, part, offset).unsqueeze(-1)
        return (predict_stack(stack, part) - target).square() - (linear - target).square()

    mean, error = _averages(difference, law, prompts, seed)
    return (torch.as_tensor(exact) + mean, error) if several else (exact + mean[:, 0], error[:, 0])


def plain_risk(
    stack: StackWeights, law: RegressionLaw, *, prompts: int = 20_000, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Risk (R,) and its standard error without a neighbour, for models that are near no linear predictor."""
    checks.whole_number("prompts", prompts, at_least=2, hint="one prompt has no standard error")
    mean, error = _averages(
        lambda part: (predict_stack(stack, part) - part.clean_target.unsqueeze(-1)).square(), law, prompts, seed
    )
    return mean[:, 0], error[:, 0]


def _averages(value, law, prompts: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard error over prompts of value(part) (R, prompts of the part, N)."""
    drawn = law.draw(prompts, seed)
    with torch.no_grad():
        values = torch.cat([value(drawn.part(k, k + _PART)) for k in range(0, prompts, _PART)], dim=1)
    return values.mean(1), values.std(1) / math.sqrt(prompts)
