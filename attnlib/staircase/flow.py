"""Training by gradient flow on the exact loss, for linear attention with separate and with merged key and query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from attnlib import checks
from attnlib.arrays import Floats
from attnlib.randomness import stream
from attnlib.staircase.law import Heads, SpectrumLaw
from attnlib.staircase.loss import population_loss

__all__ = ["Path", "train_merged", "train_separate"]

_State = tuple[Floats, ...]


@dataclass(frozen=True)
class Path:
    """A training, of R runs together. Fields that a trainer does not fill have no entries.

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
    heads: Heads | None = None  # at the end


def _force(law: SpectrumLaw) -> Callable[[Floats], Floats]:
    """A -> -1/2 of the gradient of the loss with respect to A."""
    values, moment = law.eigenvalues(), law.second_moment()
    drive, stiffness = np.diag(values**2), moment[:, None] * values

    def force(matrix: Floats) -> Floats:
        return np.asarray(drive - stiffness * matrix)

    return force


def _product(v: Floats, k: Floats, q: Floats) -> Floats:
    return np.matmul((v[..., None] * k).swapaxes(1, 2), q)


def _runge_kutta(velocity: Callable[[_State], _State], state: _State, step: float) -> _State:
    def moved(by: float, slope: _State) -> _State:
        return tuple(x + by * s for x, s in zip(state, slope, strict=True))

    first = velocity(state)
    second = velocity(moved(step / 2, first))
    third = velocity(moved(step / 2, second))
    fourth = velocity(moved(step, third))
    return tuple(
        x + step / 6 * (a + 2 * b + 2 * c + d)
        for x, a, b, c, d in zip(state, first, second, third, fourth, strict=True)
    )


def _steps(time: float, every: float, step: float) -> tuple[int, int]:
    checks.positive_number("time", time)
    checks.positive_number("step", step)
    stride = round(checks.positive_number("every", every) / step)
    if stride < 1 or abs(stride * step - every) > 1e-9 * every:
        raise ValueError(f"every must be a multiple of step = {step!r}; got {every!r}")
    return max(1, round(time / every)), stride


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
    records, stride = _steps(time, every, step)
    checks.tensor("start.key", start.key, (start.key.shape[0], start.key.shape[1], law.dimension))
    force = _force(law)

    def velocity(state: _State) -> _State:
        v, k, q = state
        pull = force(_product(v, k, q))
        pulled = np.matmul(q, pull.swapaxes(1, 2))
        return (k * pulled).sum(-1), v[..., None] * pulled, v[..., None] * np.matmul(k, pull)

    state: _State = start.arrays()
    matrices = [_product(*state)]
    for _ in range(records):
        for _ in range(stride):
            state = _runge_kutta(velocity, state, step)
        matrices.append(_product(*state))
    return _path(law, matrices, every, Heads.of(*state))


def train_merged(law: SpectrumLaw, seed: int, time: float, *, heads: int, size: float, runs: int, every: float,
                 step: float = 0.1) -> Path:  # fmt: skip
    r"""Gradient flow of merged key and query: heads $v_hU_h$ with one full matrix each, so that $A=\sum_hv_hU_h$.

    $$ \dot v_h=\langle U_h,G\rangle,\qquad\dot U_h=v_hG,\qquad G=-\tfrac12\frac{\partial L}{\partial A}. $$

    Args:
        law: of the prompts.
        seed: of the start, in which each entry is $N(0,\epsilon^2)$.
        time: where to stop, > 0.
        heads: H >= 1.
        size: epsilon > 0.
        runs: R >= 1.
        every: time between two records, a multiple of `step`.
        step: of the Runge-Kutta method.

    Returns:
        a `Path` without heads.

    Raises:
        ValueError: an argument out of its range.

    Source:
        authors' code (`net.py`, merged key and query).

    Example:
        >>> law = SpectrumLaw((0.6, 0.4), length=10)
        >>> train_merged(law, 0, 20.0, heads=2, size=0.01, runs=3, every=2.0).loss.shape
        torch.Size([3, 11])
    """
    checks.whole_number("heads", heads, at_least=1)
    checks.positive_number("size", size)
    checks.whole_number("runs", runs, at_least=1)
    records, stride = _steps(time, every, step)
    D, force = law.dimension, _force(law)
    drawn = size * np.stack([stream(seed, "start", run).standard_normal((heads, 1 + D * D)) for run in range(runs)])

    def product(state: _State) -> Floats:
        return np.asarray(np.matmul(state[0][:, None], state[1])).reshape(-1, D, D)

    def velocity(state: _State) -> _State:
        pull = force(product(state)).reshape(-1, D * D, 1)
        return np.matmul(state[1], pull)[..., 0], state[0][..., None] * pull.swapaxes(1, 2)

    state: _State = (drawn[..., 0].copy(), drawn[..., 1:].copy())
    matrices = [product(state)]
    for _ in range(records):
        for _ in range(stride):
            state = _runge_kutta(velocity, state, step)
        matrices.append(product(state))
    return _path(law, matrices, every, None)


def _path(law: SpectrumLaw, matrices: list[Floats], every: float, heads: Heads | None) -> Path:
    matrix = torch.as_tensor(np.stack(matrices, axis=1))
    times = every * torch.arange(len(matrices), dtype=torch.float64)
    return Path(times, population_loss(law, matrix), matrix, heads)
