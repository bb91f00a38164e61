"""Stored tables: what is written is what was measured, nothing is lost or mixed; made again, interrupted, resumed, refused."""

import dataclasses
import hashlib
import json
import math
import re

import numpy as np
import pytest
import torch

from attnbook.token_selection.real_data import door, experiment, setups, tables, trial
from attnbook.token_selection.real_data.experiment import NoiseStudy
from attnbook.token_selection.real_data.loaders import load
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.setups import prepare
from attnbook.token_selection.real_data.tables import (
    add_cell,
    cell_record,
    read_table,
)
from attnbook.token_selection.real_data.trial import trial_of

pytestmark = pytest.mark.usefixtures("one_thread")
LEVELS = (0.0, 0.2)
SETTINGS = {"phase2": {"step_size": 0.005, "steps": {"20": 30}}, "date": "2026-01-01", "versions": {"torch": "x"}}


def study(seed=0, n=20, accuracy=((0.5, 0.9, 0.8), (0.5, 0.7, 0.6))):
    """A study of two noise levels and three recorded steps."""
    nan = math.nan
    return NoiseStudy(
        seed=seed,
        n=n,
        recorded=torch.tensor([0, 10, 30]),
        test_accuracy=torch.tensor(accuracy, dtype=torch.float64),
        fit_noisy=torch.tensor([[nan] * 3, [0.0, 0.25, 1.0]]),
        fit_clean=torch.tensor([[0.5, 1.0, 1.0], [0.5, 0.75, 1.0]]),
        train_loss=torch.tensor([[1.0, 0.1, 0.0123456], [2.0, 0.4, 0.1]]),
        max_attention=torch.tensor([[nan, 0.4, 0.3], [0.7, 0.5, 0.45]]),
        twin_distance=torch.tensor([[nan, 0.0, 0.0], [0.8, 0.5, 0.6]]),
        linear_head=torch.tensor([0.9, 0.7]),
        linear_head_fit=torch.tensor([1.0, 1.0]),
        head_only=0.95,
        reset=0.5,
        reach=nan,
    )


def store(folder, settings=SETTINGS, **options):
    return add_cell(folder / "toy.json", "toy", settings, LEVELS, cell_record(study(**options), seconds=1.26))


def test_what_is_read_is_what_was_measured(tmp_path):
    store(tmp_path)
    table = read_table("toy", tmp_path)
    assert (table.name, table.noise_levels, table.sizes, table.seeds(20)) == ("toy", LEVELS, (20,), (0,))
    [cell] = table.cells
    assert (cell.recorded, cell.seconds) == ((0, 10, 30), 1.3)
    measured = study()
    for name, stored in cell.values.items():
        wanted = np.asarray(getattr(measured, name), dtype=float).round(5)  # what is stored has five digits
        np.testing.assert_allclose(stored, wanted, rtol=0, atol=1e-12, err_msg=name)
    assert math.isnan(cell.values["reach"])
    assert "NaN" not in (tmp_path / "toy.json").read_text()


def test_means_by_hand(tmp_path):
    for seed, first, second in ((2, 0.7, 0.7), (0, 0.8, 0.6), (1, 0.9, 0.5)):
        store(tmp_path, seed=seed, accuracy=((0.3, 0.9, first), (0.3, 0.7, second)))
    store(tmp_path, seed=0, n=5)
    table = read_table("toy", tmp_path)
    assert table.seeds(20) == (0, 1, 2)
    assert table.sizes == (5, 20)
    np.testing.assert_allclose(table.final("test_accuracy", 20), [0.8, 0.6], atol=1e-12)
    assert table.values("twin_distance", 20).shape == (3, 2, 3)
    np.testing.assert_allclose(table.final("twin_distance", 20)[1], [0.8, 0.5, 0.6], atol=1e-6)
    assert table.final("head_only", 20) == pytest.approx(0.95)
    with pytest.raises(KeyError, match=r"no finished run at n = 7: finished are \(5, 20\)"):
        table.values("reset", 7)


def test_a_cell_is_replaced_and_one_line_each(tmp_path):
    store(tmp_path)
    path = store(tmp_path, accuracy=((0.5, 0.9, 0.1), (0.5, 0.7, 0.2)))
    table = read_table("toy", tmp_path)
    assert [cell.values["test_accuracy"][0, -1] for cell in table.cells] == [0.1]
    assert len([line for line in path.read_text().splitlines() if '"seed":' in line]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["toy.json"]


def test_cells_of_other_settings_are_refused(tmp_path):
    store(tmp_path)
    store(tmp_path, settings={**SETTINGS, "date": "2027-01-01", "versions": {"torch": "y"}}, seed=1)
    before = (tmp_path / "toy.json").read_text()
    other = {**SETTINGS, "phase2": {"step_size": 0.001, "steps": {"20": 30}}}
    with pytest.raises(
        ValueError, match=r"measured with other settings \(phase2\): delete it, or write to another file by -o"
    ):
        store(tmp_path, settings=other, seed=2)
    for name, levels, differ in (("toy", (0.0, 0.1), "noise_levels"), ("ball", LEVELS, "name")):
        with pytest.raises(ValueError, match=rf"\({differ}\)"):
            add_cell(tmp_path / "toy.json", name, SETTINGS, levels, cell_record(study(seed=2), seconds=1))
    assert (tmp_path / "toy.json").read_text() == before
    assert read_table("toy", tmp_path).settings["date"] == "2026-01-01"


def test_damaged_tables_are_refused(tmp_path):
    path = store(tmp_path)
    text = path.read_text()
    shorter = text.replace('"recorded":[0,10,30]', '"recorded":[0,10]')
    for damaged, message in (
        (text[:-40], "is not a stored table"),
        ('{"name": 1}', r"is not a stored table \(entries \['name'\]\)"),
        (shorter, r"test_accuracy of seed 0, n 20 has shape \(2, 3\)"),
    ):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=message):
            read_table("toy", tmp_path)
    with pytest.raises(FileNotFoundError, match="no stored table 'other': stored are toy; make it with attnlib real o"):
        read_table("other", tmp_path)


STEPS = {"steps": {10: 12, 20: 15}, "batch": {10: None, 20: 8}}


@pytest.fixture
def tiny(monkeypatch):
    plan = dataclasses.replace(
        PLANS["digits"], phase1=128, pool=40, test=50, sizes=(10, 20), epochs=2, **STEPS | {"recorded": (0, 5, 14)}
    )
    monkeypatch.setitem(PLANS, "digits", plan)
    return plan


def cells(path):
    """The stored cells without their timings."""
    found = json.loads(path.read_text())["cells"]
    return [{key: value for key, value in cell.items() if key != "seconds"} for cell in found]


def test_an_interrupted_run_keeps_its_cells_and_goes_on(tiny, tmp_path, monkeypatch, capsys):
    whole, parts = tmp_path / "whole.json", tmp_path / "parts.json"
    asked = ["digits", "--seeds", "0", "1", "-o"]
    assert door.main([*asked, str(whole), "--dry-run"]) == 0
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr().out
    assert "phase 1 128 samples, pool 40, test 50; n = 10, 20; 4 of 4 runs are left\nabout " in printed
    assert door.main([*asked, str(whole)]) == 0
    assert [(cell["n"], cell["seed"]) for cell in cells(whole)] == [(10, 0), (10, 1), (20, 0), (20, 1)]
    assert [cell["recorded"] for cell in cells(whole)[1:3]] == [[0, 5, 12], [0, 5, 14, 15]]
    # What is printed: means over the two seeds and F by hand.
    printed, ten = capsys.readouterr().out, cells(whole)[:2]
    accuracy = np.array([[path[-1] for path in cell["test_accuracy"]] for cell in ten])
    assert re.search(r"accuracy, %" + "".join(rf" +{100 * a:.1f}" for a in accuracy.mean(0)) + r"\n", printed)
    assert re.search(
        r"linear head, %" + "".join(rf" +{100 * a:.1f}" for a in np.mean([c["linear_head"] for c in ten], 0)), printed
    )
    lost = [(3 * a[0] - a[1:].sum()) / (0.7 * (10 * a[0] - 1) / 9) for a in accuracy]
    assert f"F {np.mean(lost):.2f}, no interval: the rule asks for 5 seeds" in printed

    real, ran = setups.noise_study, []

    def third_is_interrupted(*arguments, **options):
        ran.append((options["seed"], options["n"]))
        if len(ran) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(setups, "noise_study", third_is_interrupted)
    assert door.main([*asked, str(parts)]) == 130
    assert "the same command goes on from there" in capsys.readouterr().err
    assert len(cells(parts)) == 2
    assert door.main([*asked, str(parts)]) == 0
    assert ran == [(0, 10), (0, 20), (1, 10), (1, 10), (1, 20)]
    assert cells(parts) == cells(whole)
    monkeypatch.setattr(door, "estimate", lambda *_: pytest.fail("nothing is left to do"))
    assert door.main([*asked, str(parts)]) == 0
    assert len(ran) == 5


def test_the_study_is_run_with_the_plans_settings(tiny, tmp_path, monkeypatch):
    real, seen = setups.noise_study, []
    monkeypatch.setattr(setups, "noise_study", lambda *a, **k: seen.append(k) or real(*a, **k))
    tables.remake("digits", seeds=[4], out=tmp_path / "digits.json")
    common = {"seed": 4, "step_size": 5e-3, "noise_levels": (0.0, 0.1, 0.2, 0.4)}
    for options, own in zip(
        seen, ({"n": 10, "batch": None, "steps": 12}, {"n": 20, "batch": 8, "steps": 15}), strict=True
    ):
        assert own | common == {key: options[key] for key in own | common}
        assert "warmup" not in options
    settings = read_table("digits", tmp_path).settings
    assert settings["phase2"]["batch"] == {"10": "all", "20": 8}
    assert settings["parts"] == {"phase 1": 128, "pool": 40, "test": 50}


def test_the_authors_way_reaches_the_trainer_and_the_table_gives_the_rule_its_trial(tiny, tmp_path, monkeypatch):
    schedule = {"warmup": 0, "final_fraction": 0.0, "drop_last": False, "start_scale": 0.05}
    monkeypatch.setitem(PLANS, "digits", dataclasses.replace(tiny, schedule=schedule, sizes=(20,)))
    real, seen, studies = experiment.train_selection, [], []
    monkeypatch.setattr(experiment, "train_selection", lambda *a, **k: seen.append((a[2], k)) or real(*a, **k))
    study = setups.noise_study
    monkeypatch.setattr(setups, "noise_study", lambda *a, **k: studies.append((a, study(*a, **k))) or studies[-1][1])
    monkeypatch.setattr(trial, "SEEDS", 2)
    tables.remake("digits", seeds=range(2), out=tmp_path / "digits.json")
    for start, options in seen:
        assert (options["warmup"], options["final_fraction"], options["drop_last"]) == (0, 0.0, False)
        assert start.key.std().item() == pytest.approx(0.05, rel=0.1)
    table = read_table("digits", tmp_path)
    assert table.settings["phase2"]["optimiser"].startswith("AdamW without weight decay, no warm-up, linear to zero")
    assert "s.d. 0.05," in table.settings["phase2"]["trained"]
    found = trial_of(table, 20)
    np.testing.assert_allclose(found.accuracy, table.values("test_accuracy", 20)[..., -1], atol=1e-5)
    for hits, rows, ((_, _, _, labels), one) in zip(found.hits, found.rows, studies, strict=True):
        assert hits.shape == (4, 50)
        np.testing.assert_array_equal(hits, one.hits)
        np.testing.assert_array_equal(load("digits").split("all").y[rows], labels)


def test_other_settings_are_refused_before_the_work(tiny, tmp_path, monkeypatch, capsys):
    asked = ["digits", "--seeds", "0", "1", "--n", "10", "-o", str(tmp_path / "t.json")]
    assert door.main([*asked[:3], *asked[4:]]) == 0
    monkeypatch.setattr(tables, "prepare", lambda *a, **k: pytest.fail("phase 1 before the check"))
    assert door.main([*asked, "--noise", "0", "0.2"]) == 2
    assert "measured with other settings (noise_levels)" in capsys.readouterr().err
    monkeypatch.setitem(PLANS, "digits", dataclasses.replace(tiny, step_size=1e-3))
    assert door.main(asked) == 2
    assert "measured with other settings (phase2)" in capsys.readouterr().err


def test_a_set_that_is_not_there_is_said_in_one_line(tmp_path, capsys):
    assert door.main(["mnist", "--data", "nowhere", "-o", str(tmp_path / "new.json")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("attnlib real: error: mnist was not found in nowhere/mnist: put train-images-idx3-ubyte")
    assert (error.count("\n"), list(tmp_path.iterdir())) == (1, [])


def test_a_head_is_scaled_to_the_plans_confidence_and_predicts_as_before(tiny, tmp_path, monkeypatch):
    name = "digits_equal_confidence"
    monkeypatch.setitem(PLANS, name, dataclasses.replace(tiny, data="digits", sizes=(10,), confidence=1.7))
    scaled, before = prepare(name, 1), prepare("digits", 1)
    factor = 1.7 / setups.head_confidence(before)
    assert setups.head_confidence(scaled) == pytest.approx(1.7, rel=1e-5)
    assert abs(factor - 1) > 1e-2
    for part in ("pool", "test"):
        logits = getattr(before, part).logits(before.own)
        torch.testing.assert_close(getattr(scaled, part).logits(scaled.own), factor * logits, rtol=1e-4, atol=1e-5)
    assert (scaled.head_only, scaled.rows) == (before.head_only, before.rows)
    tables.remake(name, seeds=[1], out=tmp_path / f"{name}.json")
    assert read_table(name, tmp_path).settings["phase1"]["confidence"] == 1.7
    # Without it, the settings of a table do not speak of confidence: those stored before can still be added to.
    assert "confidence" not in tables.settings_of("digits", tiny, {}, before.rows, load("digits"))["phase1"]


def breast(folder, counts, seed=0):
    """breastmnist.npz of noise, and its sha256."""
    rng, arrays = np.random.default_rng(seed), {}
    for split, sizes in counts.items():
        labels = rng.permutation(np.repeat([0, 1], sizes)).astype(np.uint8)
        arrays |= {f"{split}_labels": labels[:, None]}
        arrays |= {f"{split}_images": rng.integers(0, 256, (len(labels), 28, 28), dtype=np.uint8)}
    (folder / "medmnist").mkdir(exist_ok=True)
    path = folder / "medmnist" / "breastmnist.npz"
    np.savez(path, **arrays)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_table_of_balanced_parts_says_which_rows_of_which_file(tmp_path, monkeypatch, capsys):
    name, counts = "breast_mnist", {"train": (12, 30), "val": (2, 5), "test": (3, 8)}
    digest = breast(tmp_path, counts)
    monkeypatch.setenv("ATTNLIB_DATA", str(tmp_path))
    short = {"sizes": (8,), "steps": {8: 2}, "batch": {8: None}, "recorded": (0,), "epochs": 1, "seeds": 2}
    plan = dataclasses.replace(PLANS[name], phase1=20, pool=14, **short)
    monkeypatch.setitem(PLANS, name, plan)
    path = tmp_path / "mine.json"
    tables.remake(name, out=path)
    document = json.loads(path.read_text())
    settings = document["settings"]
    assert settings["rows"] == {"train": 42, "val": 7, "test": 11}
    assert settings["sha256"] == {"breastmnist.npz": digest}
    assert settings["tested"] == 2 * (2 + 3)  # all of the smaller class, and as many of the other
    assert (settings["parts"]["test_split"], settings["parts"]["balanced"][:7]) == ("val+test", "equally")
    data = load(name)
    drawn = [setups.Rows.of(data, plan, seed).drawn for seed in (0, 1)]
    assert [cell["rows_sha256"] for cell in document["cells"]] == drawn
    assert str(tmp_path) not in path.read_text()
    # Other files are other settings, and are refused before the work.
    assert breast(tmp_path, counts, seed=1) != digest
    monkeypatch.setattr(setups, "noise_study", lambda *a, **k: pytest.fail("trained before the check"))
    with pytest.raises(ValueError, match=r"measured with other settings \(sha256\)"):
        tables.remake(name, seeds=[2], out=path)
