"""Pages I.2 and I.10: units, regimes, and the study that their claims look at."""

import dataclasses

import pytest
import torch

from attnbook.single_head.bound_by_bound.claims import CLAIMS as BOUNDS
from attnbook.single_head.study import log_term, noise_tolerance, two_step_study
from attnbook.single_head.two_steps.claims import CLAIMS
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.summary import summarise
from bookkit.claims import Verdict
from tests.bad_input import refusing

PAPER_SIZE = SignalNoiseLaw(200, 40_000, 30.0, 0.05)


@pytest.fixture(scope="module")
def study():
    return two_step_study(PAPER_SIZE, 0.025, draws=8, seed=0)


@pytest.mark.parametrize("claim", [*BOUNDS.values(), *CLAIMS.values()], ids=lambda claim: claim.id)
def test_normalised_noise_is_the_same_problem_in_other_units(in_both_units, claim):
    plain, normalised = (claim.check(own) for own in in_both_units)
    assert normalised.verdict is plain.verdict
    assert normalised.control.holds == plain.control.holds
    # C10 speaks of scores, C12 of p . mu: all of them are free of units, so every number is the same.
    assert normalised.evidence.numbers == pytest.approx(plain.evidence.numbers, rel=1e-6, abs=1e-9)


@pytest.fixture(scope="module")
def in_both_units():
    n, d, rho, step = 60, 6000, 16.0, 0.05
    plain = two_step_study(SignalNoiseLaw(n, d, rho, 0.1), step, draws=6, seed=2, test_points=200)
    law = SignalNoiseLaw(n, d, rho / d**0.5, 0.1, normalised_noise=True)
    return plain, two_step_study(law, step * d, draws=6, seed=2, test_points=200)


def test_coefficients_of_trained_values_are_the_closed_forms(study):
    closed = two_steps(PAPER_SIZE.draw(0, 8), 0.025)
    torch.testing.assert_close(study.theta2, closed.theta2, rtol=1e-8, atol=0)


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
    result = CLAIMS["C8b"].check(weak)
    assert result.verdict == Verdict.OUTSIDE
    assert result.violated.startswith("needs E b > a(1 + eps)")
    assert "here E b = " in result.violated
    theorem = CLAIMS["T1"].check(weak)
    assert "n^2 log(n/delta) = 3.96e+05" in theorem.violated
    clean = two_step_study(SignalNoiseLaw(20, 1000, 10.0, 0.0), 0.1, draws=5)
    assert CLAIMS["C16b"].check(clean).violated == "needs label noise; here eta = 0"
    assert CLAIMS["C13"].check(clean).verdict in set(Verdict)


def test_noise_tolerance_by_hand(study):
    L = log_term(study)
    assert pytest.approx(10.5966, abs=1e-3) == L
    norm = 2 * (L / 4e4) ** 0.5 + 2 * L / 4e4 + 2 / 4e4
    assert noise_tolerance(study) == pytest.approx(norm + (400 * (1 + norm) * L / 4e4) ** 0.5, rel=1e-6)


TINY = SignalNoiseLaw(5, 20, 1.0)


test_refusals = refusing(
    (lambda: summarise(SignalNoiseLaw(5, 20, 1.0, tokens=3), 0.1), "law must be a SignalNoiseLaw with two tokens"),
    (lambda: summarise("paper", 0.1), "law must be a SignalNoiseLaw"),
    (summarise, (TINY, 0.1), {"step_size": -1.0, "draws": 0, "steps": 0}),
)
