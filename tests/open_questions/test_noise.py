"""Noise of other laws: moments, square roots, draws, the exact error; and a token's scale tells nothing of its direction."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import ndtr
from scipy.stats import spearmanr

from attnbook.open_questions.noise import (
    AutoRegressive,
    Covariance,
    Diagonal,
    Entries,
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
)
from attnbook.open_questions.noise_laws.study import LAWS
from attnlib.randomness import stream
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.law import Sample, SignalNoiseLaw

SIZE = {"n": 12, "d": 30, "signal_norm": 3.0, "label_noise": 0.2}
RNG = np.random.default_rng(5)
COVARIANCES = {
    "identity": (Covariance(), np.eye(30)),
    "ar": (AutoRegressive(-0.7), (-0.7) ** np.abs(np.subtract.outer(np.arange(30), np.arange(30)))),
    "spiked": (Spiked(8.0), np.eye(30) + 8.0 / 30),
    "diagonal": (Diagonal(np.linspace(0.2, 3, 30)), np.diag(np.linspace(0.2, 3, 30))),
}


def dense(law, seed=0, runs=3):
    sample = law.draw(seed, runs, coordinates="dense")
    steps = two_steps(sample, 5 * law.n / law.d)
    return sample, steps.v2, steps.p2


# --- parts -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "fourth"),
    [(Entries(), 3.0), (Rademacher(), 1.0), (Uniform(), 1.8), (StudentT(12.0), 3.75), (Sparse(0.2), 15.0)],
)
def test_entries_have_mean_0_variance_1_and_the_stated_fourth_moment(entries, fourth):
    z = entries.draw(np.random.default_rng(1), (400, 1000))
    assert abs(z.mean()) < 4 / math.sqrt(z.size)
    for power, value in ((2, 1.0), (4, fourth)):
        values = z**power
        assert abs(values.mean() - value) <= 4 * values.std() / math.sqrt(z.size) + 1e-12
    assert entries.excess_kurtosis == pytest.approx(fourth - 3)


def test_shapes_of_single_entry_laws():
    rng = np.random.default_rng(3)
    assert set(np.unique(Rademacher().draw(rng, (50,)))) == {-1.0, 1.0}
    assert np.abs(Uniform().draw(rng, (1000,))).max() <= math.sqrt(3)
    assert (Sparse(0.1).draw(rng, (10, 1000)) != 0).mean() == pytest.approx(0.1, abs=0.02)
    t = StudentT(3.0).draw(rng, (20_000,)) * math.sqrt(3)
    assert stats.kstest(t, stats.t(3).cdf).pvalue > 1e-4
    assert StudentT(3.0).excess_kurtosis == math.inf


@pytest.mark.parametrize("freedom", [2.5, 3.0, 5.0, 10.0])
def test_radial_quadrature(freedom):
    scale = RadialT(freedom)
    R, w = scale.nodes()
    assert w.sum() == pytest.approx(1, abs=1e-10)
    assert (w / R**2).sum() == pytest.approx(scale.harmonic, rel=1e-10)

    def integrand(x):
        return ndtr(-2 / math.sqrt((freedom - 2) / x)) * stats.chi2(freedom).pdf(x)

    exact = integrate.quad(integrand, 0, 200, epsabs=1e-13, epsrel=1e-12, limit=500, points=[0.1, 1, 10])[0]
    assert (w * ndtr(-2 / R)).sum() == pytest.approx(exact, rel=1e-9)
    drawn = scale.draw(np.random.default_rng(4), (200_000,)) ** -2
    assert abs(drawn.mean() - scale.harmonic) < 4 * drawn.std() / math.sqrt(drawn.size)


@pytest.mark.parametrize("name", COVARIANCES)
def test_square_roots_adjoints_spectra_and_traces(name):
    covariance, matrix = COVARIANCES[name]
    root = covariance.times(np.eye(30)).T  # rows of times(I) are A e_j
    np.testing.assert_allclose(root @ root.T, matrix, atol=1e-12)
    v = RNG.standard_normal((4, 30))
    np.testing.assert_allclose(covariance.adjoint(v), v @ root, atol=1e-12)
    first, second = covariance.traces(30)
    assert first == pytest.approx(np.trace(matrix), rel=1e-12)
    assert second == pytest.approx((matrix**2).sum(), rel=1e-12)
    if name != "ar":
        np.testing.assert_allclose(np.sort(covariance.eigenvalues(30)), np.linalg.eigvalsh(matrix), atol=1e-10)


# --- draws -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coordinates", ["dense", "reduced"])
def test_defaults_draw_the_numbers_of_the_plain_law(coordinates):
    plain, law = SignalNoiseLaw(**SIZE), NoiseLaw(**SIZE)
    a, b = (x.draw(3, 2, coordinates=coordinates, start_vectors=2) for x in (plain, law))
    for name in ("tokens", "signals", "labels", "signal_position", "start_directions"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert b.coordinates == coordinates
    for x, y in zip(plain.draw_fresh(a, 7), law.draw_fresh(b, 7), strict=True):
        assert torch.equal(x, y)


def test_fresh_noise_has_the_covariance():
    covariance, matrix = COVARIANCES["ar"]
    law = NoiseLaw(**SIZE, covariance=covariance, scale=RadialT(8.0))
    sample = law.draw(0, 1, coordinates="dense")
    tokens, labels = law.draw_fresh(sample, 40_000)
    units = sample.avoided[0]
    projector = np.eye(30) - (units.mT @ units).numpy()
    direction = projector @ RNG.standard_normal(30)
    values = (tokens[0, :, 1].numpy() @ direction) ** 2
    exact = direction @ projector @ matrix @ projector @ direction
    assert abs(values.mean() - exact) < 4 * values.std() / 200
    assert torch.equal(tokens[0, :, 0], sample.signals[0][(labels[0] < 0).long()])


# --- error -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("avoids", [True, False])
@pytest.mark.parametrize("name", COVARIANCES)
def test_scores_are_those_of_the_matrices(name, avoids):
    covariance, matrix = COVARIANCES[name]
    sample, v, p = dense(NoiseLaw(**SIZE, covariance=covariance, noise_avoids_signals=avoids))
    scores = scores_at_scale_one(v, p, sample)
    for r in range(sample.runs):
        units = sample.signals[r].numpy() / 3.0
        projector = np.eye(30) - (units.T @ units if avoids else 0.0)
        a, b = v[r].numpy(), p[r].numpy()
        S = projector @ matrix @ projector
        vv, vp, pp = a @ S @ a, a @ S @ b, b @ S @ b
        assert scores.omega[r, 0].item() == pytest.approx(math.sqrt(pp), rel=1e-10)
        assert scores.along[r, 0].item() == pytest.approx(vp / math.sqrt(pp), rel=1e-9)
        assert scores.along[r, 1].item() == pytest.approx(-vp / math.sqrt(pp), rel=1e-9)
        assert scores.tau[r, 1].item() == pytest.approx(math.sqrt(vv - vp**2 / pp), rel=1e-9)
        assert scores.value[r, 1].item() == pytest.approx(-(sample.signals[r, 1].numpy() @ a), rel=1e-10)


def _by_quadrature(scores, run, k, scale=1.0):
    """err_k by a plain trapezoid rule, 20 000 points."""
    logit, value = scores.logit[run, k].item(), scores.value[run, k].item()
    omega, along, tau = (scale * getattr(scores, part)[run, k].item() for part in ("omega", "along", "tau"))
    t = np.linspace(-12, 12, 20_001)
    tail = ndtr(-(np.exp((logit - omega * t).clip(max=700)) * value + along * t) / tau)
    return (tail * stats.norm.pdf(t)).sum() * (t[1] - t[0])


def test_errors_are_the_integral_and_its_average_over_the_scale():
    plain = NoiseLaw(**SIZE, covariance=AutoRegressive(0.6))
    sample, v, p = dense(plain)
    scores = scores_at_scale_one(v, p, sample)
    found = 10 ** log10_error(v, p, sample, per_class=True)
    for r in range(2):
        for k in (0, 1):
            assert found[r, k].item() == pytest.approx(_by_quadrature(scores, r, k), rel=1e-10)
    mean = 10 ** log10_error(v, p, sample)
    torch.testing.assert_close(mean, found.mean(-1), rtol=1e-12, atol=0)
    radial = replace(sample, law=replace(plain, scale=RadialT(3.0)))
    found = 10 ** log10_error(v, p, radial, per_class=True)
    grid = np.linspace(-14, 5, 400)  # log of chi^2_3, another rule
    density = stats.chi2(3.0).pdf(np.exp(grid)) * np.exp(grid) * (grid[1] - grid[0])
    exact = sum(
        w * _by_quadrature(scores, 0, 0, math.sqrt(1 / math.exp(x))) for x, w in zip(grid, density, strict=True)
    )
    assert found[0, 0].item() == pytest.approx(exact, rel=1e-6)
    assert abs(found[0, 0].item() / _by_quadrature(scores, 0, 0) - 1) > 0.02


def test_seen_by_noise_is_the_derivative_of_the_score_in_z():
    law = NoiseLaw(**SIZE, covariance=AutoRegressive(0.6))
    sample, v, _ = dense(law, runs=1)
    units = sample.avoided[0].numpy()
    z = RNG.standard_normal((50, 30))
    noise = law.covariance.times(z)
    noise = noise - noise @ units.T @ units
    np.testing.assert_allclose(noise @ v[0].numpy(), z @ seen_by_noise(v, sample)[0].numpy(), rtol=1e-9, atol=1e-12)


# --- scales: rank correlations over 20 000 tokens of each law, however they are drawn --------------------------------------

RUNS, N, D = 400, 56, 8


def noise(law: SignalNoiseLaw, sample: Sample, how: str) -> np.ndarray:
    """(RUNS, 50 or more, columns): the noise tokens of many training sets, or the fresh points beside them."""
    if how == "fresh":
        return law.draw_fresh(sample, N)[0][:, :, 1].numpy()
    tokens = sample.noise_tokens().squeeze(2).numpy()
    # Reduced: two columns are the signals', and the first tokens span the others one by one.
    return tokens if how == "dense" else tokens[:, D - 2 :, 2:]


def without_scale(law: NoiseLaw, sample: Sample, how: str) -> np.ndarray:
    """The same tokens with R = 1, made without the code under test."""
    if how == "reduced":
        plain = SignalNoiseLaw(N, D, 3.0)
        return noise(plain, plain.draw(7, RUNS), how)
    found = np.empty((RUNS, N, D))
    for run, units in enumerate(sample.avoided.numpy()):
        rng = stream(7, "test" if how == "fresh" else "noise", run)
        if how == "fresh":
            rng.integers(0, 2, N)  # the classes, drawn first
            vectors = law.entries.draw(rng, (N, D))
        else:
            vectors = law.entries.draw(rng, (N, 2, D))[np.arange(N), 1 - sample.signal_position[run].numpy()]
        found[run] = law.noise_std * law.covariance.times(vectors)
        found[run] -= found[run] @ units.T @ units
    return found


@pytest.mark.parametrize("name", LAWS)
def test_the_scale_is_independent_of_the_direction(name: str) -> None:
    """R is the ratio of two norms, for a law shares its directions with the one without scale. Laws without a scale are given one."""
    law = replace(NoiseLaw(N, D, 3.0, **LAWS[name]), scale=LAWS[name].get("scale", RadialT(3.0)))
    for how in ("dense", "fresh", *["reduced"] * law.rotation_invariant):
        sample = law.draw(7, RUNS, coordinates="dense" if how == "fresh" else how)
        plain, scaled = without_scale(law, sample, how), noise(law, sample, how)
        norms = np.linalg.norm(plain, axis=-1)
        kept = norms > 1e-6  # a sparse token may be zero
        scales = np.where(kept, np.linalg.norm(scaled, axis=-1) / np.where(kept, norms, 1), np.nan)
        np.testing.assert_allclose(scaled[kept], (scales[..., None] * plain)[kept], rtol=1e-9, atol=1e-12)
        assert len(np.unique(scales[kept].round(9))) > 0.99 * kept.sum(), how  # each token has its own
        u = plain / np.where(kept, norms, 1)[..., None]
        for what, values in {"u_1": u[..., 0], "|u_1|": abs(u[..., 0]), "max |u_i|": abs(u).max(-1)}.items():
            for which, some in {"all tokens": np.s_[:, :], "the first of each stream": np.s_[:, :1]}.items():
                chosen = kept[some]
                errors = spearmanr(scales[some][chosen], values[some][chosen]).statistic * math.sqrt(chosen.sum() - 1)
                assert abs(errors) < 4, f"{how}, {which}: R and {what} are correlated, {errors:.1f} standard errors"
