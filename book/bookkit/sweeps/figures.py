"""Pictures of a sweep: its labelled array in, means over the repeats with standard errors out, a single run marked beside them.

The array is an xarray `Dataset` with named dimensions: `Sweep.array`, a `results.nc` that was opened, or any other. Missing points
are nan; they count neither in a mean nor in its error.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import numpy as np

from bookkit.figures import COLOURS, SHADES, measured

if TYPE_CHECKING:
    import xarray

__all__ = ["beside", "heat_map", "lines"]

_LINE_COLOURS = ("measured", "noisy", "signal", "clean", "noise", "bound")


def lines(
    array: xarray.Dataset, result: str, over: str, *, by: str | None = None, repeat: str | None = "seed", ax: Any = None,
    **style: Any,
) -> Any:  # fmt: skip
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
    mean, error = _mean(array, result, [over] if by is None else [by, over], repeat)
    if by is not None and mean.sizes[by] > len(_LINE_COLOURS):
        raise ValueError(
            f"by must have at most {len(_LINE_COLOURS)} values, which colours can tell apart; {by} has {mean.sizes[by]}"
        )
    ax = _axes(ax)
    for number in range(1 if by is None else mean.sizes[by]):
        name, centre, spread = None, mean, error
        if by is not None:
            centre, spread = mean.isel({by: number}), error.isel({by: number})
            name = f"{by} = {format(centre[by].item(), 'g') if _are_numbers(mean[by]) else centre[by].item()}"
        there = np.isfinite(centre.values)
        across = centre[over].values if _are_numbers(mean[over]) else centre[over].values.astype(str)
        chosen = {"colour": _LINE_COLOURS[number], "fmt": "o-", "linewidth": 0.9, "label": name} | style
        measured(ax, across[there], centre.values[there], error=2 * spread.values[there], **chosen)
    ax.set(xlabel=_title(array[over]), ylabel=_title(array[result]))
    if _is_logarithmic(mean[over].values):
        ax.set_xscale("log")
    if by is not None:
        ax.legend()
    return ax


def heat_map(
    array: xarray.Dataset, result: str, x: str, y: str, *, repeat: str | None = "seed", ax: Any = None, **style: Any
) -> Any:
    """A result over two coordinates: colour is the mean over the repeats, a cell without any value is hatched.

    Cells end halfway to their neighbours, on a logarithmic axis at the geometric mean. `style` goes to matplotlib's `pcolormesh`; the
    other arguments and the errors are as for `lines`. Returns the axes, which have a colour bar.
    """
    from matplotlib.collections import PolyCollection

    mean = _mean(array, result, [y, x], repeat)[0]
    ax = _axes(ax)
    ax.grid(False)
    left, low = _edges(mean[x].values), _edges(mean[y].values)
    mesh = ax.pcolormesh(left, low, np.ma.masked_invalid(mean.values), **style)
    missing = [
        [(left[j], low[i]), (left[j + 1], low[i]), (left[j + 1], low[i + 1]), (left[j], low[i + 1])]
        for i, j in zip(*np.nonzero(np.isnan(mean.values)), strict=True)
    ]
    if missing:
        hatched = {"facecolors": SHADES["paper"], "edgecolors": COLOURS["bound"], "linewidths": 0, "hatch": "////"}
        ax.add_collection(PolyCollection(missing, label="missing", **hatched))
    ax.set(xlabel=_title(array[x]), ylabel=_title(array[y]))
    if _is_logarithmic(mean[x].values):
        ax.set_xscale("log")
    if _is_logarithmic(mean[y].values):
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
    from matplotlib.patheffects import withStroke

    meshes = [drawn for drawn in ax.collections if isinstance(drawn, QuadMesh)]
    if (np.ndim(at) == 1) != bool(meshes):
        wanted, given = ("a pair (x, y)", "a heat map") if meshes else ("one number", "lines")
        raise ValueError(f"at must be {wanted} on axes of {given}; got {at!r}")
    if not meshes:
        style = {"fmt": "*", "markersize": 13, "zorder": 4, "label": label, "markeredgecolor": COLOURS["theory"]}
        return measured(ax, [at], [value], error=np.nan if error is None else [2 * error], colour=colour, **style)
    x, y = at
    inside, rim = meshes[-1].to_rgba(float(value)), {"markeredgecolor": COLOURS[colour], "markeredgewidth": 1.4}
    style = {"marker": "*", "markersize": 15, "linestyle": "none", "zorder": 4, "label": label, **rim}
    halo = [withStroke(linewidth=3.4, foreground=SHADES["paper"])]  # seen on every colour of a map
    (star,) = ax.plot([x], [y], markerfacecolor=inside, path_effects=halo, **style)
    return star


def _mean(
    array: xarray.Dataset, result: str, drawn: list[str], repeat: str | None
) -> tuple[xarray.DataArray, xarray.DataArray]:
    """Mean and standard error over `repeat`, dimensions named and ordered as `drawn`, numbers rising; nan where nothing is known."""
    _known("result", result, list(array.data_vars))
    values = array[result]
    if values.dtype.kind not in "biuf":
        raise ValueError(f"result {result} must be numbers to be drawn; it holds {values.dtype}")
    values = values.astype(float)
    if repeat == "seed" and (repeat not in array.coords or array[repeat].ndim == 0):
        repeat = None
    if len(set(drawn)) < len(drawn):
        raise ValueError(f"{' and '.join(drawn)} must be on two axes of the sweep")
    if repeat in drawn:
        raise ValueError(f"repeat must be an axis that is not drawn; got {repeat!r}")
    for name in [*drawn, *([repeat] if repeat else [])]:
        _known("repeat" if name == repeat else "coordinate", name, [*array.dims, *array.coords])
        if name not in values.dims:  # a parameter that moves with others: along their axis
            if array[name].ndim != 1 or array[name].dims[0] not in values.dims:
                raise ValueError(
                    f"coordinate {name} must run along an axis of {result} of its own; the axes are {', '.join(values.dims)}"
                )
            values = values.swap_dims({array[name].dims[0]: name})
    for name in drawn:
        if len(np.unique(values[name])) < values.sizes[name]:
            raise ValueError(
                f"coordinate {name} must have a value of its own at each place, and it repeats some: select, or draw over another"
            )
        values = values.sortby(name) if _are_numbers(values[name]) else values
    others = [name for name in values.dims if name not in [*drawn, repeat]]
    values = values.squeeze([name for name in others if values.sizes[name] == 1])
    if left := [name for name in others if name in values.dims]:
        raise ValueError(
            f"axes of the sweep must be drawn, averaged over or selected; left over: {', '.join(left)}: "
            f"select one value, as in array.sel({left[0]}=...) or array.isel({left[0]}=0)"
        )
    if not values.notnull().any():
        raise ValueError(f"result {result} must have a value at some point of the sweep; all are missing")
    averaged = [repeat] if repeat else []
    count = values.count(averaged) if repeat else values.notnull()
    mean = values.sum(averaged) / count.where(count > 0)
    variance = ((values - mean) ** 2).sum(averaged) / (count - 1).where(count > 1)
    return mean.transpose(*drawn), ((variance / count.where(count > 0)) ** 0.5).transpose(*drawn)


def _are_numbers(values: xarray.DataArray) -> bool:
    return values.dtype.kind in "iuf"


def _is_logarithmic(values: np.ndarray) -> bool:
    """Three positive numbers or more whose logarithms are more evenly spaced than they are themselves."""
    if values.dtype.kind not in "iuf" or len(values) < 3 or values[0] <= 0:
        return False
    plain, logarithms = (np.std(steps) / np.mean(steps) for steps in (np.diff(values), np.diff(np.log(values))))
    return bool(logarithms < plain)


def _edges(values: np.ndarray) -> np.ndarray:
    """Borders of cells around the values, one more than there are."""
    if values.dtype.kind not in "iuf":
        raise ValueError(f"coordinates of a heat map must be numbers; got {values.dtype}")
    points = np.log(values) if (logarithmic := _is_logarithmic(values)) else values.astype(float)
    if len(points) == 1:
        return points[0] + np.array([-0.5, 0.5])
    middle = (points[:-1] + points[1:]) / 2
    ends = np.concatenate([[2 * points[0] - middle[0]], middle, [2 * points[-1] - middle[-1]]])
    return np.exp(ends) if logarithmic else ends


def _known(what: str, name: str, names: list[Any]) -> None:
    if name not in names:
        names = sorted({str(each) for each in names})
        near = difflib.get_close_matches(str(name), names, n=3) or names
        raise ValueError(f"{what} must be one that the array has; got {name!r}: nearest are {', '.join(near)}")


def _title(variable: xarray.DataArray) -> str:
    return str(variable.attrs.get("long_name", variable.name))


def _axes(ax: Any) -> Any:
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.gca()
    return ax
