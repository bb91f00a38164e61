"""In-context training: steps of one layer with 1, 2, 4 and 8 heads at the authors' sizes, compiled against eager torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch

from attnlib.kernels import in_context
from attnlib.kernels.in_context import reference
from attnlib.kernels.in_context.arguments import factors
from benchmarks import naive_in_context
from benchmarks.registry import Case, Work

__all__ = ["cases", "gate", "ratios"]

_SIZE = {"d": 5, "length": 40, "batch": 128}
_NOISE, _RATE, _REPLICAS = 0.01, 1e-3, 64
_HEADS = (1, 2, 4, 8)
_STEPS = {"compiled": 10_000, "shared": 200, "naive": 200, "reference": 100}


def _start(heads: int, replicas: int = 1, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Weights and moments; torch's default ranges."""
    n = _SIZE["d"] + 1
    weights = np.random.default_rng(0).uniform(-1, 1, (replicas, heads, 3 * n * n + n)) / n**0.5
    weights[..., 3 * n * n :] /= heads**0.5
    weights = torch.from_numpy(weights.astype(np.float32)).to(dtype)
    return [weights, torch.zeros_like(weights), torch.zeros_like(weights)]


def _setting(heads: int, steps: int, replicas: int = 1) -> dict:
    return _SIZE | {
        "heads": heads, "steps": steps, "seed": 7, "streams": [0] * replicas, "first_step": 0, "beta_std": 1.0,
        "noise_std": _SIZE["d"] ** 0.5 * _NOISE, "target_noise_std": 0.0, "optimiser": "Adam", "learning_rate": _RATE,
    }  # fmt: skip


def _naive_model(weights: torch.Tensor) -> naive_in_context.MultiHead:
    """The eager model at weights (H, 3 n^2 + n)."""
    heads, n = len(weights), _SIZE["d"] + 1
    model = naive_in_context.MultiHead(heads, n)
    for layer, part in zip((model.query, model.key, model.value, model.output), factors(weights, n), strict=True):
        layer.weight.data = part.reshape(layer.weight.shape).clone()
    return model


@functools.cache
def gate() -> None:
    """On the same start and the same prompts, eager torch and the kernel agree over 20 steps. Raises AssertionError."""
    for heads in (1, 2, 4, 8):
        state, chosen = _start(heads), _setting(heads, 20)
        model = _naive_model(state[0][0])
        call = in_context.Call(**chosen)
        context, query, target = (part[0].float() for part in reference.prompts(call, 0, 20, call.streams))
        query = torch.nn.functional.pad(query, (0, 1))[:, :, None]
        losses = naive_in_context.train(model, zip(context, query, target, strict=True), _RATE)
        ours = in_context.advance(call, *state, implementation="compiled")
        theirs = [layer.weight.detach() for layer in (model.query, model.key, model.value, model.output)]
        moved = all(
            torch.allclose(mine.ravel(), other.ravel(), rtol=0, atol=2e-5)
            for mine, other in zip(factors(state[0][0], _SIZE["d"] + 1), theirs, strict=True)
        )
        if not moved or not np.allclose(ours.losses[0], losses, rtol=1e-4):
            raise AssertionError(f"eager torch and the kernel differ at {heads} heads: no speed is reported")


def _kernel(
    heads: int, steps: int, replicas: int = 1, threads: int = 1, shared: bool = True
) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate()
        state, chosen = _start(heads, replicas), _setting(heads, steps, replicas)
        if not shared:
            chosen["streams"] = range(replicas)
        call = in_context.Call(**chosen)
        return lambda: in_context.advance(call, *state, threads=threads, implementation="compiled")

    return prepare


def _naive(heads: int) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate()
        model = _naive_model(_start(heads)[0][0])
        return lambda: naive_in_context.train(
            model, naive_in_context.batches(_STEPS["naive"], **_SIZE, noise_std=_NOISE), _RATE
        )

    return prepare


def _reference():
    gate()
    state, call = _start(2, dtype=torch.float64), in_context.Call(**_setting(2, _STEPS["reference"]))
    return lambda: in_context.advance(call, *state, implementation="reference")


def _operations(heads: int, sharing: int = 1) -> float:
    """Floating-point operations of one step of one of `sharing` replicas, a fused multiply-add counted as two; integer work is not counted.

    A normal takes 17: half a pair with a logarithm of degree 6, a square root, a sine and a cosine. A token takes 2 n for its
    score, 14 for the power of two and the total, 2 n for A, 2 n + 2 for its centred value, 2 n for C, for every head.
    """
    d, length, batch = _SIZE["d"], _SIZE["length"], _SIZE["batch"]
    n = d + 1
    draw = 17 * (2 * d + 2 + length * (n + n % 2)) + 2 * n * (length + 1)
    attend = length * (8 * n + 16) + 2 * n * d + 4 * n + 4
    collect = 2 * n * (d + 1) + n
    return batch * (draw / sharing + heads * (attend + collect)) + heads * 10 * n**3


def _work(kind: str, heads: int, replicas: int = 1, *, shared: bool = False) -> Work:
    """Own prompts stay in L1, a block of 16 at a time; shared ones are read from L2 by every replica."""
    held = 4 * _SIZE["batch"] * (_SIZE["length"] + 1) * (_SIZE["d"] + 1) if shared else 0
    dtype = "float64" if kind == "reference" else "float32"
    return Work(
        units=_STEPS[kind] * replicas, unit="model-step",
        operations=_operations(heads, replicas if shared else 1), bytes=held,
        level="L2" if shared else "", dtype=dtype, kernel="in_context",
    )  # fmt: skip


def ratios(median: Mapping[str, float]) -> dict[str, float]:
    """What is read off the medians; a case that was not run leaves its ratios out."""
    found = {}

    def per_step(name: str, kind: str, replicas: int = 1) -> float:
        return median[name] / _STEPS[kind] / replicas if name in median else float("nan")

    for heads in _HEADS:
        ours, naive = per_step(f"compiled-h{heads}", "compiled"), per_step(f"naive-h{heads}", "naive")
        found[f"in context, H = {heads}: eager torch / compiled, one step"] = naive / ours
        found[f"in context, H = {heads}: two threads / one, steps per second"] = ours / per_step(
            f"two-threads-h{heads}", "compiled", 2
        )
    shared, own = per_step("shared-64-h2", "shared", _REPLICAS), per_step("compiled-h2", "compiled")
    found["in context, H = 2: eager torch / compiled, 64 replicas that share prompts"] = (
        per_step("naive-h2", "naive") / shared
    )
    found["in context, H = 2: own prompts / shared prompts, one step of one replica"] = own / shared
    found["in context: seconds for H = 1, 2, 4, 8 at 500 001 steps on one core (extrapolated)"] = (
        sum(per_step(f"compiled-h{heads}", "compiled") for heads in _HEADS) * 500_001
    )
    return {name: value for name, value in found.items() if value == value}


def cases(device: str) -> tuple[Case, ...]:
    """The cases of this loop; none on a GPU, where `kernel_in_context_gpu` has them."""
    if device != "cpu":
        return ()
    size = "d = 5, L = 40, B = 128, Adam"
    found = []
    for h in _HEADS:
        steps = _STEPS["compiled"]
        found += [
            Case(f"compiled-h{h}", f"10 000 steps, H = {h}, {size}", _kernel(h, steps), work=_work("compiled", h)),
            Case(
                f"two-threads-h{h}",
                f"the same, two replicas on two threads, H = {h}",
                _kernel(h, steps, 2, threads=2, shared=False),
                work=_work("compiled", h, 2),
                threads=2,
            ),
            Case(f"naive-h{h}", f"200 steps in eager torch, H = {h}", _naive(h), work=_work("naive", h)),
        ]
    for threads in (1, 2):
        found.append(
            Case(
                "shared-64-h2" if threads == 1 else "shared-64-two-threads-h2",
                f"200 steps of 64 replicas that share their prompts, H = 2, {threads} thread{'s' * (threads > 1)}",
                _kernel(2, _STEPS["shared"], _REPLICAS, threads=threads),
                work=_work("shared", 2, _REPLICAS, shared=True),
                threads=threads,
            )
        )
    found.append(
        Case("reference-h2", "the readable loop in float64: 100 steps, H = 2", _reference, work=_work("reference", 2))
    )
    return tuple(found)
