r"""Two steps under other noise laws: the exact error formula against fresh vectors, the claims C1-C16, and which trace matters.

**Fresh points.** A fresh vector acts through $v\cdot\xi = R\,(A^\top\Pi v)\cdot z$ and $p\cdot\xi$. So one set of vectors z
serves every draw and every law with the same entries, and each point is counted under both classes. Given the training sets, the
points are independent: the standard error of a mean over points and draws is that of the points' own means over draws.

**Two-trace mean field.** Memorising looks at $\mathrm{tr}\,\Sigma$, cross terms and the test error at $\mathrm{tr}\,\Sigma^2$. In two steps
from zero a token enters through $|\xi_i|^2 \approx \mathrm{tr}\,\Sigma$, its pull is
$a = \beta\,\mathrm{tr}\,\Sigma/4n$, and a fresh vector sees $v = \sum_i c_i\xi_i$ with variance
$\sum_{ij} c_ic_j\,\xi_i^\top\Sigma\xi_j \approx \mathrm{tr}\,\Sigma^2\sum_i c_i^2$. So the mean-field scores are those of white noise with
$\mathrm{tr}\,\Sigma$ for d, the three covariances those with $\mathrm{tr}\,\Sigma^2$ for d. Source: derived; terms of relative order
$\sqrt{n\,\mathrm{tr}\,\Sigma^2}/\mathrm{tr}\,\Sigma$ per sample are left out.

**One spike.** With $\Sigma = I + s\,ww^\top$ and attention near one half, $v \propto \sum_i y_i(u_i + \xi_i)$ and $v\cdot w$ is one
Gaussian of variance $n(1+s)$: $\zeta = v\cdot w/\sqrt{n(1+s)} \sim N(0,1)$ exactly (up to the projection), and

$$ \mathrm{err}_k = \Phi\!\left(-\frac{\rho^2 n_k}{\sqrt{n\,(d + (1+s)^2\zeta^2)}}\right). $$
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.open_questions.noise import (
    AutoRegressive,
    Covariance,
    NoiseLaw,
    Rademacher,
    RadialT,
    Sparse,
    Spiked,
    StudentT,
    Uniform,
    log10_error,
    scores_at_scale_one,
    seen_by_noise,
    strength_to_norm,
    two_level,
)
from attnbook.open_questions.noise_laws.rate import universality_gaps
from attnbook.single_head.bound_by_bound.claims import CLAIMS as BOUNDS
from attnbook.single_head.mean_field import mean_field_log10_error
from attnbook.single_head.study import TwoStepStudy, measure_two_steps
from attnbook.single_head.two_steps.claims import CLAIMS as TWO_STEPS
from attnlib.randomness import stream
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.errors import log10_clean_error, noisy_error
from attnlib.single_head.law import SignalNoiseLaw
from bookkit.claims import Verdict

LAWS = {
    "Gaussian": {},
    "Rademacher": {"entries": Rademacher()},
    "uniform": {"entries": Uniform()},
    "t10 entries": {"entries": StudentT(10.0)},
    "t5 entries": {"entries": StudentT(5.0)},
    "t3 entries": {"entries": StudentT(3.0)},
    "sparse 10 %": {"entries": Sparse(0.1)},
    "sparse 1 %": {"entries": Sparse(0.01)},
    "radial t10": {"scale": RadialT(10.0)},
    "radial t5": {"scale": RadialT(5.0)},
    "radial t3": {"scale": RadialT(3.0)},
    "AR(1) .5": {"covariance": AutoRegressive(0.5)},
    "AR(1) .9": {"covariance": AutoRegressive(0.9)},
    "spike 50": {"covariance": Spiked(50.0)},
    "spike 500": {"covariance": Spiked(500.0)},
    "not orthogonal": {"noise_avoids_signals": False},
}
_BLOCK = 2000  # fresh vectors held at once


# --- formula against fresh vectors -----------------------------------------------------------------------------------------


def law_named(name, n, d, strength, label_noise):
    """A row of `LAWS` at n SNR^2 = strength."""
    return NoiseLaw(n, d, strength_to_norm(strength, n, d), label_noise, **LAWS[name])


def _with_law(sample, law):
    """The same draws under a law that differs in the signal norm only."""
    ratio = law.signal_norm / sample.law.signal_norm
    tokens, runs = sample.tokens.clone(), torch.arange(sample.runs).unsqueeze(1)
    tokens[runs, torch.arange(law.n), sample.signal_position] *= ratio
    return replace(sample, law=law, tokens=tokens, signals=ratio * sample.signals)


def _train(name, sample, step_size):
    """Two steps of one law at one strength: the two formulas per draw (R,), for white noise and for the law itself, and the scores."""
    steps = two_steps(sample, step_size)
    v, p = steps.v2, steps.p2
    scores = scores_at_scale_one(v, p, sample)
    scored = torch.einsum("rntm,rcm->rntc", sample.tokens, torch.stack([v, p], 1))
    weight = torch.softmax(scored[..., 1], -1)
    fitted = sample.labels * (weight * scored[..., 0]).sum(-1) > 0
    return SimpleNamespace(
        name=name, law=sample.law, logit=scores.logit, value=scores.value,
        v_seen=seen_by_noise(v, sample), p_seen=seen_by_noise(p, sample),
        white=10 ** log10_clean_error(v, p, sample), formula=10 ** log10_error(v, p, sample),
        train_accuracy=fitted.double().mean(-1),
    )  # fmt: skip


def _count_errors(group, entries, points, seed):
    """To every row of the group: the share of fresh points misclassified, `sampled` (R,), its mean, and that mean's standard error.

    Every member sees the same fresh entries z; scales have their own stream.
    """
    rng, scale_rng = stream(seed, "test"), np.random.Generator(stream(seed, "test").bit_generator.jumped())
    directions = torch.cat([torch.cat([row.v_seen, row.p_seen]) for row in group]).T.contiguous()  # (d, columns)
    d, runs = directions.shape[0], len(group[0].v_seen)
    per_point = [[] for _ in group]
    per_draw = [torch.zeros(runs, dtype=torch.float64) for _ in group]
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)
    for first in range(0, points, _BLOCK):
        size = min(_BLOCK, points - first)
        seen = torch.as_tensor(entries.draw(rng, (size, d))) @ directions
        for i, (row, scores) in enumerate(zip(group, seen.split(2 * runs, 1), strict=True)):
            if row.law.scale is not None:
                scores = scores * torch.as_tensor(row.law.scale.draw(scale_rng, (size, 1)))
            v_noise, p_noise = scores[:, :runs, None], scores[:, runs:, None]
            # s_k f / (1 - weight): its sign decides; one half for a tie.
            output = torch.exp(row.logit - p_noise) * row.value + sign * v_noise
            wrong = ((output < 0).double() + 0.5 * (output == 0).double()).mean(-1)  # (size, R), over both classes
            per_point[i].append(wrong.mean(1))
            per_draw[i] += wrong.sum(0)
    for row, means, sums in zip(group, per_point, per_draw, strict=True):
        means = torch.cat(means)
        row.points, row.sampled, row.sampled_mean = points, sums / points, means.mean().item()
        row.standard_error = means.std().item() / math.sqrt(points)  # given the training sets


def error_rows(
    n, d, label_noise, step_size, *, strengths=(0.5, 4.5), draws=10, points=16_000, seed=0, names=tuple(LAWS)
):
    """Two steps and fresh points for every law named: one row per n SNR^2 in `strengths`."""
    found, groups = {name: [] for name in names}, {}
    for name in names:
        law = law_named(name, n, d, strengths[0], label_noise)
        drawn = law.draw(seed, draws, coordinates="dense")  # once for every strength: noise costs the most
        for strength in strengths:
            row = _train(name, _with_law(drawn, law_named(name, n, d, strength, label_noise)), step_size)
            found[name].append(row)
            groups.setdefault("normal" if law.entries.gaussian else repr(law.entries), []).append(row)
    for group in groups.values():
        _count_errors(group, group[0].law.entries, points, seed)
    return found


# --- claims C1-C16 ---------------------------------------------------------------------------------------------------------


def study_of(row, step_size, seed):
    """What the judges of C1-C16 look at, from the draws of `row`; their error formula is the one for white Gaussian noise.

    The error with label noise is the row's share of misclassified fresh points, its labels flipped with probability eta.
    """
    draws, law = len(row.sampled), row.law
    found = measure_two_steps(law.draw(seed, draws, coordinates="dense"), step_size, 1)
    found["sampled_noisy_error2"] = noisy_error(row.sampled, law.label_noise)
    return TwoStepStudy(law=law, step_size=step_size, delta=0.01, **found)


def claim_matrix(rows, step_size, *, seed=0):
    """law -> claim -> `Check` by the judges of pages I.2 and I.10, on the draws of `error_rows` at its last strength."""
    studies = {name: study_of(row[-1], step_size, seed) for name, row in rows.items()}
    return {
        name: {check.claim.id: check for check in [*BOUNDS.check(study), *TWO_STEPS.check(study)]}
        for name, study in studies.items()
    }


def broken(matrix, name):
    """Claims that fail under the law and hold for Gaussian noise of the same size."""
    return {
        id
        for id, check in matrix[name].items()
        if check.verdict is Verdict.FAILS and matrix["Gaussian"][id].verdict is Verdict.HOLDS
    }


# --- two traces, one spike -------------------------------------------------------------------------------------------------


def two_trace_log10_error(law, step_size, clean, noisy, traces):
    """Mean-field log10 of the clean error (R,) after two steps, from the label counts and (tr Sigma, tr Sigma^2)."""
    first, second = traces
    # Tokens in units of sqrt(tr Sigma / d): the same scores at squared length d.
    ratio = first / law.d
    white = SignalNoiseLaw(law.n, law.d, law.signal_norm / math.sqrt(ratio))
    return mean_field_log10_error(white, step_size * ratio, clean, noisy, fresh_square=second / ratio**2)


def default_covariances(d):
    """Two correlated laws, and three spectra in which one trace stays where it is and the other doubles."""
    return {
        "white": Covariance(),
        "AR(1) .5": AutoRegressive(0.5),
        "AR(1) .8": AutoRegressive(0.8),
        "twice tr Σ²": two_level(d, 1.0, 2.0),
        "half tr Σ": two_level(d, 0.5, 1.0),
    }


def trace_rows(covariances, n, d, step_size, strength, *, draws=20, seed=0):
    """Two steps for each covariance, no flips, one signal norm: n rho^2 / d = strength.

    Per draw (R,): the exact error, that of the two-trace mean field and the same with the traces exchanged, and the mean of
    y_i v_1 . xi_i over the samples in units of beta d / 4n. traces: tr Sigma / d and tr Sigma^2 / d.
    """
    rows = []
    for name, covariance in covariances.items():
        law = NoiseLaw(n, d, strength_to_norm(strength, n, d), covariance=covariance)
        sample = law.draw(seed, draws, coordinates="dense")
        steps, traces, counts = two_steps(sample, step_size), covariance.traces(d), sample.counts()
        pull = (sample.labels * torch.einsum("rnm,rm->rn", sample.noise_tokens()[:, :, 0], steps.v1)).mean(1)
        row = SimpleNamespace(
            name=name,
            traces=(traces[0] / d, traces[1] / d),
            log10_error=log10_error(steps.v2, steps.p2, sample),
            predicted=two_trace_log10_error(law, step_size, *counts, traces),
            swapped=two_trace_log10_error(law, step_size, *counts, traces[::-1]),
            pull=pull / (step_size * d / (4 * n)),
        )
        rows.append(row)
    return rows


def _spike_formula(law, counts, variance):
    argument = -(law.signal_norm**2) * counts / torch.sqrt(law.n * variance).unsqueeze(-1)
    return (torch.logsumexp(torch.special.log_ndtr(argument), -1) - math.log(2)) / math.log(10)


def spike_draws(strength, n, d, step_size, signal_strength, *, draws=200, seed=0):
    """Two small steps without label noise under one spike, `draws` times.

    All (R,): zeta, v_1 . w over its standard deviation; the exact error; the formula above with the draw's own zeta and class counts,
    `from_zeta`; the same with (1 + s) zeta^2 in place of (1 + s)^2 zeta^2, `one_power`. At `levels` (Q,) the predicted quantiles of the
    error, from normal zeta and the draws' counts.
    """
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
    counts, zeta = torch.cat(counts), torch.cat(along) / math.sqrt(n * (1 + strength))
    levels = torch.arange(1, 20, dtype=torch.float64) / 20
    # Law of the error: zeta at midpoints of its quantiles, every draw's class counts with each.
    grid = torch.special.ndtri((torch.arange(400, dtype=torch.float64) + 0.5) / 400)
    every = _spike_formula(law, counts.repeat(400, 1), d + ((1 + strength) * grid.repeat_interleave(draws)) ** 2)
    return SimpleNamespace(
        zeta=zeta,
        log10_error=torch.cat(errors),
        from_zeta=_spike_formula(law, counts, d + ((1 + strength) * zeta) ** 2),
        one_power=_spike_formula(law, counts, d + (1 + strength) * zeta**2),
        quantiles=torch.quantile(every, levels),
        levels=levels,
    )


def noise_study(n, d, label_noise, step, *, strengths=(0.5, 4.5), draws=10, points=16_000, seed=0):
    """Train and collect; `step` is beta d / n. Parts after `matrix` have a size of their own, whatever the page's parameters.

    Raises ValueError unless the second n SNR^2 of `strengths` is the larger one.
    """
    if not strengths[0] < strengths[1]:
        raise ValueError(f"strengths must be two values of n SNR^2, the smaller first; got {strengths!r}")
    step_size = step * n / d
    rows = error_rows(n, d, label_noise, step_size, strengths=strengths, draws=draws, points=points, seed=seed)
    N, D = 60, 4000
    small, large = 0.2 * N / D, 5 * N / D
    traces = {"draws": 10, "seed": seed}
    return SimpleNamespace(
        strengths=strengths,
        rows=rows,
        matrix=claim_matrix(rows, step_size, seed=seed),  # at the second strength
        rates={  # n = d/20, n SNR^2 = 0.5
            "t3 entries": universality_gaps(StudentT(3.0), (500, 1000, 2000, 4000), points=3000, seed=seed),
            "sparse 10 %": universality_gaps(Sparse(0.1), (1000, 2000, 4000), points=600, seed=seed),
            "sparse 1 %": universality_gaps(Sparse(0.01), (1000, 2000, 4000), points=600, seed=seed),
        },
        small=trace_rows(default_covariances(D), N, D, small, 1.0, **traces),
        large=trace_rows(default_covariances(D), N, D, large, 1.0, **traces),
        spike=spike_draws(200.0, N, D, small, 1.0, draws=200, seed=seed),
    )
