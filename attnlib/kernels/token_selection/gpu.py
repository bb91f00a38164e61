"""Token selection on a GPU: one Triton program per run, all steps inside, the matrices streamed through the processor.

The matrices are copied with the probes along the rows, so that S c and K c are sums over whole rows. The update of S is delayed to
the pass that forms S c of the next step; a last pass leaves S current, so a launch may end after any step.
Threads that own an element of S or K keep it; what one thread writes and another reads (c, Kc, z, u) is parted by barriers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from attnlib.kernels.batches import in_batches
from attnlib.kernels.token_selection.arguments import Call, Recorded

__all__ = ["advance", "train_run"]

_WARPS = 8
_TILE = 4096  # numbers of S that a program holds at once
_PIECE_BYTES = 2e10  # matrix bytes of one program in one launch: about a second
_RESIDENT = 264  # programs that run at the same time


@triton.jit
def _updated(s, j, here, k_at, z_at, alpha, pi, u, kappa):
    """Rows j of S with the last step's update: + u a^T + kappa b^T, a = alpha k, b = alpha (z + alpha pi k)."""
    a = alpha * tl.load(k_at + j, mask=here, other=0.0)
    b = alpha * tl.fma(a, pi + tl.zeros_like(a), tl.load(z_at + j, mask=here, other=0.0))
    flat = tl.zeros_like(s)
    s = tl.fma(a[:, None] + flat, u[None, :] + flat, s)
    return tl.fma(b[:, None] + flat, kappa[None, :] + flat, s)


@triton.jit
def _forces(values, gamma, share, inside, real, flat, token, BT: tl.constexpr):
    """c at the scores in `values`, relative to each sample's token with the largest score. share: Y / n."""
    z = tl.load(values + flat, mask=inside, other=0.0)
    z = tl.where(inside | (real == 0), z, float("-inf"))
    largest = tl.max(z, 1)[:, None]
    first = tl.min(tl.where(z == largest, token, BT), 1)[:, None]
    top = tl.sum(tl.where(token == first, gamma, 0.0), 1)[:, None]
    # f - gamma_* = sum_t e_t (gamma_t - gamma_*) / sum_t e_t with e_t = e^(z_t - z_*), as in `reference.forces`.
    e = tl.where(inside, tl.exp(z - largest), 0.0)
    gap = tl.where(inside, gamma - top, 0.0)
    total = tl.sum(e, 1)[:, None]
    total = tl.where(real, total, 1.0)
    mean = tl.sum(e * gap, 1)[:, None] / total
    margin = tl.where(share > 0, -(top + mean), top + mean)
    q = tl.exp(-tl.abs(margin))
    # sigma(-Y f): `margin` is -Y f, and q = e^-|Y f| cannot overflow.
    slope = tl.where(margin > 0, 1.0, q) / (1.0 + q)
    return slope * share / total * e * (gap - mean)


@triton.jit(
    do_not_specialize=["first", "steps", "mark", "runs", "n", "tokens", "rows", "probes", "chunks_S", "chunks_K"]
)
def train_run(
    values, S, K, prompt_norm_squared, head_scores, shares, sizes, marks, seen, seen_norm, scratch,
    first, steps, mark, runs, n, tokens, rows, probes, chunks_S, chunks_K,
    WEIGHT: tl.constexpr, PROMPT: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BS: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """Steps first ... first + steps - 1 of the run that is this program's number."""
    run = tl.program_id(0).to(tl.int64)
    N = n * tokens
    row_S = 16 * chunks_S  # a multiple of 16 for the compiler too: loads are 16 bytes wide
    row_K = 16 * chunks_K
    values += run * probes
    S += run * N * row_S
    K += run * N * row_K
    c_at = scratch + run * 3 * row_K
    k_at = c_at + row_K
    z_at = k_at + row_K
    probe = tl.arange(0, BS)
    held = probe < probes
    in_S = (probe < row_S)[None, :]
    row = tl.arange(0, BK)
    in_K = (row < row_K)[None, :]
    sample = tl.arange(0, BN)[:, None]
    token = tl.arange(0, BT)[None, :]
    real = sample < n
    inside = real & (token < tokens)
    flat = sample * tokens + token
    gamma = tl.load(head_scores + run * N + flat, mask=inside, other=0.0)
    share = tl.load(shares + run * n + sample, mask=real, other=0.0)
    pi = tl.load(prompt_norm_squared + run)
    u = tl.load(values + probe, mask=held, other=0.0)
    old = tl.zeros_like(u)
    kappa = tl.zeros_like(u)
    Sc = tl.zeros_like(u)
    old_alpha = tl.zeros_like(pi)
    old_pi = tl.zeros_like(pi)
    # Nothing is pending yet, and what the scratch held must not matter.
    tl.store(k_at + row, tl.zeros([BK], u.dtype), mask=row < rows)
    tl.store(z_at + row, tl.zeros([BK], u.dtype), mask=row < rows)
    tl.debug_barrier()
    for step in range(steps):
        if tl.load(marks + mark) == first + step:
            tl.store(seen + (mark * runs + run) * probes + probe, u, mask=held)
            tl.store(seen_norm + mark * runs + run, pi)
            mark += 1
        alpha = tl.load(sizes + first + step)
        # (BN, BT): c at every token of every sample, to where all threads find it.
        c = _forces(values, gamma, share, inside, real, flat, token, BT)
        tl.store(c_at + flat, c, mask=inside)
        tl.debug_barrier()
        # K c and S c: TOKENS rows of both matrices at a time, sums over rows after the loop.
        on_K = tl.zeros([TOKENS, BK], u.dtype)
        on_S = tl.zeros([TOKENS, BS], u.dtype)
        for start in range(0, N, TOKENS):
            j = start + tl.arange(0, TOKENS)
            here = j < N
            cj = tl.load(c_at + j, mask=here, other=0.0)[:, None]
            if WEIGHT:
                k = tl.load(K + j[:, None] * row_K + row[None, :], mask=here[:, None] & in_K, other=0.0)
                on_K = tl.fma(cj + tl.zeros_like(k), k, on_K)
            if PROMPT:
                place = S + j[:, None] * row_S + probe[None, :]
                s = tl.load(place, mask=here[:, None] & in_S, other=0.0)
                if WEIGHT:
                    s = _updated(s, j, here, k_at, z_at, old_alpha, old_pi, old, kappa)
                    tl.store(place, s, mask=here[:, None] & in_S)
                on_S = tl.fma(cj + tl.zeros_like(s), s, on_S)
        tl.debug_barrier()
        if WEIGHT:
            tl.store(k_at + row, tl.sum(on_K, 0), mask=row < rows)
        tl.store(z_at + probe, u, mask=probe < N)
        tl.debug_barrier()
        c_probe = tl.load(c_at + probe, mask=probe < N, other=0.0)
        # beta = c'z; kappa = Kc for tokens and passive rows, c for the first N coordinates, 0 for the rest.
        beta = tl.sum(c_probe * u, 0)
        if WEIGHT:
            own = (probe >= rows) & (probe < rows + N) & held
            kappa = tl.load(k_at + probe, mask=probe < rows, other=0.0) + tl.load(
                c_at + probe - rows, mask=own, other=0.0
            )
        old = u
        old_alpha = alpha
        old_pi = pi
        # u += alpha S c + alpha (pi + alpha beta) kappa, pi += 2 alpha beta + alpha^2 c'Hc, all from the old values.
        if PROMPT:
            Sc = tl.sum(on_S, 0)
            if WEIGHT:
                u += alpha * (pi + alpha * beta) * kappa
            u += alpha * Sc
            pi += alpha * (2.0 * beta + alpha * tl.sum(c_probe * Sc, 0))
        else:
            u += alpha * pi * kappa
        tl.store(values + probe, u, mask=held)
        tl.debug_barrier()
    if WEIGHT and PROMPT:
        for start in range(0, N, TOKENS):
            j = start + tl.arange(0, TOKENS)
            here = j < N
            place = S + j[:, None] * row_S + probe[None, :]
            s = tl.load(place, mask=here[:, None] & in_S, other=0.0)
            s = _updated(s, j, here, k_at, z_at, old_alpha, old_pi, old, kappa)
            tl.store(place, s, mask=here[:, None] & in_S)
    if tl.load(marks + mark) == first + steps:
        tl.store(seen + (mark * runs + run) * probes + probe, u, mask=held)
        tl.store(seen_norm + mark * runs + run, pi)
    tl.store(prompt_norm_squared + run, pi)


def _padded(size: int) -> int:
    """Rows begin at whole 64 (float32) or 128 bytes: loads are 16 bytes wide."""
    return -(-size // 16) * 16


def advance(call: Call) -> Recorded:
    """All steps of a call, in batches of runs that fit in the GPU's memory, in launches of about a second."""
    recorded = call.empty_record()
    N, like = call.kernel.shape[2], call.values
    numbers = N * (_padded(call.values.shape[1]) + 2 * _padded(call.kernel.shape[1])) + 2 * call.values.shape[1]
    with torch.inference_mode():
        in_batches(
            lambda runs: _train(call.part(runs), recorded, runs),
            call.runs,
            bytes_per_run=(numbers + like.shape[1] * (N + len(call.record))) * like.element_size(),
            device=like.device,
        )
    return recorded


def _train(call: Call, recorded: Recorded, runs: slice) -> None:
    (held, probes), (_, rows, N), (_, n, tokens) = call.values.shape, call.kernel.shape, call.head_scores.shape
    new = call.values.new_empty
    S, K = new(held, N, _padded(probes)), new(held, N, _padded(rows))
    scratch = new(held, 3, _padded(rows))
    # The state changes in the copies first: a batch that runs out of memory has changed nothing.
    values, norm, back = call.values.clone(), call.prompt_norm_squared.clone(), new(held, probes, N)
    seen, seen_norm = new(len(call.record), held, probes), new(len(call.record), held)
    S[..., :probes], S[..., probes:] = call.weighted.mT, 0
    K[..., :rows], K[..., rows:] = call.kernel.mT, 0
    shares, device = call.labels / n, call.values.device
    sizes = call.step_sizes.to(device=device, dtype=values.dtype)
    marks = torch.tensor([*call.record, -1], dtype=torch.int32, device=device)
    bs = triton.next_power_of_2(probes)
    bytes_of_step = N * (rows + 2 * probes) * values.element_size() * -(-held // _RESIDENT)
    piece = max(1, int(_PIECE_BYTES / bytes_of_step))
    for first in range(0, call.steps, piece) if call.steps else (0,):
        steps = min(piece, call.steps - first)
        train_run[(held,)](
            values, S, K, norm, call.head_scores, shares, sizes, marks, seen, seen_norm, scratch,
            first, steps, sum(mark < first for mark in call.record), held, n, tokens, rows, probes,
            S.shape[2] // 16, K.shape[2] // 16,
            WEIGHT=call.trained != "p", PROMPT=call.trained != "W",
            BN=triton.next_power_of_2(n), BT=triton.next_power_of_2(tokens), BK=triton.next_power_of_2(rows), BS=bs,
            TOKENS=max(1, min(8, _TILE // bs)), num_warps=_WARPS, enable_fp_fusion=True,
        )  # fmt: skip
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # one piece at a time, so that an interrupt is heard
    back.copy_(S[..., :probes].mT)
    call.values.copy_(values)
    call.prompt_norm_squared.copy_(norm)
    if call.trained == "both":
        call.weighted.copy_(back)
    recorded.values[:, runs], recorded.prompt_norm_squared[:, runs] = seen, seen_norm
