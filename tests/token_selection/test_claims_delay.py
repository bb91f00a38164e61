"""The claims about time: altered measurements change their verdicts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnbook.token_selection.theory import benign_clock, n_d_snr_fourth, selection_time, uniform_attention_accuracy
from attnbook.token_selection.time_laws.claims import CLAIMS
from attnbook.token_selection.time_laws.clock import Setting, exponents
from attnbook.token_selection.time_laws.limits import SHARP, gap_differences
from attnbook.token_selection.time_laws.study import STRENGTHS, Axis, time_study
from attnlib.token_selection.law import Start, TokenLaw
from bookkit.claims import Verdict

IDS = "TS31 TS32 TS33 TS34 TS35 TS35b TS36 TS37 TS38 TS38b TS38c TS38d TS38f TS38g TS38h TS38i TS38e TS38j TS39 TS39b".split()


@pytest.fixture(scope="module")
def study():
    return time_study(Setting(TokenLaw(10, 1000, 5, 100.0), Start(), 3e-4), 20.0, runs=5, seed=0)


def verdict(study, name):
    return CLAIMS[name].check(study).verdict


def test_ids_are_those_of_the_ledger():
    assert list(CLAIMS) == IDS
    assert CLAIMS["TS38b"].expected is Verdict.FAILS


@pytest.mark.weekly
def test_the_study_is_what_it_says(study):
    np.testing.assert_allclose(study.delays.strength, STRENGTHS, rtol=1e-3)
    assert {law.signal_norm for law in study.delays.laws} == {20.0}
    for one, q in (*((sharp, 160.0**2) for sharp in study.sharp), (study.blurred, 100.0)):
        np.testing.assert_allclose(one.strength, SHARP, rtol=1e-3)
        np.testing.assert_allclose([n_d_snr_fourth(law) for law in one.laws], q, rtol=1e-3)
    assert {(d.laws[0].tokens, d.laws[0].label_noise) for d in study.sharp} == {(5, 0.0), (5, 0.2), (5, 0.3), (4, 0.2)}
    assert study.late.gaps.shape == (5, 10 * 4)
    assert np.isfinite(study.never.attention).all()
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


@pytest.mark.weekly
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


@pytest.mark.weekly
def test_a_fitted_flipped_sample_or_an_error_is_found(study):
    axis = study.clock["d"]
    wrong = (("noisy_fitted", 1.0), ("clean_fitted", 0.9), ("error", 0.02), ("fresh_attention", 0.3))
    for name, value in wrong:
        values = getattr(axis.found, name).copy()
        values[1] = value
        broken = study.clock | {"d": Axis(axis.values, replace(axis.found, **{name: values}))}
        assert verdict(replace(study, clock=broken), "TS36") is Verdict.FAILS


def sharp_with(study, function):
    """The study with the times at fixed n d SNR^4 replaced: function(a `Delays`) -> (strengths, runs)."""
    return replace(study, sharp=tuple(replace(one, select=function(one)) for one in study.sharp))


NOISE = np.exp(0.02 * np.array([0.0, 1.0, -1.0, 0.5, -0.5]))


@pytest.mark.weekly
def test_a_curve_that_bends_is_not_an_exponential(study):
    x = np.array(SHARP)
    for power, expected in ((1.0, Verdict.HOLDS), (1.4, Verdict.FAILS), (0.7, Verdict.FAILS)):
        bent = sharp_with(study, lambda one, p=power: np.exp(6.0 * x**p)[:, None] * NOISE)
        assert verdict(bent, "TS38") is expected, power
    # the world of the control: the sharp sweep bends as the one at fixed signal norm does
    rows = [STRENGTHS.index(s) for s in SHARP]
    assert verdict(sharp_with(study, lambda one: study.delays.select[rows]), "TS38") is Verdict.FAILS


def closed_times(one, shift=0.0, stretch=1.0):
    return np.exp([stretch * selection_time(law, 1.0)[0] + shift for law in one.laws])[:, None] * NOISE


@pytest.mark.weekly
def test_slopes_and_constants_of_the_closed_form(study):
    exact = sharp_with(study, closed_times)
    assert verdict(exact, "TS38c") is verdict(exact, "TS38d") is Verdict.HOLDS
    later = sharp_with(study, lambda one: closed_times(one, shift=0.4))
    assert verdict(later, "TS38c") is Verdict.HOLDS
    assert verdict(later, "TS38d") is Verdict.FAILS
    assert verdict(sharp_with(study, lambda one: closed_times(one, stretch=1.04)), "TS38c") is Verdict.FAILS
    # the world of the control: with all late gaps equal the control holds and the claim does not
    equal = sharp_with(
        study, lambda one: np.exp([selection_time(w, 1.0)[0] - gap_differences(w) for w in one.laws])[:, None] * NOISE
    )
    check = CLAIMS["TS38d"].check(equal)
    assert (check.evidence.holds, check.control.holds) == (False, True)


@pytest.mark.weekly
def test_an_exponent_that_ignores_noise_is_found(study):
    same = replace(study.blurred, select=study.sharp[0].select)
    check = CLAIMS["TS38f"].check(replace(study, blurred=same))
    assert (check.evidence.holds, check.control.holds) == (False, True)


@pytest.mark.weekly
def test_equal_gaps_are_found(study):
    late = study.late
    flat = replace(late, gaps=late.gaps.mean(1, keepdim=True).expand_as(late.gaps))
    check = CLAIMS["TS38g"].check(replace(study, late=flat))
    assert (check.evidence.holds, check.control.holds) == (False, True)
    negative = replace(late, weights=-late.weights)
    assert verdict(replace(study, late=negative), "TS38g") is Verdict.OUTSIDE


@pytest.mark.weekly
def test_the_power_of_d_and_the_bound_are_seen(study):
    d = np.array([law.d for law in study.apart_laws])
    for power, expected in ((-0.5, Verdict.HOLDS), (-0.25, Verdict.FAILS), (-0.75, Verdict.FAILS)):
        apart = torch.as_tensor(0.05 * (d / d[0]) ** power) * torch.as_tensor(NOISE)[:, None]
        check = CLAIMS["TS38i"].check(replace(study, apart=apart))
        assert check.verdict is expected, power
        assert check.control.holds is (power == -0.25)
    far = replace(study, apart=1e7 * study.apart)
    assert verdict(far, "TS38i") is Verdict.FAILS


@pytest.mark.weekly
def test_finite_and_infinite_delays_are_told_apart(study):
    crossing = replace(study.never, attention=study.never.attention + 0.3)
    assert verdict(replace(study, never=crossing), "TS38h") is Verdict.FAILS
    lost = study.delays.select.copy()
    lost[-1] = math.nan
    assert verdict(replace(study, delays=replace(study.delays, select=lost)), "TS38h") is Verdict.FAILS


@pytest.mark.weekly
def test_an_unresolved_flow_is_found(study):
    assert verdict(replace(study, descent=1.06 * study.flow), "TS38e") is Verdict.FAILS
    finer = replace(study.finer, select=0.93 * study.finer.select)
    assert verdict(replace(study, finer=finer), "TS38e") is Verdict.FAILS


@pytest.mark.weekly
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


@pytest.mark.weekly
def test_part_two_looks_at_its_own_time(study):
    seen = study.growing
    late = seen.times >= 100 * benign_clock(seen.law, 1.0)
    assert 0 < late.sum() < len(late) - 1
    only_late = np.where(late, 1.0, 0.0) * np.ones_like(seen.error)
    good = replace(seen, noisy_fitted=only_late, clean_fitted=only_late, error=0.5 - 0.499 * only_late)
    check = CLAIMS["TS38j"].check(replace(study, growing=good))
    assert check.verdict is Verdict.HOLDS
    assert check.has_power
    after = replace(good, error=0.02 * np.ones_like(seen.error))
    assert verdict(replace(study, growing=after), "TS38j") is Verdict.FAILS


@pytest.mark.weekly
def test_a_weak_centre_is_outside_the_regime(study):
    weak = replace(study.centre, law=replace(study.centre.law, signal_norm=10.0))
    assert verdict(replace(study, centre=weak), "TS31") is Verdict.OUTSIDE


@pytest.mark.weekly
def test_records_are_plain(study):
    for check in CLAIMS.check(study):
        record = check.as_record()
        assert record["part"] == "token_selection"
        assert all(value is None or math.isfinite(value) for value in record["numbers"].values())


def test_bad_arguments():
    centre = Setting(TokenLaw(10, 100, 5, 50.0), Start(), 1e-3)
    with pytest.raises(ValueError, match="runs must be a whole number >= 2"):
        time_study(centre, 20.0, runs=1)
    with pytest.raises(ValueError, match="delay_norm must be"):
        time_study(centre, -1.0)
    assert torch.get_default_dtype() is torch.float32
