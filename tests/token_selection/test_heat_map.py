"""Heat maps: every cell equals the cell alone, resume after an interruption, files that are refused, phases by hand."""

import math
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import attnlib
from attnbook.token_selection.heat_map import study as module
from attnbook.token_selection.heat_map.study import PHASES, HeatMap, heat_map, heat_plan, read_map, write_map
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import Start, TokenLaw
from attnlib.token_selection.population import population_along
from attnlib.token_selection.training import train
from tests.bad_input import refusing

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
    phases = HeatMap(plan, **blank, attention=attention).phases()[0, :, 0]
    wanted = ("does not overfit", "harmful", "selection still to come", "benign", "selection still to come")
    assert [PHASES[k] for k in phases] == list(wanted)


def test_phase_is_the_majority_and_says_where_runs_disagree():
    plan = small_plan(norms=(3.0, 4.0), dims=(40,), runs=3)
    blank = {name: np.ones((1, 2, 3)) for name in module._OUTCOMES}
    blank["noisy_fitted"] = np.array([[[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]])
    phase, disagree = HeatMap(plan, **blank, attention=np.full((1, 2, 3, 4), 0.6)).phase()
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
        module.os.replace = kill
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
    file = os.path.join(os.path.dirname(module.__file__), "tables", "heat_map_39x39.npz")
    assert os.path.getsize(file) < 200_000
    stored = read_map(file, plan)
    # one of its cells made again
    law = plan.cell(5, 4)
    path = train(draw_gram(law, 0), 0.005, 1000, record=[1000])
    fresh = population_along(path, count=20_000)
    assert stored.train_loss[5, 4, 0] == pytest.approx(path.loss[-1, 0].item(), rel=1e-6)
    assert stored.loss[5, 4, 0] == pytest.approx(fresh.loss[-1, 0].item(), rel=1e-6)


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


test_refusals = refusing(
    (heat_map, (small_plan(),), {"plan": {}}),
    (small_plan, (), {"dims": [(2, 40), (40.5,)], "runs": 0, "seed": -1, "count": 5, "step_size": -1.0, "steps": -1, "law": 3}),
    (lambda: small_plan(norms=()), "signal_norms must be a list of 1 numbers or more"),
    (lambda: small_plan(dims=[]), "dims must be a list of 1 numbers or more"),
    (lambda: small_plan(dims="ab"), "dims must be a list of numbers"),
    (lambda: small_plan(norms=(3.0, 2.0)), "signal_norms must be finite and strictly rising"),
    (lambda: small_plan(norms=(0.0, 2.0)), "signal_norms must be > 0"),
)  # fmt: skip
