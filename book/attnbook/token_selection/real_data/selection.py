"""Phase 2: nested label flips, and Adam on the query and key of the last layer for all runs at once."""

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch.nn import functional

from attnbook.token_selection.real_data.frozen import FrozenLastLayer, QueryKey
from attnbook.token_selection.real_data.vit import check_labels
from attnlib import checks
from attnlib.randomness import stream

Observed = TypeVar("Observed")


def check_noise_levels(noise_levels: Sequence[float], n: int) -> tuple[float, ...]:
    """The levels as floats. Raises ValueError unless they rise from 0 (the baseline), stay at most 1, and each flips a label."""
    levels = tuple(checks.probability("noise_levels", level) for level in noise_levels)
    if not levels or levels[0] != 0 or any(a >= b for a, b in itertools.pairwise(levels)):
        raise ValueError(f"noise_levels must rise from 0, the clean-label baseline; got {levels}")
    flips = [round(level * n) for level in levels]
    if any(a == b for a, b in itertools.pairwise(flips)):
        raise ValueError(
            f"noise_levels must each flip more of the n = {n} labels than the one before; got {levels}, which flip {flips}: "
            "raise n or spread the levels"
        )
    return levels


def nested_flips(
    labels: torch.Tensor, classes: int, noise_levels: Sequence[float], *, seed: int = 0, run: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels with exactly round(eta n) of them changed to another class, uniformly; a smaller eta flips a subset.

    labels: (n,) int64. Returns (labels (E, n), flipped (E, n) bool), one row per level. Randomness: stream(seed, "flips", run).
    """
    n = len(labels)
    check_labels("labels", labels, n, classes)
    levels = check_noise_levels(noise_levels, n)
    draws = stream(seed, "flips", run)
    order = torch.from_numpy(draws.permutation(n))
    other = (labels + torch.from_numpy(draws.integers(1, classes, n)).to(labels.device)) % classes
    rank = torch.empty_like(order)
    rank[order] = torch.arange(n)
    flipped = torch.stack([rank < round(level * n) for level in levels])
    flipped = flipped.to(labels.device)
    return torch.where(flipped, other, labels), flipped


def step_sizes(steps: int, step_size: float, warmup: int, final_fraction: float) -> list[float]:
    """Step sizes 1..steps: linear from step_size / warmup to `step_size`, then linear to `final_fraction` of it at the end."""
    rise = [step_size * (i + 1) / warmup for i in range(min(warmup, steps))]
    left = steps - len(rise)
    fall = np.linspace(1.0, final_fraction, left + 1)[1:] * step_size
    return rise + fall.tolist()


def train_selection(
    layer: FrozenLastLayer,
    labels: torch.Tensor,
    start: QueryKey,
    *,
    steps: int = 600,
    step_size: float = 5e-3,
    batch: int | None = None,
    warmup: int = 20,
    final_fraction: float = 0.1,
    drop_last: bool = True,
    seed: int = 0,
    run: int = 1,
    recorded: Sequence[int] = (),
    observe: Callable[[QueryKey], Observed] | None = None,
) -> tuple[QueryKey, list[Observed]]:
    """Adam (no weight decay) on query weight, query bias and key weight; every run has its own labels, loss and state.

    layer: n training samples. labels: (R, n) int64. start: (R, ...) weights, left untouched. batch: minibatch size, drawn in
    epochs in the order of stream(seed, "batches", run), the same for every run; None is full batch. drop_last: an epoch leaves out
    the samples that fill no batch; False makes a smaller one of them. `observe(weights)` is
    called without gradients after the steps named in `recorded` (0 is the start); its answers come back in order.

    Returns (trained weights (R, ...), observations). Raises ValueError for sizes that do not fit.
    """
    checks.whole_number("steps", steps, at_least=1)
    checks.positive_number("step_size", step_size)
    checks.whole_number("warmup", warmup, at_least=0)
    checks.probability("final_fraction", final_fraction)
    n = len(layer)
    if labels.shape != (start.query.shape[0], n):
        raise ValueError(
            f"labels must have shape ({start.query.shape[0]}, {n}), runs x samples; got {tuple(labels.shape)}"
        )
    if batch is not None:
        checks.whole_number("batch", batch, at_least=1)
    weights = QueryKey(*(tensor.detach().clone().requires_grad_() for tensor in start.tensors()))
    optimiser = torch.optim.Adam(weights.tensors(), lr=step_size, fused=True)
    watched, seen = set(recorded), []

    def watch(step: int) -> None:
        if observe is not None and step in watched:
            with torch.no_grad():
                seen.append(observe(weights))

    orders = stream(seed, "batches", run)
    queue: list[torch.Tensor] = []
    watch(0)
    for step, size in enumerate(step_sizes(steps, step_size, warmup, final_fraction), start=1):
        part, wanted = layer, labels
        if batch is not None and batch < n:
            if not queue:
                queue = list(torch.from_numpy(orders.permutation(n))[: n - n % batch if drop_last else n].split(batch))
            chosen = queue.pop(0)
            part, wanted = layer.subset(chosen), labels[:, chosen]
        logits = part.logits(weights)
        # The sum over runs of each run's mean: no run feels another.
        loss = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / wanted.shape[1]
        for group in optimiser.param_groups:
            group["lr"] = size
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        watch(step)
    return QueryKey(*(tensor.detach() for tensor in weights.tensors())), seen
