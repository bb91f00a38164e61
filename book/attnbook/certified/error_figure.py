"""Hard heads in one picture: how far the float path is from the exact logarithm."""

from typing import Any

import numpy as np

from attnbook.certified.hard_heads import FAR, stored
from bookkit.figures import COLOURS, theory

_MARKS = {"tie": ("theory", "s", "none"), "others": ("measured", "o", None)}
_LEAST = 1e-17  # of a distance on a logarithmic axis


def draw_distances(axes: Any) -> None:
    """The kept points of the table: distance over -log10 err, ties apart from the five other families."""
    found = stored()
    groups = {"others": [f for f in found if f != "tie"], "tie": ["tie"]}
    for name, families in groups.items():
        points = np.array([point for family in families for point in found[family]["points"] if point[0] < 0])
        colour, marker, face = _MARKS[name]
        label = "walls that nearly meet" if name == "tie" else "the five other families"
        at, off = -points[:, 0], np.maximum(points[:, 1], _LEAST)
        axes.plot(at, off, marker, color=COLOURS[colour], mfc=face, ms=3.5, mew=0.7, label=label)
    theory(axes, [1e-2, 1e24], [FAR, FAR], colour="bound", linestyle="--", label="$10^{-12}$")
    axes.set(
        xscale="log", yscale="log", xlabel=r"$-\log_{10}\mathrm{err}$", ylabel="distance of the float result",
        xlim=(1e-2, 1e24), ylim=(1e-17, 1e-5),
    )  # fmt: skip
    axes.legend(loc="upper right")


def family_rows() -> list[tuple[Any, ...]]:
    """Rows of the page's table: family, heads, range of log10 err, median and largest distance, heads beyond `FAR`, units of c."""
    return [
        (
            family, row["heads"], f"{row['log10_error'][1]:.2f}", f"{row['log10_error'][0]:.1e}", f"{row['quantiles']['0.5']:.0e}",
            f"{row['largest']:.0e}", row["beyond"], row["ulps"] or "",
        )
        for family, row in stored().items()
    ]  # fmt: skip
