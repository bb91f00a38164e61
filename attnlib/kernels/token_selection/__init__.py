"""The token-selection recursion: R trainings, many steps, in the fastest implementation that can do the work."""

from __future__ import annotations

import torch

from attnlib import checks
from attnlib.kernels import dispatch
from attnlib.kernels.token_selection import reference
from attnlib.kernels.token_selection.arguments import Call, Recorded

__all__ = ["Call", "Recorded", "advance"]

_LOOP = dispatch.Loop("token selection", triton=())


def advance(call: Call, *, implementation: str = "auto", threads: int | None = None) -> Recorded:
    r"""Train R runs for the full-batch steps of a call; its `values`, `weighted` and `prompt_norm_squared` change in place.

    A probe is a vector y with its score $u = y^\top v$, $v = W^\top p$, and its row $S = y^\top W^\top WX^\top$. The first N = n T
    probes are the training tokens X, sample by sample (u = z, S = H); then come passive ones, e.g. the unit signals; then, if
    wanted, 2 N + 1 that follow the coordinates (a, b, q) of $v = X^\top a + M_0X^\top b + q v_0$ (start u = 0, 0, 1 and
    S = 0, I, 0). With c the forces (`attnlib.token_selection.model.forces`), k = Kc on the training rows,
    $\beta = c^\top z$ and $\kappa = Kc$, then $c, 0, 0$ on the coordinates:

    $$ u \leftarrow u + \alpha Sc + \alpha(\pi+\alpha\beta)\kappa, \quad
       S \leftarrow S + \alpha u k^\top + \alpha\kappa(z+\alpha\pi k)^\top, \quad
       \pi \leftarrow \pi + 2\alpha\beta + \alpha^2c^\top Hc. $$

    The state is all there is: training for a steps and then for b steps ends bit for bit where a + b steps end, in the same
    implementation on the same machine. Implementations agree up to rounding. A run that diverges turns to inf or nan;
    nothing is raised until such a state is passed in again.

    Args:
        call: the checked arguments.
        implementation: "auto", "reference" (any device) or "compiled" (CPU).
        threads: of the compiled loop, default torch.get_num_threads(); no number depends on it.

    Returns the state at the recorded moments. Raises ValueError for a bad argument before any work.
    Source: derived in the theory chapter of Part II.
    """
    threads = checks.whole_number("threads", torch.get_num_threads() if threads is None else threads, at_least=1)
    chosen = dispatch.choose(_LOOP, call.values.device, call.values.dtype, implementation=implementation)
    if chosen == "compiled":
        from attnlib.kernels.token_selection import compiled

        return compiled.advance(call, threads)
    return reference.advance(call)
