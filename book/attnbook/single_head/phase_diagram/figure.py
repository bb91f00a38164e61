"""Phase diagrams as pictures: three phases by colour, the error by contours, cells in which draws disagree by dots.

Colours are Okabe and Ito's, lightened, and differ in lightness too: they can be told apart in grey. Needs matplotlib.
"""

from typing import Any

import numpy as np

from attnbook.phase_figures import draw_line, legend_of, patches
from attnbook.single_head.phase import PhaseDiagram, PhasePlan
from bookkit.figures import COLOURS, PHASES, SHADES

PHASE_COLOURS = {  # in the order of `PhaseDiagram.phase`
    "not every label fitted": PHASES["nothing"],
    "fitted, harmful": PHASES["harmful"],
    "fitted, benign": PHASES["benign"],
}
_LEVELS = (-1000.0, -300.0, -100.0, -30.0, -10.0, -3.0)


def draw_phases(axes: Any, diagram: PhaseDiagram, *, log_y: bool = True) -> None:
    """Majority phase of each cell, contours of the median log10 clean error at `_LEVELS`, dots on cells in which draws disagree."""
    from matplotlib.colors import ListedColormap

    plan = diagram.plan
    phase, uncertain = diagram.phase()
    colours = ListedColormap(list(PHASE_COLOURS.values()))
    axes.pcolormesh(
        plan.x, plan.y, phase, cmap=colours, vmin=-0.5, vmax=2.5, shading="nearest", rasterized=True, zorder=0
    )
    # The median: one draw without any flipped label would move a mean by hundreds of orders of magnitude.
    error = np.where(phase == 2, np.median(diagram.log10_error, axis=-1), np.nan)
    inside = [level for level in _LEVELS if np.nanmin(error) < level < np.nanmax(error)] if (phase == 2).any() else []
    if inside:
        style = {"colors": SHADES["contour"], "linewidths": 0.8, "linestyles": "solid", "zorder": 2}
        lines = axes.contour(plan.x, plan.y, error, inside, **style)
        # One label per level, in the middle of its longest piece.
        pieces = [max(level, key=len) for level in lines.allsegs if level]
        middles = [tuple(piece[len(piece) // 2]) for piece in pieces if len(piece) > 4]
        if middles:
            axes.clabel(lines, fmt=lambda level: f"$10^{{{level:g}}}$", fontsize=8.5, manual=middles)
    rows, columns = np.nonzero(uncertain)
    axes.scatter(
        plan.x[columns], plan.y[rows], s=5, color=COLOURS["theory"], linewidths=0, label="draws disagree", zorder=3
    )
    _axes_of(axes, plan, log_y)


def _axes_of(axes: Any, plan: PhasePlan, log_y: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis) if log_y else (axes.xaxis,):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlim(plan.x[0], plan.x[-1])
    axes.set_ylim(plan.y[0], plan.y[-1])
    axes.grid(False)


def draw_proved(
    axes: Any, plan: PhasePlan, codes: np.ndarray, measured: PhaseDiagram | None = None, *, log_y: bool = True
) -> None:
    """Proved cells by outcome, the others hatched; lines on which half of the measured draws fit every label, and are benign."""
    from matplotlib.colors import ListedColormap

    names = ("fitted, benign", "fitted, harmful", "not every label fitted")
    colours = ListedColormap([PHASE_COLOURS[name] for name in names])
    axes.patch.set(facecolor=SHADES["paper"], hatch="////", edgecolor=SHADES["frame"], linewidth=0)
    shown = np.ma.masked_less(np.minimum(codes, 2), 0)
    axes.pcolormesh(plan.x, plan.y, shown, cmap=colours, vmin=-0.5, vmax=2.5, shading="nearest", rasterized=True)
    if measured is not None:
        each, grid = measured.phases(), (measured.plan.x, measured.plan.y)
        for level, style in ((each > 0, "-"), (each == 2, "--")):
            axes.contour(*grid, level.mean(-1), [0.5], colors=COLOURS["theory"], linewidths=1.3, linestyles=style)
    _axes_of(axes, plan, log_y)


def proved_legend(figure: Any) -> None:
    """Legend below a picture of `draw_proved`."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries = patches(PHASE_COLOURS)
    entries["not decided"] = Patch(facecolor=SHADES["paper"], edgecolor=SHADES["frame"], hatch="////", linewidth=0.6)
    for name, style in (("half of the draws fitted", "-"), ("half of the draws benign", "--")):
        entries[name] = Line2D([], [], color=COLOURS["theory"], linewidth=1.3, linestyle=style)
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=3, fontsize=9)


def draw_level(axes: Any, plan: PhasePlan, reading: np.ndarray, label: str, style: str) -> None:
    """The curve on which a mean-field reading (rows, columns) is zero, as `draw_line` draws curves."""
    from contourpy import contour_generator

    finite = np.clip(reading, -1e6, 1e6)
    for number, line in enumerate(contour_generator(plan.x, plan.y, finite).lines(0.0)):
        draw_line(axes, line[:, 0], line[:, 1], label if number == 0 else "_", style)


def phase_legend(figure: Any, axes: Any) -> None:
    """Legend below the picture: phases, disagreement, and the curves of `axes`, each once."""
    legend_of(PHASE_COLOURS, figure, axes)
