"""Heat maps as pictures: a quantity by colour, phases by colour, curves of theory over them. Needs matplotlib.

Phase colours are Okabe and Ito's, lightened, and differ in lightness too: they can be told apart in grey.
"""

from typing import Any

import numpy as np

from attnbook.phase_figures import draw_line as draw_curve
from attnbook.phase_figures import legend_of
from attnbook.token_selection.heat_map.study import PHASES, HeatMap, HeatPlan
from bookkit import figures
from bookkit.figures import COLOURS

PHASE_COLOURS = dict(zip(PHASES, figures.PHASES.values(), strict=True))


def set_axes(axes: Any, plan: HeatPlan, *, log: bool = True) -> None:
    """Limits at the outer edges of the outer cells, ticks with round numbers, names."""
    if log:
        axes.set(xscale="log", yscale="log")
        for name, wanted in (("x", (5, 10, 20, 50, 100)), ("y", (250, 500, 1000, 2000, 5000))):
            values = plan.signal_norms if name == "x" else plan.dims
            ticks = [v for v in wanted if values[0] <= v <= values[-1]]
            getattr(axes, f"set_{name}ticks")(ticks, [f"{v:g}" for v in ticks])
        axes.minorticks_off()
    for name, values in (("x", plan.signal_norms), ("y", plan.dims)):
        edges = _edges(np.asarray(values, dtype=float), log)
        getattr(axes, f"set_{name}lim")(edges[0], edges[-1])
    axes.set(xlabel=r"signal norm $|\mu|$", ylabel="dimension $d$")
    axes.grid(False)


def _edges(values: np.ndarray, log: bool) -> np.ndarray:
    """(K + 1,): edges half way between neighbouring values."""
    v = np.log(values) if log else values
    if len(v) == 1:
        v = np.array([v[0] - 0.5, v[0] + 0.5]) if log else v[0] * np.array([0.9, 1.1])
        return np.exp(v) if log else v
    middle = (v[1:] + v[:-1]) / 2
    edges = np.concatenate([[2 * v[0] - middle[0]], middle, [2 * v[-1] - middle[-1]]])
    return np.exp(edges) if log else edges


def draw_map(axes: Any, plan: HeatPlan, values: np.ndarray, *, low: float, high: float, log: bool = True) -> Any:
    """Values (rows, columns) by colour from `low` to `high`. Returns the mesh, for a colour bar."""
    x, y = (_edges(np.asarray(v, dtype=float), log) for v in (plan.signal_norms, plan.dims))
    mesh = axes.pcolormesh(x, y, values, cmap="cividis", vmin=low, vmax=high, rasterized=True, zorder=0)
    set_axes(axes, plan, log=log)
    return mesh


def draw_phases(axes: Any, found: HeatMap, *, log: bool = True) -> None:
    """Phase of most training sets by colour, dots where not all agree."""
    from matplotlib.colors import ListedColormap

    plan = found.plan
    phase, disagree = found.phase()
    x, y = (_edges(np.asarray(v, dtype=float), log) for v in (plan.signal_norms, plan.dims))
    colours = ListedColormap(list(PHASE_COLOURS.values()))
    axes.pcolormesh(x, y, phase, cmap=colours, vmin=-0.5, vmax=len(PHASES) - 0.5, rasterized=True, zorder=0)
    rows, columns = np.nonzero(disagree)
    axes.scatter(
        plan.signal_norms[columns],
        plan.dims[rows],
        s=6,
        color=COLOURS["theory"],
        linewidths=0,
        label="training sets disagree",
        zorder=3,
    )
    set_axes(axes, plan, log=log)


def phase_legend(figure: Any, axes: Any, *, columns: int = 3) -> None:
    """Legend below the picture: phases, and the curves of `axes`, each once."""
    legend_of(PHASE_COLOURS, figure, axes, columns)


def draw_level(axes: Any, plan: HeatPlan, values: np.ndarray, level: float, label: str, style: Any) -> None:
    """Where values (rows, columns), interpolated in log d and log |mu|, have a level, as `draw_curve` draws curves."""
    from contourpy import contour_generator

    lines = contour_generator(np.log(plan.signal_norms), np.log(plan.dims), np.asarray(values)).lines(level)
    for number, line in enumerate(lines):
        draw_curve(axes, *np.exp(line).T, label if number == 0 else "_", style)
