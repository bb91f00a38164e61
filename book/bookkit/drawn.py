"""What a figure's code drew, in words and numbers: written into its PNG, so that a run can be compared by more than its look.

A coarse picture (`bookkit.pages.pictures`) does not see one point that moved by a twentieth, nor two labels that changed places. `drawn`
says of each panel its texts, scales and limits, and of each artist its label, colours and points. Points are fractions of the panel's
width and height, (0, 0) at the lower left, so that one limit serves for all units.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

KEY = "Drawn"  # of the text in the PNG
GROUPS, FEW = 24, 6  # groups of points of a curve; in a panel of more than `MANY` artists
MANY = 30
DIGITS = 4
# A point may lie so far from the stored one, in parts of a panel's width or height. Of all figures of the book three moved by more than
# 0.004 from one processor to another, the noise of a training with noisy gradients by 0.0072.
APART = 0.02
LONGER, SHORT = 0.25, 0.002  # of a bar, and of the panel


def drawn(figure: Figure) -> dict[str, Any]:
    """Plain values that `json` writes. The figure must have been drawn: limits and places are those of its last drawing."""
    around = [*figure.texts, *([figure._suptitle] if figure._suptitle else [])]
    found: dict[str, Any] = {"texts": [text.get_text() for text in around]}
    found |= {f"legend {number}": _legend(legend) for number, legend in enumerate(figure.legends, 1)}
    return found | {f"panel {number}": _panel(axes) for number, axes in enumerate(figure.axes, 1)}


def read(image: Image) -> dict[str, Any] | None:
    """What a stored picture says that was drawn; None where it says nothing."""
    return json.loads(image.info[KEY]) if KEY in image.info else None


def differences(
    stored: Any, fresh: Any, same: Callable[[str, str], bool], where: str = "", span: float = 1.0
) -> Iterator[str]:
    """What was drawn otherwise, in words: a number by more than `APART` of its panel, a text that is not the `same`."""
    if isinstance(stored, dict) and isinstance(fresh, dict):
        for key in {**stored, **fresh}:
            place = f"{where}, {key}" if where else key
            if key not in stored or key not in fresh:
                yield f"{place} is {'new' if key in fresh else 'missing'}"
            else:
                span = abs(stored[key][1] - stored[key][0]) if key == "ends" else 1.0
                yield from differences(stored[key], fresh[key], same, place, span)
        yield from _bars(stored, fresh, where)
    elif isinstance(stored, list) and isinstance(fresh, list) and len(stored) == len(fresh):
        for number, (old, new) in enumerate(zip(stored, fresh, strict=True), 1):
            yield from differences(old, new, same, f"{where} {number}", span)
    elif isinstance(stored, float) and isinstance(fresh, float):
        if not abs(stored - fresh) <= APART * span:  # a nan is no place
            yield f"{where}: stored {stored}, now {fresh}"
    elif not (isinstance(stored, str) and isinstance(fresh, str) and same(stored, fresh)):
        yield f"{where}: stored {str(stored)[:80]!r}, now {str(fresh)[:80]!r}"


def _bars(stored: dict[str, Any], fresh: dict[str, Any], where: str) -> Iterator[str]:
    """Bars of errors in a panel whose length is another by more than a quarter: most are shorter than `APART`."""
    caps = [name for name in stored if name.startswith("line ") and stored[name]["style"][-1] in "_|" and name in fresh]
    for low, high in zip(caps[::2], caps[1::2], strict=False):
        along = int(stored[low]["style"].endswith("_"))
        ends = [[[point[along] for point in each[name]["points"]] for name in (low, high)] for each in (stored, fresh)]
        if len({len(points) for pair in ends for points in pair}) > 1:
            continue  # told as points
        for number, (old, new) in enumerate(zip(*(np.diff(pair, axis=0)[0] for pair in ends), strict=True), 1):
            if not abs(new - old) <= LONGER * abs(old) + SHORT:
                yield f"{where}, bars between {low} and {high}, {number}: stored {old:.4f} long, now {new:.4f}"


def _panel(axes: Axes) -> dict[str, Any]:
    from matplotlib.ticker import FixedFormatter

    found: dict[str, Any] = {"titles": [axes.get_title(loc) for loc in ("left", "center", "right")]}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        ends = axis.get_transform().transform(np.array(axis.get_view_interval()))
        found[name] = {
            "label": axis.get_label_text(),
            "scale": axis.get_scale(),
            "ends": [float(f"{end:.5g}") for end in ends],
        }
        if isinstance(axis.get_major_formatter(), FixedFormatter):
            found[name]["ticks"] = [label.get_text() for label in axis.get_ticklabels()]
    if legend := axes.get_legend():
        found["legend"] = _legend(legend)
    groups = FEW if len(axes.get_children()) > MANY else GROUPS
    for text in axes.texts:
        found[f"text {len(found)}"] = {
            "says": text.get_text(),
            "at": _points(axes, text.get_transform(), [text.get_position()], 1),
        }
    kinds = {"line": axes.lines, "collection": axes.collections, "patch": axes.patches, "image": axes.images}
    for kind, artists in kinds.items():
        found |= {f"{kind} {number}": _artist(axes, artist, groups) for number, artist in enumerate(artists, 1)}
    return found


def _legend(legend: Any) -> list[list[Any]]:
    """The text and the colours of each entry."""
    handles = zip(legend.get_texts(), legend.legend_handles, strict=True)
    return [[text.get_text(), _colours(handle)] for text, handle in handles]


def _artist(axes: Axes, artist: Artist, groups: int) -> dict[str, Any]:
    found: dict[str, Any] = {"colours": _colours(artist)}
    if not (label := str(artist.get_label())).startswith("_"):
        found["label"] = label
    if hasattr(artist, "get_marker"):  # a line
        found["style"] = f"{artist.get_linestyle()} {artist.get_marker()}"
        found["points"] = _points(axes, artist.get_transform(), artist.get_xydata(), groups)
    elif hasattr(artist, "get_extent"):  # an image
        found["values"] = _cells(artist.get_array(), artist.norm)
        found["extent"] = [float(f"{end:.5g}") for end in artist.get_extent()]
    elif hasattr(artist, "get_offsets"):  # a collection: marks, polygons, bars of errors, a map
        if (values := artist.get_array()) is not None:
            found["values"] = _cells(values, artist.norm) if np.ndim(values) > 1 else _mapped(artist, groups)
        offsets = np.ma.filled(np.ma.asarray(artist.get_offsets(), dtype=float), np.nan)
        if len(offsets) and offsets.any():
            found["points"] = _points(axes, artist.get_offset_transform(), offsets, groups)
        elif hasattr(artist, "levels"):
            # Of contours: how many vertices they have depends on last digits, what they enclose does not.
            found["around"] = [_box(axes, artist, path.vertices) for path in artist.get_paths()]
        elif paths := [path.vertices for path in artist.get_paths() if len(path.vertices)]:
            found["points"] = _points(axes, artist.get_transform(), np.concatenate(paths), groups)
    else:  # a patch
        corners = artist.get_path().vertices
        found["points"] = _points(axes, artist.get_transform(), corners, groups)
    return found


def _places(axes: Axes, transform: Any, points: Any) -> np.ndarray:
    """(N, 2) places in the panel; what lies far outside is not seen."""
    with np.errstate(all="ignore"):
        places = axes.transAxes.inverted().transform(
            transform.transform(np.asarray(points, dtype=float).reshape(-1, 2))
        )
    return places[np.isfinite(places).all(axis=1)].clip(-1, 2)


def _box(axes: Axes, artist: Artist, points: Any) -> list[float]:
    """Left, bottom, right and top."""
    places = _places(axes, artist.get_transform(), points)
    return _rounded([*places.min(0), *places.max(0)]) if len(places) else []


def _points(axes: Axes, transform: Any, points: Any, groups: int) -> list[list[float]]:
    """Of each group of neighbouring points, or of each point where there are few: mean x, mean y, lowest and highest y."""
    places = _places(axes, transform, points)
    parts = [part for part in np.array_split(places, groups) if len(part)]
    return [
        _rounded([*part.mean(0), *([part[:, 1].min(), part[:, 1].max()] if len(part) > 1 else [])]) for part in parts
    ]


def _cells(values: Any, norm: Any) -> list[float]:
    """Means over 8 x 8 parts of a map, as fractions of its scale of colours (of 255 or 1 where it is a picture)."""
    values = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    values = (
        values.mean(-1) / max(1.0, float(np.nanmax(values))) if values.ndim == 3 else np.ma.filled(norm(values), np.nan)
    )
    rows = [row for row in np.array_split(np.asarray(values, dtype=float), 8, axis=0) if row.size]
    cells = [cell for row in rows for cell in np.array_split(row, 8, axis=1) if cell.size]
    return _rounded([cell[np.isfinite(cell)].mean() if np.isfinite(cell).any() else -1.0 for cell in cells])


def _mapped(artist: Any, groups: int) -> list[float]:
    """Means over groups of the values that choose the colours of marks or polygons, as fractions of their scale."""
    values = np.ma.filled(np.ma.asarray(artist.norm(artist.get_array()), dtype=float), np.nan)
    return _rounded(
        [np.nanmean(part) if np.isfinite(part).any() else -1.0 for part in np.array_split(values, groups) if part.size]
    )


def _rounded(values: Any) -> list[float]:
    return [round(float(value), DIGITS) + 0.0 for value in values]


def _colours(artist: Artist) -> list[str]:
    """Colours of line, face and edge, as far as the artist has them, each once."""
    from matplotlib.colors import to_hex, to_rgba_array

    found: dict[str, None] = {}
    for name in ("get_color", "get_facecolor", "get_edgecolor", "get_markerfacecolor"):
        given = getattr(artist, name, lambda: ())()
        for colour in [] if isinstance(given, str) and given in ("none", "auto") else to_rgba_array(given)[:8]:
            found[to_hex(colour, keep_alpha=True)] = None
    mapped = getattr(artist, "get_array", lambda: None)() is not None
    return [artist.get_cmap().name] if mapped else list(found)
