"""What a sweep found, as a pandas table and as a labelled xarray array, and both as the bytes of their files.

Types follow the values of a whole column: whole numbers are Int64, with a missing value among them or not; other numbers are
float64, and missing ones NaN; true and false are boolean; texts are str; lists stay lists of one such type. Whole numbers beyond 64
bits become float64. A column whose values are of several kinds, a number here and a text there, is text (JSON) throughout.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    import xarray as xr

    from bookkit.sweeps.reading import Sweep

__all__ = ["array", "column", "netcdf", "parquet", "table"]

RUN = ("id", "status", "attempts", "seconds", "memory", "engine", "finished", "error", "traceback")
RUN_TYPES = {"attempts": "Int64", "memory": "Int64", "seconds": "float64"}  # the others are text
SWEEP = ("page", "page_hash", "package_hash")


# --- the table ------------------------------------------------------------------------------------------------------


def table(sweep: Sweep) -> pd.DataFrame:
    """One line per finished or failed point, in the order in which the points were asked.

    Parameters and named results have their own names; a result with the name of a parameter, an axis or a `run_` column becomes
    `result_NAME`. The results of a failed point are missing.
    """
    rows = list(sweep.rows.values())
    parameters = {name: None for point in sweep.points for name in point.parameters}
    columns: dict[str, Any] = {}
    versions = _versions(sweep)
    for name, shown in _names(parameters, _reserved(versions), "parameter").items():
        columns[shown] = column([row["parameters"].get(name) for row in rows])
    for name, shown in _result_names(sweep, rows).items():
        columns[shown] = column(_values(rows, name))
    for name in RUN:
        columns[f"run_{name}"] = pd.array([row.get(name) for row in rows], dtype=RUN_TYPES.get(name, "str"))
    for name in SWEEP:
        columns[f"run_{name}"] = pd.array([getattr(sweep, name)] * len(rows), dtype="str")
    for name in versions:
        columns[f"run_{name}"] = pd.array([row["versions"].get(name) for row in rows], dtype="str")
    return pd.DataFrame(columns)


def _versions(sweep: Sweep) -> list[str]:
    """Names of Python and of all distributions whose versions are kept, the sweep's first."""
    return list(
        {name: None for kept in (sweep.versions, *(row["versions"] for row in sweep.rows.values())) for name in kept}
    )


def _reserved(versions: Iterable[str]) -> set[str]:
    """Columns that say how a point was run: no parameter and no result may have their names."""
    return {f"run_{name}" for name in (*RUN, *SWEEP, *versions)}


def _values(rows: Iterable[Mapping[str, Any] | None], name: str) -> list[Any]:
    """A named result of every row; None where the row is missing, failed, or has no such result."""
    return [row["results"].get(name) if row and row["status"] == "done" else None for row in rows]


def _result_names(sweep: Sweep, rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    found = {name: None for row in rows if row["status"] == "done" for name in row["results"]}
    taken = _reserved(_versions(sweep)) | {name for point in sweep.points for name in point.parameters}
    return _names(found, taken | {axis.name for axis in sweep.grid.axes}, "result")


def _names(names: Iterable[str], taken: Iterable[str], prefix: str) -> dict[str, str]:
    """Each name, or with `prefix_` before it until nobody else has it."""
    taken, names = set(taken), list(names)
    free = {name: name for name in names if name not in taken}  # these keep it, whoever comes first
    for name in names:
        shown = name
        while shown in taken or (shown != name and shown in free):
            shown = f"{prefix}_{shown}"
        free[name] = shown
        taken.add(shown)
    return {name: free[name] for name in names}


def column(values: Sequence[Any]) -> Any:
    """`values` (None: missing) as one pandas column. See the module for the types."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {list}:
        if (lists := _lists(values)) is not None:
            objects = np.empty(len(values), dtype=object)
            for number, value in enumerate(lists):  # one by one: numpy takes lists of one length for a second dimension
                objects[number] = value
            return objects
    elif kinds <= {int, float, bool, str}:
        if kinds == {bool}:
            return pd.array(values, dtype="boolean")
        if kinds == {str}:
            return pd.array(values, dtype="str")
        if kinds == {int} and _fits(values):
            return pd.array(values, dtype="Int64")
        if bool not in kinds and str not in kinds and (numbers := _floats(values)) is not None:
            return np.array(numbers, dtype=np.float64)
    return pd.array([None if value is None else json.dumps(value, ensure_ascii=False) for value in values], dtype="str")


def _fits(values: Iterable[Any]) -> bool:
    return all(value is None or -(2**63) <= value < 2**63 for value in values)


def _floats(values: Iterable[Any]) -> list[float] | None:
    try:
        return [math.nan if value is None else float(value) for value in values]
    except OverflowError:  # a whole number of more than 308 digits
        return None


def _lists(values: Sequence[Any]) -> list[Any] | None:
    """Lists whose items are all of one type and, lists again or not, equally deep; None where they are not."""
    import pyarrow as pa

    items = [item for value in values if value is not None for item in _items(value)]
    kinds = {type(item) for item in items} - {type(None)}
    convert: Callable[[Any], Any] = lambda item: item  # noqa: E731
    if kinds <= {int, float} and not (kinds == {int} and None not in items and _fits(items)):
        if _floats(items) is None:
            return None
        convert = lambda item: math.nan if item is None else float(item)  # noqa: E731
    lists = [None if value is None else _mapped(value, convert) for value in values]
    try:
        pa.array(lists)
    except (pa.ArrowException, TypeError):
        return None
    return lists


def _items(value: Any) -> list[Any]:
    return [item for part in value for item in _items(part)] if isinstance(value, list) else [value]


def _mapped(value: Any, convert: Callable[[Any], Any]) -> Any:
    return [_mapped(part, convert) for part in value] if isinstance(value, list) else convert(value)


# --- the labelled array ---------------------------------------------------------------------------------------------


def array(sweep: Sweep, ids: Sequence[str]) -> xr.Dataset:
    """The named results over the axes of the sweep's last grid, whose points are `ids` in the grid's order.

    An axis of one parameter has its values as coordinate; one of several parameters is numbered and has one coordinate for each.
    Numbers, true and false are float64, so that a missing point can be NaN; a missing text is empty. Lists of one shape get
    dimensions `NAME_0`, `NAME_1`, ...; other lists are left out and named in the attribute `left_out`.
    """
    import xarray as xr

    grid, cells = sweep.grid, [sweep.rows.get(id_) for id_ in ids]
    dimensions = tuple(axis.name for axis in grid.axes)
    shape = tuple(len(axis) for axis in grid.axes)
    coordinates: dict[str, Any] = {}
    for axis in grid.axes:
        if axis.parameters != (axis.name,):
            coordinates[axis.name] = (axis.name, np.arange(len(axis)))
        for name, values in zip(axis.parameters, zip(*axis.values, strict=True), strict=True):
            label = {"long_name": sweep.help[name]} if name in sweep.help else {}
            coordinates[name] = (axis.name, _plain_array(column(values)), label)
    run_status = np.array([row["status"] if row else "missing" for row in cells], dtype=object)
    variables: dict[str, Any] = {
        "run_status": (dimensions, run_status.reshape(shape)),
        "run_seconds": (dimensions, np.array([row["seconds"] if row else np.nan for row in cells]).reshape(shape)),
    }
    left_out = []
    used = {*coordinates, *variables, *dimensions}
    names = _result_names(sweep, [row for row in cells if row])
    for name, shown in _netcdf_names(names, used).items():
        found = column(_values(cells, name))
        stacked = _stacked(found) if found.dtype == object else _plain_array(found, missing=True)
        if stacked is None:
            left_out.append(name)
            continue
        inner = [_unused(f"{shown}_{number}", used) for number in range(stacked.ndim - 1)]
        variables[shown] = ((*dimensions, *inner), stacked.reshape((*shape, *stacked.shape[1:])))
    return xr.Dataset(variables, coordinates, _attributes(sweep, left_out))


def _plain_array(values: Any, *, missing: bool = False) -> np.ndarray:
    """A pandas column as numpy has it; with `missing`, of a type that has room for a missing value."""
    values = pd.Series(values)
    if values.dtype == "str":
        return values.fillna("").to_numpy(dtype=object)
    return values.to_numpy(dtype=np.float64, na_value=np.nan) if missing else values.to_numpy()


def _stacked(lists: Iterable[Any]) -> np.ndarray | None:
    """Lists as one array, one more dimension than they have; None when their shapes differ."""
    given = [(number, value) for number, value in enumerate(lists) if value is not None]
    is_text = any(isinstance(item, str) for _, value in given for item in _items(value))
    try:
        inner = [np.array(value, dtype=object if is_text else np.float64) for _, value in given]
    except ValueError:  # ragged
        return None
    is_ragged = any(isinstance(item, list) for part in inner for item in part.flat)  # of texts: numpy does not raise
    if is_ragged or len({part.shape for part in inner}) != 1 or 0 in inner[0].shape:
        return None
    whole = np.full((len(lists), *inner[0].shape), "" if is_text else np.nan, dtype=inner[0].dtype)
    for (number, _), part in zip(given, inner, strict=True):
        whole[number] = np.where(part == None, "", part) if is_text else part  # noqa: E711 -- elementwise
    return whole


def _netcdf_names(names: Mapping[str, str], used: set[str]) -> dict[str, str]:
    """Names that a netCDF file can hold: a slash would make a group."""
    return {name: _unused(shown.replace("/", "_").strip(" .") or "result", used) for name, shown in names.items()}


def _unused(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    used.add(name)
    return name


def _attributes(sweep: Sweep, left_out: Sequence[str]) -> dict[str, str]:
    """Texts: netCDF has neither true nor false, nor whole numbers of every size."""
    parameters = sweep.grid.parameters[0] if sweep.grid.parameters else {}
    varying = {name for axis in sweep.grid.axes for name in axis.parameters}
    fixed = {name: value for name, value in parameters.items() if name not in varying}
    attributes = {
        "page": sweep.page,
        "page_hash": sweep.page_hash,
        "package_hash": sweep.package_hash,
        "fixed_parameters": json.dumps(fixed, ensure_ascii=False),
        "versions": json.dumps(sweep.versions),
    }
    return attributes | ({"left_out": ", ".join(left_out)} if left_out else {})


# --- files ----------------------------------------------------------------------------------------------------------


def parquet(content: pd.DataFrame) -> bytes:
    """The table as a parquet file; lists are stored as lists."""
    return content.to_parquet(None, engine="pyarrow", index=False)


def netcdf(content: xr.Dataset) -> bytes:
    """The array as a netCDF-4 file."""
    file = io.BytesIO()
    content.to_netcdf(file, engine="h5netcdf")
    return file.getvalue()
