"""Table and array hold what the rows hold, each result under a name and in a type of its own."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bookkit.sweeps import open_sweep, sweep


@pytest.fixture
def of(make):
    """A sweep over n whose results at n are `answers[n]` (an empty dict: the point fails), and whose seeds are 0 and 1."""

    def swept(answers: dict, seeds: object = 1, **sections):
        text = f"A = {answers!r}\n\ndef squares(points):\n    return [A[point['n']] or 1 / 0 for point in points]\n"
        make(text)
        grid = (sections or {"product": {"n": list(answers)}}) | {"seeds": seeds}
        return sweep("counting", grid, "out", batched=True)

    return swept


COLUMNS = {
    "whole numbers, one missing": ([1, None, 3], "Int64", [1, None, 3]),
    "numbers of both kinds": ([1, None, 2.5], "float64", [1.0, None, 2.5]),
    "truths": ([True, None, False], "boolean", [True, None, False]),
    "texts": (["a", None, "漢"], "str", ["a", None, "漢"]),
    "beyond 64 bits": ([1, None, 10**20], "float64", [1.0, None, 1e20]),
    "of several kinds": ([1, None, "a"], "str", ["1", None, '"a"']),
    "a truth among numbers": ([1, None, True], "str", ["1", None, "true"]),
    "lists": ([[1, 2], None, [3]], "object", [[1, 2], None, [3]]),
    "lists and numbers": ([[1, 2], None, 3], "str", ["[1, 2]", None, "3"]),
    "nothing at all": ([None, None, None], "float64", [None, None, None]),
}


def test_a_column_has_the_type_of_all_its_values_in_the_file_too(of) -> None:
    rows = {n: {what: values[n] for what, (values, *_) in COLUMNS.items()} | {"y": 0} for n in range(3)}
    found = of(rows)
    for table in (found.table, pd.read_parquet("out/results.parquet")):
        for what, (_, kind, wanted) in COLUMNS.items():
            told = [None if np.ndim(value) == 0 and pd.isna(value) else value for value in table[what].tolist()]
            assert [list(value) if np.ndim(value) else value for value in told] == wanted, what
            assert str(table[what].dtype) == kind, what


def test_names_that_are_taken_get_another(of) -> None:
    table = of({1: {"result_n": 6.0, "n": 5.0, "run_seconds": 7.0, "free": 8.0}}).table
    assert table["n"].tolist() == [1]
    assert [table[name][0] for name in ("result_result_n", "result_n", "result_run_seconds", "free")] == [5, 6, 7, 8]


def test_the_record_of_the_run(of) -> None:
    found = of({1: {"x": 1}, 2: {}})
    row = found.table.iloc[1]
    assert (row["run_status"], row["run_engine"], row["run_page"]) == ("failed", "batched", "part/01_counting")
    assert row["run_error"] == "ZeroDivisionError: division by zero"
    assert "Traceback" in row["run_traceback"]
    assert found.table["run_id"].tolist() == list(found.points)
    assert {"run_python", "run_nbformat", "run_papermill", "run_package_hash", "run_seconds"} <= set(found.table)


def test_results_over_the_axes_with_gaps(of) -> None:
    answers = {
        n: {"x": n / 2, "ok": n > 1, "word": "a" * n, "omega": [[n, 0.5, None], [1, 2, 3]], "ragged": [1] * n, "a/b": n}
        for n in (1, 2, 3)
    }
    answers[2] = {}
    array = of(answers, seeds=2).array
    assert dict(array.sizes) == {"n": 3, "seed": 2, "omega_0": 2, "omega_1": 3}
    assert array["x"].sel(n=3).values.tolist() == [1.5, 1.5]
    assert array["x"].sel(n=2).isnull().all()
    assert array["ok"].sel(seed=0).values.tolist()[::2] == [0, 1]
    assert array["word"].sel(seed=1).values.tolist() == ["a", "", "aaa"]
    np.testing.assert_array_equal(array["omega"].sel(n=3, seed=0), [[3, 0.5, np.nan], [1, 2, 3]])
    assert array["a_b"].sel(n=1, seed=0) == 1
    assert array.attrs["left_out"] == "ragged"
    assert array["run_status"].sel(seed=0).values.tolist() == ["done", "failed", "done"]
    assert array["n"].attrs["long_name"] == "number to square"
    with xr.open_dataset("out/results.nc", engine="h5netcdf") as again:
        xr.testing.assert_identical(again.load(), open_sweep("out").array)


def test_parameters_that_move_together_are_one_axis(of) -> None:
    array = of({1: {"x": 1.0}, 4: {"x": 4.0}}, zip={"n": [4, 1], "broken": [8, 9]}, seeds=[5]).array
    assert array["x"].dims == ("n+broken", "seed")
    assert array["n"].values.tolist() == [4, 1]
    assert array["broken"].sel({"n+broken": 1}) == 9
    assert array["x"].values.tolist() == [[4.0], [1.0]]
