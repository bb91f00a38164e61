"""The token-selection recursion (`attnlib.kernels.token_selection.advance`), one step at a time, in torch: the definition the
fast loop is tested against. `pull` and `step` also train p alone, for which S stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from attnlib.kernels.token_selection import Call, Recorded

Pull = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def forces(scores: torch.Tensor, head_scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The force on each score, c (..., n, T): see `attnlib.token_selection.forces`."""
    # s = softmax(z); gamma_t - f = (gamma_t - gamma_*) - sum_u s_u (gamma_u - gamma_*), * the token with the largest score.
    weight = torch.softmax(scores, -1)
    top = head_scores.gather(-1, scores.argmax(-1, keepdim=True))
    gap = head_scores - top
    mean_gap = (weight * gap).sum(-1, keepdim=True)
    y = labels.unsqueeze(-1)
    # -dL/df = sigma(-Y f) Y/n, f = gamma_* + sum_u s_u (gamma_u - gamma_*)
    slope = torch.sigmoid(-y * (top + mean_gap))
    return slope * (y / scores.shape[-2]) * weight * (gap - mean_gap)


def pull(
    values: torch.Tensor,
    weighted: torch.Tensor,
    kernel: torch.Tensor,
    head_scores: torch.Tensor,
    labels: torch.Tensor,
    trained: str = "both",
) -> Pull:
    """c, Kc and Sc at the current point: (R, N), (R, rows), (R, P). With p alone trained nothing needs Kc: it is left zero."""
    scores = values[:, : kernel.shape[2]].view(head_scores.shape)
    c = forces(scores, head_scores, labels).flatten(1)
    column = c.unsqueeze(-1)
    if trained == "p":
        # W stays: so do the rows of S, and those of the coordinates of v are 0, the identity and 0.
        (runs, rows, N), Sc = kernel.shape, torch.zeros_like(values)
        Sc[:, :rows] = torch.bmm(weighted[:, :rows], column).squeeze(-1)
        Sc[:, rows + N : rows + 2 * N] = c
        return c, c.new_zeros(runs, rows), Sc
    return c, torch.bmm(kernel, column).squeeze(-1), torch.bmm(weighted, column).squeeze(-1)


def step(
    values: torch.Tensor,
    weighted: torch.Tensor,
    prompt_norm_squared: torch.Tensor,
    pulled: Pull,
    step_size: torch.Tensor | float,
    trained: str = "both",
    update: Callable[[torch.Tensor, torch.Tensor], object] | None = None,
) -> None:
    """One step in place, from what `pull` returned; `step_size` may differ from run to run, (R,).

    `update` is called with the factors (R, P, 2) and (R, 2, N) of what S grows by, instead of adding it to `weighted`.
    """
    c, k, Sc = pulled
    N, rows = c.shape[1], k.shape[1]
    alpha = step_size.unsqueeze(-1) if isinstance(step_size, torch.Tensor) else step_size
    z, pi = values[:, :N], prompt_norm_squared.unsqueeze(-1)
    # kappa = y' G for every probe y, with the token gradient G = X' c: Kc for tokens and passive rows;
    # c itself for the coordinates a of v, zero for b and q.
    kappa = torch.zeros_like(values)
    kappa[:, :rows], kappa[:, rows : rows + N] = k, c
    beta = torch.linalg.vecdot(c, z)
    if trained == "both":
        # S += alpha u k' + alpha kappa (z + alpha pi k)', one product of rank two: (R, P, 2) with (R, 2, N).
        on_training = alpha * k[:, :N]
        left = torch.stack([values, kappa], dim=2)
        right = torch.stack([on_training, alpha * torch.addcmul(z, pi, on_training)], dim=1)
        (update or weighted.baddbmm_)(left, right)
        move = torch.addcmul(alpha * Sc, alpha * (pi + alpha * beta.unsqueeze(-1)), kappa)
    else:
        move = alpha * Sc
    # p <- p + alpha W G: |p|^2 grows by 2 alpha p'WG + alpha^2 |WG|^2 = 2 alpha c'z + alpha^2 c'Hc.
    prompt_norm_squared += step_size * (2 * beta + step_size * torch.linalg.vecdot(c, Sc[:, :N]))
    values += move


def advance(call: Call) -> Recorded:
    """All steps of a call, batched over the runs."""
    recorded, kept = call.blank(), {mark: row for row, mark in enumerate(call.record)}
    state = call.values, call.weighted, call.prompt_norm_squared
    with torch.inference_mode():  # no bookkeeping for autograd: a fifth of a small step's time
        for done, alpha in enumerate([*call.step_sizes.tolist(), None]):
            if (row := kept.get(done)) is not None:
                recorded.values[row], recorded.prompt_norm_squared[row] = call.values, call.prompt_norm_squared
            if alpha is not None:
                pulled = pull(call.values, call.weighted, call.kernel, call.head_scores, call.labels)
                step(*state, pulled, alpha)
    return recorded
