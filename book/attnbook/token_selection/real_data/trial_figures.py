"""Pictures of page II.9: what each set costs, the order of events, and where attention looks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnbook.draws import mean
from attnbook.token_selection.real_data.attention_maps import CELLS, Maps
from attnbook.token_selection.real_data.sets_study import SETS, N, published_fraction
from attnbook.token_selection.real_data.trial import COPIED, UNHARMED
from attnbook.token_selection.real_data.trial_study import AUTHORS, OURS, Tried, strong
from attnbook.token_selection.real_data.trial_tables import RANGE, Course
from bookkit.figures import COLOURS

WAYS = {OURS: ("our way", "clean", "o"), AUTHORS: ("authors' way", "measured", "D")}


def draw_sets(axes: Any, study: Sequence[Tried]) -> None:
    """The fraction of copying at n = N with its interval, set by set, the cheapest first: a network trained in two ways, a new linear head
    on the same features and labels, and the authors' own runs at eta = 0.2 (`published_fraction`). Marks are named at the first set.
    """
    rows = [one for one in strong(study) if one.n == N]
    ours = sorted((one for one in rows if one.way == OURS), key=lambda one: one.judged.fraction.value)
    for k, first in enumerate(ours):
        own = [(*WAYS[one.way], one.judged.fraction) for one in rows if one.data == first.data]
        marks = [*own, ("new linear head", "noise", "^", mean(first.linear_head()))]
        if published := published_fraction(first.data, N):
            marks.append(("published", "bound", "s", published))
        for place, (name, colour, mark, found) in enumerate(sorted(marks, key=lambda one: one[0] == "new linear head")):
            y = -k - 0.19 * (place - 1)
            axes.plot([found.low, found.high], [y, y], color=COLOURS[colour], linewidth=1.6)
            axes.plot(found.value, y, mark, color=COLOURS[colour], markersize=6)
            if k == 0:
                side = (-6, "right") if name == "published" else (6, "left")
                end = found.low if side[1] == "right" else found.high
                axes.annotate(name, (end, y), (side[0], -3.5), textcoords="offset points", ha=side[1], fontsize=9.5)
    axes.axvspan(-0.6, UNHARMED, color=COLOURS["clean"], alpha=0.07, linewidth=0)
    axes.text(-0.57, 0.62, "benign")
    axes.axvline(COPIED, color=COLOURS["theory"], linestyle=":", linewidth=1)
    axes.axvline(1, color=COLOURS["theory"], linewidth=1)
    axes.text(0.99, 0.62, "copies", ha="right")
    axes.set_yticks([-k for k in range(len(ours))], [SETS[one.data] for one in ours])
    axes.set(xlim=(-0.6, 1.6), ylim=(-len(ours) + 0.4, 0.9), xlabel="fraction of copying")
    axes.grid(False, axis="y")


def draw_maps(axes: Any, maps: Maps, classes: Sequence[str], title: str = "") -> None:
    """Three pictures a row, with dots as large as attention: a clean sample, a flipped one, and this one in its twin."""
    heads = ("clean", "flipped", "clean twin")
    step, low = CELLS + 0.6, CELLS + 2.2
    for r in range(len(maps.true)):
        for c, (picture, name) in enumerate(((0, heads[0]), (1, heads[1]), (1, heads[2]))):
            shown = np.moveaxis(maps.pictures[r, picture], 0, -1) / 255
            shown = np.broadcast_to(shown, (*shown.shape[:2], 3))
            left, top = c * step, r * low
            box = (left, left + CELLS, top + CELLS, top)
            axes.imshow(0.75 * shown + 0.25, extent=box, interpolation="bilinear")
            across, down = np.meshgrid(left + 0.5 + np.arange(CELLS), top + 0.5 + np.arange(CELLS))
            size = 95 * maps.attention[r, c] / maps.attention[r].max()
            axes.scatter(across, down, size, color=COLOURS["noisy"], alpha=0.75, linewidths=0)
            given = maps.given[r] if c == 1 else maps.true[r]
            said = f"label: {classes[given]}\nanswer: {classes[maps.answers[r, c]]}"
            axes.text(left + CELLS / 2, top + CELLS + 0.15, said, ha="center", va="top", fontsize=8.5)
            if r == 0:
                axes.text(left + CELLS / 2, -0.25, name, ha="center", fontsize=10)
    axes.set(xlim=(-0.1, 2 * step + CELLS + 0.1), ylim=(low * len(maps.true), -1.1))
    axes.set_title(title)
    axes.set_axis_off()


STAGES = (("best before, fit < 0.1", "clean", "o"), ("fit first 0.9 or more", "noisy", "s"), ("end", "theory", "D"))


def draw_order(axes: Any, found: Sequence[Course]) -> None:
    """The order of events at the noise level `RANGE`, a line for each row: accuracy in per cent at the three stages of a course, a dash
    where the clean twin ends, and beside it the change from the second stage to the third in points, with its interval.
    """
    found = [one for one in found if one.eta == RANGE]
    for k, one in enumerate(found):
        accuracy = 100 * one.accuracy.mean(0)
        at = [None if step is None else accuracy[step] for step in (one.before(), one.memorised(), -1)]
        axes.plot(
            [x for x in at if x is not None],
            [-k] * sum(x is not None for x in at),
            color=COLOURS["bound"],
            linewidth=0.9,
        )
        for x, (name, colour, mark) in zip(at, STAGES, strict=True):
            if x is not None:
                axes.plot(x, -k, mark, color=COLOURS[colour], markersize=6, label=name if k == 0 else None)
        label = "clean twin, end" if k == 0 else None
        axes.plot(
            100 * one.twin[:, -1].mean(), -k, "|", color=COLOURS["bound"], markersize=14, markeredgewidth=2, label=label
        )
        change = one.after()
        said = f"{change.value:+.1f} ± {change.high - change.value:.1f}".replace("-", "\N{MINUS SIGN}")
        axes.text(1.02, -k, said, transform=axes.get_yaxis_transform(), va="center")
    axes.text(1.02, 0.75, "change", transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks([-k for k in range(len(found))], [f"{SETS[one.row.data]}, $n={one.row.n}$" for one in found])
    axes.set(xlabel="right on test samples, %", ylim=(-len(found) + 0.4, 1.1))
    axes.grid(False, axis="y")
