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
from collections.abc import Iterable, Sequence

import numpy as np

from attnlib.kernels import prompt_stream
from attnlib.kernels.arguments import Call, Recorded, check, circuits, factors

__all__ = ["advance", "gradient", "prompts"]

_NORMALS_AT_ONCE = 2_000_000  # 16 MB


def prompts(call: Call, first_step: int, steps: int, streams: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Context (S, steps, B, L, n), query (S, steps, B, d) and target (S, steps, B) of some steps, float64."""
    place = prompt_stream.layout(call.d, call.length)
    raw = prompt_stream.normals(call.seed, streams, first_step, steps, call.batch, place.count)
    beta, query, x = call.beta_std * raw[..., place.beta], raw[..., place.query], raw[..., place.x]
    y = (x @ beta[..., None])[..., 0] + call.noise_std * raw[..., place.label_noise]
    target = (query * beta).sum(-1) + call.target_noise_std * raw[..., place.target_noise]
    return np.concatenate((x, y[..., None]), axis=-1), query, target


def gradient(
    weights: np.ndarray, context: np.ndarray, query: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Loss (R,) and gradient (R, H, 3 n^2 + n) of one batch.

    Args:
        weights: (R, H, 3 n^2 + n).
        context: (R or 1, B, L, n); an axis of length 1 is shared by all replicas.
        query: (R or 1, B, d).
        target: (R or 1, B).
    """
    n, batch = context.shape[-1], context.shape[-3]
    key_query, output_value = circuits(weights, n)
    slope = np.moveaxis(key_query[..., : n - 1] @ query.swapaxes(-1, -2)[:, None], -1, 1)  # (R, B, H, n)
    scores = slope @ context.swapaxes(-1, -2)  # (R, B, H, L)
    scores -= scores.max(-1, keepdims=True)
    attention = np.exp(scores, out=scores)
    attention /= attention.sum(-1, keepdims=True)
    values = output_value[:, None] @ context.swapaxes(-1, -2)
    mean = attention @ context  # A, (R, B, H, n)
    heads = (mean * output_value[:, None]).sum(-1)
    error = heads.sum(-1) - target
    slope_error = (2.0 / batch) * error
    values -= heads[..., None]
    values *= attention
    covariance = values @ context  # C
    d_output_value = np.einsum("rb,rbhn->rhn", slope_error, mean)
    weighted = np.broadcast_to(query * slope_error[..., None], (len(weights), batch, n - 1))
    d_key_query = np.zeros_like(key_query)  # the query's last entry is 0, so M's last column has no gradient
    d_key_query[..., : n - 1] = np.moveaxis(covariance, 1, -1) @ weighted[:, None] / math.sqrt(n)
    out = np.empty_like(weights)
    w_query, w_key, w_value, w_output = factors(weights, n)
    d_query, d_key, d_value, d_output = factors(out, n)
    d_query[...] = w_key @ d_key_query
    d_key[...] = w_query @ d_key_query.swapaxes(-1, -2)
    d_value[...] = w_output[..., :, None] * d_output_value[..., None, :]
    d_output[...] = (w_value @ d_output_value[..., None])[..., 0]
    return (error**2).mean(-1), out


def _update(
    call: Call, weights: np.ndarray, first: np.ndarray, second: np.ndarray, slope: np.ndarray, count: int
) -> None:
    """One step of SGD, Adam or AdamW in place, with the arithmetic of torch.optim; `count` = updates including this one."""
    rate = call.learning_rate.astype(weights.dtype)[:, None, None]
    if call.optimiser == "AdamW":
        weights *= 1.0 - rate * call.weight_decay
    elif call.weight_decay:
        slope = slope + call.weight_decay * weights
    if call.optimiser == "SGD":
        weights -= rate * slope
        return
    b1, b2 = call.betas
    first += (1.0 - b1) * (slope - first)
    second *= b2
    second += (1.0 - b2) * slope * slope
    size = np.sqrt(second) / math.sqrt(1.0 - b2**count) + call.eps
    weights -= rate / (1.0 - b1**count) * first / size


def advance(
    weights: np.ndarray,
    first_moment: np.ndarray,
    second_moment: np.ndarray,
    *,
    d: int,
    heads: int,
    length: int,
    batch: int,
    seed: int,
    streams: Sequence[int],
    first_step: int,
    steps: int,
    beta_std: float,
    noise_std: float,
    target_noise_std: float,
    optimiser: str,
    learning_rate: float | Sequence[float],
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    record: Iterable[int] = (),
) -> Recorded:
    """Train for `steps` steps, in place: same arguments and meaning as the compiled `in_context.advance`.

    `weights`, `first_moment`, `second_moment` may be float64 or float32; everything but the data is computed in that
    precision. Raises ValueError on a wrong argument, before any work.
    """
    call = check(
        weights, first_moment, second_moment, dtypes=(np.float64, np.float32), d=d, heads=heads, length=length,
        batch=batch, seed=seed, streams=streams, first_step=first_step, steps=steps, beta_std=beta_std,
        noise_std=noise_std, target_noise_std=target_noise_std, optimiser=optimiser, learning_rate=learning_rate,
        betas=betas, eps=eps, weight_decay=weight_decay, record=record,
    )  # fmt: skip
    n, replicas = call.width, len(call.streams)
    losses = np.empty((replicas, call.steps), dtype=weights.dtype)
    key_query = np.empty((replicas, len(call.record), call.heads, n, n), dtype=weights.dtype)
    output_value = np.empty((replicas, len(call.record), call.heads, n), dtype=weights.dtype)
    places = {int(step): place for place, step in enumerate(call.record)}

    def note(step: int) -> None:
        if step in places:
            key_query[:, places[step]], output_value[:, places[step]] = circuits(weights, n)

    sources = call.streams[:1] if call.shared else call.streams
    per_step = len(sources) * call.batch * prompt_stream.normals_per_prompt(call.d, call.length)
    chunk = max(1, _NORMALS_AT_ONCE // per_step)
    for start in range(0, call.steps, chunk):
        length_here = min(chunk, call.steps - start)
        data = [
            part.astype(weights.dtype, copy=False)
            for part in prompts(call, call.first_step + start, length_here, sources)
        ]
        for i in range(length_here):
            step = call.first_step + start + i
            note(step)
            losses[:, start + i], slope = gradient(weights, *(part[:, i] for part in data))
            _update(call, weights, first_moment, second_moment, slope, step + 1)
    note(call.first_step + call.steps)
    return Recorded(losses, call.record, key_query, output_value)
