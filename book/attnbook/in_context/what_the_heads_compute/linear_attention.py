r"""Linear attention, the same heads without the softmax: what they learn, and what becomes of it at other prompt lengths.

$$ \hat y_{\mathrm{raw}} = \sum_hV_h\,ZZ^\top M_hz_q, \qquad \hat y_{1/L} = \tfrac1L\,\hat y_{\mathrm{raw}} $$

At the length of training $L_0$ the two are one family of functions: the circuits of the first have the $V$ of the second over $L_0$.
The 1/L form at its best is one preconditioned step, $\tfrac1Lx_q^\top\Gamma\sum_iy_ix_i$ with
$\Gamma=[(1+\tfrac1{L_0})\Sigma+\tfrac{\operatorname{tr}\Sigma+s_2}{L_0}I]^{-1}$; isotropic: $\eta^*=1/(1+(d+1+s_2)/L_0)$. At another length
the raw sum acts with the step $\eta^*L/L_0$, the mean with $\eta^*$. Source: the comparison is the abstract's, the formulas are derived
in the theory chapter of Part III. Circuits are those of `circuits`; everything is float64.
"""

import numpy as np
import torch

from attnbook.in_context.closed_form import preconditioned_gd_risk
from attnbook.in_context.estimators import preconditioned_step
from attnlib.in_context.circuits import Circuits
from attnlib.in_context.law import Prompts, RegressionLaw
from attnlib.randomness import stream


def predict_linear(circuits: Circuits, prompts: Prompts, *, normalised) -> torch.Tensor:
    r"""$\sum_hV_hZZ^\top M_hz_q$, over $L$ if `normalised`: (..., B). Leading axes of circuits and prompts broadcast.

    The query is not in Z, so that an empty similarity gives an empty answer.
    """
    context, d = prompts.context, circuits.d
    direction = torch.einsum("...hij,...bj->...hbi", circuits.key_query[..., :d], prompts.query)
    scores = torch.einsum("...hbi,...bli->...hbl", direction, context)
    written = torch.einsum("...hi,...bli->...hbl", circuits.output_value, context)
    return (scores * written).sum((-3, -1)) / (prompts.length if normalised else 1)


def preconditioner_of(circuits: Circuits) -> torch.Tensor:
    r"""$\Gamma$, (..., d, d): all of linear attention that is a step, $x_q^\top\Gamma\sum_iy_ix_i$.

    $$ \Gamma = \sum_h\big(\mu_h\,(M_h)_{1..d,1..d}^\top + m_h\,v_h^\top\big),\qquad
       m_h = (M_h)_{d+1,1..d},\quad v_h = (V_h)_{1..d} $$

    $ZZ^\top$ holds $\sum_iy_ix_i$ twice, so a head has two ways to it; the second one has rank one. What is left of the prediction is even
    in the labels.
    """
    through_block = torch.einsum("...h,...hij->...ji", circuits.mu, circuits.covariate_block)
    return through_block + torch.einsum("...hi,...hj->...ij", circuits.label_row, circuits.output_rest)


def linear_risks(circuits: Circuits, law: RegressionLaw, length, *, prompts=4000, seed=0) -> torch.Tensor:
    """Risks at `length` of circuits (R, H, ...) of the 1/L form trained at the law's length, read as raw and as 1/L: (2, R).

    Closed form for the step that the circuits hold (`preconditioner_of`), plus the mean over prompts of the squared error of the whole
    circuits minus that of the step: what chance is left in comes from entries that training drives to zero. Stream (seed, "search", piece).
    """
    here, gamma = law.with_length(length), preconditioner_of(circuits)
    scales = torch.tensor([length / law.length, 1.0], dtype=torch.float64)[:, None]  # raw, 1/L
    exact = preconditioned_gd_risk(here, (scales[..., None, None] * gamma).numpy())
    added, size = torch.zeros(2, len(gamma), dtype=torch.float64), max(1, 20_000 // length)
    for piece, first in enumerate(range(0, prompts, size)):
        part = here.draw(min(size, prompts - first), seed, run=piece, role="search")
        whole, step = predict_linear(circuits, part, normalised=True), preconditioned_step(part, gamma)
        for row, scale in enumerate(scales[:, 0]):
            goal = part.clean_target
            added[row] += ((scale * whole - goal).square() - (scale * step - goal).square()).sum(-1)
    return torch.as_tensor(exact) + added / prompts


_LEARNING_RATE = 0.03  # of Adam, at the first step


def train_linear_attention(law: RegressionLaw, *, steps=500, batch=128, runs=5, seed=0) -> Circuits:
    """Train one head of linear attention of the 1/L form: circuits (runs, 1, ...).

    Adam on M and V themselves, all their entries free but for the column of M without effect; squared error on fresh prompts of the law at
    every step; the learning rate falls linearly to 0, so that little is left of the noise of the last batches. Each run has its own prompts
    and its own start: a small step of the right sign in a random covariate block, zero in the label row and the rest of V. (From wholly
    random starts some runs stay for long where one of the two ways of `preconditioner_of` blocks the other.) For the raw form nothing else
    is to be trained: dividing M, V and the learning rate by the root of L gives Adam the same path.
    """
    n, d = law.d + 1, law.d
    free = [stream(seed, "start", run).uniform(-0.2, 0.2, (1, d * d + 1)) for run in range(runs)]
    free = torch.as_tensor(np.stack(free))
    matrix, value = (torch.zeros(runs, 1, n, *shape, dtype=torch.float64) for shape in ((d,), ()))
    value[..., d] = free[..., -1] + 0.3 * free[..., -1].sign()
    matrix[..., :d, :] = free[..., :-1].unflatten(-1, (d, d)) + value[..., d, None, None] * torch.eye(d)
    matrix.requires_grad_(True), value.requires_grad_(True)
    optimiser = torch.optim.Adam([matrix, value], lr=_LEARNING_RATE)
    data = [stream(seed, "batches", run) for run in range(runs)]
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = _LEARNING_RATE * (1 - step / steps)
        normals = torch.stack([torch.as_tensor(draw.standard_normal((batch, law.normals_per_prompt))) for draw in data])
        prompts = law.from_normals(normals)
        moments = prompts.context.mT @ prompts.context / law.length  # (R, B, n, n): all that the model sees
        seen = torch.einsum("rhi,rbij->rhbj", value, moments)
        predicted = torch.einsum("rhbj,rhjk,rbk->rb", seen, matrix, prompts.query)
        loss = (predicted - prompts.target).square().mean(1).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    key_query = torch.nn.functional.pad(matrix.detach(), (0, 1))
    return Circuits(key_query, value.detach())
