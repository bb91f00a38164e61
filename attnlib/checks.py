"""Checks of arguments: one sentence that names the argument, what was expected, what came, and what to do."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import SupportsFloat, SupportsIndex

import torch

__all__ = [
    "finite_number", "not_negative", "one_of", "positive_number", "probability", "recorded_steps", "tensor", "whole_number",
]  # fmt: skip


def _say(name: str, expected: str, value: object, hint: str) -> str:
    return f"{name} must be {expected}; got {value!r}" + (f": {hint}" if hint else "")


def whole_number(name: str, value: object, *, at_least: int, hint: str = "") -> int:
    """`value` as an int >= `at_least`. Raises ValueError otherwise (a bool is not a number)."""
    if isinstance(value, bool | torch.Tensor) or not isinstance(value, SupportsIndex) or int(value) < at_least:
        raise ValueError(_say(name, f"a whole number >= {at_least}", value, hint))
    return int(value)


def recorded_steps(record: Iterable[int] | None, steps: int) -> tuple[int, ...]:
    """The steps of a training to keep, increasing: those of `record` and the last; all of 0 ... `steps` without a record.

    Raises ValueError for a step that is not a whole number in 0 ... `steps`.
    """
    if record is None:
        return tuple(range(steps + 1))
    kept = {steps}
    for step in record:
        try:
            number = -1 if isinstance(step, bool) else operator.index(step)
        except TypeError:
            number = -1
        if not 0 <= number <= steps:
            raise ValueError(f"record must hold steps in 0 ... {steps}; got {step!r}")
        kept.add(number)
    return tuple(sorted(kept))


def _number(value: object) -> float:
    """`value` as a float; nan where it is no number (a bool and a text are none)."""
    if type(value) is float:  # most calls; asking for a protocol takes microseconds
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsFloat | SupportsIndex):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return math.nan


def finite_number(name: str, value: object, *, hint: str = "") -> float:
    """`value` as a finite float. Raises ValueError otherwise."""
    number = _number(value)
    if not math.isfinite(number):
        raise ValueError(_say(name, "a finite number", value, hint))
    return number


def positive_number(name: str, value: object, *, hint: str = "") -> float:
    """`value` as a finite float > 0. Raises ValueError otherwise."""
    number = _number(value)
    if not 0 < number < math.inf:
        raise ValueError(_say(name, "a finite number > 0", value, hint))
    return number


def not_negative(name: str, value: object) -> float:
    """`value` as a finite float >= 0. Raises ValueError otherwise."""
    number = finite_number(name, value)
    if number < 0:
        raise ValueError(_say(name, ">= 0", value, ""))
    return number


def probability(name: str, value: object, *, high: float = 1.0, open_ends: bool = False, hint: str = "") -> float:
    """`value` as a float in [0, high], or in (0, high) with `open_ends`. Raises ValueError otherwise."""
    number = _number(value)
    inside = 0 < number < high if open_ends else 0 <= number <= high
    if not inside:
        interval = f"(0, {high:g})" if open_ends else f"[0, {high:g}]"
        raise ValueError(_say(name, f"in {interval}", value, hint))
    return number


def one_of(name: str, value: object, valid: Sequence[str]) -> str:
    """`value`, which must be one of `valid`. Raises ValueError that lists them."""
    if not isinstance(value, str) or value not in valid:
        raise ValueError(_say(name, "one of " + ", ".join(map(repr, valid)), value, ""))
    return value


def tensor(
    name: str, value: object, shape: tuple[int | str, ...], *, like: torch.Tensor | None = None, whole: bool = False
) -> torch.Tensor:
    """A floating tensor, or an int64 one, of the given shape: numbers are demanded, letters stand for any size.

    `like`: a tensor whose dtype (if floating) and device are demanded too. Raises ValueError otherwise.
    """
    wanted = "(" + ", ".join(map(str, shape)) + ")"
    if not isinstance(value, torch.Tensor):
        raise ValueError(
            f"{name} must be a torch tensor of shape {wanted}; got {type(value).__name__}: use torch.as_tensor"
        )
    if not (value.dtype == torch.int64 if whole else value.is_floating_point()):
        kind, to = ("an int64", "int64") if whole else ("a floating-point", "float64")
        raise ValueError(f"{name} must be {kind} tensor; got {value.dtype}: use .to(torch.{to})")
    fits = value.ndim == len(shape) and all(
        isinstance(want, str) or want == have for want, have in zip(shape, value.shape, strict=False)
    )
    if not fits:
        hint = ": swap the axes?" if sorted(map(str, shape)) == sorted(map(str, value.shape)) else ""
        raise ValueError(f"{name} must have shape {wanted}; got {tuple(value.shape)}{hint}")
    if like is not None and (value.device != like.device or not (whole or value.dtype == like.dtype)):
        dtype = value.dtype if whole else like.dtype
        raise ValueError(
            f"{name} must have dtype {dtype} on {like.device}; got {value.dtype} on {value.device}: use .to(...)"
        )
    return value
