"""A step of SGD, Adam or AdamW on float32 weights, for the inside of both compiled loops of in-context training."""

from __future__ import annotations

import numpy as np
from numba import njit

from attnlib.kernels._simd import align_stack, fma, load, splat, sqrt, store

# Functions called from compiled code only need no way in from Python: a tenth of the time to compile.
inner = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
F = np.float32


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
