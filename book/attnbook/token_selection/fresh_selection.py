r"""What a fresh sample attends to: mean attention as a one-dimensional integral, and selection when attention is hard.

The scores of a fresh sample are independent Gaussians, $z_t\sim N(m_t, s^2)$: $m_t$ is its coefficient of the own signal times
$v\cdot\mu_{Y^*}$ plus that of the other times $v\cdot\mu_{-Y^*}$, $s^2=\sigma_\varepsilon^2|v|^2$, $v=W^\top p$. Nothing has to be
sampled.
Source: derived in the theory chapter of Part II. numpy, float64.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch

from attnbook.halving import crossing_above
from attnlib import checks
from attnlib.arrays import Floats
from attnlib.token_selection.law import TokenLaw

_GUMBEL_STEP = 0.4  # trapezoid of an analytic integrand: error below 1e-9


@functools.cache
def _normal_nodes(count: int) -> tuple[Floats, Floats]:
    """Nodes and weights of a mean over N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / math.sqrt(2 * math.pi)


def fresh_attention(law: TokenLaw, own_score: float, other_score: float, score_variance: float) -> Floats:
    r"""Mean attention of a fresh sample on every token, exactly, as a one-dimensional integral.

    Scores are independent $N(m_t, s^2)$ with $m_t$ = coefficient of the own signal times $v\cdot\mu_{Y^*}$ plus that of the other
    times $v\cdot\mu_{-Y^*}$, and $s^2=\sigma_\varepsilon^2|v|^2$. $S(z)_t$ is the probability that $z_t+G_t$ is largest, with independent
    Gumbel variables $G_t$. So

    $$ \mathbb E\,S(z)_t=\int F_t'(w)\prod_{u\ne t}F_u(w)\,dw,\qquad F_t(w)=\mathbb E_g\exp\bigl(-e^{-(w-m_t-sg)}\bigr). $$

    Args: own_score $v\cdot\mu_{Y^*}$, other_score $v\cdot\mu_{-Y^*}$, score_variance s^2 >= 0. Returns (T,), sum 1 to about 1e-9 for
    s up to 4. Source: derived.
    """
    spread = math.sqrt(score_variance)
    kinds, kind, count = np.unique(law.signal_share().numpy(), axis=0, return_inverse=True, return_counts=True)
    mean = kinds @ np.array([own_score, other_score])
    g, weight = _normal_nodes(min(200, 24 + math.ceil(40 * spread)))
    w = np.arange(mean.min() - 4 - 8 * spread, mean.max() + 34 + 8 * spread, _GUMBEL_STEP)
    arrival = np.exp(np.clip(mean[:, None, None] + spread * g - w[:, None], -700, 700))  # (kinds, w, g)
    below = np.exp(-arrival)
    cdf, density = below @ weight, (arrival * below) @ weight
    with np.errstate(divide="ignore", invalid="ignore"):
        race = np.where(cdf > 0, density / cdf, 0.0) * (cdf ** count[:, None]).prod(0)
    mean_attention: Floats = (race.sum(-1) * _GUMBEL_STEP)[kind.reshape(-1)]
    return mean_attention


def fresh_threshold(law: TokenLaw) -> float:
    r"""Signal score $S^*=v\cdot\mu$ (the same for both classes) at which fresh attention without noise is 1/2 on the relevant token.

    $e^{S^*}=T-2-k+(1+k)e^{\rho S^*}$, which is $S^*=\log(T-1)$ at $\rho=0$. Source: derived.
    """
    hint = "weak tokens as strong as the relevant one leave no threshold"
    checks.probability("weak_signal", law.weak_signal, high=1.0 - 1e-9, hint=hint)
    weak, rho = 1 + law.same_class_tokens, law.weak_signal

    def short(score: float) -> bool:
        return score < math.log(law.tokens - 1 - weak + weak * math.exp(min(rho * score, 700.0)))

    return crossing_above(short)


def hard_selection(discrimination: float, law: TokenLaw) -> Floats:
    r"""Probability that a fresh sample's largest score is token t, all t: scores independent $N(D a_t, 1)$, $D$ = `discrimination`.

    $P_t=\int\varphi(x)\prod_{u\ne t}\Phi\bigl(x+D(a_t-a_u)\bigr)dx$ by Gauss-Hermite quadrature. Returns (T,). Source: derived.
    """
    D, share = discrimination, law.signal_share().sum(-1).numpy()
    x, weight = _normal_nodes(160)
    ahead = torch.special.ndtr(
        torch.as_tensor(x + D * (share[:, None, None] - share[None, :, None]))
    ).numpy()  # (t, u, nodes)
    ahead[np.arange(law.tokens), np.arange(law.tokens)] = 1.0
    probability: Floats = (ahead.prod(1) * weight).sum(-1)
    return probability


@checks.checked
def selection_accuracy(discrimination: float, law: TokenLaw) -> float:
    r"""Accuracy on fresh data when attention is hard: all of it on the token with the largest score.

    $$ \sum_tP_t\,\Phi\!\left(\frac{|\mu|\,y_t}{\sqrt2\,\sigma_\varepsilon}\right), \qquad y_t = 1,-\rho,\rho,\dots,0, $$

    $P_t$ the probability that token t is selected. Scores and values of a token are independent where $v\cdot\nu=0$, as class
    symmetry has it.

    Args:
        discrimination: $D = v\cdot\mu/(\sigma_\varepsilon|v|)$, any finite number.
        law: of the data.

    Returns:
        a probability.

    Raises:
        ValueError: discrimination is not a finite number.

    Source:
        derived in `book/token_selection_theory`, leading order.

    Example:
        >>> law = TokenLaw(n=20, d=2000, tokens=8, signal_norm=20.0)
        >>> print(f"{selection_accuracy(0.0, law):.2f} {selection_accuracy(10.0, law):.2f}")
        0.56 1.00
    """
    checks.finite_number("discrimination", discrimination)
    both = law.signal_share().numpy()
    reach = law.signal_norm / (math.sqrt(2) * law.noise_std) * (both[:, 0] - both[:, 1])
    return float(hard_selection(discrimination, law) @ torch.special.ndtr(torch.as_tensor(reach)).numpy())
