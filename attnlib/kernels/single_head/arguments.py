"""What the single head's training loop is given and gives back, checked once for every implementation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.kernels.state_checks import MOST_STEPS, contiguous, finite, rates_of, symmetric, whole_tensor

__all__ = ["MOST_STEPS", "Call", "Recorded", "check"]


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
    whole_tensor("classes", classes, (runs, n), gram)
    contiguous("coefficients", coefficients, "they are changed in place")
    for name, tensor in (("gram", gram), ("labels", labels), ("classes", classes)):
        contiguous(name, tensor, "the loops read them by address")
    if coefficients.requires_grad:
        raise ValueError("coefficients must not ask for a gradient, as they are changed in place: use .detach()")
    steps = checks.whole_number("steps", steps, at_least=0)
    if steps > MOST_STEPS:
        raise ValueError(f"steps must be at most {MOST_STEPS}; got {steps}: go on with a second call")
    marks = sorted({checks.whole_number("record", step, at_least=0) for step in record})
    if marks and marks[-1] > steps:
        raise ValueError(f"record must hold steps in 0 ... {steps}; got {marks[-1]}")
    rates = torch.stack(
        [rates_of("value_step", value_step, gram), rates_of("attention_step", attention_step, gram)], dim=1
    )
    if not (labels.abs() == 1).all():
        raise ValueError("labels must be +1 or -1; got something else")
    if ((classes < 0) | (classes > 1)).any():
        raise ValueError("classes must be 0 or 1; got something else")
    finite("coefficients", coefficients)
    symmetric(gram)
    return Call(n, steps, (rates / n).to(gram), tuple(marks))
