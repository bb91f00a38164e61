"""What the training loop of attention heads is given and gives back, checked once for all implementations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from attnlib import checks
from attnlib.kernels.calls import MOST_STEPS, contiguous, finite, moments, rates_of, settle, symmetric, whole_tensor

__all__ = ["KINDS", "PREPARATIONS", "Call", "Map", "Recorded"]

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
    """Softmax or an alternative to it: which formula, its number, and the formula itself for logits (..., 2)."""

    @property
    def kind(self) -> str: ...

    @property
    def setting(self) -> float: ...

    @property
    def window(self) -> int | None: ...

    @property
    def weights(self) -> Callable[[Tensor], Tensor]: ...

    @property
    def pullback(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]: ...


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


def _check_map(attention_map: Map) -> None:
    parts = [name for name in vars(Map) if not name.startswith("_")]
    missing = [name for name in parts if not hasattr(attention_map, name)]
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


@dataclass(frozen=True)
class Call:
    """Arguments of `attnlib.kernels.heads.advance`, which says what is computed of them.

    Args:
        gram: (R, q, q), symmetric: `signals` signals, n noise tokens, then vectors that are only read (a start's).
        coefficients: (R, Hv + H, q), the v_h and then the p_h; Hv is H, or 1 when all heads share v. Changed in place.
        labels: (R, n), +1 or -1, as floats.
        classes: (R, n) int64, 0 ... `signals` - 1: the signal of each sample.
        heads, signals: H and K.
        attention_map: an `attnlib.single_head.maps.AttentionMap`, or anything with its `kind`, `setting`, `window`, `weights`
            and `pullback`. The fast forms know the kinds in `KINDS` by name, without windows.
        value_step, attention_step: step sizes >= 0, not divided by n: a number, or one per run. With 0 vectors stay.
        factors: (steps,), a factor on both step sizes for every step.
        output_scale: kappa.
        prepare: "" nothing; "joint": the gradient of all vectors together is divided by its length; "blocks": that of the v_h and
            that of the p_h each. A vector that stays counts too. A gradient of zero stays zero.
        momentum, look_ahead: torch.optim.SGD's momentum in [0, 1] and nesterov.
        velocity: (R, Hv + H, q), the momentum's buffers, changed in place; zeros when left out.
        batches: (R, steps, B) int64, the samples of each step, whose loss is averaged then; None: all of them.
        record: steps in 0 ... `steps`; the state before a step's update is kept, with `steps` the last one.

    All floating tensors but `factors` have one dtype and device. Raises ValueError on a wrong argument.
    """

    gram: Tensor
    coefficients: Tensor
    labels: Tensor
    classes: Tensor
    heads: int
    signals: int
    attention_map: Map
    value_step: float | Sequence[float] | Tensor
    attention_step: float | Sequence[float] | Tensor
    factors: Tensor  # as given; then float64 on the CPU
    output_scale: float = 1.0
    prepare: str = ""
    momentum: float = 0.0
    look_ahead: bool = False
    velocity: Tensor | None = None  # as given; then `buffers`
    batches: Tensor | None = None
    record: tuple[int, ...] = ()  # as given; then sorted, each step once
    rates: Tensor = field(init=False)  # (R, 2), step sizes of v and p, in the dtype and place of the state

    def __post_init__(self) -> None:
        gram, coefficients, labels, classes = self.gram, self.coefficients, self.labels, self.classes
        velocity, factors, batches = self.velocity, self.factors, self.batches
        checks.tensor("gram", gram, ("R", "q", "q"))
        runs, q, columns = gram.shape
        if q != columns:
            raise ValueError(f"gram must hold square matrices (R, q, q); got {tuple(gram.shape)}")
        if runs == 0:
            raise ValueError("gram must hold at least one run (R >= 1); got none")
        _check_map(self.attention_map)
        signals = checks.whole_number("signals", self.signals, at_least=1)
        heads = checks.whole_number("heads", self.heads, at_least=1)
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
        marks = moments(self.record, steps)
        rates = [rates_of("value_step", self.value_step, gram), rates_of("attention_step", self.attention_step, gram)]
        if not (labels.abs() == 1).all():
            raise ValueError("labels must be +1 or -1; got something else")
        if ((classes < 0) | (classes >= signals)).any():
            raise ValueError(f"classes must be in 0 ... {signals - 1}; got something else")
        # After all cheap checks: it reads every matrix once.
        symmetric(gram)
        momentum = checks.probability("momentum", self.momentum)
        settle(
            self, heads=heads, signals=signals, factors=factors, velocity=velocity, record=marks, momentum=momentum,
            output_scale=checks.finite_number("output_scale", self.output_scale),
            prepare=checks.one_of("prepare", self.prepare, PREPARATIONS), look_ahead=bool(self.look_ahead),
            rates=torch.stack(rates, dim=1).to(gram),
        )  # fmt: skip

    @property
    def buffers(self) -> Tensor:
        """(R, Hv + H, q): the momentum's, those that were given or the zeros in their place."""
        assert self.velocity is not None
        return self.velocity

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
