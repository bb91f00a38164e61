"""The GPU program of in-context training: one program a run, all steps inside, prompts in the lanes of vectors.

A run's scratch holds rows of 128 lanes, then small matrices:

| rows | meaning |
|---|---|
| H n | A = sum_i p_i z_i of every head |
| H n | C = sum_i p_i (V z_i - V A) z_i |
| d | the query |
| 1 | slope of the loss in the prediction, 2 (yhat - target) / B, and 0 in lanes without a prompt |
| 1 | target |

then M log2(e) (H n^2), V (H n), G (H n, n), with dM in its first d columns and dV in the last, where dM is zero, and the
gradient in the order of the weights.
Memory written by one thread and read by another lies between barriers.
"""

import triton
import triton.language as tl

from attnlib.kernels.in_context._gpu_attend import attend, attend_safely, close
from attnlib.kernels.in_context._gpu_random import LANES

__all__ = ["train"]

_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _circuits(
    weights, scratch, key_query, output_value, wanted, D: tl.constexpr, H: tl.constexpr, ENTRIES: tl.constexpr
):
    """M log2(e) and V to scratch; M and V to the records if `wanted` is 1, not 0."""
    N: tl.constexpr = D + 1
    P: tl.constexpr = N * (3 * N + 1)
    small = scratch + (2 * H * N + D + 2) * LANES
    entry = tl.arange(0, ENTRIES)
    inside = entry < H * N * N
    recorded = entry < wanted * (H * N * N)
    entry = tl.minimum(entry, H * N * N - 1)
    w = weights + entry // (N * N) * P
    i, j = entry // N % N, entry % N
    m = tl.zeros((ENTRIES,), tl.float32)
    v = tl.zeros((ENTRIES,), tl.float32)
    for a in range(N):
        m += tl.load(w + N * N + a * N + i) * tl.load(w + a * N + j)
        v += tl.load(w + 3 * N * N + a) * tl.load(w + 2 * N * N + a * N + j)
    m *= 1 / N**0.5
    head = entry // (N * N) * N
    tl.store(small + entry, m * _LOG2E, mask=inside)
    tl.store(small + H * N * N + head + j, v, mask=inside & (i == 0))
    tl.store(key_query + entry, m, mask=recorded)
    tl.store(output_value + head + j, v, mask=recorded & (i == 0))


@triton.jit
def _collect(scratch, base, D: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr):
    """G = sums over the lanes of slope C x_q^T and slope A, added to those of the prompts before `base`.

    Lanes are taken 32 at a time, so that a row belongs to a few threads, which meet once at the end.
    """
    N: tl.constexpr = D + 1
    row = tl.arange(0, ROWS)
    inside = row < H * N
    earlier = inside & (row < base)  # base is 0, or more than there are rows
    row = tl.minimum(row, H * N - 1)
    g = scratch + (2 * H * N + D + 2) * LANES + H * N * (N + 1) + row * N
    sums = ()
    for _ in tl.static_range(N):
        sums = sums + (tl.zeros((ROWS, 32), tl.float32),)  # noqa: RUF005 (the compiler refuses a starred tuple)
    for part in range(LANES // 32):
        lane = part * 32 + tl.arange(0, 32)
        at = scratch + row[:, None] * LANES + lane[None, :]
        query = scratch + 2 * H * N * LANES + lane
        slope = tl.load(query + D * LANES)
        products = tl.load(at + H * N * LANES)
        more = ()
        for k in tl.static_range(D):
            more = more + (sums[k] + products * (slope * tl.load(query + k * LANES))[None, :],)  # noqa: RUF005
        sums = more + (sums[D] + tl.load(at) * slope[None, :],)  # noqa: RUF005
    for k in tl.static_range(N):
        total = tl.sum(sums[k], axis=1)
        tl.store(g + k, total + tl.load(g + k, mask=earlier, other=0.0), mask=inside)


@triton.jit
def _gradient(weights, scratch, D: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, ENTRIES: tl.constexpr):
    """The factors' gradients from G, to scratch."""
    N: tl.constexpr = D + 1
    P: tl.constexpr = N * (3 * N + 1)
    g = scratch + (2 * H * N + D + 2) * LANES + H * N * (N + 1)
    out = g + H * N * N
    entry = tl.arange(0, ENTRIES)
    inside = entry < H * N * N
    entry = tl.minimum(entry, H * N * N - 1)
    head, a, b = entry // (N * N), entry // N % N, entry % N
    w = weights + head * P
    query = tl.zeros((ENTRIES,), tl.float32)
    key = tl.zeros((ENTRIES,), tl.float32)
    # dW_Q = W_K dM / sqrt(n), dW_K = W_Q dM' / sqrt(n), dW_V = W_O' dV: one entry (a, b) of each in a thread.
    for i in range(N):
        query += tl.load(w + N * N + a * N + i) * tl.load(g + (head * N + i) * N + b)
    for k in range(D):
        key += tl.load(w + a * N + k) * tl.load(g + (head * N + b) * N + k)
    value = tl.load(w + 3 * N * N + a) * tl.load(g + (head * N + b) * N + D)
    at = out + head * P + a * N + b
    tl.store(at, tl.where(b < D, query * (1 / N**0.5), 0.0), mask=inside)
    tl.store(at + N * N, key * (1 / N**0.5), mask=inside)
    tl.store(at + 2 * N * N, value, mask=inside)
    row = tl.arange(0, ROWS)
    inside = row < H * N
    row = tl.minimum(row, H * N - 1)
    head, a = row // N, row % N
    # dW_O = W_V dV
    output = tl.zeros((ROWS,), tl.float32)
    for j in range(N):
        output += tl.load(weights + head * P + 2 * N * N + a * N + j) * tl.load(g + (head * N + j) * N + D)
    tl.store(out + head * P + 3 * N * N + a, output, mask=inside)


@triton.jit
def _update(
    weights, first, second, scratch, keep, decay, rate, adaptive, less1, b2, less2, eps, c1, c2,
    D: tl.constexpr, H: tl.constexpr, PARAMETERS: tl.constexpr,
):  # fmt: skip
    """One step of SGD, or of Adam with c1 = 1/(1 - b1^t), c2 = 1/sqrt(1 - b2^t)."""
    N: tl.constexpr = D + 1
    at = tl.arange(0, PARAMETERS)
    inside = at < H * N * (3 * N + 1)
    slope = tl.load(scratch + (2 * H * N + D + 2) * LANES + H * N * (2 * N + 1) + at, mask=inside, other=0.0)
    w = tl.load(weights + at, mask=inside, other=0.0)
    # Adam's and SGD's decay is part of the gradient (`decay`), AdamW's shrinks the weights (`keep`).
    slope += decay * w
    w *= keep
    if adaptive:
        m, v = tl.load(first + at, mask=inside, other=0.0), tl.load(second + at, mask=inside, other=0.0)
        m += less1 * (slope - m)
        v = b2 * v + less2 * slope * slope
        tl.store(first + at, m, mask=inside)
        tl.store(second + at, v, mask=inside)
        tl.store(weights + at, w - rate * c1 * m / (tl.sqrt(v) * c2 + eps), mask=inside)
    else:
        tl.store(weights + at, w - rate * slope, mask=inside)


@triton.jit(
    do_not_specialize=["first_run", "first_step", "start", "steps", "place", "marks", "row", "batch", "length",
                       "adaptive"]
)  # fmt: skip
def train(
    weights, first, second, scratch, keys, streams, rates, keeps, first_scale, second_scale, record, losses, key_query,
    output_value, first_run, first_step, start, steps, place, marks, row, batch, length, beta_std, noise_std,
    target_noise_std, decay, less1, b2, less2, eps, adaptive,
    D: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, ENTRIES: tl.constexpr, PARAMETERS: tl.constexpr,
    SCRATCH: tl.constexpr,
):  # fmt: skip
    """Steps start, ..., start + steps - 1 of the call that begins at first_step, of run first_run + program.

    `place`: the first entry of `record` (sorted, absolute; one more at its end that is no step) at or after this start;
    `marks`: their number; `row`: length of a row of `losses`; `first_scale`, `second_scale` (row,): 1/(1 - b1^t) and
    1/sqrt(1 - b2^t) of every step of the call.
    """
    N: tl.constexpr = D + 1
    P: tl.constexpr = N * (3 * N + 1)
    run = first_run + tl.program_id(0).to(tl.int64)
    scratch += tl.program_id(0).to(tl.int64) * SCRATCH
    weights += run * H * P
    first += run * H * P
    second += run * H * P
    losses += run * row
    key_query += run * marks * H * N * N
    output_value += run * marks * H * N
    stream = tl.load(streams + run).to(tl.uint32, bitcast=True)
    rate, keep = tl.load(rates + run), tl.load(keeps + run)
    place = place.to(tl.int64)
    for i in range(start, start + steps):
        now = first_step + i
        wanted = (tl.load(record + place) == now).to(tl.int32)
        _circuits(weights, scratch, key_query + place * H * N * N, output_value + place * H * N, wanted, D, H, ENTRIES)
        place += wanted
        tl.debug_barrier()
        squares = 0.0
        for base in range(0, batch, LANES):
            prompt = base + tl.arange(0, LANES)
            prediction, lost = attend(
                scratch, keys, prompt, now, stream, length, beta_std, noise_std, target_noise_std, D, H
            )
            share = close(scratch, prediction, lost, prompt, batch, D, H)
            # A sum of powers left the range where it keeps its digits: the prompts are made again, with the maximum subtracted.
            if share == float("inf"):
                prediction = attend_safely(
                    scratch, keys, prompt, now, stream, length, beta_std, noise_std, target_noise_std, D, H
                )
                share = close(scratch, prediction, prompt < 0, prompt, batch, D, H)
            squares += share
            tl.debug_barrier()
            _collect(scratch, base, D, H, ROWS)
            tl.debug_barrier()
        tl.store(losses + i, squares / batch)
        c1, c2 = tl.load(first_scale + i), tl.load(second_scale + i)
        _gradient(weights, scratch, D, H, ROWS, ENTRIES)
        tl.debug_barrier()
        _update(
            weights,
            first,
            second,
            scratch,
            keep,
            decay,
            rate,
            adaptive,
            less1,
            b2,
            less2,
            eps,
            c1,
            c2,
            D,
            H,
            PARAMETERS,
        )
        tl.debug_barrier()
    wanted = (tl.load(record + place) == first_step.to(tl.int64) + start + steps).to(tl.int32)
    _circuits(weights, scratch, key_query + place * H * N * N, output_value + place * H * N, wanted, D, H, ENTRIES)
