"""Vectors of 64 bytes (16 float32, 8 float64 or 16 int32) as numba values, so that a kernel's source reads like numpy.

Each value is one LLVM vector on every machine; LLVM splits it where registers are narrower. Everything here is for the inside
of functions compiled by numba; `_simd_functions` has what is longer than one instruction.

The rules of arithmetic are part of a vector's type, and a load decides them. IEEE: a NaN stays a NaN. Relaxed (`FLAGS`): LLVM
may take it that no number is a NaN or infinite. Sums keep their written order, but for `lane_sum`.
"""

from __future__ import annotations

import inspect
import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

_BYTES = 64
FLAGS = ("nnan", "ninf", "nsz", "arcp", "contract", "afn")
WORD = ir.IntType(32)


class Lanes(types.Type):
    """Numba type of a vector of float32, float64 or int32; `flags`: the liberties of its arithmetic."""

    def __init__(self, element: types.Number, flags: tuple[str, ...] = ()) -> None:
        self.element, self.flags, self.count = element, flags, 8 * _BYTES // element.bitwidth
        single = {types.float32: ir.FloatType(), types.float64: ir.DoubleType(), types.int32: WORD}[element]
        self.llvm = ir.VectorType(single, self.count)
        super().__init__(f"{element} x {self.count}{' relaxed' if flags else ''}")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.llvm)


Floats, Ints = Lanes(types.float32, FLAGS), Lanes(types.int32)
VI, VF = Ints.llvm, Floats.llvm


# What instructions are made of: `kind` is an LLVM vector, or the numba type of one where its arithmetic counts.


def constant(value, kind):
    return ir.Constant(kind, [value] * kind.count)


def broadcast(builder, value, kind):
    empty = ir.Constant(kind, ir.Undefined)
    single = builder.insert_element(empty, value, WORD(0))
    return builder.shuffle_vector(single, empty, constant(0, ir.VectorType(WORD, kind.count)))


def call(builder, name, kind, *values):
    full = f"llvm.{name}.v{kind.count}f{kind.element.bitwidth}"
    of = ir.FunctionType(kind.llvm, [kind.llvm] * len(values))
    declared = cgutils.get_or_insert_function(builder.module, of, full)
    return builder.call(declared, values, fastmath=kind.flags)


def is_buffer(array):
    return isinstance(array, types.Array) and array.layout == "C" and isinstance(array.dtype, types.Float)


def place(context, builder, array_type, array, index, kind):
    """Where something of the LLVM type `kind` stands from number `index` of an array on, in memory order."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), kind.as_pointer())


def are_floats(*kinds):
    """Whether all are the same vector of float32 or float64."""
    first = kinds[0]
    return isinstance(first, Lanes) and isinstance(first.element, types.Float) and all(k == first for k in kinds)


def of_equals(count, build):
    """A numba intrinsic of `count` equal vectors of floats: `build(builder, kind, *values)` makes the instruction."""

    def define(context, *kinds):
        kind = kinds[0]
        return (kind(*kinds), lambda c, b, s, v: build(b, kind, *v)) if are_floats(*kinds) else None

    names = ("context", *"abcd"[:count])
    define.__signature__ = inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in names])
    return intrinsic(define)


# a b + c, in one rounding where the processor can (`llvm.fma` would be a library call elsewhere).
fma = of_equals(3, lambda b, kind, *v: call(b, "fmuladd", kind, *v))
sqrt = of_equals(1, lambda b, kind, x: call(b, "sqrt", kind, x))
larger = of_equals(2, lambda b, kind, x, y: b.select(b.fcmp_ordered(">", x, y), x, y))


def _operator(symbol, name):
    instruction = of_equals(2, lambda b, kind, x, y: getattr(b, name)(x, y, flags=kind.flags))

    @overload(symbol)
    def pick(a, b):
        return (lambda a, b: instruction(a, b)) if are_floats(a, b) else None


for _symbol, _name in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _operator(_symbol, _name)


@intrinsic
def splat(context, value):
    """A number in all lanes, as float32, relaxed."""

    def build(context, builder, signature, values):
        return broadcast(builder, context.cast(builder, values[0], value, types.float32), VF)

    return (Floats(value), build) if isinstance(value, types.Number) else None


def _spread(flags):
    @intrinsic
    def spread(context, array, index):
        """array[index] in all lanes, not checked."""

        def build(context, builder, signature, values):
            kind = signature.return_type.llvm
            return broadcast(builder, builder.load(place(context, builder, array, *values, kind.element)), kind)

        return (Lanes(array.dtype, flags)(array, index), build) if is_buffer(array) else None

    return spread


spread, splat_at = _spread(()), _spread(FLAGS)  # in IEEE's arithmetic, or relaxed


def _load(flags, alignment):
    @intrinsic
    def load(context, array, index):
        def build(context, builder, signature, values):
            source = place(context, builder, array, *values, signature.return_type.llvm)
            return builder.load(source, align=alignment or array.dtype.bitwidth // 8)

        return (Lanes(array.dtype, flags)(array, index), build) if is_buffer(array) else None

    return load


def _store(alignment):
    @intrinsic
    def store(context, array, index, value):
        def build(context, builder, signature, values):
            target = place(context, builder, array, *values[:2], value.llvm)
            builder.store(values[2], target, align=alignment or array.dtype.bitwidth // 8)
            return context.get_dummy_value()

        fits = is_buffer(array) and are_floats(value) and value.element == array.dtype
        return (types.void(array, index, value), build) if fits else None

    return store


# array[index : index + lanes] of a vector that starts on a 64-byte boundary, `index` a multiple of `lanes`; not checked.
load, store = _load(FLAGS, _BYTES), _store(_BYTES)
# The same at any index; nothing is checked here either.
load_any, load_ieee, store_any = _load(FLAGS, None), _load((), None), _store(None)


@intrinsic
def lane_sum(context, value):
    """Sum of all lanes; its order is the compiler's."""

    def build(context, builder, signature, values):
        single = value.llvm.element
        kind, name = (
            ir.FunctionType(single, [single, value.llvm]),
            f"llvm.vector.reduce.fadd.v{value.count}f{value.element.bitwidth}",
        )
        declared = cgutils.get_or_insert_function(builder.module, kind, name)
        freely = ("fast",) if value.flags else ("reassoc",)
        return builder.call(declared, [ir.Constant(single, -0.0), values[0]], fastmath=freely)

    return (value.element(value), build) if are_floats(value) else None


@intrinsic
def any_outside(context, value, low, high):
    """Whether some lane is not within [low, high]; a NaN is not."""

    def build(context, builder, signature, values):
        inside = builder.and_(
            builder.fcmp_ordered(">=", values[0], values[1]), builder.fcmp_ordered("<=", values[0], values[2])
        )
        bits = ir.IntType(value.count)
        return builder.icmp_unsigned("!=", builder.bitcast(inside, bits), ir.Constant(bits, 2**value.count - 1))

    return (types.boolean(value, low, high), build) if are_floats(value, low, high) else None


@intrinsic
def align_stack(context):
    """Align the calling function's stack frame to a vector, so that vectors kept there do not straddle cache lines."""

    def build(context, builder, signature, values):
        attributes = builder.function.attributes
        attributes.add("nounwind")  # llvmlite prints the alignment only beside another attribute
        attributes.alignstack = _BYTES
        return context.get_dummy_value()

    return types.void(), build
