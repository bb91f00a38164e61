"""Token selection compiled for the CPU: one run after the other, all its steps while its matrices lie in the cache."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np

from attnlib.kernels import _build
from attnlib.kernels.buffers import VECTOR, aligned, whole
from attnlib.kernels.token_selection._packing import TOKENS, packing
from attnlib.kernels.token_selection.arguments import Call, Recorded

__all__ = ["advance"]

_AREAS = 14


@functools.cache
def _loops() -> ModuleType:
    """The compiled module."""
    return _build.module("token_selection", Path(__file__).with_name("_loops.py").read_text(encoding="utf-8"))


def _order(call: Call) -> np.ndarray:
    """Which probe stands at a packed place: token by token instead of sample by sample, also among the coordinates."""
    _, n, tokens = call.head_scores.shape
    order, N, rows = np.arange(call.values.shape[1]), n * tokens, call.kernel.shape[1]
    by_token = np.arange(N).reshape(n, tokens).T.ravel()
    order[:N] = by_token
    if call.follows_coordinates:
        order[rows : rows + N] = rows + by_token
    return order


def _train(call: Call, recorded: Recorded, runs: np.ndarray) -> None:
    """The given runs, one after the other, in buffers of their own."""
    loops = _loops()
    values, weighted, pi, kernel, gamma, labels = (
        x.numpy()
        for x in (call.values, call.weighted, call.prompt_norm_squared, call.kernel, call.head_scores, call.labels)
    )
    seen, seen_pi = recorded.values.numpy(), recorded.prompt_norm_squared.numpy()
    dtype, (_, n, tokens), (_, rows, N), probes = values.dtype, gamma.shape, kernel.shape, values.shape[1]
    lanes, order = VECTOR // values.itemsize, _order(call)
    packings = [packing(tuple(order[:size].tolist()), N, lanes) for size in (rows, probes)]
    K, S = (aligned(len(packed.place), dtype) for packed in packings)
    length = max(whole(probes, lanes), tokens * whole(n, lanes)) + 2 * lanes + TOKENS
    length = whole(length, lanes)
    areas = aligned(_AREAS * length, dtype).reshape(_AREAS, length)
    sizes, marks = call.step_sizes.numpy().astype(dtype), np.array(call.record, dtype=np.int64)
    for run in runs.tolist():
        areas[:] = 0
        areas[0, :probes] = values[run, order]
        areas[1, :N], areas[2, :n], areas[3, :2] = gamma[run].T.ravel(), labels[run], (1, 1 / n)
        packings[0].pack(kernel[run], K)
        packings[1].pack(weighted[run], S)
        pi[run] = loops.train(
            K, S, areas, N, rows, probes, n, tokens, pi[run], sizes, call.trained != "p", call.trained != "W", order,
            marks, seen, seen_pi, run,  # whole: views of one run would be of many types, each compiled anew
        )  # fmt: skip
        values[run, order] = areas[0, :probes]
        if call.trained == "both":
            packings[1].unpack(S, weighted[run])


def advance(call: Call, threads: int) -> Recorded:
    """All steps of a call; runs are shared out among `threads` threads, which changes no number."""
    recorded = call.empty_record()
    groups = np.array_split(np.arange(call.runs), min(threads, call.runs))
    if len(groups) == 1:
        _train(call, recorded, groups[0])
    else:
        _loops()  # compiled or loaded once, before the threads ask for it
        with ThreadPoolExecutor(len(groups)) as pool:
            list(pool.map(lambda runs: _train(call, recorded, runs), groups))
    return recorded
