"""Compiled loop of in-context regression for any d, a number here: what `_source` writes out and keeps in registers lies in memory.

Lanes are prompts, as there: a block is 16 prompts, and a vector of a block n times 16 numbers. Circuits are not multiplied out,
which would take n^3 operations: u = W_K' W_Q z_q takes 2 n^2 for each prompt, and the gradients of W_Q and W_K are sums over prompts.
The largest score is always subtracted. Needs n >= 6: the last of several rows or columns at a time are done twice.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from attnlib.kernels._simd import (
    align_stack,
    fma,
    lane_sum,
    larger,
    load,
    load_any,
    splat,
    splat_at,
    store,
    store_any,
)
from attnlib.kernels._simd_functions import exp2, normals, philox
from attnlib.kernels._update import inner, update

outer = njit(nogil=True, error_model="numpy", cache=True)
F = np.float32


@inner
def fresh(data, to, count, state):
    """The next normals of 16 prompts, an even number; returns the state after them."""
    align_stack()
    for _ in range(count // 8):
        n0, n1, n2, n3, n4, n5, n6, n7, state = normals(state, 8)
        store(data, to, n0)
        store(data, to + 16, n1)
        store(data, to + 32, n2)
        store(data, to + 48, n3)
        store(data, to + 64, n4)
        store(data, to + 80, n5)
        store(data, to + 96, n6)
        store(data, to + 112, n7)
        to += 128
    for _ in range(count % 8 // 2):
        n0, n1, state = normals(state, 2)
        store(data, to, n0)
        store(data, to + 16, n1)
        to += 32
    return state


@inner
def dots(data, one, two, x_at, n):
    """<one, x> and <two, x> of vectors of a block, each in two sums."""
    a, b, c, d = splat(F(0.0)), splat(F(0.0)), splat(F(0.0)), splat(F(0.0))
    for k in range(0, 16 * (n - n % 2), 32):
        x, y = load(data, x_at + k), load(data, x_at + k + 16)
        a, b = fma(load(data, one + k), x, a), fma(load(data, one + k + 16), y, b)
        c, d = fma(load(data, two + k), x, c), fma(load(data, two + k + 16), y, d)
    if n % 2:
        k = 16 * (n - 1)
        x = load(data, x_at + k)
        a, c = fma(load(data, one + k), x, a), fma(load(data, two + k), x, c)
    return a + b, c + d


@inner
def turn(data, vector_at, rows_at, n, width):
    """A vector of a block as 16 rows, one of each prompt."""
    for lane in range(16):
        for k in range(n):
            data[rows_at + width * lane + k] = data[vector_at + 16 * k + lane]


@inner
def draw(
    data, at, z_at, rows_at, d, width, length, key_low, key_high, prompt, step, stream, beta_std, noise_std, target_noise_std
):  # fmt: skip
    """Prompts of 16 lanes: at `at` beta, the query with its zero, the target; the tokens; the queries once more as rows."""
    x_at, zero_at = at + 16 * d, at + 32 * d
    state = fresh(data, at, 2 * d + 2, philox(key_low, key_high, prompt, step, stream))
    for k in range(at, x_at, 16):
        store(data, k, load(data, k) * splat(beta_std))
    # target = <x_q, beta> + noise, y = <x, beta> + noise
    store(data, zero_at + 16, fma(load(data, zero_at), splat(target_noise_std), dots(data, at, at, x_at, d)[0]))
    store(data, zero_at, splat(F(0.0)))
    turn(data, x_at, rows_at, d, width)
    for _ in range(length):
        state = fresh(data, z_at, d + 1 + (d + 1) % 2, state)
        y_at = z_at + 16 * d
        store(data, y_at, fma(load(data, y_at), splat(noise_std), dots(data, at, at, z_at, d)[0]))
        z_at = y_at + 16


@inner
def times(data, w_at, x_at, out_at, n):
    """W x of a block; six rows of W at a time."""
    align_stack()
    for first in range(0, n, 6):
        a = min(first, n - 6)
        at, to = w_at + a * n, out_at + 16 * a
        t0, t1, t2 = splat(F(0.0)), splat(F(0.0)), splat(F(0.0))
        t3, t4, t5 = splat(F(0.0)), splat(F(0.0)), splat(F(0.0))
        for k in range(x_at, x_at + 16 * n, 16):
            x = load(data, k)
            t0, t1 = fma(splat_at(data, at), x, t0), fma(splat_at(data, at + n), x, t1)
            t2, t3 = fma(splat_at(data, at + 2 * n), x, t2), fma(splat_at(data, at + 3 * n), x, t3)
            t4, t5 = fma(splat_at(data, at + 4 * n), x, t4), fma(splat_at(data, at + 5 * n), x, t5)
            at += 1
        store(data, to, t0)
        store(data, to + 16, t1)
        store(data, to + 32, t2)
        store(data, to + 48, t3)
        store(data, to + 64, t4)
        store(data, to + 80, t5)


@inner
def times_transposed(data, w_at, x_at, out_at, n, scale):
    """scale W' x of a block, also in the order in which W lies in memory; four rows of W at a time."""
    align_stack()
    for k in range(out_at, out_at + 16 * n, 16):
        store(data, k, splat(F(0.0)))
    for _ in range(n // 4):
        x0, x1 = load(data, x_at) * splat(scale), load(data, x_at + 16) * splat(scale)
        x2, x3 = load(data, x_at + 32) * splat(scale), load(data, x_at + 48) * splat(scale)
        for k in range(out_at, out_at + 16 * n, 16):
            t = fma(splat_at(data, w_at), x0, load(data, k))
            s = fma(splat_at(data, w_at + n), x1, splat_at(data, w_at + 2 * n) * x2)
            store(data, k, fma(splat_at(data, w_at + 3 * n), x3, t) + s)
            w_at += 1
        w_at += 3 * n
        x_at += 64
    for _ in range(n % 4):
        x = load(data, x_at) * splat(scale)
        for k in range(out_at, out_at + 16 * n, 16):
            store(data, k, fma(splat_at(data, w_at), x, load(data, k)))
            w_at += 1
        x_at += 16


@inner
def attend(data, bits, z_at, u_at, v_at, s_at, n, length):
    """One head on one block: at `s_at` the weights p_i, then p_i (V z_i - V A). Returns the prediction V A and whether all is finite.

    u in units of log 2.
    """
    align_stack()
    r_at = s_at + 16 * length
    top = splat(F(-3e38))
    for i in range(0, 16 * length, 16):
        s, r = dots(data, u_at, v_at, z_at, n)
        store(data, s_at + i, s)
        store(data, r_at + i, r)
        top = larger(top, s)
        z_at += 16 * n
    largest = np.int32(0)  # of exponents: arithmetic may take it that there is no NaN
    for i in range(s_at, s_at + 32 * length):
        largest = max(largest, bits[i] & np.int32(0x7FFFFFFF))
    total, prediction = splat(F(0.0)), splat(F(0.0))
    for i in range(0, 16 * length, 16):
        e = exp2(larger(load(data, s_at + i) - top, splat(F(-120.0))))
        store(data, s_at + i, e)
        total = total + e
        prediction = fma(e, load(data, r_at + i), prediction)
    share = splat(F(1.0)) / total
    prediction = prediction * share
    for i in range(0, 16 * length, 16):
        p = load(data, s_at + i) * share
        store(data, s_at + i, p)
        store(data, r_at + i, p * (load(data, r_at + i) - prediction))
    return prediction, largest < np.int32(0x7F800000)


@inner
def collect(data, z_at, s_at, a_at, c_at, n, length, weighted, scale):
    """A = sum p z and scale C = scale sum p (V z - V A) z, both times `weighted`; three columns at a time."""
    align_stack()
    r_at, weighted_c = s_at + 16 * length, weighted * splat(scale)
    for first in range(0, n, 3):
        k = 16 * min(first, n - 3)
        at = z_at + k
        a0, a1, a2 = splat(F(0.0)), splat(F(0.0)), splat(F(0.0))
        c0, c1, c2 = splat(F(0.0)), splat(F(0.0)), splat(F(0.0))
        for i in range(0, 16 * length, 16):
            p, t = load(data, s_at + i), load(data, r_at + i)
            z0, z1, z2 = load(data, at), load(data, at + 16), load(data, at + 32)
            a0, a1, a2 = fma(p, z0, a0), fma(p, z1, a1), fma(p, z2, a2)
            c0, c1, c2 = fma(t, z0, c0), fma(t, z1, c1), fma(t, z2, c2)
            at += 16 * n
        store(data, a_at + k, a0 * weighted)
        store(data, a_at + k + 16, a1 * weighted)
        store(data, a_at + k + 32, a2 * weighted)
        store(data, c_at + k, c0 * weighted_c)
        store(data, c_at + k + 16, c1 * weighted_c)
        store(data, c_at + k + 32, c2 * weighted_c)


@inner
def products(data, left_at, rows_at, to, n, width, blocks):
    """The sum over prompts of left x row', (n, n), of vectors of blocks and of rows; six rows at a time.

    Columns from the last to the first: a vector writes up to 15 numbers too many, in whose place others are written later.
    """
    align_stack()
    for first in range(0, n, 6):
        a = min(first, n - 6)
        for part in range(width - 16, -1, -16):
            left, row = left_at + 16 * a, rows_at + part
            t0, t1, t2 = splat(F(0.0)), splat(F(0.0)), splat(F(0.0))
            t3, t4, t5 = splat(F(0.0)), splat(F(0.0)), splat(F(0.0))
            for _ in range(blocks):
                for at in range(left, left + 16):
                    x = load(data, row)
                    t0, t1 = fma(splat_at(data, at), x, t0), fma(splat_at(data, at + 16), x, t1)
                    t2, t3 = fma(splat_at(data, at + 32), x, t2), fma(splat_at(data, at + 48), x, t3)
                    t4, t5 = fma(splat_at(data, at + 64), x, t4), fma(splat_at(data, at + 80), x, t5)
                    row += width
                left += 16 * n
            at = to + n * a + part
            store_any(data, at, t0)
            store_any(data, at + n, t1)
            store_any(data, at + 2 * n, t2)
            store_any(data, at + 3 * n, t3)
            store_any(data, at + 4 * n, t4)
            store_any(data, at + 5 * n, t5)


@inner
def output_value(data, w_at, row_at, v_at, n):
    """V = W_O W_V, at `v_at` each number in all lanes; `row_at`: room for V as a row."""
    for part in range(0, n, 16):
        store(data, row_at + part, splat(F(0.0)))
    for a in range(n):
        w, at = splat_at(data, w_at + 3 * n * n + a), w_at + 2 * n * n + a * n
        for part in range(0, n, 16):
            store(data, row_at + part, fma(w, load_any(data, at + part), load(data, row_at + part)))
    for j in range(n):
        store(data, v_at + 16 * j, splat_at(data, row_at + j))


@inner
def outer_gradient(data, w_at, row_at, out_at, n):
    """dW_V = W_O' dV and dW_O = W_V dV; dV is a row with zeros behind."""
    for a in range(n):
        w, to = splat_at(data, w_at + 3 * n * n + a), out_at + 2 * n * n + a * n
        for part in range(0, n, 16):
            store_any(data, to + part, w * load(data, row_at + part))
    for a in range(n):
        total, at = splat(F(0.0)), w_at + 2 * n * n + a * n
        for part in range(0, n, 16):
            total = fma(load_any(data, at + part), load(data, row_at + part), total)
        data[out_at + 3 * n * n + a] = lane_sum(total)


@outer
def train(
    d, heads, runs, data, bits, areas, key_low, key_high, stream, first_step, first, last, length, batch, beta_std,
    noise_std, target_noise_std, kind, rates, decay, b1, b2, eps, losses,
):  # fmt: skip
    """As `train` of `_source`, with d."""
    align_stack()
    n, blocks = d + 1, (batch + 15) // 16
    width, vectors = (n + 15) // 16 * 16, 16 * n * blocks
    prompt_at, z_at, x_rows, s_at, u_at, v_at, q_at, k_at, a_at, c_at, c_rows, row_at, slope_at, state_at, size = areas
    scale = F(1.0 / math.sqrt(n))
    for i in range(first, last):
        step = first_step + i
        c1 = F(1.0 / (1.0 - b1 ** (step + 1)))
        c2 = F(1.0 / math.sqrt(1.0 - b2 ** (step + 1)))
        for r in range(runs):
            w_at = state_at + 3 * size * r
            for h in range(heads):
                output_value(data, w_at + h * (3 * n * n + n), row_at, v_at + 16 * n * h, n)
            finite, squares = True, splat(F(0.0))
            for b in range(blocks):
                # Prompts serve all runs; a single run uses each block's tokens at once, in the same place.
                here = 0 if runs == 1 else b
                at, tokens = prompt_at + 32 * n * here, z_at + 16 * n * length * here
                if r == 0:
                    draw(
                        data, at, tokens, x_rows + 16 * width * b, d, width, length, key_low, key_high, 16 * b, step, stream,
                        beta_std, noise_std, target_noise_std,
                    )  # fmt: skip
                # Forward: q = W_Q z_q, u = W_K' q, and the heads' predictions less the target.
                error = splat(F(0.0)) - load(data, at + 32 * d + 16)
                for h in range(heads):
                    w, q = w_at + h * (3 * n * n + n), q_at + vectors * h + 16 * n * b
                    times(data, w, at + 16 * d, q, n)
                    times_transposed(data, w + n * n, q, u_at, n, scale * F(1.4426950408889634))
                    found = attend(data, bits, tokens, u_at, v_at + 16 * n * h, s_at + 32 * length * h, n, length)
                    error, finite = error + found[0], finite and found[1]
                # Loss, its slope 2 error / B in the prediction, and what that makes of A and C; W_K C.
                weighted = error * load(data, 0 if b == blocks - 1 else 16)
                squares = fma(weighted, error, squares)
                weighted = weighted * splat(F(2.0) / F(batch))
                for h in range(heads):
                    w, here = w_at + h * (3 * n * n + n), vectors * h + 16 * n * b
                    collect(data, tokens, s_at + 32 * length * h, a_at + here, c_at, n, length, weighted, scale)
                    turn(data, c_at, c_rows + width * 16 * (blocks * h + b), n, width)
                    times(data, w + n * n, c_at, k_at + here, n)
            losses[r, i] = lane_sum(squares) / F(batch) if finite else F(np.nan)
            # dW_Q = sum (W_K C) z_q', dW_K = sum (W_Q z_q) C', dV = sum A; then the optimiser's step.
            for h in range(heads):
                w, to = w_at + h * (3 * n * n + n), slope_at + h * (3 * n * n + n)
                products(data, k_at + vectors * h, x_rows, to, n, width, blocks)
                products(data, q_at + vectors * h, c_rows + width * 16 * blocks * h, to + n * n, n, width, blocks)
                for j in range(n):
                    total = splat(F(0.0))
                    for b in range(blocks):
                        total = total + load(data, a_at + vectors * h + 16 * (n * b + j))
                    data[row_at + j] = lane_sum(total)
                for j in range(n, width):
                    data[row_at + j] = F(0.0)
                outer_gradient(data, w_at + h * (3 * n * n + n), row_at, to, n)
            update(data, w_at, size, slope_at, kind, F(rates[r]), F(decay), F(b1), F(b2), F(eps), c1, c2)


@outer
def fill(out, data, key_low, key_high, stream, first_step, steps, batch):
    """Raw normals (steps, batch, count) in the order of prompt_stream."""
    for i in range(steps):
        for b in range((batch + 15) // 16):
            fresh(data, 0, out.shape[2], philox(key_low, key_high, 16 * b, first_step + i, stream))
            for lane in range(min(16, batch - 16 * b)):
                for c in range(out.shape[2]):
                    out[i, 16 * b + lane, c] = data[16 * c + lane]
