"""The claims about the map: altered maps change their verdicts."""

import math
from dataclasses import replace

import numpy as np
import pytest

from attnbook.token_selection.heat_map.claims import CLAIMS, border_exponents, heat_study, predicted_map
from attnbook.token_selection.heat_map.study import HeatMap, heat_map, heat_plan
from attnbook.token_selection.mean_field import mean_field
from attnbook.token_selection.theory import fresh_attention, n_d_snr_fourth
from attnlib.token_selection.law import Start, TokenLaw
from bookkit.claims import Verdict

LAW = TokenLaw(n=10, d=3, tokens=5, signal_norm=1.0)
IDS = "TS41 TS42 TS43 TS44 TS45 TS46 TS46b TS47 TS48 TS48b TS49".split()


@pytest.fixture(scope="module")
def study():
    plan = heat_plan(
        np.geomspace(4, 140, 7),
        np.rint(np.geomspace(150, 5000, 6)),
        law=LAW,
        step_size=0.005,
        steps=500,
        runs=5,
        seed=2,
        count=2000,
    )
    return heat_study(heat_map(plan))


def changed(study, **arrays):
    """The study with columns of its map replaced."""
    names = [f for f in HeatMap.__dataclass_fields__ if f not in ("plan", "uniform_error")]
    own = {name: arrays.get(name, getattr(study.found, name)) for name in names}
    return replace(study, found=HeatMap(study.found.plan, **own))


def verdict(study, name):
    return CLAIMS[name].check(study).verdict


def test_prediction_is_the_mean_field_of_each_cell(study):
    law = study.found.plan.cell(2, 4)
    path = mean_field(law, 0.005, weight_scale=1 / 3, horizon=500)
    attention = fresh_attention(law, path.signal_score[-1], path.signal_score[-1], path.score_variance[-1])
    assert study.predicted.attention[2, 4] == pytest.approx(attention[0], rel=1e-3)
    assert study.predicted.margin_noisy[2, 4] == pytest.approx(path.margins[-1, 1], abs=1e-4)
    assert study.predicted.attention_clean[2, 4] == pytest.approx(path.attention[-1, 0, 0], rel=1e-3)
    assert study.predicted.attention_noisy[2, 4] == pytest.approx(path.attention[-1, 1, 0], rel=2e-3)
    stronger = predicted_map(study.found.plan, weight_scale=0.6)
    assert stronger.attention[2, 3] > study.predicted.attention[2, 3]
    plan = replace(study.found.plan, start=Start(weight_scale=0.6))
    np.testing.assert_array_equal(predicted_map(plan).attention, stronger.attention)


def test_border_of_a_known_power():
    plan = heat_plan(np.geomspace(2, 200, 40), [100, 400, 1600], law=LAW, step_size=0.1, steps=1)
    border = (plan.dims / 100) ** (1 / 3.5) * 5  # |mu| at which the quantity crosses 0.6
    values = 0.6 + 0.1 * np.log(plan.signal_norms / border[:, None])
    flat = np.zeros_like(values)
    found = border_exponents(plan, np.stack([values, flat], -1), 0.6)
    assert found[0] == pytest.approx(3.5, rel=1e-9)
    assert math.isnan(found[1])


@pytest.mark.parametrize(
    ("name", "column"), [("TS41", "loss"), ("TS42", "train_loss"), ("TS44", "clean_fitted"), ("TS45", "noisy_fitted")]
)
def test_an_altered_corner_is_found(study, name, column):
    values = getattr(study.found, column).copy()
    values[0, -1] = values[0, -1] * 0.98 if column != "noisy_fitted" else 0.5
    assert verdict(changed(study, **{column: values}), name) is Verdict.FAILS


def test_altered_attention_is_found(study):
    # the small map has n = 10 and the mean field is a little further off than on the page
    fine = changed(study, attention=study.predicted.attention[..., None, None] * np.ones((1, 1, 5, 5)))
    assert verdict(fine, "TS47") is Verdict.HOLDS
    off = changed(study, attention=fine.found.attention + 0.05)
    assert verdict(off, "TS47") is Verdict.FAILS


def test_border_claims_follow_the_border(study):
    plan = study.found.plan

    def with_exponent(e, spread=0.05):
        border = 12 * (plan.dims / plan.dims[0]) ** (1 / e)
        rise = 1 / (1 + (border[:, None] / plan.signal_norms) ** 2)
        shift = 1 + spread * np.linspace(-1, 1, 5)
        tilt = (plan.dims / plan.dims[0])[:, None, None] ** (0.02 * (shift - 1))
        return changed(study, attention=(rise[..., None] * tilt)[..., None] * np.ones(5))

    assert verdict(with_exponent(2.0), "TS48") is Verdict.HOLDS
    assert verdict(with_exponent(2.0), "TS48b") is Verdict.FAILS
    assert verdict(with_exponent(4.0), "TS48") is Verdict.FAILS


def test_time_decides_needs_the_right_sign(study):
    margin = study.predicted.margin_noisy
    clear = changed(
        study,
        attention_noisy=np.full(study.found.attention_noisy.shape, 0.05),
        noisy_fitted=np.where(margin > 0, 1.0, 0.0)[..., None] * np.ones(5),
    )
    check = CLAIMS["TS46"].check(clear)
    assert check.verdict is Verdict.HOLDS
    assert check.has_power
    opposite = changed(clear, noisy_fitted=1 - clear.found.noisy_fitted)
    assert verdict(opposite, "TS46") is Verdict.FAILS
    following = changed(study, attention_noisy=np.full(study.found.attention_noisy.shape, 0.9))
    assert verdict(following, "TS46") is Verdict.OUTSIDE


def test_a_noisy_head_is_told_from_a_quiet_one(study):
    """Reach rho |mu| / (sqrt 2 sigma), below 1/2 for the smallest norm and above 1 for the four largest."""
    reach = 0.1 * study.found.plan.signal_norms / math.sqrt(2)
    assert (reach <= 0.5).sum() == 1
    assert (reach >= 1).sum() == 4
    left = np.full(study.found.attention_noisy.shape, 0.05)
    noisy = (reach <= 0.5)[None, :, None] * np.ones(left.shape)
    check = CLAIMS["TS46b"].check(changed(study, attention_noisy=left, noisy_fitted=noisy))
    assert check.verdict is Verdict.HOLDS
    assert check.has_power
    assert verdict(changed(study, attention_noisy=left, noisy_fitted=0.45 * noisy), "TS46b") is Verdict.FAILS
    # the world of the control: labels fitted where the head is quiet, not where it is noisy
    other = CLAIMS["TS46b"].check(changed(study, attention_noisy=left, noisy_fitted=1 - noisy))
    assert (other.evidence.holds, other.control.holds) == (False, True)


def test_harmful_cells_by_hand(study):
    plan = study.found.plan
    strength = plan.over_cells(n_d_snr_fourth)
    shape = study.found.error.shape
    base = {
        "noisy_fitted": np.ones(shape),
        "error_se": np.full(shape, 1e-6),
        "attention": np.full((*shape, 5), 0.2),
    }
    uniform = study.found.uniform_error[..., None] * np.ones(5)
    ordered = np.where(strength[..., None] < 11, uniform + 0.01, 0.0)
    check = CLAIMS["TS49"].check(changed(study, error=ordered, **base))
    assert check.verdict is Verdict.HOLDS
    assert check.has_power
    assert verdict(changed(study, error=uniform + 0.01, **base), "TS49") is Verdict.FAILS
    assert verdict(changed(study, error=np.zeros(shape), **base), "TS49") is Verdict.FAILS


def test_regimes(study):
    weak = heat_plan([4.0, 6.0], [200, 900], law=LAW, step_size=0.005, steps=20, runs=2, count=100)
    small = heat_study(heat_map(weak))
    assert {name: verdict(small, name) for name in ("TS42", "TS43", "TS45")} == dict.fromkeys(
        ("TS42", "TS43", "TS45"), Verdict.OUTSIDE
    )
    assert len(small.alone) == 3
