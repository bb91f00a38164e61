"""Working memory of compiled loops, on the boundary that whole vectors want."""

from __future__ import annotations

import numpy as np

__all__ = ["VECTOR", "aligned", "whole"]

VECTOR = 64  # bytes


def aligned(size: int, dtype: np.dtype | type) -> np.ndarray:
    """`size` zeros that begin on a 64-byte boundary."""
    lanes = VECTOR // np.dtype(dtype).itemsize
    raw = np.zeros(size + lanes, dtype=dtype)
    start = -raw.ctypes.data % VECTOR // raw.itemsize
    return raw[start : start + size]


def whole(size: int, unit: int) -> int:
    """`size` rounded up to a multiple of `unit`."""
    return -(-size // unit) * unit
