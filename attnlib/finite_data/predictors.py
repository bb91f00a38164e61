r"""Two predictors that linear attention is compared with, both by their estimate $\hat w$ of a prompt's task.

Both are posterior means: under k known tasks the memorising one, under Gaussian tasks the one that regresses.
"""

from __future__ import annotations

import torch

from attnlib import checks
from attnlib.finite_data.law import TaskPrompts

__all__ = ["estimate_error", "ridge_estimate", "task_estimate"]


def task_estimate(prompts: TaskPrompts, task_vectors: torch.Tensor, noise: float) -> torch.Tensor:
    r"""The memorising predictor: the posterior mean of the task if it is one of k known ones with equal probability.

    $$ \hat w=\frac{\sum_jw_j\,e^{-|y-Xw_j|^2/2\rho}}{\sum_je^{-|y-Xw_j|^2/2\rho}} $$

    Args:
        prompts: of R runs.
        task_vectors: (R, k, d), the known tasks.
        noise: rho > 0.

    Returns:
        $\hat w$, (R, n, d).

    Raises:
        ValueError: a noise that is not positive.

    Source:
        the authors' code for arXiv 2405.11751, which calls it dMMSE (`bayes_estimator.py`).

    Example:
        >>> law = TaskLaw(d=4, length=30, tasks=3, noise=0.01)
        >>> known = law.draw_tasks(0, runs=2)
        >>> prompts = law.draw_prompts(5, 0, runs=2, task_vectors=known)
        >>> bool((task_estimate(prompts, known, 0.01) - prompts.task).abs().max() < 1e-6)
        True
    """
    checks.positive_number("noise", noise)
    predicted = torch.einsum("rnld,rkd->rnlk", prompts.x, task_vectors)
    energy = (prompts.y.unsqueeze(-1) - predicted).square().sum(-2) / (2 * noise)
    return torch.softmax(-energy, dim=-1) @ task_vectors


def ridge_estimate(prompts: TaskPrompts, noise: float) -> torch.Tensor:
    r"""The predictor that regresses: ridge regression on the examples of the prompt, the posterior mean for Gaussian tasks.

    $$ \hat w=(X^\top X+\rho I)^{-1}X^\top y $$

    Args:
        prompts: of R runs.
        noise: rho > 0.

    Returns:
        $\hat w$, (R, n, d).

    Raises:
        ValueError: a noise that is not positive.

    Source:
        the authors' code for arXiv 2405.11751 (`bayes_estimator.py`).

    Example:
        >>> prompts = TaskLaw(d=4, length=8, tasks=3, noise=0.1).draw_prompts(5, 0, runs=2)
        >>> ridge_estimate(prompts, 0.1).shape
        torch.Size([2, 5, 4])
    """
    checks.positive_number("noise", noise)
    x = prompts.x
    gram = x.mT @ x + noise * torch.eye(x.shape[-1], dtype=x.dtype)
    return torch.cholesky_solve(x.mT @ prompts.y.unsqueeze(-1), torch.linalg.cholesky(gram)).squeeze(-1)


def estimate_error(estimate: torch.Tensor, prompts: TaskPrompts, noise: float) -> torch.Tensor:
    r"""The mean error $E(\hat y-y)^2$ of an estimate of the task on the query of its prompt; query and its noise are averaged exactly.

    $$ \rho+\frac1d|\hat w-w|^2 $$

    Args:
        estimate: $\hat w$, (R, n, d).
        prompts: of R runs.
        noise: rho >= 0.

    Returns:
        means over the prompts, (R,).

    Raises:
        RuntimeError: an estimate of another shape (from torch).

    Source:
        this book; the mean of $\langle\hat w-w,x\rangle^2$ for $x\sim N(0,I/d)$.

    Example:
        >>> prompts = TaskLaw(d=4, length=8, tasks=3, noise=0.1).draw_prompts(5, 0, runs=2)
        >>> estimate_error(0 * prompts.task, prompts, 0.1)
        tensor([1.1000, 1.1000], dtype=torch.float64)
    """
    return noise + (estimate - prompts.task).square().mean(-1).mean(-1)
