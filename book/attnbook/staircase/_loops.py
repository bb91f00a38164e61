"""The flow of linear heads, all steps of a run between two records. Loaded by `flow`, which keeps its machine code."""

import numpy as np
from numba import njit

_FLAGS = {"contract", "reassoc", "nsz", "arcp"}  # sums over heads in any order


@njit(nogil=True, error_model="numpy", fastmath=_FLAGS)
def slope(heads, drive, stiffness, out):
    """As `velocity` of `flow.train_separate`, of one run; a column of (1 + 2 D, H) is a head: v, k, q."""
    D, H = len(drive), heads.shape[1]
    out[:] = 0.0
    for i in range(D):
        for j in range(D):
            product = 0.0
            for h in range(H):
                product += heads[0, h] * heads[1 + i, h] * heads[1 + D + j, h]
            pull = drive[i, j] - stiffness[i, j] * product
            for h in range(H):
                out[1 + i, h] += pull * heads[1 + D + j, h]
                out[1 + D + j, h] += pull * heads[1 + i, h]
    for i in range(1, 1 + D):
        for h in range(H):
            out[0, h] += heads[i, h] * out[i, h]
    for i in range(1, 1 + 2 * D):
        for h in range(H):
            out[i, h] *= heads[0, h]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FLAGS)
def advance(runs, drive, stiffness, step, count):
    """So many Runge-Kutta steps of every run, in place."""
    moved, total, slopes = np.empty_like(runs[0]), np.empty_like(runs[0]), np.empty_like(runs[0])
    for heads in runs:
        for _ in range(count):
            moved[:], total[:] = heads, heads
            for share, reach in ((step / 6, step / 2), (step / 3, step / 2), (step / 3, step), (step / 6, 0.0)):
                slope(moved, drive, stiffness, slopes)
                for i in range(heads.shape[0]):
                    for h in range(heads.shape[1]):
                        total[i, h] += share * slopes[i, h]
                        moved[i, h] = heads[i, h] + reach * slopes[i, h]
            heads[:] = total
