"""What page `07_assumptions_under_stress` measures: two steps under stressed laws, a row per value of an assumption, many draws a row."""

import math
from dataclasses import replace
from types import SimpleNamespace

import torch

from attnbook.single_head.variants import StressedLaw, mean_field_step, same_noise_pull, stretched
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.errors import (
    clean_error_conditioned,
    clean_error_sampled,
    log10_clean_error,
    log10_error_of_scores,
    scores_of_fresh_data,
)
from attnlib.single_head.training import gradient_descent

_CHUNK_BYTES = 16 << 20  # tokens held at once
DIMENSIONS = (1 / 128, 1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # d / n^2
LABEL_NOISE = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
CLASSES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
NORM_RATIOS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
COSINES = (-0.95, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 0.9)
SIGNAL_FACTORS = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0)  # of the signal norm
TOKENS = (2, 3, 4, 6, 8, 16, 32)
_DENSE_LAW = StressedLaw(
    20, 400, 4.0, 0.1, class_probability=0.7, norm_ratio=1.3, cosine=0.3, noise_avoids_signals=False
)


def _joined(parts):
    """A namespace of tensors from one dictionary a chunk of draws."""
    return SimpleNamespace(**{name: torch.cat([part[name] for part in parts]) for name in parts[0]})


def _per_class_mean(sample, values, mask):
    of_class = torch.stack([sample.signal_class == 0, sample.signal_class == 1], dim=1) & mask.unsqueeze(1)
    return (values.unsqueeze(1) * of_class).sum(-1) / of_class.sum(-1)


def measure(law, step_size, value, *, draws, seed):
    """Two steps on R training sets of a two-token law. Errors are log10; last axis 2 is the class; preferences in units of a.

    value: of the assumption that is varied.
    """
    size = max(1, min(draws, _CHUNK_BYTES // (16 * law.n * (min(law.n, law.d) + 2))))
    parts = []
    for first in range(0, draws, size):
        sample = law.draw(seed, min(size, draws - first), first_run=first)
        path = gradient_descent(sample, step_size, 2, record=[2])
        field = mean_field_step(law, step_size, *sample.counts())
        noise = sample.noise_tokens()[:, :, 0] / law.noise_std
        gram = noise @ noise.mT
        apart = gram - torch.diag_embed(torch.diagonal(gram, dim1=1, dim2=2))
        gamma = two_steps(sample, step_size).preference
        parts.append({
            "interpolates": path.interpolates[-1],
            "log10_error": log10_clean_error(path.v[-1], path.p[-1], sample, per_class=True),  # (R, 2), exact
            "mean_field": field.log10_error(per_class=True),  # from the draw's label counts
            # (R, 2), over the clean samples of a class, nan without any; and b_k
            "preference": _per_class_mean(sample, gamma, ~sample.noisy) / field.a,
            "signal_pull": field.b / field.a,
            # (R,): max_i |sum over j != i of y_j xi_j . xi_i| / d, and n max |xi_i . xi_j| / d
            "cross_term": torch.einsum("rij,rj->ri", apart, sample.labels).abs().amax(1) / law.d,
            "crude_bound": law.n * apart.abs().amax((1, 2)) / law.d,
        })  # fmt: skip
    return SimpleNamespace(value=value, law=law, **vars(_joined(parts)))


def measure_tokens(law, step_size, tokens, *, draws, seed, count):
    """The same with T tokens at the step size that keeps the pull a, (R,) each; the error by `count` draws of the fresh attention."""
    step_size = same_noise_pull(step_size, tokens)
    law, parts = replace(law, tokens=tokens), []
    # Mean square of a noise token relative to the d of mean field: projection takes two dimensions away.
    level = (law.d - 2) / law.d if law.noise_avoids_signals else 1.0

    def mean(values, mask):
        return (values * mask).sum(1) / mask.sum(1)

    for run in range(draws):
        sample = law.draw(seed, first_run=run)
        path = gradient_descent(sample, step_size, 2, record=[1, 2])
        v, p = path.v[-1], path.p[-1]
        if tokens == 2:
            error = 10 ** log10_clean_error(v, p, sample)
            standard_error = torch.zeros_like(error)
        else:
            estimate = clean_error_conditioned(v, p, sample, count)
            error, standard_error = estimate.value, estimate.standard_error
        field = mean_field_step(law, step_size, *sample.counts())
        own_b = field.b.gather(1, sample.signal_class) / field.a
        clean, flipped = (~sample.noisy).double(), sample.noisy.double()
        parts.append({
            "fits_after_one": path.interpolates[0], "interpolates": path.interpolates[-1],
            "error": error, "standard_error": standard_error,
            "preference": mean(two_steps(sample, step_size).preference / field.a, clean),
            "predicted_preference": mean(own_b, clean) - level,
            # of the flipped samples after one step, times T / a, nan without any; their mean b / a; and their number
            "flipped_margin": tokens * mean(path.margins[0], flipped) / field.a,
            "flipped_signal_pull": mean(own_b, flipped), "flipped": flipped.sum(1),
        })  # fmt: skip
    return SimpleNamespace(tokens=tokens, **vars(_joined(parts)))


def stress_study(law, step_size, *, draws=40, seed=0, count=5000):
    """Let go of one assumption at a time, from `law` on: `rows[name]` in increasing order of the value varied, and `tokens`.

    `d` varies with n SNR^2 and beta d / n kept; tokens are varied at n / 4 samples and d / 20 (memory).
    """
    same = {"draws": draws, "seed": seed}

    def at_dimension(base, d, value):
        return measure(*stretched(base, d, step_size), value, **same)

    s = SimpleNamespace(law=law, step_size=step_size, **same)
    s.rows = {"dimension": [at_dimension(law, max(3, round(f * law.n**2)), f) for f in DIMENSIONS]}
    s.rows["label_noise_large_d"] = [at_dimension(replace(law, label_noise=x), 100 * law.d, x) for x in LABEL_NOISE]
    for name, values in (
        ("label_noise", LABEL_NOISE), ("class_probability", CLASSES), ("norm_ratio", NORM_RATIOS), ("cosine", COSINES),
    ):  # fmt: skip
        s.rows[name] = [measure(replace(law, **{name: value}), step_size, value, **same) for value in values]
    for name, avoids in (("projected", True), ("isotropic", False)):
        laws = [(f, replace(law, signal_norm=f * law.signal_norm, noise_avoids_signals=avoids)) for f in SIGNAL_FACTORS]
        s.rows[name] = [measure(x, step_size, f, **same) for f, x in laws]
    small, small_step = stretched(law, law.d // 20, step_size)
    # n SNR^2 and beta d / n at a quarter of the samples
    small, small_step = replace(small, n=law.n // 4, signal_norm=2 * small.signal_norm), small_step / 4
    s.tokens = [measure_tokens(small, small_step, T, count=count, **same) for T in TOKENS]
    return s


def row_at(rows, value):
    """The row at one value."""
    return next(row for row in rows if math.isclose(row.value, value))


def benign(row):
    """The conclusion: every draw fits every label, and each class's error, averaged over draws, is below 1 %."""
    return bool(row.interpolates.all()) and bool(((10**row.log10_error).mean(0) < 0.01).all())


def holds_over(rows, start):
    """First and last value of the unbroken run of benign rows around the value `start`, None when that one is not benign."""
    low = high = next(i for i, row in enumerate(rows) if math.isclose(row.value, start))
    if not benign(rows[low]):
        return None
    while low > 0 and benign(rows[low - 1]):
        low -= 1
    while high < len(rows) - 1 and benign(rows[high + 1]):
        high += 1
    return rows[low].value, rows[high].value


# --- further draws, for the claims -------------------------------------------------------------------------------------------


def projected_error(v, p, sample):
    """The clean error's formula for projected noise, whatever the sample's noise: wrong for a law without projection."""
    scores = scores_of_fresh_data(v, p, replace(sample, law=replace(sample.law, noise_avoids_signals=True)))
    return 10 ** log10_error_of_scores(scores, class_probability=sample.law.class_probability)


def assumption_study(stress):
    """Further draws, at the law, step size, draws and seed of `stress`: all (R,)."""
    law, step, draws, seed = stress.law, stress.step_size, stress.draws, stress.seed
    s = SimpleNamespace(stress=stress)

    def trained(law, step_size, **how):
        sample = law.draw(seed, draws, **how)
        path = gradient_descent(sample, step_size, 2, record=[2])
        return path.v[-1], path.p[-1], sample

    # log10 errors at eta = 0: n, d = n^2; and twice the samples, four times d: signal norm times sqrt 2 and half the step keep n SNR^2
    # and beta d / n. Beside them those of orthogonal noise at the same numbers of samples in a class.
    quiet, quiet_step = stretched(replace(law, label_noise=0.0), law.n**2, step)
    double = replace(quiet, n=2 * law.n, d=4 * law.n**2, signal_norm=quiet.signal_norm * math.sqrt(2))
    pairs = []
    for x, beta in ((quiet, quiet_step), (double, quiet_step / 2)):
        *head, sample = trained(x, beta)
        pairs.append((log10_clean_error(*head, sample), mean_field_step(x, beta, *sample.counts()).log10_error()))
    s.scaled_error, s.scaled_limit = zip(*pairs, strict=True)

    # a dense stressed law: fresh d-vectors, the integral with the full covariance, and that for projected noise
    dense = trained(_DENSE_LAW, 0.2, coordinates="dense")
    s.counted_error = clean_error_sampled(*dense, 4000).value
    s.exact_error, s.projected_error = 10 ** log10_clean_error(*dense), projected_error(*dense)

    # log10 error over its prediction, and over that for projected noise
    isotropic = row_at(stress.rows["isotropic"], 1.0)
    projected = mean_field_step(law, step, *isotropic.law.draw(seed, draws).counts()).log10_error(per_class=True)
    s.isotropic_ratio = (isotropic.log10_error / isotropic.mean_field).mean(1)
    s.isotropic_ratio_projected = (isotropic.log10_error / projected).mean(1)
    return s
