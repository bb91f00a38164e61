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

Forward and backward of 128 prompts: tokens are made, used for all heads and forgotten. One pass over the tokens gives a head's
prediction and its gradient: with e_i = 2^(u.z_i), u = log2(e) M x_q, it sums e, e z and e (V z) z; then A = sum e z / sum e and
C = sum e (V z) z / sum e - (V A) A. The random numbers are those of `prompt_stream`, integers bit for bit.
Sums of tuples stand where a starred tuple would: the compiler refuses it.
"""
# ruff: noqa: RUF005

import triton
import triton.language as tl

from attnlib.kernels._polynomials import COS, LOG, SIN

LANES = tl.constexpr(128)
_LOG = tl.constexpr(LOG)
_COS = tl.constexpr(COS)
_SIN = tl.constexpr(SIN)
_LN2 = tl.constexpr(0.6931471805599453 * 2.0**-23)
_SCALE = tl.constexpr(2.0**-31)


@triton.jit
def philox(key_low, key_high, prompt, step, stream):
    """Philox4x32-10 of the counter (prompt, step, stream, 0): the state of every prompt's generator."""
    zero = prompt & 0
    c0, c1, c2, c3 = prompt, zero + step, zero + stream, zero
    for _ in range(10):
        left, right = c0, c2
        c0 = tl.umulhi(right, zero + 0xCD9E8D57) ^ c1 ^ key_low
        c1 = right * 0xCD9E8D57
        c2 = tl.umulhi(left, zero + 0xD2511F53) ^ c3 ^ key_high
        c3 = left * 0xD2511F53
        key_low += 0x9E3779B9
        key_high += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def next_word(state):
    """xoshiro128+: the output and the next state."""
    s0, s1, s2, s3 = state
    word, moved = s0 + s3, s1 << 9
    s2 = s2 ^ s0
    s3 = s3 ^ s1
    s1 = s1 ^ s2
    s0 = s0 ^ s3
    return word, (s0, s1, s2 ^ moved, (s3 << 11) | (s3 >> 21))


@triton.jit
def _polynomial(x, COEFFICIENTS: tl.constexpr, DEGREE: tl.constexpr):
    value = tl.full(x.shape, COEFFICIENTS[DEGREE], tl.float32)
    for i in tl.static_range(DEGREE):
        value = tl.fma(value, x, tl.full(x.shape, COEFFICIENTS[DEGREE - 1 - i], tl.float32))
    return value


@triton.jit
def _pair(word, angle_word):
    """Two normals of two words (see prompt_stream): u = (1 + g) 2^-k with 1 + g between sqrt(1/2) and sqrt(2)."""
    number = ((word & 0x7FFFFFFF) | 1).to(tl.int32, bitcast=True).to(tl.float32).to(tl.uint32, bitcast=True)
    power = (number - 0x4EB504F3) & 0xFF800000  # -k 2^23: 31 exponents and the bits of sqrt(1/2) less
    rest = (number - power).to(tl.float32, bitcast=True) * _SCALE - 1.0  # both exact
    logarithm = power.to(tl.int32, bitcast=True).to(tl.float32) * -_LN2
    # r = sqrt(-ln u) with ln u = -k ln 2 + ln(1 + g), ln(1 + g) = -g P(g)
    radius = tl.sqrt(tl.fma(rest, _polynomial(rest, _LOG, 7), logarithm))
    # theta = pi a/4; cos theta from a^2, sin theta = a S(a^2).
    angle = (angle_word << 2).to(tl.int32, bitcast=True).to(tl.float32) * _SCALE
    even = angle * angle
    middle, half = radius * _polynomial(even, _COS, 3), radius * angle
    sine = _polynomial(even, _SIN, 3)
    # n1 = r (cos - sin), n2 = r (cos + sin); the two top bits of the word are their signs.
    first = tl.fma(-half, sine, middle).to(tl.uint32, bitcast=True) ^ (angle_word & 0x80000000)
    second = tl.fma(half, sine, middle).to(tl.uint32, bitcast=True) ^ ((angle_word << 1) & 0x80000000)
    return first.to(tl.float32, bitcast=True), second.to(tl.float32, bitcast=True)


@triton.jit
def draw(state, PAIRS: tl.constexpr):
    """(2 PAIRS normals, next state)."""
    found = ()
    for _ in tl.static_range(PAIRS):
        word, state = next_word(state)
        angle_word, state = next_word(state)
        first, second = _pair(word, angle_word)
        found = found + (first, second)
    return found, state


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
        beta = beta + (normals[j] * beta_std,)
        query = query + (normals[D + j],)
        target += beta[j] * query[j]
    return beta, query, target, state


@triton.jit
def _token(state, beta, noise_std, D: tl.constexpr):
    """(x, y) of the next token, and the next state."""
    normals, state = draw(state, (D + 2) // 2)
    z = ()
    y = normals[D] * noise_std
    for j in tl.static_range(D):
        z = z + (normals[j],)
        y += normals[j] * beta[j]
    return z + (y,), state


@triton.jit
def _zeros(COUNT: tl.constexpr):
    found = ()
    for _ in tl.static_range(COUNT):
        found = found + (tl.zeros((LANES,), tl.float32),)
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
        u = u + (slope,)
        v = v + (tl.load(small + ALL * N * N + first * N + row),)
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
        new_totals = new_totals + (totals[h] + e,)
        for j in tl.static_range(N):
            new_means = new_means + (means[h * N + j] + e * z[j],)
            new_products = new_products + (products[h * N + j] + t * z[j],)
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
                new_means = new_means + (means[j] * kept + e * z[j],)
                new_products = new_products + (products[j] * kept + t * z[j],)
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


_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _circuits(weights, scratch, D: tl.constexpr, H: tl.constexpr, ENTRIES: tl.constexpr):
    """M log2(e) and V to scratch."""
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
    for a in range(N):
        m += tl.load(w + N * N + a * N + i) * tl.load(w + a * N + j)
        v += tl.load(w + 3 * N * N + a) * tl.load(w + 2 * N * N + a * N + j)
    m *= 1 / N**0.5
    head = entry // (N * N) * N
    tl.store(small + entry, m * _LOG2E, mask=inside)
    tl.store(small + H * N * N + head + j, v, mask=inside & (i == 0))


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
        sums = sums + (tl.zeros((ROWS, 32), tl.float32),)
    for part in range(LANES // 32):
        lane = part * 32 + tl.arange(0, 32)
        at = scratch + row[:, None] * LANES + lane[None, :]
        query = scratch + 2 * H * N * LANES + lane
        slope = tl.load(query + D * LANES)
        products = tl.load(at + H * N * LANES)
        more = ()
        for k in tl.static_range(D):
            more = more + (sums[k] + products * (slope * tl.load(query + k * LANES))[None, :],)
        sums = more + (sums[D] + tl.load(at) * slope[None, :],)
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


@triton.jit(do_not_specialize=["first_run", "first_step", "start", "steps", "row", "batch", "length", "adaptive"])
def train(
    weights, first, second, scratch, keys, streams, rates, keeps, first_scale, second_scale, losses, first_run, first_step,
    start, steps, row, batch, length, beta_std, noise_std, target_noise_std, decay, less1, b2, less2, eps, adaptive,
    D: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, ENTRIES: tl.constexpr, PARAMETERS: tl.constexpr,
    SCRATCH: tl.constexpr,
):  # fmt: skip
    """Steps start, ..., start + steps - 1 of the call that begins at first_step, of run first_run + program.

    `row`: length of a row of `losses`; `first_scale`, `second_scale` (row,): 1/(1 - b1^t) and 1/sqrt(1 - b2^t) of every step
    of the call.
    """
    N: tl.constexpr = D + 1
    P: tl.constexpr = N * (3 * N + 1)
    run = first_run + tl.program_id(0).to(tl.int64)
    scratch += tl.program_id(0).to(tl.int64) * SCRATCH
    weights += run * H * P
    first += run * H * P
    second += run * H * P
    losses += run * row
    stream = tl.load(streams + run).to(tl.uint32, bitcast=True)
    rate, keep = tl.load(rates + run), tl.load(keeps + run)
    for i in range(start, start + steps):
        now = first_step + i
        # M and V of every head from its four matrices.
        _circuits(weights, scratch, D, H, ENTRIES)
        tl.debug_barrier()
        # Forward and backward, 128 prompts at a time: predictions, squared errors, sums of dM and dV.
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
        # Chain rule to the four matrices, and the optimiser's step.
        c1, c2 = tl.load(first_scale + i), tl.load(second_scale + i)
        _gradient(weights, scratch, D, H, ROWS, ENTRIES)
        tl.debug_barrier()
        _update(
            weights, first, second, scratch, keep, decay, rate, adaptive, less1, b2, less2, eps, c1, c2, D, H, PARAMETERS
        )  # fmt: skip
        tl.debug_barrier()
