"""Where tensors live. float64 on the CPU is the reference; everything takes a device and dtype and runs there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from attnlib import checks

P = ParamSpec("P")
R = TypeVar("R")


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with torch on one CPU thread and without autocast, and then restore what was set before.

    Operations on small tensors are over before a second thread has begun: at the sizes of the pages, on two cores, two threads made
    some of these functions many times slower. Large dense products might gain from more. And sums are added in one order.
    """

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with contextlib.ExitStack() as ambient:
                for kind in filter(torch.is_autocast_enabled, ("cpu", "cuda")):
                    ambient.enter_context(torch.autocast(kind, enabled=False))
                return function(*args, **kwargs)
        finally:
            torch.set_num_threads(before)

    return alone


def resolve(device: str | torch.device = "cpu") -> torch.device:
    """The torch device meant by `device`: "cpu", "cuda", "cuda:1", or "auto" (a GPU when there is one).

    Raises ValueError when a GPU is asked for and none can be used.
    """
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device if isinstance(device, torch.device) else str(device))
    except RuntimeError as error:
        raise ValueError(f"device must be 'cpu', 'cuda', 'cuda:N' or 'auto'; got {device!r}") from error
    if resolved.type == "mps":
        raise ValueError("device 'mps' has no float64, and these numbers need it: use device='cpu', or a GPU with CUDA")
    checks.one_of("device type", resolved.type, ("cpu", "cuda"))
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' was asked for, but torch sees no GPU: use device='cpu' or 'auto'")
    return resolved


def home(value: object) -> torch.device:
    """Where `value` is: a tensor's device, the CPU for numbers and arrays, whatever `torch.set_default_device` says."""
    return value.device if isinstance(value, torch.Tensor) else torch.device("cpu")


def report(device: str | torch.device = "cpu") -> str:
    """What computes: 'cpu' or the GPU's name, without anything that identifies the machine."""
    resolved = resolve(device)
    return torch.cuda.get_device_name(resolved) if resolved.type == "cuda" else "cpu"
