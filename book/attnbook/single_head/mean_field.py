r"""Two steps in the limit of orthogonal noise: every quantity in closed form from the law, beta and the label counts.

Noise tokens are replaced by orthogonal vectors of squared norm d (1 for normalised noise), which is what n fixed, d to infinity gives;
the relative error at finite d is of the order of $\varepsilon \sim \sqrt{n/d}$ per sample. Two tokens. Source: derived in the theory
chapter of Part I.

Units: $a = \beta d/4n$ (pull of a sample's own noise), $b_k = \beta\rho^2(|C_k| - |N_k|)/4n$ (pull of the shared signal),
$\kappa = E b/a = n\,\mathrm{SNR}^2(1-2\eta)/2$.
"""

from dataclasses import dataclass

import torch

from attnlib.single_head.errors import FreshScores, log10_error_of_scores
from attnlib.single_head.law import SignalNoiseLaw


@dataclass(frozen=True)
class MeanField:
    """All tensors (R, 2), second axis the class; `a` is a float. Suffix _clean / _noisy: the kind of sample."""

    a: float
    b: torch.Tensor
    margin1_clean: torch.Tensor  # y f after one step
    margin1_noisy: torch.Tensor
    slope_clean: torch.Tensor  # g = 1 / (1 + exp(margin1))
    slope_noisy: torch.Tensor
    preference_clean: torch.Tensor  # gamma
    preference_noisy: torch.Tensor
    p_signal: torch.Tensor  # p_2 . mu_k
    p_noise_clean: torch.Tensor  # p_2 . xi_i
    p_noise_noisy: torch.Tensor
    attention_clean: torch.Tensor  # weight on the signal after two steps
    attention_noisy: torch.Tensor
    v_signal: torch.Tensor  # V_k = s_k v_2 . mu_k
    v_noise_clean: torch.Tensor  # y_i v_2 . xi_i
    v_noise_noisy: torch.Tensor
    margin2_clean: torch.Tensor
    margin2_noisy: torch.Tensor


def mean_field(law: SignalNoiseLaw, step_size: float, clean: torch.Tensor, noisy: torch.Tensor) -> MeanField:
    """Mean-field state after two steps from zero.

    Args:
        law: two tokens, the paper's signals. Its label noise does not enter: the counts say which labels are flipped.
        step_size: beta > 0.
        clean, noisy: |C_k| and |N_k|, float tensors (R, 2) as `Sample.counts()` returns them.
    """
    rho2, noise2 = law.signal_norm**2, law.d * law.noise_std**2  # |mu|^2, E|xi|^2
    unit = step_size / (4 * law.n)
    a, b = unit * noise2, unit * rho2 * (clean - noisy)
    margin_c, margin_n = (b + a) / 2, (a - b) / 2
    # g: minus the derivative of a sample's loss with respect to its margin; gamma: the derivative of f_i with respect to the
    # weight on the signal, times y_i. One step against the loss's gradient with respect to p is unit sum_i g_i gamma_i (u_i - xi_i).
    g_c, g_n = torch.sigmoid(-margin_c), torch.sigmoid(-margin_n)
    gamma_c, gamma_n = b - a, -(b + a)
    p_signal = unit * rho2 * (clean * g_c * gamma_c + noisy * g_n * gamma_n)
    p_noise_c, p_noise_n = -a * g_c * gamma_c, -a * g_n * gamma_n
    s_c, s_n = torch.sigmoid(p_signal - p_noise_c), torch.sigmoid(p_signal - p_noise_n)
    v_signal = unit * rho2 * (clean * (1 + 2 * g_c) - noisy * (1 + 2 * g_n))
    t_c, t_n = a * (1 + 2 * g_c), a * (1 + 2 * g_n)
    return MeanField(
        a=a, b=b, margin1_clean=margin_c, margin1_noisy=margin_n, slope_clean=g_c, slope_noisy=g_n,
        preference_clean=gamma_c, preference_noisy=gamma_n, p_signal=p_signal, p_noise_clean=p_noise_c, p_noise_noisy=p_noise_n,
        attention_clean=s_c, attention_noisy=s_n, v_signal=v_signal, v_noise_clean=t_c, v_noise_noisy=t_n,
        margin2_clean=s_c * v_signal + (1 - s_c) * t_c, margin2_noisy=-s_n * v_signal + (1 - s_n) * t_n,
    )  # fmt: skip


def mean_field_log10_error(
    law: SignalNoiseLaw,
    step_size: float,
    clean: torch.Tensor,
    noisy: torch.Tensor,
    *,
    fresh_square: float | None = None,
) -> torch.Tensor:
    r"""log10 of the clean error (R,) after two steps, as a function of the label counts alone.

    The exact one-dimensional integral with mean-field scores. With orthogonal noise of squared norm d, and sums over the n samples,
    $|\Pi v_2|^2 = d(\tfrac{\beta}{4n})^2\sum(1+2g_i)^2$, $|\Pi p_2|^2 = d(\tfrac{\beta}{4n})^2\sum(g_i\gamma_i)^2$,
    $\Pi v_2\cdot\Pi p_2 = -d(\tfrac{\beta}{4n})^2\sum y_i(1+2g_i)g_i\gamma_i$. Derived; leading order in n/d.

    fresh_square: what a fresh token sees of a training token, squared, in place of d in these three: tr Sigma^2 for noise of covariance
        Sigma. By default that of the law: d, or 1/d for normalised noise.
    """
    f = mean_field(law, step_size, clean, noisy)
    scale = (law.d * law.noise_std**4 if fresh_square is None else fresh_square) * (step_size / (4 * law.n)) ** 2
    sign = torch.tensor([1.0, -1.0], dtype=clean.dtype, device=clean.device)  # label of a clean sample of each class
    boost_c, boost_n = 1 + 2 * f.slope_clean, 1 + 2 * f.slope_noisy
    push_c, push_n = f.slope_clean * f.preference_clean, f.slope_noisy * f.preference_noisy
    vv = scale * (clean * boost_c**2 + noisy * boost_n**2).sum(-1, keepdim=True)
    pp = scale * (clean * push_c**2 + noisy * push_n**2).sum(-1, keepdim=True)
    vp = -scale * (sign * (clean * boost_c * push_c - noisy * boost_n * push_n)).sum(-1, keepdim=True)
    omega = pp.sqrt().clamp_min(torch.finfo(clean.dtype).tiny)
    tau = (vv - (vp / omega) ** 2).clamp_min(0).sqrt()
    two = torch.ones_like(sign)
    return log10_error_of_scores(FreshScores(f.p_signal, f.v_signal, omega * two, sign * vp / omega, tau * two))
