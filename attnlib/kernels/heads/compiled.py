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

import numba
import numpy as np
from numba.core.codegen import get_host_cpu_features

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


def _widest() -> int:
    """Vectors of a product that the processor's registers hold for each of two columns."""
    # The sums are two of 64 bytes for each: 16 of AVX-512's 32 registers, 12 of AVX's 16 narrower ones, 8 of SSE's 16.
    features = get_host_cpu_features() if numba.config.CPU_NAME is None else numba.config.CPU_FEATURES or ""
    return 8 if "+avx512f" in features else 3 if "+avx" in features else 1


def _memory(call: Call) -> tuple[int, np.ndarray, np.ndarray, tuple[np.ndarray, ...], np.ndarray]:
    """Length of a row, and the working memory of one run: the matrix, seven states, tables of samples, places of a batch."""
    dtype = call.gram.detach().numpy().dtype
    width = whole(call.signals + call.n, VECTOR // dtype.itemsize)
    columns, table = call.coefficients.shape[1], call.signals * width
    states = aligned(7 * columns * width, dtype).reshape(7, -1)
    sizes = (width, table, width, table, (1 + 4 * call.heads) * width, VECTOR)
    tables = tuple(aligned(size, dtype) for size in sizes)
    return width, aligned(width * width, dtype), states, tables, np.zeros(call.n + call.signals, dtype=np.int64)


def advance(call: Call, *, threads: int) -> Recorded:
    """See `attnlib.kernels.heads.advance`."""
    loops, seen = _loops(), call.blank()
    tensors = call.gram, call.coefficients, call.buffers, call.labels, call.classes, call.rates, call.factors
    arrays = [tensor.detach().numpy() for tensor in tensors]
    arrays.append(np.zeros((1, 1, 0), np.int64) if call.batches is None else call.batches.numpy())
    number = arrays[0].dtype.type
    settings = (
        KINDS.index(call.attention_map.kind), number(call.attention_map.setting), number(call.output_scale), call.heads,
        call.signals, PREPARATIONS.index(call.prepare), number(call.momentum), call.look_ahead, _widest(),
    )  # fmt: skip
    marks = np.array(call.record, dtype=np.int64)
    kept = [tensor.numpy() for tensor in (seen.coefficients, seen.output, seen.attention)]
    closing = call.steps in call.record
    # Calls of the machine code are cut to about a tenth of a second: between them Ctrl-C is heard.
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
