"""The single head's training loop on the CPU, compiled: runs one after the other, each with all its steps at once.

A run's matrix is read again in every step. Run by run it stays in the core's own cache, where the batched form brings all R
matrices from memory in each step. Needs numba (extra `kernels`); the first call compiles (seconds, kept between processes).
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from types import ModuleType

import torch

from attnlib.kernels import _build
from attnlib.kernels.batches import on_threads, pieces
from attnlib.kernels.single_head.arguments import Call, Recorded

__all__ = ["advance"]

_WORK = 1 << 30  # products of two numbers in one call of the machine code: a tenth of a second, so that Ctrl-C is heard


def _loops() -> ModuleType:
    """The compiled module; its name depends on both sources that shape its machine code."""
    vectors, loops = (
        Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("_vectors.py", "_loops.py")
    )
    return _build.module("single_head", f"{loops}\n# {hashlib.sha256(vectors.encode()).hexdigest()}\n")


def advance(
    call: Call,
    gram: torch.Tensor,
    coefficients: torch.Tensor,
    labels: torch.Tensor,
    classes: torch.Tensor,
    *,
    threads: int,
) -> Recorded:
    """See `attnlib.kernels.single_head.advance`."""
    loops = _loops()
    seen = Recorded.blank(call, coefficients)
    runs, m = gram.shape[:2]
    arrays = [tensor.detach().numpy() for tensor in (gram, coefficients, labels, classes, call.rates)]
    kept = [tensor.numpy() for tensor in (seen.steps, seen.coefficients, seen.output, seen.attention)]
    closing = call.steps in call.record
    at_once = max(1, _WORK // (m * m))
    largest = max(1, at_once // max(1, call.steps))
    rounds = -(-runs // (threads * largest))  # every thread gets as many runs as the others
    share = -(-runs // (threads * rounds))
    stop = threading.Event()

    def work(part: tuple[int, int]) -> None:
        data, width = loops.buffer(call.n, arrays[0].dtype)
        for first, last in pieces(call.steps, at_once) if call.steps else ((0, 0),):
            if stop.is_set():
                return
            loops.descend(
                *arrays, data, width, loops.lanes_of(data.itemsize), *part, first, last,
                int(closing and last == call.steps), *kept,
            )  # fmt: skip

    on_threads(work, list(pieces(runs, share)), threads, stop)
    return seen
