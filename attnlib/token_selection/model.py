r"""The model $f(X) = \nu^\top X^\top S(X W^\top p)$ computed from its scores, and the force of gradient descent on each score.

$$ z_t = x_t^\top W^\top p, \quad s = S(z), \quad \gamma_t = \nu^\top x_t, \quad f = \sum_t s_t\gamma_t, \quad
   \ell = \log(1+e^{-Yf}), \quad c_t = -\frac{\partial L}{\partial z_t} = \frac1n\,\sigma(-Yf)\,Y\,s_t(\gamma_t - f). $$

The forces $c_t$ are those of the fast loops' definition. Source: arXiv 2409.17625 (poster) for the model, derived in the theory
chapter of Part II for the rest.
"""

from __future__ import annotations

import torch

from attnlib import checks
from attnlib.kernels.token_selection.reference import forces


def outputs(scores: torch.Tensor, head_scores: torch.Tensor) -> torch.Tensor:
    r"""The model's output, computed from its scores.

    $$ f = \sum_t s_t\gamma_t, \qquad s = \mathrm{softmax}(z) $$

    Args:
        scores: z, (..., n, T).
        head_scores: $\gamma_t = \nu^\top x_t$, (..., n, T).

    Returns:
        f, (..., n).

    Raises:
        RuntimeError: shapes that do not fit (from torch: this function runs inside a loop and checks nothing).

    Source:
        arXiv 2409.17625 (poster).

    Example:
        >>> outputs(torch.zeros(3, 2), torch.tensor([[1.0, 3.0]] * 3)).tolist()
        [2.0, 2.0, 2.0]
    """
    return (torch.softmax(scores, -1) * head_scores).sum(-1)


def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean of log(1 + exp(-Y f)) over the last axis. outputs: (..., n); labels broadcast against it."""
    return torch.nn.functional.softplus(-labels * outputs).mean(-1)


@checks.checked
def gradients(
    tokens: torch.Tensor, labels: torch.Tensor, head: torch.Tensor, weight: torch.Tensor, prompt: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    r"""Minus the gradients of the loss in $W$ and $p$, and the scores, of one training set.

    $-\nabla_W L = p\,G^\top$ and $-\nabla_p L = W G$ with $G = \sum_{it} c_{it}x_{it}$. Products are ordered so that nothing costs
    more than $d^2 + nTd$: $X(W^\top p)$, never $(XW^\top)p$.

    Args:
        tokens: (n, T, d); labels: (n,); head: (d,); weight: W, (d, d); prompt: p, (d,).

    Returns ascent directions of W (d, d) and p (d,), and scores (n, T). Raises ValueError for shapes that do not fit.
    """
    n, _, d = checks.tensor("tokens", tokens, ("n", "T", "d")).shape
    checks.signs("labels", labels, (n,), like=tokens)
    checks.tensor("head", head, (d,), like=tokens)
    checks.tensor("weight", weight, (d, d), like=tokens)
    checks.tensor("prompt", prompt, (d,), like=tokens)
    # z = X W^T p. Then G = sum c x, the force on each score times its token.
    scores = tokens @ (weight.mT @ prompt)
    pull = torch.einsum("nt,ntd->d", forces(scores, tokens @ head, labels), tokens)
    # Ascent directions: p G^T for W, W G for p.
    return torch.outer(prompt, pull), weight @ pull, scores
