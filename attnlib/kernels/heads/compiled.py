"""The training loop of attention heads on the CPU, compiled: runs one after the other, each with all its steps at once.

A run's matrix is read again in every step; run by run it stays in the core's own cache. Scores are made anew from the coefficients
in every step, so no rounding gathers in them. The first call compiles (seconds, kept between processes).
"""

from __future__ import annotations

import numpy as np

from attnlib.kernels import _build
from attnlib.kernels.batches import VECTOR, aligned, in_calls, on_threads, pieces, whole
from attnlib.kernels.heads import KINDS, PREPARATIONS, Call, Recorded

_NEAR = 400  # samples whose matrix is read whole, from a near cache; a wider one is read by half, as it lies in memory
_WORK = 1 << 29  # products of two numbers in the first call of the machine code: about a tenth of a second


def _memory(call: Call) -> tuple[object, ...]:
    """Working memory of one run: order of its tokens, the matrix, states, tables of samples and places, what heads see."""
    dtype, size = call.gram.detach().numpy().dtype, call.signals + call.n
    lanes, order = VECTOR // dtype.itemsize, np.roll(np.arange(size), -call.signals)  # noise tokens first
    width = max(whole(size, lanes), 3 * lanes)

    def tables(count: int, rows: int) -> tuple[np.ndarray, ...]:
        return tuple(aligned(rows * width, dtype).reshape(rows, width) for _ in range(count))

    samples = tuple(table[0] for table in tables(3, 1))
    owns = tuple(np.zeros(size, dtype=np.uint64) for _ in range(3))  # unsigned: no look for places from the end
    return order, *tables(1, size), tables(7, call.coefficients.shape[1] + 1), samples, owns, tables(5, call.heads)


def advance(call: Call, *, threads: int) -> Recorded:
    """See `attnlib.kernels.heads.advance`."""
    loops, seen = _build.loops(__file__, "_loops.py"), call.blank()
    tensors = call.gram, call.coefficients, call.buffers, call.labels, call.classes, call.rates, call.factors
    arrays = [tensor.detach().numpy() for tensor in tensors]
    arrays.append(np.zeros((1, 1, 0), np.int64) if call.batches is None else call.batches.numpy())
    settings = (
        KINDS.index(call.attention_map.kind), float(call.attention_map.setting), call.output_scale, call.heads,
        call.signals, PREPARATIONS.index(call.prepare), call.momentum, call.look_ahead, call.n > _NEAR,
    )  # fmt: skip
    marks = np.array(call.record, dtype=np.int64)
    kept = [tensor.numpy() for tensor in (seen.coefficients, seen.output, seen.attention)]
    closing = call.steps in call.record
    at_once = max(1, _WORK // (call.gram.shape[1] ** 2 * call.coefficients.shape[1]))
    largest = max(1, at_once // max(1, call.steps))
    rounds = -(-call.runs // (threads * largest))  # every thread gets as many runs as the others

    def work(part: tuple[int, int]) -> None:
        memory = _memory(call)
        # A part of several runs is one call; a run that is cut stays in the memory between its calls.
        for first, last in in_calls(call.steps, at_once) if call.steps > at_once else ((0, call.steps),):
            loops.descend(
                *arrays, *settings, *memory, *part, first, last, int(closing and last == call.steps), marks, *kept
            )

    on_threads(work, pieces(call.runs, threads * rounds), threads)
    return seen
