"""Sixteen float32 or int32 lanes as numba values, so that a kernel's source reads like numpy and compiles to vector code.

A `Floats` or `Ints` value is one LLVM vector of 16 lanes on every machine; LLVM splits it where registers are narrower.
Only this module builds LLVM instructions. Everything here is for the inside of functions compiled by numba.

Rounding is never reassociated (`reassoc` is not among the flags): `exp2` and the sums depend on their written order.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

__all__ = [
    "LANES", "Floats", "Ints", "align_stack", "any_outside", "as_floats", "as_ints", "exp2", "fma", "from_bits", "lane_sum",
    "lanes", "larger", "load", "multiply_high", "shift_right", "smaller", "splat", "splat_int", "sqrt", "store", "to_bits",
]  # fmt: skip

LANES = 16
_BYTES = 4 * LANES
_FLAGS = ("nnan", "ninf", "nsz", "arcp", "contract", "afn")
_I32, _F32 = ir.IntType(32), ir.FloatType()
_VI, _VF = ir.VectorType(_I32, LANES), ir.VectorType(_F32, LANES)
_WIDE = ir.VectorType(ir.IntType(64), LANES)


class _Lanes(types.Type):
    """Numba type of a vector value."""


Floats, Ints = _Lanes("float32 x 16"), _Lanes("int32 x 16")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, type_):
        super().__init__(manager, type_, _VF if type_ is Floats or type_ == Floats else _VI)


def _constant(value, kind):
    return ir.Constant(kind, [value] * LANES)


def _broadcast(builder, value, kind):
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _I32(0))
    return builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), ir.Constant(_VI, [0] * LANES))


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


def _call(name, kind, count):
    def build(builder, *values):
        declared = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * count), name)
        return builder.call(declared, values, fastmath=_FLAGS)

    return build


def _shift(name):
    """A shift by an ordinary number of bits."""

    @intrinsic
    def shift(context, a, bits):
        def build(context, builder, signature, values):
            amount = values[1]
            amount = builder.trunc(amount, _I32) if amount.type.width > 32 else amount
            return getattr(builder, name)(values[0], _broadcast(builder, amount, _VI))

        return (Ints(a, bits), build) if a == Ints and isinstance(bits, types.Integer) else None

    return shift


_add = _operation(Floats, lambda b, x, y: b.fadd(x, y, flags=_FLAGS), Floats, Floats)
_subtract = _operation(Floats, lambda b, x, y: b.fsub(x, y, flags=_FLAGS), Floats, Floats)
_multiply = _operation(Floats, lambda b, x, y: b.fmul(x, y, flags=_FLAGS), Floats, Floats)
_divide = _operation(Floats, lambda b, x, y: b.fdiv(x, y, flags=_FLAGS), Floats, Floats)
_negate = _operation(Floats, lambda b, x: b.fneg(x, flags=_FLAGS), Floats)
_add_int = _operation(Ints, lambda b, x, y: b.add(x, y), Ints, Ints)
_subtract_int = _operation(Ints, lambda b, x, y: b.sub(x, y), Ints, Ints)
_multiply_int = _operation(Ints, lambda b, x, y: b.mul(x, y), Ints, Ints)
_and = _operation(Ints, lambda b, x, y: b.and_(x, y), Ints, Ints)
_or = _operation(Ints, lambda b, x, y: b.or_(x, y), Ints, Ints)
_xor = _operation(Ints, lambda b, x, y: b.xor(x, y), Ints, Ints)
_shift_left = _shift("shl")
shift_right = _shift("lshr")  # zeros come in from the left

# a b + c, in one rounding where the processor can (`llvm.fma` would be a library call elsewhere).
fma = _operation(Floats, _call("llvm.fmuladd.v16f32", _VF, 3), Floats, Floats, Floats)
sqrt = _operation(Floats, _call("llvm.sqrt.v16f32", _VF, 1), Floats)
to_bits = _operation(Ints, lambda b, x: b.bitcast(x, _VI), Floats)
from_bits = _operation(Floats, lambda b, x: b.bitcast(x, _VF), Ints)
as_floats = _operation(Floats, lambda b, x: b.sitofp(x, _VF), Ints)
as_ints = _operation(Ints, lambda b, x: b.fptosi(x, _VI), Floats)


def _choose(comparison):
    return lambda b, x, y: b.select(b.fcmp_ordered(comparison, x, y), x, y)


smaller = _operation(Floats, _choose("<"), Floats, Floats)
larger = _operation(Floats, _choose(">"), Floats, Floats)


def _high(builder, x, y):
    product = builder.mul(builder.zext(x, _WIDE), builder.zext(y, _WIDE))
    return builder.trunc(builder.lshr(product, _constant(32, _WIDE)), _VI)


multiply_high = _operation(Ints, _high, Ints, Ints)  # upper words of the unsigned 64-bit products


def _overload(symbol, floats, ints):
    @overload(symbol)
    def choose(a, b):
        if floats is not None and a == Floats and b == Floats:
            return lambda a, b: floats(a, b)
        if ints is not None and a == Ints and b == Ints:
            return lambda a, b: ints(a, b)
        return None


_overload(operator.add, _add, _add_int)
_overload(operator.sub, _subtract, _subtract_int)
_overload(operator.mul, _multiply, _multiply_int)
_overload(operator.truediv, _divide, None)
_overload(operator.and_, None, _and)
_overload(operator.or_, None, _or)
_overload(operator.xor, None, _xor)


@overload(operator.lshift)
def _lshift(a, bits):
    return (lambda a, bits: _shift_left(a, bits)) if a == Ints and isinstance(bits, types.Integer) else None


@overload(operator.neg)
def _neg(a):
    return (lambda a: _negate(a)) if a == Floats else None


@intrinsic
def splat(context, value):
    """A number in all lanes, as float32."""

    def build(context, builder, signature, values):
        return _broadcast(builder, context.cast(builder, values[0], value, types.float32), _VF)

    return (Floats(value), build) if isinstance(value, types.Number) else None


@intrinsic
def splat_int(context, value):
    """The low 32 bits of a whole number in all lanes."""

    def build(context, builder, signature, values):
        word = values[0]
        return _broadcast(builder, builder.trunc(word, _I32) if word.type.width > 32 else word, _VI)

    return (Ints(value), build) if isinstance(value, types.Integer) else None


@intrinsic
def lanes(context):
    """0, 1, ..., 15."""
    return Ints(), lambda c, b, s, v: ir.Constant(_VI, list(range(LANES)))


def _place(context, builder, array_type, array, index):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _VF.as_pointer())


def _is_buffer(array):
    return isinstance(array, types.Array) and array.ndim == 1 and array.dtype == types.float32 and array.layout == "C"


@intrinsic
def load(context, array, index):
    """array[index : index + 16] of a float32 vector that starts on a 64-byte boundary; `index` a multiple of 16, unchecked."""

    def build(context, builder, signature, values):
        value = builder.load(_place(context, builder, array, *values), typ=_VF)
        value.align = _BYTES
        return value

    return (Floats(array, index), build) if _is_buffer(array) else None


@intrinsic
def store(context, array, index, value):
    """array[index : index + 16] = value, under the conditions of `load`."""

    def build(context, builder, signature, values):
        builder.store(values[2], _place(context, builder, array, *values[:2]), align=_BYTES)
        return context.get_dummy_value()

    return (types.void(array, index, value), build) if _is_buffer(array) and value == Floats else None


@intrinsic
def lane_sum(context, value):
    """Sum of the 16 lanes, float32; its order is the compiler's."""

    def build(context, builder, signature, values):
        kind = ir.FunctionType(_F32, [_F32, _VF])
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


_EXP2 = (1.0000001192092896, 0.6931469440460205, 0.24022120237350464, 0.05550713092088699, 0.009675541892647743, 0.0013276472454890609)  # fmt: skip


@intrinsic
def exp2(context, value):
    """2^value for value in [-126, 127], relative error 1e-7: polynomial on [-1/2, 1/2], exponent by adding 1.5 x 2^23."""

    def build(context, builder, signature, values):
        round_ = _constant(12582912.0, _VF)
        shifted = builder.fadd(values[0], round_, flags=_FLAGS)
        rest = builder.fsub(values[0], builder.fsub(shifted, round_, flags=_FLAGS), flags=_FLAGS)
        together = _call("llvm.fmuladd.v16f32", _VF, 3)
        c = [_constant(coefficient, _VF) for coefficient in _EXP2]
        square = builder.fmul(rest, rest, flags=_FLAGS)
        low, middle, high = (together(builder, c[i + 1], rest, c[i]) for i in (0, 2, 4))
        power = together(builder, together(builder, high, square, middle), square, low)
        exponent = builder.shl(builder.bitcast(shifted, _VI), _constant(23, _VI))
        return builder.bitcast(builder.add(builder.bitcast(power, _VI), exponent), _VF)

    return (Floats(value), build) if value == Floats else None
