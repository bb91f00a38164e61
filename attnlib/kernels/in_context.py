"""Training of in-context regression, compiled: `reference.advance` in float32, about a hundred times faster.

Needs numba (extra `kernels`), asked for at the first call, which also compiles for that d (seconds; kept between
processes). `reference` says what is computed, `prompt_stream` from which random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np

from attnlib import checks
from attnlib.kernels import _build, is_available
from attnlib.kernels._in_context_source import source
from attnlib.kernels.arguments import OPTIMISERS, Call, Recorded, check
from attnlib.kernels.prompt_stream import check_origin, normals_per_prompt

__all__ = ["advance", "is_available", "normals", "warm_up"]

_LANES = 16


def _compiled(d: int) -> ModuleType:
    return _build.module(f"in_context_d{d}", source(d))


def _buffer(size: int) -> np.ndarray:
    """`size` float32 zeros that begin on a 64-byte boundary."""
    raw = np.zeros(size + _LANES, dtype=np.float32)
    start = (-raw.ctypes.data // 4) % _LANES
    return raw[start : start + size]


def _whole(size: int) -> int:
    """`size` rounded up to whole vectors."""
    return -(-size // _LANES) * _LANES


def _scratch(call: Call, replicas: int) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """The kernel's buffer, the same bits as int32, and where its areas begin (with the size of a replica's state, last).

    The buffer starts with the lane weights of the last block and with ones. An area may be overrun by a vector.
    """
    blocks = -(-call.batch // _LANES)
    held = 1 if replicas == 1 else blocks
    n, heads = call.width, call.heads
    state = _whole(heads * (3 * n * n + n))
    sizes = {
        "targets": _LANES * held,
        "queries": _LANES * call.d * held,
        "tokens": _LANES * n * call.length * held,
        "exponentials": _LANES * call.length,
        "means": _LANES * 2 * n * heads,
        "sums": _LANES * n * n * heads,
        "circuits": _whole(heads * (n * n + n)) + 2 * _LANES,
        "circuit gradient": _whole(2 * n * n + n) + 2 * _LANES,
        "gradient": state + 2 * _LANES,
        "states": 3 * state * replicas + 2 * _LANES,
    }
    ends = np.cumsum([2 * _LANES, *sizes.values()])
    data = _buffer(int(ends[-1]))
    data[: call.batch - _LANES * (blocks - 1)] = 1.0
    data[_LANES : 2 * _LANES] = 1.0
    return data, data.view(np.int32), (*map(int, ends[:-1]), state)


def _groups(call: Call, threads: int) -> list[np.ndarray]:
    """Replicas that are trained together: those of one stream, cut so that there is work for every thread."""
    groups = [np.flatnonzero(call.streams == stream) for stream in np.unique(call.streams)]
    pieces = -(-threads // len(groups))
    return [part for group in groups for part in np.array_split(group, min(pieces, len(group)))]


def advance(
    weights: np.ndarray,
    first_moment: np.ndarray,
    second_moment: np.ndarray,
    *,
    d: int,
    heads: int,
    length: int,
    batch: int,
    seed: int,
    streams: Sequence[int],
    first_step: int,
    steps: int,
    beta_std: float,
    noise_std: float,
    target_noise_std: float,
    optimiser: str,
    learning_rate: float | Sequence[float],
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    record: Iterable[int] = (),
    threads: int = 1,
) -> Recorded:
    """Train R replicas for `steps` steps, in place.

    Training from step a to b and then from b to c ends bit for bit where training from a to c ends, and neither
    `threads` nor the other replicas of a call change a replica's numbers. A replica that diverges has losses that are
    not finite from that step on; nothing is raised.

    Args:
        weights: float32 (R, heads, 3 n^2 + n), n = d + 1: per head W_Q, W_K, W_V row by row, then W_O. Changed in place.
        first_moment, second_moment: Adam's moments, like `weights` (zeros at the start; SGD leaves them alone).
        d: dimension of x.
        heads: number of heads H, each of the full width n.
        length: context tokens L of a prompt.
        batch: prompts of a step.
        seed: key of the random numbers, in [0, 2^64).
        streams: (R,) whole numbers in [0, 2^32); replicas with equal numbers see the same prompts.
        first_step: updates already made; the data of a step depend on its absolute number.
        steps: updates to make.
        beta_std: standard deviation of the entries of beta.
        noise_std: that of the label noise as used, y_i = <x_i, beta> + noise_std e_i.
        target_noise_std: that of the target's noise.
        optimiser: "SGD", "Adam" (decay added to the gradient) or "AdamW" (decay apart), as in torch.optim.
        learning_rate: one number, or one per replica.
        betas, eps, weight_decay: as in torch.optim.
        record: absolute steps before whose update the circuits are kept; first_step + steps means after the last one.
        threads: replicas are shared out among this many threads.

    Returns the losses (mean of (yhat - target)^2 over each batch) and the recorded circuits, float32.

    Raises ValueError on a wrong argument, ImportError without numba.
    """
    call = check(
        weights, first_moment, second_moment, dtypes=(np.float32,), d=d, heads=heads, length=length, batch=batch,
        seed=seed, streams=streams, first_step=first_step, steps=steps, beta_std=beta_std, noise_std=noise_std,
        target_noise_std=target_noise_std, optimiser=optimiser, learning_rate=learning_rate, betas=betas, eps=eps,
        weight_decay=weight_decay, record=record,
    )  # fmt: skip
    checks.whole_number("threads", threads, at_least=1)
    train = _compiled(call.d).train
    n, replicas = call.width, len(call.streams)
    losses = np.empty((replicas, call.steps), dtype=np.float32)
    key_query = np.empty((replicas, len(call.record), call.heads, n, n), dtype=np.float32)
    output_value = np.empty((replicas, len(call.record), call.heads, n), dtype=np.float32)
    state = (weights, first_moment, second_moment)

    def work(group: np.ndarray) -> None:
        mine = [array[group] for array in state]
        seen = [
            np.empty((len(group), *array.shape[1:]), dtype=np.float32) for array in (losses, key_query, output_value)
        ]
        train(
            *mine, *_scratch(call, len(group)), call.seed & 0xFFFFFFFF, call.seed >> 32, int(call.streams[group[0]]),
            call.first_step, call.steps, call.length, call.batch, np.float32(call.beta_std), np.float32(call.noise_std),
            np.float32(call.target_noise_std), OPTIMISERS.index(call.optimiser), call.learning_rate[group],
            call.weight_decay, *call.betas, call.eps, call.record, *seen,
        )  # fmt: skip
        for array, part in zip((*state, losses, key_query, output_value), (*mine, *seen), strict=True):
            array[group] = part

    groups = _groups(call, threads)
    if threads == 1 or len(groups) == 1:
        for group in groups:
            work(group)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, groups))
    return Recorded(losses, call.record, key_query, output_value)


def normals(
    seed: int, streams: Sequence[int], first_step: int, steps: int, prompts: int, *, d: int, length: int
) -> np.ndarray:
    """`prompt_stream.normals` of whole prompts in float32, compiled: (streams, steps, prompts, normals_per_prompt).

    Within 1e-6 of the float64 definition where the pair's radius is above 0.1, and within 1e-4 everywhere.
    Raises ValueError on a wrong argument, ImportError without numba.
    """
    count = normals_per_prompt(d, length)
    seed, ids = check_origin(seed, streams, first_step, steps, prompts)
    fill = _compiled(d).fill
    out = np.empty((len(ids), steps, prompts, count), dtype=np.float32)
    data = _buffer(_LANES * count)
    for part, stream in zip(out, ids, strict=True):
        fill(part, data, seed & 0xFFFFFFFF, seed >> 32, int(stream), first_step, steps, prompts, length)
    return out


def warm_up(d: int) -> None:
    """Compile for this d, or load what an earlier process compiled, before anything is timed or shown."""
    n = d + 1
    state = [np.zeros((1, 1, 3 * n * n + n), dtype=np.float32) for _ in range(3)]
    advance(
        *state, d=d, heads=1, length=1, batch=1, seed=0, streams=[0], first_step=0, steps=1, beta_std=1.0,
        noise_std=0.0, target_noise_std=0.0, optimiser="Adam", learning_rate=0.0,
    )  # fmt: skip
