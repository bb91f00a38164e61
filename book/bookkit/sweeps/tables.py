"""What a sweep found, as a pandas table and as a labelled xarray array."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    import xarray as xr

    from bookkit.sweeps.grid import Grid

Row = Mapping[str, Any]
RUN = ("id", "status", "engine", "seconds", "finished", "error", "traceback")
# By pandas' own word for what a column holds, None left out. Missing whole numbers and truths do not change their type.
TYPES = {"integer": "Int64", "boolean": "boolean", "string": "str"}
FLOATS = ("floating", "mixed-integer-float", "empty", "integer")


def table(grid: Grid, rows: Sequence[Row], about: Mapping[str, str]) -> pd.DataFrame:
    """One line per row of a finished or failed point, with what is said `about` the whole sweep.

    Parameters and named results have their own names; a result with the name of a parameter, an axis or a `run_` column
    becomes `result_NAME`. The results of a failed point are missing.
    """
    columns = {name: [row["parameters"][name] for row in rows] for name in grid.base} | _results(grid, rows, about)
    run = {name: [row[name] for row in rows] for name in RUN} | {
        name: [text] * len(rows) for name, text in about.items()
    }
    run |= {name: [row["versions"].get(name) for row in rows] for name in _versions(rows)}
    record = {
        f"run_{name}": pd.Series(values, dtype=float if name == "seconds" else "str") for name, values in run.items()
    }
    return pd.DataFrame({name: _column(values) for name, values in columns.items()} | record)


def _versions(rows: Iterable[Row | None]) -> list[str]:
    return list({name: None for row in rows if row is not None for name in row["versions"]})


def _results(grid: Grid, rows: Sequence[Row | None], about: Iterable[str]) -> dict[str, list[Any]]:
    """Values of every named result, under a free name; None where a row is missing, failed, or has no such result."""
    taken = {*grid.base, *(axis.name for axis in grid.axes)} | {
        f"run_{name}" for name in (*RUN, *about, *_versions(rows))
    }
    results = [(row["results"] if row else None) or {} for row in rows]
    found = {}
    for name in {name: None for each in results for name in each}:
        free = name
        while free in taken:
            free = f"result_{free}"
        taken.add(free)
        found[free] = [each.get(name) for each in results]
    return found


def _column(values: list[Any]) -> pd.Series:
    """Values of a column's own type; of several kinds, or no list that parquet can hold: as JSON texts."""
    import pyarrow

    kind = pd.api.types.infer_dtype(values, skipna=True)
    try:
        if kind in TYPES:
            return pd.Series(values, dtype=TYPES[kind])
    except OverflowError:  # a whole number of more than 64 bits
        pass
    try:
        if kind in FLOATS:
            return pd.Series([np.nan if value is None else float(value) for value in values], dtype=float)
        pyarrow.array(values)
        return pd.Series(values, dtype=object)
    except (pyarrow.ArrowException, TypeError, OverflowError):
        return pd.Series([None if value is None else json.dumps(value) for value in values], dtype="str")


def array(grid: Grid, cells: Sequence[Row | None], about: Mapping[str, str], meanings: Mapping[str, str]) -> xr.Dataset:
    """The named results over the axes of the grid, whose points have the rows `cells`; `meanings` of parameters become labels.

    An axis of one parameter has its values as coordinate; one of several parameters is numbered and has one coordinate for
    each. Numbers, true and false are float64, so that a missing point can be NaN; a missing text is empty. Lists of numbers of
    one shape get dimensions `NAME_0`, `NAME_1`, ...; other results are left out and named in the attribute `left_out`.
    """
    import xarray as xr

    there = [row for row in cells if row is not None]
    axes, shape = tuple(axis.name for axis in grid.axes), grid.shape
    coordinates: dict[str, Any] = {}
    for axis in grid.axes:
        coordinates[axis.name] = (axis.name, np.arange(len(axis)))
        for number, name in enumerate(axis.parameters):
            values = np.array([setting[number] for setting in axis.values])
            values = values.astype(float) if values.dtype == object else values  # whole numbers of more than 64 bits
            coordinates[name] = (axis.name, values, {"long_name": meanings[name]} if name in meanings else {})
    found = {
        "run_status": [row["status"] if row else "missing" for row in cells],
        "run_seconds": [row["seconds"] if row else None for row in cells],
    }
    variables, left_out = {}, []
    for name, values in (found | _results(grid, cells, about)).items():
        if (stacked := _stacked(values)) is None:
            left_out.append(name)
            continue
        inner = tuple(f"{name}_{number}" for number in range(stacked.ndim - 1))
        # A slash would make a group in the file.
        variables[name.replace("/", "_")] = ((*axes, *inner), stacked.reshape((*shape, *stacked.shape[1:])))
    fixed = {name: value for name, value in grid.base.items() if name not in grid.varying}
    attributes = {
        **about,
        "fixed_parameters": json.dumps(fixed),
        "versions": json.dumps(there[0]["versions"] if there else {}),
    }
    return xr.Dataset(variables, coordinates, attributes | ({"left_out": ", ".join(left_out)} if left_out else {}))


def _stacked(values: list[Any]) -> np.ndarray | None:
    """A result of every point as one array, texts as they are; None where it is neither numbers of one shape nor texts."""
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, str) for value in there):
        return np.array(["" if value is None else value for value in values], dtype=object)
    try:
        shapes = {np.shape(value) for value in there} or {()}
        if len(shapes) != 1 or 0 in (shape := shapes.pop()):
            return None
        return np.array([np.full(shape, np.nan) if value is None else value for value in values], dtype=float)
    except (ValueError, TypeError, OverflowError):  # of several kinds, ragged, or larger than a float
        return None
