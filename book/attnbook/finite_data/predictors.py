r"""Two predictors that linear attention is compared with, both by their estimate $\hat w$ of a prompt's task.

Both are posterior means: under k known tasks the memorising one, under Gaussian tasks the one that regresses.
"""

import torch

from attnbook.finite_data.law import TaskPrompts


def task_estimate(prompts: TaskPrompts, task_vectors: torch.Tensor, noise: float) -> torch.Tensor:
    r"""The memorising predictor: the posterior mean of the task (R, n, d) if it is one of k known ones (R, k, d), equally probable.

    $$ \hat w=\frac{\sum_jw_j\,e^{-|y-Xw_j|^2/2\rho}}{\sum_je^{-|y-Xw_j|^2/2\rho}} $$

    Noise rho > 0. Source: authors' code for arXiv 2405.11751, which calls it dMMSE (`bayes_estimator.py`).
    """
    predicted = torch.einsum("rnld,rkd->rnlk", prompts.x, task_vectors)
    energy = (prompts.y.unsqueeze(-1) - predicted).square().sum(-2) / (2 * noise)
    return torch.softmax(-energy, dim=-1) @ task_vectors


def ridge_estimate(prompts: TaskPrompts, noise: float) -> torch.Tensor:
    r"""The predictor that regresses, ridge regression on the examples: the posterior mean (R, n, d) for Gaussian tasks.

    $\hat w=(X^\top X+\rho I)^{-1}X^\top y$. Noise rho > 0. Source: authors' code (`bayes_estimator.py`).
    """
    x = prompts.x
    gram = x.mT @ x + noise * torch.eye(x.shape[-1], dtype=x.dtype)
    return torch.cholesky_solve(x.mT @ prompts.y.unsqueeze(-1), torch.linalg.cholesky(gram)).squeeze(-1)


def estimate_error(estimate: torch.Tensor, prompts: TaskPrompts, noise: float) -> torch.Tensor:
    r"""The error of estimates (R, n, d), means (R,) over the prompts, $\rho+\frac1d|\hat w-w|^2$: query and noise are averaged exactly."""
    return noise + (estimate - prompts.task).square().mean(-1).mean(-1)
