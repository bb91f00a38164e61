r"""Long training of the second layer while the first one rests at W = 0: many runs and architectures at once, in Gram space.

The second layer reads $Y_u = au + b\xi$ and $Y_\xi = cu + e\xi$: four numbers per run. Iterates lie in the span of signals and
noise tokens, so a step is one product of the n x n Gram matrix of the noise with two columns. Fast twin of `layers.train_layers`
with W frozen; equality is a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from attnbook.open_questions.more_classes_and_layers.layers import Architecture, signal_first
from attnlib import checks
from attnlib.single_head.law import Sample

__all__ = ["FrozenTrajectory", "train_frozen"]


@dataclass(frozen=True)
class FrozenTrajectory:
    """One tensor per pair (architecture, sample), in their order: the recorded steps S on axis 0."""

    steps: tuple[int, ...]
    v: list[torch.Tensor]  # (S, R, m)
    p: list[torch.Tensor]  # (S, R, m)
    margins: list[torch.Tensor]  # (S, R, n)
    weight: list[torch.Tensor]  # (S, R, n), of the second layer on Y_u


def train_frozen(
    jobs: Sequence[tuple[Architecture, Sample]], step_size: float, steps: int, *, record: Sequence[int]
) -> FrozenTrajectory:
    """Gradient descent on v and p from zero for pairs (architecture, sample) of one n. Raises ValueError for a bad argument."""
    beta = checks.positive_number("step_size", step_size)
    steps = checks.whole_number("steps", steps, at_least=0)
    if not jobs or len({sample.law.n for _, sample in jobs}) != 1:
        raise ValueError("jobs must be one or more (architecture, sample) pairs of one n; got others")
    kept = checks.recorded_steps(record, steps)
    tokens = [signal_first(sample) for _, sample in jobs]
    n, sizes = jobs[0][1].law.n, [sample.runs for _, sample in jobs]
    gram = torch.cat([t[:, :, 1] @ t[:, :, 1].mT for t in tokens])
    signals = torch.cat([s.signals @ s.signals.mT for _, s in jobs])  # (R, 2, 2)
    labels = torch.cat([s.labels for _, s in jobs]).unsqueeze(-1)
    members = torch.cat([torch.stack([s.signal_class == 0, s.signal_class == 1], 1) for _, s in jobs]).to(gram)
    holders = members.mT.contiguous()
    mixing = torch.cat([gram.new_tensor(a.start).expand(s.runs, 2, 2) for a, s in jobs])
    a, b, c, e = (mixing[:, i, j].view(-1, 1, 1) for i in (0, 1) for j in (0, 1))
    # Columns: v, p.
    on_signals, on_noise = gram.new_zeros(len(gram), 2, 2), gram.new_zeros(len(gram), n, 2)
    rows = []
    for step in range(steps + 1):
        at_signal, at_noise = holders @ (signals @ on_signals), gram @ on_noise
        gap = (a - c) * at_signal - (e - b) * at_noise  # of the two tokens: values, logits
        weight = torch.sigmoid(gap[..., 1:])
        of_signal, of_noise = c + weight * (a - c), e + weight * (b - e)
        margin = labels * (of_signal * at_signal[..., :1] + of_noise * at_noise[..., :1])
        if step in kept:
            rows.append((on_signals, on_noise, margin[..., 0], weight[..., 0]))
        if step < steps:
            pull = beta / n * labels * torch.sigmoid(-margin)
            turn = pull * weight * (1 - weight) * gap[..., :1]
            on_signals = on_signals + members @ torch.cat([pull * of_signal, turn * (a - c)], -1)
            on_noise = on_noise + torch.cat([pull * of_noise, -turn * (e - b)], -1)
    parts = [torch.stack(part).split(sizes, dim=1) for part in zip(*rows, strict=True)]
    vectors = [
        torch.einsum("srkc,rkm->csrm", own, s.signals) + torch.einsum("srnc,rnm->csrm", noise, t[:, :, 1])
        for own, noise, (_, s), t in zip(parts[0], parts[1], jobs, tokens, strict=True)
    ]
    return FrozenTrajectory(
        tuple(kept), [x[0] for x in vectors], [x[1] for x in vectors], list(parts[2]), list(parts[3])
    )
