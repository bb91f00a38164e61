"""Source of the compiled loop of in-context regression for one d: every feature of a token is a name, so it stays in a register.

Lanes are prompts: a block is 16 prompts, `data` one float32 buffer in which a token of a block is n = d + 1 vectors.
Scores are in units of log 2. No maximum is subtracted from them while the sum of their squares over a prompt is at most
10^4, so that none is beyond 100 in size and no power of two overflows; otherwise `shifted_scores` does the block again
with the maximum subtracted.
"""

from __future__ import annotations

import itertools
import re

_HEADER = '''"""Compiled loop of in-context regression for d = {d}: made by attnlib, safe to delete."""

import math

import numpy as np
from numba import njit

from attnlib.kernels._simd import (
    align_stack, any_outside, fma, lane_sum, larger, load, load_any, splat, store, store_any,
)
from attnlib.kernels._simd_functions import dot, dot_minus, exp2, normals, philox
from attnlib.kernels._update import inner, update

outer = njit(nogil=True, error_model="numpy", cache=True)
F, I = np.float32, np.int64  # I(constant): a constant would be a type of its own, and `combine` compiled for each
D, N, P = {d}, {n}, {parameters}
MERGE_SCALE, GRADIENT_SCALE = {merge!r}, {gradient!r}  # log2(e) / sqrt(n), 1 / sqrt(n)
'''

# A line with j or k in it stands for one each of j < n, k < d: z_j for z0, z1, ... `(z_j for j)` is a tuple, with * what is in it.
_BLOCK = """
@inner
def draw(data, z_at, x_at, y_at, key_low, key_high, prompt, step, stream, length, beta_std, noise_std, target_noise_std):
    # Prompts of 16 lanes: beta, query, target.
    align_stack()
    state = philox(key_low, key_high, prompt, step, stream)
    *(b_k for k), *(x_k for k), noise, unused, state = normals(state, 2 * d + 2)
    b_k = b_k * splat(beta_std)
    store(data, x_at + 16 * k, x_k)
    store(data, y_at, fma(noise, splat(target_noise_std), dot((x_k for k), (b_k for k))))
    # Then the tokens (x, y), y = <x, beta> + noise.
    for _ in range(length):
        *(z_k for k), y, PAD state = normals(state, n + n % 2)
        store(data, z_at + 16 * k, z_k)
        store(data, z_at + 16 * d, fma(y, splat(noise_std), dot((z_k for k), (b_k for k))))
        z_at += 16 * n


@inner
def shifted_scores(data, z_at, e_at, length, *(u_j for j)):
    # The first loop of `attend`, with the largest score subtracted: that is sought before.
    align_stack()
    top = splat(F(-3e38))
    at = z_at
    for i in range(length):
        z_j = load(data, at + 16 * j)
        top = larger(top, dot((u_j for j), (z_j for j)))
        at += 16 * n
    total = splat(F(0.0))
    a_j = splat(F(0.0))
    at = z_at
    for i in range(length):
        z_j = load(data, at + 16 * j)
        s = dot((u_j for j), (z_j for j))
        e = exp2(larger(s - top, splat(F(-120.0))))
        store(data, e_at + 16 * i, e)
        total = total + e
        a_j = fma(e, z_j, a_j)
        at += 16 * n
    return total, *(a_j for j)


@inner
def attend(data, z_at, x_at, e_at, out_at, circuits_at, length):
    # One head on one block: its prediction; A and C are kept at `out_at`. First u = M x_q, in units of log 2.
    align_stack()
    x_k = load(data, x_at + 16 * k)
    u_j = dot((splat(data[circuits_at + n * j + k]) for k), (x_k for k))
    # Scores s = u.z, e = 2^s, their total and the sums of e z.
    total = splat(F(0.0))
    a_j = splat(F(0.0))
    squares = splat(F(0.0))
    at = z_at
    for i in range(length):
        z_j = load(data, at + 16 * j)
        s = dot((u_j for j), (z_j for j))
        squares = fma(s, s, squares)
        e = exp2(s)
        store(data, e_at + 16 * i, e)
        total = total + e
        a_j = fma(e, z_j, a_j)
        at += 16 * n
    if any_outside(squares, splat(F(0.0)), splat(F(1e4))):
        total, *(a_j for j), = shifted_scores(data, z_at, e_at, length, *(u_j for j))
    # A = sum e z / total, and the prediction V A.
    v_j = splat(data[circuits_at + n * n + j])
    share = splat(F(1.0)) / total
    a_j = a_j * share
    prediction = dot((v_j for j), (a_j for j))
    # C = sum e (V z - V A) z / total.
    c_j = splat(F(0.0))
    at = z_at
    for i in range(length):
        z_j = load(data, at + 16 * j)
        t = load(data, e_at + 16 * i) * dot_minus((v_j for j), (z_j for j), prediction)
        c_j = fma(t, z_j, c_j)
        at += 16 * n
    store(data, out_at + 16 * j, a_j)
    store(data, out_at + 16 * (n + j), c_j * share)
    return prediction


@inner
def collect(data, x_at, from_at, sums_at, weighted):
    # One block's part of dM = g C x_q' and dV = g A of one head, lane by lane.
    align_stack()
    x_k = load(data, x_at + 16 * k)
    for row in range(N):
        c = weighted * load(data, from_at + 16 * (n + row))
        store(data, sums_at + 16 * (d * row + k), fma(c, x_k, load(data, sums_at + 16 * (d * row + k))))
    for row in range(N):
        at = sums_at + 16 * (n * d + row)
        store(data, at, fma(weighted, load(data, from_at + 16 * row), load(data, at)))
"""

_LOOPS = '''
@inner
def combine(data, to, count, left, step, rows, scale):
    """data[to : to + N] = scale x the sum over i < count of data[left + i step] x (row i of data at `rows`, N long).

    Writes up to 15 numbers too many: what follows must be written later.
    """
    for part in range(0, N, 16):
        total = splat(F(0.0))
        for i in range(count):
            total = fma(splat(data[left + i * step]), load_any(data, rows + i * N + part), total)
        store_any(data, to + part, total * splat(scale))


@inner
def merge(data, bits, heads, w_at, circuits_at, scale):
    """scale x W_K^T W_Q and W_O W_V of every head, N rows and one; whether all of it is finite."""
    for h in range(heads):
        for i in range(N):
            combine(data, circuits_at + i * N, I(N), w_at + N * N + i, I(N), w_at, scale)
        combine(data, circuits_at + N * N, I(N), w_at + 3 * N * N, I(1), w_at + 2 * N * N, F(1.0))
        w_at += P
        circuits_at += N * N + N
    largest = np.int32(0)
    for i in range(circuits_at - heads * (N * N + N), circuits_at):
        size = bits[i] & np.int32(0x7FFFFFFF)
        if size > largest:
            largest = size
    return largest < np.int32(0x7F800000)


@inner
def factor_gradient(data, w_at, sums_at, g_at, out_at):
    """Gradient of W_Q, W_K, W_V, W_O of one head from the lanes' sums of dM (N, D) and dV (N).

    `g_at`: dM with its last column, which is zero, then its transpose, then dV.
    """
    t_at, v_at = g_at + N * N, g_at + 2 * N * N
    for i in range(N):
        for j in range(D):
            total = lane_sum(load(data, sums_at + 16 * (i * D + j))) * F(GRADIENT_SCALE)
            data[g_at + i * N + j] = total
            data[t_at + j * N + i] = total
        data[v_at + i] = lane_sum(load(data, sums_at + 16 * (N * D + i)))
    for a in range(N):
        combine(data, out_at + a * N, I(N), w_at + N * N + a * N, I(1), g_at, F(1.0))
    for a in range(N):
        combine(data, out_at + N * N + a * N, I(D), w_at + a * N, I(1), t_at, F(1.0))
    for a in range(N):
        combine(data, out_at + 2 * N * N + a * N, I(1), w_at + 3 * N * N + a, I(1), v_at, F(1.0))
    for a in range(N):
        total = F(0.0)
        for j in range(N):
            total += data[w_at + 2 * N * N + a * N + j] * data[v_at + j]
        data[out_at + 3 * N * N + a] = total


@outer
def train(
    heads, runs, data, bits, areas, key_low, key_high, stream, first_step, first, last, length, batch, beta_std,
    noise_std, target_noise_std, kind, rates, decay, b1, b2, eps, losses,
):
    """Steps first ... last - 1 of a call that begins at `first_step`, of runs that share one stream.

    `data` begins with the last block's lane weights, then ones; the runs' states lie at its end.
    """
    align_stack()
    blocks = (batch + 15) // 16
    y_at, x_at, z_at, e_at, means_at, sums_at, circuits_at, g_at, slope_at, state_at, size = areas
    for i in range(first, last):
        step = first_step + i
        c1 = F(1.0 / (1.0 - b1 ** (step + 1)))
        c2 = F(1.0 / math.sqrt(1.0 - b2 ** (step + 1)))
        # The prompts of this step, block by block; a single run uses each block at once, in the same place.
        if runs > 1:
            for b in range(blocks):
                draw(data, z_at + 16 * N * length * b, x_at + 16 * D * b, y_at + 16 * b, key_low, key_high, 16 * b, step,
                     stream, length, beta_std, noise_std, target_noise_std)
        for r in range(runs):
            # M and V of every head.
            w_at = state_at + 3 * size * r
            finite = merge(data, bits, heads, w_at, circuits_at, F(MERGE_SCALE))
            for v in range(heads * N * (D + 1)):
                store(data, sums_at + 16 * v, splat(F(0.0)))
            squares = splat(F(0.0))
            for b in range(blocks):
                here = 0 if runs == 1 else b
                if runs == 1:
                    draw(data, z_at, x_at, y_at, key_low, key_high, 16 * b, step, stream, length, beta_std, noise_std,
                         target_noise_std)
                # Forward: the heads' predictions less the target.
                error = splat(F(0.0)) - load(data, y_at + 16 * here)
                for h in range(heads):
                    error = error + attend(data, z_at + 16 * N * length * here, x_at + 16 * D * here, e_at,
                                           means_at + 32 * N * h, circuits_at + (N * N + N) * h, length)
                # Loss, its slope 2 error / B in the prediction, and what that adds to dM and dV.
                weighted = error * load(data, 0 if b == blocks - 1 else 16)
                squares = fma(weighted, error, squares)
                weighted = weighted * splat(F(2.0) / F(batch))
                for h in range(heads):
                    collect(data, x_at + 16 * D * here, means_at + 32 * N * h, sums_at + 16 * N * (D + 1) * h, weighted)
            # Chain rule to the four matrices, and the optimiser's step.
            losses[r, i] = lane_sum(squares) / F(batch) if finite else F(np.nan)
            for h in range(heads):
                factor_gradient(data, w_at + P * h, sums_at + 16 * N * (D + 1) * h, g_at, slope_at + P * h)
            update(data, w_at, size, slope_at, kind, F(rates[r]), F(decay), F(b1), F(b2), F(eps), c1, c2)
'''


def _number(text: str, **numbers: int) -> str:
    """z_j and j of a text with their numbers."""
    for letter, number in numbers.items():
        text = re.sub(rf"_{letter}\b", str(number), re.sub(rf"\b{letter}\b", str(number), text))
    return text


def _block(d: int) -> str:
    """`_BLOCK` for one d."""
    counts, lines = {"j": d + 1, "k": d}, []

    def tuple_of(found: re.Match[str]) -> str:
        star, one, letter = found.groups()
        members = ", ".join(_number(one, **{letter: i}) for i in range(counts[letter]))
        return members if star else f"({members},)"

    for line in _BLOCK.replace("PAD ", "" if d % 2 else "unused, ").splitlines():
        if not line.lstrip().startswith("#"):
            line = _number(re.sub(r"(\*?)\(((?:[^()]|\([^()]*\))*) for ([jk])\)", tuple_of, line), d=d, n=d + 1)
            named = [letter for letter in counts if re.search(rf"(\b|_){letter}\b", line)]
            every = itertools.product(*(range(counts[letter]) for letter in named))
            lines += [_number(line, **dict(zip(named, numbers, strict=True))) for numbers in every]
    return "\n".join(lines)


def source(d: int) -> str:
    """Python source of a module with `train` for prompts of dimension d."""
    n = d + 1
    header = _HEADER.format(d=d, n=n, parameters=3 * n * n + n, merge=1.4426950408889634 / n**0.5, gradient=1 / n**0.5)
    return header + _block(d) + "\n\n" + _LOOPS
