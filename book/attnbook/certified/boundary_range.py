r"""All x of an interval at once: the flow from zero as a polynomial in x with a proved error.

On an interval x = x0 + delta xi, -1 <= xi <= 1, the state at the time T lies within R (norm of `boundary_flow`) of p(xi), five
polynomials of degree D with exact coefficients. One step computes the Taylor polynomial in time of p(xi) as a power series in xi; the
coefficient of degree D + 1 over the box -1 <= xi <= 1 bounds what is cut off, and the logarithmic norm carries R along as for one x.
Where the error of a step is too large the interval is halved, with the polynomials that are known so far.

`TABLE` holds the ends of the cells of each side; `attnlib certify --full` proves them. So whoever makes a side longer adds cells there, in
steps that grow with the distance from the boundary, seals them with `python -m attnbook.certified.boundary_range`, and runs that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from attnbook.certified.boundary import SETS, ends
from attnbook.certified.boundary_flow import (
    STEP,
    WEIGHTS,
    Model,
    NoStep,
    above,
    at,
    box_around,
    jacobian,
    logarithmic_norm,
    taylor,
)
from attnbook.certified.boundary_sets import in_signal_set, in_trap
from attnbook.certified.certificate import Certificate, _flint, ball, precision, series_terms
from attnbook.certified.full_run import Table
from attnbook.stored import seal, sealed
from attnlib.randomness import stream
from bookkit.parser import answered

if TYPE_CHECKING:
    from flint import arb

TABLE = Path(__file__).parent / "tables" / "boundary_cells.json"
BITS = 96
DEGREE = 8  # in x
ORDER = 16  # in time
ERROR = 1e-14  # of a step; above it the interval is halved
WIDEST = 1e-3  # radius above which halving the interval of x does not help
SMALLEST = 2.0**-30  # half-width of an interval below which nothing is halved
LONGEST = 60.0
HALVED = 200  # intervals at most in one cell; those of the table need less than 50


@dataclass(frozen=True)
class Family:
    """The paths of all x in [x0 - delta, x0 + delta] at one time."""

    x0: arb
    delta: arb
    coefficients: list[list[arb]]
    radius: float = 0.0
    time: float = 0.0

    def model(self, nu: arb) -> Model:
        arb = _flint().arb
        return Model(self.x0 + arb(0, 1) * self.delta, nu, arb(1))

    def state(self) -> tuple[arb, ...]:
        """Balls that hold the state of each x."""
        arb = _flint().arb
        pairs = zip(self.coefficients, WEIGHTS, strict=True)
        return tuple(at(row, arb(0, 1)) + arb(0, self.radius * weight) for row, weight in pairs)

    def halves(self) -> list[Family]:
        arb = _flint().arb
        half, found = self.delta / 2, []
        for sign in (-1, 1):
            rows = [_moved(row, arb(sign) / 2, arb(1) / 2) for row in self.coefficients]
            error = max(
                above(sum((arb(c.rad()) for c in row), arb(0)) / w) for row, w in zip(rows, WEIGHTS, strict=True)
            )
            middle = [[c.mid() for c in row] for row in rows]
            found.append(Family(self.x0 + sign * half, half, middle, above(arb(self.radius) + error), self.time))
        return found


def _moved(row: Sequence[arb], shift: arb, scale: arb) -> list[arb]:
    """Coefficients of p(shift + scale xi)."""
    flint = _flint()
    with series_terms(len(row)):
        moved = at([flint.arb_series([c]) for c in row], flint.arb_series([shift, scale]))
        return [moved[k] for k in range(len(row))]


def _advanced(family: Family, nu: arb, length: float) -> tuple[Family, float]:
    """The family after a step, and the error of the step. Raises `NoStep`."""
    flint = _flint()
    arb, series = flint.arb, flint.arb_series
    time, span, unit = arb(length), arb(length / 2, length / 2), arb(0, 1)
    whole = family.model(nu)
    with series_terms(DEGREE + 1):
        model = replace(whole, x=series([family.x0, family.delta]))
        middle = [at(row, time) for row in taylor([series(row) for row in family.coefficients], model, ORDER - 1)]
        middle = [[value[k] for k in range(DEGREE + 1)] for value in middle]
    with series_terms(DEGREE + 2):
        model = replace(whole, x=series([whole.x, family.delta]))
        start = [at([series([c]) for c in row], series([unit, arb(1)])) for row in family.coefficients]
        around = taylor(start, model, ORDER - 1)
        cut = [at(row, time)[DEGREE + 1] for row in around]
        along = [at([value[0] for value in row], span) for row in around]
    box, tail = box_around(along, time, whole, ORDER)
    wide = [value + arb(0, 2 * family.radius * weight) for value, weight in zip(box, WEIGHTS, strict=True)]
    factor = above((arb(logarithmic_norm(jacobian(wide, whole))) * time).exp())
    if factor >= 2:
        raise NoStep("the radius could double")
    errors = [
        above((sum((arb(c.rad()) for c in row), arb(0)) + abs(beyond) + abs(rest)) / weight)
        for row, beyond, rest, weight in zip(middle, cut, tail, WEIGHTS, strict=True)
    ]
    exact = [[c.mid() for c in row] for row in middle]
    radius = above(arb(family.radius) * factor + arb(max(errors)))
    return Family(family.x0, family.delta, exact, radius, family.time + length), max(errors)


def range_ends(label_noise: str, low: str, high: str, on: str) -> Certificate:
    """Whether the flow from zero ends on `on` for each x in [low, high].

    The interval is gone through in parts: False at the first one that is proved to end elsewhere, None at the first one that is not
    decided, or needs more than `HALVED` halvings together with those before.
    """
    proved: bool | None = True
    with precision(BITS):
        arb = _flint().arb
        eta = ball(label_noise)
        nu = eta / (1 - eta)
        middle, half = (ball(low) + ball(high)) / 2, (ball(high) - ball(low)) / 2
        todo, halved = [Family(middle, half, [[arb(0)] * (DEGREE + 1) for _ in range(5)])], 0
        while todo and proved:
            family = todo.pop()
            if where := _caught(family, nu):
                proved = where == on
                continue
            try:
                ahead, error = _advanced(family, nu, STEP)
            except NoStep:
                error = float("inf")
            if family.time >= LONGEST:
                proved = None
            elif error <= ERROR:
                todo.append(ahead)
            elif family.radius < WIDEST and float(family.delta) > SMALLEST and halved < HALVED:
                todo += reversed(family.halves())
                halved += 1
            else:
                proved = None
    return Certificate(
        f"eta = {label_noise}, each x in [{low}, {high}]: ends on the {on}", proved, low, high, BITS, True
    )


def _caught(family: Family, nu: arb) -> str | None:
    """Where all paths end, if the sets tell it by now."""
    state, model = family.state(), family.model(nu)
    if in_trap(state, model):
        return "noise"
    return "signal" if any(in_signal_set(state, model, numbers) for numbers in SETS) else None


def side(label_noise: str, on: str) -> Table:
    """The stored cells of one side, each of which `range_ends` proves."""
    name = f"{label_noise} {on}"
    points = stored().get(name, [])
    pairs = [tuple(sorted(pair, key=Decimal)) for pair in pairwise(points)]

    def refuted(cell: tuple[str, str]) -> str:
        return "" if range_ends(label_noise, *cell, on).proved is True else f"x from {cell[0]} to {cell[1]}"

    return Table(name, points, len(pairs), BITS, pairs, refuted, __name__)


def covered(ends_of_cells: Sequence[str], low: str, high: str) -> bool:
    """Whether neighbouring cells with these ends cover [low, high]."""
    numbers = [Decimal(end) for end in ends_of_cells]
    return len(numbers) > 1 and min(numbers) <= Decimal(low) and max(numbers) >= Decimal(high)


def drawn(low: str, high: str, seed: int) -> str:
    """A decimal of four digits in [low, high], drawn with the seed."""
    first, last = (int(Decimal(end).scaleb(4)) for end in (low, high))
    return str(Decimal(int(stream(seed, "search").integers(first, last + 1))).scaleb(-4))


def by_table(label_noise: str, low: str, high: str, on: str, seed: int, asked: str = "") -> Certificate:
    """Each x of [low, high] ends on `on`: the stored cells cover them, and one x that is drawn is proved again.

    asked: the end that is asked for at the drawn x; another one than `on` is the negative control. That each cell was proved is for the
    record of full runs to say (`side`).
    """
    point = ends(label_noise, drawn(low, high, seed), asked or on)
    table = covered(stored().get(f"{label_noise} {on}", []), low, high)
    proved = point.proved if table or point.proved is False else None
    return Certificate(
        f"eta = {label_noise}, each x in [{low}, {high}]: ends on the {asked or on}",
        proved,
        low,
        high,
        point.bits,
        True,
    )


def stored() -> dict[str, list[str]]:
    """The table: by "eta end", the ends of neighbouring cells of x, which `attnlib certify --full` proves."""
    return json.loads(sealed(TABLE).read_text(encoding="utf-8")) if TABLE.exists() else {}


def main() -> None:
    """Seal the cells as they stand, to be proved by `attnlib certify --full`. Raises ValueError for ends that do not rise or fall."""
    for name, points in json.loads(TABLE.read_text(encoding="utf-8")).items():
        numbers = [Decimal(end) for end in points]
        if numbers not in (sorted(set(numbers)), sorted(set(numbers), reverse=True)):
            raise ValueError(f"ends of cells must rise or fall; got {name!r}: {', '.join(points)}")
    seal(TABLE)


if __name__ == "__main__":
    raise SystemExit(answered("boundary_range", main))
