"""The matrix S of long runs: its update and its product in one pass. Loaded by `horizon`, which keeps its machine code."""

from numba import njit


# Sums in any order, so that the inner loop runs over vectors.
@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})
def add_and_multiply(S, left, right, c, out):
    """S += left right, and out = S c of the new S: each row is read and written once."""
    for r in range(S.shape[0]):
        a, b, weights = right[r, 0], right[r, 1], c[r]
        for p in range(S.shape[1]):
            row, u, kappa, total = S[r, p], left[r, p, 0], left[r, p, 1], 0.0
            for j in range(len(row)):
                value = row[j] + (u * a[j] + kappa * b[j])
                row[j] = value
                total += value * weights[j]
            out[r, p] = total
