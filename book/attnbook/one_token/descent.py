r"""Heads trained by gradient descent on finitely many samples, with flipped labels: many strengths and kinds of weights at once.

Tokens have $d$ coordinates, of which the first is along $k^*$ and the second along $v^*$. A head has $f=\sum_iw_i\,v\cdot x_i$ with the
scores $\chi_i=k\cdot x_i$ and the weights

    softmax   w = softmax(chi)      sigmoid   w_i = sigmoid(chi_i + b)      linear   w_i = chi_i + b

The strength only moves one score and one value, so heads of all strengths share the Gaussian part of the tokens: one product with it per
step serves all. Start: $k=v=0$, and a bias that makes all weights $1/L$. Gradients are written out; a test compares them with autograd.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnlib.randomness import stream

KINDS = ("softmax", "sigmoid", "linear")
TEST = 1000  # fresh samples for each training set


@dataclass(frozen=True)
class Trained:
    """Clean risk at the best rescaling of the output, 1 - corr(f, y)^2 on fresh samples; 1 where linear weights have overflowed."""

    risks: torch.Tensor  # (R, noise levels, kinds, strengths, steps recorded)
    record: tuple[int, ...]

    def at(self, step: int) -> torch.Tensor:
        """(R, noise levels, kinds, strengths) at a recorded step."""
        return self.risks[..., self.record.index(step)]

    def best(self) -> torch.Tensor:
        """(R, noise levels, kinds, strengths), the smallest risk over the recorded steps of each training."""
        return self.risks.min(-1).values


def step_size(strength, kind, rate):
    """The step size of a head: smaller for strong signals, and an eighth for linear weights, which diverge at larger ones."""
    return rate / (1 + strength / 5) / (8 if kind == "linear" else 1)


def train(seed, *, samples, coordinates, tokens, strengths, noise, draws, record, rate=0.2) -> Trained:
    """Train all kinds of heads on R training sets."""
    runs = range(draws)
    shape = (samples, tokens, coordinates)
    x = torch.as_tensor(np.stack([stream(seed, "noise", run).standard_normal(shape) for run in runs]))
    chance = torch.as_tensor(np.stack([stream(seed, "flips", run).random(samples) for run in runs]))
    fresh = torch.as_tensor(np.stack([stream(seed, "test", run).standard_normal((TEST, tokens, 4)) for run in runs]))
    heads = [(eta, kind, nu) for kind in KINDS for eta in noise for nu in strengths]  # one kind is one slice
    signs = torch.stack([1 - 2.0 * (chance < eta) for eta, _, _ in heads], 1)
    root = torch.tensor([math.sqrt(nu) for _, _, nu in heads], dtype=x.dtype)
    rates = torch.tensor([step_size(nu, kind, rate) for _, kind, nu in heads], dtype=x.dtype)
    labels = signs * x[:, None, :, 0, 1]  # (R, heads, n); the hidden token stands first: no head looks at the order
    # Samples last: then every sum over tokens, and every kind of head, is a run of whole rows.
    x, fresh = (part.permute(0, 3, 2, 1).contiguous() for part in (x, fresh))  # (R, d, L, n)
    k, v = (x.new_zeros((draws, len(heads), coordinates)) for _ in range(2))
    start = {"softmax": 0.0, "sigmoid": -math.log(tokens - 1), "linear": 1 / tokens}
    bias = torch.tensor([start[kind] for _, kind, _ in heads], dtype=x.dtype).repeat(draws, 1)
    kept = []
    for step in range(max(record) + 1):
        if step in record:
            kept.append(_clean_risk(k, v, bias, root, fresh))
        if step < max(record):
            of_k, of_v, of_bias = _gradients(x, labels, k, v, bias, root)
            k, v, bias = k - rates[:, None] * of_k, v - rates[:, None] * of_v, bias - rates * of_bias
    risks = torch.stack(kept, -1)
    linear = torch.tensor([kind == "linear" for _, kind, _ in heads])[:, None]
    risks = (
        risks.masked_fill(linear & risks.isnan(), 1.0)
        .reshape(draws, len(KINDS), len(noise), len(strengths), len(kept))
        .transpose(1, 2)
    )
    return Trained(risks, tuple(sorted(record)))


def _weights(scores, bias):
    """(R, heads, L, n): weights of heads that are ordered by kind, thirds of the second axis."""
    soft, sigmoid, linear = scores.chunk(len(KINDS), 1)
    _, of_sigmoid, of_linear = bias[:, :, None, None].chunk(len(KINDS), 1)
    return torch.cat([soft.softmax(2), torch.sigmoid(sigmoid + of_sigmoid), linear + of_linear], 1)


def _gradients(x, labels, k, v, bias, root):
    """Gradients of the mean squared error in k, v and the bias, (R, heads, d) twice and (R, heads)."""
    draws, heads, samples = labels.shape
    tokens, flat = x.shape[2], x.flatten(2)
    product = (torch.cat([k, v], 1) @ flat).reshape(draws, 2 * heads, tokens, samples)
    scores, values = product[:, :heads], product[:, heads:]
    scores[:, :, 0] += (root * k[..., 0])[..., None]
    values[:, :, 0] += (root * v[..., 0])[..., None]
    weights = _weights(scores, bias)
    output = (weights * values).sum(2, keepdim=True)
    residual = (2 / samples) * (output - labels[:, :, None])
    third = heads // len(KINDS)
    values[:, :third] -= output[:, :third]  # the softmax slope in matrix form
    slopes = weights.clone()
    slopes[:, third : 2 * third] *= 1 - weights[:, third : 2 * third]
    slopes[:, 2 * third :] = 1.0
    to_score, to_value = residual * slopes * values, residual * weights
    back = torch.cat([to_score, to_value], 1).flatten(2) @ flat.mT
    of_k, of_v = back[:, :heads], back[:, heads:]
    of_k[..., 0] += root * to_score[:, :, 0].sum(-1)
    of_v[..., 0] += root * to_value[:, :, 0].sum(-1)
    of_bias = to_score.sum((2, 3))
    of_bias[:, :third] = 0.0
    return of_k, of_v, of_bias


def _clean_risk(k, v, bias, root, fresh):
    """(R, heads): 1 - corr^2 on fresh samples, drawn in four numbers per token: along k*, v*, and the rests of k and v."""
    rest_k, rest_v = k[..., 2:], v[..., 2:]
    norm = rest_k.norm(dim=-1).clamp_min(1e-300)
    along = (rest_k * rest_v).sum(-1) / norm
    across = (rest_v.square().sum(-1) - along**2).clamp_min(0.0).sqrt()
    rows = (
        torch.stack([k[..., 0], k[..., 1], norm, torch.zeros_like(norm)], -1),
        torch.stack([v[..., 0], v[..., 1], along, across], -1),
    )
    scores, values = ((row @ fresh.flatten(2)).unflatten(2, fresh.shape[2:]) for row in rows)
    scores[:, :, 0] += (root * k[..., 0])[..., None]
    values[:, :, 0] += (root * v[..., 0])[..., None]
    output = (_weights(scores, bias) * values).sum(2)
    target = fresh[:, None, 1, 0]  # (R, 1, TEST)
    return 1 - (output * target).sum(-1) ** 2 / (output.square().sum(-1) * target.square().sum(-1)).clamp_min(1e-300)
