r"""The single softmax head and its logistic loss, with exact gradients.

$$ f(X; v, p) = v^\top X^\top \mathrm{softmax}(Xp) = \sum_t s_t\, v\cdot x_t, \qquad
   L = \frac1n \sum_i \log\!\left(1 + e^{-y_i f_i}\right). $$

Model and loss: arXiv 2410.07746 (the mean over n is its public code's convention). Gradients: derived in the theory chapter.
Shapes: tokens (R, n, T, m), v and p (R, m), labels (R, n).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import softplus

from attnlib import checks
from attnlib.attention import attention_weights

__all__ = ["Forward", "forward", "gradients", "loss"]


@dataclass(frozen=True)
class Forward:
    """What the head computes: attention (R, n, T), token values v . x_t (R, n, T), output f (R, n)."""

    attention: torch.Tensor
    values: torch.Tensor
    output: torch.Tensor


def forward(tokens: torch.Tensor, v: torch.Tensor, p: torch.Tensor) -> Forward:
    """Run the head. Raises ValueError when shapes, dtypes or devices do not fit."""
    checks.tensor("tokens", tokens, ("R", "n", "T", "m"))
    runs, n, T, m = tokens.shape
    checks.tensor("v", v, (runs, m), like=tokens)
    checks.tensor("p", p, (runs, m), like=tokens)
    # Both scores in one pass over the tokens, which are what memory bandwidth is spent on.
    both = torch.matmul(tokens.flatten(1, 2), torch.stack([p, v], dim=-1)).unflatten(1, (n, T))
    attention, values = attention_weights(both[..., 0]), both[..., 1]
    return Forward(attention, values, (attention * values).sum(-1))


def loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean logistic loss (R,) of outputs (R, n): softplus(-y f), which does not overflow."""
    return softplus(-labels * output).mean(-1)


def gradients(tokens: torch.Tensor, labels: torch.Tensor, v: torch.Tensor, p: torch.Tensor):
    r"""Exact gradients of the mean loss.

    With $g_i = 1/(1+e^{y_i f_i})$:
    $\nabla_v L = -\frac1n \sum_i g_i y_i \sum_t s_{it} x_{it}$ and
    $\nabla_p L = -\frac1n \sum_i g_i y_i \sum_t s_{it} (v\cdot x_{it} - f_i)\, x_{it}$.

    Returns (gradient in v (R, m), gradient in p (R, m), the `Forward` they were computed from).
    """
    out = forward(tokens, v, p)
    checks.tensor("labels", labels, tuple(tokens.shape[:2]), like=tokens)
    pull = -labels * torch.sigmoid(-labels * out.output) / labels.shape[-1]  # dL/df, (R, n)
    weight_v = pull.unsqueeze(-1) * out.attention
    weight_p = weight_v * (out.values - out.output.unsqueeze(-1))
    both = torch.stack([weight_v, weight_p], dim=1).flatten(2)  # (R, 2, nT)
    grad = torch.matmul(both, tokens.flatten(1, 2))
    return grad[:, 0], grad[:, 1], out
