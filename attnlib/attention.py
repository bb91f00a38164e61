r"""The one attention primitive, each step a function of its own.

$$ z_t = x_t \cdot p, \qquad s = \mathrm{softmax}(z), \qquad \bar x = \sum_t s_t x_t. $$

Shapes: R runs, n samples, T tokens, m coordinates. Leading axes before n are free (usually the run axis R).
"""

from __future__ import annotations

import torch


def attention_logits(tokens: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Scores z_t = x_t . p of every token.

    Args:
        tokens: (..., n, T, m).
        query: (..., m), one query per run.

    Returns (..., n, T). One matrix-vector product per run: samples and tokens are flattened first.

    >>> attention_logits(torch.zeros(2, 3, 4, 5), torch.zeros(2, 5)).shape
    torch.Size([2, 3, 4])
    """
    n, T, _ = tokens.shape[-3:]
    scores: torch.Tensor = torch.matmul(tokens.flatten(-3, -2), query.unsqueeze(-1)).squeeze(-1).unflatten(-1, (n, T))
    return scores


def attention_weights(logits: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis: (..., T) -> (..., T), rows sum to one, unchanged by a shift of the logits."""
    return torch.softmax(logits, dim=-1)


def attention_output(weights: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Weighted mean of the tokens: weights (..., T), tokens (..., T, m) -> (..., m)."""
    return torch.einsum("...t,...tm->...m", weights, tokens)
