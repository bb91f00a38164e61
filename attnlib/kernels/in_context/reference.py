"""Training of in-context regression, readable: the definition that the compiled loop is tested against.

One layer of multi-head softmax attention reads prompts z_1, ..., z_L, z_q with z_i = (x_i, y_i) and z_q = (x_q, 0), and
predicts yhat = sum_h W_O^h W_V^h sum_i z_i p_i^h, p^h = softmax over i of z_i^T M^h z_q, M^h = W_K^T W_Q / sqrt(n).
Each step draws a fresh batch from the counter-based stream, and minimises the batch mean of (yhat - target)^2.

The gradient is taken through the merged circuits M and V = W_O W_V (derived in the theory chapter of Part III). With
A = sum_i p_i z_i, C = sum_i p_i (V z_i - V A) z_i and g = 2 (yhat - target) / B, summed over the batch,
    dV = g A,   dM = g C z_q^T,   dW_K = W_Q dM^T / sqrt(n),   dW_Q = W_K dM / sqrt(n),   dW_V = W_O^T dV,   dW_O = W_V dV.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from attnlib.kernels import prompt_stream
from attnlib.kernels.in_context import Call, factors, merge

_NORMALS_AT_ONCE = 2_000_000  # 16 MB


def prompts(
    call: Call, first_step: int, steps: int, streams: NDArray[np.uint32]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Context (S, steps, B, L, n), query (S, steps, B, d) and target (S, steps, B) of some steps, float64 on the CPU."""
    count = prompt_stream.normals_per_prompt(call.d, call.length)
    raw = prompt_stream.normals(call.seed, streams, first_step, steps, call.batch, count)
    beta, query, target_noise, x, label_noise = prompt_stream.split(raw, call.d)
    beta = call.beta_std * beta
    # y_i = <x_i, beta> + noise, target = <x_q, beta> + noise; the query's own y is 0 and is not stored.
    y = (x @ beta[..., None])[..., 0] + call.noise_std * label_noise
    target = (query * beta).sum(-1) + call.target_noise_std * target_noise
    context = np.concatenate((x, y[..., None]), axis=-1)
    return torch.from_numpy(context), torch.from_numpy(query), torch.from_numpy(target)


def gradient(
    weights: torch.Tensor, context: torch.Tensor, query: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss (R,) and gradient (R, H, 3 n^2 + n) of one batch.

    Args:
        weights: (R, H, 3 n^2 + n).
        context: (R or 1, B, L, n); an axis of length 1 is shared by all runs.
        query: (R or 1, B, d).
        target: (R or 1, B).
    """
    n, batch = context.shape[-1], context.shape[-3]
    w_query, w_key, w_value, w_output = factors(weights, n)
    key_query, output_value = merge(w_query, w_key, w_value, w_output)
    # Scores z_i' M z_q: M z_q first, (R, B, H, n), as the last entry of z_q is 0.
    slope = torch.einsum("rhik,rbk->rbhi", key_query[..., : n - 1], query.expand(len(weights), -1, -1))
    attention = torch.softmax(slope.contiguous() @ context.mT, -1)  # (R, B, H, L)
    # A = sum_i p_i z_i, and yhat = sum_h V_h . A_h.
    mean = attention @ context  # A, (R, B, H, n)
    heads = (mean * output_value[:, None]).sum(-1)
    error = heads.sum(-1) - target
    # g = dL/dyhat of each prompt.
    slope_error = (2.0 / batch) * error
    # C = sum_i p_i (V z_i - V A) z_i: the derivative of V A in M z_q.
    centred = output_value[:, None] @ context.mT - heads[..., None]
    covariance = (attention * centred) @ context  # C
    d_output_value = torch.einsum("rb,rbhn->rhn", slope_error, mean)
    weighted = (query * slope_error[..., None]).expand(len(weights), -1, -1)
    d_key_query = torch.zeros_like(key_query)  # the query's last entry is 0, so M's last column has no gradient
    d_key_query[..., : n - 1] = torch.einsum("rbhi,rbk->rhik", covariance, weighted) / math.sqrt(n)
    # Chain rule through M = W_K' W_Q / sqrt(n) and V = W_O W_V.
    out = torch.empty_like(weights)
    d_query, d_key, d_value, d_output = factors(out, n)
    d_query.copy_(w_key @ d_key_query)
    d_key.copy_(w_query @ d_key_query.mT)
    d_value.copy_(w_output[..., :, None] * d_output_value[..., None, :])
    d_output.copy_((w_value @ d_output_value[..., None])[..., 0])
    return error.square().mean(-1), out


def _update(
    call: Call,
    rate: torch.Tensor,
    weights: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    slope: torch.Tensor,
    count: int,
) -> None:
    """One step of SGD, Adam or AdamW in place, with the arithmetic of torch.optim; `count` = updates including this one."""
    if call.optimiser == "AdamW":
        weights *= 1.0 - rate * call.weight_decay
    elif call.weight_decay:
        slope = slope + call.weight_decay * weights
    if call.optimiser == "SGD":
        weights -= rate * slope
        return
    # m <- m + (1 - b1)(g - m), v <- b2 v + (1 - b2) g^2, w <- w - rate (m/(1 - b1^t)) / (sqrt(v/(1 - b2^t)) + eps)
    b1, b2 = call.betas
    first += (1.0 - b1) * (slope - first)
    second *= b2
    second += (1.0 - b2) * slope * slope
    size = torch.sqrt(second) / math.sqrt(1.0 - b2**count) + call.eps
    weights -= rate / (1.0 - b1**count) * first / size


def advance(call: Call, weights: torch.Tensor, first_moment: torch.Tensor, second_moment: torch.Tensor) -> torch.Tensor:
    """Train as `attnlib.kernels.in_context.advance` says, in the dtype and on the device of the weights.

    Prompts are made on the CPU in float64, then rounded and moved.
    """
    losses = weights.new_empty(len(weights), call.steps)
    rate = torch.as_tensor(call.learning_rate, dtype=weights.dtype, device=weights.device)[:, None, None]
    sources = call.streams[:1] if call.shared else call.streams
    per_step = len(sources) * call.batch * prompt_stream.normals_per_prompt(call.d, call.length)
    chunk = max(1, _NORMALS_AT_ONCE // per_step)
    for start in range(0, call.steps, chunk):
        length_here = min(chunk, call.steps - start)
        data = [part.to(weights) for part in prompts(call, call.first_step + start, length_here, sources)]
        for i in range(length_here):
            losses[:, start + i], slope = gradient(weights, *(part[:, i] for part in data))
            _update(call, rate, weights, first_moment, second_moment, slope, call.first_step + start + i + 1)
    return losses
