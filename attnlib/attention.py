r"""Attention in three steps (scores, weights, weighted mean), and what may take the place of its softmax.

$$ z_t = x_t \cdot p, \qquad s = \mathrm{softmax}(z), \qquad \bar x = \sum_t s_t x_t. $$

Shapes: R runs, n samples, T tokens, m coordinates. Leading axes before n are free (usually the run axis R).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Tensor = torch.Tensor


def attention_logits(tokens: Tensor, query: Tensor) -> Tensor:
    """The score z_t = x_t . p of each token.

    Args:
        tokens: (..., n, T, m).
        query: (..., m), one query per run.

    Returns (..., n, T). One matrix-vector product per run: samples and tokens are flattened first.

    >>> attention_logits(torch.zeros(2, 3, 4, 5), torch.zeros(2, 5)).shape
    torch.Size([2, 3, 4])
    """
    n, T, _ = tokens.shape[-3:]
    scores: Tensor = torch.matmul(tokens.flatten(-3, -2), query.unsqueeze(-1)).squeeze(-1).unflatten(-1, (n, T))
    return scores


def attention_weights(logits: Tensor) -> Tensor:
    """Softmax over the last axis: (..., T) -> (..., T), rows sum to one, unchanged by a shift of the logits."""
    return torch.softmax(logits, dim=-1)


def attention_output(weights: Tensor, tokens: Tensor) -> Tensor:
    """Weighted mean of the tokens: weights (..., T), tokens (..., T, m) -> (..., m)."""
    return torch.einsum("...t,...tm->...m", weights, tokens)


@dataclass(frozen=True)
class AttentionMap:
    """A map of logits (..., T) to weights (..., T). `setting` is its number, where it has one (temperature, width)."""

    kind: str  # which formula; `name` adds its setting
    weights: Callable[[Tensor], Tensor]
    pullback: Callable[[Tensor, Tensor, Tensor], Tensor]  # (logits, weights, upstream) -> J^T upstream, all (..., T)
    slope: Callable[[int], float]  # T -> c in J(0) = c (I - 11'/T), or c I for maps that are not normalised
    normalised: bool = True
    differentiable_at_zero: bool = True
    setting: float = 1.0
    window: int | None = None  # tokens per window; None: all of them compete

    @property
    def name(self) -> str:
        """The kind with its setting, for tables."""
        setting = f" at temperature {self.setting:g}" if self.kind == "softmax" and self.setting != 1 else ""
        return self.kind + setting + ("" if self.window is None else f" in windows of {self.window}")

    def __str__(self) -> str:
        return self.name

    def check_tokens(self, tokens: int) -> None:
        """Raises ValueError when the map cannot act on so many tokens."""
        if self.window is not None and tokens % self.window:
            raise ValueError(
                f"attention_map: windows of width {self.window} must divide the number of tokens; got T = {tokens}: "
                "choose a width that divides T"
            )
