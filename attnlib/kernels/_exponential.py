"""The exponential of compiled loops, written out: a call of the C library would stop the compiler from using vectors."""

from __future__ import annotations

import math

from numba import njit, types
from numba.extending import intrinsic

_SMALLEST, _LARGEST = -708.0, 709.0
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to a whole number, which is left in the low bits
_LOG2_E = 1 / math.log(2)
_LOG2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # ln 2 in two parts: whole multiples of the first are exact
_LOG2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_TAYLOR = tuple(1 / math.factorial(k) for k in range(14))  # |r| <= ln(2)/2: the next term is 4e-18


@intrinsic
def bits_of(context, value):
    def build(context, builder, signature, values):
        return builder.bitcast(values[0], context.get_value_type(types.int64))

    return types.int64(types.float64), build


@intrinsic
def _number(context, value):
    def build(context, builder, signature, values):
        return builder.bitcast(values[0], context.get_value_type(types.float64))

    return types.float64(types.int64), build


@njit(fastmath={"contract", "nsz", "arcp"}, nogil=True, error_model="numpy", forceinline=True)
def exponential(x):
    """e^x, from e^-708 to e^709 and constant beyond; relative error 1e-15 for |x| < 100 (rounding of x beyond). No `reassoc`."""
    x = _SMALLEST if x < _SMALLEST else x
    x = _LARGEST if x > _LARGEST else x
    # x = k ln 2 + r with |r| <= ln(2)/2; k ln 2 is taken away in two parts, so that r keeps all its digits.
    shifted = x * _LOG2_E + _ROUND
    whole = shifted - _ROUND
    r = (x - whole * _LOG2_HIGH) - whole * _LOG2_LOW
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13 = _TAYLOR
    r2 = r * r
    r4 = r2 * r2
    # e^r by Taylor, terms in groups of four that do not wait for each other; then the exponent k into the bits.
    low = (c0 + c1 * r) + (c2 + c3 * r) * r2
    middle = (c4 + c5 * r) + (c6 + c7 * r) * r2
    high = (c8 + c9 * r) + (c10 + c11 * r) * r2 + (c12 + c13 * r) * r4
    value = low + (middle + high * r4) * r4
    return _number(bits_of(value) + (bits_of(shifted) << 52))


@njit(fastmath={"contract", "nsz", "arcp"}, nogil=True, error_model="numpy", forceinline=True)
def decay(x):
    """e^x for x <= 0, and 0 where that is no normal number."""
    return 0.0 if x < _SMALLEST else exponential(x)
