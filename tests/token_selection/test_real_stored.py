"""The tables that come with the package: whole, of today's plans, on the samples that their seeds draw, and measured again."""

import dataclasses
import json
import re

import numpy as np
import pytest

from attnbook.token_selection.real_data import tables
from attnbook.token_selection.real_data.digits import digits_study
from attnbook.token_selection.real_data.effective import describe, read_effective
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.setups import Rows, prepare
from attnbook.token_selection.real_data.tables import TABLES, cell_record, read_table, run_cell, stored_tables

pytestmark = pytest.mark.usefixtures("one_thread")
# Plans of the trial that have no table yet; the others have those n and seeds that II.9 lists.
TO_COME = "breast_mnist_authors pneumonia_mnist_authors"


def test_every_plan_but_those_of_a_pretrained_vit_has_a_table():
    """Whole, but in the trial of strong backbones and ways of training: there each n that is there has five seeds or more, from 0 on."""
    of_the_trial = ("_lite0", "_mpnet", "_authors", "_range", "_lite2")
    stored = {name for name in stored_tables() if "_confidence_" not in name}  # of `causes`: those that are there
    asked = {name for name in PLANS if "_confidence_" not in name and "_pretrained" not in name}
    assert asked - stored == set(TO_COME.split())
    for name in stored:
        table, plan = read_table(name), PLANS[name]
        seeds, first = {n: table.seeds(n) for n in table.sizes}, plan.first_seed
        if name.endswith(of_the_trial):
            assert all(own == tuple(range(first, first + max(5, len(own)))) for own in seeds.values()), name
        else:
            assert seeds == dict.fromkeys(plan.sizes, tuple(plan.all_seeds)), name
    for name in ("mnist", "cifar10", "trec", "ag_news"):
        assert read_table(name).sizes == (20, 200, 1000)


@pytest.mark.parametrize("name", stored_tables())
def test_a_stored_table_is_whole_and_says_how_it_was_made(name):
    table = read_table(name)
    plan = PLANS[name]
    assert table.cells
    assert set(table.sizes) <= set(plan.sizes)
    for n in table.sizes:
        assert len(table.seeds(n)) == len(set(table.seeds(n)) & set(plan.all_seeds))
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
        tested = table.settings.get("tested") or plan.test or 500  # TREC's
        np.testing.assert_allclose(((accuracy * tested).round() / tested).round(5), accuracy, rtol=0, atol=1e-9)
    text = (TABLES / f"{name}.json").read_text(encoding="utf-8")
    assert not re.search(r"[\"' ](/|[A-Z]:\\|~/)", text)  # no path of any machine
    assert len(text) < 120_000
    settings = table.settings
    assert re.match(rf"(attnlib real|python -m \S+remake) {name}\b", settings["command"])
    assert {(cell.n, cell.recorded[-1]) for cell in table.cells} == {(n, plan.steps[n]) for n in table.sizes}
    # Today's plan would go on in this file: the settings that it writes are those that are there.
    rows = Rows(settings.get("rows"), settings.get("sha256"), "", range(settings.get("tested", 0)))
    own = tables.settings_of(name, plan, settings["backbone"], rows, None)
    stored = {"name": table.name, "settings": {"tested": 0} | settings, "noise_levels": table.noise_levels}
    tables.check_settings(stored, {"name": name, "settings": own, "noise_levels": plan.noise}, TABLES)
    for key, value in {**plan.shape, **plan.random_features}.items():
        assert settings["backbone"][key] == value
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
