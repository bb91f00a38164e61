r"""The model $f(X) = \nu^\top X^\top S(X W^\top p)$ computed from its scores, and the force of gradient descent on each score.

$$ z_t = x_t^\top W^\top p, \quad s = S(z), \quad \gamma_t = \nu^\top x_t, \quad f = \sum_t s_t\gamma_t, \quad
   \ell = \log(1+e^{-Yf}), \quad c_t = -\frac{\partial L}{\partial z_t} = \frac1n\,\sigma(-Yf)\,Y\,s_t(\gamma_t - f). $$

The forces $c_t$ are those of the fast loops' definition. Source: arXiv 2409.17625 (poster) for the model, derived in the theory
chapter of Part II for the rest.
"""

from __future__ import annotations

import torch

from attnlib import checks
from attnlib.kernels.token_selection import reference


@checks.checked
def outputs(scores: torch.Tensor, head_scores: torch.Tensor) -> torch.Tensor:
    r"""The model's output, computed from its scores.

    $$ f = \sum_t s_t\gamma_t, \qquad s = \mathrm{softmax}(z) $$

    Args:
        scores: z, (..., n, T); leading axes broadcast.
        head_scores: $\gamma_t = \nu^\top x_t$, (..., n, T).

    Returns:
        f, (..., n).

    Raises:
        ValueError: shapes that do not fit.

    Source:
        arXiv 2409.17625 (poster).

    Example:
        >>> outputs(torch.zeros(3, 2), torch.tensor([[1.0, 3.0]] * 3)).tolist()
        [2.0, 2.0, 2.0]
    """
    checks.fitting({"scores": scores, "head_scores": head_scores}, scores="* n T", head_scores="* n T")
    return (torch.softmax(scores, -1) * head_scores).sum(-1)


@checks.checked
def forces(scores: torch.Tensor, head_scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    r"""The force on each score: minus the derivative of the mean logistic loss with respect to it.

    $$ c_t = -\frac{\partial L}{\partial z_t} = \frac1n\,\sigma(-Yf)\,Y\,s_t(\gamma_t - f) $$

    The factor $s_t(\gamma_t-f)$ vanishes both when $s_t\to0$ and when $s_t\to1$: the *vanishing update*. It is computed relative to
    the token with the largest score,

    $$ \gamma_t-f = (\gamma_t-\gamma_*) - \sum_u s_u(\gamma_u-\gamma_*), $$

    which stays exact to relative rounding when $s_*$ is 1 to sixteen digits; otherwise long runs stall.

    Args:
        scores: z, (..., n, T), float; leading axes broadcast.
        head_scores: $\gamma$, (..., n, T).
        labels: Y, (..., n), +1 or -1.

    Returns:
        c, (..., n, T); every sample's forces sum to zero.

    Raises:
        ValueError: shapes that do not fit, or labels that are not +1 or -1.

    Source:
        derived in `book/token_selection_theory`.

    Example:
        >>> pushed = forces(torch.zeros(1, 2), torch.tensor([[1.0, -1.0]]), torch.ones(1))
        >>> pushed.tolist()  # f = 0, so sigma = s = 1/2
        [[0.25, -0.25]]
    """
    given = {"scores": scores, "head_scores": head_scores, "labels": labels}
    checks.fitting(given, scores="* n T", head_scores="* n T", labels="* n")
    checks.signs("labels", labels, tuple(labels.shape), like=scores)
    return reference.forces(scores, head_scores, labels)


def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean of log(1 + exp(-Y f)) over the last axis. outputs: (..., n); labels are broadcast to it."""
    return torch.nn.functional.softplus(-labels.expand_as(outputs) * outputs).mean(-1)


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
    given = {"tokens": tokens, "head": head, "weight": weight, "prompt": prompt}
    checks.fitting(given, tokens, tokens="n T d", head="d", weight="d d", prompt="d")
    checks.signs("labels", labels, tuple(tokens.shape[:1]), like=tokens)
    # z = X W^T p. Then G = sum c x, the force on each score times its token.
    scores = tokens @ (weight.mT @ prompt)
    pull = torch.einsum("nt,ntd->d", reference.forces(scores, tokens @ head, labels), tokens)
    # Ascent directions: p G^T for W, W G for p.
    return torch.outer(prompt, pull), weight @ pull, scores
