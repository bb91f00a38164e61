"""What page `01_signal_and_noise` measures: draws of the data law, and one step of training on them."""

import math
from types import SimpleNamespace

import torch

from attnlib.single_head.errors import clean_error_sampled
from attnlib.single_head.training import gradient_descent


def averaging_error(law):
    r"""Leading-order error after one step, $\Phi\big(-\tfrac12(1-2\eta)\sqrt{n\rho^4/d}\big)$: counts at their mean, noise orthogonal."""
    argument = 0.5 * (1 - 2 * law.label_noise) * math.sqrt(law.n / law.d) * law.signal_norm**2
    return 0.5 * math.erfc(argument / math.sqrt(2))


def data_study(law, step_size, *, draws=20, seed=0):
    """Per draw (R,), but `clean_minus_noisy`, |C_k| - |N_k|, (R, 2)."""
    sample = law.draw(seed, draws)
    path = gradient_descent(sample, step_size, 1)
    clean, noisy = sample.counts()
    units, v1 = sample.signals / law.signal_norm, path.v[1]
    noise_part = v1 - torch.einsum("rk,rkm->rm", torch.einsum("rkm,rm->rk", units, v1), units)
    return SimpleNamespace(
        law=law, step_size=step_size, clean_minus_noisy=clean - noisy, flip_rate=sample.noisy.to(torch.float64).mean(1),
        noise_energy=(sample.noise_tokens() ** 2).sum(-1).mean((1, 2)) / (law.d - 2),  # mean |xi|^2 / (d - 2)
        noise_norm_v1=noise_part.norm(dim=-1),  # |Pi v_1|
        # fraction of fresh samples misclassified after one step
        one_step_sampled=clean_error_sampled(v1, path.p[1], sample, 4000).value,
    )  # fmt: skip
