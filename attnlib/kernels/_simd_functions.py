"""Functions of sixteen lanes, each one piece of LLVM code: powers of two, dot products, random words, normal numbers.

In one piece, because numba's analysis of a source takes longer than the compiler's work on its instructions.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from attnlib.kernels._polynomials import COS as _COS
from attnlib.kernels._polynomials import EXP2 as _EXP2
from attnlib.kernels._polynomials import LOG as _LOG
from attnlib.kernels._polynomials import SIN as _SIN
from attnlib.kernels._simd import FLAGS, VF, VI, WORD, Floats, Ints, broadcast, call, constant


class _Write:
    """Short names for the instructions on vectors, over one llvmlite builder."""

    def __init__(self, builder):
        self.builder = builder

    def together(self, a, b, c):
        return call(self.builder, "fmuladd", Floats, a, b, c)

    def times(self, a, b):
        return self.builder.fmul(a, b, flags=FLAGS)

    def plus(self, a, b):
        return self.builder.fadd(a, b, flags=FLAGS)

    def minus(self, a, b):
        return self.builder.fsub(a, b, flags=FLAGS)

    def floats(self, a):
        return self.builder.bitcast(a, VF)

    def bits(self, a):
        return self.builder.bitcast(a, VI)

    def masked(self, a, mask):
        return self.builder.and_(a, constant(mask, VI))

    def polynomial(self, x, coefficients):
        """Horner's order: one constant less in a register, and one copy less, per term than shorter chains."""
        value = constant(coefficients[-1], VF)
        for coefficient in coefficients[-2::-1]:
            value = self.together(value, x, constant(coefficient, VF))
        return value

    def next_word(self, state):
        """xoshiro128+: the output and the next state."""
        b = self.builder
        s0, s1, s2, s3 = state
        word, moved = b.add(s0, s3), b.shl(s1, constant(9, VI))
        s2, s3 = b.xor(s2, s0), b.xor(s3, s1)
        s1, s0 = b.xor(s1, s2), b.xor(s0, s3)
        turned = b.or_(b.shl(s3, constant(11, VI)), b.lshr(s3, constant(21, VI)))
        return word, (s0, s1, b.xor(s2, moved), turned)

    def pair(self, word, angle_word):
        """Two normals of two words (see prompt_stream): u = (1 + g) 2^-k with 1 + g between sqrt(1/2) and sqrt(2).

        A generator that stops after a few instructions each time, so that the pairs of a token can be written side by
        side: processors look too few instructions ahead to find work in the next pair by themselves.
        """
        b = self.builder
        number = b.or_(self.masked(word, 0x7FFFFFFF), constant(1, VI))
        number = self.bits(b.sitofp(number, VF))
        yield
        angle = b.sitofp(b.shl(angle_word, constant(2, VI)), VF)
        yield
        # u = (1 + g) 2^-k: k from the exponent's bits, 1 + g between sqrt(1/2) and sqrt(2).
        power = self.masked(b.sub(number, constant(0x3F3504F3 + (31 << 23), VI)), 0xFF800000)  # -k 2^23
        yield
        angle = self.times(angle, constant(2.0**-31, VF))
        yield
        rest = self.together(self.floats(b.sub(number, power)), constant(2.0**-31, VF), constant(-1.0, VF))
        # cos(pi a/4) and sin(pi a/4)/a are polynomials in a^2.
        even = self.times(angle, angle)
        yield
        value = constant(_LOG[-1], VF)
        for coefficient in _LOG[-2::-1]:
            value = self.together(value, rest, constant(coefficient, VF))
            yield
        logarithm = self.times(b.sitofp(power, VF), constant(-0.6931471805599453 * 2.0**-23, VF))
        yield
        square = self.together(rest, value, logarithm)
        yield
        radius = call(b, "sqrt", Floats, square)
        yield
        cosine, sine = constant(_COS[-1], VF), constant(_SIN[-1], VF)
        for first, second in zip(_COS[-2::-1], _SIN[-2::-1], strict=True):
            cosine = self.together(cosine, even, constant(first, VF))
            sine = self.together(sine, even, constant(second, VF))
            yield
        # n1 = r (cos - sin), n2 = r (cos + sin), signs by the two top bits.
        middle, half = self.times(radius, cosine), self.times(radius, angle)
        yield
        found = []
        for side, sign in ((b.fneg(half), angle_word), (half, b.add(angle_word, angle_word))):
            value = self.bits(self.together(side, sine, middle))
            found.append(self.floats(b.xor(value, self.masked(sign, 0x80000000))))
            yield
        return found

    def pairs(self, state, count):
        """(normals of `count` pairs, next state)."""
        working = {}
        for i in range(count):
            word, state = self.next_word(state)
            angle_word, state = self.next_word(state)
            working[i] = self.pair(word, angle_word)
        found = {}
        while working:
            for i in list(working):
                try:
                    next(working[i])
                except StopIteration as stop:
                    found[i] = stop.value
                    del working[i]
        return [value for i in range(count) for value in found[i]], state


@intrinsic
def exp2(context, value):
    """2^value for value in [-126, 127], relative error 1e-7: polynomial on [-1/2, 1/2], exponent by adding 1.5 x 2^23."""

    def build(context, builder, signature, values):
        write, rounder = _Write(builder), constant(12582912.0, VF)
        # 2^x = 2^k 2^f: adding 1.5 x 2^23 leaves k = round(x) in the low bits.
        shifted = write.plus(values[0], rounder)
        rest = write.minus(values[0], write.minus(shifted, rounder))
        exponent = builder.shl(write.bits(shifted), constant(23, VI))
        return write.floats(builder.add(write.bits(write.polynomial(rest, _EXP2)), exponent))

    return (Floats(value), build) if value == Floats else None


def _chains(builder, left, right, first, size):
    """first + left[0] right[0] + left[1] right[1] + ..., added up in two chains; `first` may be None."""
    write, chains = _Write(builder), [first, None]
    for i in range(size):
        a, b = builder.extract_value(left, i), builder.extract_value(right, i)
        before = chains[i % 2]
        chains[i % 2] = write.times(a, b) if before is None else write.together(a, b, before)
    return chains[0] if chains[1] is None else write.plus(*chains)


def _are_vectors(left, right):
    return left == right and isinstance(left, types.UniTuple) and left.dtype == Floats


@intrinsic
def dot(context, left, right):
    """left[0] right[0] + left[1] right[1] + ... of two tuples of Floats."""

    def build(context, builder, signature, values):
        return _chains(builder, *values, None, len(left))

    return (Floats(left, right), build) if _are_vectors(left, right) else None


@intrinsic
def dot_minus(context, left, right, less):
    """left[0] right[0] + left[1] right[1] + ... - less."""

    def build(context, builder, signature, values):
        return _chains(builder, *values[:2], builder.fneg(values[2]), len(left))

    return (Floats(left, right, less), build) if _are_vectors(left, right) and less == Floats else None


_STATE = types.UniTuple(Ints, 4)


def _high_words(builder, x, y):
    wide = ir.VectorType(ir.IntType(64), VI.count)
    product = builder.mul(builder.zext(x, wide), builder.zext(y, wide))
    return builder.trunc(builder.lshr(product, constant(32, wide)), VI)


@intrinsic
def philox(context, key_low, key_high, prompt, step, stream):
    """State words of sixteen prompts from `prompt` on: Philox4x32-10 of the counter (prompt, step, stream, 0)."""

    def build(context, builder, signature, values):
        key0, key1, prompt, step, stream = (broadcast(builder, builder.trunc(v, WORD), VI) for v in values)
        c0, c1, c2, c3 = builder.add(prompt, ir.Constant(VI, list(range(VI.count)))), step, stream, constant(0, VI)
        first, second = constant(0xD2511F53, VI), constant(0xCD9E8D57, VI)
        for _ in range(10):
            c0, c1, c2, c3 = (
                builder.xor(builder.xor(_high_words(builder, second, c2), c1), key0),
                builder.mul(second, c2),
                builder.xor(builder.xor(_high_words(builder, first, c0), c3), key1),
                builder.mul(first, c0),
            )
            key0, key1 = builder.add(key0, constant(0x9E3779B9, VI)), builder.add(key1, constant(0xBB67AE85, VI))
        return context.make_tuple(builder, signature.return_type, (c0, c1, c2, c3))

    wide = (key_low, key_high, prompt, step, stream)
    return (_STATE(*wide), build) if all(isinstance(w, types.Integer) and w.bitwidth == 64 for w in wide) else None


@intrinsic(prefer_literal=True)
def normals(context, state, count):
    """(n1, ..., n_count, next state): standard normals in every lane from `count` words of xoshiro128+, an even number."""
    if state != _STATE or not isinstance(count, types.IntegerLiteral) or count.literal_value % 2:
        return None
    result = types.Tuple((*[Floats] * count.literal_value, _STATE))

    def build(context, builder, signature, values):
        now = tuple(builder.extract_value(values[0], i) for i in range(4))
        found, now = _Write(builder).pairs(now, count.literal_value // 2)
        return context.make_tuple(builder, result, (*found, context.make_tuple(builder, _STATE, now)))

    return result(state, count), build
