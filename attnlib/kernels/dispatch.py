"""Which implementation of a hot loop runs: the readable one, the compiled one, or the one for GPUs.

Every loop of this package exists two or three times under one signature:

| implementation | what it is | runs on |
|---|---|---|
| `reference` | readable torch, the definition the others are tested against | every device and dtype |
| `compiled` | one numba function for all steps of a run (extra `kernels`) | the CPU |
| `triton` | one GPU program for all steps of a run (extra `gpu`) | CUDA; Triton's interpreter in tests |

GPU programs exist for the two models whose training is long: heads and in-context regression.

`choose` takes the fastest that can do the work, so that nobody has to name one. An absent numba, GPU or Triton is no error.
The environment's ATTNLIB_KERNELS=reference (or compiled, triton) asks for one wherever it can do the work; `implementation=` of a
loop is an order.

What was chosen is said once per loop, device and dtype on the logger `attnlib.kernels` (level INFO), and kept in `ran`. That a loop
is slow because numba is missing is said at level WARNING, which Python prints unless told otherwise.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from attnlib import checks
from attnlib.extras import how_to_install

IMPLEMENTATIONS = ("reference", "compiled", "triton")
"""The implementations of a loop: readable torch, compiled for the CPU, compiled for a GPU.

Source:
    this repository, `docs/kernels.md`.

Example:
    >>> IMPLEMENTATIONS
    ('reference', 'compiled', 'triton')
"""
VARIABLE = "ATTNLIB_KERNELS"
NO_NUMBA = f"numba is not installed: {how_to_install('kernels')}"
SWITCHED_OFF = "numba is switched off by NUMBA_DISABLE_JIT, which is for looking for faults in numba: unset it"

log = logging.getLogger("attnlib.kernels")
_ran: dict[tuple[str, ...], str] = {}


@dataclass(frozen=True)
class Loop:
    """A hot loop: its name in sentences, the dtypes its fast implementations compute in (the reference takes any), its package."""

    name: str
    compiled: Collection[torch.dtype] = field(default=(torch.float32, torch.float64))
    triton: Collection[torch.dtype] = field(default=(torch.float32, torch.float64))
    package: str = ""


@functools.cache
def _installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def has_numba() -> bool:
    """Whether compiled loops can be used here: numba is installed (extra `kernels`), and not switched off by NUMBA_DISABLE_JIT.

    Returns:
        True or False.

    Source:
        this repository, `docs/kernels.md`.

    Example:
        >>> has_numba() in (True, False)
        True
    """
    return not _switched_off() and _installed("numba", "llvmlite")


def without_numba() -> str:
    """The reason why compiled loops cannot be used here; empty if they can."""
    return "" if has_numba() else SWITCHED_OFF if _switched_off() else NO_NUMBA


def _switched_off() -> bool:
    """As numba read it when it was loaded, or as it will."""
    config = getattr(sys.modules.get("numba"), "config", None)
    read = os.environ.get("NUMBA_DISABLE_JIT", "") if config is None else str(int(config.DISABLE_JIT))
    return read.strip() not in ("", "0")


def has_triton() -> bool:
    """Whether Triton is installed (extra `gpu`); a GPU is another matter.

    Returns:
        True or False.

    Source:
        this repository, `docs/kernels.md`.

    Example:
        >>> has_triton() in (True, False)
        True
    """
    return _installed("triton")


def _obstacle(
    loop: Loop, implementation: str, device: torch.device, dtype: torch.dtype, cannot: Mapping[str, str]
) -> str:
    """Why `implementation` cannot do this work, or nothing."""
    if implementation == "reference":
        return ""
    if reason := cannot.get(implementation):
        return reason
    dtypes = loop.compiled if implementation == "compiled" else loop.triton
    if not dtypes:
        return "this loop has no GPU program: on a GPU its readable form runs"
    if dtype not in dtypes:
        return f"it computes in {' or '.join(str(d).removeprefix('torch.') for d in dtypes)}, not {str(dtype).removeprefix('torch.')}"
    if implementation == "compiled":
        if device.type != "cpu":
            return f"it runs on the CPU, and the tensors are on {device}"
        return without_numba()
    if not has_triton():
        return f"Triton is not installed: {how_to_install('gpu')}"
    # TRITON_INTERPRET=1 before Triton's first import: programs run in its interpreter, on tensors of the CPU.
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it runs on a CUDA device, and the tensors are on {device}"
    return ""


def choose(
    loop: Loop,
    device: torch.device,
    dtype: torch.dtype,
    *,
    implementation: str = "auto",
    cannot: Mapping[str, str] | None = None,
) -> str:
    """The implementation that runs: the one asked for, else the preferred one if it can, else the fastest that can.

    Args:
        loop: which loop.
        device, dtype: of the tensors it works on.
        implementation: "auto", or one of `IMPLEMENTATIONS`, which is then an order.
        cannot: why an implementation cannot hold this size, by name.

    Raises ValueError if the one asked for cannot do the work, with the reason.
    """
    checks.one_of("implementation", implementation, ("auto", *IMPLEMENTATIONS))
    obstacle = functools.partial(_obstacle, loop, device=device, dtype=dtype, cannot=cannot or {})
    if implementation != "auto":
        if reason := obstacle(implementation):
            raise ValueError(f"{loop.name}: implementation {implementation!r} cannot be used: {reason}")
        asked: str | None = implementation
        chosen = implementation
    else:
        asked = os.environ.get(VARIABLE) or None
        if asked is not None:
            checks.one_of(VARIABLE, asked, IMPLEMENTATIONS)
        fastest = "triton" if device.type == "cuda" else "compiled"
        order = (*filter(None, [asked]), fastest, "reference")
        chosen = next(name for name in order if not obstacle(name))
    key, kind = (loop.name, chosen, str(device), str(dtype)), str(dtype).removeprefix("torch.")
    if key not in _ran:
        _ran[key] = f"{loop.name}: {chosen}, {kind} on {device}"
        passed_over = {name: reason for name in IMPLEMENTATIONS if (reason := obstacle(name))}
        reasons = "; ".join(f"not {name}: {reason}" for name, reason in passed_over.items())
        log.info("%s%s", _ran[key], f" ({reasons})" if reasons else "")
        if asked is None and (why := passed_over.get("compiled", "")) in (NO_NUMBA, SWITCHED_OFF):
            log.warning("%s in plain torch, six to a hundred and fifty times slower than compiled: %s", loop.name, why)
    return chosen


def run(
    loop: Loop, arguments: tuple[object, ...], device: torch.device, dtype: torch.dtype, *, implementation: str,
    threads: int | None, cannot: Mapping[str, str] | None = None,
) -> Any:  # fmt: skip
    """What `advance(*arguments)` of the chosen implementation returns; its module in the loop's package is loaded only now.

    `threads`: of the compiled form; None: as many as torch uses. The rest as in `choose`.
    """
    threads = threads or torch.get_num_threads()
    chosen = choose(loop, device, dtype, implementation=implementation, cannot=cannot)
    module = importlib.import_module(f"{loop.package}.{'gpu' if chosen == 'triton' else chosen}")
    return module.advance(*arguments, **({"threads": threads} if chosen == "compiled" else {}))


def ran() -> tuple[str, ...]:
    """A line for each loop that ran in this process, with its implementation, dtype and device, in the order of first use.

    Returns:
        the lines.

    Source:
        this repository, `docs/kernels.md`.

    Example:
        >>> all(": " in line for line in ran())
        True
    """
    return tuple(_ran.values())
