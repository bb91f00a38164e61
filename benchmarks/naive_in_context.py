"""In-context regression trained the plain way, operation by operation in eager torch: what speed is measured against.

Fresh prompts from `torch.randn` at every step, one linear map for the queries of all heads, one for the keys, one for
the values, one for the output, autograd, torch's Adam, and the loss read off as a number after every step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import nn

__all__ = ["MultiHead", "batches", "train"]

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class MultiHead(nn.Module):
    """Softmax attention of a query to a context, H heads of the full width n, one number out."""

    def __init__(self, heads: int, n: int):
        super().__init__()
        self.heads, self.n = heads, n
        self.query, self.key, self.value = (nn.Linear(n, n * heads, bias=False) for _ in range(3))
        self.output = nn.Linear(n * heads, 1, bias=False)

    def forward(self, context: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        """Predictions (B,) for contexts (B, L, n) and query tokens (B, 1, n)."""
        keys, values, queries = (
            layer(tokens).unflatten(-1, (self.heads, self.n)).transpose(1, 2)
            for layer, tokens in ((self.key, context), (self.value, context), (self.query, query))
        )
        weights = torch.softmax(queries @ keys.transpose(-1, -2) / math.sqrt(self.n), dim=-1)
        return self.output((weights @ values).transpose(1, 2).flatten(-2))[:, 0, 0]


def batches(steps: int, *, d: int, length: int, batch: int, noise_std: float) -> Iterator[Batch]:
    """Fresh (context, query token, target) for every step; label noise of standard deviation sqrt(d) noise_std."""
    for _ in range(steps):
        beta = torch.randn(batch, d, 1)
        x, asked = torch.randn(batch, length, d), torch.randn(batch, 1, d)
        labels = x @ beta + math.sqrt(d) * noise_std * torch.randn(batch, length, 1)
        empty = torch.zeros(batch, 1, 1)
        yield torch.cat((x, labels), dim=-1), torch.cat((asked, empty), dim=-1), (asked @ beta)[:, 0, 0]


def train(model: MultiHead, data: Iterable[Batch], learning_rate: float) -> list[float]:
    """Adam on the mean squared error, one step per batch. Returns the losses."""
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    losses = []
    for context, query, target in data:
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(model(context, query), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses
