"""Training of in-context regression with one layer of softmax attention: many steps, many replicas, data made on the way.

`reference` says what is computed, `prompt_stream` from which random numbers, `compiled` and `gpu` are the fast forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from attnlib import checks
from attnlib.kernels.dispatch import Loop, choose
from attnlib.kernels.in_context.arguments import Recorded, check

__all__ = ["LOOP", "advance", "implementation_for", "warm_up"]

LOOP = Loop("in-context training", compiled=(torch.float32,), triton=(torch.float32,))
_MOST_HEADS, _LARGEST_D = 8, 7  # what the registers of a GPU program hold


def advance(
    weights: torch.Tensor,
    first_moment: torch.Tensor,
    second_moment: torch.Tensor,
    *,
    d: int,
    heads: int,
    length: int,
    batch: int,
    seed: int,
    streams: Sequence[int],
    first_step: int,
    steps: int,
    beta_std: float,
    noise_std: float,
    target_noise_std: float,
    optimiser: str,
    learning_rate: float | Sequence[float],
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    record: Iterable[int] = (),
    threads: int | None = None,
    implementation: str = "auto",
) -> Recorded:
    """Train R replicas for `steps` steps, in place.

    Training from step a to b and then from b to c ends bit for bit where training from a to c ends; in the compiled form
    neither `threads` nor the other replicas of a call change a replica's numbers. A replica that diverges has losses that are
    not finite from that step on; nothing is raised.

    Args:
        weights: (R, heads, 3 n^2 + n), n = d + 1: per head W_Q, W_K, W_V row by row, then W_O. Changed in place.
        first_moment, second_moment: Adam's moments, like `weights` (zeros at the start; SGD leaves them alone).
        d: dimension of x.
        heads: number of heads H, each of the full width n.
        length: context tokens L of a prompt.
        batch: prompts of a step.
        seed: key of the random numbers, in [0, 2^64).
        streams: (R,) whole numbers in [0, 2^32); replicas with equal numbers see the same prompts.
        first_step: updates already made; the data of a step depend on its absolute number.
        steps: updates to make.
        beta_std: standard deviation of the entries of beta.
        noise_std: that of the label noise as used, y_i = <x_i, beta> + noise_std e_i.
        target_noise_std: that of the target's noise.
        optimiser: "SGD", "Adam" (decay added to the gradient) or "AdamW" (decay apart), as in torch.optim.
        learning_rate: one number, or one per replica.
        betas, eps, weight_decay: as in torch.optim.
        record: absolute steps before whose update the circuits are kept; first_step + steps means after the last one.
        threads: replicas are shared out among this many threads on the CPU; None: as many as torch uses.
        implementation: "auto", or one of `dispatch.IMPLEMENTATIONS`. The compiled and the GPU form compute in float32.

    Returns the losses (mean of (yhat - target)^2 over each batch) and the recorded circuits.

    Raises ValueError on a wrong argument before any work.
    """
    call = check(
        weights, first_moment, second_moment, d=d, heads=heads, length=length, batch=batch, seed=seed, streams=streams,
        first_step=first_step, steps=steps, beta_std=beta_std, noise_std=noise_std, target_noise_std=target_noise_std,
        optimiser=optimiser, learning_rate=learning_rate, betas=betas, eps=eps, weight_decay=weight_decay, record=record,
    )  # fmt: skip
    threads = torch.get_num_threads() if threads is None else checks.whole_number("threads", threads, at_least=1)
    state = (weights, first_moment, second_moment)
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
    advance(
        *state, d=d, heads=1, length=1, batch=1, seed=0, streams=[0], first_step=0, steps=1, beta_std=1.0,
        noise_std=0.0, target_noise_std=0.0, optimiser="Adam", learning_rate=1e-3,
    )  # fmt: skip
