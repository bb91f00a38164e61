"""A card that is only pretended: tensors that say "cuda" and whose numbers lie on the CPU, for tests of code that takes a device.

Every operation on them is computed on the CPU, in the same precision. What a real card refuses is refused here too: an operation on
tensors of both devices (a CPU tensor without axes may take part, and CPU indices of a tensor on the card), `.numpy()` of a tensor on
the card, and a Triton program with tensors of both. So a forgotten `.cpu()` or `device=` is found without a card. What is not found:
rounding that differs on the card, its memory, its speed, what its compiler makes of a program, and races between its threads.

Triton programs run in the interpreter where it is on (TRITON_INTERPRET=1, see `conftest.py`). `pytest -p tests.pretend_card ...` has the
card there for a whole process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_flatten, tree_map

DEVICE, CPU = torch.device("cuda", 0), torch.device("cpu")
NAME, PROCESSORS = "a pretended card", 132
_READ = {torch.Tensor.device.__get__: DEVICE, torch.Tensor.is_cuda.__get__: True, torch.Tensor.is_cpu.__get__: False}
_TO_NUMPY = (torch.Tensor.numpy, torch.Tensor.__array__)
_MOVES = (torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda)
_FROM_BOTH = (*_MOVES, torch.Tensor.copy_, torch.tensor)
_JOINS = (torch.cat, torch.stack, torch.bmm, torch.matmul)  # a tensor without axes is no exception here


class _OnCard(torch.Tensor):
    """Its numbers are on the CPU, and it says that they are not."""

    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        return _computed(func, args, kwargs or {})


class _Card(TorchFunctionMode):
    """For calls that have no tensor on the card and may make one: `torch.zeros(3, device="cuda")`."""

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        return _computed(func, args, kwargs or {})


def _place(value: object) -> torch.device | None:
    """The device that an argument names, if it names one."""
    if isinstance(value, str) and value.split(":")[0] in ("cpu", "cuda"):
        value = torch.device(value)
    return (DEVICE if value.type == "cuda" else value) if isinstance(value, torch.device) else None


def _computed(func: Callable, args: tuple, kwargs: dict) -> Any:
    """The call on the CPU. What it makes is on the device that it names, else on the card if a tensor of it is."""
    if func is torch.device:
        return func(*args, **kwargs)
    if func in _READ and isinstance(args[0], _OnCard):
        return _READ[func]
    given = tree_flatten((args, kwargs))[0]
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    on_card = any(isinstance(x, _OnCard) for x in tensors)
    named = next(filter(None, map(_place, given)), None)
    if named is None and func in _device_constructors() and torch.get_default_device().type == "cuda":
        named = DEVICE  # within `with torch.device("cuda")`
    if on_card and func in _TO_NUMPY:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
    if on_card and func not in _FROM_BOTH:
        _refuse_both_devices(func, args, tensors)
    with torch._C.DisableTorchFunctionSubclass():
        if func in _MOVES:
            return _moved(func, args, kwargs, named)
        cpu_only = (tree_map(lambda x: CPU if _place(x) == DEVICE else x, part) for part in (args, kwargs))
        made = func(*next(cpu_only), **next(cpu_only))
        if named == CPU or (func is torch.tensor and named is None):
            return made
        return tree_map(_on_card, made) if named == DEVICE or (on_card and func is not torch.Tensor.copy_) else made


def _moved(func: Callable, args: tuple, kwargs: dict, named: torch.device | None) -> torch.Tensor:
    """`.to`, `.cpu`, `.cuda`: a tensor that changes its device is copied."""
    source, *rest = args
    like = next((x for x in rest if isinstance(x, torch.Tensor)), None)
    if like is not None:
        named = DEVICE if isinstance(like, _OnCard) else CPU
    was = DEVICE if isinstance(source, _OnCard) else CPU
    now = {torch.Tensor.cpu: CPU, torch.Tensor.cuda: DEVICE}.get(func, named) or was
    if func is torch.Tensor.to:
        others = {name: CPU if name == "device" else x for name, x in kwargs.items()}
        made = source.to(*(CPU if _place(x) else x for x in rest), **others)
    else:
        made = source
    if was != now and made.data_ptr() == source.data_ptr():
        made = made.clone()
    return _on_card(made) if now == DEVICE else made.as_subclass(torch.Tensor)


def _on_card(made: Any) -> Any:
    if not isinstance(made, torch.Tensor) or isinstance(made, _OnCard):
        return made
    return torch.Tensor._make_subclass(_OnCard, made, made.requires_grad) if made.is_leaf else made.as_subclass(_OnCard)


def _refuse_both_devices(func: Callable, args: tuple, tensors: list[torch.Tensor]) -> None:
    """Raises RuntimeError as torch does on a real card."""
    words = f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({func})"
    if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
        whole, index, *value = args
        indices = [x for x in tree_flatten(index)[0] if isinstance(x, torch.Tensor)]
        if any(isinstance(x, _OnCard) for x in indices) and not isinstance(whole, _OnCard):
            raise RuntimeError(
                f"indices should be either on cpu or on the same device as the indexed tensor (cpu) ({func})"
            )
        tensors = [whole, *(x for x in value if isinstance(x, torch.Tensor))] if indices else []
    if any(not isinstance(x, _OnCard) and (x.dim() > 0 or func in _JOINS) for x in tensors):
        raise RuntimeError(words)


def refuse_cpu_pointers(arguments: Iterable[object]) -> None:
    """Raises ValueError as Triton does on a real card when a program is given a tensor on the CPU."""
    for place, value in enumerate(arguments):
        if isinstance(value, torch.Tensor) and not isinstance(value, _OnCard):
            raise ValueError(f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?)")


def _interpreted_launch() -> tuple[type, Callable] | None:
    """The interpreter's launcher, and what it is to do with a program's arguments on a card; None where programs are not interpreted."""
    if os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None:
        return None
    from triton.runtime.interpreter import GridExecutor

    launch = GridExecutor.__call__

    def checked(self: Any, *arguments: Any, **options: Any) -> Any:
        if any(isinstance(x, _OnCard) for x in arguments):
            refuse_cpu_pointers(arguments)
        return launch(self, *arguments, **options)

    return GridExecutor, checked


def _cuda() -> dict[str, object]:
    """What attnlib asks of `torch.cuda`."""
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "device": lambda device: contextlib.nullcontext(),
        "current_stream": lambda device=None: types.SimpleNamespace(synchronize=lambda: None),
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda device=None: (1 << 34, 1 << 34),
        "memory_reserved": lambda device=None: 0,
        "memory_allocated": lambda device=None: 0,
        "get_device_name": lambda device=None: NAME,
        "get_device_properties": lambda device=None: types.SimpleNamespace(
            name=NAME, multi_processor_count=PROCESSORS, major=9, minor=0, total_memory=1 << 34
        ),
    }


@contextlib.contextmanager
def pretended() -> Iterator[None]:
    """Inside, torch sees a card."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _cuda().items():
            patch.setattr(torch.cuda, name, value)
        if interpreted := _interpreted_launch():
            patch.setattr(interpreted[0], "__call__", interpreted[1])
        with _Card():
            yield


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """As a plugin, for the whole process."""
    card = pretended()
    card.__enter__()
    config.add_cleanup(lambda: card.__exit__(None, None, None))
