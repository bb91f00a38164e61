"""Source of the compiled loop of in-context regression for one d: every feature of a token is a name, so it stays in a register.

Lanes are prompts: a block is 16 prompts, `data` one float32 buffer in which a token of a block is n = d + 1 vectors.
Scores are in units of log 2. No maximum is subtracted from them while the sum of their squares over a prompt is at most
10^4, so that none is beyond 100 in size and no power of two overflows; otherwise `shifted_scores` does the block again
with the maximum subtracted.
"""

from __future__ import annotations

_HEADER = '''"""Compiled loop of in-context regression for d = {d}: made by attnlib, safe to delete."""

import math

import numpy as np
from numba import njit

from attnlib.kernels._simd import (
    align_stack, any_outside, fma, lane_sum, larger, load, load_any, splat, sqrt, store, store_any,
)
from attnlib.kernels._simd_functions import dot, dot_minus, exp2, normals, philox

# Functions called from compiled code only need no way in from Python: a tenth of the time to compile.
inner = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
outer = njit(nogil=True, error_model="numpy", cache=True)
F, I = np.float32, np.int64  # I(constant): a constant would be a type of its own, and `combine` compiled for each
D, N, P = {d}, {n}, {parameters}
'''

_DECORATOR = "@inner"

_DRAW = f"""
{_DECORATOR}
def draw(data, z_at, x_at, y_at, key_low, key_high, prompt, step, stream, length, beta_std, noise_std, target_noise_std):
    align_stack()
    state = philox(key_low, key_high, prompt, step, stream)
"""

_DRAW_RAW = f"""

{_DECORATOR}
def draw_raw(data, key_low, key_high, prompt, step, stream, length):
    state = philox(key_low, key_high, prompt, step, stream)
    for i in range(D + 1 + length * ((D + 2) // 2)):
        first, second, state = normals(state, 2)
        store(data, 32 * i, first)
        store(data, 32 * i + 16, second)
"""

_FINISH = '''
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
            total = lane_sum(load(data, sums_at + 16 * (i * D + j))) * F({note_scale})
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


@inner
def update(data, w_at, size, slope_at, kind, rate, decay, b1, b2, eps, c1, c2):
    """kind 0: SGD, 1: Adam, 2: AdamW; moments lie `size` and 2 `size` after the weights. c1 = 1/(1 - b1^t), c2 = 1/sqrt(1 - b2^t)."""
    align_stack()
    for i in range(0, size, 16):
        w = load(data, w_at + i)
        slope = load(data, slope_at + i)
        if kind == 2:
            w = w * splat(F(1.0) - rate * decay)
        else:
            slope = fma(splat(decay), w, slope)
        if kind == 0:
            w = w - splat(rate) * slope
        else:
            m, v = load(data, w_at + size + i), load(data, w_at + 2 * size + i)
            m = fma(splat(F(1.0) - b1), slope - m, m)
            v = fma(splat(F(1.0) - b2) * slope, slope, splat(b2) * v)
            store(data, w_at + size + i, m)
            store(data, w_at + 2 * size + i, v)
            w = w - splat(rate * c1) * m / fma(sqrt(v), splat(c2), splat(eps))
        store(data, w_at + i, w)
'''

_TRAIN = '''
@outer
def train(
    heads, runs, data, bits, areas, key_low, key_high, stream, first_step, first, last, length, batch, beta_std,
    noise_std, target_noise_std, kind, rates, decay, b1, b2, eps, losses,
):
    """Steps first ... last - 1 of a call that begins at `first_step`, of runs that share one stream.

    `data` begins with the last block's lane weights, then ones.

    The runs' states lie at the end of `data`.
    """
    align_stack()
    blocks = (batch + 15) // 16
    y_at, x_at, z_at, e_at, means_at, sums_at, circuits_at, g_at, slope_at, state_at, size = areas
    for i in range(first, last):
        step = first_step + i
        c1 = F(1.0 / (1.0 - b1 ** (step + 1)))
        c2 = F(1.0 / math.sqrt(1.0 - b2 ** (step + 1)))
        if runs > 1:  # one run uses each block at once, in the same place
            for b in range(blocks):
                draw(data, z_at + 16 * N * length * b, x_at + 16 * D * b, y_at + 16 * b, key_low, key_high, 16 * b, step,
                     stream, length, beta_std, noise_std, target_noise_std)
        for r in range(runs):
            w_at = state_at + 3 * size * r
            finite = merge(data, bits, heads, w_at, circuits_at, F({merge_scale}))
            for v in range(heads * N * (D + 1)):
                store(data, sums_at + 16 * v, splat(F(0.0)))
            squares = splat(F(0.0))
            for b in range(blocks):
                here = 0 if runs == 1 else b
                if runs == 1:
                    draw(data, z_at, x_at, y_at, key_low, key_high, 16 * b, step, stream, length, beta_std, noise_std,
                         target_noise_std)
                error = splat(F(0.0)) - load(data, y_at + 16 * here)
                for h in range(heads):
                    error = error + attend(data, z_at + 16 * N * length * here, x_at + 16 * D * here, e_at,
                                           means_at + 32 * N * h, circuits_at + (N * N + N) * h, length)
                weighted = error * load(data, 0 if b == blocks - 1 else 16)
                squares = fma(weighted, error, squares)
                weighted = weighted * splat(F(2.0) / F(batch))
                for h in range(heads):
                    collect(data, x_at + 16 * D * here, means_at + 32 * N * h, sums_at + 16 * N * (D + 1) * h, weighted)
            losses[r, i] = lane_sum(squares) / F(batch) if finite else F(np.nan)
            for h in range(heads):
                factor_gradient(data, w_at + P * h, sums_at + 16 * N * (D + 1) * h, g_at, slope_at + P * h)
            update(data, w_at, size, slope_at, kind, F(rates[r]), F(decay), F(b1), F(b2), F(eps), c1, c2)


@outer
def fill(out, data, key_low, key_high, stream, first_step, steps, batch, length):
    """Raw normals (steps, batch, count) in the order of prompt_stream."""
    for i in range(steps):
        for b in range((batch + 15) // 16):
            draw_raw(data, key_low, key_high, 16 * b, first_step + i, stream, length)
            for lane in range(min(16, batch - 16 * b)):
                for c in range(out.shape[2]):
                    out[i, 16 * b + lane, c] = data[16 * c + lane]
'''


def _dot(first: list[str], second: list[str]) -> str:
    return f"dot(({', '.join(first)},), ({', '.join(second)},))"


def _dots(first: str, second: str, count: int) -> str:
    """dot((first0, first1, ...), (second0, second1, ...))."""
    return _dot([f"{first}{j}" for j in range(count)], [f"{second}{j}" for j in range(count)])


def _normals(names: list[str], depth: int) -> list[str]:
    return [f"{' ' * depth}{', '.join(names)}, state = normals(state, {len(names)})"]


def _draw(d: int) -> list[str]:
    """Prompts of 16 lanes: beta, query, target, then the tokens (x, y)."""
    beta, query = [f"b{j}" for j in range(d)], [f"x{j}" for j in range(d)]
    token = [f"z{j}" for j in range(d)] + ["y"] + ["unused"] * (1 - d % 2)
    lines = [*_DRAW.splitlines(), *_normals([*beta, *query, "noise", "unused"], 4)]
    lines += [f"    {b} = {b} * splat(beta_std)" for b in beta]
    lines += [f"    store(data, x_at + {16 * j}, x{j})" for j in range(d)]
    lines += [f"    store(data, y_at, fma(noise, splat(target_noise_std), {_dots('x', 'b', d)}))"]
    lines += ["    for _ in range(length):", *_normals(token, 8)]
    lines += [f"        store(data, z_at + {16 * j}, z{j})" for j in range(d)]
    lines += [f"        store(data, z_at + {16 * d}, fma(y, splat(noise_std), {_dots('z', 'b', d)}))"]
    return [*lines, f"        z_at += {16 * (d + 1)}"]


def _scores(n: int, *, shifted: bool) -> list[str]:
    """Body of the first loop over tokens: e = 2^score, its total and the sums of e z."""
    lines = [f"        z{j} = load(data, at + {16 * j})" for j in range(n)]
    lines += [f"        s = {_dots('u', 'z', n)}"]
    if shifted:
        lines += ["        e = exp2(larger(s - top, splat(F(-120.0))))"]
    else:
        lines += ["        squares = fma(s, s, squares)", "        e = exp2(s)"]
    lines += ["        store(data, e_at + 16 * i, e)", "        total = total + e"]
    lines += [f"        a{j} = fma(e, z{j}, a{j})" for j in range(n)]
    return [*lines, f"        at += {16 * n}"]


def _attend(d: int) -> list[str]:
    """One head on one block: its prediction; A and C are kept at `out_at`."""
    n = d + 1
    sums = ", ".join(["total", *(f"a{j}" for j in range(n))])
    slopes = ", ".join(f"u{j}" for j in range(n))
    zero = [f"    {name} = splat(F(0.0))" for name in sums.split(", ")]
    decorator = ["", "", _DECORATOR]
    lines = [*decorator, f"def shifted_scores(data, z_at, e_at, length, {slopes}):", "    align_stack()"]
    lines += ["    top = splat(F(-3e38))", "    at = z_at", "    for i in range(length):"]
    lines += [f"        z{j} = load(data, at + {16 * j})" for j in range(n)]
    lines += [f"        top = larger(top, {_dots('u', 'z', n)})", f"        at += {16 * n}"]
    lines += [*zero, "    at = z_at", "    for i in range(length):", *_scores(n, shifted=True), f"    return {sums}"]
    lines += [*decorator, "def attend(data, z_at, x_at, e_at, out_at, circuits_at, length):", "    align_stack()"]
    lines += [f"    x{k} = load(data, x_at + {16 * k})" for k in range(d)]
    for j in range(n):
        lines += [
            f"    u{j} = {_dot([f'splat(data[circuits_at + {j * n + k}])' for k in range(d)], [f'x{k}' for k in range(d)])}"
        ]
    lines += [*zero, "    squares = splat(F(0.0))", "    at = z_at", "    for i in range(length):"]
    lines += [*_scores(n, shifted=False), "    if any_outside(squares, splat(F(0.0)), splat(F(1e4))):"]
    lines += [f"        {sums} = shifted_scores(data, z_at, e_at, length, {slopes})"]
    lines += [f"    v{j} = splat(data[circuits_at + {n * n + j}])" for j in range(n)]
    lines += ["    share = splat(F(1.0)) / total", *(f"    a{j} = a{j} * share" for j in range(n))]
    lines += [f"    prediction = {_dots('v', 'a', n)}", *(f"    c{j} = splat(F(0.0))" for j in range(n))]
    lines += ["    at = z_at", "    for i in range(length):"]
    lines += [f"        z{j} = load(data, at + {16 * j})" for j in range(n)]
    centred = _dots("v", "z", n).replace("dot(", "dot_minus(")[:-1] + ", prediction)"
    lines += [f"        t = load(data, e_at + 16 * i) * {centred}"]
    lines += [f"        c{j} = fma(t, z{j}, c{j})" for j in range(n)]
    lines += [f"        at += {16 * n}", *(f"    store(data, out_at + {16 * j}, a{j})" for j in range(n))]
    lines += [f"    store(data, out_at + {16 * (n + j)}, c{j} * share)" for j in range(n)]
    return [*lines, "    return prediction"]


def _collect(d: int) -> list[str]:
    """Add one block's part of dM and dV of one head, lane by lane."""
    n = d + 1
    lines = ["", "", _DECORATOR]
    lines += ["def collect(data, x_at, from_at, sums_at, weighted):", "    align_stack()"]
    lines += [f"    x{k} = load(data, x_at + {16 * k})" for k in range(d)]
    for j in range(n):
        lines += [f"    c = weighted * load(data, from_at + {16 * (n + j)})"]
        for k in range(d):
            at = f"sums_at + {16 * (j * d + k)}"
            lines += [f"    store(data, {at}, fma(c, x{k}, load(data, {at})))"]
    for j in range(n):
        at = f"sums_at + {16 * (n * d + j)}"
        lines += [f"    store(data, {at}, fma(weighted, load(data, from_at + {16 * j}), load(data, {at})))"]
    return lines


def source(d: int) -> str:
    """Python source of a module with `train` and `fill` for prompts of dimension d."""
    n = d + 1
    header = _HEADER.format(d=d, n=n, parameters=3 * n * n + n)
    body = "\n".join([*_draw(d), *_DRAW_RAW.splitlines(), *_attend(d), *_collect(d)])
    loops = _FINISH + _TRAIN
    for name, value in (("merge_scale", 1.4426950408889634 / n**0.5), ("note_scale", 1 / n**0.5)):
        loops = loops.replace("{" + name + "}", repr(value))
    return header + body + "\n\n" + loops
