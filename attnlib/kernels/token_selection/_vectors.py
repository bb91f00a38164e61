"""Vectors of 64 bytes (16 float32 or 8 float64) as numba values: a loop over them reads like numpy and compiles to vector code.

Every operation keeps IEEE rules, so a NaN stays a NaN and sums keep their order.
"""

from __future__ import annotations

import math
import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

__all__ = [
    "Lanes", "choose", "decay", "dot4", "fma", "fma4", "lane_sums", "load", "load4", "spread", "spread4", "store", "store4",
    "zero",
]  # fmt: skip


class Lanes(types.Type):
    """Numba type of one vector of float32 or float64."""

    def __init__(self, element: types.Float) -> None:
        self.element, self.count = element, 512 // element.bitwidth
        self.single = ir.FloatType() if element.bitwidth == 32 else ir.DoubleType()
        self.llvm = ir.VectorType(self.single, self.count)
        super().__init__(f"{element} x {self.count}")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.llvm)


def _is_buffer(array) -> bool:
    return isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C" and isinstance(array.dtype, types.Float)  # fmt: skip


def _all(number: float, kind: Lanes) -> ir.Constant:
    return ir.Constant(kind.llvm, [number] * kind.count)


def _everywhere(builder, value, kind: Lanes):
    empty, index = ir.Constant(kind.llvm, ir.Undefined), ir.IntType(32)
    lane = builder.insert_element(empty, value, index(0))
    return builder.shuffle_vector(lane, empty, ir.Constant(ir.VectorType(index, kind.count), [0] * kind.count))


def _named(builder, name: str, kind: Lanes, *values):
    full = f"llvm.{name}.v{kind.count}f{kind.element.bitwidth}"
    declared = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind.llvm, [kind.llvm] * len(values)), full)  # fmt: skip
    return builder.call(declared, values)


def _element(context, builder, kind, array, index):
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


@intrinsic
def load(context, array, index):
    """array[index : index + lanes]; neither bounds nor alignment are asked for."""

    def build(context, builder, signature, values):
        place = builder.bitcast(_element(context, builder, array, *values), Lanes(array.dtype).llvm.as_pointer())
        return builder.load(place, align=array.dtype.bitwidth // 8)

    return (Lanes(array.dtype)(array, index), build) if _is_buffer(array) else None


@intrinsic
def store(context, array, index, value):
    """array[index : index + lanes] = value."""

    def build(context, builder, signature, values):
        place = builder.bitcast(_element(context, builder, array, *values[:2]), value.llvm.as_pointer())
        builder.store(values[2], place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    fits = _is_buffer(array) and value == Lanes(array.dtype)
    return (types.void(array, index, value), build) if fits else None


@intrinsic
def spread(context, array, index):
    """array[index] in all lanes."""

    def build(context, builder, signature, values):
        return _everywhere(builder, builder.load(_element(context, builder, array, *values)), Lanes(array.dtype))

    return (Lanes(array.dtype)(array, index), build) if _is_buffer(array) else None


@intrinsic
def zero(context, array):
    """Zeros of the array's element type."""

    def build(context, builder, signature, values):
        return _all(0.0, Lanes(array.dtype))

    return (Lanes(array.dtype)(array), build) if _is_buffer(array) else None


def _of_equals(count: int, build):
    """An intrinsic of `count` equal vectors."""
    if count == 1:

        @intrinsic
        def one(context, a):
            return (a(a), lambda c, b, s, v: build(b, a, *v)) if isinstance(a, Lanes) else None

        return one
    if count == 2:

        @intrinsic
        def two(context, x, y):
            return (x(x, y), lambda c, b, s, v: build(b, x, *v)) if isinstance(x, Lanes) and x == y else None

        return two
    if count == 3:

        @intrinsic
        def three(context, x, y, z):
            same = isinstance(x, Lanes) and x == y == z
            return (x(x, y, z), lambda c, b, s, v: build(b, x, *v)) if same else None

        return three

    @intrinsic
    def four(context, w, x, y, z):
        same = isinstance(w, Lanes) and w == x == y == z
        return (w(w, x, y, z), lambda c, b, s, v: build(b, w, *v)) if same else None

    return four


# a b + c, in one rounding where the processor can (`llvm.fma` would be a library call elsewhere).
fma = _of_equals(3, lambda b, kind, *v: _named(b, "fmuladd", kind, *v))
# x where a > b, else y.
choose = _of_equals(4, lambda b, kind, a, c, x, y: b.select(b.fcmp_ordered(">", a, c), x, y))


def _operator(symbol, build) -> None:
    instruction = _of_equals(2, build)

    @overload(symbol)
    def pick(a, b):
        return (lambda a, b: instruction(a, b)) if isinstance(a, Lanes) and a == b else None


_operator(operator.add, lambda b, kind, x, y: b.fadd(x, y))
_operator(operator.sub, lambda b, kind, x, y: b.fsub(x, y))
_operator(operator.mul, lambda b, kind, x, y: b.fmul(x, y))
_operator(operator.truediv, lambda b, kind, x, y: b.fdiv(x, y))

# Per width: Taylor terms of exp on [-ln2/2, ln2/2], ln 2 in two pieces, the smallest argument, mantissa bits, exponent's offset.
_EXP = {
    32: (8, 0.693359375, -2.12194440e-4, -87.0, 23, 127),
    64: (14, 6.93147180369123816490e-01, 1.90821492927058770002e-10, -708.0, 52, 1023),
}


def _decay(builder, kind: Lanes, x):
    terms, high, low, least, mantissa, offset = _EXP[kind.element.bitwidth]
    word = ir.VectorType(ir.IntType(kind.element.bitwidth), kind.count)
    # Adding 1.5 * 2^mantissa rounds to a whole number k, which then stands in the low bits.
    shifter = _all(1.5 * 2.0**mantissa, kind)
    shifted = _named(builder, "fmuladd", kind, x, _all(1 / math.log(2), kind), shifter)
    k = builder.fsub(shifted, shifter)
    rest = _named(builder, "fmuladd", kind, k, _all(-high, kind), x)
    rest = _named(builder, "fmuladd", kind, k, _all(-low, kind), rest)
    value = _all(1 / math.factorial(terms - 1), kind)
    for term in reversed(range(terms - 1)):
        value = _named(builder, "fmuladd", kind, value, rest, _all(1 / math.factorial(term), kind))
    exponent = builder.add(builder.bitcast(shifted, word), ir.Constant(word, [offset] * kind.count))
    power = builder.bitcast(builder.shl(exponent, ir.Constant(word, [mantissa] * kind.count)), kind.llvm)
    gone = builder.fcmp_ordered("<", x, _all(least, kind))
    return builder.select(gone, _all(0.0, kind), builder.fmul(value, power))


# exp(x) for x <= 0: a multiplication instead of bit arithmetic on the result keeps a NaN; below the range of normal numbers 0.
decay = _of_equals(1, _decay)


# Four vectors at a time, as tuples: one intrinsic each, because numba's analysis takes longer than the compiler's work.


def _four(kind: Lanes) -> types.UniTuple:
    return types.UniTuple(kind, 4)


def _is_four(kind) -> bool:
    return isinstance(kind, types.UniTuple) and kind.count == 4 and isinstance(kind.dtype, Lanes)


def _place(context, builder, array, values, number: int):
    """Where vector `number` from array[index] stands."""
    kind = Lanes(array.dtype)
    step = ir.Constant(values[1].type, number * kind.count)
    at = _element(context, builder, array, values[0], builder.add(values[1], step))
    return builder.bitcast(at, kind.llvm.as_pointer())


@intrinsic
def load4(context, array, index):
    """Four vectors, one after the other."""

    def build(context, builder, signature, values):
        places = [_place(context, builder, array, values, i) for i in range(4)]
        found = [builder.load(place, align=array.dtype.bitwidth // 8) for place in places]
        return context.make_tuple(builder, signature.return_type, found)

    return (_four(Lanes(array.dtype))(array, index), build) if _is_buffer(array) else None


@intrinsic
def store4(context, array, index, four):
    """Four vectors, one after the other."""

    def build(context, builder, signature, values):
        for i, value in enumerate(cgutils.unpack_tuple(builder, values[2])):
            builder.store(value, _place(context, builder, array, values, i), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    fits = _is_buffer(array) and four == _four(Lanes(array.dtype))
    return (types.void(array, index, four), build) if fits else None


@intrinsic
def spread4(context, array, index):
    """array[index] ... array[index + 3], each in all lanes of its vector."""

    def build(context, builder, signature, values):
        places = [builder.add(values[1], ir.Constant(values[1].type, i)) for i in range(4)]
        single = [builder.load(_element(context, builder, array, values[0], place)) for place in places]
        found = [_everywhere(builder, value, Lanes(array.dtype)) for value in single]
        return context.make_tuple(builder, signature.return_type, found)

    return (_four(Lanes(array.dtype))(array, index), build) if _is_buffer(array) else None


@intrinsic
def fma4(context, a, b, c):
    """a b + c, vector by vector; b is one vector."""

    def build(context, builder, signature, values):
        pairs = zip(cgutils.unpack_tuple(builder, values[0]), cgutils.unpack_tuple(builder, values[2]), strict=True)
        found = [_named(builder, "fmuladd", b, x, values[1], y) for x, y in pairs]
        return context.make_tuple(builder, signature.return_type, found)

    return (a(a, b, c), build) if _is_four(a) and a == c and a.dtype == b else None


@intrinsic
def dot4(context, a, b):
    """a0 b0 + a1 b1 + a2 b2 + a3 b3, in two chains."""

    def build(context, builder, signature, values):
        x, y = (cgutils.unpack_tuple(builder, value) for value in values)
        left, right = builder.fmul(x[0], y[0]), builder.fmul(x[2], y[2])
        left = _named(builder, "fmuladd", a.dtype, x[1], y[1], left)
        return builder.fadd(left, _named(builder, "fmuladd", a.dtype, x[3], y[3], right))

    return (a.dtype(a, b), build) if _is_four(a) and a == b else None


@intrinsic
def lane_sums(context, array, index, four):
    """array[index : index + 4] = the sums over the lanes of four vectors, halved together: pairs of neighbours at every turn."""

    def halved(builder, left, right):
        width = left.type.count
        even, odd = (ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(s, 2 * width, 2))) for s in (0, 1))
        return builder.fadd(builder.shuffle_vector(left, right, even), builder.shuffle_vector(left, right, odd))

    def build(context, builder, signature, values):
        a, b, c, d = cgutils.unpack_tuple(builder, values[2])
        sums = halved(builder, halved(builder, a, b), halved(builder, c, d))
        while sums.type.count > 4:
            width, half = sums.type.count, ir.VectorType(ir.IntType(32), sums.type.count // 2)
            even, odd = (ir.Constant(half, list(range(s, width, 2))) for s in (0, 1))
            sums = builder.fadd(builder.shuffle_vector(sums, sums, even), builder.shuffle_vector(sums, sums, odd))
        place = builder.bitcast(_element(context, builder, array, *values[:2]), sums.type.as_pointer())
        builder.store(sums, place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    fits = _is_buffer(array) and four == _four(Lanes(array.dtype))
    return (types.void(array, index, four), build) if fits else None
