"""Reach: which labels could be produced at all if every head chose its attention freely, sample by sample.

Whatever query and key are trained, their attention is one of the free ones: reach is measured before phase 2 and
bounds what phase 2 can memorise (up to the optimiser's failures, which make the measured reach too small, never too large).
"""

from dataclasses import replace

import torch
from torch.nn import functional

from attnbook.token_selection.real_data.frozen import FrozenLastLayer
from attnbook.token_selection.real_data.vit import check_labels
from attnlib import checks
from attnlib.randomness import stream


def wrong_labels(labels: torch.Tensor, classes: int, *, seed: int = 0, run: int = 2) -> torch.Tensor:
    """Another class for every label, uniformly: (N,) int64. Randomness: stream(seed, "flips", run)."""
    check_labels("labels", labels, len(labels), classes)
    added = torch.from_numpy(stream(seed, "flips", run).integers(1, classes, len(labels)))
    return (labels + added.to(labels.device)) % classes


def reachable(
    layer: FrozenLastLayer, targets: torch.Tensor, *, steps: int = 150, step_size: float = 0.3
) -> torch.Tensor:
    """Whether free attention gives each sample its target label: (N,) bool.

    Adam from uniform attention on the scores (N, h, L) themselves, cross-entropy to `targets` (N,) int64; a sample counts as
    reached if the target is the largest logit after any step.
    """
    checks.whole_number("steps", steps, at_least=1)
    checks.positive_number("step_size", step_size)
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
    travels with the residual. Raises ValueError when `free` is not in 1..h or the attention has another shape.
    """
    checks.whole_number("free", free, at_least=1)
    if free > layer.heads:
        raise ValueError(f"free must be at most the number of heads, {layer.heads}; got {free}")
    checks.tensor("attention", attention, (len(layer), layer.heads, layer.tokens.shape[1]), like=layer.tokens)
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
