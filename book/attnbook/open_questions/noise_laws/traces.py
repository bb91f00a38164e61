r"""Which trace matters: memorising looks at $\mathrm{tr}\,\Sigma$, cross terms and the test error at $\mathrm{tr}\,\Sigma^2$.

**Two-trace mean field.** In two steps from zero a token enters through $|\xi_i|^2 \approx \mathrm{tr}\,\Sigma$, its pull is
$a = \beta\,\mathrm{tr}\,\Sigma/4n$, and a fresh vector sees $v = \sum_i c_i\xi_i$ with variance
$\sum_{ij} c_ic_j\,\xi_i^\top\Sigma\xi_j \approx \mathrm{tr}\,\Sigma^2\sum_i c_i^2$. So the mean-field scores are those of white noise with
$\mathrm{tr}\,\Sigma$ for d, the three covariances those with $\mathrm{tr}\,\Sigma^2$ for d. Source: derived; terms of relative order
$\sqrt{n\,\mathrm{tr}\,\Sigma^2}/\mathrm{tr}\,\Sigma$ per sample are left out.

**One spike.** With $\Sigma = I + s\,ww^\top$ and attention near one half, $v \propto \sum_i y_i(u_i + \xi_i)$ and $v\cdot w$ is one
Gaussian of variance $n(1+s)$: $\zeta = v\cdot w/\sqrt{n(1+s)} \sim N(0,1)$ exactly (up to the projection), and

$$ \mathrm{err}_k = \Phi\!\left(-\frac{\rho^2 n_k}{\sqrt{n\,(d + (1+s)^2\zeta^2)}}\right). $$
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.open_questions.noise_laws.covariance import AutoRegressive, Covariance, Diagonal, Spiked
from attnbook.open_questions.noise_laws.laws import NoiseLaw, log10_error
from attnbook.open_questions.noise_laws.study import strength_to_norm
from attnbook.single_head.mean_field import mean_field_log10_error
from attnlib import checks
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.law import SignalNoiseLaw


def two_trace_log10_error(
    law: NoiseLaw, step_size: float, clean: torch.Tensor, noisy: torch.Tensor, traces: tuple[float, float]
) -> torch.Tensor:
    """Mean-field log10 of the clean error (R,) after two steps, from the label counts and (tr Sigma, tr Sigma^2)."""
    first, second = (checks.positive_number("traces", trace) for trace in traces)
    # Tokens in units of sqrt(tr Sigma / d): the same scores at squared length d.
    ratio = first / law.d
    white = SignalNoiseLaw(law.n, law.d, law.signal_norm / math.sqrt(ratio))
    return mean_field_log10_error(white, step_size * ratio, clean, noisy, fresh_square=second / ratio**2)


def two_level(d: int, trace: float, trace_square: float) -> Diagonal:
    r"""Eigenvalues $\lambda$ on a share f of the axes and 1/100 on the others, with the given traces divided by d.

    Raises ValueError where no such pair exists.
    """
    low = 0.01
    # f lambda + (1-f) low = t and f lambda^2 + (1-f) low^2 = q  =>  f (lambda - low) = t - low, lambda + low = (q - low^2)/(t - low).
    if trace <= low:
        raise ValueError(f"trace must exceed {low}; got {trace!r}")
    high = (trace_square - low**2) / (trace - low) - low
    share = (trace - low) / (high - low) if high > low else math.inf
    if not 0 < share <= 1:
        raise ValueError(
            f"trace_square must be at least trace squared; got trace {trace!r}, trace_square {trace_square!r}"
        )
    count = round(share * d)
    return Diagonal(np.r_[np.full(count, high), np.full(d - count, low)])


@dataclass(frozen=True)
class TraceRow:
    """One covariance after two steps. Per draw (R,)."""

    name: str
    traces: tuple[float, float]  # tr Sigma / d and tr Sigma^2 / d
    log10_error: torch.Tensor  # exact
    predicted: torch.Tensor  # two-trace mean field
    swapped: torch.Tensor  # with the two traces exchanged
    pull: torch.Tensor  # mean y_i v_1 . xi_i over the samples, in units of beta d / 4n


def trace_rows(
    covariances: dict[str, Covariance], n: int, d: int, step_size: float, strength: float, *, draws: int = 20, seed: int = 0
) -> list[TraceRow]:  # fmt: skip
    """Two steps for each covariance, no flips, one signal norm: n rho^2 / d = strength. Raises ValueError for a bad argument."""
    checks.whole_number("draws", draws, at_least=2)
    rows = []
    for name, covariance in covariances.items():
        law = NoiseLaw(n, d, strength_to_norm(strength, n, d), covariance=covariance)
        sample = law.draw(seed, draws, coordinates="dense")
        steps = two_steps(sample, step_size)
        traces = covariance.traces(d)
        noise = sample.noise_tokens()[:, :, 0]
        pull = (sample.labels * torch.einsum("rnm,rm->rn", noise, steps.v1)).mean(1)
        clean, noisy = sample.counts()
        rows.append(
            TraceRow(
                name,
                (traces[0] / d, traces[1] / d),
                log10_error(steps.v2, steps.p2, sample),
                two_trace_log10_error(law, step_size, clean, noisy, traces),
                two_trace_log10_error(law, step_size, clean, noisy, traces[::-1]),
                pull / (step_size * d / (4 * n)),
            )
        )
    return rows


@dataclass(frozen=True)
class SpikeDraws:
    """Many draws of one spike strength, two small steps. All (R,)."""

    strength: float
    zeta: torch.Tensor  # v_1 . w over its standard deviation
    log10_error: torch.Tensor  # exact
    from_zeta: torch.Tensor  # the formula above with the draw's own zeta and class counts
    one_power: torch.Tensor  # the same with (1 + s) zeta^2 in place of (1 + s)^2 zeta^2
    quantiles: torch.Tensor  # (Q,) predicted quantiles of log10 err, from normal zeta and the draws' counts
    levels: torch.Tensor  # (Q,)


def _spike_formula(law: NoiseLaw, counts: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    argument = -(law.signal_norm**2) * counts / torch.sqrt(law.n * variance).unsqueeze(-1)
    return (torch.logsumexp(torch.special.log_ndtr(argument), -1) - math.log(2)) / math.log(10)


def spike_draws(
    strength: float, n: int, d: int, step_size: float, signal_strength: float, *, draws: int = 200, seed: int = 0
) -> SpikeDraws:
    """Two steps without label noise under one spike, `draws` times. Raises ValueError for a bad argument."""
    checks.whole_number("draws", draws, at_least=2)
    spike = Spiked(strength)
    law = NoiseLaw(n, d, strength_to_norm(signal_strength, n, d), 0.0, covariance=spike)
    errors, along, counts = [], [], []
    for first in range(0, draws, 20):
        sample = law.draw(seed, min(20, draws - first), first_run=first, coordinates="dense")
        steps = two_steps(sample, step_size)
        errors.append(log10_error(steps.v2, steps.p2, sample))
        noise_part = steps.v1 - torch.einsum("rk,rkm->rm", steps.lambda1, sample.signals)
        along.append(torch.as_tensor(spike.along(noise_part.numpy())) / steps.theta1)
        counts.append(sample.counts()[0])
    counts = torch.cat(counts)
    zeta = torch.cat(along) / math.sqrt(n * (1 + strength))
    levels = torch.arange(1, 20, dtype=torch.float64) / 20
    # Law of the error: zeta at midpoints of its quantiles, every draw's class counts with each.
    grid = torch.special.ndtri((torch.arange(400, dtype=torch.float64) + 0.5) / 400)
    every = _spike_formula(law, counts.repeat(400, 1), d + ((1 + strength) * grid.repeat_interleave(draws)) ** 2)
    return SpikeDraws(
        strength,
        zeta,
        torch.cat(errors),
        _spike_formula(law, counts, d + ((1 + strength) * zeta) ** 2),
        _spike_formula(law, counts, d + (1 + strength) * zeta**2),
        torch.quantile(every, levels),
        levels,
    )


def default_covariances(d: int) -> dict[str, Covariance]:
    """Two correlated laws, and three spectra in which one trace stays where it is and the other doubles."""
    return {
        "white": Covariance(),
        "AR(1) .5": AutoRegressive(0.5),
        "AR(1) .8": AutoRegressive(0.8),
        "twice tr Σ²": two_level(d, 1.0, 2.0),
        "half tr Σ": two_level(d, 0.5, 1.0),
    }
