"""What the training loop of attention heads is given and gives back, checked once for both implementations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from attnlib import checks
from attnlib.kernels.state_checks import MOST_STEPS, contiguous, finite, rates_of, symmetric, whole_tensor

__all__ = ["KINDS", "PREPARATIONS", "Call", "Map", "Recorded", "check"]

# What the compiled form knows by name, in the order of the numbers in `_loops`.
KINDS = (
    "softmax",
    "sparsemax",
    "entmax-1.5",
    "hardmax",
    "linearised softmax",
    "sigmoid",
    "half plus",
    "linear",
    "ReLU",
)
PREPARATIONS = ("", "joint", "blocks")
Tensor = torch.Tensor


class Map(Protocol):
    """An attention map: which formula, its number, and the formula itself for logits (..., 2)."""

    kind: str
    setting: float
    window: int | None
    weights: Callable[[Tensor], Tensor]
    pullback: Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Recorded:
    """What a training loop saw, before the update of each recorded step.

    Args:
        steps: the S recorded steps, increasing.
        coefficients: (S, R, Hv + H, q), the v_h and then the p_h.
        output: (S, R, n), f_i.
        attention: (S, R, H, n), weight on the signal token.
    """

    steps: tuple[int, ...]
    coefficients: Tensor
    output: Tensor
    attention: Tensor


@dataclass(frozen=True)
class Call:
    """Checked arguments; the first three tensors are the state, changed in place but for `gram`."""

    gram: Tensor  # (R, q, q)
    coefficients: Tensor  # (R, Hv + H, q)
    velocity: Tensor  # (R, Hv + H, q)
    labels: Tensor  # (R, n)
    classes: Tensor  # (R, n)
    rates: Tensor  # (R, 2), of v and p, in the dtype and place of the state
    factors: Tensor  # (steps,), float64 on the CPU
    batches: Tensor | None  # (R, steps, B)
    heads: int
    signals: int
    attention_map: Map
    output_scale: float
    prepare: str
    momentum: float
    look_ahead: bool
    record: tuple[int, ...]

    @property
    def runs(self) -> int:
        return self.gram.shape[0]

    @property
    def n(self) -> int:
        return self.labels.shape[1]

    @property
    def steps(self) -> int:
        return len(self.factors)

    @property
    def values(self) -> int:
        """Hv."""
        return self.coefficients.shape[1] - self.heads

    def blank(self) -> Recorded:
        """Room for everything that is recorded."""
        count, new = len(self.record), self.coefficients.new_empty
        return Recorded(
            self.record,
            new(count, *self.coefficients.shape),
            new(count, self.runs, self.n),
            new(count, self.runs, self.heads, self.n),
        )


def _check_map(attention_map: Map) -> None:
    missing = [name for name in Map.__annotations__ if not hasattr(attention_map, name)]
    if missing:
        raise ValueError(
            f"attention_map must be a map of attnlib.single_head.maps, or have all its parts; got {attention_map!r} without "
            + ", ".join(missing)
        )


def _check_batches(batches: Tensor, runs: int, steps: int, n: int, like: Tensor) -> None:
    size = batches.shape[-1] if isinstance(batches, Tensor) and batches.ndim else 0
    whole_tensor("batches", batches, (runs, steps, size), like)
    contiguous("batches", batches, "the loops read them by address")
    if not 1 <= size <= n:
        raise ValueError(f"batches must hold 1 ... {n} samples of a run; got {size}")
    if steps and not ((batches >= 0) & (batches < n)).all():
        raise ValueError(f"batches must hold sample numbers in 0 ... {n - 1}; got others")
    if steps and size > 1 and not batches.sort(dim=-1)[0].diff(dim=-1).all():
        raise ValueError("batches must hold every sample at most once in a step; got one twice")


def check(
    gram: Tensor, coefficients: Tensor, labels: Tensor, classes: Tensor, *, heads: int, signals: int, attention_map: Map,
    value_step: float | Tensor, attention_step: float | Tensor, factors: Tensor, output_scale: float, prepare: str,
    momentum: float, look_ahead: bool, velocity: Tensor | None, batches: Tensor | None, record: Iterable[int],
) -> Call:  # fmt: skip
    """The arguments of `advance` as a `Call`. Raises ValueError that says which one is wrong, before any work."""
    checks.tensor("gram", gram, ("R", "q", "q"))
    runs, q, columns = gram.shape
    if q != columns:
        raise ValueError(f"gram must hold square matrices (R, q, q); got {tuple(gram.shape)}")
    if runs == 0:
        raise ValueError("gram must hold at least one run (R >= 1); got none")
    _check_map(attention_map)
    signals = checks.whole_number("signals", signals, at_least=1)
    heads = checks.whole_number("heads", heads, at_least=1)
    checks.tensor("labels", labels, (runs, "n"), like=gram)
    n = labels.shape[1]
    if not 1 <= n <= q - signals:
        raise ValueError(
            f"labels must hold 1 ... {q - signals} samples of a run, as gram holds {q} vectors: {signals} signals, n noise "
            f"tokens, start vectors; got {n}"
        )
    checks.tensor("coefficients", coefficients, (runs, "Hv + H", q), like=gram)
    if coefficients.shape[1] not in (heads + 1, 2 * heads):
        raise ValueError(
            f"coefficients must hold {heads} + {heads} vectors a run, or 1 + {heads} when the heads share their values; "
            f"got {coefficients.shape[1]}"
        )
    if velocity is None:
        velocity = torch.zeros_like(coefficients)
    checks.tensor("velocity", velocity, tuple(coefficients.shape), like=gram)
    whole_tensor("classes", classes, (runs, n), gram)
    for name, tensor in (("coefficients", coefficients), ("velocity", velocity)):
        contiguous(name, tensor, "they are changed in place")
        finite(name, tensor)
        if tensor.requires_grad:
            raise ValueError(f"{name} must not ask for a gradient, as they are changed in place: use .detach()")
    for name, tensor in (("gram", gram), ("labels", labels), ("classes", classes)):
        contiguous(name, tensor, "the loops read them by address")
    checks.tensor("factors", factors, ("steps",))
    steps = len(factors)
    if steps > MOST_STEPS:
        raise ValueError(f"factors must hold at most {MOST_STEPS} steps; got {steps}: go on with a second call")
    factors = factors.detach().to("cpu", torch.float64).contiguous()
    finite("factors", factors)
    if batches is not None:
        _check_batches(batches, runs, steps, n, gram)
    marks = sorted({checks.whole_number("record", step, at_least=0) for step in record})
    if marks and marks[-1] > steps:
        raise ValueError(f"record must hold steps in 0 ... {steps}; got {marks[-1]}")
    rates = [rates_of("value_step", value_step, gram), rates_of("attention_step", attention_step, gram)]
    if not (labels.abs() == 1).all():
        raise ValueError("labels must be +1 or -1; got something else")
    if ((classes < 0) | (classes >= signals)).any():
        raise ValueError(f"classes must be in 0 ... {signals - 1}; got something else")
    symmetric(gram)
    momentum = checks.probability("momentum", momentum)
    return Call(
        gram, coefficients, velocity, labels, classes, torch.stack(rates, dim=1).to(gram), factors, batches, heads, signals,
        attention_map, checks.finite_number("output_scale", output_scale),
        checks.one_of("prepare", prepare, PREPARATIONS), momentum, bool(look_ahead), tuple(marks),
    )  # fmt: skip
