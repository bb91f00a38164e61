"""Kernel (a): gradient descent of one softmax head in Gram coordinates, 64 runs of 200 samples, against batched products."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch

from attnlib.kernels.heads import Call, advance
from attnlib.single_head import maps
from benchmarks.registry import Case, Work

__all__ = ["cases", "ratios"]

_SAMPLES, _STEP = 200, 0.5
_KERNEL = "single head"
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_SIZES = {"cpu": (64, 1000), "cuda": (1056, 20_000)}  # runs, steps of a fast form
_FEW = 20  # steps of a batched form


def _data(runs: int, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """Gram matrices of signals and noise of norm one, coefficients, labels, classes; scores stay of size one."""
    draw = torch.Generator().manual_seed(0)
    m = _SAMPLES + 2
    basis = torch.randn(runs, m, 2 * m, generator=draw, dtype=torch.float64) / (2 * m) ** 0.5
    labels = torch.randint(0, 2, (runs, _SAMPLES), generator=draw).to(dtype) * 2 - 1
    classes = torch.randint(0, 2, (runs, _SAMPLES), generator=draw)
    state = torch.zeros(runs, m, 2, dtype=dtype)
    return [tensor.to(device) for tensor in ((basis @ basis.mT).to(dtype), state, labels, classes)]


def naive_torch(
    gram: torch.Tensor, coefficients: torch.Tensor, labels: torch.Tensor, classes: torch.Tensor, steps: int
) -> torch.Tensor:
    """The loop as one writes it with batched tensors: one torch.bmm a step, all runs at once."""
    state, rate = coefficients.clone(), _STEP / _SAMPLES
    index = classes.unsqueeze(-1).expand(-1, -1, 2)
    for _ in range(steps):
        scores = torch.bmm(gram, state)
        gap = scores.gather(1, index) - scores[:, 2:]
        weight = torch.sigmoid(gap[..., 1])
        output = scores[:, 2:, 0] + weight * gap[..., 0]
        pull = rate * labels * torch.sigmoid(-labels * output)
        turn = pull * weight * (1 - weight) * gap[..., 0]
        state[:, 2:] += torch.stack([pull * (1 - weight), -turn], dim=-1)
        state.scatter_add_(1, index, torch.stack([pull * weight, turn], dim=-1))
    return state


def naive_numpy(
    gram: np.ndarray, coefficients: np.ndarray, labels: np.ndarray, classes: np.ndarray, steps: int
) -> np.ndarray:
    """The same in numpy."""
    state, rate = coefficients.copy(), labels.dtype.type(_STEP / _SAMPLES)
    run = np.arange(len(gram))[:, None]
    of_class = np.stack([classes == 0, classes == 1], axis=1).astype(labels.dtype)
    for _ in range(steps):
        scores = gram @ state
        gap = scores[run, classes] - scores[:, 2:]
        weight = 1 / (1 + np.exp(-gap[..., 1]))
        output = scores[:, 2:, 0] + weight * gap[..., 0]
        pull = rate * labels / (1 + np.exp(labels * output))
        turn = pull * weight * (1 - weight) * gap[..., 0]
        state[:, :2] += of_class @ np.stack([pull * weight, turn], axis=-1)
        state[:, 2:] += np.stack([pull * (1 - weight), -turn], axis=-1)
    return state


def _fast(data: list[torch.Tensor], steps: int, **chosen) -> torch.Tensor:
    gram, state, labels, classes = data
    rows = state.mT.contiguous()  # v, p
    call = Call(
        gram, rows, labels, classes, heads=1, signals=2, attention_map=maps.SOFTMAX, value_step=_STEP,
        attention_step=_STEP, factors=torch.ones(steps),
    )  # fmt: skip
    advance(call, **chosen)
    if state.is_cuda:
        torch.cuda.synchronize()
    return rows.mT


@functools.cache
def gate(device: str) -> None:
    """All forms end in one place after thirty steps. Raises AssertionError."""
    for name, dtype in _DTYPES.items():
        exact = _data(3, torch.float64, device)
        want = naive_torch(*exact, 30)
        data = _data(3, dtype, device)
        found = {"torch": naive_torch(*data, 30), "kernel": _fast([part.clone() for part in data], 30)}
        if device == "cpu":
            found["numpy"] = torch.as_tensor(naive_numpy(*(part.numpy() for part in data), 30))
        for form, state in found.items():
            if not torch.allclose(state.double(), want, rtol=0, atol=1e-6 if name == "float32" else 1e-13):
                raise AssertionError(f"{form} in {name} leaves the float64 loop: no speed is reported")


def _kernel(name: str, device: str, threads: int = 1) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate(device)
        runs, steps = _SIZES[device]
        data = _data(runs, _DTYPES[name], device)
        return lambda: _fast(data, steps, threads=threads)

    return prepare


def _batched(name: str, device: str, form: str) -> Callable[[], Callable[[], object]]:
    def prepare():
        gate(device)
        data = _data(_SIZES[device][0], _DTYPES[name], device)
        if form == "numpy":
            arrays = [part.numpy() for part in data]
            return lambda: naive_numpy(*arrays, _FEW)

        def call():
            naive_torch(*data, _FEW)
            if device == "cuda":
                torch.cuda.synchronize()

        return call

    return prepare


def _work(name: str, steps: int, device: str, level: str) -> Work:
    """Of one step of one run: two products with a matrix of m^2 numbers, which is read once; some fifty operations a sample."""
    m, size = _SAMPLES + 2, _DTYPES[name].itemsize
    return Work(
        units=_SIZES[device][0] * steps, unit="run-step", operations=4 * m * m + 50 * _SAMPLES, bytes=m * m * size,
        level=level, dtype=name, kernel=_KERNEL,
    )  # fmt: skip


def cases(device: str) -> tuple[Case, ...]:
    """Every form on this device, "cpu" or "cuda"."""
    runs, steps = _SIZES[device]
    far = "L3" if device == "cpu" else "memory"
    found = []
    for name in _DTYPES:
        what = f"{steps} steps of {runs} runs at n = {_SAMPLES}, {name}"
        work = _work(name, steps, device, "L2")
        if device == "cuda":
            found.append(Case(f"a-gpu-{name}", f"GPU program: {what}", _kernel(name, device), work=work))
        else:
            for threads, words in ((1, "one thread"), (2, "two threads")):
                found.append(
                    Case(f"a-compiled-{name}-{threads}", f"compiled, {words}: {what}", _kernel(name, device, threads),
                         work=work, threads=threads)
                )  # fmt: skip
        few = f"{_FEW} steps of {runs} runs, {name}"
        work = _work(name, _FEW, device, far)
        found.append(
            Case(f"a-torch-{name}", f"reference: torch.bmm, {few}", _batched(name, device, "torch"), work=work)
        )
        if device == "cpu":
            found.append(
                Case(f"a-numpy-{name}", f"reference: batched numpy, {few}", _batched(name, device, "numpy"), work=work)
            )
    return tuple(found)


def ratios(median: Mapping[str, float]) -> dict[str, float]:
    """Times of one step of one run, against the batched form; cases that were not run are left out."""
    found = {}

    def ratio(words: str, slow: str, fast: str, more_steps: float) -> None:
        if slow in median and fast in median:
            found[words] = median[slow] / median[fast] * more_steps

    for name in _DTYPES:
        more = {device: steps / _FEW for device, (_, steps) in _SIZES.items()}
        one, two = f"a-compiled-{name}-1", f"a-compiled-{name}-2"
        ratio(f"(a) torch.bmm / compiled, one run-step, {name}", f"a-torch-{name}", one, more["cpu"])
        ratio(f"(a) numpy / compiled, one run-step, {name}", f"a-numpy-{name}", one, more["cpu"])
        ratio(f"(a) torch.bmm / GPU program, one run-step, {name}", f"a-torch-{name}", f"a-gpu-{name}", more["cuda"])
        ratio(f"(a) one thread / two threads, {name}", one, two, 1.0)
    return found
