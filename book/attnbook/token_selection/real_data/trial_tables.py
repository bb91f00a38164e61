"""Tables of page II.9: what each network of the trial lost, and the order of events along its recorded steps.

The order of events was looked at before anyone had said how to count it: it is exploratory, and no claim rests on it.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnbook.draws import Estimate, mean
from attnbook.token_selection.real_data.sets_study import SETS, N
from attnbook.token_selection.real_data.trial import FITTED
from attnbook.token_selection.real_data.trial_study import Tried, strong

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

    Where noise levels go beyond the authors' range, F has a column for these alone.

    Raises ValueError for rows of different noise levels, and for none.
    """
    if len(kinds := {row.table.noise_levels for row in rows}) != 1:
        raise ValueError(f"rows must have the same noise levels; got {sorted(kinds)}")
    (levels,) = kinds
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
        """Change of accuracy from there to the end in points, with an interval over seeds. Raises ValueError where nothing comes after."""
        if (k := self.memorised()) is None:
            raise ValueError(
                f"a course must be fitted before its last step; {self.row.label}, eta = {self.eta:g} is not"
            )
        return mean(100 * (self.accuracy[:, -1] - self.accuracy[:, k]), confidence)


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
