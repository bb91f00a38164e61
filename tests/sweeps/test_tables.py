"""The table and the labelled array of a sweep: types, missing values, names, and the files read again."""

import io
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
from pandas.testing import assert_frame_equal

from bookkit.sweeps import tables
from bookkit.sweeps.folder import SweepFolder, open_sweep
from tests.sweeps.sample_rows import VERSIONS, done, failed, fill, grid, job, points_of

nan = math.nan


def sweep_of(tmp_path, of, results):
    fill(tmp_path / "out", of, results)
    return open_sweep(tmp_path / "out")


def read_table(data: bytes) -> pd.DataFrame:
    """A parquet file as the table it was: pandas reads lists as arrays."""

    def listed(value):
        return value.tolist() if isinstance(value, np.ndarray) else value

    def deep(value):
        value = listed(value)
        return [deep(item) for item in value] if isinstance(value, list) else value

    found = pd.read_parquet(io.BytesIO(data))
    lists = [name for name in found if found[name].dtype == object]
    return found.assign(**{name: pd.Series([deep(value) for value in found[name]], dtype=object) for name in lists})


# --- types of a column ----------------------------------------------------------------------------------------------

COLUMNS = {
    "whole": ([1, 2], "Int64", [1, 2]),
    "whole, one missing": ([1, None], "Int64", [1, pd.NA]),
    "10**12": ([10**12, 10**9, 200], "Int64", [10**12, 10**9, 200]),
    "the largest of 64 bits, one missing": ([2**63 - 1, -(2**63), None], "Int64", [2**63 - 1, -(2**63), pd.NA]),
    "beyond 64 bits": ([2**63, 1], "float64", [2.0**63, 1.0]),
    "beyond float": ([10**400, 1], "str", [str(10**400), "1"]),
    "numbers": ([0.1, 1e-300], "float64", [0.1, 1e-300]),
    "numbers, some whole": ([1, 2.5, None], "float64", [1.0, 2.5, nan]),
    "truth": ([True, False], "boolean", [True, False]),
    "truth, one missing": ([True, None], "boolean", [True, pd.NA]),
    "text": (["a", "漢"], "str", ["a", "漢"]),
    "text, one missing": (["a", None], "str", ["a", nan]),
    "all missing": ([None, None], "float64", [nan, nan]),
    "none at all": ([], "float64", []),
    "truth and numbers": ([True, 1], "str", ["true", "1"]),
    "text and numbers": (["a", 1.5, None], "str", ['"a"', "1.5", nan]),
    "lists": ([[1.0, 2.5], [3.0, 4.0]], "object", [[1.0, 2.5], [3.0, 4.0]]),
    "lists of unequal lengths": ([[1.0], [3.0, 4.0], []], "object", [[1.0], [3.0, 4.0], []]),
    "lists, some items whole": ([[1, 2.5], [3, 4]], "object", [[1.0, 2.5], [3.0, 4.0]]),
    "lists of whole numbers": ([[1, 2], None], "object", [[1, 2], None]),
    "lists with missing items": ([[1, None], [3, 4]], "object", [[1.0, nan], [3.0, 4.0]]),
    "lists of truth": ([[True, None]], "object", [[True, None]]),
    "lists of text": ([["a", "b"]], "object", [["a", "b"]]),
    "lists in lists": ([[[1.0, 2.0], [3.0]], [[], [4.0]]], "object", [[[1.0, 2.0], [3.0]], [[], [4.0]]]),
    "lists of different depth": ([[1.0], [[2.0]]], "str", ["[1.0]", "[[2.0]]"]),
    "lists of different kinds": ([[1.0], ["a"]], "str", ["[1.0]", '["a"]']),
    "lists of huge numbers": ([[10**400]], "str", [f"[{10**400}]"]),
    "a list and a number": ([[1.0], 2.0], "str", ["[1.0]", "2.0"]),
}
ARROW = {
    "Int64": pa.int64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "str": pa.large_string(),
    "lists": pa.list_(pa.float64()),
    "lists of unequal lengths": pa.list_(pa.float64()),
    "lists, some items whole": pa.list_(pa.float64()),
    "lists with missing items": pa.list_(pa.float64()),
    "lists of whole numbers": pa.list_(pa.int64()),
    "lists of truth": pa.list_(pa.bool_()),
    "lists of text": pa.list_(pa.string()),
    "lists in lists": pa.list_(pa.list_(pa.float64())),
}


@pytest.mark.parametrize("what", COLUMNS)
def test_column_types_and_their_parquet(what):
    values, dtype, expected = COLUMNS[what]
    found = pd.DataFrame({"x": tables.column(values)})
    assert found["x"].dtype == dtype
    # As text: nan equals nan, 1 is not 1.0, and True is not 1.
    assert repr(found["x"].tolist()) == repr(expected)
    data = tables.parquet(found)
    assert pq.read_schema(io.BytesIO(data)).field("x").type == ARROW.get(what, ARROW.get(dtype))
    assert repr(read_table(data)["x"].tolist()) == repr(expected)
    assert read_table(data)["x"].dtype == dtype


# --- the table ------------------------------------------------------------------------------------------------------


def test_table(tmp_path):
    of = grid({"n": [1, 2]}, {"mode": ["reduced", "dense"]})
    points = points_of(of)
    with SweepFolder.begin(tmp_path / "out", job(), of, points) as folder:
        # Written in another order than asked.
        folder.write(failed(points[3], "ValueError: no", backend="dask"), 2)
        folder.write(done(points[0], {"accuracy": 1, "omega": [0.5, -0.5], "why": None}), 1)
        folder.write(done(points[1], {"accuracy": 0.25, "trapped": 3}, backend="batched", memory=None), 1)
    sweep = open_sweep(tmp_path / "out")
    text = {"dtype": "str"}
    expected = pd.DataFrame(
        {
            "n": pd.array([1, 1, 2], dtype="Int64"),
            "label_noise": [0.05] * 3,
            "step_size": [0.025] * 3,
            "mode": pd.array(["reduced", "dense", "dense"], **text),
            "verbose": pd.array([False] * 3, dtype="boolean"),
            "accuracy": [1.0, 0.25, nan],
            "omega": pd.Series([[0.5, -0.5], None, None], dtype=object),
            "why": [nan] * 3,
            "trapped": pd.array([None, 3, None], dtype="Int64"),
            "run_id": pd.array([points[k].id for k in (0, 1, 3)], **text),
            "run_status": pd.array(["done", "done", "failed"], **text),
            "run_attempts": pd.array([1, 1, 2], dtype="Int64"),
            "run_seconds": [1.5, 1.5, 0.5],
            "run_memory": pd.array([2**20, None, None], dtype="Int64"),
            "run_engine": pd.array(["local", "batched", "dask"], **text),
            "run_finished": pd.array([f"2026-01-02T03:04:0{k}+00:00" for k in (5, 5, 6)], **text),
            "run_error": pd.array([None, None, "ValueError: no"], **text),
            "run_traceback": pd.array([None, None, "Traceback\nValueError: no"], **text),
            "run_page": pd.array(["wing/01_tiny"] * 3, **text),
            "run_page_hash": pd.array(["a" * 64] * 3, **text),
            "run_package_hash": pd.array(["b" * 64] * 3, **text),
            **{f"run_{name}": pd.array([version] * 3, **text) for name, version in VERSIONS.items()},
        }
    )
    assert_frame_equal(sweep.table, expected)
    assert_frame_equal(read_table(tables.parquet(sweep.table)), expected)


def test_the_published_parquet_is_the_table(tmp_path):
    of = grid({"n": [1, 2, 3]})
    fill(tmp_path / "out", of, lambda p: {"x": [0.5] * p["n"], "y": "é"} if p["n"] > 1 else "no", publish=True)
    sweep = open_sweep(tmp_path / "out")
    assert_frame_equal(read_table((tmp_path / "out" / "results.parquet").read_bytes()), sweep.table)
    assert sweep.table["x"].tolist() == [None, [0.5] * 2, [0.5] * 3]


def test_a_table_without_rows_has_its_columns(tmp_path):
    found = sweep_of(tmp_path, grid({"n": [1]}), lambda p: None).table
    assert found.shape == (0, 5 + 17)
    assert found["run_status"].dtype == "str"


def test_only_failures(tmp_path):
    sweep = sweep_of(tmp_path, grid({"n": [1, 2]}), lambda p: "no")
    assert sweep.table["run_error"].tolist() == ["no", "no"]
    assert sweep.table.columns[5] == "run_id"
    assert sweep.array["run_status"].values.tolist() == ["failed", "failed"]


def test_names_that_are_taken(tmp_path):
    of = grid({"n": [1]}, {"step_size": [0.5], "label_noise": [0.0]})
    names = ("n", "result_n", "run_id", "step_size+label_noise", "free")
    sweep = sweep_of(tmp_path, of, lambda p: {name: float(number) for number, name in enumerate(names)})
    shown = ["result_result_n", "result_n", "result_run_id", "result_step_size+label_noise", "free"]
    assert sweep.table[shown].iloc[0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert sweep.table["n"].tolist() == [1]
    assert sweep.table["run_id"].tolist() == [sweep.points[0].id]
    assert [sweep.array[name].item() for name in shown] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_parameter_with_the_name_of_a_run_column(tmp_path):
    of = grid({"run_id": [7]}, first={})
    sweep = sweep_of(tmp_path, of, lambda p: {"x": 1.0})
    assert sweep.table["parameter_run_id"].tolist() == [7]
    assert sweep.table["run_id"].tolist() == [sweep.points[0].id]


# --- the labelled array ---------------------------------------------------------------------------------------------


def test_array_over_two_parameters_and_seeds(tmp_path):
    of = grid({"n": [50, 100]}, {"step_size": [0.1, 0.2, 0.4]}, {"seed": [0, 1]})
    sweep = sweep_of(
        tmp_path,
        of,
        lambda p: (
            None
            if p["n"] == 100 and p["seed"] == 1
            else "no"
            if p["step_size"] == 0.2
            else {"x": p["n"] + p["step_size"] + 1000 * p["seed"], "ok": p["seed"] == 0, "word": f"{p['n']}"}
        ),
    )
    found = sweep.array
    assert found["x"].dims == ("n", "step_size", "seed")
    for n in (50, 100):
        for step in (0.1, 0.2, 0.4):
            for seed in (0, 1):
                cell = found.sel(n=n, step_size=step, seed=seed)
                status = "missing" if n == 100 and seed == 1 else "failed" if step == 0.2 else "done"
                assert cell["run_status"].item() == status
                value = n + step + 1000 * seed if status == "done" else nan
                assert cell["x"].item() == pytest.approx(value, nan_ok=True, rel=1e-15)
                assert cell["word"].item() == (str(n) if status == "done" else "")
                seconds = {"missing": nan, "failed": 0.5, "done": 1.5}[status]
                assert cell["run_seconds"].item() == pytest.approx(seconds, nan_ok=True)
    assert found["ok"].mean("seed").sel(n=50, step_size=0.1).item() == 0.5  # a fraction, without another word
    assert found["n"].dtype == np.int64
    assert found["n"].attrs == {"long_name": "training samples"}
    assert found.attrs["page"] == "wing/01_tiny"
    assert (found.attrs["page_hash"], found.attrs["package_hash"]) == ("a" * 64, "b" * 64)
    assert json.loads(found.attrs["fixed_parameters"]) == {"label_noise": 0.05, "mode": "reduced", "verbose": False}
    assert json.loads(found.attrs["versions"]).keys() == VERSIONS.keys()


def test_array_over_parameters_that_move_together(tmp_path):
    of = grid({"n": [10**9, 10**12], "mode": ["reduced", "dense"]}, {"verbose": [False, True]})
    found = sweep_of(tmp_path, of, lambda p: {"x": p["n"] * (2 if p["verbose"] else 1)}).array
    assert found.sizes == {"n+mode": 2, "verbose": 2}
    assert found["n+mode"].values.tolist() == [0, 1]
    assert found["n"].dims == found["mode"].dims == ("n+mode",)
    assert found["n"].values.tolist() == [10**9, 10**12]
    assert found["mode"].values.tolist() == ["reduced", "dense"]
    assert found["verbose"].values.tolist() == [False, True]
    assert found["x"].values.tolist() == [[1e9, 2e9], [1e12, 2e12]]


def test_array_over_a_list_of_settings(tmp_path):
    of = grid({"n": [1, 2], "mode": ["réduit", "漢"]})
    stored = of.as_json()
    stored["axes"][0]["name"] = "point"  # as the grid file's section is called
    found = sweep_of(tmp_path, type(of).from_json(stored), lambda p: {"x": p["n"], "point": 5.0}).array
    assert found["x"].dims == ("point",)
    assert found["mode"].values.tolist() == ["réduit", "漢"]
    assert found["point"].values.tolist() == [0, 1]
    assert found["result_point"].values.tolist() == [5.0, 5.0]


def test_the_array_follows_the_last_grid_and_the_table_holds_all(tmp_path):
    def answer(p):
        return {"x": p["n"] + 0.5}

    fill(tmp_path / "out", grid({"n": [1, 2, 3]}), answer)
    assert open_sweep(tmp_path / "out").array["n"].values.tolist() == [1, 2, 3]
    fill(tmp_path / "out", grid({"n": [5, 2]}), answer)
    sweep = open_sweep(tmp_path / "out")
    assert sweep.array["x"].sel(n=[2, 5]).values.tolist() == [2.5, 5.5]
    assert sweep.array.sizes == {"n": 2}
    assert sweep.table["x"].tolist() == [1.5, 2.5, 3.5, 5.5]


def test_lists_become_dimensions(tmp_path):
    def answer(p):
        if p["n"] == 2:
            return "no"
        return {
            "omega": [[p["n"], 0.5, None], [1, 2, 3]],
            "path": [0.25] * 4,
            "kinds": ["a", None],
            "flags": [True, False],
            "ragged": [1.0] * p["n"],
            "ragged_text": [["a"], ["b"] * p["n"]],
            "sometimes_a_list": [1.0] if p["n"] == 1 else 1.0,
            "empty": [],
            "path_0": 7.0,
        }

    sweep = sweep_of(tmp_path, grid({"n": [1, 2, 3]}), answer)
    found = sweep.array
    assert found["omega"].dims == ("n", "omega_0", "omega_1")
    assert found["omega"].sel(n=3).values.tolist()[1] == [1.0, 2.0, 3.0]
    assert repr(found["omega"].sel(n=3).values.tolist()[0]) == "[3.0, 0.5, nan]"
    assert np.isnan(found["omega"].sel(n=2)).all()
    assert found["path"].dims == ("n", "path_0_")
    assert found["path"].shape == (3, 4)
    assert found["path_0"].values[[0, 2]].tolist() == [7.0, 7.0]  # a result, not the dimension of another
    assert found["kinds"].values.tolist() == [["a", ""], ["", ""], ["a", ""]]
    assert found["flags"].sel(n=1).values.tolist() == [1.0, 0.0]
    assert found["sometimes_a_list"].values.tolist() == ["[1.0]", "", "1.0"]
    assert found.attrs["left_out"] == "ragged, ragged_text, empty"
    assert sweep.table["ragged"].tolist() == [[1.0], None, [1.0] * 3]
    with xr.open_dataset(io.BytesIO(tables.netcdf(found)), engine="h5netcdf") as again:
        xr.testing.assert_identical(again.load(), found)


ROUND_TRIPS = {
    "numbers": {"x": 0.1, "y": 1e-300, "whole": 10**12, "ok": True, "none": None},
    "text": {"word": "漢字", "empty": ""},
    "lists": {"omega": [[1.0, 2.0]], "words": ["a", "é"], "nothing": [None, None]},
    "odd names": {"error at 3": 1.0, "a/b": 2.0, "a_b": 3.0, ".": 4.0, "é": 5.0, "": 6.0, " x ": 7.0},
}


@pytest.mark.parametrize("what", ROUND_TRIPS)
def test_the_netcdf_file_is_the_array(tmp_path, what):
    of = grid({"n": [1, 2, 3]}, {"mode": ["reduced", "漢"], "verbose": [True, False]}, {"label_noise": [0.0, 0.5]})
    fill(
        tmp_path / "out",
        of,
        lambda p: ROUND_TRIPS[what] if p["n"] == 1 else "no" if p["n"] == 2 else None,
        publish=True,
    )
    found = open_sweep(tmp_path / "out").array
    assert len(found.data_vars) == 2 + len(ROUND_TRIPS[what])
    with xr.open_dataset(tmp_path / "out" / "results.nc", engine="h5netcdf") as again:
        xr.testing.assert_identical(again.load(), found)
        for name in found.variables:  # texts are read with a width
            assert again[name].dtype.kind == found[name].dtype.kind.replace("O", "U")


def test_odd_names_in_the_array(tmp_path):
    found = sweep_of(tmp_path, grid({"n": [1]}), lambda p: ROUND_TRIPS["odd names"]).array
    assert {name: value.item() for name, value in found.data_vars.items() if not name.startswith("run_")} == {
        "error at 3": 1.0,
        "a_b": 2.0,
        "a_b_": 3.0,
        "result": 4.0,
        "é": 5.0,
        "result_": 6.0,
        "x": 7.0,
    }


def test_whole_numbers_beyond_64_bits_on_an_axis(tmp_path):
    found = sweep_of(tmp_path, grid({"n": [1, 10**20]}), lambda p: {"x": p["n"]}).array
    assert found["n"].values.tolist() == [1.0, 1e20]
    assert found["x"].values.tolist() == [1.0, 1e20]
    tables.netcdf(found)
