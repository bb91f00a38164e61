r"""Training over tens of decades of time: steps as long as the scores allow.

The recursion is exact gradient descent for steps of any size, so a run whose steps grow is still an exact run; with every step
bounded by how far a score may move, it follows the gradient flow. Time is the sum of the step sizes.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from attnlib.kernels import _build
from attnlib.kernels.dispatch import has_numba
from attnlib.token_selection.gram import Gram
from attnlib.token_selection.training import Recursion, Trajectory


def _stepper(state: Recursion, move: float) -> Callable[[], None]:
    """A function that makes one step of every run, the largest that moves no score by more than `move`."""
    g, N, scale = state.gram, state.gram.kernel.shape[2], state.gram.start.weight_scale

    def step() -> None:
        pull = c, k, Sc = state.pull()
        pi = state.prompt_norm_squared
        # Derivatives with respect to the step size at 0: of the scores (`speed`, the largest), and of pi = |p|^2: the first is 2 beta,
        # half of the second is c'Hc (`curvature`).
        speed = (Sc[:, :N] + pi.unsqueeze(1) * k[:, :N]).abs().amax(1)
        beta = (c * state.scores.flatten(1)).sum(1)
        curvature = (c * Sc[:, :N]).sum(1)
        room = move * (scale + pi)
        state.advance(
            torch.minimum(torch.minimum(move / speed, room / (2 * beta.abs())), (room / curvature).sqrt()), pull
        )

    if not has_numba() or g.kernel.device.type != "cpu":
        return step
    loop = _build.loops(__file__, "_loops.py").step
    waiting = g.kernel.new_zeros(g.runs, 4, state.state[0].shape[1])
    own = *state.state, state.time, g.kernel, g.head_scores, g.labels.observed, waiting
    return functools.partial(loop, *(x.numpy() for x in own), move, scale)


@dataclass(frozen=True)
class FlowPath:
    """A long run: its recorded moments, and for every run the step at which it was done (-1: never)."""

    trajectory: Trajectory
    done: torch.Tensor  # (R,), long


@torch.inference_mode()  # no bookkeeping for autograd: a fifth of a small step's time
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

    All runs take their own steps in lockstep. Returns a `FlowPath`.
    """
    state = Recursion(gram)
    advance = _stepper(state, largest_move)
    first = torch.full((gram.runs,), -1, device=gram.kernel.device)
    moments, kept = [], []
    for step in range(steps + 1):
        if done is not None:
            first = torch.where((first < 0) & done(state), step, first)
        over = step == steps or (done is not None and bool((first >= 0).all()))
        if over or step % record_every == 0:
            moments.append([x.clone() for x in (state.time, state.state[0], state.prompt_norm_squared)])
            kept.append(step)
        if over:
            break
        advance()
    rows = state.rows(*map(torch.stack, zip(*moments, strict=True)))
    return FlowPath(state.trajectory(kept, rows), first)


def fittable(gram: Gram) -> torch.Tensor:
    """(R,) bool: every sample has a token whose value agrees with its observed label. Without one no attention fits it."""
    return ((gram.head_scores * gram.labels.observed[..., None]).amax(-1) > 0).all(-1)
