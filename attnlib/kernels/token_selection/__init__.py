"""The token-selection recursion: R trainings, many steps, in the fastest implementation that can do the work.

`reference` says what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from attnlib.kernels.dispatch import Loop, run

_LOOP = Loop("token selection", triton=(), package=__name__)


@dataclass(frozen=True)
class Recorded:
    """The state at the recorded moments.

    Args:
        steps: (M,) after how many steps of the call, increasing.
        values: (M, R, P), rows like the `values` of the call: scores, passive rows, coordinates.
        prompt_norm_squared: (M, R), |p|^2.
    """

    steps: tuple[int, ...]
    values: torch.Tensor
    prompt_norm_squared: torch.Tensor


@dataclass(frozen=True)
class Call:
    """Arguments of `attnlib.kernels.token_selection.advance`, which says what is computed of them.

    They have been checked by who makes them; all tensors have one dtype and device, float32 or float64 (the reference takes any).
    """

    values: torch.Tensor  # u, (R, P), P = rows + 2 N + 1. Changed in place
    weighted: torch.Tensor  # S, (R, P, N), symmetric in its first N rows. Changed in place
    prompt_norm_squared: torch.Tensor  # pi = |p|^2, (R,). Changed in place
    kernel: (
        torch.Tensor
    )  # K, (R, rows, N), rows >= N: inner products of training tokens and passive rows with training tokens
    head_scores: torch.Tensor  # gamma, (R, n, T)
    labels: torch.Tensor  # observed labels, +1 or -1, (R, n)
    step_sizes: torch.Tensor  # (steps,), alpha > 0 of every step, float64 on the CPU
    record: Sequence[
        int
    ] = ()  # moments to keep, as numbers of steps of this call, 0 ... steps (0 is the start), increasing

    @property
    def runs(self) -> int:
        return self.values.shape[0]

    @property
    def steps(self) -> int:
        return len(self.step_sizes)

    def piece(self, first: int, record: Sequence[int]) -> Call:
        """Steps `first` ... record[-1] - 1 of the call, recording these of its steps, which increase."""
        sizes = self.step_sizes[first : record[-1]]
        return replace(self, step_sizes=sizes, record=tuple(m - first for m in record))

    def blank(self) -> Recorded:
        """Room for everything that is recorded."""
        moments = len(self.record)
        return Recorded(
            tuple(self.record),
            self.values.new_empty(moments, *self.values.shape),
            self.prompt_norm_squared.new_empty(moments, self.runs),
        )


def advance(call: Call, *, implementation: str = "auto", threads: int | None = None) -> Recorded:
    r"""Train R runs for the full-batch steps of a call; its `values`, `weighted` and `prompt_norm_squared` change in place.

    A probe is a vector y with its score $u = y^\top v$, $v = W^\top p$, and its row $S = y^\top W^\top WX^\top$. The first N = n T
    probes are the training tokens X, sample by sample (u = z, S = H); then come passive ones, e.g. the unit signals; then 2 N + 1
    that follow the coordinates (a, b, q) of $v = X^\top a + M_0X^\top b + q v_0$ (start u = 0, 0, 1 and S = 0, I, 0). With c the
    forces (`attnlib.token_selection.model.forces`), k = Kc on the training rows, $\beta = c^\top z$ and $\kappa = Kc$, then
    $c, 0, 0$ on the coordinates:

    $$ u \leftarrow u + \alpha Sc + \alpha(\pi+\alpha\beta)\kappa, \quad
       S \leftarrow S + \alpha u k^\top + \alpha\kappa(z+\alpha\pi k)^\top, \quad
       \pi \leftarrow \pi + 2\alpha\beta + \alpha^2c^\top Hc. $$

    The state is all there is: training for a steps and then for b steps ends bit for bit where a + b steps end, in the same
    implementation on the same machine. Implementations agree up to rounding. A run that diverges turns to inf or nan;
    nothing is raised.

    Args:
        call: the arguments.
        implementation: "auto", "reference" (any device) or "compiled" (CPU).
        threads: of the compiled loop, default torch.get_num_threads(); no number depends on it.

    Returns the state at the recorded moments.
    Source: derived in the theory chapter of Part II.
    """
    like = call.values
    seen: Recorded = run(_LOOP, (call,), like.device, like.dtype, implementation=implementation, threads=threads)
    return seen
