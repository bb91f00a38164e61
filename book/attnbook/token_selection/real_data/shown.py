"""What page II.9 shows: tables of what each network of the trial lost, the order of events along its recorded steps, and the pictures.

The order of events was looked at before anyone had said how to count it: it is exploratory, and no claim rests on it.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnbook.draws import Estimate, mean
from attnbook.token_selection.real_data.attention_maps import CELLS, Maps
from attnbook.token_selection.real_data.experiment import BENIGN_BELOW
from attnbook.token_selection.real_data.study import (
    AUTHORS,
    MIXED,
    OURS,
    SETS,
    WHOLE,
    Causes,
    N,
    SetsStudy,
    Tried,
    published_fraction,
    strong,
)
from attnbook.token_selection.real_data.trial import COPIED, FITTED, UNHARMED
from bookkit.figures import COLOURS

USUAL = "EfficientNet-Lite0", "MPNet"
RANGE = 0.2  # the authors' largest noise level
UNFITTED = 0.1  # fraction of flipped labels below which a network does not overfit


def plus_minus(one: Estimate, digits: int = 2) -> str:
    """A number with half of its interval; nothing for nan."""
    return "" if math.isnan(one.value) else f"{one.value:.{digits}f} ± {one.high - one.value:.{digits}f}"


def _named(row: Tried) -> str:
    """The data set; with backbone and n where these are not the usual ones."""
    parts = [SETS[row.data], *[row.backbone] * (row.backbone not in USUAL), *[f"n = {row.n}"] * (row.n != N)]
    return ", ".join(parts)


def trial_table(rows: Sequence[Tried]) -> tuple[list[tuple[str, ...]], list[str]]:
    """What was lost: a line for each row, and the heads; accuracies in per cent, by η.

    The rows have the same noise levels. Where these go beyond the authors' range, F has a column for this range alone.
    """
    (levels,) = {row.table.noise_levels for row in rows}
    narrower = max(levels) > RANGE
    heads = ["data", "way", *(f"η = {eta:g}" for eta in levels), "fit", "F"]
    heads += [f"F, η ≤ {RANGE:g}"] * narrower + ["F, linear head", "outcome"]
    cells = [
        (_named(row), row.way, *row.accuracies().split(" / "), f"{row.judged.fit.value:.2f}", plus_minus(row.judged.fraction),
         *[plus_minus(row.up_to(RANGE))] * narrower, plus_minus(mean(row.linear_head())), row.judged.outcome)
        for row in rows
    ]  # fmt: skip
    return cells, heads


def as_markdown(rows: Sequence[Tried]) -> str:
    """`trial_table` as lines of Markdown. II.9 has rows so that came after its claims were judged: a table that its cells read is one by
    which they would have to be judged again.
    """
    cells, heads = trial_table(rows)
    lines = [
        heads,
        ["---"] * len(heads),
        *[[re.sub(r"(\S+) ± (\S+)", r"$\1\\pm\2$", cell) for cell in line] for line in cells],
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def runs_table(rows: Sequence[Tried]) -> tuple[list[tuple[str, ...]], list[str]]:
    """How it was measured, and the test of the twin's attention: a line for each row, and the heads."""
    heads = ["table", "n", "seeds", "head only, %", "memorised", "true label back", "seconds"]
    cells: list[tuple[str, ...]] = []
    for row in rows:
        memorised, back, flipped = row.flipped_labels()
        counts = f"{memorised} of {flipped}", f"{back} of {flipped}"
        seeds = len(row.table.seeds(row.n))
        cells.append(
            (row.table.name, f"{row.n}", f"{seeds}", f"{row.percent('head_only'):.1f}", *counts, f"{row.seconds:.0f}")
        )
    return cells, heads


@dataclass(frozen=True, eq=False)
class Course:
    """Test accuracy of one row at one noise level, at S recorded steps; the fit is its mean over seeds.

    accuracy, twin: (R, S), with flipped labels and in the clean twin; fit: (S,).
    """

    row: Tried
    eta: float
    steps: tuple[int, ...]
    accuracy: np.ndarray
    twin: np.ndarray
    fit: np.ndarray

    def before(self) -> int | None:
        """Where accuracy, mean over seeds, is best while the fit lies below `UNFITTED`; None if it never does."""
        early = np.flatnonzero(self.fit < UNFITTED)
        return int(early[self.accuracy.mean(0)[early].argmax()]) if early.size else None

    def memorised(self) -> int | None:
        """Where the fit first reaches `FITTED`; None if it never does, or at the last step only: nothing comes after."""
        there = np.flatnonzero(self.fit[:-1] >= FITTED)
        return int(there[0]) if there.size else None

    def after(self, confidence: float = 0.95) -> Estimate:
        """Change of accuracy from there, which must be, to the end in points, with an interval over seeds."""
        return mean(100 * (self.accuracy[:, -1] - self.accuracy[:, self.memorised()]), confidence)


def courses(study: Sequence[Tried]) -> tuple[Course, ...]:
    """Of every usual network whose flipped labels are fitted (`strong`), at every noise level."""
    found = []
    for row in (one for one in strong(study) if one.backbone in USUAL):
        (steps,) = {cell.recorded for cell in row.table.cells if cell.n == row.n}
        accuracy, fit = (row.table.values(what, row.n) for what in ("test_accuracy", "fit_noisy"))
        for e, eta in enumerate(row.table.noise_levels):
            if eta:
                found.append(Course(row, eta, steps, accuracy[:, e], accuracy[:, 0], fit[:, e].mean(0)))
    return tuple(found)


def changed(found: Sequence[Course], *, left: bool = False) -> tuple[list[Course], list[Course]]:
    """The courses whose accuracy rises after memorising, and those where it falls: the 95 % interval does not hold 0.

    left: what the correction of Holm (1979) leaves of them, for as many comparisons as there are courses in which something comes after.
    """
    rest, seen = [one for one in found if one.memorised() is not None], list[Course]()
    while more := [one for one in rest if _away(one.after(1 - 0.05 / len(rest) if left else 0.95))]:
        rest, seen = [one for one in rest if one not in more], seen + more
    return [one for one in seen if one.after().value > 0], [one for one in seen if one.after().value < 0]


def _away(one: Estimate) -> bool:
    return one.low > 0 or one.high < 0


def course_table(found: Sequence[Course]) -> tuple[list[tuple[str, ...]], list[str]]:
    """One line for each row of the trial, and the heads: accuracy in per cent, and its step, at the noise level `RANGE`; changes at all."""
    levels, cells = sorted({one.eta for one in found}), []
    for one in (one for one in found if one.eta == RANGE):
        accuracy, changes = 100 * one.accuracy.mean(0), {own.eta: own for own in found if own.row is one.row}
        at = [
            "" if k is None else f"{accuracy[k]:.1f} ({one.steps[k]})" for k in (0, one.before(), one.memorised(), -1)
        ]
        after = [
            "" if own.memorised() is None else plus_minus(own.after(), 1) for own in (changes[eta] for eta in levels)
        ]
        cells.append((SETS[one.row.data], f"{one.row.n}", *at, f"{100 * one.twin[:, -1].mean():.1f}", *after))
    heads = ["data", "n", "start", f"best with fit < {UNFITTED:g}", f"fit ≥ {FITTED:g}", "end", "clean twin, end"]
    return cells, heads + [f"change after, η = {eta:g}" for eta in levels]


# --- Pictures -------------------------------------------------------------------------------------------------------------


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


_MARKS = dict(zip(SETS, "osD^vP*", strict=True))
_BORDERS = {"color": COLOURS["theory"], "linestyle": ":", "linewidth": 1}


def _point(axes: Any, x: Estimate | float, y: Estimate | float, colour: str, **style: Any) -> None:
    """A point with the interval of each coordinate that has one."""
    values, bars = [], {}
    for name, one in (("xerr", x), ("yerr", y)):
        values.append(one.value if isinstance(one, Estimate) else one)
        if isinstance(one, Estimate):
            bars[name] = [[one.value - one.low], [one.high - one.value]]
    caps = 2.5 if len(bars) == 1 else 0
    axes.errorbar(*values, **bars, color=COLOURS[colour], capsize=caps, elinewidth=1.2, **style)


_TOKENS = {WHOLE: "clean", MIXED: "noisy"}  # colours; all numbers of channels have one


def draw_causes(left: Any, right: Any, study: SetsStudy, varied: Causes) -> None:
    """F against accuracy above chance of the frozen network (left, at confidence 1) and against the head's confidence (right).

    Grey: the small backbones of `study`, hollow at confidence 1. Colours: EfficientNet-Lite0 with its tokens varied; on the left a line
    joins all and fewer channels of a data set, on the right one network at several confidences. Marks are those of the data sets; 95 %
    intervals over seeds, cut at -0.1 and 2.
    """
    for network in study.networks.values():
        style = {"fmt": _MARKS[network.data], "markersize": 5, "alpha": 0.6}
        _point(
            left, network.above_chance(), mean(network.lost_when_scaled()), "bound", markerfacecolor="white", **style
        )
        _point(right, 1.0, mean(network.lost_when_scaled()), "bound", markerfacecolor="white", **style)
        _point(right, network.statistic("confidence").mean(), mean(network.lost()), "bound", **style)
    named = set()
    for (data, tokens, confidence), one in varied.networks.items():
        style = {"fmt": _MARKS[data], "markersize": 7, "zorder": 4}
        colour = _TOKENS.get(tokens, "signal")
        if confidence == 1:
            label = f"{SETS[data]}, {tokens if tokens in _TOKENS else 'fewer channels'}"
            shown = {"label": label} if label not in named else {}
            named.add(label)
            _point(left, one.above_chance(), mean(one.lost()), colour, **shown, **style)
        _point(right, confidence, mean(one.lost()), colour, **style)
    for data in dict.fromkeys(key[0] for key in varied.networks):
        pruned = [
            (one.above_chance().value, one.lost().mean())
            for (name, tokens, confidence), one in varied.networks.items()
            if name == data and tokens != MIXED and confidence == 1
        ]
        left.plot(*zip(*sorted(pruned), strict=True), color=COLOURS["signal"], linewidth=0.9)
    for data, tokens in dict.fromkeys(key[:2] for key in varied.networks):
        own = sorted(key for key in varied.networks if key[:2] == (data, tokens))
        line = {"color": COLOURS[_TOKENS.get(tokens, "signal")], "linewidth": 0.9}
        right.plot([key[2] for key in own], [varied.networks[key].lost().mean() for key in own], **line)
    for axes in (left, right):
        for border in (BENIGN_BELOW, 1):
            axes.axhline(border, **_BORDERS)
        axes.set_ylim(-0.1, 2)
    left.set(xlabel="accuracy above chance of the frozen network", ylabel="fraction of copying, confidence 1")
    right.set(xscale="log", xlabel="confidence of the frozen head", ylabel="fraction of copying")
