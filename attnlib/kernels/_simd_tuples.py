"""What loops over samples need beside `attnlib.kernels._simd`: an exponential, numbers in all lanes, several vectors at a time.

Vectors here keep IEEE rules: a NaN stays a NaN.
"""

from __future__ import annotations

import math

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from attnlib.kernels._simd import WORD, Lanes, are_floats, broadcast, call, constant, is_buffer, of_equals, place

__all__ = [
    "choose", "decay", "dot4", "everywhere", "fma_each", "lane_sums", "load4", "load_as_many", "spread", "spread4",
    "store_each", "zero",
]  # fmt: skip


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


@intrinsic
def everywhere(context, like, number):
    """A number in all lanes of a vector like another."""

    def build(context, builder, signature, values):
        return broadcast(builder, context.cast(builder, values[1], number, like.element), like.llvm)

    return (like(like, number), build) if are_floats(like) and isinstance(number, types.Number) else None


# x where a > b, else y.
choose = of_equals(4, lambda builder, kind, a, b, x, y: builder.select(builder.fcmp_ordered(">", a, b), x, y))

# Per width: least argument, mantissa bits, the exponent's offset, ln 2 in two pieces, and q of e^f = 1 + f + f^2 q(f) for
# |f| <= ln(2)/2, of least largest error, fitted here.
_EXP = {
    32: (-87.0, 23, 127, 0.693115234375, 3.194618329871446e-05,
         (0.5, 0.16666576266288757, 0.041666556149721146, 0.008363178931176662, 0.0013926184037700295)),
    64: (-708.0, 52, 1023, 0.6931471803691238, 1.9082149292705877e-10,
         (0.5, 0.16666666666666669, 0.04166666666662413, 0.008333333333330062, 0.0013888888917213717,
          0.00019841269863053618, 2.4801521295954376e-05, 2.7557268459997064e-06, 2.7620088445409746e-07,
          2.510038549551032e-08)),
}  # fmt: skip


def _decay(builder, kind, x):
    least, mantissa, offset, high, low, q = _EXP[kind.element.bitwidth]
    word = ir.VectorType(ir.IntType(kind.element.bitwidth), kind.count)

    def all_lanes(number):
        return constant(number, kind.llvm)

    def together(a, b, c):
        return call(builder, "fmuladd", kind, a, b, c)

    # Adding 1.5 * 2^mantissa rounds to a whole number k, which then stands in the low bits.
    shifter = all_lanes(1.5 * 2.0**mantissa)
    shifted = together(x, all_lanes(1 / math.log(2)), shifter)
    k = builder.fsub(shifted, shifter)
    f = together(k, all_lanes(-low), together(k, all_lanes(-high), x))
    # Neighbouring terms are put together, then pairs of neighbours, ...: a shorter wait than one term after the other.
    terms, power = [all_lanes(coefficient) for coefficient in q], f
    square = builder.fmul(f, f)
    while len(terms) > 1:
        rest = terms[-1:] if len(terms) % 2 else []
        terms = [together(b, power, a) for a, b in zip(terms[::2], terms[1::2], strict=False)] + rest
        power = builder.fmul(power, power)
    value = together(terms[0], square, builder.fadd(f, all_lanes(1.0)))
    exponent = builder.add(builder.bitcast(shifted, word), constant(offset, word))
    scale = builder.bitcast(builder.shl(exponent, constant(mantissa, word)), kind.llvm)
    gone = builder.fcmp_ordered("<", x, all_lanes(least))
    return builder.select(gone, all_lanes(0.0), builder.fmul(value, scale))


# exp(x) for x <= 0: a multiplication instead of bit arithmetic on the result keeps a NaN; below the range of normal numbers 0.
decay = of_equals(1, _decay)


# Several vectors at a time, as tuples: one intrinsic each, because numba's analysis takes longer than the compiler's work.


def _several(kind: Lanes, count: int) -> types.UniTuple:
    return types.UniTuple(kind, count)


def _are_several(kind) -> bool:
    return isinstance(kind, types.UniTuple) and isinstance(kind.dtype, Lanes)


def _following(builder, index, step, count):
    """index, index + step, index + 2 step, ..., `count` of them."""
    return [builder.add(index, ir.Constant(index.type, i * step)) for i in range(count)]


def _load_several(context, builder, kind, array, data, index):
    starts = _following(builder, index, kind.dtype.count, kind.count)
    places = [place(context, builder, array, data, start, kind.dtype.llvm) for start in starts]
    found = [builder.load(source, align=array.dtype.bitwidth // 8) for source in places]
    return context.make_tuple(builder, kind, found)


@intrinsic
def load4(context, array, index):
    """Four vectors, one after the other."""

    def build(context, builder, signature, values):
        return _load_several(context, builder, signature.return_type, array, *values)

    return (_several(Lanes(array.dtype), 4)(array, index), build) if is_buffer(array) else None


@intrinsic
def load_as_many(context, like, array, index):
    """As many vectors as the tuple `like` has, one after the other."""

    def build(context, builder, signature, values):
        return _load_several(context, builder, like, array, *values[1:])

    return (like(like, array, index), build) if _are_several(like) and is_buffer(array) else None


@intrinsic
def store_each(context, array, index, vectors):
    """All vectors of a tuple, one after the other."""

    def build(context, builder, signature, values):
        starts = _following(builder, values[1], vectors.dtype.count, vectors.count)
        for start, value in zip(starts, cgutils.unpack_tuple(builder, values[2]), strict=True):
            target = place(context, builder, array, values[0], start, value.type)
            builder.store(value, target, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    fits = is_buffer(array) and _are_several(vectors) and vectors.dtype == Lanes(array.dtype)
    return (types.void(array, index, vectors), build) if fits else None


@intrinsic
def spread4(context, array, index):
    """array[index] ... array[index + 3], each in all lanes of its vector."""

    def build(context, builder, signature, values):
        kind, starts = signature.return_type.dtype.llvm, _following(builder, values[1], 1, 4)
        single = [builder.load(place(context, builder, array, values[0], i, kind.element)) for i in starts]
        found = [broadcast(builder, value, kind) for value in single]
        return context.make_tuple(builder, signature.return_type, found)

    return (_several(Lanes(array.dtype), 4)(array, index), build) if is_buffer(array) else None


@intrinsic
def fma_each(context, a, b, c):
    """a b + c, vector by vector; b is one vector."""

    def build(context, builder, signature, values):
        pairs = zip(cgutils.unpack_tuple(builder, values[0]), cgutils.unpack_tuple(builder, values[2]), strict=True)
        found = [call(builder, "fmuladd", b, x, values[1], y) for x, y in pairs]
        return context.make_tuple(builder, signature.return_type, found)

    return (a(a, b, c), build) if _are_several(a) and a == c and a.dtype == b else None


@intrinsic
def dot4(context, a, b):
    """a0 b0 + a1 b1 + a2 b2 + a3 b3, in two chains."""

    def build(context, builder, signature, values):
        x, y = (cgutils.unpack_tuple(builder, value) for value in values)
        left, right = builder.fmul(x[0], y[0]), builder.fmul(x[2], y[2])
        left = call(builder, "fmuladd", a.dtype, x[1], y[1], left)
        return builder.fadd(left, call(builder, "fmuladd", a.dtype, x[3], y[3], right))

    return (a.dtype(a, b), build) if _are_several(a) and a.count == 4 and a == b else None


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

    fits = is_buffer(array) and four == _several(Lanes(array.dtype), 4)
    return (types.void(array, index, four), build) if fits else None
