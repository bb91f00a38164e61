r"""Many smooth curves as one short string: fixed point, differences, adaptive Rice code.

A value x is kept as the whole number $q=\mathrm{round}(x\cdot2^{19})$, so that decoding is wrong by at most $2^{-20}<10^{-6}$. Of
each curve the differences of first or second order are coded, whichever is shorter: u = 2r or -2r - 1 (r < 0) as u >> k ones, a
zero and the k lowest bits of u, where k follows the mean of the last few u. Twenty-four ones announce a plain number. The bits are
written as base64. `book/scripts/token_selection/packing.js` reads it.
"""

import base64

import numpy as np

RESOLUTION = 2.0**-19  # of a stored value
_ESCAPE, _PLAIN = 24, 25  # ones that announce a plain number, and its bits
_MEMORY = 8  # differences over which the size of the next one is estimated


def pack(curves: np.ndarray) -> str:
    """Curves (C, G) of finite values in [-8, 8] as a string."""
    bits = "".join(_shorter(curve.tolist()) for curve in np.rint(curves / RESOLUTION).astype(np.int64))
    bits += "0" * (-len(bits) % 8)
    return base64.b64encode(int("1" + bits, 2).to_bytes(len(bits) // 8 + 1, "big")[1:]).decode("ascii")


def _shorter(curve: list[int]) -> str:
    """A bit for the order (0: first differences) and the differences."""
    first = [b - a for a, b in zip([0, *curve], curve)]  # noqa: B905 (one value ahead)
    second = [b - a for a, b in zip([0, *first], first)]  # noqa: B905
    return min("0" + _rice(first), "1" + _rice(second), key=len)


def _rice(differences: list[int]) -> str:
    total, count, out = 16, 1, []
    for r in differences:
        u = 2 * r if r >= 0 else -2 * r - 1
        k = 0
        while count << k < total:
            k += 1
        ones = u >> k
        if ones < _ESCAPE:
            out.append("1" * ones + "0" + (f"{u & ((1 << k) - 1):0{k}b}" if k else ""))
        else:
            out.append("1" * _ESCAPE + f"{u:0{_PLAIN}b}")
        total, count = total + u, count + 1
        if count == _MEMORY:
            total, count = total >> 1, count >> 1
    return "".join(out)
