"""The first clock: crossings against the recorded attention of plain training, settings, exponents."""

import math

import numpy as np
import pytest

from attnbook.token_selection.time_laws.clock import Setting, clock_unit, exponents, half_times, star
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.population import population_along
from attnlib.token_selection.training import train
from tests.bad_input import refusing

LAW = TokenLaw(n=10, d=300, tokens=5, signal_norm=40.0, label_noise=0.2)
SETTING = Setting(LAW, Start(weight_scale=0.4, prompt_scale=0.01), 2e-3)


@pytest.fixture(scope="module")
def found():
    return half_times([SETTING, Setting(LAW, Start(), 4e-3)], runs=3, seed=5, limit=400, count=500)


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


test_bad_arguments = refusing(
    (lambda: half_times([], runs=1, seed=0, limit=1), "settings must hold one Setting"),
    (half_times, {"settings": [SETTING], "seed": 0, "limit": 1, "runs": 1}, {"runs": 0, "limit": 0}),
    (lambda: star(SETTING, colour=[1, 2]), "'colour'"),
    (lambda: star(SETTING, d=[100]), "two values or more"),
    (lambda: Setting(LAW, Start(), 0.0), "step_size must be"),
    (lambda: exponents([1.0, 2.0], np.ones((3, 2))), "tau must be"),
    (lambda: exponents([2.0, 2.0], np.ones((2, 2))), "tau must be"),
)
