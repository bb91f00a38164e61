"""In-context training on a GPU: one program a replica, at the numbers of replicas that fill a large one, and at fewer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch

from attnlib.kernels import in_context
from attnlib.kernels.in_context.arguments import Recorded
from benchmarks import naive_in_context
from benchmarks.registry import Case, Work

__all__ = ["cases", "gate", "ratios"]

_SIZE = {"d": 5, "length": 40, "batch": 128}
_NOISE, _RATE = 0.01, 1e-3
_STEPS, _FEW = 20_000, 200  # of the GPU programs, and of eager torch
_FILLING = {1: 528, 2: 528, 4: 396, 8: 264}  # programs at once on 132 processors: four, four, three, two on each
_REPLICAS = {heads: (full, 132, 1) for heads, full in _FILLING.items()}


def _start(heads: int, replicas: int, device: str, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Weights and moments; torch's default ranges."""
    n = _SIZE["d"] + 1
    weights = np.random.default_rng(0).uniform(-1, 1, (replicas, heads, 3 * n * n + n)) / n**0.5
    weights[..., 3 * n * n :] /= heads**0.5
    first = torch.from_numpy(weights.astype(np.float32)).to(device, dtype)
    return [first, torch.zeros_like(first), torch.zeros_like(first)]


def _train(state: list[torch.Tensor], heads: int, steps: int, implementation: str) -> Recorded:
    """Every replica on prompts of its own."""
    call = in_context.Call(
        **_SIZE, heads=heads, seed=7, streams=range(len(state[0])), first_step=0, steps=steps, beta_std=1.0,
        noise_std=_SIZE["d"] ** 0.5 * _NOISE, target_noise_std=0.0, optimiser="Adam", learning_rate=_RATE,
    )  # fmt: skip
    return in_context.advance(call, *state, implementation=implementation)


@functools.cache
def gate(heads: int, device: str, steps: int = 20) -> None:
    """The GPU programs end where the readable loop in float64 ends. Raises AssertionError."""
    state, exact = _start(heads, 2, device), _start(heads, 2, "cpu", torch.float64)
    ours, theirs = _train(state, heads, steps, "triton"), _train(exact, heads, steps, "reference")
    moved = torch.allclose(state[0].double().cpu(), exact[0], rtol=0, atol=2e-5)
    if not moved or not torch.allclose(ours.losses.double().cpu(), theirs.losses, rtol=1e-4):
        raise AssertionError(f"the GPU programs leave the float64 loop at {heads} heads: no speed is reported")


def _programs(heads: int, replicas: int) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate(heads, "cuda")
        state = _start(heads, replicas, "cuda")

        def call():
            _train(state, heads, _STEPS, "triton")
            torch.cuda.synchronize()

        return call

    return prepare


def _naive(heads: int) -> Callable[[], Callable[[], object]]:
    """Its losses are read off at every step, so it ends when its work has ended."""

    def prepare():
        with torch.device("cuda"):
            model = naive_in_context.MultiHead(heads, _SIZE["d"] + 1)

        def call():
            with torch.device("cuda"):
                naive_in_context.train(model, naive_in_context.batches(_FEW, **_SIZE, noise_std=_NOISE), _RATE)

        return call

    return prepare


def _operations(heads: int) -> float:
    """Floating-point operations of one step, a fused multiply-add counted as two; integer work is not counted.

    A pair of normals takes 40. A token takes 2 n for y, and for every head 2 n - 1 each for its score and its value, 3 for
    the power of two and what it is multiplied and added to, and 2 n each for A and C.
    """
    d, length, batch = _SIZE["d"], _SIZE["length"], _SIZE["batch"]
    n = d + 1
    draw = 40 * (n + length * ((n + 1) // 2)) + 2 * n * (length + 1)
    attend = length * (8 * n + 1) + 2 * n * d + 6 * n + 2
    collect = 2 * n * n
    return batch * (draw + heads * (attend + collect)) + heads * 10 * n**3


def _work(heads: int, replicas: int, steps: int) -> Work:
    """Prompts stay in registers; a replica's weights and rows are written to L2 once a step, far below its limit."""
    return Work(
        units=replicas * steps, unit="model-step", operations=_operations(heads), kernel="in_context", dtype="float32"
    )


def ratios(median: Mapping[str, float]) -> dict[str, float]:
    """What is read off the medians; a case that was not run leaves its ratios out."""
    found = {}
    for heads, numbers in _REPLICAS.items():
        naive = median.get(f"gpu-naive-h{heads}")
        for replicas in numbers:
            ours = median.get(f"gpu-h{heads}-r{replicas}")
            if ours is not None:
                rate = replicas * _STEPS / ours
                found[f"in context, H = {heads}, {replicas} replicas: million model-steps per second"] = rate / 1e6
                if naive is not None:
                    found[
                        f"in context, H = {heads}, {replicas} replicas: eager torch on the GPU / programs, one step"
                    ] = naive / _FEW * rate
    return found


def cases(device: str) -> tuple[Case, ...]:
    """The cases of this loop on "cuda"; none on the CPU, where `kernel_in_context` has them."""
    if device != "cuda":
        return ()
    found = []
    for heads, numbers in _REPLICAS.items():
        found += [
            Case(
                f"gpu-h{heads}-r{replicas}",
                f"GPU programs: 20 000 steps of {replicas} replicas, H = {heads}, own prompts",
                _programs(heads, replicas),
                work=_work(heads, replicas, _STEPS),
            )
            for replicas in numbers
        ]
        found.append(
            Case(
                f"gpu-naive-h{heads}",
                f"reference: 200 steps in eager torch on the GPU, H = {heads}",
                _naive(heads),
                work=_work(heads, 1, _FEW),
            )
        )
    return tuple(found)
