"""The single head's training loop as one reads it: two batched products and a few lines a step, on any device."""

from __future__ import annotations

import torch

from attnlib.kernels.single_head.arguments import Call, Recorded

__all__ = ["advance"]


@torch.no_grad()
def advance(
    call: Call, gram: torch.Tensor, coefficients: torch.Tensor, labels: torch.Tensor, classes: torch.Tensor
) -> Recorded:
    """See `attnlib.kernels.single_head.advance`."""
    n, marks = call.n, set(call.record)
    seen = Recorded.blank(call, coefficients)
    of_class = torch.stack([classes == 0, classes == 1], dim=1).to(gram)  # (R, 2, n)
    value_rate, attention_rate = call.rates[:, :1], call.rates[:, 1:]
    place = 0
    for step in range(call.steps + 1):
        if step == call.steps and step not in marks:
            break
        scores = gram @ coefficients
        at_signal, at_noise = of_class.mT @ scores[:, :2], scores[:, 2 : 2 + n]  # (R, n, 2)
        value_gap, score_gap = (at_signal - at_noise).unbind(-1)
        on_signal, on_noise = torch.sigmoid(score_gap), torch.sigmoid(-score_gap)
        output = at_noise[..., 0] + on_signal * value_gap
        if step in marks:
            seen.coefficients[:, place], seen.output[:, place], seen.attention[:, place] = (
                coefficients,
                output,
                on_signal,
            )
            place += 1
        if step == call.steps:
            break
        pull = labels * torch.sigmoid(-labels * output)  # -n dL/df
        turn = attention_rate * pull * on_signal * on_noise * value_gap
        coefficients[:, :2] += of_class @ torch.stack([value_rate * pull * on_signal, turn], dim=-1)
        coefficients[:, 2 : 2 + n] += torch.stack([value_rate * pull * on_noise, -turn], dim=-1)
    return seen
