r"""Reduced linear attention $\hat y=x^\top\Gamma h$: fitted exactly, and its exact errors (derived in the theory chapter)."""

from __future__ import annotations

import torch

from attnbook.finite_data.law import PretrainingSet, TaskLaw, summary_of
from attnlib import checks


@checks.checked
def fit_attention(data: PretrainingSet, *, penalty: float = 0.0) -> torch.Tensor:
    r"""Linear attention fitted to pretraining sets: ridge regression, or at penalty 0 least squares of minimum norm, exactly.

    $$ \Gamma=\arg\min_\Gamma\sum_a(x_a^\top\Gamma h_a-y_a)^2+\frac{n\lambda}d|\Gamma|^2 $$

    The smaller of two linear systems is solved. With fewer prompts than entries of $\Gamma$ it is that of the prompts, whose Gram matrix is
    $(x_a\cdot x_b)(h_a\cdot h_b)$ and never forms a feature; otherwise that of the $d(d+1)$ entries.

    Args:
        data: R pretraining sets.
        penalty: $\lambda$ >= 0.

    Returns:
        $\Gamma$, (R, d, d+1).

    Raises:
        ValueError: a penalty below 0; without a penalty, features that are linearly dependent to rounding, as those of one task without
            label noise are.

    Source:
        the model and the penalty are the authors' code for arXiv 2405.11751.

    Example:
        >>> data = TaskLaw(d=4, length=8, tasks=3, noise=0.1).draw(40, seed=0, runs=2)
        >>> fit_attention(data).shape
        torch.Size([2, 4, 5])
    """
    if checks.finite_number("penalty", penalty) < 0:
        raise ValueError(f"penalty must be >= 0; got {penalty!r}: it multiplies a squared norm")
    n, d = data.query.shape[1:]
    return torch.stack([
        (_by_prompts if n <= d * (d + 1) else _by_entries)(query, summary, target, n * penalty / d)
        for query, summary, target in zip(data.query, data.summary, data.target, strict=True)
    ])  # fmt: skip


def _by_prompts(query: torch.Tensor, summary: torch.Tensor, target: torch.Tensor, shift: float) -> torch.Tensor:
    gram = (query @ query.T) * (summary @ summary.T)
    gram.diagonal().add_(shift)
    weights = _solve(gram, target)
    return (weights * query).T @ summary


def _by_entries(query: torch.Tensor, summary: torch.Tensor, target: torch.Tensor, shift: float) -> torch.Tensor:
    features = (query[:, :, None] * summary[:, None, :]).flatten(1)
    normal = features.T @ features
    normal.diagonal().add_(shift)
    return _solve(normal, features.T @ target).reshape(query.shape[1], summary.shape[1])


def _solve(square: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The solution of a positive definite system, (size, 1)."""
    factor, fault = torch.linalg.cholesky_ex(square)
    pivots = factor.diagonal()
    if fault or pivots.min() < 1e-7 * pivots.max():  # squares of pivots at the level of rounding
        raise ValueError(
            "data must have features that are linearly independent beyond rounding; those of one task without label noise are not: "
            "give a penalty > 0, or noise"
        )
    return torch.cholesky_solve(right[:, None], factor)


def fit_step(data: PretrainingSet) -> torch.Tensor:
    r"""The one number $\eta$, (R,), of the pattern $\Gamma=(\eta I,0)$ of Part III, one step of gradient descent, by least squares.

    $$ \eta=\frac{\sum_ay_a\,x_a^\top h_a}{\sum_a(x_a^\top h_a)^2}\qquad\text{(the last entry of }h_a\text{ left out)} $$
    """
    feature = (data.query * data.summary[..., :-1]).sum(-1)
    return (feature * data.target).sum(-1) / feature.square().sum(-1)


def _moments(law: TaskLaw, task_vectors: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """A^T (..., d, d+1) and B (..., d+1, d+1) for these tasks, or for fresh ones."""
    d, length, s = law.d, law.length, law.label_variance
    if task_vectors is None:
        second, mean = torch.eye(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    else:
        checks.tensor("task_vectors", task_vectors[None], (1, *("R" for _ in task_vectors.shape[:-1]), d))
        second, mean = task_vectors.mT @ task_vectors / task_vectors.shape[-2], task_vectors.mean(-2)
    cross = torch.cat([second, s * mean.unsqueeze(-1)], dim=-1)
    border = (1 + 2 / length) * s * mean.unsqueeze(-1)
    square = d * s / length * torch.eye(d, dtype=torch.float64) + (1 + 1 / length) * second
    corner = torch.full_like(border[..., :1, :], (1 + 2 / length) * s**2)
    below = torch.cat([border.mT, corner], dim=-1)
    return cross, torch.cat([torch.cat([square, border], dim=-1), below], dim=-2)


@checks.checked
def exact_error(gamma: torch.Tensor, law: TaskLaw, task_vectors: torch.Tensor | None = None) -> torch.Tensor:
    r"""The error $E(\hat y-y)^2$ of any linear attention on new prompts, by formula.

    $$ 1+\rho+\frac1d\mathrm{tr}(\Gamma B\Gamma^\top)-\frac2d\mathrm{tr}(\Gamma A) $$

    with the moments A and B of fresh tasks, or of the tasks given (each with the same probability).

    Args:
        gamma: $\Gamma$, (..., d, d+1).
        law: with d, length and noise.
        task_vectors: (..., k, d), each of norm $\sqrt d$; None: fresh tasks.

    Returns:
        the errors, (...).

    Raises:
        ValueError: a gamma or tasks of another shape.

    Source:
        derived in `book/finite_data_theory`; the authors' second repository (mletey/incontext-cleanup) has the same moments, their first
        one has $1+\rho^2$ in place of $(1+\frac2l)(1+\rho)^2$.

    Example:
        >>> law = TaskLaw(d=4, length=8, tasks=3, noise=0.1)
        >>> exact_error(torch.zeros(2, 4, 5, dtype=torch.float64), law)
        tensor([1.1000, 1.1000], dtype=torch.float64)
    """
    checks.tensor("gamma", gamma[None], (1, *("R" for _ in gamma.shape[:-2]), law.d, law.d + 1))
    cross, square = _moments(law, task_vectors)
    return law.label_variance + ((gamma @ square * gamma).sum((-1, -2)) - 2 * (gamma * cross).sum((-1, -2))) / law.d


@checks.checked
def best_attention(law: TaskLaw, task_vectors: torch.Tensor | None = None) -> torch.Tensor:
    r"""The linear attention of least error on prompts of these tasks: what least squares tends to with ever more prompts.

    $$ \Gamma=A^\top B^{-1} $$

    Without label noise and with one task, the last feature is a combination of the others, and $B$ has the eigenvalue 0. Many $\Gamma$
    then have the least error on this task. The one of least norm is returned, $A^\top B^+$ with the pseudo-inverse; it is not the limit
    of small noise.

    Args:
        law: with d, length and noise.
        task_vectors: (..., k, d); None: fresh tasks.

    Returns:
        $\Gamma$, (..., d, d+1).

    Raises:
        ValueError: tasks of another shape.

    Source:
        derived in `book/finite_data_theory`.

    Example:
        >>> law = TaskLaw(d=2, length=8, tasks=None, noise=0.1)
        >>> print(best_attention(law).numpy().round(3))
        [[0.714 0.    0.   ]
         [0.    0.714 0.   ]]
    """
    cross, square = _moments(law, task_vectors)
    if not law.noise:  # the square may be singular
        inverse: torch.Tensor = torch.linalg.pinv(square, rtol=1e-12, hermitian=True)
        return cross @ inverse
    solution: torch.Tensor = torch.linalg.solve(square, cross.mT)
    return solution.mT


def sampled_error(
    gamma: torch.Tensor, law: TaskLaw, prompts: int, seed: int, *, task_vectors: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The error of linear attention (R, d, d+1) counted on whole prompts, which the head reads: means and standard errors, (R,) each.

    Tasks are fresh, or those given, (R, k, d); prompts, two or more, are those of the streams (seed, "test", run).
    It has no line in common with `exact_error`.
    """
    drawn = law.draw_prompts(prompts, seed, runs=gamma.shape[0], task_vectors=task_vectors)
    predicted = torch.einsum("rnd,rde,rne->rn", drawn.query, gamma, summary_of(drawn.x, drawn.y))
    squares = (predicted - drawn.target).square()
    return squares.mean(-1), squares.std(-1) / prompts**0.5
