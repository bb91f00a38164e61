"""Training of in-context regression with one layer of softmax attention: many steps, many runs, data made on the way.

`reference` says what is computed, `prompt_stream` from which random numbers, `compiled` and `gpu` are the fast forms.
"""

from __future__ import annotations

import numpy as np
import torch

from attnlib import checks
from attnlib.kernels.dispatch import Loop, choose
from attnlib.kernels.in_context.arguments import Call, Recorded

__all__ = ["LOOP", "Call", "Recorded", "advance", "implementation_for", "warm_up"]

LOOP = Loop("in-context training", compiled=(torch.float32,), triton=(torch.float32,))
_MOST_HEADS, _LARGEST_D = 8, 7  # what the registers of a GPU program hold


def advance(
    call: Call,
    weights: torch.Tensor,
    first_moment: torch.Tensor,
    second_moment: torch.Tensor,
    *,
    threads: int | None = None,
    implementation: str = "auto",
) -> Recorded:
    """Train R runs for the steps of a call, in place.

    Training from step a to b and then from b to c ends bit for bit where training from a to c ends; in the compiled form
    neither `threads` nor the other runs of a call change a run's numbers. A run that diverges has losses that are
    not finite from that step on; nothing is raised.

    Args:
        call: the checked arguments.
        weights: (R, heads, 3 n^2 + n), n = d + 1: per head W_Q, W_K, W_V row by row, then W_O. Changed in place.
        first_moment, second_moment: Adam's moments, like `weights` (zeros at the start; SGD leaves them alone).
        threads: runs are shared out among this many threads on the CPU; None: as many as torch uses.
        implementation: "auto", or one of `dispatch.IMPLEMENTATIONS`. The compiled and the GPU form compute in float32.

    Returns the losses (mean of (yhat - target)^2 over each batch) and the recorded circuits.

    Raises ValueError on a wrong argument before any work.
    """
    state = (weights, first_moment, second_moment)
    call.check_state(*state)
    threads = torch.get_num_threads() if threads is None else checks.whole_number("threads", threads, at_least=1)
    chosen = implementation_for(call.d, call.heads, weights.device, weights.dtype, implementation=implementation)
    if chosen == "compiled":
        from attnlib.kernels.in_context import compiled

        return compiled.advance(call, *state, threads)
    if chosen == "triton":
        from attnlib.kernels.in_context import gpu

        return gpu.advance(call, *state)
    from attnlib.kernels.in_context import reference

    return reference.advance(call, *state)


def implementation_for(
    d: int, heads: int, device: torch.device, dtype: torch.dtype, *, implementation: str = "auto"
) -> str:
    """The implementation that `advance` takes for such a training. Raises ValueError if the one asked for cannot do it."""
    cannot = {}
    if heads > _MOST_HEADS or d > _LARGEST_D:
        cannot["triton"] = f"it holds up to {_MOST_HEADS} heads and d = {_LARGEST_D}, not {heads} and {d}"
    return choose(LOOP, device, dtype, implementation=implementation, cannot=cannot)


def warm_up(d: int) -> None:
    """Compile for this d, or load what an earlier process compiled, before anything is timed or shown."""
    n = d + 1
    state = [torch.zeros(1, 1, 3 * n * n + n, dtype=torch.float32) for _ in range(3)]
    call = Call(
        d=d, heads=1, length=1, batch=1, seed=0, streams=np.zeros(1, np.uint32), first_step=0, steps=1, beta_std=1.0, noise_std=0.0,
        target_noise_std=0.0, optimiser="Adam", learning_rate=np.array([1e-3]),
    )  # fmt: skip
    advance(call, *state)
