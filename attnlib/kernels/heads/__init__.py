r"""Training of attention heads with two tokens per sample, in Gram coordinates: R runs, many steps, any map, several rules.

Source: derived; `attnlib.single_head.training` tells how a sample becomes a Gram matrix. `reference` says what is computed, on any
device; `compiled` (CPU) and `gpu` are the fast forms.
"""

from __future__ import annotations

import torch

from attnlib import checks
from attnlib.kernels.dispatch import Loop, choose
from attnlib.kernels.heads.arguments import KINDS, Call, Map, Recorded

__all__ = ["LOOP", "Call", "Recorded", "advance", "implementation_for"]

LOOP = Loop("training of attention heads")
_WIDEST = 46_340  # vectors of a basis in the GPU program, which counts a matrix's numbers in 32 bits


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
    threads = torch.get_num_threads() if threads is None else checks.whole_number("threads", threads, at_least=1)
    like = call.gram
    chosen = implementation_for(
        call.attention_map, like.shape[1], like.device, like.dtype, implementation=implementation
    )
    if chosen == "compiled":
        from attnlib.kernels.heads import compiled

        return compiled.advance(call, threads=threads)
    if chosen == "triton":
        from attnlib.kernels.heads import gpu

        return gpu.advance(call)
    from attnlib.kernels.heads import reference

    return reference.advance(call)


def implementation_for(
    attention_map: Map, q: int, device: torch.device, dtype: torch.dtype, *, implementation: str = "auto"
) -> str:
    """The implementation that `advance` takes for a map and q vectors. Raises ValueError if the one asked for cannot do it."""
    cannot = {"triton": f"it holds at most {_WIDEST} vectors, and there are {q}"} if q > _WIDEST else {}
    if attention_map.window is not None:
        reason = f"it has no windows, and the map has windows of {attention_map.window}"
        cannot |= {"compiled": reason, "triton": reason}
    elif attention_map.kind not in KINDS:
        reason = f"it has no map {attention_map.kind!r}"
        cannot |= {"compiled": reason, "triton": reason}
    return choose(LOOP, device, dtype, implementation=implementation, cannot=cannot)
