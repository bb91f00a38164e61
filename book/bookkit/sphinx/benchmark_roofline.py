"""The roofline: operations per second against operations per byte, under what the machine can do at best.

A case lies below two roofs: the peak of multiply-adds, and the bandwidth of the memory its bytes come from times its
operations per byte. Cases whose numbers stay in registers and in L1 stand in a panel of their own: only the peak counts.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bookkit import figures
from bookkit.sphinx.benchmark_results import KERNELS, NOT_MEASURED, Results, Row, thousands

__all__ = ["describe", "roofline"]

_COLOURS = {
    kernel: figures.COLOURS[colour]
    for kernel, colour in zip(KERNELS, ("clean", "signal", "noisy", "noise", "measured"), strict=True)
}
_MARKERS = {"float32": "o", "float64": "s"}
_MEMORIES = ("L2", "L3", "memory")
_QUIET = figures.SHADES["text"]


def roofline(results: Results) -> bytes:
    """SVG of the cases of one thread under the roofs of one core; the same bytes for the same results."""
    rows = _shown(results)
    with rc_context({**figures._STYLE, "svg.hashsalt": "benchmark"}):
        figure = Figure(figsize=(7.2, 4.5))
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3.6, 1))
        left.set(xscale="log", xlabel="operations per byte", xlim=_between(_intensities(rows, results), 3, 2))
        left.set(yscale="log", ylabel="operations per second", ylim=_between(_speeds(rows, results), 2.5, 2))
        right.set(xlim=(-0.6, 1.9), xticks=[], xlabel="all in\nregisters and L1")
        right.grid(False, axis="x")
        _draw_roofs(left, right, results)
        for row, at in _places(rows):
            (left if row.bytes else right).plot(
                at, row.rate * row.operations, zorder=4, **_dot(_COLOURS[row.kernel], _MARKERS[row.dtype], row.readable)
            )
        figure.legend(handles=_legend(rows), loc="outside upper left", ncols=4, columnspacing=1.4, handletextpad=0.2)
        figure.draw_without_rendering()  # the labels of the slopes need the final size of the axes
        _label_slopes(left, results)
        kept = io.BytesIO()
        figure.savefig(kept, format="svg", metadata={"Date": None})
    return kept.getvalue()


def _shown(results: Results) -> list[Row]:
    return [row for row in results.rows if row.kernel in KERNELS and row.threads == 1 and row.operations]


def _roofs(results: Results, names: Sequence[str]) -> dict[str, float]:
    """Those that were measured, on one core."""
    return {name: roof for name in names if (roof := results.roof(name))}


def _intensities(rows: Sequence[Row], results: Results) -> list[float]:
    """Operations per byte of all cases, and of the corner of the lowest memory's roof."""
    peaks, slopes = _roofs(results, tuple(_MARKERS)).values(), _roofs(results, _MEMORIES).values()
    corner = [max(peaks) / min(slopes)] if peaks and slopes else []
    return [*(row.intensity for row in rows if row.bytes), *corner, 1.0]


def _speeds(rows: Sequence[Row], results: Results) -> list[float]:
    return [*(row.rate * row.operations for row in rows), *_roofs(results, tuple(_MARKERS)).values()] or [1e9, 1e11]


def _between(values: Sequence[float], below: float, above: float) -> tuple[float, float]:
    return min(values) / below, max(values) * above


def _places(rows: Sequence[Row]) -> list[tuple[Row, float]]:
    """Each row with its place on the horizontal axis: operations per byte; without bytes a column for each loop, in which
    its cases stand side by side."""
    columns = list(dict.fromkeys(row.kernel for row in rows if not row.bytes))
    placed = []
    for row in rows:
        if row.bytes:
            placed.append((row, row.intensity))
        else:
            beside = [
                other for other in rows if (other.kernel, other.bytes, other.readable) == (row.kernel, 0, row.readable)
            ]
            step = beside.index(row) - (len(beside) - 1) / 2
            placed.append((row, columns.index(row.kernel) + 0.16 * step))
    return placed


def _draw_roofs(left: Axes, right: Axes, results: Results) -> None:
    peaks, (low, high) = _roofs(results, tuple(_MARKERS)), left.get_xlim()
    for dtype, peak in peaks.items():
        for axes in (left, right):
            axes.axhline(
                peak, color=figures.COLOURS["theory"], linewidth=1.4, linestyle="-" if dtype == "float32" else "--"
            )
        place = {"transform": right.get_yaxis_transform(), "ha": "right", "va": "bottom"}
        right.text(0.98, peak * 1.07, f"{dtype} peak", fontsize=9, **place)
    for bandwidth in _roofs(results, _MEMORIES).values():
        end = min(high, max(peaks.values(), default=math.inf) / bandwidth)
        left.plot([low, end], [low * bandwidth, end * bandwidth], color=figures.COLOURS["bound"], linewidth=1.4)


def _label_slopes(axes: Axes, results: Results) -> None:
    """The name of each memory along its roof, near the upper end."""
    box, (low, high), (bottom, top) = axes.get_window_extent(), axes.get_xlim(), axes.get_ylim()
    angle = math.degrees(math.atan(box.height / math.log(top / bottom) * math.log(high / low) / box.width))
    speed = min(_roofs(results, tuple(_MARKERS)).values(), default=top) / 1.25
    for memory, bandwidth in _roofs(results, _MEMORIES).items():
        above = memory != _MEMORIES[-1]  # the lowest is named below its line: above it the next one may lie close
        axes.text(
            speed / bandwidth, speed * (1.07 if above else 0.93), f"{memory}: {bandwidth / 1e9:.0f} GB/s", fontsize=9,
            color=_QUIET, rotation=angle, rotation_mode="anchor", ha="right", va="bottom" if above else "top",
        )  # fmt: skip


def _dot(colour: str, marker: str, hollow: bool) -> dict:
    face = figures.SHADES["paper"] if hollow else colour
    return {
        "color": colour,
        "marker": marker,
        "markerfacecolor": face,
        "markersize": 7,
        "markeredgewidth": 1.5,
        "ls": "",
    }


def _legend(rows: Sequence[Row]) -> list[Line2D]:
    kernels, dtypes = {row.kernel for row in rows}, {row.dtype for row in rows}
    entries = [(title, (_COLOURS[name], "o", False)) for name, title in KERNELS.items() if name in kernels]
    entries += [(dtype, (_QUIET, marker, False)) for dtype, marker in _MARKERS.items() if dtype in dtypes]
    entries += [("naive, readable", (_QUIET, "o", True))] if any(row.readable for row in rows) else []
    return [Line2D([], [], label=label, **_dot(*look)) for label, look in entries]


def describe(results: Results) -> str:
    """The picture in words, for those who do not see it: the roofs, and for each loop and precision its fastest case."""
    roofs = [f"{memory} {roof / 1e9:.0f} GB/s" for memory, roof in _roofs(results, _MEMORIES).items()]
    roofs += [f"{dtype} {thousands(roof)} operations/s" for dtype, roof in _roofs(results, tuple(_MARKERS)).items()]
    best: dict[tuple[str, str], Row] = {}
    for row in (row for row in _shown(results) if not row.readable):
        known = best.get((row.kernel, row.dtype))
        best[row.kernel, row.dtype] = (
            row if known is None or row.rate * row.operations > known.rate * known.operations else known
        )
    told = [f"Roofs of one core: {', '.join(roofs) or NOT_MEASURED}"]
    for (kernel, dtype), row in best.items():
        limit = results.limit(row)
        where = f"at {row.intensity:.2g} operations per byte" if row.bytes else "in registers and L1"
        share = f", {row.rate / limit.rate:.0%} of the limit set by {limit.by}" if limit else ""
        told.append(f"{KERNELS[kernel]}, {dtype}: {thousands(row.rate * row.operations)} operations/s {where}{share}")
    return f"Operations per second against operations per byte, both logarithmic. {'. '.join(told)}."
