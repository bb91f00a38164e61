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
from bookkit.sharpness import ACCEPTED, Part, of_record, pooled
from bookkit.widths import LEDGER

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
    fresh: bool = True  # the seeds judged different draws; without chance one judgement counts, not twenty
    parts: tuple[
        Mapping[str, Any], ...
    ] = ()  # of the verdict, with the draws of all seeds together (`bookkit.sharpness`)

    @property
    def judged(self) -> int:
        """How many judgements these are."""
        return self.seeds if self.fresh else 1

    @property
    def unexpected(self) -> int:
        """How many of them came out otherwise than expected."""
        other = self.seeds - self.as_expected
        return other if self.fresh else min(other, 1)

    @property
    def verdict(self) -> str:
        """Of all draws together, by the same rules at the same level; empty where they were not kept."""
        parts = of_record({"parts": self.parts})
        if not parts:
            return ""
        if not all(part.holds for part in parts):
            return "fails"
        return "holds" if all(part.decided for part in parts) else "not contradicted"


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
    judged: int  # claims x seeds; where chance has no part in a claim, once
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
    columns = {claim: [run[claim] for run in by_seed] for claim in ids}
    changed = {
        claim for claim, records in columns.items() if any(_measured(r) != _measured(records[0]) for r in records)
    }
    # What chance decides may come out the same at every seed (all draws inside); then the page tells whether its draws changed.
    return {
        claim: _count(records, fingerprints[claim], claim in changed or bool(changed and records[0]["false_alarm"]))
        for claim, records in columns.items()
    }


def _measured(record: Mapping[str, Any]) -> list[Any]:
    return [record["verdict"], record["numbers"], record.get("parts", [])]


def _count(records: Sequence[Mapping[str, Any]], fingerprint: str, fresh: bool) -> Counts:
    # One page's draws may be too few to decide what its rule accepts; that is no unexpected verdict, for all draws are judged together.
    verdicts, expected = [record["verdict"] for record in records], records[0]["expected"]
    other = [verdict for verdict in verdicts if verdict != expected and not {verdict, expected} <= set(ACCEPTED)]
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
        fresh=fresh,
        parts=tuple(_rounded(part) for part in _together(records, fresh)),
    )


def _together(records: Sequence[Mapping[str, Any]], fresh: bool) -> tuple[Part, ...]:
    """The parts of the verdict over all seeds at which it was inside its regime."""
    runs = [of_record(record) for record in records if record["verdict"] != "outside its regime"]
    return pooled(runs) if fresh else pooled(runs[:1])


def _rounded(part: Part) -> dict[str, Any]:
    """Its numbers to the ten digits that suffice."""
    return {name: float(f"{v:.10g}") if isinstance(v, float) else v for name, v in part.as_record().items()}


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
        judged=sum(each.judged for each in claims),
        unexpected=sum(each.unexpected for each in claims),
        expected=sum(each.judged * each.false_alarm for each in claims),
        controls_missed=sum(min(each.seeds - each.control_told, each.judged) for each in claims),
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
        claims = {
            claim: Counts(**{**entry, "parts": tuple(entry.get("parts", ()))})
            for claim, entry in content.pop("claims").items()
        }
        return Replication(**content, claims=claims)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{FILE} is no table of a replication: {one_line(error)}") from None


def written(root: Path, found: Replication) -> Path:
    """Write the table, one line per claim."""
    with written_aside(root / FILE) as temporary:
        temporary.write_text(one_line_each({"format": FORMAT, **asdict(found)}), encoding="utf-8", newline="\n")
    return root / FILE
