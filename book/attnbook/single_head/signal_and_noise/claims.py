r"""Claim D4 of page `01_signal_and_noise`: what one step of training gives. The data law itself is tested in `tests/single_head`."""

import math
from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import clean_error_sampled
from attnlib.single_head.training import gradient_descent
from bookkit.claims import ClaimSet
from bookkit.rules import Evidence, agrees


@dataclass(frozen=True)
class DataStudy:
    """Per draw (R,), except where a shape is given."""

    law: SignalNoiseLaw
    step_size: float
    noise_energy: torch.Tensor  # mean |xi|^2 / (d - 2)
    flip_rate: torch.Tensor
    clean_minus_noisy: torch.Tensor  # (R, 2), |C_k| - |N_k|
    noise_norm_v1: torch.Tensor  # |Pi v_1|
    one_step_sampled: torch.Tensor  # fraction of fresh samples misclassified after one step


def averaging_error(law: SignalNoiseLaw) -> float:
    r"""Leading-order error after one step, $\Phi\big(-\tfrac12(1-2\eta)\sqrt{n\rho^4/d}\big)$: counts at their mean, noise orthogonal."""
    argument = 0.5 * (1 - 2 * law.label_noise) * math.sqrt(law.n / law.d) * law.signal_norm**2
    return 0.5 * math.erfc(argument / math.sqrt(2))


def data_study(law: SignalNoiseLaw, step_size: float, *, draws: int = 20, seed: int = 0) -> DataStudy:
    """Draw and measure. Raises ValueError for a bad argument."""
    checks.positive_number("step_size", step_size)
    checks.whole_number("draws", draws, at_least=2)
    sample = law.draw(seed, draws)
    path = gradient_descent(sample, step_size, 1)
    clean, noisy = sample.counts()
    units = sample.signals / law.signal_norm
    v1 = path.v[1]
    noise_part = v1 - torch.einsum("rk,rkm->rm", torch.einsum("rkm,rm->rk", units, v1), units)
    return DataStudy(
        law=law,
        step_size=step_size,
        noise_energy=(sample.noise_tokens() ** 2).sum(-1).mean((1, 2)) / (law.d - 2),
        flip_rate=sample.noisy.to(torch.float64).mean(1),
        clean_minus_noisy=clean - noisy,
        noise_norm_v1=noise_part.norm(dim=-1),
        one_step_sampled=clean_error_sampled(v1, path.p[1], sample, 4000).value,
    )


CLAIMS = ClaimSet("single_head")


@CLAIMS.claim("D4", wrong=0.8, box="thm-exact-error claim-theory-c6", uses="claim-theory-c5")
def averaging(study: DataStudy, constant: float) -> Evidence:
    r"""the clean error of the averaging classifier
    after one step from zero $p_1 = 0$, and the clean error of class $k$ is exactly $\Phi(-s_k v_1\cdot\mu_k/|\Pi v_1|)$ with $s_k
    v_1\cdot\mu_k = \tfrac{\beta\rho^2}{4n}(|C_k|-|N_k|)$; $s_1 = 1$, $s_2 = -1$, $C_k$ and $N_k$ are the clean and the flipped samples of
    the class, $\Pi$ removes the components along the signals
    wrong: an argument 0.8 times as large
    coarse: some errors in a thousand fresh points are counted"""
    score = study.step_size * study.law.signal_norm**2 / (4 * study.law.n) * study.clean_minus_noisy
    argument = -constant * score / study.noise_norm_v1.unsqueeze(1)
    return agrees(study.one_step_sampled, torch.special.ndtr(argument).mean(1))
