"""Stored tables: what is written is what was measured, nothing is lost or mixed; made again, interrupted, resumed, refused."""

import dataclasses
import hashlib
import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnbook.token_selection.real_data import door, effective, experiment, remake, setups, tables, trial
from attnbook.token_selection.real_data.digits import digits_study
from attnbook.token_selection.real_data.effective import describe, read_effective
from attnbook.token_selection.real_data.experiment import NoiseStudy
from attnbook.token_selection.real_data.loaders import DATA_SETS, load
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.remake import run_cell
from attnbook.token_selection.real_data.setups import prepare
from attnbook.token_selection.real_data.tables import (
    PUBLISHED,
    TABLES,
    add_cell,
    cell_record,
    read_table,
    stored_tables,
)
from attnbook.token_selection.real_data.trial import trial_of

pytestmark = pytest.mark.usefixtures("one_thread")
LEVELS = (0.0, 0.2)
SETTINGS = {"phase2": {"step_size": 0.005, "steps": {"20": 30}}, "date": "2026-01-01", "versions": {"torch": "x"}}


def study(seed=0, n=20, accuracy=((0.5, 0.9, 0.8), (0.5, 0.7, 0.6))):
    """Stands for a `NoiseStudy` of two noise levels and three recorded steps."""
    nan = math.nan
    return SimpleNamespace(
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


def test_every_quantity_of_a_table_is_one_of_the_study():
    names = {field.name for field in dataclasses.fields(NoiseStudy)}
    assert set(tables._AXES) <= names


def test_mean_and_spread_by_hand(tmp_path):
    accuracies = [
        ((0.5, 0.9, 0.8), (0.5, 0.7, 0.6)),
        ((0.4, 0.8, 0.9), (0.4, 0.6, 0.5)),
        ((0.3, 0.7, 0.7), (0.3, 0.6, 0.7)),
    ]
    for seed in (2, 0, 1):
        store(tmp_path, seed=seed, accuracy=accuracies[seed])
    store(tmp_path, seed=0, n=5)
    table = read_table("toy", tmp_path)
    assert table.seeds(20) == (0, 1, 2)
    assert table.sizes == (5, 20)
    mean, spread = table.final("test_accuracy", 20)
    np.testing.assert_allclose(mean, [0.8, 0.6], atol=1e-12)
    np.testing.assert_allclose(spread, [0.1, 0.1], atol=1e-12)  # n - 1 below the root; with n it would be 0.082
    assert table.values("twin_distance", 20).shape == (3, 2, 3)
    np.testing.assert_allclose(table.final("twin_distance", 20)[0][1], [0.8, 0.5, 0.6], atol=1e-6)
    assert table.final("head_only", 20)[0] == pytest.approx(0.95)
    assert np.isnan(table.final("test_accuracy", 5)[1]).all()  # one seed has no spread
    with pytest.raises(KeyError, match=r"no finished run at n = 7: finished are \(5, 20\)"):
        table.values("reset", 7)
    with pytest.raises(ValueError, match="what must be one of 'test_accuracy'"):
        table.final("accuracy", 20)


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
    with pytest.raises(ValueError, match=r"\(noise_levels\)"):
        add_cell(tmp_path / "toy.json", "toy", SETTINGS, (0.0, 0.1), cell_record(study(seed=2), seconds=1))
    with pytest.raises(ValueError, match=r"\(name\)"):
        add_cell(tmp_path / "toy.json", "ball", SETTINGS, LEVELS, cell_record(study(seed=2), seconds=1))
    assert (tmp_path / "toy.json").read_text() == before
    assert read_table("toy", tmp_path).settings["date"] == "2026-01-01"


def test_damaged_tables_are_refused(tmp_path):
    path = store(tmp_path)
    text = path.read_text()
    for damaged, message in (
        (text[:-40], "is not a stored table"),
        ("[]", "is not a stored table"),
        ('{"name": 1}', r"is not a stored table \(entries \['name'\]\)"),
        (
            text.replace('"recorded":[0,10,30]', '"recorded":[0,10]'),
            r"test_accuracy of seed 0, n 20 has shape \(2, 3\)",
        ),
    ):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=message):
            read_table("toy", tmp_path)
    with pytest.raises(
        FileNotFoundError, match="no stored table 'other': stored are toy; make it with attnlib real other"
    ):
        read_table("other", tmp_path)


# Plans of the trial that have no table yet; the others have those n and seeds that II.9 lists.
TO_COME = (
    "breast_mnist_authors pneumonia_mnist_authors cifar10_lite0_range_authors "
    "ag_news_mpnet_range_authors cifar10_lite2 mnist_lite2"
)


# --- The tables that come with the package -------------------------------------------------------------------------------


def test_every_plan_but_those_of_a_pretrained_vit_has_a_table():
    """Whole, but in the trial of strong backbones and ways of training: there each n that is there has five seeds or more, from 0 on."""
    of_the_trial = ("_lite0", "_mpnet", "_authors", "_range", "_lite2")
    stored = {name for name in stored_tables() if "_confidence_" not in name}  # of `causes`: those that are there
    asked = {name for name in PLANS if "_confidence_" not in name and "_pretrained" not in name}
    assert asked - stored == set(TO_COME.split())
    for name in stored:
        table, plan = read_table(name), PLANS[name]
        cells = {(cell.n, cell.seed) for cell in table.cells}
        first = plan.first_seed
        wanted = {(n, seed) for n in plan.sizes for seed in range(first, first + plan.seeds)}
        if name.endswith(of_the_trial):
            assert all(
                table.seeds(n) == tuple(range(first, first + max(5, len(table.seeds(n))))) for n in table.sizes
            ), name
            assert cells <= wanted, name
        else:
            assert cells == wanted, name
    for name in ("mnist", "cifar10", "trec", "ag_news"):
        assert read_table(name).sizes == (20, 200, 1000)


@pytest.mark.parametrize("name", stored_tables())
def test_a_stored_table_is_whole_and_says_how_it_was_made(name):
    table = read_table(name)
    plan = PLANS[name]
    assert table.noise_levels == plan.noise
    assert table.cells
    assert set(table.sizes) <= set(plan.sizes)
    for n in table.sizes:
        assert len(table.seeds(n)) == len(set(table.seeds(n)))
        assert set(table.seeds(n)) <= set(range(plan.first_seed, plan.first_seed + plan.seeds))
        for what, axes in tables._AXES.items():
            values = table.values(what, n)
            known = values[:, 1:] if what == "fit_noisy" else values[..., 1:] if axes == "E3" else values
            assert np.isfinite(known).all(), what
            assert (known >= 0).all(), what
            if what != "train_loss":
                assert (known <= 1).all(), what
        # The twin is no distance from itself, all levels start alike, and the reset accuracy is that start.
        assert not table.values("twin_distance", n)[:, 0, 1:].any()
        accuracy = table.values("test_accuracy", n)
        assert (accuracy[:, :, 0] == table.values("reset", n)[:, None]).all()
        # Round numbers of samples: fits are multiples of 1/round(eta n), to the five digits that are stored.
        fit = table.values("fit_noisy", n)
        for level, eta in enumerate(table.noise_levels[1:], start=1):
            flipped = (fit[:, level] * round(eta * n)).round()
            np.testing.assert_allclose((flipped / round(eta * n)).round(5), fit[:, level], rtol=0, atol=1e-9)
        tested = table.settings.get("tested") or table.settings["parts"]["test"]
        tested = 500 if tested == "the official test split" else tested  # TREC's
        np.testing.assert_allclose(((accuracy * tested).round() / tested).round(5), accuracy, rtol=0, atol=1e-9)
    text = (TABLES / f"{name}.json").read_text(encoding="utf-8")
    assert not re.search(r"[\"' ](/|[A-Z]:\\|~/)", text)  # no path of any machine
    assert len(text) < 120_000
    plan = PLANS[name]
    settings = table.settings
    assert re.match(
        rf"(attnlib real|python -m attnbook.token_selection.real_data.remake) {name}\b", settings["command"]
    )
    assert settings["data"] == DATA_SETS[plan.data or name].recorded
    assert settings["phase2"]["step_size"] == plan.step_size
    assert {int(n): steps for n, steps in settings["phase2"]["steps"].items()} == dict(plan.steps)
    assert {(cell.n, cell.recorded[-1]) for cell in table.cells} == {(n, plan.steps[n]) for n in table.sizes}
    assert settings["official_split"] == plan.official
    assert settings["phase1"].get("confidence", 0) == plan.confidence
    assert (settings["phase1"]["epochs"], settings["phase1"]["step_size"]) == (plan.epochs, plan.head_step_size)
    parts = settings["parts"]
    assert (parts["phase 1"], parts["pool"]) == (plan.phase1, plan.pool)
    assert ("balanced" in parts) == plan.balanced
    for key, value in {**plan.shape, **plan.random_features}.items():
        assert settings["backbone"][key] == value
    assert settings["versions"]["torch"]
    if plan.kind == "text":
        assert re.fullmatch("[0-9a-f]{64}", settings["backbone"][f"{plan.fixed or 'weights'}_sha256"])
        assert settings["backbone"]["layers"] == (1 if plan.fixed else 6)


MEASURED_WITH_ROWS = [name for name in stored_tables() if "rows" in read_table(name).settings]


def digests(name):
    """Seed -> sha256 of its rows, of a stored table; every n of a seed has the same."""
    found = {}
    for cell in json.loads((TABLES / f"{name}.json").read_text(encoding="utf-8"))["cells"]:
        assert re.fullmatch("[0-9a-f]{64}", cell["rows_sha256"])
        assert found.setdefault(cell["seed"], cell["rows_sha256"]) == cell["rows_sha256"]
    return found


@pytest.mark.parametrize("name", MEASURED_WITH_ROWS)
def test_a_table_says_which_samples_it_used(name):
    settings, plan, own = read_table(name).settings, PLANS[name], digests(name)
    assert len(set(own.values())) == len(own)  # every seed drew others
    rows, tested = settings["rows"], settings["tested"]
    assert rows[plan.official] >= plan.phase1 + plan.pool or plan.balanced
    held = sum(rows[split] for split in (plan.test_split or plan.official).split("+"))
    assert 0 < tested <= held
    assert tested == (plan.test or (tested if plan.balanced else held))
    assert bool(settings["sha256"]) == (settings["data"] != "scikit-learn's digits")
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in settings["sha256"].values())
    base = plan.data or name
    if base in MEASURED_WITH_ROWS:  # the same samples of the same files, on every backbone and under every head
        others = digests(base)
        assert all(others[seed] == digest for seed, digest in own.items() if seed in others)
        assert read_table(base).settings["sha256"] == settings["sha256"]


@pytest.mark.parametrize("name", [name for name in stored_tables() if name.endswith("_equal_confidence")])
def test_a_factor_on_the_head_changes_no_prediction_of_phase_1(name):
    base = name.removesuffix("_equal_confidence")
    known = {cell.seed: cell.values["head_only"] for cell in read_table(base).cells}
    for cell in read_table(name).cells:
        if cell.seed in known:
            assert cell.values["head_only"] == pytest.approx(known[cell.seed], abs=1e-9)


@pytest.mark.weekly
def test_the_digits_are_measured_again():
    """Of the only set that needs no download, the first network: a cell of its table, its description, a seed of the laptop's study.

    Phase 1 is hundreds of steps in float32: another processor may end elsewhere by a sample or two of 500.
    """
    plan, setup = PLANS["digits"], prepare("digits", 0, plan=PLANS["digits"])
    kept, found = dataclasses.asdict(read_effective()["digits"][0]), dataclasses.asdict(describe(setup))
    assert found == pytest.approx(kept, rel=0.02, abs=0.005)
    (cell,) = (cell for cell in read_table("digits").cells if (cell.n, cell.seed) == (20, 0))
    record = cell_record(run_cell(setup, plan, 20, 0), seconds=0.0)
    for name, value in cell.values.items():
        again = np.array(record[name], dtype=float)
        np.testing.assert_allclose(again, value, rtol=0.02, atol=0.02, err_msg=name)
    study = digits_study(seeds=1, sizes=(20, 100, 200), live=1)
    assert study.drift <= 0.02


def test_published_numbers_are_those_of_the_six_sets():
    assert set(PUBLISHED) == set(DATA_SETS) - {"digits"}
    assert PUBLISHED["ag_news"][0.2, 1000] == (69.6, 1.1)
    assert PUBLISHED["breast_mnist"].keys() == {None, (0.0, 20), (0.0, 200), (0.2, 20), (0.2, 200)}
    for rows in PUBLISHED.values():
        assert all(50 < mean < 100 for mean, _ in rows.values())


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
    assert "phase 1 128 samples, pool 40, test 50; n = 10, 20; 4 of 4 runs are left\nabout 0." in printed
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

    def spy(*arguments, **options):
        seen.append(options)
        return real(*arguments, **options)

    monkeypatch.setattr(setups, "noise_study", spy)
    remake.remake("digits", seeds=[4], out=tmp_path / "digits.json")
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
    remake.remake("digits", seeds=range(2), out=tmp_path / "digits.json")
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
    asked = ["digits", "--seeds", "0", "1", "--n", "10", "-o", str(tmp_path / "t.json")]
    assert door.main([*asked[:3], *asked[4:]]) == 0
    monkeypatch.setattr(remake, "prepare", lambda *a, **k: pytest.fail("phase 1 before the check"))
    assert door.main([*asked, "--noise", "0", "0.2"]) == 2
    assert "measured with other settings (noise_levels)" in capsys.readouterr().err
    monkeypatch.setitem(remake.PLANS, "digits", dataclasses.replace(tiny, step_size=1e-3))
    assert door.main(asked) == 2
    assert "measured with other settings (phase2)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "--seeds", "-1"], "seed must be a whole number >= 0"),
        (["mnist", "--data", "nowhere"], "mnist was not found in nowhere/mnist: put train-images-idx3-ubyte"),
    ],
)
@pytest.mark.parametrize(("command", "out"), [(door, "-o"), (effective, "--out")])
def test_requests_that_cannot_be_carried_out(command, out, arguments, message, tmp_path, capsys):
    assert command.main([*arguments, out, str(tmp_path / "new.json")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.splitlines()[-1].startswith(f"{'attnlib real' if command is door else 'effective'}: error: ")
    assert not list(tmp_path.iterdir())


def test_a_head_is_scaled_to_the_plans_confidence_and_predicts_as_before(tiny, tmp_path, monkeypatch):
    name = "digits_equal_confidence"
    plan = dataclasses.replace(tiny, data="digits", sizes=(10,), confidence=1.7)
    monkeypatch.setitem(remake.PLANS, name, plan)
    real, seen = remake.prepare, []

    def spy(*arguments, **options):
        seen.append(real(*arguments, **options))
        return seen[-1]

    monkeypatch.setattr(remake, "prepare", spy)
    remake.remake(name, seeds=[1], out=tmp_path / f"{name}.json")
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
    assert "confidence" not in remake.settings_of("digits", tiny, {}, seen[0].rows, load("digits"))["phase1"]
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
    path = tmp_path / "mine.json"
    remake.remake(name, out=path)
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
    for cell in read_table("mine", tmp_path).cells:
        counted = cell.values["test_accuracy"] * 10
        np.testing.assert_allclose(counted, counted.round(), atol=1e-4)
    # Other files are other settings, and are refused before the work.
    assert breast(tmp_path, counts, seed=1) != digest
    monkeypatch.setattr(setups, "noise_study", lambda *a, **k: pytest.fail("trained before the check"))
    with pytest.raises(ValueError, match=r"measured with other settings \(sha256\)"):
        remake.remake(name, seeds=[2], out=path)
