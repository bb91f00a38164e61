"""What every kernel's `Call` is: a frozen set of arguments that its constructor checks, the only place where they are checked.

A call says all that a loop needs. Pieces of one training (other steps, some of the runs) are copies of a call: what they take
over has been seen, and is not looked at again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch

from attnlib import checks

__all__ = [
    "MOST_STEPS",
    "changed",
    "contiguous",
    "finite",
    "moments",
    "rates_of",
    "settle",
    "symmetric",
    "whole_tensor",
]

MOST_STEPS = 2**31 - 1
T = TypeVar("T")


def settle(call: object, **values: object) -> None:
    """Put checked values in the place of given ones, in a constructor of a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(call, name, value)


def changed(call: T, **values: object) -> T:
    """A copy with other values, which the caller answers for: unlike `dataclasses.replace` it checks nothing."""
    made = copy.copy(call)
    settle(made, **values)
    return made


def moments(record: Iterable[int], last: int, *, first: int = 0) -> tuple[int, ...]:
    """The recorded steps, increasing, each once. Raises ValueError unless all are whole numbers in `first` ... `last`."""
    marks = sorted({checks.whole_number("record", step, at_least=0) for step in record})
    for mark in marks:
        if not first <= mark <= last:
            raise ValueError(f"record must hold steps in {first} ... {last}; got {mark}")
    return tuple(marks)


def contiguous(name: str, tensor: torch.Tensor, why: str) -> None:
    """Raises ValueError unless the tensor is contiguous."""
    if not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, as {why}; got strides {tensor.stride()}: use .contiguous()")


def finite(name: str, tensor: torch.Tensor) -> None:
    """Raises ValueError unless all entries are finite."""
    if not tensor.isfinite().all():
        raise ValueError(f"{name} must be finite; got nan or infinity")


def symmetric(gram: torch.Tensor) -> None:
    """Raises ValueError unless the matrices (R, m, m) are finite and symmetric.

    Compares G x with x G for one x: two products with a vector, whatever the number of steps.
    """
    # Numbers without a pattern that rows of a matrix could share.
    x = torch.arange(1, gram.shape[1] + 1, dtype=gram.dtype, device=gram.device).cos()
    down, across = gram @ x, x @ gram
    if not (down.isfinite().all() and across.isfinite().all()):
        raise ValueError("gram must be finite, its sums over a row too; got nan or infinity")
    largest = torch.maximum(down.abs().amax(-1, keepdim=True), across.abs().amax(-1, keepdim=True))
    if ((down - across).abs() > torch.finfo(gram.dtype).eps ** 0.5 * largest).any():
        raise ValueError("gram must be symmetric; got a matrix that is not its transpose: pass basis @ basis.mT")


def rates_of(name: str, value: object, gram: torch.Tensor) -> torch.Tensor:
    """(R,) float64: a step for every run, from one number or one per run. Raises ValueError unless all are >= 0."""
    runs = gram.shape[0]
    if isinstance(value, torch.Tensor) and value.ndim > 0:
        value = value.tolist()
    each = value if isinstance(value, Sequence) and not isinstance(value, str) else [value] * runs
    if len(each) != runs:
        raise ValueError(f"{name} must be one number or {runs}, one per run; got {len(each)}")
    rates = [checks.finite_number(name, number) for number in each]
    for rate, number in zip(rates, each, strict=True):
        if rate < 0:
            raise ValueError(f"{name} must be >= 0; got {number!r}")
    return torch.tensor(rates, dtype=torch.float64)


def whole_tensor(name: str, value: object, shape: tuple[int, ...], like: torch.Tensor) -> None:
    """Raises ValueError unless it is an int64 tensor of this shape on the device of `like`."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.int64 or value.device != like.device:
        got = f"{value.dtype} on {value.device}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise ValueError(f"{name} must be an int64 tensor on {like.device}; got {got}: use .to(...)")
    if value.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got {tuple(value.shape)}")
