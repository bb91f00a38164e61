"""The token-selection recursion of one run, all steps, compiled. Loaded by `compiled`, which keeps its machine code.

The matrices of a run come packed (`_packing`), so that they are read and written from front to back in the order of use. K and H
are symmetric: of two squares that mirror each other one is kept, and its vectors serve as rows and as columns. Token t of sample i
stands at t n + i, so that a vector holds samples. The update of S is delayed to the pass that forms S c of the next step: both
matrices cross the core once per step.
"""

from numba import njit

from attnlib.kernels._simd import fma, larger
from attnlib.kernels._simd import load_ieee as load
from attnlib.kernels._simd import store_any as store
from attnlib.kernels._simd_tuples import (
    choose,
    decay,
    dot4,
    fma_each,
    lane_sums,
    load4,
    spread,
    spread4,
    store_each,
    zero,
)

TOKENS = 4  # of a block, as in `_packing`
_jit = njit(nogil=True, cache=True, error_model="numpy")


@_jit
def _forces(z, gamma, y, scale, n, tokens, spare, c):
    """c = slope Y/n s (gamma - f), relative to the token with the largest score: it stays exact when its s is 1 to all digits.

    The last vector of a token reaches into the next token's samples: those lanes are computed for nothing, and stores from low to
    high addresses put them right again. Behind the last token labels are 0, and so is c.
    """
    lanes = 64 // z.itemsize
    width = -(-n // lanes) * lanes
    nothing, one, share = zero(z), spread(scale, 0), spread(scale, 1)  # the last two: 1 and 1/n
    for b in range(0, n, lanes):
        # * of each sample: its token with the largest score, and that token's gamma. One lane is one sample.
        largest, top = load(z, b), load(gamma, b)
        for t in range(1, tokens):
            score = load(z, t * n + b)
            top = choose(score, largest, load(gamma, t * n + b), top)
            largest = larger(score, largest)
        # e_t = e^(z_t - z_*), sum_t e_t, and sum_t e_t (gamma_t - gamma_*) / sum = f - gamma_*.
        total, mean = nothing, nothing
        for t in range(tokens):
            e = decay(load(z, t * n + b) - largest)
            total = total + e
            mean = fma(e, load(gamma, t * n + b) - top, mean)
            store(spare, t * width + b, e)
        mean = mean / total
        # sigma(-Y f) from e^-|Y f|, times Y/n and 1/sum e: what all forces of the sample share.
        label = load(y, b)
        margin = nothing - label * (top + mean)
        e = decay(choose(margin, nothing, nothing - margin, margin))
        slope = choose(margin, nothing, one, e) / (one + e)
        factor = slope * (label * share) / total
        for t in range(tokens):
            s = load(spare, t * width + b)
            store(spare, t * width + b, factor * s * ((load(gamma, t * n + b) - top) - mean))
    for t in range(tokens):
        for b in range(0, n, lanes):
            store(c, t * n + b, load(spare, t * width + b))


@_jit
def _update_and_multiply(K, S, rows, probes, N, a, b, u, kappa, c, dots, more_dots, Kc, Sc):
    """S += u a^T + kappa b^T, Kc = K c and Sc = S c in one pass."""
    lanes = 64 // S.itemsize
    nothing, last = zero(S), -(-N // lanes) * lanes
    for p in range(0, rows, lanes):
        store(Kc, p, nothing)
    for p in range(0, probes, lanes):
        store(Sc, p, nothing)
    at_K = at = 0
    for j in range(0, N, TOKENS):
        # Four columns j: a_j, b_j of the pending update and c_j of this step's product.
        aj, bj, cj = spread4(a, j), spread4(b, j), spread4(c, j)
        d = e = (nothing, nothing, nothing, nothing)
        f = nothing  # the square on the diagonal serves as columns only
        for p in range(j // lanes * lanes, last, lanes):
            k = load4(K, at_K)
            # S += u a' + kappa b', then at once K c and S c; mirrored squares give their part of both products as sums over lanes (d, e).
            s = fma_each(bj, load(kappa, p), fma_each(aj, load(u, p), load4(S, at)))
            store_each(S, at, s)
            store(Kc, p, load(Kc, p) + dot4(cj, k))
            store(Sc, p, load(Sc, p) + dot4(cj, s))
            d, e = fma_each(k, f, d), fma_each(s, f, e)
            f = load(c, p + lanes)
            at_K += TOKENS * lanes
            at += TOKENS * lanes
        lane_sums(dots, j, d)
        lane_sums(more_dots, j, e)
        for p in range(last, rows, lanes):
            store(Kc, p, load(Kc, p) + dot4(cj, load4(K, at_K)))
            at_K += TOKENS * lanes
        for p in range(last, probes, lanes):
            s = fma_each(bj, load(kappa, p), fma_each(aj, load(u, p), load4(S, at)))
            store_each(S, at, s)
            store(Sc, p, load(Sc, p) + dot4(cj, s))
            at += TOKENS * lanes
    for p in range(0, last, lanes):
        store(Kc, p, load(Kc, p) + load(dots, p))
        store(Sc, p, load(Sc, p) + load(more_dots, p))


@_jit
def _multiply(packed, rows, N, c, dots, out):
    """out = K c, or S c where W stays."""
    lanes = 64 // packed.itemsize
    nothing, last = zero(packed), -(-N // lanes) * lanes
    for p in range(0, rows, lanes):
        store(out, p, nothing)
    at = 0
    for j in range(0, N, TOKENS):
        cj, d, f = spread4(c, j), (nothing, nothing, nothing, nothing), nothing
        for p in range(j // lanes * lanes, last, lanes):
            k = load4(packed, at)
            store(out, p, load(out, p) + dot4(cj, k))
            d = fma_each(k, f, d)
            f = load(c, p + lanes)
            at += TOKENS * lanes
        lane_sums(dots, j, d)
        for p in range(last, rows, lanes):
            store(out, p, load(out, p) + dot4(cj, load4(packed, at)))
            at += TOKENS * lanes
    for p in range(0, last, lanes):
        store(out, p, load(out, p) + load(dots, p))


@_jit
def _products(x, y, z, N, out, at):
    """out[at], out[at + 1] = x . y, x . z over the N tokens; x is zero behind them."""
    lanes = 64 // x.itemsize
    first = second = nothing = zero(x)
    for j in range(0, N, lanes):
        first, second = fma(load(x, j), load(y, j), first), fma(load(x, j), load(z, j), second)
    lane_sums(out, at, (first, second, nothing, nothing))


@_jit
def train(
    K, S, areas, N, rows, probes, n, tokens, pi, sizes, moves_weight, moves_prompt, order, marks, seen, seen_pi, run
):
    """All steps of a run; areas: its vectors, one per row. Records after as many steps as `marks` says, in place `run`. Returns pi."""
    lanes = 64 // S.itemsize
    u, gamma, y, scale, spare, c, a, b, old, kappa, Kc, Sc, dots, more_dots = (
        areas[0], areas[1], areas[2], areas[3], areas[4], areas[5], areas[6], areas[7], areas[8], areas[9], areas[10],
        areas[11], areas[12], areas[13],
    )  # fmt: skip
    both = moves_weight and moves_prompt
    mark = 0
    for step in range(len(sizes) + 1):
        if mark < len(marks) and marks[mark] == step:
            for p in range(probes):
                seen[mark, run, order[p]] = u[p]
            seen_pi[mark, run] = pi
            mark += 1
        if step == len(sizes):
            break
        alpha = sizes[step]
        _forces(u, gamma, y, scale, n, tokens, spare, c)
        if both:
            _update_and_multiply(K, S, rows, probes, N, a, b, old, kappa, c, dots, more_dots, Kc, Sc)
        elif moves_prompt:
            _multiply(S, probes, N, c, dots, Sc)
        else:
            _multiply(K, rows, N, c, dots, Kc)
        _products(c, u, Sc, N, scale, 4)
        # beta = c'z, curvature = c'Hc
        beta, curvature = scale[4], scale[5]
        if moves_prompt:
            scale[2], scale[3] = alpha, alpha * (pi + alpha * beta)
        else:
            scale[2], scale[3] = 0, alpha * pi
        if moves_weight:
            for p in range(rows):
                kappa[p] = Kc[p]
            if probes > rows:
                for j in range(N):
                    kappa[rows + j] = c[j]
            # a = alpha k and b = alpha (z + alpha pi k): the next pass over S adds u a' + kappa b', u and kappa as they are now.
            for j in range(N):
                a[j] = alpha * Kc[j]
                b[j] = alpha * (u[j] + pi * a[j])
        if moves_prompt:
            pi += alpha * (beta + beta + alpha * curvature)  # a whole number would make it float64
        # u += alpha S c + alpha (pi + alpha beta) kappa; the u of before is kept for the pending update.
        along, across = spread(scale, 2), spread(scale, 3)
        for p in range(0, probes, lanes):
            before = load(u, p)
            store(old, p, before)
            after = fma(across, load(kappa, p), before)
            store(u, p, fma(along, load(Sc, p), after))
    if both and len(sizes) > 0:  # the last step's update, so that S is current; c is zero where nothing is asked for
        _update_and_multiply(K, S, rows, probes, N, a, b, old, kappa, c, dots, more_dots, Kc, Sc)
    return pi
