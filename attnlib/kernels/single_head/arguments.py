"""What the single head's training loop is given and gives back, checked once for every implementation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from attnlib import checks

__all__ = ["MOST_STEPS", "Call", "Recorded", "check"]

MOST_STEPS = 2**31 - 1


@dataclass(frozen=True)
class Recorded:
    """What a training loop saw, before the update of each recorded step.

    Args:
        steps: (K,) int64, increasing.
        coefficients: (R, K, m, 2), columns v and p.
        output: (R, K, n), f_i.
        attention: (R, K, n), weight on the signal token.
    """

    steps: torch.Tensor
    coefficients: torch.Tensor
    output: torch.Tensor
    attention: torch.Tensor

    @classmethod
    def blank(cls, call: Call, coefficients: torch.Tensor) -> Recorded:
        """Room for everything that `call` records."""
        runs, m, _ = coefficients.shape
        marks = torch.tensor(call.record, dtype=torch.int64)
        seen = [coefficients.new_empty(runs, len(marks), call.n) for _ in range(2)]
        return cls(marks, coefficients.new_empty(runs, len(marks), m, 2), *seen)


@dataclass(frozen=True)
class Call:
    """Checked arguments: `rates` (R, 2) are the two steps divided by n, in the dtype and place of the state."""

    n: int
    steps: int
    rates: torch.Tensor
    record: tuple[int, ...]


def _contiguous(name: str, tensor: torch.Tensor, why: str) -> None:
    if not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, as {why}; got strides {tensor.stride()}: use .contiguous()")


def _finite(name: str, tensor: torch.Tensor) -> None:
    if not tensor.isfinite().all():
        raise ValueError(f"{name} must be finite; got nan or infinity")


def _symmetric(gram: torch.Tensor) -> None:
    """Compares G x with x G for one x: two products with a vector, whatever the number of steps."""
    x = torch.arange(1, gram.shape[1] + 1, dtype=gram.dtype, device=gram.device).cos()
    down, across = gram @ x, x @ gram
    if not (down.isfinite().all() and across.isfinite().all()):
        raise ValueError("gram must be finite, its sums over a row too; got nan or infinity")
    largest = torch.maximum(down.abs().amax(-1, keepdim=True), across.abs().amax(-1, keepdim=True))
    if ((down - across).abs() > torch.finfo(gram.dtype).eps ** 0.5 * largest).any():
        raise ValueError("gram must be symmetric; got a matrix that is not its transpose: pass basis @ basis.mT")


def _rates(name: str, value: object, gram: torch.Tensor) -> torch.Tensor:
    """(R,) float64: a step for every run."""
    runs = gram.shape[0]
    if isinstance(value, torch.Tensor) and value.ndim > 0:
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str):
        value = [value] * runs
    if len(value) != runs:
        raise ValueError(f"{name} must be one number or {runs}, one per run; got {len(value)}")
    for number in value:
        if checks.finite_number(name, number) < 0:
            raise ValueError(f"{name} must be >= 0; got {number!r}")
    return torch.tensor([float(number) for number in value], dtype=torch.float64)


def _whole_tensor(name: str, value: object, shape: tuple[int, ...], like: torch.Tensor) -> None:
    if not isinstance(value, torch.Tensor) or value.dtype != torch.int64 or value.device != like.device:
        got = f"{value.dtype} on {value.device}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise ValueError(f"{name} must be an int64 tensor on {like.device}; got {got}: use .to(...)")
    if value.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got {tuple(value.shape)}")


def check(
    gram: torch.Tensor,
    coefficients: torch.Tensor,
    labels: torch.Tensor,
    classes: torch.Tensor,
    *,
    steps: int,
    value_step: float | Sequence[float] | torch.Tensor,
    attention_step: float | Sequence[float] | torch.Tensor,
    record: Iterable[int],
) -> Call:
    """The arguments of `advance` as a `Call`. Raises ValueError that says which one is wrong, before any work."""
    checks.tensor("gram", gram, ("R", "m", "m"))
    runs, m, columns = gram.shape
    if m != columns:
        raise ValueError(f"gram must hold square matrices (R, m, m); got {tuple(gram.shape)}")
    if runs == 0:
        raise ValueError("gram must hold at least one run (R >= 1); got none")
    checks.tensor("labels", labels, (runs, "n"), like=gram)
    n = labels.shape[1]
    if not 1 <= n <= m - 2:
        raise ValueError(
            f"labels must hold 1 ... {m - 2} samples of a run, as gram holds {m} vectors: two signals, n noise tokens, "
            f"start vectors; got {n}"
        )
    checks.tensor("coefficients", coefficients, (runs, m, 2), like=gram)
    _whole_tensor("classes", classes, (runs, n), gram)
    _contiguous("coefficients", coefficients, "they are changed in place")
    for name, tensor in (("gram", gram), ("labels", labels), ("classes", classes)):
        _contiguous(name, tensor, "the loops read them by address")
    if coefficients.requires_grad:
        raise ValueError("coefficients must not ask for a gradient, as they are changed in place: use .detach()")
    steps = checks.whole_number("steps", steps, at_least=0)
    if steps > MOST_STEPS:
        raise ValueError(f"steps must be at most {MOST_STEPS}; got {steps}: go on with a second call")
    marks = sorted({checks.whole_number("record", step, at_least=0) for step in record})
    if marks and marks[-1] > steps:
        raise ValueError(f"record must hold steps in 0 ... {steps}; got {marks[-1]}")
    rates = torch.stack([_rates("value_step", value_step, gram), _rates("attention_step", attention_step, gram)], dim=1)
    if not (labels.abs() == 1).all():
        raise ValueError("labels must be +1 or -1; got something else")
    if ((classes < 0) | (classes > 1)).any():
        raise ValueError("classes must be 0 or 1; got something else")
    _finite("coefficients", coefficients)
    _symmetric(gram)
    return Call(n, steps, (rates / n).to(gram), tuple(marks))
