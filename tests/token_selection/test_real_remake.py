"""Tables made again by the command: interrupted, resumed, refused, with the plan's settings, rows and heads."""

import dataclasses
import hashlib
import json
import re

import numpy as np
import pytest
import torch

from attnbook.token_selection.real_data import experiment, remake, setups, trial
from attnbook.token_selection.real_data.loaders import load
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.tables import read_table
from attnbook.token_selection.real_data.trial import trial_of


@pytest.fixture
def tiny(monkeypatch):
    plan = dataclasses.replace(
        PLANS["digits"],
        phase1=128,
        pool=40,
        test=50,
        sizes=(10, 20),
        steps={10: 12, 20: 15},
        batch={10: None, 20: 8},
        recorded=(0, 5, 14),
        epochs=2,
    )
    monkeypatch.setitem(remake.PLANS, "digits", plan)
    threads = torch.get_num_threads()
    yield plan
    torch.set_num_threads(threads)


def cells(folder):
    """The stored cells without their timings."""
    found = json.loads((folder / "digits.json").read_text())["cells"]
    return [{key: value for key, value in cell.items() if key != "seconds"} for cell in found]


def test_an_interrupted_run_keeps_its_cells_and_goes_on(tiny, tmp_path, monkeypatch, capsys):
    assert remake.main(["digits", "--seeds", "0", "1", "--out", str(tmp_path / "whole")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"digits n=10 \(2 seeds\), eta \(0\.0, 0\.1, 0\.2, 0\.4\): +\d+\.\d \+- \d+\.\d", printed)
    assert [(cell["n"], cell["seed"]) for cell in cells(tmp_path / "whole")] == [(10, 0), (10, 1), (20, 0), (20, 1)]
    assert [cell["recorded"] for cell in cells(tmp_path / "whole")[1:3]] == [[0, 5, 12], [0, 5, 14, 15]]

    real, ran = setups.noise_study, []

    def third_is_interrupted(*arguments, **options):
        ran.append((options["seed"], options["n"]))
        if len(ran) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(setups, "noise_study", third_is_interrupted)
    assert remake.main(["digits", "--seeds", "0", "1", "--out", str(tmp_path / "parts")]) == 130
    assert "the same command goes on from there" in capsys.readouterr().err
    assert len(cells(tmp_path / "parts")) == 2
    assert remake.main(["digits", "--seeds", "0", "1", "--out", str(tmp_path / "parts")]) == 0
    assert ran == [(0, 10), (0, 20), (1, 10), (1, 10), (1, 20)]
    assert cells(tmp_path / "parts") == cells(tmp_path / "whole")
    capsys.readouterr()
    assert remake.main(["digits", "--seeds", "0", "1", "--out", str(tmp_path / "parts")]) == 0  # nothing left to do
    assert len(ran) == 5


def test_the_study_is_run_with_the_plans_settings(tiny, tmp_path, monkeypatch):
    real, seen = setups.noise_study, []

    def spy(*arguments, **options):
        seen.append(options)
        return real(*arguments, **options)

    monkeypatch.setattr(setups, "noise_study", spy)
    path = remake.remake("digits", seeds=[4], folder=tmp_path)
    assert path == tmp_path / "digits.json"
    kept = [
        {key: options[key] for key in ("n", "batch", "steps", "seed", "step_size", "noise_levels")} for options in seen
    ]
    common = {"seed": 4, "step_size": 5e-3, "noise_levels": (0.0, 0.1, 0.2, 0.4)}
    assert kept == [{"n": 10, "batch": None, "steps": 12, **common}, {"n": 20, "batch": 8, "steps": 15, **common}]
    assert all("warmup" not in options for options in seen)
    settings = read_table("digits", tmp_path).settings
    assert settings["phase2"]["batch"] == {"10": "all", "20": 8}
    assert settings["parts"] == {"phase 1": 128, "pool": 40, "test": 50}


def test_the_authors_way_reaches_the_trainer_and_the_table_gives_the_rule_its_trial(tiny, tmp_path, monkeypatch):
    schedule = {"warmup": 0, "final_fraction": 0.0, "drop_last": False, "start_scale": 0.05}
    monkeypatch.setitem(remake.PLANS, "digits", dataclasses.replace(tiny, schedule=schedule, sizes=(20,)))
    real, seen, studies = experiment.train_selection, [], []
    monkeypatch.setattr(experiment, "train_selection", lambda *a, **k: seen.append((a[2], k)) or real(*a, **k))
    study = setups.noise_study
    monkeypatch.setattr(setups, "noise_study", lambda *a, **k: studies.append((a, study(*a, **k))) or studies[-1][1])
    monkeypatch.setattr(trial, "SEEDS", 2)
    remake.remake("digits", seeds=range(2), folder=tmp_path)
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
    with pytest.raises(ValueError, match="digits does not: make it again"):
        trial_of(read_table("digits"), 20)


def test_other_settings_are_refused_before_the_work(tiny, tmp_path, monkeypatch, capsys):
    assert remake.main(["digits", "--seeds", "0", "--n", "10", "--out", str(tmp_path)]) == 0
    monkeypatch.setitem(remake.PLANS, "digits", dataclasses.replace(tiny, step_size=1e-3))
    monkeypatch.setattr(setups, "noise_study", lambda *a, **k: pytest.fail("trained before the check"))
    assert remake.main(["digits", "--seeds", "0", "1", "--out", str(tmp_path)]) == 2
    assert "measured with other settings (phase2)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trec"], "encoder must be given for trec"),
        (["digits", "--n", "30"], "n must be one of 20, 100, 200 for digits; got 30"),
        (["mnist", "--data", "nowhere"], "mnist was not found in nowhere/mnist: put train-images-idx3-ubyte"),
        (["digits", "--seeds", "-1"], "seed must be a whole number >= 0"),
    ],
)
def test_requests_that_cannot_be_carried_out(arguments, message, tmp_path, capsys):
    threads = torch.get_num_threads()
    assert remake.main([*arguments, "--out", str(tmp_path)]) == 2
    torch.set_num_threads(threads)
    error = capsys.readouterr().err
    assert message in error
    assert error.splitlines()[-1].startswith("remake: error: ")
    assert not list(tmp_path.iterdir())


def test_the_seeds_are_those_of_the_plan(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(remake.PLANS, "digits", dataclasses.replace(tiny, seeds=2, sizes=(10,)))
    assert remake.main(["digits", "--out", str(tmp_path)]) == 0
    assert read_table("digits", tmp_path).seeds(10) == (0, 1)
    assert remake.main(["digits", "--seeds", "3", "--out", str(tmp_path)]) == 0
    assert read_table("digits", tmp_path).seeds(10) == (0, 1, 3)


def test_a_head_is_scaled_to_the_plans_confidence_and_predicts_as_before(tiny, tmp_path, monkeypatch):
    name = "digits_equal_confidence"
    plan = dataclasses.replace(tiny, data="digits", sizes=(10,), confidence=1.7)
    monkeypatch.setitem(remake.PLANS, name, plan)
    real, seen = remake.prepare, []

    def spy(*arguments, **options):
        seen.append(real(*arguments, **options))
        return seen[-1]

    monkeypatch.setattr(remake, "prepare", spy)
    remake.remake(name, seeds=[1], folder=tmp_path)
    for scaled in seen:
        before = setups.prepare("digits", 1, plan=tiny)
        assert setups.head_confidence(scaled) == pytest.approx(1.7, rel=1e-5)
        assert setups.head_confidence(before) != pytest.approx(1.7, rel=1e-2)
        factor = 1.7 / setups.head_confidence(before)
        for part in ("pool", "test"):
            logits = getattr(before, part).logits(before.own)
            torch.testing.assert_close(getattr(scaled, part).logits(scaled.own), factor * logits, rtol=1e-4, atol=1e-5)
        assert scaled.head_only == before.head_only
        assert scaled.rows == before.rows
    assert len(seen) == 1
    assert read_table(name, tmp_path).settings["phase1"]["confidence"] == 1.7
    # Without it, the settings of a table do not speak of confidence: those stored before can still be added to.
    assert "confidence" not in remake.settings_of("digits", tiny, {}, seen[0].rows)["phase1"]
    [cell] = json.loads((tmp_path / f"{name}.json").read_text())["cells"][:1]
    assert cell["rows_sha256"] == seen[0].rows.drawn


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
    plan = dataclasses.replace(
        PLANS[name], phase1=20, pool=14, sizes=(8,), steps={8: 2}, batch={8: None}, recorded=(0,), epochs=1, seeds=2
    )
    monkeypatch.setitem(remake.PLANS, name, plan)
    path = remake.remake(name, folder=tmp_path / "out")
    document = json.loads(path.read_text())
    settings = document["settings"]
    assert settings["rows"] == {"train": 42, "val": 7, "test": 11}
    assert settings["sha256"] == {"breastmnist.npz": digest}
    assert settings["tested"] == 2 * (2 + 3)  # all of the smaller class, and as many of the other
    assert settings["parts"] == {
        "phase 1": 20,
        "pool": 14,
        "test": "the official test split",
        "test_split": "val+test",
        "balanced": "equally many samples of each class",
    }
    data = load(name)
    drawn = [setups.Rows.of(data, plan, seed).drawn for seed in (0, 1)]
    assert [cell["rows_sha256"] for cell in document["cells"]] == drawn
    assert str(tmp_path) not in path.read_text()
    for cell in read_table(name, tmp_path / "out").cells:
        counted = cell.values["test_accuracy"] * 10
        np.testing.assert_allclose(counted, counted.round(), atol=1e-4)
    # Other files are other settings, and are refused before the work.
    assert breast(tmp_path, counts, seed=1) != digest
    monkeypatch.setattr(setups, "noise_study", lambda *a, **k: pytest.fail("trained before the check"))
    with pytest.raises(ValueError, match=r"measured with other settings \(sha256\)"):
        remake.remake(name, seeds=[2], folder=tmp_path / "out")
