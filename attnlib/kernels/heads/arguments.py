"""What the training loop of attention heads is given and gives back, checked once for all implementations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from attnlib import checks
from attnlib.kernels.calls import MOST_STEPS, Declared, contents, moments, per_run, settle, shapes

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
_TENSORS = {
    "gram": Declared("R q q", "square"),
    "labels": Declared("R n", "signs"),
    "coefficients": Declared("R vectors q", use="changed"),
    "velocity": Declared("R vectors q", use="changed"),
    "classes": Declared("R n", "K"),
    "batches": Declared("R steps B", "n"),
}
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
        checks.tensor("factors", self.factors, ("steps",))
        steps, heads = len(self.factors), checks.whole_number("heads", self.heads, at_least=1)
        if steps > MOST_STEPS:
            raise ValueError(f"factors must hold at most {MOST_STEPS} steps; got {steps}: go on with a second call")
        factors = self.factors.detach().to("cpu", torch.float64).contiguous()
        if not factors.isfinite().all():
            raise ValueError("factors must be finite; got nan or infinity")
        signals = checks.whole_number("signals", self.signals, at_least=1)
        _check_map(self.attention_map)
        table = {name: wants for name, wants in _TENSORS.items() if name != "batches" or self.batches is not None}
        given = {name: getattr(self, name) for name in table}
        if self.velocity is None and isinstance(self.coefficients, Tensor):
            given["velocity"] = torch.zeros_like(self.coefficients, requires_grad=False)
        sizes = shapes(given, table, K=signals, steps=steps)
        n, q, vectors = sizes["n"], sizes["q"], sizes["vectors"]
        if n > q - signals:
            raise ValueError(
                f"labels must hold 1 ... {q - signals} samples of a run, as gram holds {q} vectors: {signals} signals, n noise "
                f"tokens, start vectors; got {n}"
            )
        if vectors not in (heads + 1, 2 * heads):
            raise ValueError(
                f"coefficients must hold {heads} + {heads} vectors a run, or 1 + {heads} when the heads share their values; "
                f"got {vectors}"
            )
        marks = moments(self.record, steps)
        rates = [per_run(name, getattr(self, name), sizes["R"]) for name in ("value_step", "attention_step")]
        momentum = checks.probability("momentum", self.momentum)
        output_scale = checks.finite_number("output_scale", self.output_scale)
        prepare = checks.one_of("prepare", self.prepare, PREPARATIONS)
        contents(given, table, sizes)
        if self.batches is not None and sizes["B"] > 1 and not self.batches.sort(dim=-1)[0].diff(dim=-1).all():
            raise ValueError("batches must hold every sample at most once in a step; got one twice")
        settle(
            self, heads=heads, signals=signals, factors=factors, velocity=given["velocity"], record=marks, momentum=momentum,
            output_scale=output_scale, prepare=prepare, look_ahead=bool(self.look_ahead),
            rates=torch.stack(rates, dim=1).to(self.gram),
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
