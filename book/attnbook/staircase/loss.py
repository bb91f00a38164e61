"""The loss of linear attention over all prompts: by Gaussian moments, and by running the model on prompts."""

from __future__ import annotations

import math

import numpy as np
import torch

from attnbook.staircase.law import SpectrumLaw
from attnlib import checks
from attnlib.randomness import stream


@checks.checked
def population_loss(law: SpectrumLaw, matrix: torch.Tensor) -> torch.Tensor:
    r"""Expected squared error of $\hat y=b^\top Ax_q$, $b=\frac1N\sum_iy_ix_i$, over prompts.

    $$ L(A)=\mathrm{tr}\,\Lambda-2\sum_i\lambda_i^2A_{ii}+\sum_{ij}c_i\lambda_jA_{ij}^2,\qquad
       c_i=\bigl(1+\tfrac1N\bigr)\lambda_i^2+\tfrac{\mathrm{tr}\,\Lambda+\sigma^2}N\lambda_i . $$

    Args:
        law: of the prompts, in D dimensions.
        matrix: A, shape (..., D, D), key index first.

    Returns:
        the loss, shape (...).

    Raises:
        ValueError: a matrix of another size.

    Source:
        derived in the chapter "Proofs for Part VI".

    Example:
        >>> law = SpectrumLaw((0.5, 0.3, 0.2), length=20)
        >>> population_loss(law, torch.zeros(3, 3, dtype=torch.float64)).item()
        1.0
    """
    D = law.dimension
    if not isinstance(matrix, torch.Tensor) or matrix.ndim < 2 or matrix.shape[-2:] != (D, D):
        got = tuple(matrix.shape) if isinstance(matrix, torch.Tensor) else type(matrix).__name__
        raise ValueError(f"matrix must be a torch tensor of shape (..., {D}, {D}); got {got}")
    values, moment = torch.as_tensor(law.eigenvalues()), torch.as_tensor(law.second_moment())
    linear = (torch.diagonal(matrix, dim1=-2, dim2=-1) * values**2).sum(-1)
    return law.trace - 2 * linear + (moment[:, None] * values * matrix**2).sum((-2, -1))


@checks.checked
def loss_sampled(law: SpectrumLaw, matrix: torch.Tensor, seed: int, *, runs: int, prompts: int) -> torch.Tensor:
    """The same loss as a mean over P prompts, for R independent sets of them: unnormalised attention over the examples.

    Args:
        law: to draw from, in D dimensions.
        matrix: A, shape (D, D).
        seed: of the random streams.
        runs: R >= 1.
        prompts: P >= 1.

    Returns:
        one mean for each set, shape (R,).

    Raises:
        ValueError: an argument out of its range.

    Source:
        the model itself; it has no line in common with `population_loss`.

    Example:
        >>> law = SpectrumLaw((0.5, 0.3), length=6)
        >>> loss_sampled(law, torch.eye(2, dtype=torch.float64), 0, runs=3, prompts=10).shape
        torch.Size([3])
    """
    checks.tensor("matrix", matrix, (law.dimension, law.dimension))
    checks.origin(seed, runs)
    checks.whole_number("prompts", prompts, at_least=1)
    A, spread, size, found = matrix.numpy(), np.sqrt(law.eigenvalues()), (prompts, law.length, law.dimension), []
    for run in range(runs):
        tokens, labels = stream(seed, "test", run), stream(seed, "labels", run)
        x, x_q = tokens.standard_normal(size) * spread, tokens.standard_normal(size[::2]) * spread
        w = labels.standard_normal(size[::2])
        y = np.einsum("pnd,pd->pn", x, w) + math.sqrt(law.noise) * labels.standard_normal(size[:2])
        scores = np.einsum("pnd,pd->pn", x, x_q @ A.T)
        found.append((((scores * y).mean(-1) - (w * x_q).sum(-1)) ** 2).mean())
    return torch.tensor(found, dtype=torch.float64)


@checks.checked
def plateau_levels(law: SpectrumLaw) -> torch.Tensor:
    r"""Losses of the plateaus, from that of a model which predicts 0 down to the best loss of linear attention.

    $$ L_m=\mathrm{tr}\,\Lambda-\sum_{i\le m}\frac{\lambda_i}{1+\frac1N\bigl(1+\frac{\mathrm{tr}\,\Lambda+\sigma^2}{\lambda_i}\bigr)},
       \qquad m=0,\dots,D. $$

    $L_m$ is also the least loss of a matrix of rank $m$ or less. Equal eigenvalues have steps of equal height.

    Args:
        law: of the prompts, in D dimensions.

    Returns:
        a vector (D + 1,), decreasing.

    Raises:
        nothing: a law with a spectrum out of range cannot be made.

    Source:
        authors' code (`plot_loss.ipynb`, without label noise); derived, with noise, in the chapter "Proofs for Part VI".

    Example:
        >>> [round(level, 4) for level in plateau_levels(SpectrumLaw((0.4, 0.3, 0.2, 0.1), length=31)).tolist()]
        [1.0, 0.6406, 0.3774, 0.2098, 0.136]
    """
    values = torch.as_tensor(law.eigenvalues())
    steps = values / (1 + (1 + (law.trace + law.noise) / values) / law.length)
    return law.trace - torch.cat([steps.new_zeros(1), steps.cumsum(0)])


def best_losses(law: SpectrumLaw, seed: int, *, starts: int) -> torch.Tensor:
    r"""Least losses of $A=UW^\top$ with m columns, (starts, D - 1) for m = 1 ... D - 1, each from a random U.

    By alternating least squares, which knows nothing of eigenvectors: for a given U the loss is a quadratic function of W, minimised by
    $W=\\Lambda\\,U(U^\top CU)^{-1}$-like normal equations in coordinates, and the same holds for U.
    """
    values, moment = law.eigenvalues(), law.second_moment()
    target, found = np.diag(values**2), []
    for run in range(starts):
        rng, row = stream(seed, "search", run), []
        for rank in range(1, law.dimension):
            left = rng.standard_normal((law.dimension, rank))
            for _ in range(300):
                # Stationary in W: lambda_j (U' C U) w_j = U' target_j; in U: c_i (W' Lambda W) u_i = W' target_i.
                right = np.linalg.solve(left.T @ (moment[:, None] * left), left.T @ target).T / values[:, None]
                left = np.linalg.solve(right.T @ (values[:, None] * right), right.T @ target.T).T / moment[:, None]
                left = np.linalg.qr(left)[0]
            right = np.linalg.solve(left.T @ (moment[:, None] * left), left.T @ target).T / values[:, None]
            row.append(population_loss(law, torch.as_tensor(left @ right.T)).item())
        found.append(row)
    return torch.tensor(found, dtype=torch.float64)
