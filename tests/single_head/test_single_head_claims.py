"""The claims of Part I: units, regimes, and the studies that they look at. Its pages judge them."""

import dataclasses

import pytest
import torch

from attnbook.single_head.rotations_are_free.claims import coordinate_study
from attnbook.single_head.signal_and_noise.claims import averaging_error
from attnbook.single_head.study import log_term, two_step_study
from attnbook.single_head.two_steps import claims as two_step_claims
from attnbook.single_head.variants import StressedLaw
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.summary import summarise
from bookkit.claims import Verdict

PAPER_SIZE = SignalNoiseLaw(200, 40_000, 30.0, 0.05)


@pytest.fixture(scope="module")
def study():
    return two_step_study(PAPER_SIZE, 0.025, draws=8, seed=0)


@pytest.mark.parametrize("id", two_step_claims.CLAIMS)
def test_normalised_noise_is_the_same_problem_in_other_units(in_both_units, id):
    plain, normalised = (two_step_claims.CLAIMS[id].check(own) for own in in_both_units)
    assert normalised.verdict is plain.verdict
    assert normalised.control.holds == plain.control.holds
    # C10 and C6 speak of scores, C12 of p . mu: all of them are free of units, so every number is the same.
    assert normalised.evidence.numbers == pytest.approx(plain.evidence.numbers, rel=1e-6, abs=1e-9)


@pytest.fixture(scope="module")
def in_both_units():
    n, d, rho, step = 60, 6000, 16.0, 0.05
    plain = two_step_study(SignalNoiseLaw(n, d, rho, 0.1), step, draws=6, seed=2, test_points=200)
    law = SignalNoiseLaw(n, d, rho / d**0.5, 0.1, normalised_noise=True)
    return plain, two_step_study(law, step * d, draws=6, seed=2, test_points=200)


def test_coefficients_of_trained_values_are_the_closed_forms(study):
    torch.testing.assert_close(study.theta2, study.closed["theta2"], rtol=1e-8, atol=0)


def test_smaller_step_does_not_interpolate():
    smaller = two_step_study(PAPER_SIZE, 0.01, draws=10)
    result = two_step_claims.NOTEBOOK_STEP_CLAIM.check(smaller)
    assert result.verdict == Verdict.FAILS
    assert result.as_expected
    summary = summarise(PAPER_SIZE, 0.01, draws=10)
    assert not summary.interpolates.any()
    assert (summary.train_accuracy < 1).all()


def test_the_step_size_window_that_the_theory_chapter_states():
    """beta d/n = 2: no draw fits every label; 3 and 5: every draw does; between 8 and 20 the error goes to one half."""
    runs = {m: summarise(PAPER_SIZE, m * 200 / 40_000, draws=10) for m in (2, 3, 5, 8, 20)}
    assert not runs[2].interpolates.any()
    assert all(runs[m].interpolates.all() for m in (3, 5, 8, 20))
    assert runs[8].log10_clean_error.max() < -2
    assert runs[20].log10_clean_error.mean() > -1


def test_headline_numbers_at_the_paper_size():
    """Two independent seeds: accuracy 1 in every draw, and the exact mean error within its own spread of the other's."""
    one, two = (summarise(PAPER_SIZE, 0.025, draws=60, seed=seed) for seed in (11, 12))
    for summary in (one, two):
        assert summary.interpolates.all()
        assert 0.03 < summary.attention_noisy.mean() < 0.07
        assert (summary.train_accuracy_step1 - (1 - summary.flipped.double() / 200)).abs().max() < 1e-12
    gap = one.log10_clean_error.mean() - two.log10_clean_error.mean()
    spread = torch.hypot(one.log10_clean_error.std(), two.log10_clean_error.std()) / 60**0.5
    assert abs(gap) < 4.5 * spread
    assert -95 < one.log10_clean_error.mean() < -60


def test_the_spread_over_draws_is_the_number_of_flipped_labels():
    """Draws with 7 or 8 flips reproduce ten earlier draws (mean 7.5 flips): attention .600 +- .01, error near 10^-91."""
    summary = summarise(PAPER_SIZE, 0.025, draws=300, seed=5)
    few = (summary.flipped >= 7) & (summary.flipped <= 8)
    assert few.sum() > 30
    assert summary.attention_clean[few].mean() == pytest.approx(0.600, abs=0.01)
    assert summary.attention_noisy[few].mean() == pytest.approx(0.0476, abs=0.002)
    assert -100 < summary.log10_clean_error[few].mean() < -82
    correlation = torch.corrcoef(torch.stack([summary.flipped.double(), summary.log10_clean_error]))[0, 1]
    assert correlation > 0.7


def test_study_and_summary_see_the_same_draws(study):
    summary = summarise(PAPER_SIZE, 0.025, draws=8, seed=0)
    fitted = (study.margins2 > 0).double().mean(1)
    torch.testing.assert_close(summary.train_accuracy, fitted)
    sample = PAPER_SIZE.draw(0, 1, first_run=5)
    assert summary.flipped[5] == sample.noisy.sum()
    mean = torch.logsumexp(study.log10_error2 * 2.302585092994046, 1) / 2.302585092994046 - 0.3010299956639812
    torch.testing.assert_close(summary.log10_clean_error, mean, rtol=1e-9, atol=1e-9)


def test_summary_does_not_depend_on_the_chunk(monkeypatch):
    from attnlib.single_head import summary as module

    law = SignalNoiseLaw(20, 300, 6.0, 0.2)
    whole = summarise(law, 0.1, draws=7)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1)
    single = summarise(law, 0.1, draws=7)
    for field in dataclasses.fields(whole):
        torch.testing.assert_close(
            getattr(single, field.name), getattr(whole, field.name), rtol=1e-10, atol=1e-12, equal_nan=True
        )


def test_outside_the_regime_says_which_condition_in_numbers():
    weak = two_step_study(SignalNoiseLaw(200, 40_000, 10.0, 0.05), 0.025, draws=5)
    result = two_step_claims.CLAIMS["C8b"].check(weak)
    assert result.verdict == Verdict.OUTSIDE
    assert result.violated.startswith("needs E b > a(1 + eps)")
    assert "here E b = " in result.violated
    theorem = two_step_claims.CLAIMS["T1"].check(weak)
    assert "n^2 log(n/delta) = 3.96e+05" in theorem.violated
    clean = two_step_study(SignalNoiseLaw(20, 1000, 10.0, 0.0), 0.1, draws=5)
    assert two_step_claims.CLAIMS["C16b"].check(clean).violated == "needs label noise; here eta = 0"
    assert two_step_claims.CLAIMS["C13"].check(clean).verdict in set(Verdict)


def test_one_step_is_judged_on_the_draws_with_a_strong_signal_only():
    """Just above the condition on the law some draws miss b_k > a (1 + eps): they say nothing, and no seed turns the verdict."""
    near = two_step_study(SignalNoiseLaw(200, 40_000, 25.5, 0.05), 0.025, draws=20, seed=4)
    level = 0.025 * 40_000 / 800 * (1 + two_step_claims.noise_tolerance(near))
    strong = int((near.mean_field.b > level).all(1).sum())
    assert 3 <= strong < 20
    for id in ("C8b", "C9"):
        result = two_step_claims.CLAIMS[id].check(near)
        assert result.verdict == Verdict.HOLDS, result
        assert result.has_power
        assert result.evidence.draws == strong


def test_noise_tolerance_by_hand(study):
    L = log_term(study)
    assert pytest.approx(10.5966, abs=1e-3) == L
    norm = 2 * (L / 4e4) ** 0.5 + 2 * L / 4e4 + 2 / 4e4
    assert two_step_claims.noise_tolerance(study) == pytest.approx(norm + (400 * (1 + norm) * L / 4e4) ** 0.5, rel=1e-6)


def test_averaging_error_is_the_exact_one_at_large_d():
    law = SignalNoiseLaw(200, 10**8, 94.0, 0.1)
    sample = law.draw(0, runs=30)
    v1 = torch.einsum("rn,rntm->rm", sample.labels, sample.tokens)
    exact = log10_clean_error(v1, torch.zeros_like(v1), sample).mean()
    assert exact == pytest.approx(torch.log10(torch.tensor(averaging_error(law))).item(), rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"law": SignalNoiseLaw(5, 20, 1.0, tokens=3)}, "law must be a SignalNoiseLaw with two tokens"),
        ({"law": "paper"}, "law must be a SignalNoiseLaw"),
        ({"step_size": -1.0}, "step_size must be"),
        ({"draws": 0}, "draws must be"),
        ({"steps": 0}, "steps must be"),
    ],
)
def test_bad_summaries(arguments, message):
    with pytest.raises(ValueError, match=message):
        summarise(**({"law": SignalNoiseLaw(5, 20, 1.0), "step_size": 0.1} | arguments))


@pytest.mark.parametrize(
    ("name", "value"), [("delta", 0.0), ("delta", 1.0), ("delta", -0.1), ("test_points", 0), ("draws", -2)]
)
def test_bad_studies(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        two_step_study(SignalNoiseLaw(5, 20, 1.0), 0.1, **{name: value})


def test_claims_of_the_plain_law_refuse_a_stressed_one():
    stressed = StressedLaw(20, 200, 5.0, 0.1, cosine=0.5)
    with pytest.raises(ValueError, match="use summarise, or the stress module"):
        two_step_study(stressed, 0.1)
    assert summarise(stressed, 0.1, draws=3).log10_clean_error.isfinite().all()


def test_dense_comparisons_refuse_dimensions_that_do_not_fit():
    with pytest.raises(ValueError, match="d <= 20000"):
        coordinate_study(SignalNoiseLaw(10, 40_000, 1.0), 0.1)
