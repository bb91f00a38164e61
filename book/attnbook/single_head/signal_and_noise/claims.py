r"""Claims D1-D6 of page `01_signal_and_noise`: what the data law says before anything is trained for long."""

import dataclasses
import math
from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.model import forward
from attnlib.single_head.population import clean_error_sampled, log10_clean_error
from attnlib.single_head.training import gradient_descent
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, agrees, exactly, share_within


@dataclass(frozen=True)
class DataStudy:
    """Per draw (R,), except where a shape is given."""

    law: SignalNoiseLaw
    step_size: float
    overlap: torch.Tensor  # largest |xi . mu_k| over d rho, dense draw
    noise_energy: torch.Tensor  # mean |xi|^2 / (d - 2)
    flip_rate: torch.Tensor
    clean_minus_noisy: torch.Tensor  # (R, 2), |C_k| - |N_k|
    noise_norm_v1: torch.Tensor  # |Pi v_1|
    one_step_log10_error: torch.Tensor  # (R, 2), exact, per class
    one_step_sampled: torch.Tensor  # fraction of fresh samples misclassified after one step
    permutation_gap: torch.Tensor  # change of the output under a permutation of the tokens
    margins: torch.Tensor  # (R, n), y f after three steps
    margins_normalised: dict[float, torch.Tensor]  # step-size factor -> (R, n), normalised noise with step size d beta


def averaging_error(law: SignalNoiseLaw) -> float:
    r"""Leading-order error after one step, $\Phi\big(-\tfrac12(1-2\eta)\sqrt{n\rho^4/d}\big)$: counts at their mean, noise orthogonal."""
    argument = 0.5 * (1 - 2 * law.label_noise) * math.sqrt(law.n / law.d) * law.signal_norm**2
    return 0.5 * math.erfc(argument / math.sqrt(2))


def _normalised(sample: Sample) -> Sample:
    """The same draw with all tokens divided by sqrt(d): noise N(0, Sigma/d), signal norm rho / sqrt(d)."""
    law = sample.law
    scale = 1 / math.sqrt(law.d)
    own = dataclasses.replace(law, signal_norm=law.signal_norm * scale, normalised_noise=True)
    return dataclasses.replace(sample, law=own, tokens=sample.tokens * scale, signals=sample.signals * scale)


def data_study(law: SignalNoiseLaw, step_size: float, *, draws: int = 20, seed: int = 0) -> DataStudy:
    """Draw and measure. The overlap is taken on dense vectors of dimension min(d, 4000). Raises ValueError for a bad argument."""
    checks.positive_number("step_size", step_size)
    checks.whole_number("draws", draws, at_least=2)
    sample = law.draw(seed, draws)
    path = gradient_descent(sample, step_size, 3)
    dense = dataclasses.replace(law, d=min(law.d, 4000)).draw(seed, min(draws, 5), coordinates="dense")
    overlaps = torch.einsum("rntm,rkm->rntk", dense.noise_tokens(), dense.signals).abs().amax((1, 2, 3))
    clean, noisy = sample.counts()
    order = torch.flip(torch.arange(law.tokens), (0,))
    outputs = [forward(tokens, path.v[3], path.p[3]).output for tokens in (sample.tokens, sample.tokens[:, :, order])]
    units = sample.signals / law.signal_norm
    v1 = path.v[1]
    noise_part = v1 - torch.einsum("rk,rkm->rm", torch.einsum("rkm,rm->rk", units, v1), units)
    scaled = _normalised(sample)
    return DataStudy(
        law=law,
        step_size=step_size,
        overlap=overlaps / (dense.law.d * law.signal_norm),
        noise_energy=(sample.noise_tokens() ** 2).sum(-1).mean((1, 2)) / (law.d - 2),
        flip_rate=sample.noisy.to(torch.float64).mean(1),
        clean_minus_noisy=clean - noisy,
        noise_norm_v1=noise_part.norm(dim=-1),
        one_step_log10_error=log10_clean_error(v1, path.p[1], sample, per_class=True),
        one_step_sampled=clean_error_sampled(v1, path.p[1], sample, 4000).value,
        permutation_gap=(outputs[0] - outputs[1]).abs().amax(1) / outputs[0].abs().amax(1),
        margins=path.margins[3],
        margins_normalised={
            factor: gradient_descent(scaled, factor * step_size * law.d, 3).margins[3] for factor in (1.0, 1.01)
        },
    )


CLAIMS = ClaimSet("single_head")


@CLAIMS.claim("D1", wrong=0.99, source=Source.PAPER, box="def-data-law")
def orthogonal_noise(study: DataStudy, constant: float) -> Evidence:
    r"""the noise tokens are exactly orthogonal to both signals
    $\xi_{i}\cdot\mu_k = 0$ for each noise token $\xi_i$ and both signals $\mu_k$: their covariance $I - (\mu_1\mu_1^\top +
    \mu_2\mu_2^\top)/\rho^2$ has $\rho^2$, not $\rho$, in its denominator
    wrong: 1 % of the signal is left in the noise"""
    return exactly(1.0 - study.overlap, constant)


@CLAIMS.claim("D2", wrong=1.01, box="def-data-law claim-theory-c1")
def noise_energy(study: DataStudy, constant: float) -> Evidence:
    r"""the norm of a noise token
    a noise token has $d-2$ independent standard normal coordinates, so $E|\xi|^2 = d - 2$: the root mean square of its norm is $\sqrt d$ up
    to $O(1/\sqrt d)$, and $\mathrm{SNR} = \rho/\sqrt d$
    wrong: a mean square 1 % larger"""
    return agrees(study.noise_energy, constant)


@CLAIMS.claim(
    "D3",
    wrong=2.0,
    source=Source.PAPER,
    box="def-data-law",
    violation=lambda s: "" if s.law.label_noise > 0 else "needs label noise; here eta = 0",
)
def flip_rate(study: DataStudy, constant: float) -> Evidence:
    r"""labels are flipped with probability η
    a training label differs from the true one with probability $\eta$, independently of the tokens
    regime: $\eta > 0$
    wrong: twice the probability"""
    trials = study.flip_rate.numel() * study.law.n
    chance = constant * study.law.label_noise
    return share_within(
        round(study.flip_rate.sum().item() * study.law.n), trials, chance, chance, quantity="share flipped"
    )


@CLAIMS.claim("D4", wrong=0.8, box="thm-exact-error claim-theory-c6", uses="C5 C6")
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


@CLAIMS.claim("D5", wrong=0.99, box="rem-order")
def permutation(study: DataStudy, constant: float) -> Evidence:
    """the order of the tokens does not matter
    the output $f(X; v, p)$ does not change when the tokens of $X$ are permuted: the position of the signal token carries no information
    wrong: an output 1 % smaller"""
    return exactly(1.0 - study.permutation_gap, constant)


@CLAIMS.claim("D6", wrong=1.01, box="rem-normalised-noise")
def normalised_noise(study: DataStudy, constant: float) -> Evidence:
    r"""normalised noise gives the same run
    if all tokens are divided by $\sqrt d$ and the step size is $\beta d$, the margins are the same at each step, and $v$ and $p$ are
    multiplied by $\sqrt d$
    wrong: step size 1.01 βd"""
    return exactly(study.margins_normalised[constant], study.margins)
