"""One style for every page: theory is a line, measurement is points with error bars, the same colour means the same thing.

Colours are Okabe and Ito's, which colour-blind readers can tell apart. Needs matplotlib (extra `figures`).
"""

import json
from io import BytesIO
from typing import Any

import numpy as np

from bookkit import drawn

COLOURS = {
    "clean": "#0072B2",  # samples with their true label
    "noisy": "#D55E00",  # samples with a flipped label
    "signal": "#009E73",
    "noise": "#CC79A7",
    "theory": "#222222",
    "measured": "#56B4E9",
    "bound": "#777777",
}

# Regions of a phase diagram, light to dark in grey as well; the names are those of the explorers.
PHASES = {
    "nothing": "#f0efe6",  # not fitted
    "harmful": COLOURS["noisy"],
    "memory": "#f2c879",
    "benign": "#8fcdf0",
}

# What is neither data nor theory.
SHADES = {
    "paper": "#ffffff",
    "edge": "#1c5d80",  # around points of `measured`, where they lie on each other
    "contour": "#1c4f72",  # lines on the benign region
    "band": "#dddddd",  # a tolerance
    "faint": "#eeeeee",  # a range behind everything
    "frame": "#888888",
    "text": "#4d4d4d",  # a second voice
    "deep negative": "#003a5c",  # ends of the map with two sides: clean, paper, noisy
    "deep positive": "#6e3000",
}

_STYLE = {
    "figure.figsize": (7.2, 3.8),
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "savefig.facecolor": "white",
}


MARGIN = 0.03  # inches around everything
SCALE = 2  # pixels of the picture to one of the page: sharp on every screen


def use_style() -> None:
    """Set the book's matplotlib style and, in a notebook, pictures that are sharp on every screen and say what was drawn."""
    import matplotlib.pyplot as plt

    plt.rcParams.update(_STYLE)
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:  # plain Python: nothing to set
        return
    if shell := get_ipython():
        set_matplotlib_formats("png")
        shell.display_formatter.formatters["image/png"].for_type(plt.Figure, png)


def png(figure: Any) -> tuple[bytes, dict[str, int]]:
    """The figure as a PNG that says what was drawn (`bookkit.drawn`), and its width and height on the page."""
    from PIL.PngImagePlugin import PngInfo

    shown = figure.dpi
    figure.set_dpi(SCALE * shown)  # the layout follows the letters, and these the resolution
    try:
        figure.canvas.draw()
        box, file, said = figure.get_tightbbox().padded(MARGIN), BytesIO(), PngInfo()
        said.add_text(drawn.KEY, json.dumps(drawn.drawn(figure)), zip=True)
        colours = {"facecolor": figure.get_facecolor(), "edgecolor": figure.get_edgecolor()}
        figure.canvas.print_figure(
            file, format="png", dpi=SCALE * shown, bbox_inches=box, pil_kwargs={"pnginfo": said}, **colours
        )
    finally:
        figure.set_dpi(shown)
    return file.getvalue(), {"width": round(shown * box.width), "height": round(shown * box.height)}


def theory(axes: Any, x: Any, y: Any, *, colour: str = "theory", **kwargs: Any) -> Any:
    """Draw a formula: a line. `colour` is a key of `COLOURS`. Returns the line."""
    (line,) = axes.plot(x, y, color=COLOURS[colour], zorder=2, **kwargs)
    return line


def measured(axes: Any, x: Any, values: Any, *, error: Any = None, colour: str = "measured", **kwargs: Any) -> Any:
    """Draw a measurement: points with error bars.

    Args:
        values: (points,) with `error` given, or (draws, points): then the points are means over draws and the bars are
            +- 2 standard errors.
    """
    values = np.asarray(values)
    if error is None:
        error = 2 * np.nanstd(values, axis=0, ddof=1) / np.sqrt(np.isfinite(values).sum(axis=0))
        values = np.nanmean(values, axis=0)
    style = {"fmt": "o", "capsize": 2.5, "elinewidth": 1.2, "zorder": 3}
    return axes.errorbar(x, values, yerr=error, color=COLOURS[colour], **(style | kwargs))
