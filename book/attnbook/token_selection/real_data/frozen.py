r"""The last layer of a transformer when only its query and key are trained and only position 0 is read.

Below the last layer nothing changes, so its input tokens x_l, its values V_l and the residual of position 0 are computed
once. What is left of the network is, per head,

$$ s_l = \frac{(W_K u)\cdot x_l}{\sqrt{d_h}}, \quad u = W_Q^\top x_0 + b_Q, \qquad a = \mathrm{softmax}(s), \qquad
   f = \mathrm{finish}\Big(\sum_l a_l V_l,\ \mathrm{residual}\Big). $$

The key's bias adds the same number to every score of a head and drops out of the softmax: it is not kept.
Only the row of position 0 is needed, so a head costs one vector W_K u per sample, not one key per token. Where all samples have the
same x_0, a class token, it is one vector W_K u for all of them, and the scores are one product of matrices.
*Reach*: which labels could be produced at all if every head chose its attention freely, sample by sample. Whatever query and key are
trained, their attention is one of the free ones: reach is measured before phase 2 and bounds what phase 2 can memorise (up to the
optimiser's failures, which make the measured reach too small, never too large).
Shapes: R runs (leading axes), N samples, L positions, D width, h heads of width d_h. dtype float32 (any floating dtype works).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional

from attnlib.randomness import stream


@dataclass(frozen=True)
class QueryKey:
    """What is trained: query weight (..., D, h d_h), query bias (..., h d_h), key weight (..., D, h d_h); applied as x W + b.

    Leading axes are runs. A library's Linear stores the transpose: pass `linear.weight.T`.
    """

    query: torch.Tensor
    query_bias: torch.Tensor
    key: torch.Tensor

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The three trained tensors, in the order of the fields."""
        return self.query, self.query_bias, self.key


@dataclass(frozen=True)
class FrozenLastLayer:
    """A set of samples as the last layer sees them, and the frozen rest of the network.

    tokens: (N, L, D), input of the query and key projections (after the layer norm in a pre-norm ViT, raw in post-norm BERT).
    values: (N, L, h d_h), value projection of every position, bias included, heads side by side.
    residual: (N, D), position 0 on the residual stream, to which the attention output is added.
    mask: (N, L) bool, True where a position may be attended to; None when all may.
    heads: number of heads h.
    finish: frozen map (attended (..., N', h d_h), residual (N', D)) -> logits (..., N', classes): output projection,
        residual connections, norms, feed-forward block, final norm or pooler, head.
    """

    tokens: torch.Tensor
    values: torch.Tensor
    residual: torch.Tensor
    mask: torch.Tensor | None
    heads: int
    finish: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @property
    def head_width(self) -> int:
        """d_h."""
        return self.values.shape[-1] // self.heads

    def subset(self, indices: torch.Tensor) -> FrozenLastLayer:
        """The same network on the samples `indices` ((N',) whole numbers, or a slice)."""
        return replace(
            self,
            tokens=self.tokens[indices],
            values=self.values[indices],
            residual=self.residual[indices],
            mask=None if self.mask is None else self.mask[indices],
        )

    def start(self, *, scale: float = 0.02, runs: int = 1, seed: int = 0, run: int = 0) -> QueryKey:
        """Fresh weights: normal with standard deviation `scale`, bias zero, the *same* start for all `runs` (R, ...).

        Drawn from stream(seed, "start", run), float32.
        """
        width, inner = self.tokens.shape[-1], self.values.shape[-1]
        draw = stream(seed, "start", run).standard_normal((2, width, inner))
        weights = torch.from_numpy((scale * draw).astype(np.float32)).to(self.tokens.device)
        query, key = weights.unsqueeze(1).repeat(1, runs, 1, 1)
        return QueryKey(query, torch.zeros(runs, inner, device=query.device), key)

    def scores(self, weights: QueryKey) -> torch.Tensor:
        """Scores of position 0, scaled by 1/sqrt(d_h): (..., N, h, L); -inf where the mask forbids."""
        query = self.tokens[:, 0] @ weights.query + weights.query_bias.unsqueeze(-2)
        query = query.unflatten(-1, (self.heads, self.head_width)) * self.head_width**-0.5
        key = weights.key.unflatten(-1, (self.heads, self.head_width))
        # One vector W_K u per head and sample, (..., N, h, D), against the tokens of that sample for all runs at once.
        direction = torch.einsum("...nhe,...dhe->...nhd", query, key)
        runs = direction.shape[:-3]
        scores = torch.einsum("rnhd,nld->rnhl", direction.reshape(-1, *direction.shape[-3:]), self.tokens)
        scores = scores.reshape(*runs, *scores.shape[1:])
        return scores if self.mask is None else scores.masked_fill(~self.mask.unsqueeze(-2), -torch.inf)

    def attention(self, weights: QueryKey) -> torch.Tensor:
        """Softmax weights of position 0: (..., N, h, L), rows sum to one."""
        return torch.softmax(self.scores(weights), dim=-1)

    def attended(self, attention: torch.Tensor) -> torch.Tensor:
        """Mean of the values under given weights: (..., N, h, L) -> (..., N, h d_h)."""
        values = self.values.unflatten(-1, (self.heads, self.head_width))
        runs = attention.shape[:-3]
        mean = torch.einsum("rnhl,nlhe->rnhe", attention.reshape(-1, *attention.shape[-3:]), values)
        return mean.flatten(-2).reshape(*runs, len(self), -1)

    def logits_of(self, attention: torch.Tensor) -> torch.Tensor:
        """Logits under given attention weights: (..., N, h, L) -> (..., N, classes)."""
        return self.finish(self.attended(attention), self.residual)

    def logits(self, weights: QueryKey) -> torch.Tensor:
        """Logits (..., N, classes) of the network with these query and key weights."""
        if weights.query.ndim != 3 or not (self.tokens[:, 0] == self.tokens[0, 0]).all():
            return self.logits_of(self.attention(weights))
        runs, heads, width = len(weights.query), self.heads, self.head_width  # one query for all samples
        N, L, D = self.tokens.shape
        query = (self.tokens[0, 0] @ weights.query + weights.query_bias).unsqueeze(-1) * width**-0.5
        own = torch.eye(heads, dtype=query.dtype, device=query.device).repeat_interleave(
            width, 0
        )  # a head reads its own part
        direction = (weights.key @ (query * own)).mT.reshape(runs * heads, D)
        scores = (direction @ self.tokens.reshape(N * L, D).T).view(runs * heads, N, L)
        if self.mask is not None:
            scores = scores.masked_fill(~self.mask, -torch.inf)
        attention = torch.softmax(scores, -1).view(runs, heads * N, L).transpose(0, 1)
        values = self.values.unflatten(-1, (heads, width)).permute(2, 0, 1, 3).reshape(heads * N, L, width)
        attended = (attention @ values).view(heads, N, runs, width).permute(2, 1, 0, 3).reshape(runs, N, -1)
        return self.finish(attended, self.residual)


# --- Reach ----------------------------------------------------------------------------------------------------------------


def wrong_labels(labels: torch.Tensor, classes: int, *, seed: int = 0, run: int = 2) -> torch.Tensor:
    """Another class for every label, uniformly: (N,) int64. Randomness: stream(seed, "flips", run)."""
    added = torch.from_numpy(stream(seed, "flips", run).integers(1, classes, len(labels)))
    return (labels + added.to(labels.device)) % classes


def reachable(
    layer: FrozenLastLayer, targets: torch.Tensor, *, steps: int = 150, step_size: float = 0.3
) -> torch.Tensor:
    """Whether free attention gives each sample its target label: (N,) bool.

    Adam from uniform attention on the scores (N, h, L) themselves, cross-entropy to `targets` (N,) int64; a sample counts as
    reached if the target is the largest logit after any step.
    """
    scores = layer.tokens.new_zeros(len(layer), layer.heads, layer.tokens.shape[1], requires_grad=True)
    forbidden = None if layer.mask is None else ~layer.mask.unsqueeze(1)
    optimiser = torch.optim.Adam([scores], lr=step_size, fused=True)
    reached = torch.zeros(len(layer), dtype=torch.bool, device=scores.device)
    for step in range(steps + 1):
        allowed = scores if forbidden is None else scores.masked_fill(forbidden, -torch.inf)
        logits = layer.logits_of(torch.softmax(allowed, -1))
        reached |= logits.detach().argmax(-1) == targets
        if step < steps:
            optimiser.zero_grad()
            functional.cross_entropy(logits, targets, reduction="sum").backward()
            optimiser.step()
    return reached


@torch.no_grad()
def reachable_by_one_token(layer: FrozenLastLayer, targets: torch.Tensor) -> torch.Tensor:
    """Whether some single position, attended to by every head with weight one, gives the target label: (N,) bool."""
    reached = torch.zeros(len(layer), dtype=torch.bool)
    for position in range(layer.tokens.shape[1]):
        hit = layer.finish(layer.values[:, position], layer.residual).argmax(-1) == targets
        reached |= hit if layer.mask is None else hit & layer.mask[:, position]
    return reached


def free_heads(layer: FrozenLastLayer, attention: torch.Tensor, free: int) -> FrozenLastLayer:
    """The same network with only the first `free` heads left to choose; the others keep the given attention.

    attention: (N, h, L), weights of the heads that are held. What the held heads contribute does not change any more, so it
    travels with the residual.
    """
    inner = free * layer.head_width
    held = layer.attended(attention)[:, inner:]
    width = layer.residual.shape[-1]

    def finish(attended: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        residual, kept = residual[..., :width], residual[..., width:]
        return layer.finish(torch.cat([attended, kept.expand(*attended.shape[:-1], -1)], -1), residual)

    return replace(
        layer,
        values=layer.values[..., :inner],
        residual=torch.cat([layer.residual, held], -1),
        heads=free,
        finish=finish,
    )
