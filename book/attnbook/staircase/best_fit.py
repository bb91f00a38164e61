"""The least loss of a matrix of given rank, found by alternating least squares: it knows nothing of eigenvectors."""

import numpy as np
import torch

from attnbook.staircase import SpectrumLaw, population_loss
from attnlib.randomness import stream


def best_losses(law: SpectrumLaw, seed: int, *, starts: int) -> torch.Tensor:
    r"""Least losses of $A=UW^\top$ with m columns, (starts, D - 1) for m = 1 ... D - 1, each from a random U.

    For a given U the loss is a quadratic function of W, minimised by $W=\\Lambda\\,U(U^\top CU)^{-1}$-like normal equations in coordinates,
    and the same holds for U.
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
