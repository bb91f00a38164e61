r"""Training of attention heads with two tokens per sample, in Gram coordinates: R runs, many steps, any map, several rules.

Source: derived; `attnlib.single_head.training` tells how a sample becomes a Gram matrix. `reference` says what is computed, on any
device; `compiled` (CPU) and `gpu` are the fast forms. A `Call` is checked once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from attnlib import checks
from attnlib.attention import AttentionMap
from attnlib.kernels.calls import MOST_STEPS, Declared, contents, per_run, settle, shapes
from attnlib.kernels.dispatch import Loop, run

_LOOP = Loop("training of attention heads", package=__name__)
_WIDEST = 46_340  # vectors of a basis in the GPU program, which counts a matrix's numbers in 32 bits
# What the compiled form knows by name, in the order of the numbers in `_loops`.
KINDS = (
    "softmax", "sparsemax", "entmax-1.5", "hardmax", "linearised softmax", "sigmoid", "half plus", "linear", "ReLU",
)  # fmt: skip
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
    """Arguments of `attnlib.kernels.heads.advance`, which says what is computed of them.

    Args:
        gram: (R, q, q), symmetric: `signals` signals, n noise tokens, then vectors that are only read (a start's).
        coefficients: (R, Hv + H, q), the v_h and then the p_h; Hv is H, or 1 when all heads share v. Changed in place.
        labels: (R, n), +1 or -1, as floats.
        classes: (R, n) int64, 0 ... `signals` - 1: the signal of each sample.
        heads, signals: H and K.
        attention_map: one of `attnlib.single_head.maps`. The fast forms know the kinds in `KINDS` by name, without windows.
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
    attention_map: AttentionMap
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
        if not isinstance(self.attention_map, AttentionMap):
            raise ValueError(f"attention_map must be one of attnlib.single_head.maps; got {self.attention_map!r}")
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
        marks = checks.steps_within(self.record, steps)
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


def advance(call: Call, *, threads: int | None = None, implementation: str = "auto") -> Recorded:
    r"""Make the steps of a call in every run, in place.

    All vectors are combinations of a basis of q vectors with Gram matrix $G$: $v_h = \sum_a \alpha_{ha} b_a$ and
    $p_h = \sum_a \pi_{ha} b_a$. With $s_i$ and $\xi_i$ the places of sample i's signal and noise token, a head sees the values
    $(G\alpha_h)_{s_i}, (G\alpha_h)_{\xi_i}$ and the logits $(G\pi_h)_{s_i}, (G\pi_h)_{\xi_i}$, of which the map makes weights
    $w_{hi}$; $f_i = \kappa \sum_h w_{hi} \cdot (\text{values})_{hi}$. The gradient of $\frac1n \sum_i \log(1 + e^{-y_i f_i})$ has the
    coefficients

    $$ \kappa\,\ell'_i\, w_{hi} \text{ for } v_h, \qquad \kappa\,\ell'_i\, J_{hi}^\top (\text{values})_{hi} \text{ for } p_h,
       \qquad \ell'_i = -\tfrac1n y_i \sigma(-y_i f_i), $$

    each at the places $s_i$ and $\xi_i$, all from the same point. A step is torch.optim.SGD's on them, after `prepare`.

    a steps and then b steps, with `velocity`, end bit for bit where a + b steps end (same implementation), and neither
    `threads` nor `record` nor the other runs of a call change a run's numbers in the compiled form. A run that diverges has outputs
    that are not finite; nothing is raised.

    Args:
        call: the checked arguments.
        threads: runs are shared out among this many threads on the CPU; None: as many as torch uses.
        implementation: "auto", or one of `dispatch.IMPLEMENTATIONS`. The fast forms compute in float32 or float64, the reference in
            any dtype. A sample no longer pulls with a margin above 708 (in the compiled form's float32: above 87).

    Raises ValueError on a wrong argument before any work.

    >>> import torch
    >>> from attnlib.single_head.maps import SOFTMAX
    >>> basis = torch.tensor([[[2.0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]], dtype=torch.float64)
    >>> state = torch.zeros(1, 2, 4, dtype=torch.float64)
    >>> labels, classes = torch.tensor([[1.0, -1.0]], dtype=torch.float64), torch.tensor([[0, 1]])
    >>> call = Call(basis @ basis.mT, state, labels, classes, heads=1, signals=2, attention_map=SOFTMAX, value_step=1.0,
    ...             attention_step=1.0, factors=torch.ones(2), record=[1])
    >>> seen = advance(call)
    >>> seen.output.tolist(), seen.attention.tolist()
    ([[[0.3125, -0.3125]]], [[[[0.5, 0.5]]]])
    """
    q, like = call.gram.shape[1], call.gram
    cannot = _obstacles(call.attention_map, q)
    seen: Recorded = run(
        _LOOP, (call,), like.device, like.dtype, implementation=implementation, threads=threads, cannot=cannot
    )
    return seen


def _obstacles(attention_map: AttentionMap, q: int) -> dict[str, str]:
    """Why a fast form cannot train with a map and q vectors."""
    cannot = {"triton": f"it holds at most {_WIDEST} vectors, and there are {q}"} if q > _WIDEST else {}
    if attention_map.window is not None:
        reason = f"it has no windows, and the map has windows of {attention_map.window}"
        cannot |= {"compiled": reason, "triton": reason}
    elif attention_map.kind not in KINDS:
        reason = f"it has no map {attention_map.kind!r}"
        cannot |= {"compiled": reason, "triton": reason}
    return cannot
