"""The training loop of attention heads on the CPU, compiled: runs one after the other, each with all its steps at once.

A run's matrix is read again in every step; run by run it stays in the core's own cache. Scores are made anew from the coefficients
in every step, so no rounding gathers in them. Needs numba (extra `kernels`); the first call compiles (seconds, kept between
processes).
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from types import ModuleType

import numpy as np

from attnlib.kernels import _build
from attnlib.kernels.batches import on_threads, pieces
from attnlib.kernels.buffers import VECTOR, aligned, whole
from attnlib.kernels.heads.arguments import KINDS, PREPARATIONS, Call, Recorded

__all__ = ["advance"]

_WORK = (
    1 << 30
)  # products of two numbers in one call of the machine code: a tenth of a second or two, so that Ctrl-C is heard


@functools.cache
def _loops() -> ModuleType:
    return _build.module("heads", Path(__file__).with_name("_loops.py").read_text(encoding="utf-8"))


def _memory(call: Call) -> tuple[np.ndarray, ...]:
    """Working memory of one run: the matrix, rows of a state's length, numbers of samples, and numbers of rows."""
    width = whole(call.signals + call.n, VECTOR // 8)
    columns = call.coefficients.shape[1]
    shapes = ((width, width), (7, columns, width), (5, call.n), (1 + 4 * call.heads, call.n))
    made = [aligned(int(np.prod(shape)), np.float64).reshape(shape) for shape in shapes]
    return *made, np.zeros((2, width), dtype=np.int64)


def advance(call: Call, *, threads: int) -> Recorded:
    """See `attnlib.kernels.heads.advance`."""
    loops, seen = _loops(), call.blank()
    tensors = call.gram, call.coefficients, call.velocity, call.labels, call.classes, call.rates, call.factors
    arrays = [tensor.detach().numpy() for tensor in tensors]
    arrays.append(np.zeros((1, 1, 0), np.int64) if call.batches is None else call.batches.numpy())
    settings = (
        np.arange(call.n), KINDS.index(call.attention_map.kind), float(call.attention_map.setting), call.output_scale,
        call.heads, call.signals, PREPARATIONS.index(call.prepare), call.momentum, call.look_ahead,
    )  # fmt: skip
    marks = np.array(call.record, dtype=np.int64)
    kept = [tensor.numpy() for tensor in (seen.coefficients, seen.output, seen.attention)]
    closing = call.steps in call.record
    at_once = max(1, _WORK // (call.gram.shape[1] ** 2 * call.coefficients.shape[1]))
    largest = max(1, at_once // max(1, call.steps))
    rounds = -(-call.runs // (threads * largest))  # every thread gets as many runs as the others
    share = -(-call.runs // (threads * rounds))
    stop = threading.Event()

    def work(part: tuple[int, int]) -> None:
        memory = _memory(call)
        for first, last in pieces(call.steps, at_once) if call.steps else ((0, 0),):
            if stop.is_set():
                return
            loops.descend(
                *arrays, *settings, *memory, *part, first, last, int(closing and last == call.steps), marks, *kept
            )

    on_threads(work, list(pieces(call.runs, share)), threads, stop)
    return seen
