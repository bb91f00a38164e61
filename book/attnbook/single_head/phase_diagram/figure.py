"""Phase diagrams as pictures: three phases by colour, graded by the error, and dots on cells in which draws disagree.

Colours are Okabe and Ito's and differ in lightness too: they can be told apart in grey. Needs matplotlib.
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
# From a small error to a large one within a phase, as in the explorer: benign on a logarithmic scale of the exponent.
_BENIGN = (PHASES["benign"], COLOURS["clean"], SHADES["deep negative"])
_HARMFUL = (PHASES["memory"], PHASES["harmful"])
_EXPONENTS = (1, 3, 10, 30, 100, 300, 1000)  # of the bar; contours are drawn at those between its ends


def draw_phases(axes: Any, diagram: PhaseDiagram, *, log_y: bool = True) -> None:
    """Majority phase of each cell, graded by its median error; contours in the benign phase; dots on cells in which draws disagree."""
    from matplotlib.colors import LinearSegmentedColormap, ListedColormap, LogNorm, Normalize

    plan = diagram.plan
    phase, uncertain = diagram.phase()
    # The median: one draw without any flipped label would move a mean by hundreds of orders of magnitude.
    exponent = -np.median(diagram.log10_error, axis=-1)
    style = {"shading": "nearest", "rasterized": True, "zorder": 0}
    axes.pcolormesh(plan.x, plan.y, phase, cmap=ListedColormap([*PHASE_COLOURS.values()]), vmin=-0.5, vmax=2.5, **style)
    scales = (
        (1, _HARMFUL, Normalize(-1, np.log10(0.5)), -exponent),
        (2, _BENIGN, LogNorm(1, 1000, clip=True), exponent),
    )
    for code, colours, norm, values in scales:
        graded = LinearSegmentedColormap.from_list("graded", colours)
        cells = axes.pcolormesh(
            plan.x, plan.y, np.ma.masked_where(phase != code, values), cmap=graded, norm=norm, **style
        )
    bar = axes.figure.colorbar(cells, ax=axes, ticks=_EXPONENTS, pad=0.02, label="median clean error, benign")
    bar.ax.set_yticklabels([f"$10^{{-{number}}}$" for number in _EXPONENTS])
    bar.ax.minorticks_off()
    if (phase == 2).any():
        benign = np.where(phase == 2, exponent, np.nan)
        axes.contour(plan.x, plan.y, benign, _EXPONENTS[1:-1], colors=SHADES["contour"], linewidths=0.6, zorder=2)
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


def draw_intervals(axes: Any, snr: np.ndarray, found: np.ndarray) -> None:
    """Exact errors of drawn sets, and a bar between the two ends that are proved of each; found: (points, draws, 3 or more)."""
    top = 10 * -found[..., 0].min()
    for k in range(found.shape[1]):
        exact, low, high = -found[:, k, :3].T
        x, low = snr * 1.02**k, np.minimum(low, top)
        axes.vlines(x, high, low, color=COLOURS["bound"], linewidth=4, label="proved interval" if k == 0 else None)
        axes.plot(x, exact, ".", color=COLOURS["clean"], markersize=3, label="drawn set" if k == 0 else None)
    axes.set(xscale="log", yscale="log", ylim=(0.1, top), xlabel="SNR")


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
