"""The token-selection recursion of one run, all steps, compiled. Loaded by `compiled`, which keeps its machine code.

The update of S is delayed to the pass that forms S c of the next step: both matrices cross the core once per step.
"""

from numba import njit

from attnlib.kernels._exponential import decay

_FLAGS = {"contract", "nsz", "reassoc", "arcp"}  # no `nnan`: NaNs stay NaNs
# No run-time of numba (`_nrt`): nothing is allocated here, and counting the users of arrays costs more than a small loop.
_jit = njit(fastmath=_FLAGS, nogil=True, error_model="numpy", _nrt=False)


@_jit
def forces(z, gamma, y, n, tokens, top, gap, e, c):
    """c = sigma(-Y f) Y/n s (gamma - f), relative to the token with the largest score: it stays exact when its s is 1 to all digits."""
    # * of each sample: its token with the largest score. z_* and gamma_t - gamma_* of every token.
    for i in range(n):
        first = i * tokens
        best = first
        for j in range(first, first + tokens):
            if z[j] > z[best]:
                best = j
        for j in range(first, first + tokens):
            top[j], gap[j] = z[best], gamma[j] - gamma[best]
    for j in range(n * tokens):
        e[j] = decay(z[j] - top[j])
    for i in range(n):
        # The sample's sum of e_t = e^(z_t - z_*), and f - gamma_* = sum_t e_t (gamma_t - gamma_*) / sum.
        first = i * tokens
        total, mean = 0.0, 0.0
        for j in range(first, first + tokens):
            total += e[j]
            mean += e[j] * gap[j]
        mean /= total
        # sigma(-Y f) from e^-|Y f|, times Y/n and 1/sum: what all forces of the sample share.
        margin = y[i] * (gamma[first] - gap[first] + mean)
        tail = decay(-abs(margin))
        shared = (tail if margin > 0 else 1.0) / (1.0 + tail) * y[i] / n / total
        for j in range(first, first + tokens):
            c[j] = shared * e[j] * (gap[j] - mean)


@_jit
def multiply(matrix, rows, N, c, out):
    """out = K c; two rows at a time, for which c is read once."""
    for p in range(0, rows, 2):
        q = min(p + 1, rows - 1)  # the last of an odd number makes a pair with itself
        one, two = 0.0, 0.0
        for j in range(N):
            one += matrix[p, j] * c[j]
            two += matrix[q, j] * c[j]
        out[p], out[q] = one, two


@_jit
def update_and_multiply(S, probes, N, a, b, u, kappa, c, Sc):
    """S += u a^T + kappa b^T, and Sc = S c, in one pass.

    Two rows at a time, for which a, b and c are read once: what comes from the first cache limits the loop. More rows would be
    more arrays that are written than the compiler compares, and it would make no vectors.
    """
    for p in range(0, probes - 1, 2):
        one, u_one, kappa_one = 0.0, u[p], kappa[p]
        two, u_two, kappa_two = 0.0, u[p + 1], kappa[p + 1]
        for j in range(N):
            s = S[p, j] + u_one * a[j] + kappa_one * b[j]
            t = S[p + 1, j] + u_two * a[j] + kappa_two * b[j]
            S[p, j], S[p + 1, j] = s, t
            one += s * c[j]
            two += t * c[j]
        Sc[p], Sc[p + 1] = one, two
    for p in range(probes - probes % 2, probes):  # the last of an odd number
        total = 0.0
        for j in range(N):
            S[p, j] += u[p] * a[j] + kappa[p] * b[j]
            total += S[p, j] * c[j]
        Sc[p] = total


@njit(nogil=True, error_model="numpy", _nrt=False, cache=True)
def train(values, weighted, norms, kernel, gamma, labels, sizes, marks, seen, seen_pi, areas, run, first, last):
    """Steps first ... last - 1 of a run; `areas`: room for its vectors, left as it is between calls that follow each other.

    Records after as many steps as `marks` says. S lags by an update until the last step of all is done.
    """
    (_, n, tokens), (_, rows, N), probes = gamma.shape, kernel.shape, values.shape[1]
    S, K, u, y = weighted[run], kernel[run], values[run], labels[run]
    top, gap, e, c, a, b, old, kappa, Kc, Sc, own = areas
    if first == 0:  # gamma of the run as one vector; nothing waits to be added to S yet
        for i in range(n):
            for t in range(tokens):
                own[i * tokens + t] = gamma[run, i, t]
        for p in range(probes):
            kappa[p] = old[p] = 0.0
        for j in range(N):
            a[j] = b[j] = 0.0
    mark = 0
    while mark < len(marks) and marks[mark] < first:
        mark += 1
    for step in range(first, last + (last == len(sizes))):
        if mark < len(marks) and marks[mark] == step:
            for p in range(probes):
                seen[mark, run, p] = u[p]
            seen_pi[mark, run] = norms[run]
            mark += 1
        # Forward and backward in one: the forces on the scores z, the first N numbers of u.
        forces(u, own, y, n, tokens, top, gap, e, c)
        # The matrices times c, S with the update that waits from the step before.
        update_and_multiply(S, probes, N, a, b, old, kappa, c, Sc)
        multiply(K, rows, N, c, Kc)
        if step == len(sizes):  # S is current
            break
        alpha, pi = sizes[step], norms[run]  # read again: between calls it is rounded to its dtype
        beta, curvature = 0.0, 0.0  # c'z and c'Hc
        for j in range(N):
            beta += c[j] * u[j]
            curvature += c[j] * Sc[j]
        # kappa: Kc of tokens and passive rows, c itself of the coordinates a of v, zero of b and q.
        for p in range(rows):
            kappa[p] = Kc[p]
        for j in range(N):
            kappa[rows + j] = c[j]
        # a = alpha k and b = alpha (z + alpha pi k): the next pass over S adds u a' + kappa b', u and kappa as they are now.
        for j in range(N):
            a[j] = alpha * Kc[j]
            b[j] = alpha * (u[j] + pi * a[j])
        # u += alpha S c + alpha (pi + alpha beta) kappa; the u of before is kept for the pending update.
        across = alpha * (pi + alpha * beta)
        for p in range(probes):
            old[p] = u[p]
            u[p] += alpha * Sc[p] + across * kappa[p]
        norms[run] = pi + alpha * (2.0 * beta + alpha * curvature)
