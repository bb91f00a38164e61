"""Training of in-context regression with one layer of softmax attention: many steps and runs, data drawn as needed.

`reference` says what is computed, `prompt_stream` from which random numbers, `compiled` and `gpu` are the fast forms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from attnlib.arrays import Floats
from attnlib.kernels.dispatch import Loop, choose, run

_LOOP = Loop("in-context training", compiled=(torch.float32,), triton=(torch.float32,), package=__name__)
_MOST_HEADS, _LARGEST_D = 8, 7  # what the registers of a GPU program hold

OPTIMISERS = ("SGD", "Adam", "AdamW")


@dataclass(frozen=True)
class Call:
    """Arguments of `attnlib.kernels.in_context.advance` beside the state that it changes.

    Args:
        d: dimension of x.
        heads: number of heads H, each of the full width n.
        length: context tokens L of a prompt.
        batch: prompts of a step.
        seed: key of the random numbers, in [0, 2^64).
        streams: (R,) whole numbers in [0, 2^32); runs with equal numbers see the same prompts.
        first_step: updates already made; the data of a step depend on its absolute number.
        steps: updates to make.
        beta_std: standard deviation of the entries of beta.
        noise_std: that of the label noise as used, y_i = <x_i, beta> + noise_std e_i.
        target_noise_std: that of the target's noise.
        optimiser: "SGD", "Adam" (decay added to the gradient) or "AdamW" (decay apart), as in torch.optim.
        learning_rate: (R,), > 0.
        betas, eps, weight_decay: as in torch.optim.

    `streams` is uint32 (R,), `learning_rate` float64 (R,). All have been checked by who makes the call.
    """

    d: int
    heads: int
    length: int
    batch: int
    seed: int
    streams: NDArray[np.uint32]
    first_step: int
    steps: int
    beta_std: float
    noise_std: float
    target_noise_std: float
    optimiser: str
    learning_rate: Floats
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def piece(self, first_step: int, steps: int) -> Call:
        """Some of the call's steps."""
        return replace(self, first_step=first_step, steps=steps)

    @property
    def width(self) -> int:
        """n = d + 1, width of a token and of every head."""
        return self.d + 1

    @property
    def shared(self) -> bool:
        """Whether all runs take their prompts from one stream."""
        return bool((self.streams == self.streams[0]).all())


def factors(weights: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
    """Views (W_Q, W_K, W_V, W_O) of shapes (..., n, n) three times and (..., n) into weights (..., 3 n^2 + n)."""
    square = n * n
    parts = (weights[..., i * square : (i + 1) * square].unflatten(-1, (n, n)) for i in range(3))
    return (*parts, weights[..., 3 * square :])


def merge(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, output: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """M = W_K^T W_Q / sqrt(n) (..., n, n), key index first, and V = W_O W_V (..., n) of factors (..., n, n) and (..., n)."""
    return key.mT @ query / math.sqrt(output.shape[-1]), (output.unsqueeze(-2) @ value).squeeze(-2)


def advance(
    call: Call,
    weights: torch.Tensor,
    first_moment: torch.Tensor,
    second_moment: torch.Tensor,
    *,
    threads: int | None = None,
    implementation: str = "auto",
) -> torch.Tensor:
    """Train R runs for the steps of a call, in place.

    Training from step a to b and then from b to c ends bit for bit where training from a to c ends; in the compiled form
    neither `threads` nor the other runs of a call change a run's numbers. A run that diverges has losses that are
    not finite from that step on; nothing is raised.

    Args:
        call: the arguments.
        weights: (R, heads, 3 n^2 + n), n = d + 1: per head W_Q, W_K, W_V row by row, then W_O. Changed in place.
        first_moment, second_moment: Adam's moments, like `weights` (zeros at the start; SGD leaves them alone).
        threads: runs are shared out among this many threads on the CPU; None: as many as torch uses.
        implementation: "auto", or one of `dispatch.IMPLEMENTATIONS`. The compiled and the GPU form compute in float32.

    Returns the losses (R, steps): the mean of (yhat - target)^2 over the batch of each step, before that step's update.
    """
    state = (weights, first_moment, second_moment)
    losses: torch.Tensor = run(
        _LOOP, (call, *state), weights.device, weights.dtype, implementation=implementation, threads=threads,
        cannot=_obstacles(call.d, call.heads),
    )  # fmt: skip
    return losses


def implementation_for(
    d: int, heads: int, device: torch.device, dtype: torch.dtype, *, implementation: str = "auto"
) -> str:
    """The implementation that `advance` takes for such a training. Raises ValueError if the one asked for cannot do it."""
    return choose(_LOOP, device, dtype, implementation=implementation, cannot=_obstacles(d, heads))


def _obstacles(d: int, heads: int) -> dict[str, str]:
    if heads <= _MOST_HEADS and d <= _LARGEST_D:
        return {}
    return {"triton": f"it holds up to {_MOST_HEADS} heads and d = {_LARGEST_D}, not {heads} and {d}"}
