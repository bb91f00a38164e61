"""Part III: training steps of one layer with 1, 2, 4 and 8 heads at the authors' sizes, compiled against eager torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch

from attnlib.kernels import in_context
from attnlib.kernels.in_context import reference
from attnlib.kernels.in_context.arguments import check, factors
from benchmarks import naive_in_context
from benchmarks.registry import Case, Wing

__all__ = ["WING"]

_SIZE = {"d": 5, "length": 40, "batch": 128}
_NOISE, _RATE, _REPLICAS = 0.01, 1e-3, 64
_STEPS = {"kernel": 10_000, "shared": 200, "naive": 200, "reference": 100}


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
        extra = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "record": ()}
        call = check(*state, **chosen, **extra)
        context, query, target = (part[0].float() for part in reference.prompts(call, 0, 20, call.streams))
        query = torch.nn.functional.pad(query, (0, 1))[:, :, None]
        losses = naive_in_context.train(model, zip(context, query, target, strict=True), _RATE)
        ours = in_context.advance(*state, **chosen, implementation="compiled")
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
        return lambda: in_context.advance(*state, **chosen, threads=threads, implementation="compiled")

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
    state, chosen = _start(2, dtype=torch.float64), _setting(2, _STEPS["reference"])
    return lambda: in_context.advance(*state, **chosen, implementation="reference")


def _ratios(median: Mapping[str, float]) -> dict[str, float]:
    found = {}
    for heads in (1, 2, 4, 8):
        ours, naive = median[f"kernel-h{heads}"] / _STEPS["kernel"], median[f"naive-h{heads}"] / _STEPS["naive"]
        found[f"eager torch / kernel, one step, H = {heads}"] = naive / ours
        found[f"kernel, thousand steps per second, H = {heads}"] = 1e-3 / ours
    shared = median["shared-64"] / _STEPS["shared"] / _REPLICAS
    found["own data / shared data, one step of one replica, H = 2"] = median["kernel-h2"] / _STEPS["kernel"] / shared
    found["minutes for H = 1, 2, 4, 8 at 500 001 steps (extrapolated)"] = (
        sum(median[f"kernel-h{heads}"] for heads in (1, 2, 4, 8)) / _STEPS["kernel"] * 500_001 / 60
    )
    return found


_CASES = (
    *(
        Case(f"kernel-h{heads}", f"10 000 steps, H = {heads}, d = 5, L = 40, B = 128, Adam", _kernel(heads, _STEPS["kernel"]), limit)
        for heads, limit in ((1, None), (2, 0.7), (4, None), (8, None))
    ),
    Case("shared-64", "200 steps of 64 replicas that share their prompts, H = 2", _kernel(2, _STEPS["shared"], _REPLICAS)),
    *(Case(f"naive-h{heads}", f"reference: 200 steps in eager torch, H = {heads}", _naive(heads)) for heads in (1, 2, 4, 8)),
    Case("reference-h2", "the readable loop in float64: 100 steps, H = 2", _reference),
)  # fmt: skip

WING = Wing("in_context", _CASES, _ratios, warm=lambda: in_context.warm_up(_SIZE["d"]))
