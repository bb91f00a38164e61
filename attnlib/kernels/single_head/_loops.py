"""Gradient descent of the attention head in Gram coordinates, for the CPU: a run's steps are made while its matrix is near.

`compiled` loads this file through `_build`, which keeps its machine code between processes. One source for float32 and
float64; a vector is one register of the processor, whatever that holds.

Working memory of a run is one buffer, in whole vectors, `width` numbers a row. Its order of vectors of the basis is the n
noise tokens, then the two signals, then padding; start vectors only contribute a constant to the scores.
"""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from attnlib.kernels.single_head._vectors import BYTES, WIDEST, Buffer, Lanes, call, is_buffer


def _multiply(vectors):
    """Scores of `vectors` vectors of the result: both columns at once, each row of the tile read once, sums in registers."""

    @intrinsic
    def multiply(context, data, tile_at, rows, start_at, coefficients_at, scores_at, width):
        def build(context, builder, signature, values):
            array, tile_at, rows, start_at, coefficients_at, scores_at, width = values
            buffer = Buffer(context, builder, data, array)
            index, lanes = tile_at.type, buffer.kind.lanes

            def places(at):
                rows = (at, builder.add(at, width))
                return [builder.add(row, index(lanes * i)) for row in rows for i in range(vectors)]

            sums = [cgutils.alloca_once_value(builder, buffer.load(at).value) for at in places(start_at)]
            with cgutils.for_range(builder, rows) as loop:
                at = builder.add(coefficients_at, loop.index)
                factors = [buffer.everywhere(buffer.number(place)).value for place in (at, builder.add(at, width))]
                at = builder.add(tile_at, builder.mul(loop.index, index(lanes * vectors)))
                for i in range(vectors):
                    row = buffer.load(builder.add(at, index(lanes * i))).value
                    for factor, total in zip(factors, (sums[i], sums[vectors + i]), strict=True):
                        fused = call(builder, f"llvm.fmuladd.{buffer.kind.name}", row, factor, builder.load(total))
                        builder.store(fused, total)
            for at, total in zip(places(scores_at), sums, strict=True):
                buffer.store(at, Lanes(builder, buffer.kind, builder.load(total)))
            return context.get_dummy_value()

        integers = (tile_at, rows, start_at, coefficients_at, scores_at, width)
        return (types.void(data, *integers), build) if is_buffer(data) else None

    return multiply


multiply3, multiply4, multiply5, multiply6, multiply7, multiply8 = map(_multiply, range(3, 9))


@intrinsic
def update(context, data, n, width, scores_at, coefficients_at, signs_at, seen_at, value_rate, attention_rate):
    """One step of all samples: output and attention are kept at `seen_at`, the coefficients changed."""

    def build(context, builder, signature, values):
        array, n, width, scores_at, coefficients_at, signs_at, seen_at, value_rate, attention_rate = values
        buffer = Buffer(context, builder, data, array)
        kind = buffer.kind

        def two_rows(at, place):
            return builder.add(at, place), builder.add(builder.add(at, width), place)

        value_rate, attention_rate = buffer.everywhere(value_rate), buffer.everywhere(attention_rate)
        signals = [
            [buffer.everywhere(buffer.number(at)) for at in two_rows(scores_at, builder.add(n, n.type(k)))]
            for k in range(2)
        ]
        zero = ir.Constant(kind.vector, [0.0] * kind.lanes)
        totals = [cgutils.alloca_once_value(builder, zero) for _ in range(4)]
        lanes = n.type(kind.lanes)
        vectors = builder.sdiv(builder.add(n, n.type(kind.lanes - 1)), lanes)
        with cgutils.for_range(builder, vectors) as loop:
            place = builder.mul(loop.index, lanes)
            value, score = (buffer.load(at) for at in two_rows(scores_at, place))
            label, second = (buffer.load(at) for at in two_rows(signs_at, place))  # +-1; 1 for the second class
            is_second = second.is_at_least(1.0)
            value_gap = signals[1][0].where(is_second, signals[0][0]) - value
            score_gap = signals[1][1].where(is_second, signals[0][1]) - score
            tail = score_gap.tail()
            share = 1.0 / (tail + 1.0)
            positive = score_gap.is_at_least(0.0)
            on_signal, on_noise = share.where(positive, tail * share), (tail * share).where(positive, share)
            output = value + on_signal * value_gap
            margin = label * output
            tail = margin.tail()
            one = Lanes(builder, kind, margin._value(1.0))
            pull = label * tail.where(margin.is_at_least(0.0), one) * (1.0 / (tail + 1.0))
            weighted = value_rate * pull
            moves = (weighted * on_signal, attention_rate * pull * on_signal * on_noise * value_gap)
            for at, seen in zip(two_rows(seen_at, place), (output, on_signal), strict=True):
                buffer.store(at, seen)
            value_at, score_at = two_rows(coefficients_at, place)
            buffer.store(value_at, buffer.load(value_at) + weighted * on_noise)
            buffer.store(score_at, buffer.load(score_at) - moves[1])
            of_second = [move * second for move in moves]
            of_first = [move - part for move, part in zip(moves, of_second, strict=True)]
            for total, move in zip(totals, (*of_first, *of_second), strict=True):
                builder.store((Lanes(builder, kind, builder.load(total)) + move).value, total)
        name = f"llvm.vector.reduce.fadd.{kind.name}"
        reduce = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind.scalar, [kind.scalar, kind.vector]), name
        )
        for k in range(2):
            ends = two_rows(coefficients_at, builder.add(n, n.type(k)))
            for at, total in zip(ends, totals[2 * k : 2 * k + 2], strict=True):
                arguments = [ir.Constant(kind.scalar, -0.0), builder.load(total)]
                buffer.add(at, builder.call(reduce, arguments, fastmath=("reassoc",)))
        return context.get_dummy_value()

    if not is_buffer(data) or value_rate != data.dtype or attention_rate != data.dtype:
        return None
    integers = (n, width, scores_at, coefficients_at, signs_at, seen_at)
    return types.void(data, *integers, value_rate, attention_rate), build


@numba.njit(nogil=True, error_model="numpy")
def tile_size(i, vectors):
    """Vectors of tile i when `vectors` are shared out evenly among as few tiles as can be."""
    tiles = (vectors + WIDEST - 1) // WIDEST
    return vectors // tiles + (1 if i < vectors % tiles else 0)


@numba.njit(nogil=True, error_model="numpy")
def product(data, vectors, lanes, rows, start_at, coefficients_at, scores_at, width):
    """Scores of all vectors of the basis, tile by tile."""
    at = done = i = 0
    while done < vectors:
        size = tile_size(i, vectors)
        places = start_at + lanes * done, scores_at + lanes * done
        if size == 8:
            multiply8(data, at, rows, places[0], coefficients_at, places[1], width)
        elif size == 7:
            multiply7(data, at, rows, places[0], coefficients_at, places[1], width)
        elif size == 6:
            multiply6(data, at, rows, places[0], coefficients_at, places[1], width)
        elif size == 5:
            multiply5(data, at, rows, places[0], coefficients_at, places[1], width)
        elif size == 4:
            multiply4(data, at, rows, places[0], coefficients_at, places[1], width)
        else:
            multiply3(data, at, rows, places[0], coefficients_at, places[1], width)
        at += rows * size * lanes
        done += size
        i += 1


@numba.njit(nogil=True, error_model="numpy")
def source(j, n):
    """Row of the caller's matrix for the buffer's vector j."""
    return j + 2 if j < n else j - n


@numba.njit(nogil=True, error_model="numpy")
def pack(gram, coefficients, labels, classes, data, vectors, lanes, start_at, coefficients_at, signs_at, width):
    """A run's numbers into the buffer: the matrix tile by tile, row by row within a tile."""
    n, m = labels.shape[0], gram.shape[0]
    rows = n + 2
    at = first = i = 0
    while first < width:
        wide = tile_size(i, vectors) * lanes
        end = min(wide, n - first)  # of the noise tokens in the tile
        for j in range(rows):
            row = gram[source(j, n)]
            for k in range(end):
                data[at + k] = row[2 + first + k]
            for k in range(max(0, end), wide):
                data[at + k] = row[source(first + k, n)] if first + k < rows else 0.0
            at += wide
        first += wide
        i += 1
    for j in range(width):
        for c in range(2):
            data[coefficients_at + c * width + j] = coefficients[source(j, n), c] if j < rows else 0.0
            total = data.dtype.type(0)
            if j < rows:
                for s in range(rows, m):
                    total += gram[s, source(j, n)] * coefficients[s, c]
            data[start_at + c * width + j] = total
        data[signs_at + j] = labels[j] if j < n else 0.0
        data[signs_at + width + j] = classes[j] if j < n else 0.0


@numba.njit(nogil=True, error_model="numpy")
def unpack(data, coefficients_at, width, n, coefficients):
    for j in range(n + 2):
        for c in range(2):
            coefficients[source(j, n), c] = data[coefficients_at + c * width + j]


def lanes_of(itemsize):
    """Numbers in a vector."""
    return BYTES // itemsize


def buffer(n, dtype):
    """Working memory of one run, on a vector's boundary, and the numbers in its rows."""
    lanes = lanes_of(np.dtype(dtype).itemsize)
    width = max(-(-(n + 2) // lanes), WIDEST // 2) * lanes
    raw = np.zeros((n + 2 + 10) * width + lanes, dtype=dtype)
    return raw[(-raw.ctypes.data // raw.itemsize) % lanes :], width


@numba.njit(nogil=True, error_model="numpy", cache=True)
def descend(
    gram,
    coefficients,
    labels,
    classes,
    rates,
    data,
    width,
    lanes,
    first_run,
    last_run,
    first,
    last,
    closing,
    marks,
    kept,
    outputs,
    attentions,
):
    """Steps first ... last - 1 of some runs; with `closing` the state after them is among the recorded ones."""
    n, m = labels.shape[1], gram.shape[1]
    vectors, rows = width // lanes, n + 2
    start_at = rows * width
    coefficients_at, scores_at, signs_at, seen_at = (
        start_at + 2 * width,
        start_at + 4 * width,
        start_at + 6 * width,
        start_at + 8 * width,
    )
    for r in range(first_run, last_run):
        pack(
            gram[r],
            coefficients[r],
            labels[r],
            classes[r],
            data,
            vectors,
            lanes,
            start_at,
            coefficients_at,
            signs_at,
            width,
        )
        place = 0
        while place < marks.shape[0] and marks[place] < first:
            place += 1
        for step in range(first, last + closing):
            product(data, vectors, lanes, rows, start_at, coefficients_at, scores_at, width)
            seen = place < marks.shape[0] and marks[place] == step
            if seen:
                unpack(data, coefficients_at, width, n, kept[r, place])
                for j in range(rows, m):
                    for c in range(2):
                        kept[r, place, j, c] = coefficients[r, j, c]
            if step == last:
                unpack(data, coefficients_at, width, n, coefficients[r])
            update(data, n, width, scores_at, coefficients_at, signs_at, seen_at, rates[r, 0], rates[r, 1])
            if seen:
                for j in range(n):
                    outputs[r, place, j] = data[seen_at + j]
                    attentions[r, place, j] = data[seen_at + width + j]
                place += 1
        if not closing:
            unpack(data, coefficients_at, width, n, coefficients[r])
