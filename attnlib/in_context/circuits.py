r"""The two circuits of a head, key-query and output-value, which determine all that it computes.

$$ M_h = W_K^{h\top} W_Q^h/\sqrt n \quad(\text{key index first}), \qquad V_h = W_O^h W_V^h, \qquad
   \hat y = \sum_h V_h \sum_i z_i\,\mathrm{softmax}_i(z_i^\top M_h z_q). $$

Two numbers summarise a head: $\omega_h$, the mean of the first d diagonal entries of $M_h$, and $\mu_h$, the last entry of $V_h$. The last
*column* of $M_h$ meets the 0 of the query token: it has no effect, gets no gradient, and keeps its start for ever. Source: authors'
code for the two numbers; the exact facts are derived in the theory chapter of Part III.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from attnlib import checks
from attnlib.attention import attention_weights
from attnlib.device import home, one_thread
from attnlib.in_context.law import Prompts
from attnlib.in_context.model import HeadWeights
from attnlib.kernels.in_context import merge


@checks.checked
@dataclass(frozen=True)
class Circuits:
    r"""Key-query and output-value circuits of H heads, which determine all predictions. Leading axes are free (records, runs).

    $$ M_h = W_K^{h\top} W_Q^h/\sqrt n \quad(\text{key index first}), \qquad V_h = W_O^h W_V^h $$

    Source:
        derived in `book/in_context_theory`; the two numbers of a head are the authors' code (arXiv 2503.12734).

    Example:
        >>> circuits = circuits_of(initial_weights(d=5, heads=2, seed=0, runs=3))
        >>> circuits.omega.shape, circuits.effective_step.shape
        (torch.Size([3, 2]), torch.Size([3]))
    """

    key_query: torch.Tensor  # (..., H, n, n): M, key index first
    output_value: torch.Tensor  # (..., H, n): V

    def __post_init__(self) -> None:
        checks.fitting(vars(self), key_query="... H n n", output_value="... H n")

    @property
    def d(self) -> int:
        """Number of covariates."""
        return self.output_value.shape[-1] - 1

    @property
    def heads(self) -> int:
        """H, the number of heads."""
        return self.output_value.shape[-2]

    @property
    def covariate_block(self) -> torch.Tensor:
        """(..., H, d, d): the part of M that compares covariates."""
        return self.key_query[..., : self.d, : self.d]

    @property
    def diagonal(self) -> torch.Tensor:
        """(..., H, d): diagonal of the covariate block."""
        return self.covariate_block.diagonal(dim1=-2, dim2=-1)

    @property
    def omega(self) -> torch.Tensor:
        """(..., H): omega_h, mean of the diagonal."""
        return self.diagonal.mean(-1)

    @property
    def mu(self) -> torch.Tensor:
        """(..., H): mu_h, what a head writes of the labels it averages."""
        return self.output_value[..., -1]

    @property
    def effective_step(self) -> torch.Tensor:
        """(...): eta = sum over heads of omega_h mu_h, the step of the gradient descent that the heads imitate."""
        return (self.omega * self.mu).sum(-1)

    @property
    def cancels(self) -> torch.Tensor:
        """(...) bool: heads of both signs share the work, `imbalance(mu)` < 1/2. Never for one head."""
        return imbalance(self.mu) < 0.5

    @property
    def trapped(self) -> torch.Tensor:
        """(...) bool: two heads or more that act as one, all with one sign. Never for one head, which has no choice."""
        return ~self.cancels if self.heads > 1 else torch.zeros_like(self.cancels)

    @property
    def diagonal_std(self) -> torch.Tensor:
        """(..., H): standard deviation of the diagonal (0 for d = 1)."""
        return self.diagonal.std(-1, correction=0)

    @property
    def off_diagonal(self) -> torch.Tensor:
        """(..., H): largest |M_ij|, i != j, in the covariate block."""
        eye = torch.eye(self.d, dtype=torch.bool, device=self.key_query.device)
        return self.covariate_block.masked_fill(eye, 0).abs().amax((-2, -1))

    @property
    def label_row(self) -> torch.Tensor:
        """(..., H, d): last row of M: how much the label of an example moves its score."""
        return self.key_query[..., self.d, : self.d]

    @property
    def query_column(self) -> torch.Tensor:
        """(..., H, n): last column of M, without any effect."""
        return self.key_query[..., :, self.d]

    @property
    def output_rest(self) -> torch.Tensor:
        """(..., H, d): what a head writes of the covariates."""
        return self.output_value[..., : self.d]

    def __getitem__(self, index: Any) -> Circuits:
        """The same index taken of both circuits: `circuits[-1]` is the last record, `circuits[:, 0]` the first run."""
        return Circuits(self.key_query[index], self.output_value[index])


def imbalance(mu: torch.Tensor) -> torch.Tensor:
    r"""$|\sum_h\mu_h|/\sum_h|\mu_h|$ of mu (..., H): 1 if all heads have one sign, 0 if they cancel; nan where all are zero."""
    return mu.sum(-1).abs() / mu.abs().sum(-1)


@checks.checked
def circuits_of(heads: HeadWeights) -> Circuits:
    r"""The circuits of heads: their matrices merged, which changes no prediction.

    $$ M_h = W_K^{h\top} W_Q^h/\sqrt n, \qquad V_h = W_O^h W_V^h $$

    Args:
        heads: of R runs.

    Returns:
        `Circuits` with leading axes (R, H), in the dtype of the heads.

    Raises:
        ValueError: heads is no `HeadWeights`.

    Source:
        derived in `book/in_context_theory`.

    Example:
        >>> circuits = circuits_of(initial_weights(d=5, heads=2, start="small_id_qk", seed=0))
        >>> circuits.key_query.shape, circuits.output_value.shape
        (torch.Size([1, 2, 6, 6]), torch.Size([1, 2, 6]))
    """
    return Circuits(*merge(heads.query, heads.key, heads.value, heads.output))


def two_number_circuits(omega: torch.Tensor, mu: torch.Tensor, d: int) -> Circuits:
    """Circuits given by two numbers per head: M = omega I on the covariates, V = mu on the label; omega, mu (..., H)."""
    d = checks.whole_number("d", d, at_least=1)
    omega, mu = torch.broadcast_tensors(*(torch.as_tensor(x, device=home(x)) for x in (omega, mu)))
    shape = torch.zeros(d + 1, dtype=omega.dtype, device=omega.device)
    eye, last = shape.clone(), shape.clone()
    eye[:d], last[d] = 1, 1
    return Circuits(omega[..., None, None] * torch.diag(eye), mu[..., None] * last)


@checks.checked
def attention(circuits: Circuits, prompts: Prompts) -> torch.Tensor:
    """Weights of the examples (..., H, B, L)."""
    return weights_at(circuits, prompts)


def weights_at(circuits: Circuits, prompts: Prompts) -> torch.Tensor:
    """`attention` for arguments that have been checked."""
    M = circuits.key_query
    context, query = (tokens.to(M) for tokens in (prompts.context, prompts.query))
    direction = torch.einsum("...hij,...bj->...hbi", M[..., : circuits.d], query)
    return attention_weights(torch.einsum("...hbi,...bli->...hbl", direction, context))


@checks.checked
@one_thread
def predict(circuits: Circuits, prompts: Prompts) -> torch.Tensor:
    r"""Predictions of the merged model.

    $$ \hat y = \sum_h V_h \sum_i z_i\,\mathrm{softmax}_i(z_i^\top M_h z_q) $$

    Args:
        circuits: (..., H); leading axes broadcast with those of the prompts.
        prompts: (..., B).

    Returns:
        predictions, (..., B), in the circuits' dtype.

    Raises:
        ValueError: circuits or prompts are something else, or of different d.

    Source:
        the model of arXiv 2503.12734, in which the query looks at the examples and not at itself.

    Example:
        >>> prompts = RegressionLaw(d=5, length=40).draw(8, seed=0)
        >>> predict(circuits_of(initial_weights(d=5, heads=2, seed=0, runs=3)), prompts).shape
        torch.Size([3, 8])
    """
    if circuits.d != prompts.query.shape[-1]:
        raise ValueError(
            f"circuits must be for d = {prompts.query.shape[-1]}, the prompts'; got circuits for d = {circuits.d}"
        )
    return predictions(circuits, prompts)


def predictions(circuits: Circuits, prompts: Prompts) -> torch.Tensor:
    """`predict` for arguments that have been checked."""
    V = circuits.output_value
    written = torch.einsum("...hi,...bli->...hbl", V, prompts.context.to(V))
    return (weights_at(circuits, prompts) * written).sum((-3, -1))
