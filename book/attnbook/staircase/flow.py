"""Training of linear heads by gradient flow on the exact loss: separate keys and queries, or one full matrix a head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.staircase.law import Heads, SpectrumLaw
from attnbook.staircase.loss import population_loss
from attnlib import checks
from attnlib.arrays import Floats
from attnlib.kernels import _build
from attnlib.kernels.dispatch import has_numba
from attnlib.randomness import stream

State = tuple[Floats, ...]


@dataclass(frozen=True)
class Path:
    """A training, of R runs together.

    Source:
        this book.

    Example:
        >>> law = SpectrumLaw((0.6, 0.4), length=10)
        >>> path = train_separate(law, small_heads(0, heads=3, dimension=2, size=0.1, runs=4), 50.0, every=5.0)
        >>> path.times.shape, path.loss.shape, path.matrix.shape
        (torch.Size([11]), torch.Size([4, 11]), torch.Size([4, 11, 2, 2]))
    """

    times: torch.Tensor  # (S,), of the records, in units of the flow
    loss: torch.Tensor  # (R, S)
    matrix: torch.Tensor  # (R, S, D, D), A of linear heads
    heads: Heads | None = None  # at the end, where there are rank-one heads


def pull_of(law: SpectrumLaw) -> Callable[[Floats], Floats]:
    """The function G of the matrix A: -1/2 of the gradient of the loss."""
    values, moment = law.eigenvalues(), law.second_moment()
    drive, stiffness = np.diag(values**2), moment[:, None] * values

    def pull(matrix: Floats) -> Floats:
        return np.asarray(drive - stiffness * matrix, dtype=np.float64)

    return pull


def _runge_kutta(velocity: Callable[[State], State], state: State, step: float) -> State:
    def moved(by: float, slope: State) -> State:
        return tuple(x + by * s for x, s in zip(state, slope, strict=True))

    first = velocity(state)
    second = velocity(moved(step / 2, first))
    third = velocity(moved(step / 2, second))
    fourth = velocity(moved(step, third))
    return tuple(
        x + step / 6 * (a + 2 * b + 2 * c + d)
        for x, a, b, c, d in zip(state, first, second, third, fourth, strict=True)
    )


def follow(law: SpectrumLaw, velocity: Callable[[State], State], product: Callable[[State], Floats], state: State,
           time: float, every: float, step: float, advance: Callable[[State, int], State] | None = None) -> tuple[Path, State]:  # fmt: skip
    """Runge-Kutta steps of a flow whose matrix A is `product` of its state, with a record now and then. `advance`: a faster way."""
    stride = round(every / step)

    def steps(state: State, count: int) -> State:
        for _ in range(count):
            state = _runge_kutta(velocity, state, step)
        return state

    matrices = [product(state)]
    for _ in range(max(1, round(time / every))):
        state = (advance or steps)(state, stride)
        matrices.append(product(state))
    matrix = torch.as_tensor(np.stack(matrices, axis=1))
    times = every * torch.arange(len(matrices), dtype=torch.float64)
    return Path(times, population_loss(law, matrix), matrix), state


@checks.checked
def train_separate(law: SpectrumLaw, start: Heads, time: float, *, every: float, step: float = 0.5) -> Path:
    r"""Gradient flow of separate keys and queries on the exact loss, $\dot\theta=-\tfrac12\partial L/\partial\theta$, by Runge-Kutta steps.

    $$ \dot v_h=k_h^\top Gq_h,\quad\dot k_h=v_hGq_h,\quad\dot q_h=v_hG^\top k_h,\qquad G=-\tfrac12\frac{\partial L}{\partial A}. $$

    Args:
        law: of the prompts, in D dimensions.
        start: R runs of H heads in D dimensions.
        time: where to stop, > 0; rounded to a multiple of `every`.
        every: time between two records, a multiple of `step`.
        step: of the Runge-Kutta method of order four. The fastest rate of a trained head is about $3\lambda_1^2(\lambda_1/c_1)^{1/3}$.

    Returns:
        a `Path` with the heads at its end.

    Raises:
        ValueError: sizes that do not fit, a time or step that is not above 0.

    Source:
        the model is the authors' code's, with the factor 1/N of its README; gradients are derived.

    Example:
        >>> law = SpectrumLaw((0.6, 0.4), length=10)
        >>> path = train_separate(law, small_heads(0, heads=3, dimension=2, size=0.1, runs=4), 500.0, every=50.0)
        >>> bool((path.loss[:, -1] < path.loss[:, 0]).all())
        True
    """
    checks.tensor("start.key", start.key, (start.key.shape[0], start.key.shape[1], law.dimension))
    checks.positive_number("time", time)
    stride = round(checks.positive_number("every", every) / checks.positive_number("step", step))
    if stride < 1 or abs(stride * step - every) > 1e-9 * every:
        raise ValueError(f"every must be a multiple of step = {step!r}; got {every!r}")
    D, pull = law.dimension, pull_of(law)

    def product(state: State) -> Floats:
        return np.asarray(np.matmul((state[0][..., None] * state[1]).swapaxes(1, 2), state[2]))

    def velocity(state: State) -> State:
        v, k, q = state
        G = pull(product(state))
        pulled = np.matmul(q, G.swapaxes(1, 2))
        return (k * pulled).sum(-1), v[..., None] * pulled, v[..., None] * np.matmul(k, G)

    def compiled(state: State, count: int) -> State:
        v, *others = state
        runs = np.concatenate([v[:, None], *(x.swapaxes(1, 2) for x in others)], 1)
        drive = pull(np.zeros((D, D)))
        _build.loops(__file__, "_loops.py").advance(runs, drive, drive - pull(np.ones_like(drive)), step, count)
        return runs[:, 0], runs[:, 1 : D + 1].swapaxes(1, 2), runs[:, D + 1 :].swapaxes(1, 2)

    path, end = follow(law, velocity, product, start.arrays(), time, every, step, compiled if has_numba() else None)
    return replace(path, heads=Heads.of(*end))


def train_merged(
    law: SpectrumLaw, seed: int, time: float, *, heads: int, size: float, runs: int, every: float, step: float = 0.1
) -> Path:
    r"""Heads $v_hU_h$ with $\dot v_h=\langle U_h,G\rangle$, $\dot U_h=v_hG$ and $A=\sum_hv_hU_h$, from entries $N(0,\epsilon^2)$."""
    D, pull = law.dimension, pull_of(law)
    drawn = size * np.stack([stream(seed, "start", run).standard_normal((heads, 1 + D * D)) for run in range(runs)])

    def product(state: State) -> Floats:
        return np.asarray(np.matmul(state[0][:, None], state[1])).reshape(-1, D, D)

    def velocity(state: State) -> State:
        G = pull(product(state)).reshape(-1, D * D, 1)
        return np.matmul(state[1], G)[..., 0], state[0][..., None] * G.swapaxes(1, 2)

    return follow(law, velocity, product, (drawn[..., 0].copy(), drawn[..., 1:].copy()), time, every, step)[0]
