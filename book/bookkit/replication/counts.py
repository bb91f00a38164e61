"""What became of each claim at fresh seeds, and the table of it that a book keeps: book/replication.json.

A verdict that differs from the expected one is *unexpected*. The rules say how many of these chance alone would make
(`bookkit.rules`): their false alarms, added over claims and seeds. More than that, and some claim is not true as it stands.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.special import pdtrc

from bookkit.files import one_line_each, written_aside
from bookkit.pages.catalogue import UserError, one_line
from bookkit.rules import LEDGER

FILE = "book/replication.json"
FORMAT = 1


@dataclass(frozen=True)
class Counts:
    """One claim at fresh seeds."""

    page: str
    fingerprint: str  # of the claim as it was judged: `bookkit.replication.registration`
    seeds: int
    as_expected: int  # verdicts
    outside: int  # of the others: those where the claim was outside its regime
    control_told: int  # seeds at which the negative control came out the other way
    false_alarm: float  # of its rules, at one seed
    number: str  # the evidence's first number, and its range over the seeds
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Replication:
    """The table: which seeds, when, by which command, and the counts of each claim."""

    rule: str
    first: int
    date: str
    command: str
    claims: dict[str, Counts]


@dataclass(frozen=True)
class Tally:
    """All claims of a table together."""

    claims: int
    judged: int  # claims x seeds
    unexpected: int
    expected: float  # at most so many of them by chance, on average, if all claims are true
    controls_missed: int  # claims x seeds at which the negative control was not told apart

    @property
    def probability(self) -> float:
        """Of as many unexpected verdicts as seen, or more, if all claims are true (Poisson, an upper bound)."""
        if self.unexpected == 0:
            return 1.0
        return float(pdtrc(self.unexpected - 1, self.expected)) if self.expected else 0.0

    @property
    def at_level(self) -> bool:
        """Whether chance explains what was seen: probability above the level of the ledger."""
        return self.probability > LEDGER

    def __str__(self) -> str:
        return (
            f"{self.unexpected} of {self.judged} verdicts unexpected; by chance alone at most {self.expected:.2g} on average, "
            f"so many or more with probability {self.probability:.2g}. {self.controls_missed} controls not told apart"
        )


def count(runs: Sequence[Iterable[Mapping[str, Any]]], fingerprints: Mapping[str, str]) -> dict[str, Counts]:
    """Counts by claim from the check records of one page at several seeds; `fingerprints` by claim.

    Raises ValueError where the runs did not judge the same claims.
    """
    by_seed = [{record["id"]: record for record in run} for run in runs]
    ids = list(by_seed[0]) if by_seed else []
    if any(set(run) != set(ids) for run in by_seed):
        raise ValueError("runs must judge the same claims at every seed; they do not")
    return {claim: _count([run[claim] for run in by_seed], fingerprints[claim]) for claim in ids}


def _count(records: Sequence[Mapping[str, Any]], fingerprint: str) -> Counts:
    other = [record["verdict"] for record in records if record["verdict"] != record["expected"]]
    number, low, high = _range(records)
    return Counts(
        page=records[0]["page"],
        fingerprint=fingerprint,
        seeds=len(records),
        as_expected=len(records) - len(other),
        outside=other.count("outside its regime"),
        control_told=sum(record["verdict"] != record["negative_control"]["verdict"] for record in records),
        false_alarm=max(record["false_alarm"] for record in records),
        number=number,
        low=low,
        high=high,
    )


def _range(records: Sequence[Mapping[str, Any]]) -> tuple[str, float | None, float | None]:
    """The number by which the claim is measured: the name, smallest and largest over the seeds; six digits are enough."""
    numbers = records[0]["numbers"]
    name = next((n for n in numbers if n.split("_")[0] in ("measured", "share", "median")), next(iter(numbers), ""))
    names = ("min", "max") if name == "min" and "max" in numbers else (name, name)
    values = [[record["numbers"].get(each) for record in records] for each in names]
    known = [[v for v in row if isinstance(v, int | float) and math.isfinite(v)] for row in values]
    if not all(known):
        return name, None, None
    return " to ".join(dict.fromkeys(names)), float(f"{min(known[0]):.6g}"), float(f"{max(known[1]):.6g}")


def tally(claims: Iterable[Counts]) -> Tally:
    """All counts together."""
    claims = list(claims)
    return Tally(
        claims=len(claims),
        judged=sum(each.seeds for each in claims),
        unexpected=sum(each.seeds - each.as_expected for each in claims),
        expected=sum(each.seeds * each.false_alarm for each in claims),
        controls_missed=sum(each.seeds - each.control_told for each in claims),
    )


# --- the table ----------------------------------------------------------------------------------------------------------------


def read(root: Path) -> Replication | None:
    """The table of the book in `root`; None where there is none. Raises `UserError` for a file that is none of ours."""
    path = root / FILE
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT:
            raise ValueError("another format")
        claims = {claim: Counts(**entry) for claim, entry in content.pop("claims").items()}
        return Replication(**content, claims=claims)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{FILE} is no table of a replication: {one_line(error)}") from None


def written(root: Path, found: Replication) -> Path:
    """Write the table, one line per claim."""
    with written_aside(root / FILE) as temporary:
        temporary.write_text(one_line_each({"format": FORMAT, **asdict(found)}), encoding="utf-8", newline="\n")
    return root / FILE
