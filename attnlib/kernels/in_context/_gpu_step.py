"""The GPU program of in-context training: one program a replica, all steps inside, prompts in the lanes of vectors.

Tokens are made, used for all heads and forgotten. A replica's scratch holds rows of 128 lanes, then small matrices:

| rows | meaning |
|---|---|
| H n | A = sum_i p_i z_i of every head |
| H n | C = sum_i p_i (V z_i - V A) z_i |
| d | the query |
| 1 | slope of the loss in the prediction, 2 (yhat - target) / B, and 0 in lanes without a prompt |
| 1 | target |

then M log2(e) (H n^2), V (H n), and G (H n, n): dM in its first d columns, dV in the last, where dM is zero.
Memory written by one thread and read by another lies between barriers.
"""

import triton
import triton.language as tl

from attnlib.kernels.in_context._gpu_random import LANES, draw, philox

__all__ = ["train"]

_LOG2E = tl.constexpr(1.4426950408889634)
_SMALLEST, _LARGEST = tl.constexpr(2.0**-80), tl.constexpr(2.0**80)  # of a sum of 2^score that loses nothing


@triton.jit
def _circuits(weights, scratch, key_query, output_value, wanted, D: tl.constexpr, H: tl.constexpr, ENTRIES: tl.constexpr):
    """M log2(e) and V to scratch; M and V to the records if `wanted`."""
    N: tl.constexpr = D + 1
    P: tl.constexpr = N * (3 * N + 1)
    small = scratch + (2 * H * N + D + 2) * LANES
    entry = tl.arange(0, ENTRIES)
    inside = entry < H * N * N
    entry = tl.minimum(entry, H * N * N - 1)
    w = weights + entry // (N * N) * P
    i, j = entry // N % N, entry % N
    m = tl.zeros((ENTRIES,), tl.float32)
    v = tl.zeros((ENTRIES,), tl.float32)
    for a in tl.static_range(N):
        m += tl.load(w + N * N + a * N + i) * tl.load(w + a * N + j)
        v += tl.load(w + 3 * N * N + a) * tl.load(w + 2 * N * N + a * N + j)
    m *= 1 / N**0.5
    first = inside & (i == 0)
    head = entry // (N * N) * N
    tl.store(small + entry, m * _LOG2E, mask=inside)
    tl.store(small + H * N * N + head + j, v, mask=first)
    tl.store(key_query + entry, m, mask=inside & wanted)
    tl.store(output_value + head + j, v, mask=first & wanted)


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
def _add(z, u, v, sums, HEADS: tl.constexpr, D: tl.constexpr, shift):
    """`sums` and one token's share: per head sum e, then sum e z, then sum e (v.z) z, with e = 2^(u.z - shift)."""
    N: tl.constexpr = D + 1
    found = ()
    for h in tl.static_range(HEADS):
        base: tl.constexpr = h * (2 * N + 1)
        e = tl.exp2(_dot(u, z, h * N, N) - shift)
        t = e * _dot(v, z, h * N, N)
        found = found + (sums[base] + e,)  # noqa: RUF005
        for j in tl.static_range(N):
            found = found + (sums[base + 1 + j] + e * z[j],)  # noqa: RUF005
        for j in tl.static_range(N):
            found = found + (sums[base + 1 + N + j] + t * z[j],)  # noqa: RUF005
    return found


@triton.jit
def _means(rows, sums, v, first, HEADS: tl.constexpr, ALL: tl.constexpr, D: tl.constexpr):
    """A and C of the heads to their rows; returns the sum of their predictions and the lanes whose sums lost digits."""
    N: tl.constexpr = D + 1
    prediction = tl.zeros((LANES,), tl.float32)
    lost = prediction > 0
    for h in tl.static_range(HEADS):
        base: tl.constexpr = h * (2 * N + 1)
        total = sums[base]
        lost = lost | (total < _SMALLEST) | (total > _LARGEST)
        share = 1.0 / total
        own = tl.zeros((LANES,), tl.float32)
        for j in tl.static_range(N):
            own += v[h * N + j] * (sums[base + 1 + j] * share)
        for j in tl.static_range(N):
            mean = sums[base + 1 + j] * share
            at = rows + ((first + h) * N + j) * LANES
            tl.store(at, mean)
            tl.store(at + ALL * N * LANES, sums[base + 1 + N + j] * share - own * mean)
        prediction += own
    return prediction, lost


@triton.jit
def _attend(
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
    sums = _zeros(H * (2 * N + 1))
    for _ in range(length):
        z, state = _token(state, beta, noise_std, D)
        sums = _add(z, u, v, sums, H, D, 0.0)
    return _means(rows, sums, v, 0, H, H, D)


@triton.jit
def _attend_shifted(
    scratch, keys, prompt, step, stream, length, beta_std, noise_std, target_noise_std, D: tl.constexpr, H: tl.constexpr
):
    """`_attend` for scores of any size: head by head, first the largest score, then the sums, on tokens made again."""
    N: tl.constexpr = D + 1
    rows = scratch + tl.arange(0, LANES)
    prediction = tl.zeros((LANES,), tl.float32)
    for h in range(H):
        beta, query, _, state = _prompt(keys, prompt, step, stream, beta_std, target_noise_std, D)
        start = state
        u, v = _of_heads(scratch + (2 * H * N + D + 2) * LANES, query, h, 1, H, D)
        top = tl.full((LANES,), float("-inf"), tl.float32)
        for _ in range(length):
            z, state = _token(state, beta, noise_std, D)
            top = tl.maximum(top, _dot(u, z, 0, N))
        state = start
        sums = _zeros(2 * N + 1)
        for _ in range(length):
            z, state = _token(state, beta, noise_std, D)
            sums = _add(z, u, v, sums, 1, D, top)
        own, _ = _means(rows, sums, v, h, 1, H, D)
        prediction += own
    return prediction


@triton.jit
def _close(scratch, prediction, lost, prompt, batch, D: tl.constexpr, H: tl.constexpr):
    """The slope of the loss to its row; returns the sum of squared errors, infinite if a lane must be done again."""
    N: tl.constexpr = D + 1
    row = scratch + (2 * H * N + D) * LANES + tl.arange(0, LANES)
    error = prediction - tl.load(row + LANES)
    live = prompt < batch
    tl.store(row, tl.where(live, error * (2.0 / batch), 0.0))
    return tl.sum(tl.where(lost, float("inf"), tl.where(live, error * error, 0.0)), axis=0)


@triton.jit
def _collect(scratch, more, D: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr):
    """G = sums over the lanes of slope C x_q^T and slope A, added to what G holds if `more`."""
    N: tl.constexpr = D + 1
    lane = tl.arange(0, LANES)
    row = tl.arange(0, ROWS)
    inside = row < H * N
    row = tl.minimum(row, H * N - 1)
    g = scratch + (2 * H * N + D + 2) * LANES + H * N * (N + 1) + row * N
    at = scratch + row[:, None] * LANES + lane[None, :]
    query = scratch + 2 * H * N * LANES + lane
    slope = tl.load(query + D * LANES)
    total = tl.sum(tl.load(at) * slope[None, :], axis=1)
    tl.store(g + D, total + tl.load(g + D, mask=inside & more, other=0.0), mask=inside)
    products = tl.load(at + H * N * LANES)
    for k in tl.static_range(D):
        weight = slope * tl.load(query + k * LANES)
        total = tl.sum(products * weight[None, :], axis=1)
        tl.store(g + k, total + tl.load(g + k, mask=inside & more, other=0.0), mask=inside)


@triton.jit
def _move(weights, first, second, at, slope, inside, keep, decay, rate, adaptive, less1, b2, less2, eps, c1, c2):
    """One update of some entries: SGD, or Adam with c1 = 1/(1 - b1^t), c2 = 1/sqrt(1 - b2^t)."""
    w = tl.load(weights + at)
    slope += decay * w
    w *= keep
    if adaptive:
        m, v = tl.load(first + at), tl.load(second + at)
        m += less1 * (slope - m)
        v = b2 * v + less2 * slope * slope
        tl.store(first + at, m, mask=inside)
        tl.store(second + at, v, mask=inside)
        tl.store(weights + at, w - rate * c1 * m / (tl.sqrt(v) * c2 + eps), mask=inside)
    else:
        tl.store(weights + at, w - rate * slope, mask=inside)


@triton.jit
def _update(
    weights, first, second, scratch, keep, decay, rate, adaptive, less1, b2, less2, eps, c1, c2,
    D: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """The factors' gradients from G, and one step of the optimiser."""
    N: tl.constexpr = D + 1
    P: tl.constexpr = N * (3 * N + 1)
    g = scratch + (2 * H * N + D + 2) * LANES + H * N * (N + 1)
    entry = tl.arange(0, ENTRIES)
    inside = entry < H * N * N
    entry = tl.minimum(entry, H * N * N - 1)
    head, a, b = entry // (N * N), entry // N % N, entry % N
    w = weights + head * P
    query = tl.zeros((ENTRIES,), tl.float32)
    key = tl.zeros((ENTRIES,), tl.float32)
    for i in tl.static_range(N):
        query += tl.load(w + N * N + a * N + i) * tl.load(g + (head * N + i) * N + b)
    for k in tl.static_range(D):
        key += tl.load(w + a * N + k) * tl.load(g + (head * N + b) * N + k)
    query = tl.where(b < D, query * (1 / N**0.5), 0.0)
    key *= 1 / N**0.5
    value = tl.load(w + 3 * N * N + a) * tl.load(g + (head * N + b) * N + D)
    row = tl.arange(0, ROWS)
    row_inside = row < H * N
    row = tl.minimum(row, H * N - 1)
    row_head, row_a = row // N, row % N
    output = tl.zeros((ROWS,), tl.float32)
    for j in tl.static_range(N):
        output += tl.load(weights + row_head * P + 2 * N * N + row_a * N + j) * tl.load(g + (row_head * N + j) * N + D)
    tl.debug_barrier()  # all gradients are made from the old factors
    at = head * P + a * N + b
    _move(weights, first, second, at, query, inside, keep, decay, rate, adaptive, less1, b2, less2, eps, c1, c2)
    at += N * N
    _move(weights, first, second, at, key, inside, keep, decay, rate, adaptive, less1, b2, less2, eps, c1, c2)
    at += N * N
    _move(weights, first, second, at, value, inside, keep, decay, rate, adaptive, less1, b2, less2, eps, c1, c2)
    at = row_head * P + 3 * N * N + row_a
    _move(weights, first, second, at, output, row_inside, keep, decay, rate, adaptive, less1, b2, less2, eps, c1, c2)


@triton.jit(
    do_not_specialize=["first_replica", "first_step", "start", "steps", "place", "marks", "row", "batch", "length",
                       "adaptive"],
    do_not_specialize_on_alignment=["weights", "first", "second"],
)  # fmt: skip
def train(
    weights, first, second, scratch, keys, streams, rates, keeps, corrections, record, losses, key_query, output_value,
    first_replica, first_step, start, steps, place, marks, row, batch, length, beta_std, noise_std, target_noise_std,
    decay, less1, b2, less2, eps, adaptive,
    D: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, ENTRIES: tl.constexpr, SCRATCH: tl.constexpr,
):  # fmt: skip
    """Steps start, ..., start + steps - 1 of the call that begins at first_step, of replica first_replica + program.

    `place`: the first entry of `record` (sorted, absolute; one more at its end that is no step) at or after this start;
    `marks`: their number; `row`: length of a row of `losses`; `corrections` (2, row): c1 and c2 of every step of the call.
    """
    N: tl.constexpr = D + 1
    P: tl.constexpr = N * (3 * N + 1)
    replica = first_replica + tl.program_id(0).to(tl.int64)
    scratch += tl.program_id(0).to(tl.int64) * SCRATCH
    weights += replica * H * P
    first += replica * H * P
    second += replica * H * P
    losses += replica * row
    key_query += replica * marks * H * N * N
    output_value += replica * marks * H * N
    stream = tl.load(streams + replica).to(tl.uint32, bitcast=True)
    rate, keep = tl.load(rates + replica), tl.load(keeps + replica)
    for i in range(start, start + steps):
        now = first_step + i
        wanted = tl.load(record + place) == now
        _circuits(
            weights, scratch, key_query + place * H * N * N, output_value + place * H * N, wanted, D, H, ENTRIES
        )
        place += wanted.to(tl.int32)
        tl.debug_barrier()
        squares = 0.0
        for base in range(0, batch, LANES):
            prompt = base + tl.arange(0, LANES)
            prediction, lost = _attend(
                scratch, keys, prompt, now, stream, length, beta_std, noise_std, target_noise_std, D, H
            )
            share = _close(scratch, prediction, lost, prompt, batch, D, H)
            if share == float("inf"):
                prediction = _attend_shifted(
                    scratch, keys, prompt, now, stream, length, beta_std, noise_std, target_noise_std, D, H
                )
                share = _close(scratch, prediction, prompt < 0, prompt, batch, D, H)
            squares += share
            tl.debug_barrier()
            _collect(scratch, base > 0, D, H, ROWS)
            tl.debug_barrier()
        tl.store(losses + i, squares / batch)
        c1, c2 = tl.load(corrections + i), tl.load(corrections + row + i)
        _update(
            weights, first, second, scratch, keep, decay, rate, adaptive, less1, b2, less2, eps, c1, c2, D, H, ROWS,
            ENTRIES,
        )  # fmt: skip
        tl.debug_barrier()
    wanted = tl.load(record + place) == first_step.to(tl.int64) + start + steps
    _circuits(weights, scratch, key_query + place * H * N * N, output_value + place * H * N, wanted, D, H, ENTRIES)
