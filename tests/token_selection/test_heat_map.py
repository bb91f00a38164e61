"""II.4: every cell equals the cell alone, resume after an interruption, refused files, phases by hand; altered maps change verdicts."""

import math
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import attnlib
from attnbook.token_selection.heat_map import study as module
from attnbook.token_selection.heat_map.claims import CLAIMS
from attnbook.token_selection.heat_map.study import (
    PHASES,
    HeatMap,
    border_exponents,
    heat_map,
    heat_plan,
    heat_study,
    predicted_map,
    read_map,
    uniform_error,
    write_map,
)
from attnbook.token_selection.mean_field import mean_field
from attnbook.token_selection.theory import fresh_attention, n_d_snr_fourth
from attnlib.token_selection.errors import population_along
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.training import train
from bookkit.claims import Verdict
from bookkit.sharpness import NoNumber

LAW = TokenLaw(n=10, d=7, tokens=4, signal_norm=1.0, weak_signal=0.2, noise_std=0.9, same_class_tokens=1)
NAMES = (*module._OUTCOMES, "attention")


def small_plan(norms=(3.0, 9.0, 40.0), dims=(40, 300), **changes):
    settings = {
        "law": LAW,
        "step_size": 0.02,
        "steps": 60,
        "runs": 2,
        "seed": 3,
        "count": 200,
        "start": Start(0.4, 0.02),
    }
    return heat_plan(norms, dims, **settings | changes)


@pytest.fixture(scope="module")
def found():
    return heat_map(small_plan())


def same(left: HeatMap, right: HeatMap, tolerance=0.0):
    for name in NAMES:
        np.testing.assert_allclose(
            getattr(left, name), getattr(right, name), rtol=tolerance, atol=tolerance, err_msg=name
        )


def test_a_cell_is_the_training_of_its_law(found):
    law = TokenLaw(10, 300, 4, 9.0, 0.2, 0.9)
    path = train(draw_gram(law, 3, 2, start=Start(0.4, 0.02)), 0.02, 60)
    fresh = population_along(path, count=200, rows=[-1])
    pairs = {
        "train_loss": path.loss[-1], "clean_fitted": path.train_accuracy("clean")[-1], "noisy_fitted": path.train_accuracy("noisy")[-1],
        "attention_clean": path.attention_of("clean")[-1, :, 0], "attention_noisy": path.attention_of("noisy")[-1, :, 0],
        "loss": fresh.loss[0], "loss_se": fresh.loss_se[0], "error": fresh.error[0], "error_se": fresh.error_se[0],
        "attention": fresh.attention[0],
    }  # fmt: skip
    assert set(pairs) == set(NAMES)
    for name, expected in pairs.items():
        np.testing.assert_allclose(getattr(found, name)[1, 1], expected.numpy(), rtol=1e-10, atol=1e-10, err_msg=name)
    assert np.isfinite(np.concatenate([getattr(found, name).ravel() for name in NAMES])).all()


def test_a_cell_does_not_depend_on_the_rest_of_the_map(found):
    other = heat_map(small_plan(norms=(9.0, 11.0), dims=(41, 300, 900), runs=1))
    for name in NAMES:
        np.testing.assert_allclose(
            getattr(other, name)[1, 0, 0], getattr(found, name)[1, 1, 0], rtol=1e-10, atol=1e-10, err_msg=name
        )


def test_phases_by_hand():
    plan = small_plan(norms=(3.0, 4.0, 5.0, 6.0, 7.0), dims=(40,), runs=1)
    uniform = [0.5 * math.erfc(x / (0.9 * math.sqrt(2 * 4)) / math.sqrt(2)) for x in plan.signal_norms]
    blank = {name: np.zeros((1, 5, 1)) for name in module._OUTCOMES}
    blank["noisy_fitted"] = np.array([0.4, 0.5, 1.0, 1.0, 1.0]).reshape(1, 5, 1)
    blank["error"] = np.array([0.5, uniform[1] + 0.03, uniform[2] + 0.01, 0.4, uniform[4] + 1e-4]).reshape(1, 5, 1)
    blank["error_se"] = np.full((1, 5, 1), 0.01)
    attention = np.full((1, 5, 1, 4), 0.1)
    attention[0, 3, 0, 0] = 0.5
    phases = HeatMap(plan=plan, **blank, attention=attention).phases()[0, :, 0]
    wanted = ("does not overfit", "harmful", "selection still to come", "benign", "selection still to come")
    assert [PHASES[k] for k in phases] == list(wanted)


def test_phase_is_the_majority_and_says_where_runs_disagree():
    plan = small_plan(norms=(3.0, 4.0), dims=(40,), runs=3)
    blank = {name: np.ones((1, 2, 3)) for name in module._OUTCOMES}
    blank["noisy_fitted"] = np.array([[[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]])
    phase, disagree = HeatMap(plan=plan, **blank, attention=np.full((1, 2, 3, 4), 0.6)).phase()
    assert phase.tolist() == [[PHASES.index("does not overfit"), PHASES.index("benign")]]
    assert disagree.tolist() == [[True, False]]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")
def test_killed_anywhere_it_goes_on(found, tmp_path):
    script = textwrap.dedent("""
        import os, signal, sys
        from attnbook.token_selection.heat_map import study as module
        from tests.token_selection.test_heat_map import small_plan
        replace, written = os.replace, []
        def kill(source, target):
            written.extend([target] * (str(target) == sys.argv[1]))  # not the machine code of a first compilation
            if len(written) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)
        os.replace = kill
        module._BATCH = 0.1
        module.heat_map(small_plan(), save=sys.argv[1])
    """)
    file = tmp_path / "map.npz"
    root = os.path.dirname(os.path.dirname(attnlib.__file__))
    ended = subprocess.run([sys.executable, "-c", script, str(file)], cwd=root, check=False)
    assert ended.returncode == -signal.SIGKILL
    with np.load(file) as stored:
        assert 0 < int(stored["done"]) < 12
    same(heat_map(small_plan(), save=file), found, 1e-10)


def test_small_files_and_back(found, tmp_path):
    file = tmp_path / "small.npz"
    write_map(found, file)
    same(read_map(file, found.plan), found, 1e-6)
    with np.load(file) as stored:
        assert stored["loss"].dtype == np.float32
        assert stored["dims"].tolist() == [40, 300]
    with pytest.raises(ValueError, match="a map of other parameters"):
        read_map(file, small_plan(steps=61))
    with pytest.raises(ValueError, match=r"there is no none\.npz"):
        read_map(tmp_path / "none.npz", found.plan)


def test_the_stored_map_is_the_papers_and_small():
    plan = heat_plan(
        np.linspace(5, 100, 39), np.arange(250, 5001, 125), law=TokenLaw(20, 3, 8, 1.0), step_size=0.005, steps=1000, runs=1,
        count=20_000,
    )  # fmt: skip
    assert plan.key == module.published_plan().key
    assert module.TABLE.stat().st_size < 200_000
    stored = read_map(module.TABLE, plan)
    # some of its cells made again: one a second way, others with all that is stored of them
    law = plan.cell(5, 4)
    path = train(draw_gram(law, 0), 0.005, 1000, record=[1000])
    fresh = population_along(path, count=20_000)
    assert stored.train_loss[5, 4, 0] == pytest.approx(path.loss[-1, 0].item(), rel=1e-6)
    assert stored.loss[5, 4, 0] == pytest.approx(fresh.loss[-1, 0].item(), rel=1e-6)
    norms, dims = [1, 17, 38], [0, 20, 38]
    part = replace(plan, signal_norms=plan.signal_norms[norms], dims=plan.dims[dims])
    made = heat_map(part)
    for name in (*module._OUTCOMES, "attention"):
        kept = getattr(stored, name)[np.ix_(dims, norms)]
        np.testing.assert_allclose(kept, getattr(made, name), rtol=1e-5, atol=1e-9, err_msg=name)


# --- refusals


def test_files_of_others_are_refused_and_kept(tmp_path, monkeypatch):
    file, tiny = tmp_path / "map.npz", {"norms": (3.0,), "dims": (40,), "runs": 1}
    heat_map(small_plan(**tiny), save=file)
    before = file.read_bytes()
    with pytest.raises(ValueError, match="a map of other parameters"):
        heat_map(small_plan(**tiny, seed=4), save=file)
    for content in (b"no zip", before[: len(before) // 2]):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="not a readable heat map"):
            heat_map(small_plan(**tiny), save=file)
        assert file.read_bytes() == content
    file.write_bytes(before)
    monkeypatch.setattr(module, "FORMAT", 99)
    with pytest.raises(ValueError, match=r"a file of format 99; got map\.npz, made by"):
        heat_map(small_plan(**tiny), save=file)
    assert [p.name for p in tmp_path.iterdir()] == ["map.npz"]


def test_places_that_cannot_be_written_are_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_compute", lambda *_: pytest.fail("worked first"))
    for place, message in ((tmp_path / "none" / "map.npz", "in a folder that does not exist"), (tmp_path, "a folder")):
        with pytest.raises(ValueError, match=message):
            heat_map(small_plan(), save=place)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.touch", refuse)
    with pytest.raises(ValueError, match=r"can be written; got 'map\.npz' \(Permission denied\)"):
        heat_map(small_plan(), save=tmp_path / "map.npz")
    assert list(tmp_path.iterdir()) == []


CLAIMS_LAW = TokenLaw(n=10, d=3, tokens=5, signal_norm=1.0)


@pytest.fixture(scope="module")
def study():
    plan = heat_plan(
        np.geomspace(4, 140, 7),
        np.rint(np.geomspace(150, 5000, 6)),
        law=CLAIMS_LAW,
        step_size=0.005,
        steps=500,
        runs=5,
        seed=2,
        count=2000,
    )
    return heat_study(heat_map(plan))


def changed(study, **arrays):
    """The study with columns of its map replaced."""
    return SimpleNamespace(**vars(study) | {"found": HeatMap(**vars(study.found) | arrays)})


def test_prediction_is_the_mean_field_of_each_cell(study):
    law = study.found.plan.cell(2, 4)
    path = mean_field(law, 0.005, weight_scale=1 / 3, horizon=500)
    attention = fresh_attention(law, path.signal_score[-1], path.signal_score[-1], path.score_variance[-1])
    assert study.predicted.attention[2, 4] == pytest.approx(attention[0], rel=1e-3)
    assert study.predicted.margin_noisy[2, 4] == pytest.approx(path.margins[-1, 1], abs=1e-4)
    assert study.predicted.attention_clean[2, 4] == pytest.approx(path.attention[-1, 0, 0], rel=1e-3)
    assert study.predicted.attention_noisy[2, 4] == pytest.approx(path.attention[-1, 1, 0], rel=2e-3)
    stronger = predicted_map(replace(study.found.plan, start=Start(weight_scale=0.6)))
    assert stronger.attention[2, 3] > study.predicted.attention[2, 3]


def test_border_of_a_known_power():
    plan = heat_plan(np.geomspace(2, 200, 40), [100, 400, 1600], law=CLAIMS_LAW, step_size=0.1, steps=1)
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


def by_margin(study):
    return left_alone(study, 1.0 * (study.predicted.margin_noisy > 0))


def noisy_head(study, most=1.0):
    """Labels fitted by `most` where the reach rho |mu| / (sqrt 2 sigma) is at most 1/2, not at all elsewhere."""
    reach = 0.1 * study.found.plan.signal_norms / math.sqrt(2)
    return left_alone(study, np.where(reach <= 0.5, most, 0.0) * np.ones((len(study.found.plan.dims), 1)))


def harmful(study, where):
    """An error one per cent above that of uniform attention in cells of n d SNR^4 for which `where` holds, zero elsewhere."""
    strength, shape = study.found.plan.over_cells(n_d_snr_fourth), study.found.error.shape
    error = np.where(where(strength), study.found.plan.over_cells(uniform_error) + 0.01, 0.0)[..., None] * np.ones(5)
    calm = {"noisy_fitted": np.ones(shape), "error_se": np.full(shape, 1e-6), "attention": np.full((*shape, 5), 0.2)}
    return changed(study, error=error, **calm)


WORLDS = [
    ("TS42", altered("train_loss", lambda x: 0.98 * x), Verdict.FAILS),
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


CONTROLS = [
    ("TS42", altered("train_loss", lambda x: 0 * x + 1.05 * 0.5423)),
    ("TS44", CLAIMS["TS44"].wrong),
    ("TS46", lambda study: CLAIMS["TS46"].wrong(by_margin(study))),
    ("TS46b", lambda study: CLAIMS["TS46b"].wrong(noisy_head(study))),
    ("TS47", lambda study: changed(study, attention=1.15 * mean_fields_attention(study).found.attention)),
    ("TS48b", border_off), ("TS49", lambda study: harmful(study, lambda strength: strength < 499)),
]  # fmt: skip


@pytest.mark.parametrize(("id", "world"), CONTROLS)
def test_where_the_control_is_true_it_holds_and_the_claim_fails(study, id, world):
    check = CLAIMS[id].check(world(study))
    assert (check.evidence.holds, check.control.holds) == (False, True)


@pytest.mark.parametrize("column", ["attention", "attention_noisy", "noisy_fitted", "train_loss", "error"])
def test_one_value_that_is_no_number_refuses_what_reads_it(study, column):
    """In one training set, in a cell that is strong, quiet and large: the lower, the upper and the middle row each have their judge."""
    told = {
        "attention": {"TS47", "TS48", "TS48b", "TS49"}, "attention_noisy": {"TS45", "TS46"},
        "noisy_fitted": {"TS45", "TS46", "TS46b", "TS49"}, "train_loss": {"TS42", "TS43"}, "error": {"TS49"},
    }  # fmt: skip
    values = getattr(study.found, column).copy()
    values[:, -1, 0] = math.nan
    world = changed(study, **{column: values})
    refused = {id for id in CLAIMS if any(isinstance(part, NoNumber) for part in CLAIMS[id].seen(world).parts)}
    assert refused == told[column]


def test_regimes():
    weak = heat_plan([4.0, 6.0], [200, 900], law=CLAIMS_LAW, step_size=0.005, steps=20, runs=2, count=100)
    small = heat_study(heat_map(weak))
    assert {CLAIMS[name].check(small).verdict for name in ("TS42", "TS43", "TS45")} == {Verdict.OUTSIDE}
