"""How the matrices of a run lie in memory while its steps are made."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

__all__ = ["TOKENS", "Packing", "packing"]

TOKENS = 4  # of a block: their coefficients and sums fit in the registers


@dataclass(frozen=True)
class Packing:
    """Places of the numbers of a matrix (rows, N), row by row: blocks of 4 columns, in each a vector of rows after the other,
    in each the 4 columns. Of two squares of the first N rows that mirror each other, one vector wide, the lower one is kept.

    Args:
        place: (size,) where each packed number comes from.
        empty: packed numbers that belong to no row or column: zeros.
        full: the others.
        mirrored, mirror: packed numbers that stand for two, and the place of the second.
    """

    place: np.ndarray
    empty: np.ndarray
    full: np.ndarray
    mirrored: np.ndarray
    mirror: np.ndarray

    def pack(self, matrix: np.ndarray, packed: np.ndarray) -> None:
        """`packed` has len(place) numbers."""
        np.take(matrix.reshape(-1), self.place, out=packed, mode="clip")
        packed[self.empty] = 0

    def unpack(self, packed: np.ndarray, matrix: np.ndarray) -> None:
        """The inverse; `matrix` must lie row by row."""
        flat = matrix.reshape(-1)
        flat[self.place[self.full]] = packed[self.full]
        flat[self.mirror] = packed[self.mirrored]


@functools.lru_cache(maxsize=8)
def packing(order: tuple[int, ...], N: int, lanes: int) -> Packing:
    """For vectors of `lanes` numbers; row and column i of the packed matrix are order[i] of the other."""
    rows, orders = len(order), np.array(order)
    starts = [(j, p) for j in range(0, N, TOKENS) for p in range(j // lanes * lanes, rows, lanes)]
    block, first = (np.array(x)[:, None, None] for x in zip(*starts, strict=True))
    column, row = np.broadcast_arrays(block + np.arange(TOKENS)[:, None], first + np.arange(lanes))
    held = (column < N) & (row < rows)
    below = np.broadcast_to(first > block // lanes * lanes, held.shape) & held & (row < N)
    at_row, at_column = orders[np.minimum(row, rows - 1)], orders[np.minimum(column, N - 1)]
    place, held, below = (at_row * N + at_column).ravel(), held.ravel(), below.ravel()
    mirror = (at_column * N + at_row).ravel()[below]
    return Packing(place, np.flatnonzero(~held), np.flatnonzero(held), np.flatnonzero(below), mirror)
