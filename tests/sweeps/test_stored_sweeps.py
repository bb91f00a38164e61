"""The stored sweeps are what their commands make: the grid's points, numbers that come out again, nothing of the machine."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binomtest

import bookkit.sweeps
from attnbook.reruns import stored_sweeps as stored
from attnbook.reruns.stored_sweeps import STORED, TABLES, stored_array, stored_table
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.summary import summarise
from bookkit.pages.catalogue import resolve_page
from bookkit.pages.parameters import check_parameters
from bookkit.sweeps.grid import read_grid
from tests.page_checks import MACHINE

ROOT = Path(__file__).resolve().parents[2]
TABLES_OF = [name for name, recipe in STORED.items() if "parquet" in recipe.forms]
ARRAYS = [name for name, recipe in STORED.items() if "nc" in recipe.forms]
FIRST = (
    "train_accuracy_step1", "train_accuracy", "interpolating_fraction", "log10_clean_error_mean", "log10_clean_error_min",
    "log10_clean_error_max", "attention_clean", "attention_noisy",
)  # fmt: skip
TYPICAL = (
    "log10_clean_error_median", "log10_clean_error_median_low", "log10_clean_error_median_high",
    "benign_share", "benign_share_low", "benign_share_high",
)  # fmt: skip
# The sweep by kernels was made before the page recorded medians and shares; the page that shows it adds them, and says so.
RESULTS = {"one_run_many_runs": FIRST, "norm_and_step": FIRST + TYPICAL}


def grid_of(name: str):
    recipe = STORED[name]
    page = resolve_page(recipe.page, ROOT)
    return page, read_grid(ROOT / "notebooks" / "params" / recipe.grid, page)


def measured(parameters: dict, results: tuple[str, ...]) -> list[float]:
    """Those of the page's named results that are asked for, its own way: law, study, summary."""
    law = SignalNoiseLaw(*(parameters[name] for name in ("n", "d", "signal_norm", "label_noise")))
    names = ("step_size", "steps", "draws", "seed")
    found = summarise(law, **{name: parameters[name] for name in names})
    error, draws = found.log10_clean_error, parameters["draws"]
    benign = int((10**error < parameters["label_noise"]).sum())
    assert draws == 8  # order statistics: 1 - 2 / 2^8 is 99 %, 1 - 18 / 2^8 is below 95 %
    values = (
        found.train_accuracy_step1.mean(), found.train_accuracy.mean(), found.interpolates.double().mean(),
        error.mean(), error.min(), error.max(), found.attention_clean.nanmean(), found.attention_noisy.nanmean(),
        error.quantile(0.5), error.min(), error.max(), benign / draws, *binomtest(benign, draws).proportion_ci(method="exact"),
    )  # fmt: skip
    named = dict(zip(FIRST + TYPICAL, values, strict=True))
    return [float(named[result]) for result in results]


def test_every_file_has_its_recipe_and_all_are_small() -> None:
    wanted = {f"{name}.{form}" for name, recipe in STORED.items() for form in recipe.forms}
    assert {path.name for path in TABLES.iterdir()} == wanted
    assert sum(path.stat().st_size for path in TABLES.iterdir()) <= 300_000


@pytest.mark.parametrize("name", TABLES_OF)
def test_the_table_has_the_points_of_its_grid_all_done(name) -> None:
    page, grid = grid_of(name)
    table = stored_table(name)
    declared = list(grid.parameters[0])
    assert list(table.columns[: len(declared)]) == declared
    points = table[declared].to_dict("records")
    assert points == list(grid.parameters)
    assert all(check_parameters(page, point) == point for point in points)
    assert set(table.run_status) == {"done"}
    assert set(table.run_page) == {page.name}
    assert set(table.run_engine) == {"batched" if STORED[name].batched else "local"}
    assert table.run_id.is_unique
    assert table[list(RESULTS[name])].notna().all(axis=None)


@pytest.mark.parametrize("name", ARRAYS)
def test_the_array_has_the_axes_of_its_grid_and_no_gaps(name) -> None:
    page, grid = grid_of(name)
    array = stored_array(name)
    assert dict(array.sizes) == {axis.name: len(axis) for axis in grid.axes}
    for axis in grid.axes:
        assert array[axis.name].values.tolist() == [value for (value,) in axis.values]
    fixed = json.loads(array.attrs["fixed_parameters"])
    varying = {axis.name for axis in grid.axes}
    assert fixed == {key: value for key, value in grid.parameters[0].items() if key not in varying}
    assert array.attrs["page"] == page.name
    assert all(np.isfinite(array[result].values).all() for result in RESULTS[name])


@pytest.mark.parametrize("name", TABLES_OF)
def test_table_and_array_hold_the_same_numbers(name) -> None:
    table, array = stored_table(name), stored_array(name)
    axes = list(array["log10_clean_error_mean"].dims)
    for result in RESULTS[name]:
        in_order = array[result].stack(point=axes).values
        np.testing.assert_array_equal(table[result].to_numpy(dtype=float), in_order)


@pytest.mark.parametrize("name", ARRAYS)
def test_cells_come_out_again(name) -> None:
    array, (_, grid) = stored_array(name), grid_of(name)
    for place in np.linspace(0, len(grid.parameters) - 1, 6).round().astype(int):
        parameters = grid.parameters[place]
        cell = array.sel({axis.name: parameters[axis.name] for axis in grid.axes})
        stored_values = [cell[result].item() for result in RESULTS[name]]
        np.testing.assert_allclose(stored_values, measured(parameters, RESULTS[name]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("path", sorted(TABLES.iterdir()), ids=lambda path: path.name)
def test_nothing_of_the_machine_is_stored(path) -> None:
    found = stored_table(path.stem) if path.suffix == ".parquet" else stored_array(path.stem)
    texts = [str(value) for value in found.attrs.values()]
    columns = found.columns if path.suffix == ".parquet" else found.variables
    for column in columns:
        values = found[column].to_numpy().ravel()
        texts += sorted({str(value) for value in values if isinstance(value, str)})
    assert texts
    assert [text for text in texts if MACHINE.search(text)] == []


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="one of the stored sweeps one_run_many_runs; got 'norm_and_step'"):
        stored_table("norm_and_step")
    with pytest.raises(ValueError, match="one of the stored sweeps one_run_many_runs, norm_and_step; got 'map'"):
        stored_array("map")


def test_remaking_keeps_table_array_and_command_of_a_whole_sweep_only(tmp_path, monkeypatch) -> None:
    name, calls, counts = "one_run_many_runs", [], SimpleNamespace(done=85, total=85)
    wanted = stored_table(name), stored_array(name)

    def sweep(page, grid, output, **options):
        calls.append((page, grid.name, output.name, options["batched"]))
        return SimpleNamespace(table=stored_table(name), array=stored_array(name), status=counts)

    monkeypatch.setattr(bookkit.sweeps, "sweep", sweep, raising=False)
    stored.remake(name, ROOT, tmp_path)
    assert calls == [("single_head/02_two_steps", STORED[name].grid, name, False)]
    counts.done = 84
    with pytest.raises(RuntimeError, match="one_run_many_runs: 1 points have no result; nothing is stored"):
        stored.remake(name, ROOT, tmp_path / "other")
    monkeypatch.setattr(stored, "TABLES", tmp_path)
    made = stored_table(name), stored_array(name)
    assert made[0].equals(wanted[0])
    assert made[1].identical(wanted[1])
    assert made[0].attrs["command"] == made[1].attrs["command"] == STORED[name].command(name)
    assert STORED[name].command(name) == (
        "python -m attnlib sweep single_head/02_two_steps "
        "notebooks/params/02_two_steps.one_run_many_runs.grid.yml -o one_run_many_runs"
    )
