r"""The fast twin of `gradient_descent`: the same steps in Gram space, for many steps.

Every iterate lies in the span of its start, the signals and the noise tokens, $v_t = \sum_a \alpha_a b_a$, and all that training looks at
are the scores $K\alpha$ with the Gram matrix $K$ of those $n + 2$ (or $n + 4$) vectors. A step is one product of $K$ with two
columns, $O(n^2)$ whatever the dimension. It is the general trainer's Gram method with one softmax head. Two tokens.

Source: derived; equality with the readable trainer is a test.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from attnlib.single_head.descent import TrainingPlan, Trajectory, checked_start, gradient_descent, heads_plan
from attnlib.single_head.law import Sample
from attnlib.single_head.trainer import in_gram_space

__all__ = ["gram_descent"]


def gram_descent(
    sample: Sample,
    step_size: float,
    steps: int,
    *,
    attention_step_size: float | None = None,
    start: tuple[torch.Tensor, torch.Tensor] | None = None,
    record: Iterable[int] | None = None,
    dtype: torch.dtype = torch.float64,
) -> Trajectory:
    r"""The same steps as `gradient_descent`, computed with inner products: faster for many steps.

    Iterates are combinations $v_t = \sum_a \alpha_a b_a$ of the start, the signals and the noise tokens. With their Gram matrix $K$ a
    step is a product of $K$ with two columns: $O(n^2)$, whatever the dimension.

    Args:
        sample: R training sets. Those of more than two tokens are handed to `gradient_descent`.
        step_size: beta > 0.
        steps: number of updates >= 0.
        attention_step_size: beta for p when it differs; 0 freezes attention.
        start: (v_0, p_0), both (R, m); zero when left out.
        record: steps to keep, each in 0 ... steps; all of them when left out. The last step is always kept.
        dtype: float64, or float32: about twice as fast, for runs that need no more than six digits. The sample's dtype does not matter.

    Returns:
        the same as `gradient_descent`, in `dtype`, on the sample's device.

    Raises:
        ValueError: a bad argument, before any work.

    Source:
        derived in `book/single_head_theory`; equality with `gradient_descent` is a test.

    Example:
        >>> sample = SignalNoiseLaw(n=50, d=10_000, signal_norm=30.0).draw(seed=0)
        >>> gram_descent(sample, 0.01, 1000, record=[10, 100]).steps
        (10, 100, 1000)
    """
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64; got {dtype!r}")
    if sample.law.tokens != 2:
        return gradient_descent(
            sample, step_size, steps, attention_step_size=attention_step_size, start=start, record=record
        )
    plan = TrainingPlan(step_size, steps, attention_step_size, record)
    starts = checked_start(sample, start)
    return in_gram_space(heads_plan(sample, plan, starts, torch.float64), dtype).single()
