"""Token selection compiled for the CPU: one run after the other, all its steps while its matrices lie in the cache."""

from __future__ import annotations

import numpy as np

from attnlib.kernels import _build
from attnlib.kernels.batches import aligned, in_calls, on_threads, pieces
from attnlib.kernels.token_selection import Call, Recorded

_AREAS = 11
_WORK = 1 << 28  # numbers of S and K that the first call of a run reads: about a tenth of a second


def advance(call: Call, threads: int) -> Recorded:
    """All steps of a call; runs are shared out among `threads` threads, which changes no number."""
    recorded, loops = call.blank(), _build.loops(__file__, "_loops.py")
    fixed = (x.contiguous() for x in (call.kernel, call.head_scores, call.labels))
    arrays = [x.numpy() for x in (call.values, call.weighted, call.prompt_norm_squared, *fixed)]
    sizes, marks = call.step_sizes.numpy(), np.array(call.record, dtype=np.int64)
    seen = recorded.values.numpy(), recorded.prompt_norm_squared.numpy()

    given = *arrays, sizes, marks, *seen
    at_once = max(1, _WORK // (call.values.shape[1] * call.kernel.shape[2]))

    def work(runs: tuple[int, int]) -> None:
        areas = tuple(aligned(call.values.shape[1], arrays[0].dtype) for _ in range(_AREAS))
        for run in range(*runs):
            for first, last in in_calls(call.steps, at_once):
                loops.train(*given, areas, run, first, last)

    on_threads(work, pieces(call.runs, threads), threads)
    return recorded
