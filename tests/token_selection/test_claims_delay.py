"""The claims about time on a small study: verdicts, power, and that altered measurements change them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnbook.token_selection.time_laws.claims import CLAIMS
from attnbook.token_selection.time_laws.clock import Setting, exponents
from attnbook.token_selection.time_laws.delay import delay_fit
from attnbook.token_selection.time_laws.study import STRENGTHS, Axis, time_study
from attnlib.token_selection.law import TokenLaw
from attnlib.token_selection.start import Start
from attnlib.token_selection.theory import delay_exponent, uniform_attention_accuracy
from bookkit.claims import Verdict

IDS = "TS31 TS32 TS33 TS34 TS35 TS35b TS36 TS37 TS38 TS38b TS38c TS38d TS38e TS39 TS39b".split()


@pytest.fixture(scope="module")
def study():
    return time_study(Setting(TokenLaw(10, 1000, 5, 100.0), Start(), 3e-4), 20.0, runs=5, seed=0)


def verdict(study, name):
    return CLAIMS[name].check(study).verdict


def test_ids_are_those_of_the_ledger():
    assert list(CLAIMS) == IDS
    assert CLAIMS["TS38b"].expected is Verdict.FAILS


@pytest.mark.parametrize(
    "name", ["TS31", "TS32", "TS33", "TS34", "TS35b", "TS36", "TS37", "TS38c", "TS38d", "TS38e", "TS39b"]
)
def test_holds_and_can_tell(study, name):
    check = CLAIMS[name].check(study)
    assert check.verdict is Verdict.HOLDS
    assert check.has_power


def test_constant_one_fails_here_too(study):
    assert verdict(study, "TS38b") is Verdict.FAILS
    assert study.fit.slope > 4


def test_the_study_is_what_it_says(study):
    np.testing.assert_allclose(study.delays.strength, STRENGTHS, rtol=1e-3)
    assert {law.signal_norm for law in study.delays.laws} == {20.0}
    assert {law.signal_norm for law, _, _ in study.slopes} == {80.0}
    assert {(law.tokens, law.label_noise) for law, _, _ in study.slopes} == {(5, 0.0), (5, 0.2), (5, 0.3), (4, 0.2)}
    fixed = study.clock["d at fixed variance"].found.settings
    assert len({s.start.weight_scale / s.law.d for s in fixed}) == 1
    assert len({s.start.weight_scale for s in study.clock["d"].found.settings}) == 1
    assert study.fit_times.shape == (3, 12)
    assert (study.delays.fit < study.delays.select).all()


def on_axis(study, name, factor):
    """The study with tau of one axis multiplied by value ** factor."""
    axis = study.clock[name]
    tau = axis.found.tau * (axis.values[:, None] / axis.values[0]) ** factor
    changed = Axis(axis.values, replace(axis.found, tau=tau))
    return replace(study, clock=study.clock | {name: changed})


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("TS31", "step_size"),
        ("TS32", "signal_norm"),
        ("TS33", "weight_scale"),
        ("TS34", "d"),
        ("TS34", "d at fixed variance"),
    ],
)
def test_a_wrong_exponent_is_found(study, name, axis):
    assert verdict(on_axis(study, axis, 0.35), name) is Verdict.FAILS
    expected = exponents(study.clock[axis].values, study.clock[axis].found.tau) + 0.35
    np.testing.assert_allclose(on_axis(study, axis, 0.35).clock[axis].exponents, expected, rtol=1e-9)


def test_a_fitted_flipped_sample_or_an_error_is_found(study):
    axis = study.clock["d"]
    for name, value in (("noisy_fitted", 1.0), ("clean_fitted", 0.9), ("error", 0.02)):
        values = getattr(axis.found, name).copy()
        values[1] = value
        broken = study.clock | {"d": Axis(axis.values, replace(axis.found, **{name: values}))}
        assert verdict(replace(study, clock=broken), "TS36") is Verdict.FAILS


def test_a_power_law_is_not_an_exponential(study):
    x = study.delays.strength
    power = np.exp(1.0) * x[:, None] ** 28.0 * np.array([[1.0, 1.1, 0.9, 1.05, 0.95]])
    assert delay_fit(x, power).decades > 20
    delays = replace(study.delays, select=power)
    assert verdict(replace(study, delays=delays), "TS38") is Verdict.FAILS
    exact = np.exp(8.0 * x)[:, None] * np.array([[1.0, 1.1, 0.9, 1.05, 0.95]])
    good = replace(study, delays=replace(study.delays, select=exact))
    assert verdict(good, "TS38") is Verdict.HOLDS
    assert CLAIMS["TS38"].check(good).has_power
    assert CLAIMS["TS38"].check(good).evidence.numbers["slope"] == pytest.approx(8.0)


def test_slopes_off_by_a_tenth_are_found(study):
    law, delays, fit = study.slopes[1]
    slopes = np.full(5, 1.1 * delay_exponent(law))
    broken = (*study.slopes[:1], (law, delays, replace(fit, slopes=slopes)), *study.slopes[2:])
    assert verdict(replace(study, slopes=broken), "TS38c") is Verdict.FAILS


def test_times_off_the_mean_field_are_found(study):
    delays = replace(study.delays, select=study.delays.select**1.4)
    assert verdict(replace(study, delays=delays), "TS38d") is Verdict.FAILS


def test_an_unresolved_flow_is_found(study):
    assert verdict(replace(study, descent=1.06 * study.flow), "TS38e") is Verdict.FAILS
    finer = replace(study.finer, select=0.93 * study.finer.select)
    assert verdict(replace(study, finer=finer), "TS38e") is Verdict.FAILS


def test_accuracy_claims_see_their_columns(study):
    seen = study.growing
    calm = replace(seen, error=np.full_like(seen.error, 1e-5), attention=np.full_like(seen.attention, 0.2))
    assert verdict(replace(study, growing=calm), "TS39") is Verdict.HOLDS
    assert CLAIMS["TS39"].check(replace(study, growing=calm)).has_power
    late = replace(calm, error=np.full_like(seen.error, 0.01))
    assert verdict(replace(study, growing=late), "TS39") is Verdict.FAILS
    early = replace(calm, attention=np.full_like(seen.attention, 0.4))
    assert verdict(replace(study, growing=early), "TS39") is Verdict.FAILS
    flat = np.full_like(study.harmed.error, 1 - uniform_attention_accuracy(study.harmed.law))
    assert verdict(replace(study, harmed=replace(study.harmed, error=flat)), "TS39b") is Verdict.FAILS


def test_a_weak_centre_is_outside_the_regime(study):
    weak = replace(study.centre, law=replace(study.centre.law, signal_norm=10.0))
    assert verdict(replace(study, centre=weak), "TS31") is Verdict.OUTSIDE


def test_records_are_plain(study):
    for check in CLAIMS.check(study):
        record = check.as_record()
        assert record["wing"] == "token_selection"
        assert all(value is None or math.isfinite(value) for value in record["numbers"].values())


def test_bad_arguments():
    centre = Setting(TokenLaw(10, 100, 5, 50.0), Start(), 1e-3)
    with pytest.raises(ValueError, match="runs must be a whole number >= 2"):
        time_study(centre, 20.0, runs=1)
    with pytest.raises(ValueError, match="delay_norm must be"):
        time_study(centre, -1.0)
    assert torch.get_default_dtype() is torch.float32
