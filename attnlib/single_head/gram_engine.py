r"""Training in the span of the data: every vector is a combination of the signals, the noise tokens and the start vectors.

With the Gram matrix $G$ of that basis, a vector of coefficients $c$ has the scores $Gc$ with all basis vectors, and a gradient is a vector
of coefficients again: a token's weight in it. So one step costs one product of $G$ with all heads' coefficients. Two tokens per sample.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from attnlib.single_head.maps import AttentionMap
from attnlib.single_head.model import Forward, output_gradients, pulls
from attnlib.single_head.rules import Rule

__all__ = ["Recorded", "advance"]


@dataclass(frozen=True)
class Recorded:
    """At the recorded steps S: coefficients (S, R, Hv + H, q), output (S, R, n), weight on the signal (S, R, H, n)."""

    coefficients: torch.Tensor
    output: torch.Tensor
    attention: torch.Tensor


def advance(
    gram: torch.Tensor, coefficients: torch.Tensor, labels: torch.Tensor, classes: torch.Tensor, *, heads: int, signals: int,
    attention_map: AttentionMap, rule: Rule, value_step: torch.Tensor, attention_step: torch.Tensor, factors: torch.Tensor,
    output_scale: float, orders: torch.Tensor | None, record: Collection[int],
) -> Recorded:  # fmt: skip
    """Make `len(factors)` steps in every run.

    Args:
        gram: (R, q, q): `signals` signals, n noise tokens, then any other vectors.
        coefficients: (R, Hv + H, q), the v_h and then the p_h.
        labels, classes: (R, n), +-1 as floats and the number of each sample's signal.
        value_step, attention_step: (R,), not divided by n. factors: (steps,), on both.
        orders: (R, steps, B), the batches of a mini-batch rule.
        record: steps to keep.
    """
    n = labels.shape[1]
    values = coefficients.shape[1] - heads
    sizes = torch.cat(
        [value_step.view(-1, 1, 1).expand(-1, values, 1), attention_step.view(-1, 1, 1).expand(-1, heads, 1)], 1
    )
    held = torch.nn.functional.one_hot(classes, signals).to(gram.dtype)  # (R, n, K)
    own = classes.unsqueeze(1)
    optimiser = rule.optimiser([coefficients])
    kept, rows = set(record), []
    for step in range(len(factors) + 1):
        scores = torch.matmul(coefficients, gram)  # (R, Hv + H, q)
        on_signal = scores.gather(2, own.expand(-1, scores.shape[1], -1))
        pairs = torch.stack([on_signal, scores[:, :, signals : signals + n]], dim=-1)  # (R, Hv + H, n, 2)
        out = _forward(pairs[:, :values], pairs[:, values:], attention_map, output_scale)
        if step in kept:
            rows.append((coefficients.clone(), out.output, out.attention[..., 0]))
        if step == len(factors):
            break
        pull = pulls(out.output, labels)
        if orders is not None:
            pull = pull * torch.zeros_like(pull).scatter_(1, orders[:, step], n / rule.batch)
        weights = torch.cat(output_gradients(pull, out, attention_map, output_scale), dim=1)  # (R, Hv + H, n, 2)
        gradient = torch.zeros_like(coefficients)
        torch.matmul(weights[..., 0], held, out=gradient[:, :, :signals])
        gradient[:, :, signals : signals + n] = weights[..., 1]
        if rule.prepare:
            gradient = gradient / _lengths(gradient, gram, rule, values)
        gradient = sizes * gradient
        factor = factors[step].item()
        if optimiser is None:
            coefficients = coefficients - factor * gradient
            continue
        coefficients.grad = gradient
        optimiser.param_groups[0]["lr"] = factor
        optimiser.step()
    return Recorded(*(torch.stack(part) for part in zip(*rows, strict=True)))


def _forward(values: torch.Tensor, logits: torch.Tensor, attention_map: AttentionMap, output_scale: float) -> Forward:
    attention = attention_map.weights(logits)
    return Forward(logits, attention, values, output_scale * (attention * values).sum((1, -1)))


def _lengths(gradient: torch.Tensor, gram: torch.Tensor, rule: Rule, values: int) -> torch.Tensor:
    """Length of the gradient in the metric of the vectors, per run or per block: (R, Hv + H, 1), 1 where it vanishes."""
    squares = (gradient * torch.matmul(gradient, gram)).sum(-1, keepdim=True).clamp_min(0)
    if rule.prepare == "joint":
        squares = squares.sum(1, keepdim=True).expand_as(squares)
    else:
        blocks = [part.sum(1, keepdim=True).expand_as(part) for part in (squares[:, :values], squares[:, values:])]
        squares = torch.cat(blocks, dim=1)
    return torch.where(squares > 0, squares.sqrt(), 1.0)
