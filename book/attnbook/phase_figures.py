"""What the two phase diagrams share: curves of theory over coloured cells, and the legend below. Needs matplotlib."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bookkit.figures import COLOURS, SHADES


def patches(colours: Mapping[str, str]) -> dict[str, Any]:
    """An entry of the legend for each phase."""
    from matplotlib.patches import Patch

    return {name: Patch(facecolor=c, edgecolor=SHADES["frame"], linewidth=0.6) for name, c in colours.items()}


def draw_line(axes: Any, x: Any, y: Any, label: str, style: Any = "-") -> None:
    """A curve of theory with a white rim, so that it can be seen on every colour."""
    from matplotlib.patheffects import Normal, Stroke

    rim = [Stroke(linewidth=3.6, foreground=SHADES["paper"]), Normal()]
    axes.plot(x, y, linestyle=style, color=COLOURS["theory"], linewidth=1.7, label=label, path_effects=rim, zorder=4)


def legend_of(colours: Mapping[str, str], figure: Any, axes: Any, columns: int = 3) -> None:
    """Legend below the picture: phases, and what is drawn on `axes`, each once."""
    entries = patches(colours)
    for one in np.atleast_1d(axes).ravel():
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns, fontsize=9)
