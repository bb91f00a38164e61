"""Vectors as wide as the processor's registers, for code that is written instruction by instruction and reads like numpy.

No vector type of numba is made: a loop over vectors is one intrinsic, because numba's analysis of a long source takes
longer than the compiler's work on its instructions.
"""

from __future__ import annotations

import math

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features

__all__ = ["BYTES", "FLAGS", "WIDEST", "Buffer", "Lanes", "call", "is_buffer"]

# Bytes of a vector, and how many vectors of a product's result the loops hold in registers for each of the two columns.
# A processor named by NUMBA_CPU_NAME has what NUMBA_CPU_FEATURES says: this one can stand in for it.
_FEATURES = get_host_cpu_features() if numba.config.CPU_NAME is None else numba.config.CPU_FEATURES or ""
if "+avx512f" in _FEATURES:
    BYTES, WIDEST = 64, 8
elif "+avx" in _FEATURES:
    BYTES, WIDEST = 32, 6
else:
    BYTES, WIDEST = 16, 6

# Sums keep their written order: with `reassoc` the two-part logarithm of 2 below would be put together again.
FLAGS = ("contract",)
_INDEX = ir.IntType(32)


class Kind:
    """What exp needs to know of a floating type: e^f = 1 + f + f^2 q(f) for |f| <= log(2)/2, least largest error fitted here."""

    def __init__(self, scalar, word, suffix, shift, least, log2, log2_rest, q):
        self.suffix, self.shift, self.least = suffix, shift, least
        self.log2, self.log2_rest, self.q = log2, log2_rest, q
        self.lanes = BYTES * 8 // word.width
        self.scalar, self.word = scalar, word
        self.vector, self.words = ir.VectorType(scalar, self.lanes), ir.VectorType(word, self.lanes)
        self.rounder = 1.5 * 2.0**shift  # a number below 2^(shift - 1) loses its fraction when this is added
        self.one = (1023 if word.width == 64 else 127) << shift  # bits of 1.0
        self.name = f"v{self.lanes}{suffix}"


SINGLE = Kind(
    ir.FloatType(), ir.IntType(32), "f32", 23, -87.0, 0.693115234375, 3.194618329871446e-05,
    (0.5, 0.16666576266288757, 0.041666556149721146, 0.008363178931176662, 0.0013926184037700295),
)  # fmt: skip
DOUBLE = Kind(
    ir.DoubleType(), ir.IntType(64), "f64", 52, -708.0, 0.6931471803691238, 1.9082149292705877e-10,
    (0.5, 0.16666666666666669, 0.04166666666662413, 0.008333333333330062, 0.0013888888917213717,
     0.00019841269863053618, 2.4801521295954376e-05, 2.7557268459997064e-06, 2.7620088445409746e-07,
     2.510038549551032e-08),
)  # fmt: skip


class Lanes:
    """A vector in the making, so that instructions read like numpy."""

    def __init__(self, builder, kind, value):
        self.builder, self.kind, self.value = builder, kind, value

    def _made(self, value):
        return Lanes(self.builder, self.kind, value)

    def _value(self, other):
        if isinstance(other, Lanes):
            return other.value
        return ir.Constant(self.kind.vector, [other] * self.kind.lanes)

    def __add__(self, other):
        return self._made(self.builder.fadd(self.value, self._value(other), flags=FLAGS))

    def __sub__(self, other):
        return self._made(self.builder.fsub(self.value, self._value(other), flags=FLAGS))

    def __mul__(self, other):
        return self._made(self.builder.fmul(self.value, self._value(other), flags=FLAGS))

    def __rtruediv__(self, other):
        return self._made(self.builder.fdiv(self._value(other), self.value, flags=FLAGS))

    def is_at_least(self, number):
        return self.builder.fcmp_ordered(">=", self.value, self._value(number))

    def where(self, mask, other):
        """This where the mask holds, else the other."""
        return self._made(self.builder.select(mask, self.value, self._value(other)))

    def tail(self):
        """e^-|x|; from e^-87 on (float32) or e^-708 (float64) it falls no further. A NaN stays one."""
        kind, b = self.kind, self.builder
        x = self._made(b.fneg(call(b, f"llvm.fabs.{kind.name}", self.value)))
        x = self._made(b.select(b.fcmp_ordered("<", x.value, x._value(kind.least)), x._value(kind.least), x.value))
        shifted = x * (1.0 / math.log(2.0)) + kind.rounder
        power = shifted - kind.rounder
        f = x - power * kind.log2 - power * kind.log2_rest
        # Neighbours are put together, then pairs of neighbours, ...: a shorter wait than one term after the other.
        terms, power_of_f = [self._made(self._value(coefficient)) for coefficient in kind.q], f
        square = f * f
        while len(terms) > 1:
            odd = terms[-1:] if len(terms) % 2 else []
            terms = [high * power_of_f + low for low, high in zip(terms[::2], terms[1::2], strict=False)] + odd
            power_of_f = power_of_f * power_of_f
        bits = b.shl(b.bitcast(shifted.value, kind.words), ir.Constant(kind.words, [kind.shift] * kind.lanes))
        bits = b.add(bits, ir.Constant(kind.words, [kind.one] * kind.lanes))
        return (terms[0] * square + (f + 1.0)) * self._made(b.bitcast(bits, kind.vector))


def call(builder, name, *values):
    kind = values[0].type
    declared = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * len(values)), name)
    return builder.call(declared, values, fastmath=FLAGS)


class Buffer:
    """A one-dimensional array of floats inside a function in the making; vectors in it begin at multiples of their length."""

    def __init__(self, context, builder, array_type, array):
        self.builder = builder
        self.kind = SINGLE if array_type.dtype == types.float32 else DOUBLE
        self.data = context.make_array(array_type)(context, builder, array).data

    def _place(self, at):
        return self.builder.bitcast(self.builder.gep(self.data, [at]), self.kind.vector.as_pointer())

    def load(self, at):
        value = self.builder.load(self._place(at))
        value.align = BYTES
        return Lanes(self.builder, self.kind, value)

    def store(self, at, lanes):
        self.builder.store(lanes.value, self._place(at), align=BYTES)

    def number(self, at):
        return self.builder.load(self.builder.gep(self.data, [at]))

    def everywhere(self, number):
        """A number in all lanes."""
        b, kind = self.builder, self.kind
        blank = ir.Constant(kind.vector, ir.Undefined)
        single = b.insert_element(blank, number, _INDEX(0))
        zeros = ir.Constant(ir.VectorType(_INDEX, kind.lanes), [0] * kind.lanes)
        return Lanes(b, kind, b.shuffle_vector(single, blank, zeros))

    def add(self, at, number):
        place = self.builder.gep(self.data, [at])
        self.builder.store(self.builder.fadd(self.builder.load(place), number, flags=FLAGS), place)


def is_buffer(array):
    return isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"
