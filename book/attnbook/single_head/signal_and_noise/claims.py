r"""Claim D4 of page `01_signal_and_noise`: what one step of training gives. The data law itself is tested in `tests/single_head`."""

import torch

from bookkit.claims import ClaimSet
from bookkit.rules import agrees

CLAIMS = ClaimSet("single_head")


@CLAIMS.claim("D4", wrong=0.8, box="thm-exact-error claim-theory-c6", uses="claim-theory-c5")
def averaging(study, constant):
    r"""the clean error of the averaging classifier
    after one step from zero $p_1 = 0$, and the clean error of class $k$ is exactly $\Phi(-s_k v_1\cdot\mu_k/|\Pi v_1|)$ with $s_k
    v_1\cdot\mu_k = \tfrac{\beta\rho^2}{4n}(|C_k|-|N_k|)$; $s_1 = 1$, $s_2 = -1$, $C_k$ and $N_k$ are the clean and the flipped samples of
    the class, $\Pi$ removes the components along the signals
    wrong: an argument 0.8 times as large
    coarse: some errors in a thousand fresh points are counted"""
    score = study.step_size * study.law.signal_norm**2 / (4 * study.law.n) * study.clean_minus_noisy
    argument = -constant * score / study.noise_norm_v1.unsqueeze(1)
    return agrees(study.one_step_sampled, torch.special.ndtr(argument).mean(1))
