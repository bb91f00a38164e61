"""Forward and backward of 128 prompts in a GPU program: tokens are made, used for all heads and forgotten.

One pass over the tokens gives a head's prediction and its gradient: with e_i = 2^(u.z_i), u = log2(e) M x_q, it sums
e, e z and e (V z) z; then A = sum e z / sum e and C = sum e (V z) z / sum e - (V A) A. The rows of `scratch` are described
in `_gpu_step`.
"""

import triton
import triton.language as tl

from attnlib.kernels.in_context._gpu_random import LANES, draw, philox

__all__ = ["attend", "attend_safely", "close"]

_SMALLEST, _LARGEST = tl.constexpr(2.0**-80), tl.constexpr(2.0**80)  # of a sum of 2^score that loses nothing


@triton.jit
def _dot(left, right, START: tl.constexpr, SIZE: tl.constexpr):
    """left[START] right[0] + left[START + 1] right[1] + ..."""
    total = left[START] * right[0]
    for i in tl.static_range(1, SIZE):
        total += left[START + i] * right[i]
    return total


@triton.jit
def _prompt(keys, prompt, step, stream, beta_std, target_noise_std, D: tl.constexpr):
    """(beta, query, target, state of the generator) of 128 prompts."""
    key_low, key_high = tl.load(keys).to(tl.uint32, bitcast=True), tl.load(keys + 1).to(tl.uint32, bitcast=True)
    state = philox(key_low, key_high, prompt.to(tl.uint32), step.to(tl.uint32), stream)
    normals, state = draw(state, D + 1)
    beta, query = (), ()
    target = normals[2 * D] * target_noise_std
    for j in tl.static_range(D):
        beta = beta + (normals[j] * beta_std,)  # noqa: RUF005 (the compiler refuses a starred tuple)
        query = query + (normals[D + j],)  # noqa: RUF005
        target += beta[j] * query[j]
    return beta, query, target, state


@triton.jit
def _token(state, beta, noise_std, D: tl.constexpr):
    """(x, y) of the next token, and the next state."""
    normals, state = draw(state, (D + 2) // 2)
    z = ()
    y = normals[D] * noise_std
    for j in tl.static_range(D):
        z = z + (normals[j],)  # noqa: RUF005
        y += normals[j] * beta[j]
    return z + (y,), state  # noqa: RUF005


@triton.jit
def _zeros(COUNT: tl.constexpr):
    found = ()
    for _ in tl.static_range(COUNT):
        found = found + (tl.zeros((LANES,), tl.float32),)  # noqa: RUF005
    return found


@triton.jit
def _of_heads(small, query, first, HEADS: tl.constexpr, ALL: tl.constexpr, D: tl.constexpr):
    """(M x_q in units of log 2, V) of heads first, ..., first + HEADS - 1, one after the other."""
    N: tl.constexpr = D + 1
    u, v = (), ()
    for row in tl.static_range(HEADS * N):
        at = small + (first * N + row) * N
        slope = tl.load(at) * query[0]
        for k in tl.static_range(1, D):
            slope += tl.load(at + k) * query[k]
        u = u + (slope,)  # noqa: RUF005
        v = v + (tl.load(small + ALL * N * N + first * N + row),)  # noqa: RUF005
    return u, v


@triton.jit
def _add(z, u, v, totals, means, products, D: tl.constexpr, H: tl.constexpr):
    """The sums over tokens of e = 2^(u.z), e z and e (v.z) z of every head, with one more token."""
    N: tl.constexpr = D + 1
    new_totals, new_means, new_products = (), (), ()
    for h in tl.static_range(H):
        # e = 2^(u.z) = e^(z' M z_q); the three sums of the module's first lines.
        e = tl.exp2(_dot(u, z, h * N, N))
        t = e * _dot(v, z, h * N, N)
        new_totals = new_totals + (totals[h] + e,)  # noqa: RUF005
        for j in tl.static_range(N):
            new_means = new_means + (means[h * N + j] + e * z[j],)  # noqa: RUF005
            new_products = new_products + (products[h * N + j] + t * z[j],)  # noqa: RUF005
    return new_totals, new_means, new_products


@triton.jit
def _store_means(rows, totals, means, products, v, first, HEADS: tl.constexpr, ALL: tl.constexpr, D: tl.constexpr):
    """A and C of the heads to their rows; returns the sum of their predictions and the lanes whose sums lost digits."""
    N: tl.constexpr = D + 1
    prediction = tl.zeros((LANES,), tl.float32)
    lost = prediction > 0
    for h in tl.static_range(HEADS):
        lost = lost | (totals[h] < _SMALLEST) | (totals[h] > _LARGEST)
        # A = sum e z / sum e, V A, and C = sum e (V z) z / sum e - (V A) A.
        share = 1.0 / totals[h]
        own = tl.zeros((LANES,), tl.float32)
        for j in tl.static_range(N):
            own += v[h * N + j] * (means[h * N + j] * share)
        for j in tl.static_range(N):
            mean = means[h * N + j] * share
            at = rows + ((first + h) * N + j) * LANES
            tl.store(at, mean)
            tl.store(at + ALL * N * LANES, products[h * N + j] * share - own * mean)
        prediction += own
    return prediction, lost


@triton.jit
def attend(
    scratch, keys, prompt, step, stream, length, beta_std, noise_std, target_noise_std, D: tl.constexpr, H: tl.constexpr
):
    """All heads on 128 prompts in one pass over the tokens, no maximum subtracted: (predictions, lanes to be done again)."""
    N: tl.constexpr = D + 1
    rows = scratch + tl.arange(0, LANES)
    beta, query, target, state = _prompt(keys, prompt, step, stream, beta_std, target_noise_std, D)
    for k in tl.static_range(D):
        tl.store(rows + (2 * H * N + k) * LANES, query[k])
    tl.store(rows + (2 * H * N + D + 1) * LANES, target)
    u, v = _of_heads(scratch + (2 * H * N + D + 2) * LANES, query, 0, H, H, D)
    totals, means, products = _zeros(H), _zeros(H * N), _zeros(H * N)
    for _ in range(length):
        z, state = _token(state, beta, noise_std, D)
        totals, means, products = _add(z, u, v, totals, means, products, D, H)
    return _store_means(rows, totals, means, products, v, 0, H, H, D)


@triton.jit
def attend_safely(
    scratch, keys, prompt, step, stream, length, beta_std, noise_std, target_noise_std, D: tl.constexpr, H: tl.constexpr
):
    """`attend` for scores of any size: head by head, on tokens made again, sums relative to the largest score so far."""
    N: tl.constexpr = D + 1
    rows = scratch + tl.arange(0, LANES)
    prediction = tl.zeros((LANES,), tl.float32)
    for h in range(H):
        beta, query, _, state = _prompt(keys, prompt, step, stream, beta_std, target_noise_std, D)
        u, v = _of_heads(scratch + (2 * H * N + D + 2) * LANES, query, h, 1, H, D)
        top = tl.full((LANES,), float("-inf"), tl.float32)
        total = tl.zeros((LANES,), tl.float32)
        means, products = _zeros(N), _zeros(N)
        for _ in range(length):
            z, state = _token(state, beta, noise_std, D)
            score = _dot(u, z, 0, N)
            # A larger score than all before: the old sums are relative to the old one, so they shrink by 2^(old - new).
            higher = tl.maximum(top, score)
            kept, e = tl.exp2(top - higher), tl.exp2(score - higher)
            t = e * _dot(v, z, 0, N)
            total = total * kept + e
            new_means, new_products = (), ()
            for j in tl.static_range(N):
                new_means = new_means + (means[j] * kept + e * z[j],)  # noqa: RUF005
                new_products = new_products + (products[j] * kept + t * z[j],)  # noqa: RUF005
            means, products, top = new_means, new_products, higher
        own, _ = _store_means(rows, (total,), means, products, v, h, 1, H, D)
        prediction += own
    return prediction


@triton.jit
def close(scratch, prediction, lost, prompt, batch, D: tl.constexpr, H: tl.constexpr):
    """The slope of the loss to its row; returns the sum of squared errors, infinite if a lane must be done again."""
    N: tl.constexpr = D + 1
    row = scratch + (2 * H * N + D) * LANES + tl.arange(0, LANES)
    # g = 2 (yhat - target) / B; lanes beyond the batch have none.
    error = prediction - tl.load(row + LANES)
    live = prompt < batch
    tl.store(row, tl.where(live, error * (2.0 / batch), 0.0))
    return tl.sum(tl.where(lost, float("inf"), tl.where(live, error * error, 0.0)), axis=0)
