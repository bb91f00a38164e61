"""Long training under other noise laws, and judges of the claims on made worlds."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from attnbook.open_questions.noise_laws.claims import CLAIMS, NoiseStudy, _with_points, noise_study
from attnbook.open_questions.noise_laws.claims_long import CLAIMS as LONG
from attnbook.open_questions.noise_laws.covariance import AutoRegressive, Covariance, Spiked
from attnbook.open_questions.noise_laws.laws import NoiseLaw
from attnbook.open_questions.noise_laws.long_runs import correlated_fates, noise_costs, norms_only, radial_fates
from attnbook.open_questions.noise_laws.long_study import LongNoiseStudy, long_noise_study
from attnbook.open_questions.noise_laws.parts import RadialT
from attnbook.open_questions.noise_laws.study import claim_matrix, error_rows
from attnbook.open_questions.noise_laws.traces import two_level
from attnbook.single_head.coordinates import reduce
from attnbook.single_head.long_run import law_at, small_then_long, train
from attnbook.single_head.margin import pattern_costs, tokens_of
from attnlib.single_head.law import SignalNoiseLaw
from bookkit.claims import Verdict
from bookkit.rules import LEVEL, mean_within
from tests.bad_input import refusing

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


test_bad_arguments = refusing(
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


def test_a_study_with_gaussian_rows_only_fails_the_claims_that_need_other_laws(study):
    plain = {name: study.rows["Gaussian"] for name in study.rows}
    assert not CLAIMS["Q32"].check(replace(study, rows=plain)).as_expected
    assert CLAIMS["Q31"].check(replace(study, rows=plain)).as_expected


def test_a_study_without_classes_near_the_threshold_has_nothing_to_say(radial):
    far = replace(radial[3.0], harmonic=np.full_like(radial[3.0].harmonic, 2.0))
    check = LONG["Q34b"].check(LongNoiseStudy({3.0: far}, {}, [], []))
    assert check.verdict == Verdict.OUTSIDE
    assert "these draws have none" in check.violated


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
