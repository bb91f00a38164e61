"""Memory and threads of the loops. Runs go in batches that fit in memory; a batch that does not fit after all is cut in halves."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from attnlib import checks

__all__ = ["VECTOR", "aligned", "fitting", "in_batches", "on_device", "on_threads", "pieces", "whole"]

T = TypeVar("T")
VECTOR = 64  # bytes: the boundary that whole vectors want
_SHARE = 0.8  # of the free memory that one batch may take
_CPU_BYTES = 1 << 30  # a batch of the reference on the CPU: larger ones gain nothing

log = logging.getLogger("attnlib.kernels")


def free_bytes(device: torch.device) -> int:
    """Memory that a batch may take on `device`: what is free there, and what torch keeps for reuse."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(_SHARE * (torch.cuda.mem_get_info(device)[0] + kept))
    return _CPU_BYTES


def on_device(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Inside, `device` is the current one: GPU programs are launched there, and must be where their tensors are."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def fitting(runs: int, bytes_per_run: int, device: torch.device) -> int:
    """How many of `runs` runs fit at once, at least one."""
    checks.whole_number("runs", runs, at_least=1)
    checks.whole_number("bytes_per_run", bytes_per_run, at_least=1)
    return max(1, min(runs, free_bytes(device) // bytes_per_run))


def in_batches(
    work: Callable[[slice], None], runs: int, *, bytes_per_run: int, device: torch.device, largest: int | None = None
) -> None:
    """Call `work` on consecutive slices of range(runs), with `device` as the current one.

    Args:
        work: does one slice. It must take all the memory it needs before it changes anything: when the device has too
            little (torch.OutOfMemoryError) the same runs are done again in smaller slices.
        runs: R >= 1.
        bytes_per_run: working memory of one run.
        device: where it is taken.
        largest: at most this many runs at once.

    Raises MemoryError when even one run does not fit.
    """
    size = fitting(runs, bytes_per_run, device)
    size = size if largest is None else min(size, checks.whole_number("largest", largest, at_least=1))
    if size < runs:
        log.info("%d runs in batches of %d: one needs %.3g MB on %s", runs, size, bytes_per_run / 1e6, device)
    done = 0
    while done < runs:
        part = slice(done, min(done + size, runs))
        held = part.stop - part.start
        try:
            with on_device(device):
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


def pieces(total: int, size: int) -> list[tuple[int, int]]:
    """0 ... total cut into pieces of `size`: (first, last) pairs."""
    return [(first, min(first + size, total)) for first in range(0, total, size)]


def on_threads(
    work: Callable[[T], None], tasks: Sequence[T], threads: int, stop: threading.Event | None = None
) -> None:
    """Call `work` on every task, at most `threads` at a time. When one fails, or on Ctrl-C, `stop` is set for the others."""
    if threads == 1 or len(tasks) == 1:
        for task in tasks:
            work(task)
        return
    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        try:
            list(pool.map(work, tasks))
        except BaseException:
            if stop is not None:
                stop.set()
            raise


def aligned(size: int, dtype: np.dtype | type) -> np.ndarray:
    """`size` zeros that begin on a 64-byte boundary."""
    raw = np.zeros(size + VECTOR // np.dtype(dtype).itemsize, dtype=dtype)
    start = -raw.ctypes.data % VECTOR // raw.itemsize
    return raw[start : start + size]


def whole(size: int, unit: int) -> int:
    """`size` rounded up to a multiple of `unit`."""
    return -(-size // unit) * unit
