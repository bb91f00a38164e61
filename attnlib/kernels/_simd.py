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
    "LANES", "Floats", "Ints", "align_stack", "any_outside", "dot", "exp2", "fma", "lane_sum", "larger", "load",
    "normal_pair", "philox", "smaller", "splat", "store",
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


def _constant_lanes():
    return ir.Constant(_VI, list(range(LANES)))


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


_add = _operation(Floats, lambda b, x, y: b.fadd(x, y, flags=_FLAGS), Floats, Floats)
_subtract = _operation(Floats, lambda b, x, y: b.fsub(x, y, flags=_FLAGS), Floats, Floats)
_multiply = _operation(Floats, lambda b, x, y: b.fmul(x, y, flags=_FLAGS), Floats, Floats)
_divide = _operation(Floats, lambda b, x, y: b.fdiv(x, y, flags=_FLAGS), Floats, Floats)
# a b + c, in one rounding where the processor can (`llvm.fma` would be a library call elsewhere).
fma = _operation(Floats, _call("llvm.fmuladd.v16f32", _VF, 3), Floats, Floats, Floats)


def _choose(comparison):
    return lambda b, x, y: b.select(b.fcmp_ordered(comparison, x, y), x, y)


smaller = _operation(Floats, _choose("<"), Floats, Floats)
larger = _operation(Floats, _choose(">"), Floats, Floats)


def _high(builder, x, y):
    product = builder.mul(builder.zext(x, _WIDE), builder.zext(y, _WIDE))
    return builder.trunc(builder.lshr(product, _constant(32, _WIDE)), _VI)


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
        return _broadcast(builder, context.cast(builder, values[0], value, types.float32), _VF)

    return (Floats(value), build) if isinstance(value, types.Number) else None


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


# Least largest error, fitted here: 2^f on [-1/2, 1/2]; -ln(1 + g)/g between sqrt(1/2) - 1 and sqrt(2) - 1; cos and sin(pi a/4)/a in a^2.
_EXP2 = (1.0000001192092896, 0.6931469440460205, 0.24022120237350464, 0.05550713092088699, 0.009675541892647743,
         0.0013276472454890609)  # fmt: skip
_LOG = (-0.9999999403953552, 0.5000036358833313, -0.33335059881210327, 0.24969908595085144, -0.19900165498256683,
        0.17250831425189972, -0.1622258424758911, 0.10106897354125977)  # fmt: skip
_COS = (1.0, -0.3084242641925812, 0.015849914401769638, -0.0003188805130776018)
_SIN = (0.7853981852531433, -0.08074543625116348, 0.002490007085725665, -3.595450834836811e-05)


class _Write:
    """Short names for the instructions on vectors, over one llvmlite builder."""

    def __init__(self, builder):
        self.builder = builder

    def together(self, a, b, c):
        return _call("llvm.fmuladd.v16f32", _VF, 3)(self.builder, a, b, c)

    def times(self, a, b):
        return self.builder.fmul(a, b, flags=_FLAGS)

    def plus(self, a, b):
        return self.builder.fadd(a, b, flags=_FLAGS)

    def minus(self, a, b):
        return self.builder.fsub(a, b, flags=_FLAGS)

    def floats(self, a):
        return self.builder.bitcast(a, _VF)

    def bits(self, a):
        return self.builder.bitcast(a, _VI)

    def masked(self, a, mask):
        return self.builder.and_(a, _constant(mask, _VI))

    def polynomial(self, x, coefficients):
        """Estrin's order: pairs first, then powers of x^2."""
        terms = [_constant(c, _VF) for c in coefficients]
        while len(terms) > 1:
            pairs = [self.together(high, x, low) for low, high in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[len(pairs) * 2 :]
            x = self.times(x, x) if len(terms) > 1 else x
        return terms[0]

    def next_word(self, state):
        """xoshiro128+: the output and the next state."""
        b = self.builder
        s0, s1, s2, s3 = state
        word, moved = b.add(s0, s3), b.shl(s1, _constant(9, _VI))
        s2, s3 = b.xor(s2, s0), b.xor(s3, s1)
        s1, s0 = b.xor(s1, s2), b.xor(s0, s3)
        turned = b.or_(b.shl(s3, _constant(11, _VI)), b.lshr(s3, _constant(21, _VI)))
        return word, (s0, s1, b.xor(s2, moved), turned)

    def pair(self, word, angle_word):
        """Two normals of two words (see prompt_stream)."""
        b = self.builder
        number = b.or_(self.masked(word, 0x7FFFFFFF), _constant(1, _VI))
        mantissa = b.add(self.bits(b.sitofp(number, _VF)), _constant(0x4AFB0D, _VI))
        power = b.sitofp(b.sub(_constant(158, _VI), b.lshr(mantissa, _constant(23, _VI))), _VF)
        rest = self.floats(b.add(self.masked(mantissa, 0x7FFFFF), _constant(0x3F3504F3, _VI)))
        rest = self.minus(rest, _constant(1.0, _VF))
        logarithm = self.times(power, _constant(0.6931471805599453, _VF))
        square = self.together(rest, self.polynomial(rest, _LOG), logarithm)
        radius = _call("llvm.sqrt.v16f32", _VF, 1)(b, square)
        angle = b.sitofp(b.shl(angle_word, _constant(2, _VI)), _VF)
        angle = self.times(angle, _constant(2.0**-31, _VF))
        even = self.times(angle, angle)
        cosine, sine = self.polynomial(even, _COS), self.times(angle, self.polynomial(even, _SIN))
        found = []
        for value, sign in (
            (self.minus(cosine, sine), angle_word),
            (self.plus(cosine, sine), b.shl(angle_word, _constant(1, _VI))),
        ):
            value = self.bits(self.times(radius, value))
            found.append(self.floats(b.xor(value, self.masked(sign, 0x80000000))))
        return found


@intrinsic
def exp2(context, value):
    """2^value for value in [-126, 127], relative error 1e-7: polynomial on [-1/2, 1/2], exponent by adding 1.5 x 2^23."""

    def build(context, builder, signature, values):
        write, rounder = _Write(builder), _constant(12582912.0, _VF)
        shifted = write.plus(values[0], rounder)
        rest = write.minus(values[0], write.minus(shifted, rounder))
        exponent = builder.shl(write.bits(shifted), _constant(23, _VI))
        return write.floats(builder.add(write.bits(write.polynomial(rest, _EXP2)), exponent))

    return (Floats(value), build) if value == Floats else None


@intrinsic
def dot(context, left, right):
    """left[0] right[0] + left[1] right[1] + ... of two tuples of Floats, added up in two chains."""

    def build(context, builder, signature, values):
        write, chains = _Write(builder), [None, None]
        for i in range(len(left)):
            a, b = (builder.extract_value(value, i) for value in values)
            before = chains[i % 2]
            chains[i % 2] = write.times(a, b) if before is None else write.together(a, b, before)
        return chains[0] if chains[1] is None else write.plus(*chains)

    fits = left == right and isinstance(left, types.UniTuple) and left.dtype == Floats
    return (Floats(left, right), build) if fits else None


_STATE = types.UniTuple(Ints, 4)


@intrinsic
def philox(context, key_low, key_high, prompt, step, stream):
    """State words of sixteen prompts from `prompt` on: Philox4x32-10 of the counter (prompt, step, stream, 0)."""

    def build(context, builder, signature, values):
        key0, key1, prompt, step, stream = (_broadcast(builder, builder.trunc(v, _I32), _VI) for v in values)
        c0, c1, c2, c3 = builder.add(prompt, _constant_lanes()), step, stream, _constant(0, _VI)
        first, second = _constant(0xD2511F53, _VI), _constant(0xCD9E8D57, _VI)
        for _ in range(10):
            c0, c1, c2, c3 = (
                builder.xor(builder.xor(_high(builder, second, c2), c1), key0),
                builder.mul(second, c2),
                builder.xor(builder.xor(_high(builder, first, c0), c3), key1),
                builder.mul(first, c0),
            )
            key0, key1 = builder.add(key0, _constant(0x9E3779B9, _VI)), builder.add(key1, _constant(0xBB67AE85, _VI))
        return context.make_tuple(builder, signature.return_type, (c0, c1, c2, c3))

    wide = (key_low, key_high, prompt, step, stream)
    return (_STATE(*wide), build) if all(isinstance(w, types.Integer) and w.bitwidth == 64 for w in wide) else None


@intrinsic
def normal_pair(context, state):
    """((n1, n2), next state): two standard normals in every lane from two words of xoshiro128+."""
    result = types.Tuple((Floats, Floats, _STATE))

    def build(context, builder, signature, values):
        write = _Write(builder)
        words, now = [], tuple(builder.extract_value(values[0], i) for i in range(4))
        for _ in range(2):
            word, now = write.next_word(now)
            words.append(word)
        after = context.make_tuple(builder, _STATE, now)
        return context.make_tuple(builder, signature.return_type, (*write.pair(*words), after))

    return (result(state), build) if state == _STATE else None
