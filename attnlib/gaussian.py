r"""Gaussian vectors in reduced coordinates: exact in law, at a cost that does not depend on the dimension.

N independent vectors $\xi_1,\dots,\xi_N \sim N(0, I_D)$, expressed in the orthonormal basis that Gram-Schmidt makes of them
in that order, are the rows of a lower-trapezoidal matrix $A$ with independent entries (Bartlett's decomposition)

$$ A_{ii} \sim \chi_{D-i+1}, \qquad A_{ij} \sim N(0,1) \; (j<i), \qquad A_{ij} = 0 \; (j>i), $$

with $\min(N, D)$ columns. Proof in the book: `03_rotations_are_free` and the theory chapter of Part I.
"""

from __future__ import annotations

import numpy as np

from attnlib.arrays import Floats


def bartlett_rows(
    rng: np.random.Generator, rows: int, dimension: int, *, first: int = 0, columns: int | None = None
) -> Floats:
    """Rows `first` ... `first + rows - 1` of Bartlett's matrix A for vectors in `dimension` dimensions.

    Args:
        rng: numpy Generator; normals are drawn first, then the diagonal, so two dimensions with the same seed share normals.
        rows: how many vectors, >= 1.
        dimension: D >= 1, any size.
        first: how many vectors were reduced before these (their basis is kept and these rows are appended below).
        columns: width of the returned array, default min(first + rows, dimension); more adds zero columns.

    Returns float64 array (rows, columns).

    >>> bartlett_rows(np.random.default_rng(0), rows=4, dimension=10**9).shape
    (4, 4)
    >>> bartlett_rows(np.random.default_rng(0), rows=4, dimension=3).shape
    (4, 3)
    """
    rank = min(first + rows, dimension)
    columns = rank if columns is None else columns
    row, column = np.arange(first, first + rows)[:, None], np.arange(columns)[None, :]
    matrix = rng.standard_normal((rows, columns))
    matrix *= column < np.minimum(row, dimension)
    pivots = np.arange(first, min(first + rows, dimension))
    if len(pivots):
        matrix[pivots - first, pivots] = np.sqrt(rng.chisquare(dimension - pivots))
    return matrix
