"""Noise laws, two steps and long training under them: moments, draws, exact and counted errors, rates, traces, fates, judges."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import ndtr

from attnbook.open_questions.noise_laws import rate as noise_rate
from attnbook.open_questions.noise_laws.claims import CLAIMS, NoiseStudy, _with_points, noise_study
from attnbook.open_questions.noise_laws.covariance import AutoRegressive, Covariance, Diagonal, Spiked
from attnbook.open_questions.noise_laws.laws import (
    NoiseLaw,
    effective_trace,
    log10_error,
    scores_at_scale_one,
    seen_by_noise,
)
from attnbook.open_questions.noise_laws.long_runs import correlated_fates, noise_costs, norms_only, radial_fates
from attnbook.open_questions.noise_laws.long_study import long_noise_study
from attnbook.open_questions.noise_laws.parts import Entries, Rademacher, RadialT, Sparse, StudentT, Uniform
from attnbook.open_questions.noise_laws.rate import universality_gaps
from attnbook.open_questions.noise_laws.study import claim_matrix, error_rows, law_named, strength_to_norm
from attnbook.open_questions.noise_laws.traces import spike_draws, trace_rows, two_level, two_trace_log10_error
from attnbook.single_head.coordinates import reduce
from attnbook.single_head.long_run import law_at, small_then_long, train
from attnbook.single_head.margin import pattern_costs, tokens_of
from attnlib.randomness import stream
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.model import forward
from attnlib.single_head.training import gradient_descent
from bookkit.rules import LEVEL, mean_within
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


SMALL = (30, 240, 0.1, 5 * 30 / 240)


# --- counting --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t5 entries", "radial t3", "AR(1) .9", "not orthogonal"])
def test_counted_errors_are_those_of_whole_vectors(name):
    n, d, eta, beta = 10, 40, 0.1, 1.0
    row = error_rows(n, d, eta, beta, strengths=(2.0,), draws=3, points=300, seed=4, names=[name])[name][0]
    law = law_named(name, n, d, 2.0, eta)
    sample = law.draw(4, 3, coordinates="dense")
    path = gradient_descent(sample, beta, 2)
    z = law.entries.draw(stream(4, "test"), (300, d))
    scale = np.ones((300, 1))
    if law.scale is not None:
        scale = law.scale.draw(np.random.Generator(stream(4, "test").bit_generator.jumped()), (300, 1))
    wrong = torch.zeros(3, 300, 2)
    for r in range(3):
        noise = torch.as_tensor(scale * law.covariance.times(z))
        units = sample.avoided[r]
        noise = noise - (noise @ units.mT) @ units
        for k, sign in ((0, 1.0), (1, -1.0)):
            tokens = torch.stack([sample.signals[r, k].expand_as(noise), noise], 1).unsqueeze(0)
            output = forward(tokens, path.v[-1, r : r + 1], path.p[-1, r : r + 1]).output[0]
            wrong[r, :, k] = (sign * output < 0).float()
    torch.testing.assert_close(row.sampled, wrong.mean((1, 2)).double())
    means = wrong.mean((0, 2)).double()
    assert row.sampled_mean == pytest.approx(means.mean().item())
    assert row.standard_error == pytest.approx(means.std().item() / math.sqrt(300))
    torch.testing.assert_close(row.train_accuracy, path.train_accuracy[-1])
    torch.testing.assert_close(row.formula, 10 ** log10_error(path.v[-1], path.p[-1], sample), rtol=1e-9, atol=0)


# --- rate ------------------------------------------------------------------------------------------------------------------


def test_gaps_are_those_of_vectors_and_follow_the_expansion():
    row = universality_gaps(Sparse(0.1), (600,), draws=4, points=4000)[0]
    assert row.n == 30
    law = NoiseLaw(30, 600, strength_to_norm(0.5, 30, 600), 0.1, entries=Sparse(0.1))
    sample = law.draw(0, 4, coordinates="dense")
    steps = two_steps(sample, 0.25)
    torch.testing.assert_close(row.formula, 10 ** log10_error(steps.v2, steps.p2, sample), rtol=1e-9, atol=0)
    # Whole vectors, counted: the truth lies where the gap says, and the formula does not.
    z = torch.as_tensor(Sparse(0.1).draw(np.random.default_rng(0), (40_000, 600)))
    scores = scores_at_scale_one(steps.v2, steps.p2, sample)
    v, p = (z @ seen_by_noise(x, sample).mT for x in (steps.v2, steps.p2))
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)
    output = torch.exp(scores.logit - p.unsqueeze(-1)) * scores.value + sign * v.unsqueeze(-1)
    points = (output < 0).double().mean((1, 2))
    counted, error = points.mean().item(), points.std().item() / 200
    assert abs(row.truth.mean().item() - counted) < 4 * error + 4 * row.standard_error
    assert row.gap == pytest.approx(row.expansion.mean().item(), abs=4 * row.standard_error + 0.15 * abs(row.gap))
    assert abs(row.gap) > 20 * row.standard_error


def test_slopes_and_curvatures_of_the_error():
    row = [torch.tensor([[2.0, -0.7, 0.9]]), torch.tensor([[0.3, -0.2]]), torch.tensor([[1.1, 0.8]])]
    S, logit, value = (x.double() for x in row)
    slopes = noise_rate._slopes(S, logit, value)
    for a in range(3):
        shift = torch.zeros_like(S)
        shift[0, a] = 1e-3
        four = [noise_rate._error_of(S + k * shift, logit, value).item() for k in (-2, -1, 1, 2)]
        exact = (four[0] - 8 * four[1] + 8 * four[2] - four[3]) / 12e-3
        assert slopes[0, a].item() == pytest.approx(exact, rel=1e-6)
    # One entry with squares q carries the whole variance: the expansion is half q' H q.
    q = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    found = noise_rate._second_order(S, logit, value, q.view(1, 1, 3), 1.0).item()
    three = [noise_rate._error_of(S + k * 1e-3 * q, logit, value).item() for k in (-1, 0, 1)]
    assert found == pytest.approx((three[0] - 2 * three[1] + three[2]) / 2e-6, rel=1e-3)


# --- traces and spikes -----------------------------------------------------------------------------------------------------


def test_rows_of_traces_against_matrices():
    covariances = {"ar": AutoRegressive(0.5), "half": two_level(1000, 0.5, 1.0), "white": Covariance()}
    rows = trace_rows(covariances, 20, 1000, 0.2 * 20 / 1000, 1.0, draws=6)
    for row in rows:
        ratio = row.log10_error / row.predicted
        assert abs(ratio.mean() - 1) < 4 * ratio.std() / math.sqrt(6) + 0.05, row.name
        assert row.pull.mean() == pytest.approx(row.traces[0], abs=0.06)
    assert rows[0].traces[1] == pytest.approx(1 + 2 * sum((1 - k / 1000) * 0.25**k for k in range(1, 60)))
    assert (rows[0].log10_error.mean() - rows[0].swapped.mean()).abs() > 0.4


TARGETS = (0.6, 1.15, 1.6)


@pytest.fixture(scope="module")
def radial():
    return {
        3.0: radial_fates(3.0, (0.8, 1.1, 1.25, 1.6), draws=9, svm=True),
        10.0: radial_fates(10.0, TARGETS, n=100, d=20_000, draws=4),
    }


@pytest.fixture(scope="module")
def correlated():
    xs, wide = (0.35, 0.45, 0.6, 0.75, 0.9, 1.1, 1.4, 1.8, 2.4), 10_000
    kinds = {
        "white": Covariance(),
        "AR(1) .9": AutoRegressive(0.9),
        "spike d": Spiked(float(wide)),
        "half tr Σ": two_level(wide, 0.5, 1.0),
    }
    return {name: correlated_fates(kind, xs, n=50, d=wide, draws=4) for name, kind in kinds.items()}


@pytest.fixture(scope="module")
def study():
    """The parts of the page's study that the tests below look at."""
    rows = error_rows(60, 1000, 0.1, 0.25, draws=10, points=2000)
    return NoiseStudy(
        strengths=(0.5, 4.5), rows=rows, matrix=claim_matrix(rows, 0.25), rates={}, small=[], large=[], spike=None,
    )  # fmt: skip


# --- lengths ---------------------------------------------------------------------------------------------------------------


def test_fates_of_radial_noise_by_hand(radial):
    fates = radial[10.0]
    scale = RadialT(10.0)
    law = NoiseLaw(100, 20_000, law_at(1.6 / scale.harmonic, 100, 20_000, 0.0).signal_norm, 0.0, scale=scale)
    sample = law.draw(0, 4, first_run=8)
    path = train(sample, small_then_long(100, 20_000))
    at = np.flatnonzero(fates.at(1.6))
    for i, r in enumerate(at):
        for k in (0, 1):
            held = sample.signal_class[i] == k
            lengths = (sample.noise_tokens()[i, held, 0] ** 2).sum(-1)
            assert fates.harmonic[r, k] == pytest.approx(law.signal_norm**2 * (1 / lengths).sum().item())
            assert fates.arithmetic[r, k] == pytest.approx(law.signal_norm**2 * held.sum().item() / 20_000)
            expected = (lengths / (law.signal_norm**2 * held.sum())).numpy()
            np.testing.assert_allclose(fates.relative_length[r][held.numpy()], expected)
            mean = path.attention_on_signal[-1, i, held].mean().item()
            assert fates.attention[r, k] == pytest.approx(mean, abs=1e-9)
    measured, copy = fates.share(1.6)
    assert measured == pytest.approx((path.attention_on_signal[-1] > 0.5).double().mean().item())
    assert abs(copy - measured) < 0.03
    assert (fates.train_accuracy == 1).all()
    assert fates.svm is None


def test_costs_of_orthogonal_noise_are_sums_of_inverse_squares():
    sample = norms_only(NoiseLaw(14, 200, 3.0, scale=RadialT(3.0)).draw(1, 1))
    inverse = 1 / (sample.noise_tokens()[0, :, 0] ** 2).sum(-1)
    first = sample.signal_class[0] == 0
    expected = [inverse.sum(), inverse[first].sum(), inverse[~first].sum()]
    np.testing.assert_allclose(noise_costs(sample), torch.stack(expected).numpy(), rtol=1e-6)


# --- correlated noise ------------------------------------------------------------------------------------------------------


def test_correlated_fates_against_the_exact_svm_and_draws_at_that_norm(correlated):
    n, d, x = 50, 10_000, 0.9
    fates, covariance = correlated["AR(1) .9"], AutoRegressive(0.9)
    norm = math.sqrt(x * 2 * d / n)
    law = NoiseLaw(n, d, norm, 0.0, covariance=covariance)
    for r in range(2):
        row = 4 * 4 + r  # fifth norm, draw r
        one = reduce(law.draw(0, 1, first_run=r, coordinates="dense"))
        costs = pattern_costs(tokens_of(one), ("XX", "XS", "SX", "SS"))
        best = min(costs, key=costs.get)
        assert [letter == "S" for letter in best] == fates.svm[row].tolist()
        assert fates.cost[r] * n / d == pytest.approx(costs["XX"], rel=1e-6)
        count = (one.signal_class[0] == 0).sum().item()
        assert fates.x[row, 0] == pytest.approx(norm**2 * count / d)
        path = train(one, small_then_long(n, d))
        for k in (0, 1):
            mean = path.attention_on_signal[-1, 0, one.signal_class[0] == k].mean()
            assert bool(mean > 0.5) == fates.on_signal[row, k]


def test_a_study_with_gaussian_rows_only_fails_the_claims_that_need_other_laws(study):
    plain = {name: study.rows["Gaussian"] for name in study.rows}
    assert not CLAIMS["Q32"].check(replace(study, rows=plain)).as_expected
    assert CLAIMS["Q31"].check(replace(study, rows=plain)).as_expected


def test_two_errors_are_added_as_welch_does():
    """`_with_points` against scipy's Welch test of two samples with these standard errors."""
    rng = np.random.default_rng(0)
    draws, points = rng.normal(0.0, 1.0, 12), rng.normal(0.0, 3.0, 40)
    error = points.std(ddof=1) / 40**0.5
    found = _with_points(mean_within(torch.from_numpy(draws), low=0.0), 0.3, error, 40, 0.0, 1.0)
    known = stats.ttest_ind(draws, points, equal_var=False)
    whole = abs((draws.mean() - points.mean()) / known.statistic)
    assert found.numbers["standard_error"] == pytest.approx(whole)
    assert float(found.rule.split(" s.e.")[0]) == pytest.approx(-stats.t.ppf(LEVEL / 2, known.df), rel=5e-3)


# --- refusals --------------------------------------------------------------------------------------------------------------


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
    (lambda: error_rows(*SMALL, draws=1), "draws must be"),
    (lambda: error_rows(*SMALL, points=1), "points must be"),
    (lambda: error_rows(30, 240, 0.1, -1.0), "step_size must be"),
    (lambda: error_rows(*SMALL, names=["Cauchy"]), "name must be one of 'Gaussian'"),
    (lambda: strength_to_norm(0.0, 10, 100), "strength must be"),
    (lambda: universality_gaps(Entries(), (200,), points=1), "points must be"),
    (lambda: two_level(100, 1.0, 0.5), "trace_square must be"),
    (lambda: two_level(100, 0.005, 0.5), "trace must exceed"),
    (lambda: trace_rows({"w": Covariance()}, 10, 100, 0.1, 1.0, draws=1), "draws must be"),
    (lambda: trace_rows({"w": Diagonal(np.ones(7))}, 10, 100, 0.1, 1.0), "variances must hold d = 100"),
    (spike_draws, (1.0, 10, 100, 0.1, 1.0), {"draws": 1, "strength": -2.0}),
    (
        lambda: two_trace_log10_error(NoiseLaw(10, 100, 3.0), 0.1, *2 * [torch.ones(1, 2).double()], (0.0, 1.0)),
        "traces",
    ),
    (noise_study, (), {"draws": 1, "points": 1, "step": 0.0}),
    (lambda: noise_study(strengths=(4.5, 0.5)), "strengths must be two values"),
    (lambda: long_noise_study(draws=3), "draws must be"),
    (radial_fates, (3.0, (1.0,)), {"freedom": 2.0, "draws": 0}),
    (lambda: radial_fates(3.0, (-1.0,)), "x must be"),
    (
        correlated_fates,
        {"covariance": Covariance(), "n": 10, "d": 100, "draws": 1, "xs": (1.0,)},
        {"xs": (0.0,), "draws": 0},
    ),
    (lambda: norms_only(SignalNoiseLaw(10, 8, 1.0).draw(0)), "sample must have two tokens and n"),
)
