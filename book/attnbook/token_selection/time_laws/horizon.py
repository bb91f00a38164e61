r"""Training over tens of decades of time: steps as long as the scores allow.

The recursion is exact gradient descent for steps of any size, so a run whose steps grow is still an exact run; with every step
bounded by how far a score may move, it follows the gradient flow. Time is the sum of the step sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.token_selection.gram import Gram, check_gram
from attnlib.token_selection.training import Recursion, Trajectory

__all__ = ["FlowPath", "train_flow"]


@dataclass(frozen=True)
class FlowPath:
    """A long run: its recorded moments, and for every run the step at which it was done (-1: never)."""

    trajectory: Trajectory
    done: torch.Tensor  # (R,), long


def train_flow(
    gram: Gram,
    *,
    steps: int,
    largest_move: float = 0.05,
    record_every: int = 1,
    done: Callable[[Recursion], torch.Tensor] | None = None,
) -> FlowPath:
    r"""Gradient descent with the largest step that moves no score by more than `largest_move`.

    $\alpha = \min\big(\Delta/\max|Hc+\pi Kc|,\; \Delta(w+\pi)/2|\beta|,\; \sqrt{\Delta(w+\pi)/c^\top Hc}\big)$ with
    $\Delta$ = `largest_move` and $w$ the start's `weight_scale`: the second and third keep $\pi$ from jumping.

    Args:
        steps: at most so many, >= 1.
        record_every: keep every so-manieth step and the last.
        done: called before every step; returns (R,) bool. When every run has been done once, training stops.

    All runs take their own steps in lockstep. Returns a `FlowPath`. Raises ValueError for a bad argument before any work.
    """
    gram = check_gram(gram)
    checks.whole_number("steps", steps, at_least=1)
    checks.whole_number("record_every", record_every, at_least=1)
    delta = checks.positive_number("largest_move", largest_move)
    state = Recursion(gram)
    N, scale = gram.kernel.shape[2], gram.start.weight_scale
    first = torch.full((gram.runs,), -1, device=gram.kernel.device)
    rows, kept = [], []
    for step in range(steps + 1):
        if done is not None:
            first = torch.where((first < 0) & done(state), step, first)
        over = step == steps or (done is not None and bool((first >= 0).all()))
        if over or step % record_every == 0:
            rows.append(state.snapshot())
            kept.append(step)
        if over:
            break
        pull = state.pull()
        c, k, Sc = pull
        pi = state.prompt_norm_squared
        # Derivatives with respect to the step size at 0: of the scores (`speed`, the largest), and of pi = |p|^2: the first is 2 beta,
        # half of the second is c'Hc (`curvature`).
        speed = (Sc[:, :N] + pi.unsqueeze(1) * k[:, :N]).abs().amax(1)
        beta = (c * state.scores.flatten(1)).sum(1)
        curvature = (c * Sc[:, :N]).sum(1)
        room = delta * (scale + pi)
        state.advance(
            torch.minimum(torch.minimum(delta / speed, room / (2 * beta.abs())), (room / curvature).sqrt()), pull
        )
    return FlowPath(state.trajectory(kept, rows), first)
