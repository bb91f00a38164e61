r"""Linear attention, the same heads without the softmax: what they learn, and what becomes of it at other prompt lengths.

$$ \hat y = \sum_hV_h\,ZZ^\top M_hz_q \quad\text{("raw")}\qquad\text{or}\qquad \hat y = \tfrac1L\sum_hV_h\,ZZ^\top M_hz_q\quad\text{("1/L")} $$

At the length of training $L_0$ the two are one family of functions: weights of the first are those of the second over $L_0$ (`as_raw`).
Its optimum is one preconditioned step, $\Gamma=\sum_h\mu_hM_h^{\top}$ restricted to the covariates equal to
$[(1+\tfrac1{L_0})\Sigma+\tfrac{\operatorname{tr}\Sigma+s_2}{L_0}I]^{-1}$; isotropic: $\eta^*=1/(1+(d+1+s_2)/L_0)$. At another length
the raw sum acts with the step $\eta^*L/L_0$, the mean with $\eta^*$. Source: the comparison is the abstract's, the formulas are derived
in the theory chapter of Part III. Circuits are those of `circuits`; everything is float64.
"""

from __future__ import annotations

import torch

from attnlib import checks
from attnlib.in_context.circuits import Circuits
from attnlib.in_context.closed_form import best_preconditioner
from attnlib.in_context.law import Prompts, RegressionLaw
from attnlib.randomness import stream

__all__ = ["as_raw", "optimal_linear_circuits", "predict_linear", "preconditioner_of", "train_linear_attention"]


def predict_linear(circuits: Circuits, prompts: Prompts, *, normalised: bool) -> torch.Tensor:
    r"""$\sum_hV_hZZ^\top M_hz_q$, over $L$ if `normalised`: (..., B). Leading axes of circuits and prompts broadcast.

    The query is not in Z, so that an empty similarity gives an empty answer.
    """
    context, d = prompts.context, circuits.d
    direction = torch.einsum("...hij,...bj->...hbi", circuits.key_query[..., :d], prompts.query)
    scores = torch.einsum("...hbi,...bli->...hbl", direction, context)
    written = torch.einsum("...hi,...bli->...hbl", circuits.output_value, context)
    return (scores * written).sum((-3, -1)) / (prompts.length if normalised else 1)


def preconditioner_of(circuits: Circuits) -> torch.Tensor:
    r"""$\Gamma=\sum_h\mu_h(M_h)_{1..d,1..d}^\top$, (..., d, d): the part of linear attention that is a step, $x_q^\top\Gamma\sum_iy_ix_i$."""
    return torch.einsum("...h,...hij->...ji", circuits.mu, circuits.covariate_block)


def optimal_linear_circuits(law: RegressionLaw) -> Circuits:
    """One head (1, ...) that is the best preconditioned step at the law's length, for the 1/L form."""
    d = law.d
    key_query = torch.zeros(1, d + 1, d + 1, dtype=torch.float64)
    key_query[0, :d, :d] = torch.as_tensor(best_preconditioner(law)).mT
    output_value = torch.zeros(1, d + 1, dtype=torch.float64)
    output_value[0, d] = 1
    return Circuits(key_query, output_value)


def as_raw(circuits: Circuits, length: int) -> Circuits:
    """The raw heads that compute at `length` what the 1/L heads compute there: V over the length."""
    checks.whole_number("length", length, at_least=1)
    return Circuits(circuits.key_query, circuits.output_value / length)


def train_linear_attention(
    law: RegressionLaw,
    *,
    heads: int = 1,
    steps: int = 800,
    batch: int = 128,
    learning_rate: float = 0.03,
    runs: int = 5,
    seed: int = 0,
) -> Circuits:
    """Train linear attention of the 1/L form from a random start: circuits (runs, heads, ...).

    Adam on M and V themselves, all their entries free but for the column of M without effect; squared error on fresh prompts of the law at
    every step; the learning rate falls linearly to 0, so that what is left of the noise of the last batches is small. Each run has its own
    start and prompts. (For the raw form nothing else is to be trained: dividing M and V by the root of L, and the learning rate with them,
    gives Adam the same path. `as_raw` translates.)

    Raises ValueError for a bad argument before any work.
    """
    for name, value in (("heads", heads), ("steps", steps), ("batch", batch), ("runs", runs)):
        checks.whole_number(name, value, at_least=1)
    checks.positive_number("learning_rate", learning_rate)
    n, d = law.d + 1, law.d
    starts = [stream(seed, "start", run) for run in range(runs)]
    free = torch.tensor([[draw.uniform(-0.3, 0.3, n + 1) for _ in range(heads * n)] for draw in starts])
    free = free.reshape(runs, heads, n, n + 1)
    matrix = free[..., :d].clone().requires_grad_(True)
    value = free[..., :, n].clone().requires_grad_(True)
    optimiser = torch.optim.Adam([matrix, value], lr=learning_rate)
    data = [stream(seed, "batches", run) for run in range(runs)]
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = learning_rate * (1 - step / steps)
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
