"""Where the panels of a figure lie: written into its PNG, so that a narrow screen can have them one below the other.

`png` draws a figure as notebooks store it and adds the places of its panels and what was drawn (`bookkit.drawn`); `stacked` cuts
such a picture up. Where an axis is shared and only the first panel has its numbers, these numbers are set beside each panel: they lie
in the same rows of pixels.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

from bookkit import drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

KEY = "Panels"  # of the text in the PNG: [[[left, right], ...], [[top, bottom], ...]] for each panel, in pixels
MARGIN = 0.03  # inches around everything
SCALE = 2  # pixels of the picture to one of the page: sharp on every screen
GAP = 16  # pixels between panels that are stacked


def png(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """The figure as PNG with the places of its panels and what it shows, and its width and height on the page."""
    from PIL.PngImagePlugin import PngInfo

    shown = figure.dpi
    figure.set_dpi(SCALE * shown)  # the layout follows the letters, and these the resolution
    try:
        figure.canvas.draw()
        box, file, found = figure.get_tightbbox().padded(MARGIN), BytesIO(), []
        for across, down in _panels(figure):
            columns = [[round(figure.dpi * (end - box.x0)) for end in part] for part in across]
            found.append((columns, [[round(figure.dpi * (box.y1 - end)) for end in part] for part in down]))
        said = PngInfo()
        said.add_text(drawn.KEY, json.dumps(drawn.drawn(figure)), zip=True)
        if found:
            said.add_text(KEY, json.dumps(found))
        colours = {"facecolor": figure.get_facecolor(), "edgecolor": figure.get_edgecolor()}
        figure.canvas.print_figure(
            file, format="png", dpi=SCALE * shown, bbox_inches=box, pil_kwargs={"pnginfo": said}, **colours
        )
    finally:
        figure.set_dpi(shown)
    return file.getvalue(), {"width": round(shown * box.width), "height": round(shown * box.height)}


def _panels(figure: Figure) -> list[tuple[list, list]]:
    """Of each panel what is shown from left to right and from top to bottom, in inches; none where nothing stands side by side."""
    axes = [each for each in figure.axes if each.get_visible() and each.get_subplotspec() is not None]
    if len({each.get_subplotspec().colspan.start for each in axes}) < 2:
        return []
    bars = [each for each in figure.axes if each.get_subplotspec() is None and hasattr(each, "_colorbar_info")]
    if any(len(each._colorbar_info["parents"]) > 1 for each in bars) or len({each.get_gridspec() for each in axes}) > 1:
        return []  # one bar of colours for several panels: they belong together
    boxes = {each: _box(figure, each) for each in axes}
    for each in bars:
        (parent,) = each._colorbar_info["parents"]
        boxes[parent] = _around(boxes[parent], _box(figure, each))
    rows: dict[int, dict[int, list[Any]]] = {}
    for each in axes:
        spec = each.get_subplotspec()
        rows.setdefault(spec.rowspan.start, {}).setdefault(spec.colspan.start, []).append(each)  # two axes: a twin
    found = []
    for row in (dict(sorted(rows[number].items())) for number in sorted(rows)):
        bottom = min(boxes[each][1] for twins in row.values() for each in twins)
        top = max(boxes[each][3] for twins in row.values() for each in twins)
        first = next(iter(row.values()))[0]
        for column, twins in row.items():
            left, _, right, _ = _around(*(boxes[each] for each in twins))
            across, down, one = [[left, right]], [[top, bottom]], twins[0]
            column_axes = [line[column][0] for line in rows.values() if column in line]
            below = [each for each in column_axes if not _lacks(each, "x")]
            if _lacks(one, "y") and not _lacks(first, "y"):
                # The numbers of the first panel; its label, too, where this panel has none of its own. No numbers stand below them.
                label = first.yaxis.label.get_window_extent().x1 / figure.dpi
                start = label if first.get_ylabel() and one.get_ylabel() else boxes[first][0]
                across.insert(0, [start, _edge(figure, first, "y")])
                if not _lacks(one, "x"):
                    down = [[top, _edge(figure, one, "x")], [_edge(figure, one, "x"), bottom]]
            if _lacks(one, "x") and below:
                down.append([_edge(figure, below[-1], "x"), boxes[below[-1]][1]])
                across[-1] = [min(left, boxes[below[-1]][0]), max(right, boxes[below[-1]][2])]  # numbers stand out
            if column_axes[0].get_title() and not one.get_title():
                title = column_axes[0].title.get_window_extent()
                down.insert(0, [title.y1 / figure.dpi + MARGIN / 2, title.y0 / figure.dpi - MARGIN / 2])
            found.append((across, down))
    around = [*figure.legends, *([figure._suptitle] if figure._suptitle else [])]
    for left, bottom, right, top in (_box(figure, each) for each in around):
        place = 0 if bottom > max(boxes[each][3] for each in axes) - 0.1 else len(found)
        found.insert(place, ([[left, right]], [[top, bottom]]))
    return found


def _box(figure: Figure, what: Any) -> tuple[float, float, float, float]:
    """Left, bottom, right and top of all that is drawn, in inches."""
    left, bottom, right, top = what.get_tightbbox(figure.canvas.get_renderer()).extents / figure.dpi
    return left - MARGIN / 2, bottom - MARGIN / 2, right + MARGIN / 2, top + MARGIN / 2


def _around(*boxes: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    left, bottom, right, top = zip(*boxes, strict=True)
    return min(left), min(bottom), max(right), max(top)


def _lacks(axes: Any, name: str) -> bool:
    """Whether the numbers of this axis stand at another panel."""
    axis = getattr(axes, f"{name}axis")
    side = "labelleft" if name == "y" else "labelbottom"
    return not axis.get_tick_params(which="major").get(side, True)


def _edge(figure: Figure, axes: Any, name: str) -> float:
    """Where the numbers of an axis end, in inches: the marks belong to the frame."""
    marks = (
        max((tick.get_tick_padding() for tick in getattr(axes, f"{name}axis").get_major_ticks()), default=0.0) / 72
        + 0.005
    )
    inner = axes.get_window_extent()
    return (inner.x0 if name == "y" else inner.y0) / figure.dpi - marks


def stacked(image: Image) -> Image | None:
    """The panels of a picture one below the other; None for a picture that does not say where they are."""
    from PIL import Image as Images

    if KEY not in image.info:
        return None
    parts, pixels = [], image.convert("RGB")
    for across, down in json.loads(image.info[KEY]):
        size = sum(b - a for a, b in across), sum(b - a for a, b in down)
        part, y, own = Images.new("RGB", size, "white"), 0, max(down, key=lambda ends: ends[1] - ends[0])
        for top, bottom in down:
            x = 0
            for left, right in across:
                if [top, bottom] == own or [left, right] == across[-1]:  # beside what is borrowed stands nothing
                    part.paste(pixels.crop((left, top, right, bottom)), (x, y))
                x += right - left
            y += bottom - top
        parts.append(part)
    height = sum(part.height for part in parts) + GAP * (len(parts) - 1)
    whole, y = Images.new("RGB", (max(part.width for part in parts), height), "white"), 0
    for part in parts:
        whole.paste(part, (0, y))
        y += part.height + GAP
    return whole
