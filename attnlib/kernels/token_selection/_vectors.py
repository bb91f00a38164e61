"""What the loops of token selection need beside `attnlib.kernels._simd`: an exponential, and four vectors at a time.

Vectors here keep IEEE rules: a NaN stays a NaN.
"""

from __future__ import annotations

import math

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from attnlib.kernels._simd import WORD, Lanes, broadcast, call, constant, is_buffer, of_equals, place

__all__ = ["choose", "decay", "dot4", "fma4", "lane_sums", "load4", "spread", "spread4", "store4", "zero"]


@intrinsic
def spread(context, array, index):
    """array[index] in all lanes."""

    def build(context, builder, signature, values):
        kind = signature.return_type.llvm
        return broadcast(builder, builder.load(place(context, builder, array, *values, kind.element)), kind)

    return (Lanes(array.dtype)(array, index), build) if is_buffer(array) else None


@intrinsic
def zero(context, array):
    """Zeros of the array's element type."""

    def build(context, builder, signature, values):
        return constant(0.0, signature.return_type.llvm)

    return (Lanes(array.dtype)(array), build) if is_buffer(array) else None


# x where a > b, else y.
choose = of_equals(4, lambda builder, kind, a, b, x, y: builder.select(builder.fcmp_ordered(">", a, b), x, y))

# Per width: Taylor terms of exp on [-ln2/2, ln2/2], ln 2 in two pieces, the smallest argument, mantissa bits, exponent's offset.
_EXP = {
    32: (8, 0.693359375, -2.12194440e-4, -87.0, 23, 127),
    64: (14, 6.93147180369123816490e-01, 1.90821492927058770002e-10, -708.0, 52, 1023),
}


def _decay(builder, kind, x):
    terms, high, low, least, mantissa, offset = _EXP[kind.element.bitwidth]
    word = ir.VectorType(ir.IntType(kind.element.bitwidth), kind.count)

    def everywhere(number):
        return constant(number, kind.llvm)

    # Adding 1.5 * 2^mantissa rounds to a whole number k, which then stands in the low bits.
    shifter = everywhere(1.5 * 2.0**mantissa)
    shifted = call(builder, "fmuladd", kind, x, everywhere(1 / math.log(2)), shifter)
    k = builder.fsub(shifted, shifter)
    rest = call(builder, "fmuladd", kind, k, everywhere(-high), x)
    rest = call(builder, "fmuladd", kind, k, everywhere(-low), rest)
    value = everywhere(1 / math.factorial(terms - 1))
    for term in reversed(range(terms - 1)):
        value = call(builder, "fmuladd", kind, value, rest, everywhere(1 / math.factorial(term)))
    exponent = builder.add(builder.bitcast(shifted, word), constant(offset, word))
    power = builder.bitcast(builder.shl(exponent, constant(mantissa, word)), kind.llvm)
    gone = builder.fcmp_ordered("<", x, everywhere(least))
    return builder.select(gone, everywhere(0.0), builder.fmul(value, power))


# exp(x) for x <= 0: a multiplication instead of bit arithmetic on the result keeps a NaN; below the range of normal numbers 0.
decay = of_equals(1, _decay)


# Four vectors at a time, as tuples: one intrinsic each, because numba's analysis takes longer than the compiler's work.


def _four(kind: Lanes) -> types.UniTuple:
    return types.UniTuple(kind, 4)


def _is_four(kind) -> bool:
    return isinstance(kind, types.UniTuple) and kind.count == 4 and isinstance(kind.dtype, Lanes)


def _following(builder, index, step):
    """index, index + step, index + 2 step, index + 3 step."""
    return [builder.add(index, ir.Constant(index.type, i * step)) for i in range(4)]


@intrinsic
def load4(context, array, index):
    """Four vectors, one after the other."""

    def build(context, builder, signature, values):
        kind = signature.return_type.dtype
        starts = _following(builder, values[1], kind.count)
        places = [place(context, builder, array, values[0], start, kind.llvm) for start in starts]
        found = [builder.load(source, align=array.dtype.bitwidth // 8) for source in places]
        return context.make_tuple(builder, signature.return_type, found)

    return (_four(Lanes(array.dtype))(array, index), build) if is_buffer(array) else None


@intrinsic
def store4(context, array, index, four):
    """Four vectors, one after the other."""

    def build(context, builder, signature, values):
        starts = _following(builder, values[1], four.dtype.count)
        for start, value in zip(starts, cgutils.unpack_tuple(builder, values[2]), strict=True):
            target = place(context, builder, array, values[0], start, value.type)
            builder.store(value, target, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    fits = is_buffer(array) and four == _four(Lanes(array.dtype))
    return (types.void(array, index, four), build) if fits else None


@intrinsic
def spread4(context, array, index):
    """array[index] ... array[index + 3], each in all lanes of its vector."""

    def build(context, builder, signature, values):
        kind, starts = signature.return_type.dtype.llvm, _following(builder, values[1], 1)
        single = [builder.load(place(context, builder, array, values[0], i, kind.element)) for i in starts]
        found = [broadcast(builder, value, kind) for value in single]
        return context.make_tuple(builder, signature.return_type, found)

    return (_four(Lanes(array.dtype))(array, index), build) if is_buffer(array) else None


@intrinsic
def fma4(context, a, b, c):
    """a b + c, vector by vector; b is one vector."""

    def build(context, builder, signature, values):
        pairs = zip(cgutils.unpack_tuple(builder, values[0]), cgutils.unpack_tuple(builder, values[2]), strict=True)
        found = [call(builder, "fmuladd", b, x, values[1], y) for x, y in pairs]
        return context.make_tuple(builder, signature.return_type, found)

    return (a(a, b, c), build) if _is_four(a) and a == c and a.dtype == b else None


@intrinsic
def dot4(context, a, b):
    """a0 b0 + a1 b1 + a2 b2 + a3 b3, in two chains."""

    def build(context, builder, signature, values):
        x, y = (cgutils.unpack_tuple(builder, value) for value in values)
        left, right = builder.fmul(x[0], y[0]), builder.fmul(x[2], y[2])
        left = call(builder, "fmuladd", a.dtype, x[1], y[1], left)
        return builder.fadd(left, call(builder, "fmuladd", a.dtype, x[3], y[3], right))

    return (a.dtype(a, b), build) if _is_four(a) and a == b else None


@intrinsic
def lane_sums(context, array, index, four):
    """array[index : index + 4] = the sums over the lanes of four vectors, halved together: pairs of neighbours at every turn."""

    def halved(builder, left, right):
        width = left.type.count
        even, odd = (ir.Constant(ir.VectorType(WORD, width), list(range(s, 2 * width, 2))) for s in (0, 1))
        return builder.fadd(builder.shuffle_vector(left, right, even), builder.shuffle_vector(left, right, odd))

    def build(context, builder, signature, values):
        a, b, c, d = cgutils.unpack_tuple(builder, values[2])
        sums = halved(builder, halved(builder, a, b), halved(builder, c, d))
        while sums.type.count > 4:
            width, half = sums.type.count, ir.VectorType(WORD, sums.type.count // 2)
            even, odd = (ir.Constant(half, list(range(s, width, 2))) for s in (0, 1))
            sums = builder.fadd(builder.shuffle_vector(sums, sums, even), builder.shuffle_vector(sums, sums, odd))
        target = place(context, builder, array, *values[:2], sums.type)
        builder.store(sums, target, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    fits = is_buffer(array) and four == _four(Lanes(array.dtype))
    return (types.void(array, index, four), build) if fits else None
