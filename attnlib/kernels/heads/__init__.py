r"""Training of attention heads with two tokens per sample, in Gram coordinates: R runs, many steps, any map, several rules.

Source: derived; `attnlib.single_head.training` tells how a sample becomes a Gram matrix. `reference` says what is computed, on any
device; `compiled` (CPU) and `gpu` are the fast forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from attnlib.attention import AttentionMap
from attnlib.kernels.dispatch import Loop, run

_LOOP = Loop("training of attention heads", package=__name__)
_WIDEST = 46_340  # vectors of a basis in the GPU program, which counts a matrix's numbers in 32 bits
# What the compiled form knows by name, in the order of the numbers in `_loops`.
KINDS = (
    "softmax", "sparsemax", "entmax-1.5", "hardmax", "linearised softmax", "sigmoid", "half plus", "linear", "ReLU",
)  # fmt: skip
PREPARATIONS = ("", "joint", "blocks")
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
    """Arguments of `attnlib.kernels.heads.advance`, which says what is computed of them. They have been checked by who makes them."""

    gram: Tensor  # (R, q, q), symmetric: signals, n noise tokens, then vectors that are only read (a start's)
    coefficients: (
        Tensor  # (R, Hv + H, q), the v_h and then the p_h; Hv is H, or 1 when all heads share v. Changed in place
    )
    labels: Tensor  # (R, n), +1 or -1, in the dtype of the state
    classes: Tensor  # (R, n) int64, 0 ... signals - 1: the signal of each sample
    rates: Tensor  # (R, 2), step sizes >= 0 of the v_h and of the p_h, in the dtype of the state. With 0 vectors stay
    factors: Tensor  # (steps,) float64 on the CPU, a factor on both step sizes for every step
    heads: int  # H
    signals: int  # K
    attention_map: AttentionMap  # the fast forms know the kinds in `KINDS` by name, without windows
    output_scale: float = 1.0  # kappa
    # "joint": the gradient of all vectors together is divided by its length; "blocks": that of the v_h and that of the p_h each.
    # A vector that stays counts too. A gradient of zero stays zero.
    prepare: str = ""
    momentum: float = 0.0  # torch.optim.SGD's, in [0, 1]
    look_ahead: bool = False  # its nesterov
    velocity: Tensor | None = None  # (R, Hv + H, q), the momentum's buffers, changed in place; zeros when left out
    batches: Tensor | None = None  # (R, steps, B) int64, the samples of each step, each at most once; None: all of them
    record: Sequence[
        int
    ] = ()  # steps in 0 ... steps, increasing; the state before a step's update is kept, with `steps` the last one

    @property
    def buffers(self) -> Tensor:
        """(R, Hv + H, q): the momentum's, those that were given or zeros."""
        return torch.zeros_like(self.coefficients) if self.velocity is None else self.velocity

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
            tuple(self.record),
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
        call: the arguments.
        threads: runs are shared out among this many threads on the CPU; None: as many as torch uses.
        implementation: "auto", or one of `dispatch.IMPLEMENTATIONS`. The fast forms compute in float32 or float64, the reference in
            any dtype. A sample no longer pulls with a margin above 708 (in the compiled form's float32: above 87).

    >>> import torch
    >>> from attnlib.single_head.maps import SOFTMAX
    >>> basis = torch.tensor([[[2.0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]], dtype=torch.float64)
    >>> state = torch.zeros(1, 2, 4, dtype=torch.float64)
    >>> labels, classes = torch.tensor([[1.0, -1.0]], dtype=torch.float64), torch.tensor([[0, 1]])
    >>> rates, factors = torch.ones(1, 2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    >>> call = Call(basis @ basis.mT, state, labels, classes, rates, factors, heads=1, signals=2, attention_map=SOFTMAX, record=[1])
    >>> seen = advance(call)
    >>> seen.output.tolist(), seen.attention.tolist()
    ([[[0.3125, -0.3125]]], [[[[0.5, 0.5]]]])
    """
    q, like = call.gram.shape[1], call.gram
    cannot = _obstacles(call.attention_map, q, call.steps)
    seen: Recorded = run(
        _LOOP, (call,), like.device, like.dtype, implementation=implementation, threads=threads, cannot=cannot
    )
    return seen


def _obstacles(attention_map: AttentionMap, q: int, steps: int) -> dict[str, str]:
    """Why a fast form cannot train with a map, q vectors and so many steps."""
    cannot = {"triton": f"it holds at most {_WIDEST} vectors, and there are {q}"} if q > _WIDEST else {}
    if steps >= 2**31:
        cannot = {"triton": "it counts steps in 32 bits"}
    if attention_map.window is not None:
        reason = f"it has no windows, and the map has windows of {attention_map.window}"
        cannot |= {"compiled": reason, "triton": reason}
    elif attention_map.kind not in KINDS:
        reason = f"it has no map {attention_map.kind!r}"
        cannot |= {"compiled": reason, "triton": reason}
    return cannot
