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


def altered(column, change):
    """One corner of the map altered."""

    def world(study):
        values = getattr(study.found, column).copy()
        values[0, -1] = change(values[0, -1])
        return changed(study, **{column: values})

    return world


def mean_fields_attention(study, off=0.0):
    return changed(study, attention=study.predicted.attention[..., None, None] * np.ones((1, 1, 5, 5)) + off)


def border(exponent):
    """A map whose border follows this power of the dimension."""

    def world(study):
        plan = study.found.plan
        at = 12 * (plan.dims / plan.dims[0]) ** (1 / exponent)
        rise = 1 / (1 + (at[:, None] / plan.signal_norms) ** 2)
        tilt = (plan.dims / plan.dims[0])[:, None, None] ** (0.001 * np.linspace(-1, 1, 5))
        return changed(study, attention=(rise[..., None] * tilt)[..., None] * np.ones(5))

    return world


def left_alone(study, fitted, attention=0.05):
    """Flipped samples with this much attention on the signal; labels fitted where `fitted` (rows, columns) is 1."""
    shape = study.found.attention_noisy.shape
    return changed(study, attention_noisy=np.full(shape, attention), noisy_fitted=fitted[..., None] * np.ones(shape))


def by_margin(study, opposite=False):
    return left_alone(study, ((study.predicted.margin_noisy > 0) != opposite) * 1.0)


def noisy_head(study, most=1.0, least=0.0):
    """Labels fitted by `most` where the reach rho |mu| / (sqrt 2 sigma) is at most 1/2, by `least` elsewhere."""
    reach = 0.1 * study.found.plan.signal_norms / math.sqrt(2)
    return left_alone(study, np.where(reach <= 0.5, most, least) * np.ones((len(study.found.plan.dims), 1)))


def harmful(study, where):
    """An error one per cent above that of uniform attention in cells of n d SNR^4 for which `where` holds, zero elsewhere."""
    strength, shape = study.found.plan.over_cells(n_d_snr_fourth), study.found.error.shape
    error = np.where(where(strength), study.found.uniform_error + 0.01, 0.0)[..., None] * np.ones(5)
    calm = {"noisy_fitted": np.ones(shape), "error_se": np.full(shape, 1e-6), "attention": np.full((*shape, 5), 0.2)}
    return changed(study, error=error, **calm)


WORLDS = [
    ("TS41", altered("loss", lambda x: 0.98 * x), Verdict.FAILS), ("TS42", altered("train_loss", lambda x: 0.98 * x), Verdict.FAILS),
    ("TS44", altered("clean_fitted", lambda x: 0.98 * x), Verdict.FAILS),
    ("TS47", mean_fields_attention, Verdict.HOLDS), ("TS47", lambda study: mean_fields_attention(study, 0.05), Verdict.FAILS),
    ("TS48", border(2.0), Verdict.HOLDS), ("TS48b", border(2.0), Verdict.FAILS),
    ("TS46", by_margin, Verdict.HOLDS),
    ("TS46", lambda study: left_alone(study, np.ones((6, 7)), attention=0.9), Verdict.OUTSIDE),
    ("TS46b", noisy_head, Verdict.HOLDS), ("TS46b", lambda study: noisy_head(study, most=0.45), Verdict.FAILS),
    ("TS49", lambda study: harmful(study, lambda strength: strength < 11), Verdict.HOLDS),
    ("TS49", lambda study: harmful(study, lambda strength: strength > 0), Verdict.FAILS),
    ("TS49", lambda study: harmful(study, lambda strength: strength < 0), Verdict.FAILS),
]  # fmt: skip


@pytest.mark.parametrize(("id", "world", "verdict"), WORLDS)
def test_a_judge_tells_its_worlds_apart(study, id, world, verdict):
    check = CLAIMS[id].check(world(study))
    assert check.verdict is verdict
    assert check.has_power or verdict is not Verdict.HOLDS or id in ("TS47", "TS48")


def border_off(study):
    plan, attention = study.found.plan, study.predicted.attention[..., None]
    return border(1.3 * border_exponents(plan, attention, 0.5)[0])(study)


def exchanged(study):
    fitted = study.found.noisy_fitted
    return changed(study, clean_fitted=0 * fitted, noisy_fitted=1 + 0 * fitted)


CONTROLS = [
    ("TS42", altered("train_loss", lambda x: 0 * x + 1.05 * 0.5423)),
    ("TS44", exchanged),
    ("TS46", lambda study: by_margin(study, opposite=True)), ("TS46b", lambda study: noisy_head(study, most=0.0, least=1.0)),
    ("TS47", lambda study: changed(study, attention=1.15 * mean_fields_attention(study).found.attention)),
    ("TS48b", border_off), ("TS49", lambda study: harmful(study, lambda strength: strength < 499)),
]  # fmt: skip


@pytest.mark.parametrize(("id", "world"), CONTROLS)
def test_where_the_control_is_true_it_holds_and_the_claim_fails(study, id, world):
    check = CLAIMS[id].check(world(study))
    assert (check.evidence.holds, check.control.holds) == (False, True)


def test_regimes():
    weak = heat_plan([4.0, 6.0], [200, 900], law=LAW, step_size=0.005, steps=20, runs=2, count=100)
    small = heat_study(heat_map(weak))
    assert {CLAIMS[name].check(small).verdict for name in ("TS42", "TS43", "TS45")} == {Verdict.OUTSIDE}
    assert len(small.alone) == 3
