"""What every kernel's `Call` is: a frozen set of arguments that its constructor checks, the only place where they are checked.

A kernel declares its tensors in a table (`Declared`); `shapes` and `contents` check any such table. Pieces of one training (other
steps, some of the runs) are copies of a call: what they take over has been seen, and is not looked at again.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from attnlib import checks

MOST_STEPS = 2**31 - 1
T = TypeVar("T")
Tensor = torch.Tensor


@dataclass(frozen=True)
class Declared:
    """What a tensor of a call must be.

    Args:
        shape: a letter for each axis, "R n T". Equal letters are equal sizes in all tensors of a call, "n*T" is a product.
        holds: "numbers", all finite; "signs", +1 or -1; "square", finite numbers, the first rows a symmetric matrix to `off`; the
            name of a size K: int64, 0 ... K - 1.
        use: "changed" in place, "read" by address, or "copied" where it does not lie row by row.
        off: how far from its transpose a square may be, relative to its product with a vector; None: root of the rounding unit.
    """

    shape: str
    holds: str = "numbers"
    use: str = "read"
    off: float | None = None


def shapes(given: Mapping[str, object], table: Mapping[str, Declared], **sizes: int) -> dict[str, int]:
    """The size of every letter. Raises ValueError unless all tensors have the dtype and device of the first and sizes that fit.

    `sizes`: those that are known. The others are at least one.
    """
    like: Tensor | None = None
    for name, wants in table.items():
        letters = wants.shape.split()
        known = {letter for letter in letters if all(part in sizes for part in letter.split("*"))}
        shape = tuple(math.prod(sizes[part] for part in a.split("*")) if a in known else a for a in letters)
        whole = wants.holds not in ("numbers", "signs", "square")
        found = checks.tensor(name, given[name], shape, like=like, whole=whole)
        like = found if like is None else like
        written = f"{name} must have shape ({', '.join(letters)})"
        for letter, size in zip(letters, found.shape, strict=True):
            if letter not in known and sizes.setdefault(letter, size) != size:
                raise ValueError(f"{written}; got {tuple(found.shape)}")
            if letter not in known and size < 1:
                raise ValueError(f"{written} with {letter} >= 1; got {tuple(found.shape)}")
    return sizes


def contents(given: Mapping[str, Tensor], table: Mapping[str, Declared], sizes: Mapping[str, int]) -> None:
    """Raises ValueError unless every tensor lies in memory as its use wants and holds what it must."""
    for name, wants in table.items():
        x = given[name]
        if wants.use != "copied" and not x.is_contiguous():
            why = "it is changed in place" if wants.use == "changed" else "the loops read it by address"
            raise ValueError(f"{name} must be contiguous, as {why}; got strides {x.stride()}: use .contiguous()")
        if wants.use == "changed":
            if x.requires_grad:
                raise ValueError(f"{name} must not ask for a gradient, as it is changed in place: use .detach()")
            _alone(name, given)
    for name, wants in table.items():
        x = given[name].detach()
        if wants.holds == "square":
            _symmetric(name, x, wants.off)
        elif wants.holds not in ("numbers", "signs"):
            if not ((x >= 0) & (x < sizes[wants.holds])).all():
                raise ValueError(f"{name} must be in 0 ... {sizes[wants.holds] - 1}; got something else")
        elif not x.sum().isfinite():  # one pass without a copy; only a sum that overflowed needs the second look
            _finite(name, x, x.isfinite())
        if wants.holds == "signs" and not (x.abs() == 1).all():
            raise ValueError(f"{name} must be +1 or -1; got something else")


def _alone(name: str, given: Mapping[str, Tensor]) -> None:
    """What is changed in place shares no memory with another tensor of the call."""
    ends = {
        k: (x.data_ptr(), x.data_ptr() + x.numel() * x.element_size()) for k, x in given.items() if x.is_contiguous()
    }
    low, high = ends[name]
    for other, (start, end) in ends.items():
        if other != name and low < end and start < high:
            raise ValueError(f"{name} and {other} share memory, and {name} is changed in place: pass {other}.clone()")


def _finite(name: str, x: Tensor, fine: Tensor) -> None:
    if not fine.all():
        bad = (~fine).flatten(1).any(1) if x.ndim > 1 else ~fine
        where = f"run {int(bad.nonzero()[0])}" if x.ndim > 1 else f"runs {bad.nonzero().flatten().tolist()}"
        raise ValueError(f"{name} must be finite; {where} has nan or inf: did a training diverge?")


def _symmetric(name: str, x: Tensor, off: float | None) -> None:
    """Compares G y with y' G for one y: two products with a vector, whatever the number of steps."""
    columns = x.shape[2]
    # Numbers without a pattern that rows of a matrix could share.
    y = torch.arange(1, columns + 1, dtype=x.dtype, device=x.device).cos()
    down, across = x @ y, y @ x[:, :columns]
    _finite(name, x, (down.isfinite().all(1) & across.isfinite().all(1))[:, None])
    down = down[:, :columns]
    largest = torch.maximum(down.abs().amax(-1, keepdim=True), across.abs().amax(-1, keepdim=True))
    if ((down - across).abs() > (off or torch.finfo(x.dtype).eps ** 0.5) * largest).any():
        raise ValueError(
            f"{name} must be symmetric in its first {columns} rows, as inner products of {columns} vectors with each other are"
        )


def settle(call: object, **values: object) -> None:
    """In the constructor of a frozen dataclass, replace the given values by checked ones."""
    for name, value in values.items():
        object.__setattr__(call, name, value)


def changed(call: T, **values: object) -> T:
    """A copy with other values and, unlike `dataclasses.replace`, without checks: the caller answers for them."""
    made = copy.copy(call)
    settle(made, **values)
    return made


def per_run(name: str, value: object, runs: int, *, positive: bool = False) -> Tensor:
    """(R,) float64: a number for every run, from one or one per run. Raises ValueError unless all are >= 0 (> 0 if `positive`)."""
    if hasattr(value, "tolist"):  # a tensor or an array
        value = value.tolist()
    each = value if isinstance(value, Sequence) and not isinstance(value, str) else [value] * runs
    if len(each) != runs:
        raise ValueError(f"{name} must be one number or {runs}, one per run; got {len(each)}")
    one = checks.positive_number if positive else checks.not_negative
    return torch.tensor([one(name, number) for number in each], dtype=torch.float64, device="cpu")
