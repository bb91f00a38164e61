"""What the model does on the law of certified numbers: by formula, and by running it."""

from __future__ import annotations

import math

import torch

from attnlib import attention
from attnlib.certified.law import GapLaw

__all__ = ["mean_attention", "mean_attention_sampled"]


def mean_attention(law: GapLaw) -> float:
    r"""Mean attention weight of the first token.

    $$ E\,s_1 = \frac1a\log\frac{1+e^a}2 . $$

    It is computed as $1+\frac1a\log\frac{1+e^{-a}}2$, which loses no digits for a small $a$ and never overflows.

    Args:
        law: with the largest gap $a$.

    Returns:
        a number between one half and one.

    Raises:
        nothing: a law with a gap out of range cannot be made.

    Source:
        derived in the chapter "Proofs for Part VIII".

    Example:
        >>> round(mean_attention(GapLaw(largest_gap=4.0)), 3)
        0.831
    """
    a = law.largest_gap
    return 1 + math.log1p(math.expm1(-a) / 2) / a


def mean_attention_sampled(law: GapLaw, seed: int, *, runs: int, samples: int) -> torch.Tensor:
    """Mean attention weight of the first token over n samples, for R independent sets of them.

    Args:
        law: to draw from.
        seed: of the random streams, a whole number >= 0.
        runs: R >= 1.
        samples: n >= 1.

    Returns:
        a vector (R,), one mean for each set.

    Raises:
        ValueError: an argument out of its range.

    Source:
        the model itself; it has no line in common with `mean_attention`.

    Example:
        >>> mean_attention_sampled(GapLaw(largest_gap=4.0), 0, runs=3, samples=10).shape
        torch.Size([3])
    """
    return attention.attention_weights(law.draw(seed, runs=runs, samples=samples))[..., 0].mean(-1)
