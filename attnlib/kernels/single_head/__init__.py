r"""Gradient descent of one softmax head with two tokens per sample, in Gram coordinates: R runs, many steps.

Source: derived; `attnlib.single_head.gram` tells how a sample becomes a Gram matrix. `reference` says what is computed,
`compiled` and `gpu` are the fast forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from attnlib import checks
from attnlib.kernels.dispatch import Loop, choose
from attnlib.kernels.single_head.arguments import Recorded, check

__all__ = ["LOOP", "Recorded", "advance", "implementation_for", "warm_up"]

LOOP = Loop("gradient descent of the single head")
_WIDEST = 46_340  # vectors of a basis in the GPU program, which counts a matrix's numbers in 32 bits


def advance(
    gram: torch.Tensor,
    coefficients: torch.Tensor,
    labels: torch.Tensor,
    classes: torch.Tensor,
    *,
    steps: int,
    value_step: float | Sequence[float] | torch.Tensor,
    attention_step: float | Sequence[float] | torch.Tensor,
    record: Iterable[int] = (),
    threads: int | None = None,
    implementation: str = "auto",
) -> Recorded:
    r"""Make `steps` steps of gradient descent in every run, in place.

    Both vectors are combinations of a basis of m vectors with Gram matrix $G$: $v = \sum_a \alpha_a b_a$ and
    $p = \sum_a \pi_a b_a$. With the scores $G\alpha$ and $G\pi$, $s_i$ and $\xi_i$ the places of sample i's signal and
    noise token, $a_i = \sigma((G\pi)_{s_i} - (G\pi)_{\xi_i})$ and
    $f_i = a_i (G\alpha)_{s_i} + (1 - a_i) (G\alpha)_{\xi_i}$, a step of size $\beta$ on
    $\frac1n \sum_i \log(1 + e^{-y_i f_i})$ adds, with $g_i = \frac\beta n y_i \sigma(-y_i f_i)$,

    $$ g_i a_i \text{ to } \alpha_{s_i}, \quad g_i (1 - a_i) \text{ to } \alpha_{\xi_i}, \quad
       \pm\, g_i a_i (1 - a_i) \big((G\alpha)_{s_i} - (G\alpha)_{\xi_i}\big) \text{ to } \pi_{s_i}, \pi_{\xi_i}, $$

    all from the same point. a steps and then b steps end bit for bit where a + b steps end (same implementation), and
    neither `threads` nor the other runs of a call change a run's numbers in the compiled and the GPU form. A run that
    diverges has outputs that are not finite; nothing is raised.

    Args:
        gram: (R, m, m), symmetric; vectors 0 and 1 are the signals, 2 ... n + 1 the noise tokens, the others (start
            vectors, m >= n + 2) are only read.
        coefficients: (R, m, 2), columns v and p. Changed in place.
        labels: (R, n), +1 or -1, as floats.
        classes: (R, n) int64, 0 or 1: the signal of each sample.
        steps: updates to make, 0 ... 2^31 - 1.
        value_step, attention_step: step sizes beta of v and p >= 0, not divided by n: a number, or one per run. With 0 a
            vector stays where it is.
        record: steps in 0 ... `steps`; the state before a step's update is kept, with `steps` the last one.
        threads: runs are shared out among this many threads on the CPU; None: as many as torch uses.
        implementation: "auto", or one of `dispatch.IMPLEMENTATIONS`.

    All floating tensors have one dtype and device: float32 or float64 in the compiled and the GPU form, any in the
    reference. Scores of any size are safe: probabilities are right relative to their value down to e^-87 (float32) and
    e^-708 (float64), below which they are not exact but never above these bounds.

    Raises ValueError on a wrong argument before any work.

    >>> import torch
    >>> basis = torch.tensor([[[2.0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]], dtype=torch.float64)
    >>> state = torch.zeros(1, 4, 2, dtype=torch.float64)
    >>> labels, classes = torch.tensor([[1.0, -1.0]], dtype=torch.float64), torch.tensor([[0, 1]])
    >>> seen = advance(basis @ basis.mT, state, labels, classes, steps=2, value_step=1.0, attention_step=1.0, record=[1])
    >>> seen.output.tolist(), seen.attention.tolist()
    ([[[0.3125, -0.3125]]], [[[0.5, 0.5]]])
    """
    call = check(
        gram, coefficients, labels, classes, steps=steps, value_step=value_step, attention_step=attention_step, record=record
    )  # fmt: skip
    threads = torch.get_num_threads() if threads is None else checks.whole_number("threads", threads, at_least=1)
    chosen = implementation_for(gram.shape[1], gram.device, gram.dtype, implementation=implementation)
    state = (gram, coefficients, labels, classes)
    if chosen == "compiled":
        from attnlib.kernels.single_head import compiled

        return compiled.advance(call, *state, threads=threads)
    if chosen == "triton":
        from attnlib.kernels.single_head import gpu

        return gpu.advance(call, *state)
    from attnlib.kernels.single_head import reference

    return reference.advance(call, *state)


def implementation_for(m: int, device: torch.device, dtype: torch.dtype, *, implementation: str = "auto") -> str:
    """The implementation that `advance` takes for m vectors. Raises ValueError if the one asked for cannot do it."""
    cannot = {"triton": f"it holds at most {_WIDEST} vectors, and there are {m}"} if m > _WIDEST else {}
    return choose(LOOP, device, dtype, implementation=implementation, cannot=cannot)


def warm_up(dtype: torch.dtype = torch.float64, device: str | torch.device = "cpu") -> None:
    """Compile, or load what an earlier process compiled, before anything is timed or shown."""
    like = {"dtype": dtype, "device": device}
    advance(
        torch.eye(3, **like)[None], torch.zeros(1, 3, 2, **like), torch.ones(1, 1, **like),
        torch.zeros(1, 1, dtype=torch.int64, device=device), steps=1, value_step=0.0, attention_step=0.0,
    )  # fmt: skip
