"""II.3: crossings, units and exponents, the time to fit every label; states that TS36 refuses."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from attnbook.token_selection.theory import exponents, laws_of_strength
from attnbook.token_selection.time_laws.claims import CLAIMS
from attnbook.token_selection.time_laws.study import Setting, clock_study, clock_unit, fit_times, half_times
from attnlib.token_selection.errors import population_along
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.training import train

CLOCK_LAW = TokenLaw(n=10, d=300, tokens=5, signal_norm=40.0, label_noise=0.2)
SETTING = Setting(CLOCK_LAW, Start(weight_scale=0.4, prompt_scale=0.01), 2e-3)


@pytest.fixture(scope="module")
def found():
    return half_times([SETTING, Setting(CLOCK_LAW, Start(), 4e-3)], runs=3, seed=5, limit=400, count=500)


def test_crossing_is_that_of_a_recorded_training(found):
    for k, setting in enumerate(found.settings):
        path = train(draw_gram(setting.law, 5, 3, start=setting.start), setting.step_size, 400)
        clean = path.attention_of("clean")[..., 0].numpy()
        rows = (clean >= 0.5).argmax(0).tolist()
        fresh = population_along(path, count=500, rows=rows)
        for run in range(3):
            step = rows[run]
            assert step > 3
            assert step - 1 < found.tau[k, run] <= step
            fine = np.interp(0.5, clean[step - 1 : step + 1, run], [step - 1, step])
            assert found.tau[k, run] == pytest.approx(fine, rel=1e-12)
            assert found.clean_fitted[k, run] == path.train_accuracy("clean")[step, run]
            assert found.noisy_fitted[k, run] == path.train_accuracy("noisy")[step, run]
            assert found.error[k, run] == pytest.approx(fresh.error[run, run].item(), rel=1e-9)
            np.testing.assert_allclose(found.attention_clean[: step + 1, k, run], clean[: step + 1, run], rtol=1e-12)
        noisy = path.attention_of("noisy")[..., 0].numpy()
    np.testing.assert_allclose(found.attention_noisy[:20, 1], noisy[:20], rtol=1e-12)


def test_a_run_that_does_not_get_there_is_nan():
    early = half_times([SETTING], runs=2, seed=5, limit=3, count=100)
    assert np.isnan(early.tau).all()
    assert np.isnan(early.error).all()
    assert len(early.attention_clean) == 4


def test_the_unit_is_the_theorems_formula():
    law = TokenLaw(n=20, d=900, tokens=8, signal_norm=30.0, head_scale=2.0)
    variance_w, variance_p = 0.5 / 900, 0.7 / 900
    expected = 1 / (1e-3 * (2 / 30) * 30**3 * 900 * max(variance_w, variance_p))
    assert clock_unit(Setting(law, Start(0.5, 0.7), 1e-3)) == pytest.approx(expected, rel=1e-12)
    assert clock_unit(Setting(law, Start(0.5, 0.2), 1e-3)) == pytest.approx(expected * 0.7 / 0.5, rel=1e-12)


def test_exponents_of_a_power_law_are_found_run_by_run():
    x = np.array([1.0, 3.0, 10.0])
    tau = np.stack([5 * x**-2.0, 0.1 * x**0.5], axis=1)
    np.testing.assert_allclose(exponents(x, tau), [-2.0, 0.5], rtol=1e-12)
    tau[1, 0] = math.nan
    slopes = exponents(x, tau)
    assert math.isnan(slopes[0])
    assert slopes[1] == pytest.approx(0.5)


def test_fit_times_are_when_the_last_label_is_fitted():
    laws = laws_of_strength(TokenLaw(n=10, d=4000, tokens=5, signal_norm=20.0), [2.0])
    times = fit_times(laws, runs=3, seed=4)
    for run in range(3):
        gram = draw_gram(laws[0], 4, first_run=run)
        steps = 400
        path = train(gram, float(times[0, run]) * 1.5 / steps, steps)
        first = path.time[int((path.train_accuracy()[:, 0] >= 1).double().argmax()), 0].item()
        assert first == pytest.approx(times[0, run], rel=0.06)
    assert np.isnan(fit_times(laws, runs=1, seed=4, steps=2)).all()


@pytest.mark.weekly
def test_along_d_the_start_or_the_variance_is_fixed():
    study = clock_study(Setting(TokenLaw(10, 1000, 5, 100.0), Start(), 3e-4), 20.0, runs=2)
    assert len({s.start.weight_scale / s.law.d for s in study.clock["d at fixed variance"].settings}) == 1
    assert len({s.start.weight_scale for s in study.clock["d"].settings}) == 1


def test_a_weak_centre_is_outside_the_regime():
    weak, strong = (
        SimpleNamespace(centre=Setting(replace(CLOCK_LAW, signal_norm=x), Start(), 1.0)) for x in (10.0, 90.0)
    )
    assert CLAIMS["TS32"].violation(weak).startswith("needs n SNR^2 >= ")
    assert CLAIMS["TS32"].violation(strong) == ""


@pytest.mark.parametrize(
    ("name", "value", "holds"),
    [("error", 1e-3, True), ("fresh_attention", 0.51, True), ("fresh_attention", 0.45, False), ("noisy_fitted", 1.0, False),
     ("clean_fitted", 0.9, False), ("error", 0.02, False), ("error", [math.nan] * 24 + [0.0] * 16, False)],
)  # fmt: skip
def test_one_setting_in_another_state_refuses_ts36(name, value, holds):
    state = {"clean_fitted": 1.0, "noisy_fitted": 0.0, "error": 0.0, "fresh_attention": 0.5}
    at_half = SimpleNamespace(**{key: np.full((3, 40), known) for key, known in state.items()})
    getattr(at_half, name)[slice(None) if name == "fresh_attention" else 1] = value
    assert CLAIMS["TS36"].seen(SimpleNamespace(at_half=at_half)).holds is holds


def test_a_label_that_nothing_fits_is_silent_and_one_that_was_not_fitted_in_time_counts_against():
    times = 1 / np.outer([1.0, 4.0, 16.0], np.linspace(1.0, 2.0, 12))

    def judged(value, sets=(3,)):
        changed = times.copy()
        changed[1, sets] = value
        return CLAIMS["TS37"].seen(SimpleNamespace(fit_dimensions=np.array([1, 4, 16]), fit_times=changed))

    assert judged(times[1, 3]).draws == 12
    assert (judged(math.inf).holds, judged(math.inf).draws) == (True, 11)
    late = judged(math.nan)
    assert (late.holds, late.draws, late.numbers["failures"]) == (True, 12, 1)  # one of twelve is inside 95 %
    assert not judged(math.nan, range(6)).holds
