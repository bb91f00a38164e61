"""Every GPU program once, at a small size and for two steps: what is checked for races, and what a dry run compiles.

python -m benchmarks.card_launches            on a card: launch all of them (compute-sanitizer watches this)
python -m benchmarks.card_launches --compile  without a card: make the inputs on a pretended one, compile for sm_90, and stop there;
                                              then lead every timed case to its first launch
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from attnlib.kernels import gaussian_tail, heads, token_selection
from attnlib.single_head import maps
from benchmarks import kernel_in_context_gpu, kernel_token_selection

__all__ = ["LAUNCHES", "compile_launches", "lead_to_launches"]

_STEPS, _RUNS, _SAMPLES = 2, 3, 37


def _heads(count: int, dtype: torch.dtype, **rule: Any) -> None:
    """Heads that start from zero but for their last vectors, on random tokens."""
    draw = torch.Generator().manual_seed(0)
    q = _SAMPLES + 2 + 2 * count
    basis = torch.randn(_RUNS, q, 2 * q, generator=draw, dtype=torch.float64) / q**0.5
    state = torch.zeros(_RUNS, 2 * count, q, dtype=dtype)
    state[..., -2 * count :] = 0.1 * torch.eye(2 * count, dtype=dtype)
    labels = torch.randint(0, 2, (_RUNS, _SAMPLES), generator=draw).to(dtype) * 2 - 1
    classes = torch.randint(0, 2, (_RUNS, _SAMPLES), generator=draw)
    gram, state, labels, classes = (x.to("cuda") for x in ((basis @ basis.mT).to(dtype), state, labels, classes))
    call = heads.Call(
        gram, state, labels, classes, heads=count, signals=2, attention_map=maps.SOFTMAX, value_step=0.5,
        attention_step=0.5, factors=torch.ones(_STEPS), record=[_STEPS], **rule,
    )  # fmt: skip
    heads.advance(call, implementation="triton")


def _token_selection(dtype: torch.dtype) -> None:
    state = kernel_token_selection._state(_RUNS, dtype, "cuda", False)
    token_selection.advance(token_selection.Call(*state, 5e-3, _STEPS), implementation="triton")


def _in_context(count: int) -> None:
    kernel_in_context_gpu._train(kernel_in_context_gpu._start(count, _RUNS, "cuda"), count, _STEPS, "triton")


def _errors() -> None:
    logit, omega = (torch.linspace(0.2, 3, 40, dtype=torch.float64, device="cuda") for _ in range(2))
    gaussian_tail.log_error(logit, 2 * logit, omega, -omega, 1 + logit, implementation="triton")


def _prompts() -> None:
    from attnlib.kernels.in_context import gpu

    gpu.draws(7, [1, 2], 0, _STEPS, 130, d=5, length=4, device=torch.device("cuda"))


LAUNCHES: dict[str, Callable[[], None]] = {
    "single head, float32": functools.partial(_heads, 1, torch.float32),
    "single head, float64": functools.partial(_heads, 1, torch.float64),
    "attention heads, normalised with momentum, float64": functools.partial(
        _heads, 2, torch.float64, prepare="joint", momentum=0.5
    ),
    "token selection, float32": functools.partial(_token_selection, torch.float32),
    "token selection, float64": functools.partial(_token_selection, torch.float64),
    "in-context training, one head": functools.partial(_in_context, 1),
    "in-context training, two heads": functools.partial(_in_context, 2),
    "population error": _errors,
    "random numbers of prompts": _prompts,
}


class _Launched(Exception):
    """The first launch: as far as one gets without a card."""


class _Driver:
    """What Triton's compiler asks of a card's driver, for sm_90."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: object = None) -> int:
        return 0


@contextlib.contextmanager
def _without_card(compiling: bool) -> Iterator[None]:
    """A pretended card; a launch is compiled for sm_90 as Triton would for these very arguments, and ends in `_Launched`."""
    import triton
    from triton.runtime.jit import JITFunction

    from tests.pretend_card import pretended, refuse_cpu_pointers

    def stop(program: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        refuse_cpu_pointers(arguments)
        if compiling:
            made = run(program, *arguments, grid=grid, warmup=True, **options)
            if "cubin" not in made.asm:
                raise RuntimeError(f"{program.__name__}: the compiler made no machine code for sm_90")
        raise _Launched(program.__name__)

    run, before = JITFunction.run, triton.runtime.driver._active
    triton.runtime.driver.set_active(_Driver())
    JITFunction.run = stop
    try:
        with pretended():
            yield
    finally:
        JITFunction.run = run
        triton.runtime.driver._active = before


def _name_of_launch(work: Callable[[], object]) -> str:
    """The program that `work` launches first. Raises RuntimeError if it launches none."""
    try:
        work()
    except _Launched as launched:
        return str(launched)
    raise RuntimeError("no program was launched")


def compile_launches() -> None:
    """Compile every program for sm_90, as its first launch asks for it. Raises what the compiler raises."""
    with _without_card(compiling=True):
        for name, launch in LAUNCHES.items():
            start = time.perf_counter()
            program = _name_of_launch(launch)
            print(f"{name}: {program} compiled for sm_90 in {time.perf_counter() - start:.1f} s", flush=True)


def lead_to_launches() -> None:
    """Every timed case of a GPU program, from its inputs to its first launch, which its gate makes. Raises what a case raises."""
    from benchmarks import kernels

    with _without_card(compiling=False):
        for case in kernels.wing("cuda").cases:
            if "torch" in case.name or "naive" in case.name:  # launches nothing
                continue
            print(f"{case.name}: comes to the launch of {_name_of_launch(case.prepare)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.card_launches", description=__doc__)
    parser.add_argument("--compile", action="store_true", help="without a card: compile for sm_90 and stop there")
    if parser.parse_args().compile:
        compile_launches()
        lead_to_launches()
        return 0
    for name, launch in LAUNCHES.items():
        launch()
        torch.cuda.synchronize()
        print(f"launched: {name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
