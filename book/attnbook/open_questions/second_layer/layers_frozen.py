r"""Long training of the second layer while the first one rests at W = 0: many runs and architectures at once, in Gram space.

The second layer reads $Y_u = au + b\xi$ and $Y_\xi = cu + e\xi$: four numbers per architecture. Iterates lie in the span of signals
and noise tokens, so a step is one product of the n x n Gram matrix of the noise with two columns per architecture. Fast twin of
`layers.train_layers` with W frozen; equality is a test.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from attnbook.open_questions.second_layer.layers import Architecture, signal_first
from attnlib import checks
from attnlib.single_head.law import Sample


@dataclass(frozen=True)
class FrozenTrajectory:
    """One tensor per pair: all samples with the first architecture, then with the second, ... The recorded steps S on axis 0."""

    steps: tuple[int, ...]
    v: list[torch.Tensor]  # (S, R, m)
    p: list[torch.Tensor]  # (S, R, m)
    margins: list[torch.Tensor]  # (S, R, n)
    weight: list[torch.Tensor]  # (S, R, n), of the second layer on Y_u


def train_frozen(
    architectures: Sequence[Architecture], samples: Sequence[Sample], step_size: float, steps: int, *,
    record: Sequence[int],
) -> FrozenTrajectory:  # fmt: skip
    """Gradient descent on v and p from zero, every architecture on every sample (of one n). Raises ValueError for a bad argument."""
    beta = checks.positive_number("step_size", step_size)
    steps = checks.whole_number("steps", steps, at_least=0)
    if not architectures:
        raise ValueError("architectures must be one or more; got none")
    if not samples or len({sample.law.n for sample in samples}) != 1:
        raise ValueError("samples must be one or more of one n; got others")
    kept = checks.recorded_steps(record, steps)
    noise = [signal_first(sample)[:, :, 1] for sample in samples]
    n, count = samples[0].law.n, len(architectures)
    gram = torch.cat([x @ x.mT for x in noise])  # (R, n, n)
    signals = torch.cat([s.signals @ s.signals.mT for s in samples])  # (R, 2, 2)
    labels = torch.cat([s.labels for s in samples]).unsqueeze(1)  # (R, 1, n)
    members = torch.cat([torch.stack([s.signal_class == 0, s.signal_class == 1], 1) for s in samples]).to(gram)
    holders = members.mT.contiguous()
    mixing = gram.new_tensor([a.start for a in architectures])
    a, b, c, e = (mixing[:, i, j].unsqueeze(-1) for i in (0, 1) for j in (0, 1))  # (A, 1)
    # Rows: v of every architecture, then p of every architecture. One Gram matrix serves them all.
    on_signals, on_noise = gram.new_zeros(len(gram), 2 * count, 2), gram.new_zeros(len(gram), 2 * count, n)
    rows = []
    for step in range(steps + 1):
        at_signal, at_noise = (on_signals @ signals) @ members, on_noise @ gram
        value_signal, value_noise = at_signal[:, :count], at_noise[:, :count]
        # Differences of the two tokens: in logit, so the weight on Y_u, and in value.
        weight = torch.sigmoid((a - c) * at_signal[:, count:] - (e - b) * at_noise[:, count:])
        gap = (a - c) * value_signal - (e - b) * value_noise
        of_signal, of_noise = c + weight * (a - c), e + weight * (b - e)
        margin = labels * (of_signal * value_signal + of_noise * value_noise)
        if step in kept:
            rows.append((on_signals, on_noise, margin, weight))
        if step < steps:
            pull = beta / n * labels * torch.sigmoid(-margin)
            turn = pull * weight * (1 - weight) * gap
            on_signals = on_signals + torch.cat([pull * of_signal, turn * (a - c)], 1) @ holders
            on_noise = on_noise + torch.cat([pull * of_noise, -turn * (e - b)], 1)
    sizes = [sample.runs for sample in samples]
    own, other, margins, weights = (torch.stack(part).split(sizes, dim=1) for part in zip(*rows, strict=True))
    vectors = [on @ s.signals + off @ x for on, off, s, x in zip(own, other, samples, noise, strict=True)]
    pairs = [(i, j) for i in range(count) for j in range(len(samples))]
    return FrozenTrajectory(
        tuple(kept),
        [vectors[j][:, :, i] for i, j in pairs],
        [vectors[j][:, :, count + i] for i, j in pairs],
        [margins[j][:, :, i] for i, j in pairs],
        [weights[j][:, :, i] for i, j in pairs],
    )
