"""The compiled form: numba's machine code on the CPU, integrals shared out among threads."""

from __future__ import annotations

import torch

from attnlib.kernels import _build
from attnlib.kernels.batches import in_calls, on_threads, pieces

_LEAST = 128  # integrals that are worth a thread: half a millisecond
_CALL = 1024  # integrals of a first call: a few milliseconds
_PIECES = 2  # of every thread: integrals differ in cost, and a piece has one of its own


def advance(level: torch.Tensor, omega: torch.Tensor, slope: torch.Tensor, threads: int) -> torch.Tensor:
    """`reference.advance` of finite float64 vectors (R,) on the CPU. The result does not depend on `threads`."""
    out = torch.empty_like(level)
    arrays = tuple(x.contiguous().numpy() for x in (level, omega, slope, out))
    run, count = _build.loops(__file__, "_loops.py").log_masses, len(level)
    threads = min(threads, max(1, count // _LEAST))

    def work(piece: tuple[int, int]) -> None:
        for first, last in in_calls(piece[1] - piece[0], _CALL):
            run(*arrays, piece[0] + first, piece[0] + last)

    on_threads(work, pieces(count, threads * _PIECES if threads > 1 else 1), threads)
    return out
