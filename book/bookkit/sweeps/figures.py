"""Pictures of a sweep: its labelled array in, means over the repeats with standard errors out, a single run marked beside them.

The array is an xarray `Dataset` with named dimensions: `Sweep.array`, a `results.nc` that was opened, or any other. Missing points
are nan; they count neither in a mean nor in its error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bookkit.figures import COLOURS, SHADES, measured

if TYPE_CHECKING:
    import xarray

__all__ = ["beside", "heat_map", "lines"]

_LINE_COLOURS = ("measured", "noisy", "signal", "clean", "noise", "bound")


def lines(
    array: xarray.Dataset,
    result: str,
    over: str,
    *,
    by: str | None = None,
    repeat: str | None = "seed",
    ax: Any = None,
    **style: Any,
) -> Any:
    """A result against one coordinate: means over the repeats as points, +- 2 standard errors as bars, one line per value of `by`.

    Args:
        array: of a sweep.
        result: a data variable of numbers or truth values (a mean of those is a share).
        over: coordinate of the horizontal axis; logarithmic when its values are.
        by: coordinate that tells the lines apart, at most six values.
        repeat: dimension that is averaged over; an array without the usual `seed` is drawn without bars. None: nothing is averaged.
        ax: matplotlib axes; the current ones when left out.
        style: for `bookkit.figures.measured`, as in `colour="clean"` or `label="..."`; wins over what is chosen here.

    Returns the axes. Raises ValueError for a name that is not there (with the nearest that are), a result that is not numeric or has no
    value at all, and an axis of the sweep that is neither drawn nor averaged nor selected.
    """
    across = _axis(array, over)
    apart = None if by is None else _axis(array, by)
    if apart is not None and len(apart) > len(_LINE_COLOURS):
        raise ValueError(
            f"by must have at most {len(_LINE_COLOURS)} values, which colours can tell apart; {by} has {len(apart)}: "
            "select some, or use heat_map"
        )
    drawn = [across] if apart is None else [apart, across]
    mean, error = _mean(array, result, drawn, repeat)
    ax = _axes(ax)
    if apart is None:
        mean, error = mean[None], error[None]
    names = [None] if apart is None else apart.texts()
    for colour, name, centre, spread in zip(_LINE_COLOURS, names, mean, error, strict=False):
        there = np.isfinite(centre)
        chosen = {"colour": colour, "fmt": "o-", "linewidth": 0.9, "label": name} | style
        measured(ax, across.values[there], centre[there], error=2 * spread[there], **chosen)
    ax.set(xlabel=across.title, ylabel=_title(array[result]))
    if across.logarithmic:
        ax.set_xscale("log")
    if apart is not None:
        ax.legend()
    return ax


def heat_map(
    array: xarray.Dataset, result: str, x: str, y: str, *, repeat: str | None = "seed", ax: Any = None, **style: Any
) -> Any:
    """A result over two coordinates: colour is the mean over the repeats, a cell without any value is hatched.

    Cells end halfway to their neighbours, on a logarithmic axis at the geometric mean. `style` goes to matplotlib's `pcolormesh`; the
    other arguments and the errors are as for `lines`. Returns the axes, which have a colour bar.
    """
    across, up = _axis(array, x), _axis(array, y)
    mean, _ = _mean(array, result, [up, across], repeat)
    from matplotlib.collections import PolyCollection

    ax = _axes(ax)
    ax.grid(False)
    for axis, shown in ((ax.xaxis, across), (ax.yaxis, up)):
        if shown.is_named:
            axis.update_units(list(shown.values))
    left, low = across.edges(), up.edges()
    mesh = ax.pcolormesh(left, low, np.ma.masked_invalid(mean), **style)
    missing = [
        [(left[j], low[i]), (left[j + 1], low[i]), (left[j + 1], low[i + 1]), (left[j], low[i + 1])]
        for i, j in zip(*np.nonzero(np.isnan(mean)), strict=True)
    ]
    if missing:
        hatched = {"facecolors": SHADES["paper"], "edgecolors": COLOURS["bound"], "linewidths": 0, "hatch": "////"}
        ax.add_collection(PolyCollection(missing, label="missing", **hatched))
    ax.set(xlabel=across.title, ylabel=up.title)
    if across.logarithmic:
        ax.set_xscale("log")
    if up.logarithmic:
        ax.set_yscale("log")
    ax.set(xlim=(left[0], left[-1]), ylim=(low[0], low[-1]))
    ax.figure.colorbar(mesh, ax=ax, label=_title(array[result]))
    return ax


def beside(
    ax: Any, value: float, at: Any, *, error: float | None = None, label: str = "single run", colour: str = "noisy"
) -> Any:
    """Mark one run in a picture of many: a star, with +- 2 standard errors when `error` is given.

    `at` is where it stands: a number on axes of `lines`, a pair (x, y) on axes of `heat_map`, where the star's inside has the colour of
    `value` on the map's own scale, so that it vanishes into its cell where the two agree. Returns what was drawn. Raises ValueError
    when `at` is a pair and the axes have no map, or the other way round.
    """
    from matplotlib.collections import QuadMesh

    meshes = [drawn for drawn in ax.collections if isinstance(drawn, QuadMesh)]
    pair = isinstance(at, Iterable) and not isinstance(at, str)
    if pair != bool(meshes):
        wanted, given = ("a pair (x, y)", "a heat map") if meshes else ("one number", "lines")
        raise ValueError(f"at must be {wanted} on axes of {given}; got {at!r}")
    if not meshes:
        bar = None if error is None else [2 * error]
        style = {"fmt": "*", "markersize": 13, "zorder": 4, "label": label, "markeredgecolor": COLOURS["theory"]}
        return measured(ax, [at], [value], error=np.nan if bar is None else bar, colour=colour, **style)
    x, y = at
    from matplotlib.patheffects import withStroke

    inside, rim = meshes[-1].to_rgba(float(value)), {"markeredgecolor": COLOURS[colour], "markeredgewidth": 1.4}
    style = {"marker": "*", "markersize": 15, "linestyle": "none", "zorder": 4, "label": label, **rim}
    halo = [withStroke(linewidth=3.4, foreground=SHADES["paper"])]  # seen on every colour of a map
    (star,) = ax.plot([x], [y], markerfacecolor=inside, path_effects=halo, **style)
    return star


# --- what the array says ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Axis:
    """One drawn axis: the dimension it runs along, its values in rising order (texts stay as they come), where they are in the array."""

    name: str
    dimension: str
    title: str
    values: np.ndarray
    order: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_named(self) -> bool:
        """Values are texts, not numbers."""
        return self.values.dtype.kind == "U"

    @property
    def logarithmic(self) -> bool:
        """Three positive values or more whose logarithms are more evenly spaced than they are themselves."""
        if self.is_named or len(self) < 3 or self.values[0] <= 0:
            return False
        uneven = [np.std(steps) / np.mean(steps) for steps in (np.diff(self.values), np.diff(np.log(self.values)))]
        return uneven[1] < uneven[0]

    def texts(self) -> list[str]:
        return [f"{self.name} = {value if self.is_named else format(value, 'g')}" for value in self.values]

    def edges(self) -> np.ndarray:
        """Borders of cells around the values, one more than there are."""
        points = np.arange(len(self), dtype=np.float64) if self.is_named else self.values
        points = np.log(points) if self.logarithmic else points
        if len(points) == 1:
            return points[0] + np.array([-0.5, 0.5])
        middle = (points[:-1] + points[1:]) / 2
        ends = np.concatenate([[2 * points[0] - middle[0]], middle, [2 * points[-1] - middle[-1]]])
        return np.exp(ends) if self.logarithmic else ends


def _axis(array: xarray.Dataset, name: str) -> _Axis:
    """The coordinate `name`, which must run along one dimension and have a value of its own at each place."""
    _known("coordinate", name, [*array.dims, *array.coords])
    coordinate = array[name]
    if coordinate.ndim != 1:
        places = "is fixed" if coordinate.ndim == 0 else f"runs along {', '.join(map(str, coordinate.dims))}"
        raise ValueError(f"coordinate {name} must run along one axis of the sweep to be drawn against; it {places}")
    values = coordinate.values
    if values.dtype.kind in "iuf":
        values = values.astype(np.float64)
        order = np.argsort(values)
    else:  # texts and truth values are names: drawn side by side, in the order of the sweep
        values, order = values.astype(str), np.arange(len(values))
    if len(np.unique(values)) < len(values) or (values.dtype.kind == "f" and not np.isfinite(values).all()):
        (along,) = coordinate.dims
        raise ValueError(
            f"coordinate {name} must have a value of its own at each place of axis {along}, and it repeats some or lacks some: "
            f"draw over another coordinate of {along}, or select"
        )
    return _Axis(name, coordinate.dims[0], _title(coordinate), values[order], order)


def _mean(array: xarray.Dataset, result: str, drawn: list[_Axis], repeat: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over `repeat` with axes as `drawn`: nan where nothing is known, an error of nan for fewer than two."""
    _known("result", result, list(array.data_vars))
    values = array[result]
    if values.dtype.kind not in "biuf":
        raise ValueError(f"result {result} must be numbers to be drawn; it holds {values.dtype}")
    shown = [axis.dimension for axis in drawn]
    if len(set(shown)) < len(shown):
        names = " and ".join(axis.name for axis in drawn)
        raise ValueError(
            f"{names} must be on two axes of the sweep; both run along {shown[0]}, on which they move together"
        )
    averaged = _repeats(array, repeat)
    if averaged in shown:
        raise ValueError(f"repeat must be an axis that is not drawn; got {repeat!r}, which runs along {averaged}")
    if absent := [dimension for dimension in shown if dimension not in values.dims]:
        raise ValueError(
            f"result {result} must vary along {absent[0]} to be drawn over it; it has {', '.join(values.dims)}"
        )
    values = values.squeeze([d for d in values.dims if d not in [*shown, averaged] and values.sizes[d] == 1], drop=True)
    if left := [str(dimension) for dimension in values.dims if dimension not in [*shown, averaged]]:
        raise ValueError(
            f"axes of the sweep must be drawn, averaged over or selected; left over: {', '.join(left)}: "
            f"select one value, as in array.sel({left[0]}=...) or array.isel({left[0]}=0)"
        )
    if averaged not in values.dims:
        values = values.expand_dims("one repeat")
        averaged = "one repeat"
    data = values.transpose(averaged, *shown).values.astype(np.float64)
    for place, axis in enumerate(drawn, start=1):
        data = data.take(axis.order, axis=place)
    return _statistics(result, data)


def _statistics(result: str, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Over the first axis, nan left out. Counted by hand: numpy warns where a cell has no value."""
    there = np.isfinite(data)
    if not there.any():
        raise ValueError(f"result {result} must have a value at some point of the sweep; all are missing")
    count = there.sum(0)
    mean = np.where(count > 0, np.where(there, data, 0).sum(0) / np.maximum(count, 1), np.nan)
    squares = np.where(there, (data - mean) ** 2, 0).sum(0)
    return mean, np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1) / np.maximum(count, 1)), np.nan)


def _repeats(array: xarray.Dataset, repeat: str | None) -> str | None:
    """The dimension to average over: that of `repeat`. None when there is none, or only one seed."""
    if repeat is None or (repeat == "seed" and repeat not in array.coords and repeat not in array.dims):
        return None
    _known("repeat", repeat, [*array.dims, *array.coords])
    return array[repeat].dims[0] if array[repeat].ndim else None


def _known(what: str, name: str, names: list[Any]) -> None:
    names = sorted({str(known) for known in names})
    if name not in names:
        near = difflib.get_close_matches(str(name), names, n=3) or names
        raise ValueError(f"{what} must be one that the array has; got {name!r}: nearest are {', '.join(near)}")


def _title(variable: xarray.DataArray) -> str:
    return str(variable.attrs.get("long_name", variable.name))


def _axes(ax: Any) -> Any:
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.gca()
    return ax
