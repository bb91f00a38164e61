"""How far each stored number is determined: measured by `stability`, kept beside the page, used wherever outputs are compared.

`notebooks/<part>/<page>.tolerances.json` says, for each number that the page stores, by how much it may differ on another machine, and why:

- exact: a count, or a number that no perturbation moved; integers must be equal, floats to 1e-9;
- rounding: the least bits of the input come out amplified; MARGIN times the largest change that was measured, at least 1e-9;
- jump: the machines hardly moved it, but a shake 4096 times the last bit does, far more than in proportion: most often it counts
  something (fresh points on the wrong side), and one of the counted lies on the edge; four times what that shake changed;
- chance: the course is chaotic and fewer than three digits stand; what is stored is one draw, its tolerance the measured spread.

and which printed numbers lie so near an edge of rounding that their last digit may come out one higher or lower.

Guards. The file ends with a hash of what it holds, so an edit by hand or a merge is found; whoever also writes the hash anew is not.
Each tolerance is no wider than reason, amplification and the stored number itself give (`width`): a test asks that of every number.
The widest are listed a second time, in a test; and once a week a page is measured again.

Addresses: ``log10_error`` a named result, ``mu[3]`` an entry of one, ``C8:slope`` a number of a claim's evidence,
``C8.measured 0#2`` the third number (they count from 0) in line 0 of a claim's text, ``cell 13 stdout 4#2`` of what a cell prints.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bookkit.pages.catalogue import UserError
from bookkit.results import CLAIMS_TYPE, RESULTS_TYPE
from bookkit.settings import settings

EPSILON = 2.0**-52
FLOOR = 1e-12  # two numbers below this are equal: rounding noise around zero
LEAST = 1e-9  # relative; sums of a few million terms, on machines that were not tried
MARGIN = 30.0  # machines that were not tried, over the largest change among those that were
CHANCE = 1e-3  # a relative change above this: fewer than three digits stand
SPREAD = 4.0  # the largest of eight changes or more, over which a further draw of the same spread hardly ever goes
HARD = 2.0**12  # a hard shake over the last bit
OUT_OF_PROPORTION = 100.0
REASONS = ("exact", "rounding", "jump", "chance")
UNMEASURED = 1e-6  # relative, for a number that no measurement knows yet
ONE_DIGIT = 1.6  # an amplification is kept to one digit, which may be 1 for 1.5, and a tolerance to two


@dataclass(frozen=True)
class Tolerance:
    """`allowed`: largest difference, in the number's own unit; `amplification`: the relative change that it rests on, over 2^-52."""

    allowed: float
    reason: str
    amplification: float = 0.0


@dataclass(frozen=True)
class Tolerances:
    """What is known of one page: where its outputs were stored and measured, its numbers, its printed numbers that may move."""

    stored_on: str = ""
    machines: tuple[str, ...] = ()
    numbers: Mapping[str, Tolerance] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()

    def same(self, where: str, stored: float, fresh: float) -> bool:
        """Whether two floats at one address agree; nan agrees with nan, inf with inf."""
        if math.isnan(stored) or math.isnan(fresh):
            return math.isnan(stored) and math.isnan(fresh)
        if stored == fresh or (abs(stored) < FLOOR and abs(fresh) < FLOOR):
            return True
        known = self.numbers.get(where)
        if known is None:
            return math.isclose(stored, fresh, rel_tol=UNMEASURED)
        return abs(stored - fresh) <= known.allowed

    def as_json(self) -> str:
        """One line for each number, so that a change of one is a change of one line."""
        numbers = {
            name: [float(f"{known.allowed:.1e}"), known.reason, float(f"{known.amplification:.0e}")]
            for name, known in self.numbers.items()
        }
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in numbers.items())
        moving = ",\n".join(f"  {json.dumps(name)}" for name in sorted(self.moving))
        held = (
            f'{{\n "stored_on": {json.dumps(self.stored_on)},\n "machines": {json.dumps(list(self.machines))},\n'
            f' "numbers": {{\n{lines}\n }},\n "moving": [\n{moving}\n ]'
        )
        return f'{held},\n "sha256": "{hashlib.sha256(held.encode()).hexdigest()}"\n}}\n'


NONE = Tolerances()


def path_beside(notebook: Path) -> Path:
    """Where the tolerances of a stored notebook (or of its .md source) are kept."""
    return notebook.with_suffix(".tolerances.json")


def read(notebook: Path, edited: bool = False) -> Tolerances:
    """The tolerances of a stored notebook; none where they were never measured.

    Raises `UserError` for a file that is not of this form, and (unless `edited`) for one that is not as it was written.
    """
    path = path_beside(notebook)
    if not path.is_file():
        return NONE
    try:
        data = json.loads(text := path.read_text(encoding="utf-8"))
        numbers = {name: Tolerance(float(a), str(r), float(m)) for name, (a, r, m) in data["numbers"].items()}
        found = Tolerances(str(data["stored_on"]), tuple(data["machines"]), numbers, frozenset(data["moving"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path.name} must hold tolerances as the command `stability --write` leaves them; {error!r}"
        ) from None
    for name, known in numbers.items():
        if known.reason not in REASONS or not 0 <= known.allowed < math.inf:
            raise UserError(
                f"{path.name}: {name} must have a tolerance >= 0 and one of {', '.join(REASONS)}; got {known.allowed}, {known.reason!r}"
            )
    if not edited and found.as_json() != text:
        command = f"{settings().program} stability {notebook.parent.name}/{notebook.stem}"
        raise UserError(
            f"{path.name} was edited: `{command} --write` measures again (`--prune` where numbers only went from the page)"
        )
    return found


def width(value: float | int, reason: str, amplification: float) -> float:
    """The tolerance that a reason and the measured amplification give to a number."""
    if isinstance(value, int):
        return 0.0
    size, relative = abs(value), amplification * EPSILON
    if size < FLOOR and reason == "exact":
        return FLOOR
    return size * {
        "exact": LEAST,
        "rounding": max(LEAST, MARGIN * relative),
        "jump": SPREAD * relative,
        "chance": max(MARGIN * CHANCE, SPREAD * relative),
    }[reason]  # fmt: skip


def unexplained(numbers: Mapping[str, float | int], tolerances: Tolerances) -> Iterator[str]:
    """A sentence for each stored number whose tolerance is wider than its measurement explains."""
    for name, value in numbers.items():
        known = tolerances.numbers.get(name)
        if known and known.allowed > ONE_DIGIT * (explained := width(value, known.reason, known.amplification)):
            yield (
                f"{name} = {value:.6g} has the tolerance {known.allowed:.1e}, and its measured amplification {known.amplification:.0e} "
                f"({known.reason}) explains {explained:.1e}"
            )


def pruned(numbers: Mapping[str, float | int], tolerances: Tolerances) -> Tolerances:
    """What was measured of numbers that are still stored, and none wider than that explains."""
    kept = {name: known for name, known in tolerances.numbers.items() if name in numbers}
    for name, known in kept.items():
        if known.allowed > ONE_DIGIT * (explained := width(numbers[name], known.reason, known.amplification)):
            kept[name] = replace(known, allowed=explained)
    return replace(tolerances, numbers=kept)


def derive(value: float | int, changes: Sequence[float], hard: Sequence[float] = ()) -> Tolerance:
    """The tolerance of a number that perturbations changed by `changes`, and hard shakes by `hard` (absolute, one for each run)."""
    size, largest, hardest = abs(value), max(changes, default=0.0), max(hard, default=0.0)
    if isinstance(value, int) or (size < FLOOR and largest < FLOOR):  # a count, or zero but for rounding
        return Tolerance(width(value, "exact", 0.0), "exact")
    if not size:
        return Tolerance(SPREAD * largest, "chance")
    if hardest > OUT_OF_PROPORTION * HARD * max(largest, EPSILON * size) and SPREAD * hardest > LEAST * size:
        reason, relative = "jump", hardest / size
    else:
        relative = largest / size
        reason = "exact" if not largest else "rounding" if relative <= CHANCE else "chance"
    return Tolerance(width(value, reason, relative / EPSILON), reason, relative / EPSILON)


def standing(value: float, allowed: float) -> int:
    """How many significant digits of `value` a tolerance leaves: 0 where it is half the number or more, 15 at most."""
    if allowed >= abs(value) / 2:
        return 15 if abs(value) < FLOOR else 0
    return 15 if allowed == 0 else min(15, max(1, math.floor(math.log10(abs(value) / allowed))))


def too_wide(numbers: Mapping[str, float | int], tolerances: Tolerances) -> Iterator[str]:
    """A sentence for each stored number that does not stand to one digit."""
    for name, value in numbers.items():
        known = tolerances.numbers.get(name)
        if known is not None and isinstance(value, float) and not standing(value, known.allowed):
            yield (
                f"{name} = {value:.6g} has the tolerance {known.allowed:.1g}, wider than half of it: not one digit stands on another "
                "machine, so it must not be shown; store what is determined (a bound, a fraction, the logarithm), or nothing"
            )


def address(kind: str, payload: Any, path: Sequence[str | int]) -> str:
    """The address of what stands at `path` in a JSON output of type `kind`."""
    if kind == CLAIMS_TYPE and path and isinstance(payload, list) and isinstance(payload[path[0]], Mapping):
        claim, rest = str(payload[path[0]].get("id", path[0])), list(path[1:])
        if rest[:1] == ["numbers"]:
            return f"{claim}:{_joined(rest[1:])}"
        return f"{claim}.{_joined(rest)}"
    return _joined(path) if kind == RESULTS_TYPE else f"{kind} {_joined(path)}"


def _joined(path: Sequence[str | int]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")
