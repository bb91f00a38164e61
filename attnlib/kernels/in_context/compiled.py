"""Training of in-context regression, compiled: `reference.advance` in float32, about a hundred times faster.

Needs numba (extra `kernels`), asked for at the first call, which also compiles (seconds; kept between processes): up to
d = `WRITTEN_OUT` for that d alone, beyond it once for all. `reference` says what is computed, `prompt_stream` from which random numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch

from attnlib.kernels import _build
from attnlib.kernels.batches import aligned, in_calls, on_threads, whole
from attnlib.kernels.in_context import OPTIMISERS, Call
from attnlib.kernels.in_context._source import source
from attnlib.kernels.prompt_stream import normals_per_prompt

WRITTEN_OUT = 12  # the largest d whose loop is written out; the time to compile grows with d, to minutes at 40
_LANES = 16
_WORK = 1 << 28  # numbers of tokens that heads read in a first call: about a twentieth of a second


def _loops() -> ModuleType:
    return _build.loops(__file__, "_loops.py")


def _trainer(d: int) -> Callable[..., Any]:
    return functools.partial(_loops().train, d) if d > WRITTEN_OUT else _written_out(d).train


@functools.cache
def _written_out(d: int) -> ModuleType:
    return _build.module(f"in_context_d{d}", source(d))


def _scratch(call: Call, runs: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """The kernel's buffer, and where its areas begin (the states' before last; last, the size of one of a state's three parts).

    The buffer starts with the lane weights of the last block and with ones. An area may be overrun by a vector.
    """
    blocks = -(-call.batch // _LANES)
    # A single run uses each block of prompts at once; several runs of one stream read the same blocks in turn.
    held = 1 if runs == 1 else blocks
    n, heads = call.width, call.heads
    state = whole(heads * (3 * n * n + n), _LANES)
    vectors, rows = _LANES * n * blocks, _LANES * whole(n, _LANES) * blocks
    sizes = (
        {
            "targets": _LANES * held,
            "queries": _LANES * call.d * held,
            "tokens": _LANES * n * call.length * held,
            "exponentials": _LANES * call.length,
            "means": _LANES * 2 * n * heads,
            "sums": _LANES * n * n * heads,
            "circuits": whole(heads * (n * n + n), _LANES) + 2 * _LANES,
            "circuit gradient": whole(2 * n * n + n, _LANES) + 2 * _LANES,
        }
        if call.d <= WRITTEN_OUT
        else {
            "prompts": _LANES * 2 * n * held,
            "tokens": _LANES * (n * call.length * held + 1),
            "queries as rows": rows,
            "weights and values": _LANES * 2 * call.length * heads,
            "u": _LANES * n,
            "V": _LANES * n * heads,
            "W_Q z_q": vectors * heads,
            "W_K C": vectors * heads,
            "A": vectors * heads,
            "C": _LANES * n,
            "C as rows": rows * heads,
            "row": whole(n, _LANES),
        }
    )
    sizes |= {"gradient": state + 2 * _LANES, "states": 3 * state * runs + 2 * _LANES}
    ends = np.cumsum([2 * _LANES, *sizes.values()])
    data = aligned(int(ends[-1]), np.float32)
    data[: call.batch - _LANES * (blocks - 1)] = 1.0
    data[_LANES : 2 * _LANES] = 1.0
    return data, (*map(int, ends[:-1]), state)


def _groups(call: Call, threads: int) -> list[np.ndarray]:
    """Runs that are trained together: those of one stream, cut so that there is work for every thread and a step of all is short."""
    groups = [np.flatnonzero(call.streams == stream) for stream in np.unique(call.streams)]
    pieces, together = -(-threads // len(groups)), max(1, _WORK // _step(call))
    return [
        part
        for group in groups
        for part in np.array_split(group, min(max(pieces, -(-len(group) // together)), len(group)))
    ]


def _step(call: Call) -> int:
    """Numbers that the heads of a run read in a step, of tokens and, for each prompt, of their matrices."""
    matrices = 2 * call.width if call.d > WRITTEN_OUT else 0
    return call.batch * (call.length + matrices) * call.width * call.heads


def advance(
    call: Call, weights: torch.Tensor, first_moment: torch.Tensor, second_moment: torch.Tensor, threads: int
) -> torch.Tensor:
    """Train as `attnlib.kernels.in_context.advance` says: float32 tensors on the CPU, changed in place."""
    train = _trainer(call.d)
    state = [tensor.numpy().reshape(len(weights), -1) for tensor in (weights, first_moment, second_moment)]
    numbers = state[0].shape[1]
    losses = np.empty((len(weights), call.steps), dtype=np.float32)

    def work(group: np.ndarray) -> None:
        data, areas = _scratch(call, len(group))
        size = areas[-1]
        mine = data[areas[-2] :][: 3 * size * len(group)].reshape(len(group), 3, size)[..., :numbers]
        for i, array in enumerate(state):
            mine[:, i] = array[group]
        my_losses = np.empty((len(group), call.steps), dtype=np.float32)
        for first, last in in_calls(call.steps, max(1, _WORK // (_step(call) * len(group)))):
            train(
                call.heads, len(group), data, data.view(np.int32), areas, call.seed & 0xFFFFFFFF, call.seed >> 32,
                int(call.streams[group[0]]), call.first_step, first, last, call.length, call.batch, np.float32(call.beta_std),
                np.float32(call.noise_std), np.float32(call.target_noise_std), OPTIMISERS.index(call.optimiser),
                call.learning_rate[group], call.weight_decay, *call.betas, call.eps, my_losses,
            )  # fmt: skip
        for i, array in enumerate(state):
            array[group] = mine[:, i]
        losses[group] = my_losses

    on_threads(work, _groups(call, threads), threads)
    return torch.from_numpy(losses)


def normals(
    seed: int, streams: Sequence[int], first_step: int, steps: int, prompts: int, *, d: int, length: int
) -> np.ndarray:
    """`prompt_stream.normals` of whole prompts in float32, compiled: (streams, steps, prompts, normals_per_prompt).

    Within 1e-6 of the float64 definition where the pair's radius is above 0.1, and within 1e-4 everywhere.
    """
    count = normals_per_prompt(d, length)
    fill = _loops().fill
    out = np.empty((len(streams), steps, prompts, count), dtype=np.float32)
    data = aligned(_LANES * count, np.float32)
    for part, stream in zip(out, streams, strict=True):
        for first, last in in_calls(steps, max(1, _WORK // (prompts * count))):
            fill(
                part[first:last], data, seed & 0xFFFFFFFF, seed >> 32, int(stream), first_step + first, last - first, prompts
            )  # fmt: skip
    return out
