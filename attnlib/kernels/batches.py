"""Memory, threads and interruptions of the loops. Runs go in batches that fit in memory; a batch that does not fit after all is cut
in halves. Machine code is called for a tenth of a second at a time: between two calls Python hears Ctrl-C.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")
VECTOR = 64  # bytes: the boundary that whole vectors want
_SHARE = 0.8  # of the free memory that one batch may take
_CPU_BYTES = 1 << 30  # a batch of the reference on the CPU: larger ones gain nothing
_SECONDS = 0.1  # of a call of machine code
# In a thread: what tells it that the work it shares in has ended elsewhere.
_ended: contextvars.ContextVar[tuple[threading.Event, ...]] = contextvars.ContextVar("_ended", default=())

log = logging.getLogger("attnlib.kernels")


def free_bytes(device: torch.device) -> int:
    """Memory that a batch may take on `device`: what is free there, and what torch keeps for reuse."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(_SHARE * (torch.cuda.mem_get_info(device)[0] + kept))
    return _CPU_BYTES


def in_batches(
    work: Callable[[slice], None], runs: int, *, bytes_per_run: int, device: torch.device, largest: int | None = None
) -> None:
    """Call `work` on consecutive slices of range(runs), as many runs at once as fit, with `device` as the current one.

    Args:
        work: does one slice. It must take all the memory it needs before it changes anything: when the device has too
            little (torch.OutOfMemoryError) the same runs are done again in smaller slices.
        runs: R >= 1.
        bytes_per_run: working memory of one run.
        device: where it is taken. GPU programs are launched on the current device, and must be where their tensors are.
        largest: at most this many runs at once.

    Raises MemoryError when even one run does not fit.
    """
    most = free_bytes(device) // bytes_per_run
    size = max(1, min(runs, most, runs if largest is None else largest))
    if size < runs:
        log.info("%d runs in batches of %d: one needs %.3g MB on %s", runs, size, bytes_per_run / 1e6, device)
    done = 0
    while done < runs:
        part = slice(done, min(done + size, runs))
        held = part.stop - part.start
        try:
            with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
                work(part)
        except torch.OutOfMemoryError as error:
            if held == 1:
                raise MemoryError(
                    f"one run does not fit in the memory of {device}: it needs about {bytes_per_run / 1e6:.3g} MB; "
                    "take smaller runs, or device='cpu'"
                ) from error
            size = held // 2
            log.warning("%d runs do not fit in the memory of %s: going on with batches of %d", held, device, size)
        else:
            done = part.stop
            continue
        if device.type == "cuda":  # only now: until here the error holds the attempt's tensors
            torch.cuda.empty_cache()


def pieces(total: int, count: int) -> list[tuple[int, int]]:
    """0 ... total cut into so many pieces of nearly the same length: (first, last) pairs; (0, 0) of nothing."""
    count = max(1, min(count, total))
    return list(itertools.pairwise(total * i // count for i in range(count + 1)))


def in_calls(total: int, guess: int, seconds: float = _SECONDS) -> Iterator[tuple[int, int]]:
    """0 ... total cut into calls of about so many seconds: (first, last) pairs, the first of them `guess` long; (0, 0) of nothing.

    The others are as long as the one before tells. Between two calls Python hears Ctrl-C; in a thread of `on_threads` whose work
    has ended elsewhere this raises KeyboardInterrupt.
    """
    last, size = 0, max(1, guess)
    while True:
        if any(event.is_set() for event in _ended.get()):
            raise KeyboardInterrupt("the work of this thread was ended by another")
        first, last, begin = last, min(last + size, total), time.perf_counter()
        yield first, last
        if last == total:
            return
        factor = seconds / max(time.perf_counter() - begin, 1e-9)
        size = max(1, int(size * min(max(factor, 0.25), 4.0)))


def on_threads(work: Callable[[T], None], tasks: Sequence[T], threads: int) -> None:
    """Call `work` on every task, at most `threads` at a time. When one fails, or on Ctrl-C, the others end at their next `in_calls`."""
    if threads == 1 or len(tasks) == 1:
        for task in tasks:
            work(task)
        return
    ended = (*_ended.get(), threading.Event())

    def one(task: T) -> None:
        _ended.set(ended)  # a thread has a context of its own
        work(task)

    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        try:
            waiting = {pool.submit(one, task) for task in tasks}
            while waiting:  # a fifth of a second at a time: on Windows a thread that waits hears nothing
                done, waiting = wait(waiting, 0.2, FIRST_EXCEPTION)
                for future in done:
                    future.result()
        except BaseException:
            ended[-1].set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def aligned(size: int, dtype: np.dtype | type) -> np.ndarray:
    """`size` zeros that begin on a 64-byte boundary."""
    raw = np.zeros(size + VECTOR // np.dtype(dtype).itemsize, dtype=dtype)
    start = -raw.ctypes.data % VECTOR // raw.itemsize
    return raw[start : start + size]


def whole(size: int, unit: int) -> int:
    """`size` rounded up to a multiple of `unit`."""
    return -(-size // unit) * unit
