"""Training of attention heads in Gram coordinates: 64 runs of 100 samples, 10 000 steps, against batched products."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch

from attnlib.kernels.heads import Call, advance
from attnlib.single_head import maps
from benchmarks.registry import Case, Work

__all__ = ["cases", "ratios"]

_SAMPLES, _RUNS, _STEP = 100, 64, 0.5
_KERNEL = "attention heads"
_STEPS, _FEW = 10_000, 100  # of the compiled form; of the batched one
_LIMIT = 60.0  # seconds for the study on one core
_CASES = {  # heads, rule of the case's name
    "h1": (1, {}),
    "h4": (4, {}),
    "h1-nesterov": (1, {"momentum": 0.9, "look_ahead": True}),
    "h1-normalised": (1, {"prepare": "joint"}),
}


def _data(heads: int, device: str, runs: int = _RUNS) -> list[torch.Tensor]:
    """Gram matrices of signals and noise of norm one with a small start of every head, coefficients, labels, classes."""
    draw = torch.Generator().manual_seed(0)
    q, columns = _SAMPLES + 2 + 2 * heads, 2 * heads
    basis = torch.randn(runs, q, 2 * q, generator=draw, dtype=torch.float64) / (2 * q) ** 0.5
    labels = torch.randint(0, 2, (runs, _SAMPLES), generator=draw).double() * 2 - 1
    classes = torch.randint(0, 2, (runs, _SAMPLES), generator=draw)
    state = torch.zeros(runs, columns, q, dtype=torch.float64)
    state[..., -columns:] = 0.1 * torch.eye(columns, dtype=torch.float64)
    return [tensor.to(device) for tensor in (basis @ basis.mT, state, labels, classes)]


def naive_torch(
    gram: torch.Tensor, coefficients: torch.Tensor, labels: torch.Tensor, classes: torch.Tensor, steps: int
) -> torch.Tensor:
    """Gradient descent of H softmax heads as one writes it with batched tensors: one torch.bmm a step, all runs at once."""
    state, heads, rate = coefficients.clone(), coefficients.shape[1] // 2, _STEP / _SAMPLES
    index = classes.unsqueeze(1).expand(-1, 2 * heads, -1)
    noise = slice(2, 2 + _SAMPLES)
    for _ in range(steps):
        scores = torch.bmm(state, gram)
        gap = scores.gather(2, index) - scores[..., noise]
        weight = torch.sigmoid(gap[:, heads:])
        output = (scores[:, :heads, noise] + weight * gap[:, :heads]).sum(1)
        pull = (rate * labels * torch.sigmoid(-labels * output)).unsqueeze(1)
        turn = pull * weight * (1 - weight) * gap[:, :heads]
        state[..., noise] += torch.cat([pull * (1 - weight), -turn], dim=1)
        state.scatter_add_(2, index, torch.cat([pull * weight, turn], dim=1))
    return state


def _fast(data: list[torch.Tensor], steps: int, rule: Mapping[str, object], implementation: str) -> torch.Tensor:
    gram, state, labels, classes = data
    call = Call(
        gram, state, labels, classes, heads=state.shape[1] // 2, signals=2, attention_map=maps.SOFTMAX, value_step=_STEP,
        attention_step=_STEP, factors=torch.ones(steps), **rule,
    )  # fmt: skip
    advance(call, threads=1, implementation=implementation)
    if state.is_cuda:
        torch.cuda.synchronize()
    return state


@functools.cache
def gate(device: str) -> None:
    """All forms end in one place after thirty steps. Raises AssertionError."""
    for heads in (1, 4):
        data = _data(heads, device, 3)
        want = naive_torch(*data, 30)
        for form in ("reference", "triton" if device == "cuda" else "compiled"):
            found = _fast([part.clone() for part in data], 30, {}, form)
            if not torch.allclose(found, want, rtol=0, atol=1e-13):
                raise AssertionError(f"{form} leaves the batched loop at H = {heads}: no speed is reported")


def _prepare(name: str, steps: int, device: str, implementation: str) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate(device)
        heads, rule = _CASES[name]
        data = _data(heads, device)
        return lambda: _fast(data, steps, rule, implementation)

    return prepare


def _work(name: str, steps: int, level: str) -> Work:
    """Of one step of one run: a product of the matrix with 2 H columns, two when the step is normalised; fifty operations a sample
    and head."""
    heads, rule = _CASES[name]
    m, products = _SAMPLES + 2, 2 if "prepare" in rule else 1
    return Work(
        units=_RUNS * steps, unit="run-step", operations=products * 4 * heads * m * m + 50 * _SAMPLES * heads,
        bytes=products * m * m * 8, level=level, dtype="float64", kernel=_KERNEL,
    )  # fmt: skip


def cases(device: str) -> tuple[Case, ...]:
    """Every form on this device, "cpu" or "cuda"."""
    found, size = [], f"{_RUNS} runs at n = {_SAMPLES}, float64"
    for name, (heads, rule) in _CASES.items():
        what = ", ".join([f"H = {heads}", *(f"{key} {value}" for key, value in rule.items())])
        if device == "cpu":
            found.append(
                Case(f"heads-compiled-{name}", f"compiled, one thread, {what}: {_STEPS} steps of {size}",
                     _prepare(name, _STEPS, device, "compiled"), limit=_LIMIT, work=_work(name, _STEPS, "L2"))
            )  # fmt: skip
        else:
            found.append(
                Case(f"heads-gpu-{name}", f"GPU program, {what}: {_STEPS} steps of {size}",
                     _prepare(name, _STEPS, device, "triton"), work=_work(name, _STEPS, "L2"))
            )  # fmt: skip
        found.append(
            Case(f"heads-torch-{name}", f"reference: batched torch, {what}: {_FEW} steps of {size}",
                 _prepare(name, _FEW, device, "reference"), work=_work(name, _FEW, "L3" if device == "cpu" else "memory"))
        )  # fmt: skip
    return tuple(found)


def ratios(median: Mapping[str, float]) -> dict[str, float]:
    """Times of one step of one run, against the batched form; cases that were not run are left out."""
    found = {}
    for name in _CASES:
        for form, words in (("compiled", "compiled"), ("gpu", "GPU program")):
            slow, fast = f"heads-torch-{name}", f"heads-{form}-{name}"
            if slow in median and fast in median:
                share = median[slow] / _FEW / (median[fast] / _STEPS)
                found[f"heads, batched torch / {words}, one run-step, {name}"] = share
    return found
