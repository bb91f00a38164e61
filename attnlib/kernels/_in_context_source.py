"""Source of the compiled loop of in-context regression for one d: every feature of a token is a name, so it stays in a register.

Lanes are prompts: a block is 16 prompts, `data` one float32 buffer in which a token of a block is n = d + 1 vectors.
Scores are in units of log 2 and clamped to [-120, 118], without the maximum subtracted; where a total leaves
[1e-25, 1e30], `shifted_scores` does the block again with it subtracted.
"""

from __future__ import annotations

__all__ = ["source"]

_HEADER = '''"""Compiled loop of in-context regression for d = {d}: made by attnlib, safe to delete."""

import math

import numpy as np
from numba import njit

from attnlib.kernels._simd import (
    align_stack, any_outside, dot, exp2, fma, lane_sum, larger, load, normal_pair, philox, smaller, splat, store,
)

F = np.float32
D, N, P = {d}, {n}, {parameters}
'''

_DECORATOR = '@njit(nogil=True, error_model="numpy", cache=True)'

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
        first, second, state = normal_pair(state)
        store(data, 32 * i, first)
        store(data, 32 * i + 16, second)
"""

_FINISH = '''
@njit(nogil=True, error_model="numpy", cache=True)
def merge(weights, slopes, values):
    """log2(e) M (first d columns) and V of every head; returns 0, or NaN if they are not finite."""
    check = F(0.0)
    scale = F({merge_scale})
    for h in range(weights.shape[0]):
        for i in range(N):
            for j in range(D):
                total = F(0.0)
                for a in range(N):
                    total += weights[h, N * N + a * N + i] * weights[h, a * N + j]
                slopes[h, i * D + j] = scale * total
                check += total
        for j in range(N):
            total = F(0.0)
            for a in range(N):
                total += weights[h, 3 * N * N + a] * weights[h, 2 * N * N + a * N + j]
            values[h, j] = total
            check += total
    return F(0.0) * check


@njit(nogil=True, error_model="numpy", cache=True)
def note(weights, key_query, output_value):
    """M with all its columns and V of every head."""
    for h in range(weights.shape[0]):
        for i in range(N):
            for j in range(N):
                total = F(0.0)
                for a in range(N):
                    total += weights[h, N * N + a * N + i] * weights[h, a * N + j]
                key_query[h, i, j] = F({note_scale}) * total
        for j in range(N):
            total = F(0.0)
            for a in range(N):
                total += weights[h, 3 * N * N + a] * weights[h, 2 * N * N + a * N + j]
            output_value[h, j] = total


@njit(nogil=True, error_model="numpy", cache=True)
def factor_gradient(weights, sums, out):
    """Gradient of W_Q, W_K, W_V, W_O of one head from sums = (dM (n, d), dV (n))."""
    scale = F({note_scale})
    for j in range(N * D):
        sums[j] *= scale
    for a in range(N):
        for j in range(N):
            out[a * N + j] = F(0.0)
        for i in range(N):
            key = weights[N * N + a * N + i]
            for j in range(D):
                out[a * N + j] += key * sums[i * D + j]
            total = F(0.0)
            for j in range(D):
                total += weights[a * N + j] * sums[i * D + j]
            out[N * N + a * N + i] = total
        output = weights[3 * N * N + a]
        total = F(0.0)
        for j in range(N):
            out[2 * N * N + a * N + j] = output * sums[N * D + j]
            total += weights[2 * N * N + a * N + j] * sums[N * D + j]
        out[3 * N * N + a] = total


@njit(nogil=True, error_model="numpy", cache=True)
def update(kind, weights, first, second, slope, rate, decay, b1, b2, eps, c1, c2):
    """kind 0: SGD, 1: Adam, 2: AdamW. c1 = 1/(1 - b1^t), c2 = 1/sqrt(1 - b2^t)."""
    if kind == 2:
        keep = F(1.0) - rate * decay
        for i in range(P):
            weights[i] *= keep
    elif decay != F(0.0):
        for i in range(P):
            slope[i] += decay * weights[i]
    if kind == 0:
        for i in range(P):
            weights[i] -= rate * slope[i]
    else:
        size = rate * c1
        for i in range(P):
            m = first[i] + (F(1.0) - b1) * (slope[i] - first[i])
            v = b2 * second[i] + (F(1.0) - b2) * slope[i] * slope[i]
            first[i] = m
            second[i] = v
            weights[i] -= size * m / (F(math.sqrt(v)) * c2 + eps)
'''

_TRAIN = '''
@njit(nogil=True, error_model="numpy", cache=True)
def train(
    weights, first, second, data, key_low, key_high, stream, first_step, steps, length, batch, beta_std, noise_std,
    target_noise_std, kind, rates, decay, b1, b2, eps, record, losses, key_query, output_value,
):
    """All steps of replicas that share one stream. `data` begins with the last block's lane weights, then ones."""
    align_stack()
    replicas, heads = weights.shape[0], weights.shape[1]
    blocks = (batch + 15) // 16
    held = 1 if replicas == 1 else blocks  # blocks of data kept: one replica uses each at once
    y_at = 32
    x_at = y_at + 16 * held
    z_at = x_at + 16 * D * held
    e_at = z_at + 16 * N * length * held
    means_at = e_at + 16 * length
    sums_at = means_at + 32 * N * heads
    slopes = np.empty((heads, N * D), dtype=F)
    values = np.empty((heads, N), dtype=F)
    sums = np.empty(N * D + N, dtype=F)
    slope = np.empty((heads, P), dtype=F)
    place = 0
    for i in range(steps):
        step = first_step + i
        if place < record.shape[0] and record[place] == step:
            for r in range(replicas):
                note(weights[r], key_query[r, place], output_value[r, place])
            place += 1
        c1 = F(1.0 / (1.0 - b1 ** (step + 1)))
        c2 = F(1.0 / math.sqrt(1.0 - b2 ** (step + 1)))
        if replicas > 1:
            for b in range(blocks):
                draw(data, z_at + 16 * N * length * b, x_at + 16 * D * b, y_at + 16 * b, key_low, key_high, 16 * b, step,
                     stream, length, beta_std, noise_std, target_noise_std)
        for r in range(replicas):
            poison = merge(weights[r], slopes, values)
            for v in range(heads * N * (D + 1)):
                store(data, sums_at + 16 * v, splat(F(0.0)))
            squares = splat(F(0.0))
            for b in range(blocks):
                here = 0 if replicas == 1 else b
                if replicas == 1:
                    draw(data, z_at, x_at, y_at, key_low, key_high, 16 * b, step, stream, length, beta_std, noise_std,
                         target_noise_std)
                error = splat(F(0.0)) - load(data, y_at + 16 * here)
                for h in range(heads):
                    error = error + attend(data, z_at + 16 * N * length * here, x_at + 16 * D * here, e_at,
                                           means_at + 32 * N * h, slopes[h], values[h], length)
                weighted = error * load(data, 0 if b == blocks - 1 else 16)
                squares = fma(weighted, error, squares)
                weighted = weighted * splat(F(2.0) / F(batch))
                for h in range(heads):
                    collect(data, x_at + 16 * D * here, means_at + 32 * N * h, sums_at + 16 * N * (D + 1) * h, weighted)
            losses[r, i] = lane_sum(squares) / F(batch) + poison
            for h in range(heads):
                for v in range(N * D + N):
                    sums[v] = lane_sum(load(data, sums_at + 16 * (N * (D + 1) * h + v)))
                factor_gradient(weights[r, h], sums, slope[h])
            for h in range(heads):
                update(kind, weights[r, h], first[r, h], second[r, h], slope[h], F(rates[r]), F(decay), F(b1), F(b2), F(eps),
                       c1, c2)
    if place < record.shape[0]:
        for r in range(replicas):
            note(weights[r], key_query[r, place], output_value[r, place])


@njit(nogil=True, error_model="numpy", cache=True)
def fill(out, data, key_low, key_high, stream, first_step, steps, batch, length):
    """Raw normals (steps, batch, count) in the order of prompt_stream.layout."""
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


def _pairs(names: list[str], depth: int) -> list[str]:
    return [f"{' ' * depth}{a}, {b}, state = normal_pair(state)" for a, b in zip(names[::2], names[1::2], strict=True)]


def _draw(d: int) -> list[str]:
    """Prompts of 16 lanes: beta, query, target, then the tokens (x, y)."""
    beta, query = [f"b{j}" for j in range(d)], [f"x{j}" for j in range(d)]
    token = [f"z{j}" for j in range(d)] + ["y"] + ["unused"] * (1 - d % 2)
    lines = [*_DRAW.splitlines(), *_pairs([*beta, *query, "noise", "unused"], 4)]
    lines += [f"    {b} = {b} * splat(beta_std)" for b in beta]
    lines += [f"    store(data, x_at + {16 * j}, x{j})" for j in range(d)]
    lines += [f"    store(data, y_at, fma(noise, splat(target_noise_std), {_dots('x', 'b', d)}))"]
    lines += ["    for _ in range(length):", *_pairs(token, 8)]
    lines += [f"        store(data, z_at + {16 * j}, z{j})" for j in range(d)]
    lines += [f"        store(data, z_at + {16 * d}, fma(y, splat(noise_std), {_dots('z', 'b', d)}))"]
    return [*lines, f"        z_at += {16 * (d + 1)}"]


def _scores(n: int, *, shifted: bool) -> list[str]:
    """Body of the first loop over tokens: e = 2^score, its total and the sums of e z."""
    lines = [f"        z{j} = load(data, at + {16 * j})" for j in range(n)]
    lines += [f"        s = {_dots('u', 'z', n)}" + (" - top" if shifted else "")]
    lines += ["        e = exp2(larger(smaller(s, splat(F(118.0))), splat(F(-120.0))))"]
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
    lines += [*decorator, "def attend(data, z_at, x_at, e_at, out_at, slopes, values, length):", "    align_stack()"]
    lines += [f"    x{k} = load(data, x_at + {16 * k})" for k in range(d)]
    for j in range(n):
        lines += [f"    u{j} = {_dot([f'splat(slopes[{j * d + k}])' for k in range(d)], [f'x{k}' for k in range(d)])}"]
    lines += [*zero, "    at = z_at", "    for i in range(length):", *_scores(n, shifted=False)]
    lines += ["    if any_outside(total, splat(F(1e-25)), splat(F(1e30))):"]
    lines += [f"        {sums} = shifted_scores(data, z_at, e_at, length, {slopes})"]
    lines += [f"    v{j} = splat(values[{j}])" for j in range(n)]
    lines += [f"    c{j} = splat(F(0.0))" for j in range(n)]
    lines += ["    at = z_at", "    for i in range(length):"]
    lines += [f"        z{j} = load(data, at + {16 * j})" for j in range(n)]
    lines += [f"        t = load(data, e_at + 16 * i) * ({_dots('v', 'z', n)})"]
    lines += [f"        c{j} = fma(t, z{j}, c{j})" for j in range(n)]
    lines += [f"        at += {16 * n}", "    share = splat(F(1.0)) / total"]
    lines += [f"    a{j} = a{j} * share" for j in range(n)]
    lines += [f"    prediction = {_dots('v', 'a', n)}"]
    lines += [f"    store(data, out_at + {16 * j}, a{j})" for j in range(n)]
    lines += [f"    store(data, out_at + {16 * (n + j)}, c{j} * share - prediction * a{j})" for j in range(n)]
    return [*lines, "    return prediction"]


def _collect(d: int) -> list[str]:
    """Add one block's share of dM and dV of one head, lane by lane."""
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
    finish = _FINISH.format(merge_scale=repr(1.4426950408889634 / n**0.5), note_scale=repr(1 / n**0.5))
    return header + body + "\n\n" + finish + _TRAIN
