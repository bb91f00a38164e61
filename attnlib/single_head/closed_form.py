"""Two steps of gradient descent from zero, written out: see `two_steps`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.device import one_thread
from attnlib.divergence import require_finite
from attnlib.single_head.law import Sample


@dataclass(frozen=True)
class TwoSteps:
    """Parameters after one and two steps and the coefficients they are built from. p_1 is exactly zero."""

    v1: torch.Tensor  # (R, m)
    v2: torch.Tensor  # (R, m)
    p2: torch.Tensor  # (R, m)
    margins1: torch.Tensor  # (R, n), m_i
    slopes: torch.Tensor  # (R, n), g_i
    preference: torch.Tensor  # (R, n), y_i v_1 . (signal token - mean noise token); gamma_i for T = 2
    theta1: float  # coefficient of y_i xi_i in v_1
    theta2: torch.Tensor  # (R, n), coefficient of y_i xi_i in v_2
    lambda1: torch.Tensor  # (R, 2), coefficients of mu_1, mu_2 in v_1
    lambda2: torch.Tensor  # (R, 2), the same in v_2
    p2_tokens: torch.Tensor  # (R, n, T), coefficient of every token in p_2


@checks.checked
@one_thread
def two_steps(sample: Sample, step_size: float) -> TwoSteps:
    r"""Parameters after one and two steps of gradient descent from zero, in closed form; nothing is approximated.

    With $\bar x_i$ the mean token of sample $i$:

    $$ v_1 = \tfrac{\beta}{2nT} \sum_i y_i \sum_\tau x_{i\tau}, \quad p_1 = 0, \quad
       g_i = \frac{1}{1 + e^{m_i}}, \; m_i = y_i\, v_1 \cdot \bar x_i, $$
    $$ v_2 = \tfrac{\beta}{2nT} \sum_i y_i (1 + 2 g_i) \sum_\tau x_{i\tau}, $$
    $$ p_2 = \tfrac{\beta}{nT} \sum_i g_i y_i \sum_\tau (v_1 \cdot x_{i\tau} - v_1 \cdot \bar x_i)\, x_{i\tau}. $$

    For T = 2 the last sum is $\tfrac{\beta}{4n} g_i \gamma_i (u_i - \xi_i)$ with the token preference
    $\gamma_i = y_i v_1 \cdot (u_i - \xi_i)$.

    Args:
        sample: R training sets, any number of tokens.
        step_size: beta > 0.

    Returns:
        v_1, v_2, p_2 and the coefficients they are built from, in the sample's dtype.

    Raises:
        ValueError: step_size is not a number > 0, or so small that its products are no normal numbers.
        TrainingDiverged: a number after the second step is not finite.

    Source:
        derived in `book/single_head_theory`.

    Example:
        >>> sample = SignalNoiseLaw(n=5, d=100, signal_norm=3.0, tokens=4).draw(seed=0, runs=2)
        >>> two_steps(sample, step_size=0.1).v2.shape
        torch.Size([2, 17])
    """
    _, n, T, _ = sample.tokens.shape
    found = evaluate_two_steps(sample, checks.step_size("step_size", step_size, among=2 * n * T, like=sample.tokens))
    require_finite((2,), sample.first_run, found.v2[None], found.p2[None])
    return found


def evaluate_two_steps(sample: Sample, step_size: float) -> TwoSteps:
    """`two_steps` for a step size that has been checked."""
    tokens, y = sample.tokens, sample.labels
    _, n, T, _ = tokens.shape
    base = step_size / (2 * n * T)
    token_sum = tokens.sum(2)  # (R, n, m)
    v1 = base * torch.einsum("rn,rnm->rm", y, token_sum)
    values = torch.einsum("rntm,rm->rnt", tokens, v1)
    margins1 = y * values.mean(-1)
    slopes = torch.sigmoid(-margins1)
    theta2 = base * (1 + 2 * slopes)
    p2_tokens = 2 * base * (slopes * y).unsqueeze(-1) * (values - values.mean(-1, keepdim=True))
    at_signal = sample.at_signal(values)
    of_class = torch.stack([sample.signal_class == 0, sample.signal_class == 1], dim=1).to(y.dtype)  # (R, 2, n)
    return TwoSteps(
        v1=v1,
        v2=torch.einsum("rn,rnm->rm", theta2 * y, token_sum),
        p2=torch.einsum("rnt,rntm->rm", p2_tokens, tokens),
        margins1=margins1,
        slopes=slopes,
        preference=y * (at_signal - (values.sum(-1) - at_signal) / (T - 1)),
        theta1=base,
        theta2=theta2,
        lambda1=base * torch.einsum("rkn,rn->rk", of_class, y),
        lambda2=torch.einsum("rkn,rn->rk", of_class, theta2 * y),
        p2_tokens=p2_tokens,
    )
