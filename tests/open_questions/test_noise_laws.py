"""Noise laws: moments, square roots of covariances, draws, and the exact error against matrices, quadrature and counting."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import ndtr

from attnbook.open_questions.noise_laws.covariance import AutoRegressive, Covariance, Diagonal, Spiked
from attnbook.open_questions.noise_laws.laws import (
    NoiseLaw,
    effective_trace,
    log10_error,
    scores_at_scale_one,
    seen_by_noise,
)
from attnbook.open_questions.noise_laws.parts import Entries, Rademacher, RadialT, Sparse, StudentT, Uniform
from attnbook.single_head.coordinates import reduce
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.law import SignalNoiseLaw
from tests.bad_input import refusing

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
    covariance.check(30)
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


# --- effective trace -------------------------------------------------------------------------------------------------------


def test_effective_trace():
    assert effective_trace(Covariance(), 500, 60) == pytest.approx(440, rel=1e-12)
    for covariance in (AutoRegressive(0.9), Spiked(300.0), Diagonal(np.linspace(0.1, 4, 500))):
        D = effective_trace(covariance, 500, 60)
        values = covariance.eigenvalues(500)
        assert (values / (1 + 60 * values / D)).sum() == pytest.approx(D, rel=1e-10)
        assert D < covariance.traces(500)[0]
    n = 60
    limit = 499 * n / (n - 1) - n
    assert effective_trace(Spiked(1e12), 500, n) == pytest.approx(limit, rel=1e-6)
    assert effective_trace(Diagonal(np.full(500, 7.0)), 500, n) == pytest.approx(7 * 440, rel=1e-10)


# --- refusals --------------------------------------------------------------------------------------------------------------


test_bad_arguments = refusing(
    (lambda: Diagonal(np.array([1.0, 0.0])), "variances must be d finite numbers > 0"),
    (lambda: AutoRegressive(1.0), r"correlation must be in \(-1, 1\).*positive definite"),
    (lambda: Spiked(-1.0), "strength must be > -1.*positive definite"),
    (lambda: StudentT(2.0), "freedom must be > 2"),
    (RadialT, (), {"freedom": [1.0, math.nan]}),
    (Sparse, (), {"share": [0.0, 1.2]}),
    (lambda: Rademacher().mixing(RNG, (2,)), "entries must be a scale mixture"),
    (lambda: Uniform().mixing(RNG, (2,)), "entries must be a scale mixture"),
    (lambda: NoiseLaw(**SIZE, covariance=Diagonal(np.ones(7))), "variances must hold d = 30 numbers; got 7"),
    (lambda: NoiseLaw(**SIZE, entries="gaussian"), "entries must be an Entries; got str"),
    (lambda: NoiseLaw(**SIZE, scale=3.0), "scale must be a RadialT or None"),
    (lambda: NoiseLaw(**SIZE, entries=Rademacher()).draw(0), "coordinates must be 'dense'"),
    (lambda: NoiseLaw(**SIZE, covariance=Spiked(1.0)).draw(0), "coordinates must be 'dense'"),
    (lambda: RadialT(3.0).nodes(0.0), "spacing must be"),
    (lambda: effective_trace(Covariance(), 10, 10), "d must exceed n"),
)


def test_reduced_samples_of_such_laws_have_no_fresh_points_and_three_tokens_no_formula():
    law = NoiseLaw(8, 60, 3.0, entries=Rademacher())
    small = reduce(law.draw(0, 1, coordinates="dense"))
    with pytest.raises(ValueError, match="sample must be dense, d = 60 columns"):
        law.draw_fresh(small, 5)
    law = NoiseLaw(8, 60, 3.0, tokens=3)
    sample = law.draw(0, 1, coordinates="dense")
    v = torch.ones(1, 60, dtype=torch.float64)
    with pytest.raises(ValueError, match="tokens must be 2 for the exact formula"):
        log10_error(v, v, sample)
