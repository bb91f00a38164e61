"""A step of long runs, every row of S read and written once. Loaded by `horizon`, which keeps its machine code."""

import math

import numpy as np
from numba import njit


# Sums as written: (gamma_t - gamma_*) - mean of the token with the largest score is -mean to all digits, or long runs stall.
# `fastmath` is said, for else it is that of the caller.
@njit(nogil=True, error_model="numpy", fastmath={"contract"})
def forces(z, gamma, labels, c):
    """As `reference.forces`, of one run: relative to the token with the largest score."""
    n, T = gamma.shape
    for i in range(n):
        first = i * T
        best = np.argmax(z[first : first + T])
        total, mean = 0.0, 0.0
        for t in range(T):
            weight = math.exp(z[first + t] - z[first + best])
            total += weight
            mean += weight * (gamma[i, t] - gamma[i, best])
            c[first + t] = weight
        mean /= total
        shared = labels[i] / n / total / (1 + math.exp(labels[i] * (gamma[i, best] + mean)))
        for t in range(T):
            c[first + t] *= shared * (gamma[i, t] - gamma[i, best] - mean)


# Sums in any order, so that inner loops run over vectors.
@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})
def step(values, S, norms, time, kernel, gamma, labels, waiting, move, scale):
    """The largest step of every run that moves no score by more than `move`, as `horizon` has it. S lags by what waits for the
    pass that forms S c of the next step: rows (old u, kappa, a, b) of S += u a' + kappa b'."""
    (_, rows, N), probes = kernel.shape, values.shape[1]
    c, Sc = np.empty(N), np.empty(probes)
    for run in range(len(values)):
        u, pi, old, kappa = values[run], norms[run], waiting[run, 0], waiting[run, 1]
        a, b = waiting[run, 2], waiting[run, 3]
        forces(u, gamma[run], labels[run], c)
        for p in range(probes):
            row, total = S[run, p], 0.0
            for j in range(N):
                row[j] += old[p] * a[j] + kappa[p] * b[j]
                total += row[j] * c[j]
            Sc[p] = total
        for p in range(rows):  # kappa: Kc of tokens and signals, c itself of the coordinates a of v, zero of b and q
            total = 0.0
            for j in range(N):
                total += kernel[run, p, j] * c[j]
            kappa[p] = total
        kappa[rows : rows + N] = c
        speed, beta, curvature = 0.0, 0.0, 0.0
        for j in range(N):
            speed = max(speed, abs(Sc[j] + pi * kappa[j]))
            beta += c[j] * u[j]
            curvature += c[j] * Sc[j]
        room = move * (scale + pi)
        alpha = min(move / speed, room / (2 * abs(beta)), math.sqrt(room / curvature))
        for j in range(N):
            a[j] = alpha * kappa[j]
            b[j] = alpha * (u[j] + pi * a[j])
        for p in range(probes):
            old[p] = u[p]
            u[p] += alpha * (Sc[p] + (pi + alpha * beta) * kappa[p])
        norms[run] = pi + alpha * (2 * beta + alpha * curvature)
        time[run] += alpha
