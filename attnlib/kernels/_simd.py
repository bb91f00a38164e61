"""Sixteen float32 or int32 lanes as numba values, so that a kernel's source reads like numpy and compiles to vector code.

A `Floats` or `Ints` value is one LLVM vector of 16 lanes on every machine; LLVM splits it where registers are narrower.
Everything here is for the inside of functions compiled by numba; `_simd_functions` has what is longer than one instruction.

Rounding is never reassociated (`reassoc` is not among the flags): `exp2` and the sums depend on their written order.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

__all__ = [
    "LANES", "Floats", "Ints", "align_stack", "any_outside", "fma", "lane_sum", "larger", "load", "load_any",
    "splat", "sqrt", "store", "store_any",
]  # fmt: skip

LANES = 16
_BYTES = 4 * LANES
FLAGS = ("nnan", "ninf", "nsz", "arcp", "contract", "afn")
WORD, _F32 = ir.IntType(32), ir.FloatType()
VI, VF = ir.VectorType(WORD, LANES), ir.VectorType(_F32, LANES)
_WIDE = ir.VectorType(ir.IntType(64), LANES)


class _Lanes(types.Type):
    """Numba type of a vector value."""


Floats, Ints = _Lanes("float32 x 16"), _Lanes("int32 x 16")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, type_):
        super().__init__(manager, type_, VF if type_ is Floats or type_ == Floats else VI)


def constant(value, kind):
    return ir.Constant(kind, [value] * LANES)


def constant_lanes():
    return ir.Constant(VI, list(range(LANES)))


def broadcast(builder, value, kind):
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), value, WORD(0))
    return builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), ir.Constant(VI, [0] * LANES))


def _operation(result, build, *arguments):
    """A numba intrinsic of vector arguments of the given types: `build(builder, *values)` makes the instruction."""
    if len(arguments) == 1:

        @intrinsic
        def one(context, a):
            return (result(a), lambda c, b, s, v: build(b, *v)) if a == arguments[0] else None

        return one
    if len(arguments) == 2:

        @intrinsic
        def two(context, a, b):
            return (result(a, b), lambda c, build_, s, v: build(build_, *v)) if (a, b) == arguments else None

        return two

    @intrinsic
    def three(context, a, b, c):
        return (result(a, b, c), lambda ctx, build_, s, v: build(build_, *v)) if (a, b, c) == arguments else None

    return three


def call(name, kind, count):
    def build(builder, *values):
        declared = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * count), name)
        return builder.call(declared, values, fastmath=FLAGS)

    return build


_add = _operation(Floats, lambda b, x, y: b.fadd(x, y, flags=FLAGS), Floats, Floats)
_subtract = _operation(Floats, lambda b, x, y: b.fsub(x, y, flags=FLAGS), Floats, Floats)
_multiply = _operation(Floats, lambda b, x, y: b.fmul(x, y, flags=FLAGS), Floats, Floats)
_divide = _operation(Floats, lambda b, x, y: b.fdiv(x, y, flags=FLAGS), Floats, Floats)
# a b + c, in one rounding where the processor can (`llvm.fma` would be a library call elsewhere).
fma = _operation(Floats, call("llvm.fmuladd.v16f32", VF, 3), Floats, Floats, Floats)
sqrt = _operation(Floats, call("llvm.sqrt.v16f32", VF, 1), Floats)
larger = _operation(Floats, lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y), Floats, Floats)


def high_words(builder, x, y):
    product = builder.mul(builder.zext(x, _WIDE), builder.zext(y, _WIDE))
    return builder.trunc(builder.lshr(product, constant(32, _WIDE)), VI)


def _overload(symbol, instruction):
    @overload(symbol)
    def choose(a, b):
        return (lambda a, b: instruction(a, b)) if a == Floats and b == Floats else None


for _symbol, _instruction in (
    (operator.add, _add),
    (operator.sub, _subtract),
    (operator.mul, _multiply),
    (operator.truediv, _divide),
):
    _overload(_symbol, _instruction)


@intrinsic
def splat(context, value):
    """A number in all lanes, as float32."""

    def build(context, builder, signature, values):
        return broadcast(builder, context.cast(builder, values[0], value, types.float32), VF)

    return (Floats(value), build) if isinstance(value, types.Number) else None


def _place(context, builder, array_type, array, index):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), VF.as_pointer())


def _is_buffer(array):
    return isinstance(array, types.Array) and array.ndim == 1 and array.dtype == types.float32 and array.layout == "C"


def _load(alignment):
    @intrinsic
    def load(context, array, index):
        def build(context, builder, signature, values):
            value = builder.load(_place(context, builder, array, *values))
            value.align = alignment
            return value

        return (Floats(array, index), build) if _is_buffer(array) else None

    return load


def _store(alignment):
    @intrinsic
    def store(context, array, index, value):
        def build(context, builder, signature, values):
            builder.store(values[2], _place(context, builder, array, *values[:2]), align=alignment)
            return context.get_dummy_value()

        return (types.void(array, index, value), build) if _is_buffer(array) and value == Floats else None

    return store


# array[index : index + 16] of a float32 vector that starts on a 64-byte boundary, `index` a multiple of 16; not checked.
load, store = _load(_BYTES), _store(_BYTES)
# The same at any index.
load_any, store_any = _load(4), _store(4)


@intrinsic
def lane_sum(context, value):
    """Sum of the 16 lanes, float32; its order is the compiler's."""

    def build(context, builder, signature, values):
        kind = ir.FunctionType(_F32, [_F32, VF])
        declared = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.fadd.v16f32")
        return builder.call(declared, [ir.Constant(_F32, -0.0), values[0]], fastmath=("fast",))

    return (types.float32(value), build) if value == Floats else None


@intrinsic
def any_outside(context, value, low, high):
    """Whether some lane is not within [low, high]; a NaN is not."""

    def build(context, builder, signature, values):
        inside = builder.and_(
            builder.fcmp_ordered(">=", values[0], values[1]), builder.fcmp_ordered("<=", values[0], values[2])
        )
        bits = builder.bitcast(inside, ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 2**LANES - 1))

    return (types.boolean(value, low, high), build) if value == low == high == Floats else None


@intrinsic
def align_stack(context):
    """Align the calling function's stack frame to a vector, so that vectors kept there do not straddle cache lines."""

    def build(context, builder, signature, values):
        attributes = builder.function.attributes
        attributes.add("nounwind")  # llvmlite prints the alignment only beside another attribute
        attributes.alignstack = _BYTES
        return context.get_dummy_value()

    return types.void(), build
