"""Token selection: run-steps of the compiled loop and of the GPU program, against the batched torch form, n T = 160."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

import torch

from attnlib.kernels import dispatch
from attnlib.kernels.token_selection import Call, advance
from benchmarks.registry import Case, Work

__all__ = ["cases", "ratios"]

_SAMPLES, _TOKENS, _D, _STEP = 20, 8, 400, 5e-3
_N = _SAMPLES * _TOKENS
_RUNS, _STEPS, _FEW = 64, 1000, 20  # the last: steps of the torch form
_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def _state(runs: int, dtype: torch.dtype, device: str, coordinates: bool) -> list[torch.Tensor]:
    """Inner products of random tokens with a random start; with two passive rows where coordinates are followed."""
    draw, rows = torch.Generator().manual_seed(0), _N + (2 if coordinates else 0)
    probes = rows + (2 * _N + 1 if coordinates else 0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    tokens = 3 * _D**-0.5 * normal(runs, rows, _D)
    image = tokens @ (_D**-0.5 * normal(_D, _D))
    prompt = _D**-0.5 * normal(runs, _D)
    values, weighted = torch.zeros(runs, probes), torch.zeros(runs, probes, _N)
    values[:, :rows], weighted[:, :rows] = torch.bmm(image, prompt.unsqueeze(-1)).squeeze(-1), image @ image[:, :_N].mT
    if coordinates:
        values[:, -1] = 1.0
        weighted[:, rows + _N : rows + 2 * _N].diagonal(dim1=1, dim2=2).fill_(1.0)
    labels = torch.where(torch.rand(runs, _SAMPLES, generator=draw) < 0.5, 1.0, -1.0)
    made = [values, weighted, (prompt**2).sum(1), tokens @ tokens[:, :_N].mT, normal(runs, _SAMPLES, _TOKENS), labels]
    return [x.to(device, dtype) for x in made]


@functools.cache
def gate(implementation: str, dtype: torch.dtype, device: str, coordinates: bool) -> None:
    """The implementation and the float64 reference agree after 30 steps. Raises AssertionError."""
    ours = _state(2, dtype, device, coordinates)
    truth = [x.double().cpu() for x in ours]
    advance(Call(*ours, _STEP, 30), implementation=implementation)
    advance(Call(*truth, _STEP, 30), implementation="reference")
    for x, y in zip(ours[:3], truth[:3], strict=True):
        if (x.double().cpu() - y).abs().max() > _TOLERANCE[dtype] * y.abs().max():
            raise AssertionError(f"{implementation} and reference differ: no speed is reported")


def _work(units: int, implementation: str, dtype: torch.dtype, coordinates: bool) -> Work:
    """Two products and a rank-two update. S is read and written, K read: in the compiled loop from L2."""
    size = 4 if dtype == torch.float32 else 8
    rows = _N + (2 if coordinates else 0)
    probes = rows + (2 * _N + 1 if coordinates else 0)
    on_K, on_S = _N * rows, _N * probes
    delayed = 2 if implementation == "reference" else 1  # S crosses twice where its update is a pass of its own
    return Work(
        units=units,
        unit="run-step",
        operations=2.0 * _N * (rows + probes) + 4.0 * on_S,
        bytes=float(size * (on_K + on_S * (1 + delayed))),
        level="L3" if implementation == "reference" else "L2",
        dtype=str(dtype).removeprefix("torch."),
        kernel="token_selection",
    )


def _case(
    name: str, what: str, implementation: str, dtype: torch.dtype, runs: int, steps: int, *, device: str,
    coordinates: bool = False, threads: int = 1,
) -> Case:  # fmt: skip
    def prepare() -> Callable[[], object]:
        gate(implementation, dtype, device, coordinates)
        mine = _state(runs, dtype, device, coordinates)

        def call() -> None:
            advance(Call(*mine, _STEP, steps), implementation=implementation, threads=threads)

        return call

    work = _work(runs * steps, implementation, dtype, coordinates)
    return Case(f"token-selection-{name}", what, prepare, work=work, threads=threads)


def cases(device: str) -> tuple[Case, ...]:
    """The compiled loop beside the torch form, on the CPU. There is no GPU program."""
    if device != "cpu":
        return ()
    made = []
    for dtype, coordinates in itertools.product((torch.float32, torch.float64), (False, True)):
        kind, options = _kind(dtype, coordinates), {"device": device, "coordinates": coordinates}
        size = f"{_RUNS} runs, n T = {_N}, {str(dtype).removeprefix('torch.')}{', coordinates of v too' if coordinates else ''}"
        if dispatch.has_numba():
            made.append(
                _case(f"compiled-{kind}", f"{_STEPS} steps of {size}", "compiled", dtype, _RUNS, _STEPS, **options)
            )
            words = "the same in two threads"
            made.append(_case(f"compiled-{kind}-2", words, "compiled", dtype, _RUNS, _STEPS, threads=2, **options))
        what = f"{_FEW} steps, batched torch"
        made.append(_case(f"torch-{kind}", what, "reference", dtype, _RUNS, _FEW, **options))
    return tuple(made)


def _kind(dtype: torch.dtype, coordinates: bool) -> str:
    return f"f{torch.finfo(dtype).bits}{'-coordinates' if coordinates else ''}"


def ratios(median: Mapping[str, float]) -> dict[str, float]:
    """Run-steps per second of the compiled form over those of the torch form, and of two threads over one."""
    found = {}
    for kind in (_kind(*x) for x in itertools.product((torch.float32, torch.float64), (False, True))):
        one, naive, two = (median.get(f"token-selection-{name}-{kind}{more}") for name, more in
                           (("compiled", ""), ("torch", ""), ("compiled", "-2")))  # fmt: skip
        if one and naive:
            found[f"compiled / batched torch, token selection, {kind}"] = naive / one * _STEPS / _FEW
        if one and two:
            found[f"two threads / one, token selection, {kind}"] = one / two
    return found
