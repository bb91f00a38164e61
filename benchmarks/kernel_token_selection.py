"""Token selection: run-steps of the compiled loop against the batched torch form, n T = 160."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch

from attnlib.kernels.token_selection import Call, advance
from benchmarks.registry import Case, Work, of_one_unit

__all__ = ["cases", "ratios"]

_SAMPLES, _TOKENS, _D, _STEP = 20, 8, 400, 5e-3
_N = _SAMPLES * _TOKENS
_ROWS = _N + 2  # two passive rows
_PROBES = _ROWS + 2 * _N + 1
_RUNS, _STEPS, _FEW = 64, 1000, 20  # the last: steps of the torch form
_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
_KINDS = {f"f{torch.finfo(dtype).bits}-coordinates": dtype for dtype in _TOLERANCE}


def _state(runs: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Inner products of random tokens with a random start."""
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    tokens = 3 * _D**-0.5 * normal(runs, _ROWS, _D)
    image = tokens @ (_D**-0.5 * normal(_D, _D))
    prompt = _D**-0.5 * normal(runs, _D)
    values, weighted = torch.zeros(runs, _PROBES), torch.zeros(runs, _PROBES, _N)
    values[:, :_ROWS], weighted[:, :_ROWS] = (image @ prompt.unsqueeze(-1)).squeeze(-1), image @ image[:, :_N].mT
    values[:, -1] = 1.0
    weighted[:, _ROWS + _N : _ROWS + 2 * _N].diagonal(dim1=1, dim2=2).fill_(1.0)
    labels = torch.where(torch.rand(runs, _SAMPLES, generator=draw) < 0.5, 1.0, -1.0)
    made = [values, weighted, (prompt**2).sum(1), tokens @ tokens[:, :_N].mT, normal(runs, _SAMPLES, _TOKENS), labels]
    return [x.to(dtype) for x in made]


@functools.cache
def gate(dtype: torch.dtype) -> None:
    """The compiled loop and the float64 reference agree after 30 steps. Raises AssertionError."""
    ours = _state(2, dtype)
    truth = [x.double().clone() for x in ours]  # float64 is not copied otherwise
    advance(Call(*ours, torch.full((30,), _STEP, dtype=torch.float64)))
    advance(Call(*truth, torch.full((30,), _STEP, dtype=torch.float64)), implementation="reference")
    for x, y in zip(ours[:3], truth[:3], strict=True):
        if (x.double() - y).abs().max() > _TOLERANCE[dtype] * y.abs().max():
            raise AssertionError("compiled loop and reference differ: no speed is reported")


def _case(kind: str, implementation: str, threads: int = 1) -> Case:
    dtype, steps = _KINDS[kind], _STEPS if implementation == "compiled" else _FEW

    def prepare() -> Callable[[], object]:
        mine = _state(_RUNS, dtype)
        return lambda: advance(
            Call(*mine, torch.full((steps,), _STEP, dtype=torch.float64)),
            implementation=implementation,
            threads=threads,
        )

    # Two products and a rank-two update. K is read, S read and written: twice where its update is a pass of its own.
    slow, on_K, on_S = implementation == "reference", _N * _ROWS, _N * _PROBES
    work = Work(
        _RUNS * steps, "run-step", 2.0 * on_K + 6.0 * on_S, float(dtype.itemsize * (on_K + on_S * (3 if slow else 2))),
        "L3" if slow else "L2", str(dtype).removeprefix("torch."), "token_selection",
    )  # fmt: skip
    name = f"token-selection-{'torch' if slow else 'compiled'}-{kind}{'-2' * (threads > 1)}"
    what = f"{steps} steps of {_RUNS} runs, n T = {_N}, {work.dtype}, {implementation}"
    return Case(name, what, prepare, gate=functools.partial(gate, dtype), work=work, threads=threads)


def cases(device: str) -> tuple[Case, ...]:
    """The compiled loop beside the torch form, on the CPU. There is no GPU program."""
    forms = (("compiled", 1), ("compiled", 2), ("reference", 1)) if device == "cpu" else ()
    return tuple(_case(kind, *form) for kind in _KINDS for form in forms)


def ratios(median: Mapping[str, float]) -> dict[str, float]:
    """Run-steps per second of the compiled form over those of the torch form, and of two threads over one."""
    pairs = {}
    for kind in _KINDS:
        one = f"token-selection-compiled-{kind}"
        pairs[f"compiled / batched torch, token selection, {kind}"] = (
            f"token-selection-torch-{kind}",
            one,
            _STEPS / _FEW,
        )
        pairs[f"two threads / one, token selection, {kind}"] = (one, f"{one}-2", 1.0)
    return of_one_unit(median, pairs)
