"""What became of each claim at fresh seeds, and the table of it that a book keeps: book/replication.json.

The table holds what was seen at each seed, one letter a verdict and the few numbers that each rule needs; every count and every verdict
of all draws together is made of these when it is asked for. So a count cannot be edited, and the whole has a checksum. Whoever computes
that anew meets tests: a verdict's letters follow from the numbers beside them; of controls only letters are kept, so those that were not
told apart are listed in a test too; and a page that the table's hash draws is judged again.

A verdict that differs from the expected one is *unexpected*. The rules say how many of these chance alone would make
(`bookkit.rules`): their false alarms, added over claims and seeds. More than that, and some claim is not true as it stands.

Beside its seeds a claim keeps the numbers of the page's own run, and the stored tables that the page had read. Where these have changed,
what was seen belongs to another page: it is *stale* (`Counts.stale`), and shows no count.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from scipy.special import pdtrc

from bookkit.files import one_line_each, written_aside
from bookkit.pages.catalogue import UserError, one_line
from bookkit.pages.tolerances import Tolerances
from bookkit.parser import program
from bookkit.sharpness import ACCEPTED, KINDS, Part, of_record, pooled, verdict_of
from bookkit.widths import LEDGER

FILE = "book/replication.json"
FORMAT = 2
LETTERS = {"holds": "h", "not contradicted": "u", "fails": "f", "outside its regime": "o"}
PART, JUDGED = "part ", 1e-3  # of a number that a rule made; so far it may move
WORDS = {letter: verdict for verdict, letter in LETTERS.items()}


@dataclass(frozen=True)
class Counts:
    """One claim at seeds `first`, `first` + 1, ..."""

    page: str
    fingerprint: str  # of the claim as it was judged: `bookkit.replication.registration`
    first: int
    expected: str
    verdicts: str  # one of LETTERS a seed
    told: str  # a seed: 1 where the negative control came out the other way
    false_alarm: float  # of its rules, at one seed
    number: str  # the evidence's first number, and its range over the seeds
    low: float | None
    high: float | None
    fresh: bool = True  # the seeds judged different draws; without chance one judgement counts, not twenty
    columns: tuple[
        Mapping[str, Any], ...
    ] = ()  # parts of the verdict: of each field its values by seed, or the one of all
    joined: bool = False  # the columns are sums over the seeds, as tables kept them until 2026-11-28
    numbers: Mapping[str, Any] = field(default_factory=dict)  # of the page's own run, when the seeds were run
    tables: str = ""  # which stored tables the page had read: `marked`

    @property
    def seeds(self) -> int:
        """How many."""
        return len(self.verdicts)

    @property
    def as_expected(self) -> int:
        """At how many seeds the verdict was the expected one.

        One page's draws may be too few to decide what its rule accepts; that is no unexpected verdict, for all draws are judged together.
        """
        return self.seeds - sum(not self._agrees(WORDS[letter]) for letter in self.verdicts)

    def _agrees(self, verdict: str) -> bool:
        return verdict == self.expected or {verdict, self.expected} <= set(ACCEPTED)

    @property
    def outside(self) -> int:
        """At how many of the others the claim was outside its regime."""
        return self.verdicts.count("o") if self.expected != WORDS["o"] else 0

    @property
    def control_told(self) -> int:
        """At how many seeds the negative control came out the other way."""
        return self.told.count("1")

    @property
    def judged(self) -> int:
        """How many judgements these are."""
        return self.seeds if self.fresh else 1

    @property
    def unexpected(self) -> int:
        """How many of them came out otherwise than expected."""
        other = self.seeds - self.as_expected
        return other if self.fresh else min(other, 1)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Of the verdict, with the draws of all seeds together (`bookkit.sharpness`); seeds at which nothing was measured are left out."""
        if not self.columns or self.joined:
            return of_record({"parts": self.columns})
        runs = [k for k in range(self.seeds) if _at(self.columns[0], k)]
        found = [of_record({"parts": [_at(column, k) for column in self.columns]}) for k in runs]
        return pooled(found if self.fresh else found[:1])

    @property
    def verdict(self) -> str:
        """Of all draws together, by the same rules at the same level; empty where they were not kept."""
        return verdict_of(self.parts) if self.parts else ""

    def stale(self, record: Mapping[str, Any], tables: Mapping[str, str], tolerances: Tolerances) -> str:
        """What the page shows now and did not show when the seeds were run, in words; empty where nothing has changed.

        record: of the claim, as the page stores it; tables: those that the page has read; tolerances: of the page's numbers.
        """
        if marked(tables) != self.tables:
            return "the page reads other tables now"
        now = own_numbers(record)
        for name in {**self.numbers, **now}:
            if name not in now or name not in self.numbers:
                return f"the page's number {name} is {'gone' if name in self.numbers else 'new'}"
            before, value = self.numbers[name], now[name]
            one_kind = isinstance(before, float) and isinstance(value, float)
            judged = one_kind and name.startswith(PART) and math.isclose(before, value, rel_tol=JUDGED, abs_tol=1e-12)
            if (
                before != value
                and not judged
                and not (one_kind and tolerances.same(f"{record['id']}:{name}", before, value))
            ):
                return f"the page's {name} is {value!r}, and was {before!r}"
        return ""


def own_numbers(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a page says of a claim in numbers: those of its evidence, and what its rules made of them ("part 1, centre").

    A claim may be judged on draws that no number of its evidence shows: a claim without numbers would never be stale.
    """
    judged = {
        f"{PART}{place}, {name}": value
        for place, part in enumerate(record.get("parts", []), 1)
        for name, value in part.items()
        if isinstance(value, float) and math.isfinite(value)
    }
    return {name: _rounded(value, 12) for name, value in {**record.get("numbers", {}), **judged}.items()}


def marked(tables: Mapping[str, str]) -> str:
    """Sixteen hexadecimal digits for the tables that a page has read, and their hashes; empty for none."""
    return hashlib.sha256(json.dumps(sorted(tables.items())).encode()).hexdigest()[:16] if tables else ""


def _at(column: Mapping[str, Any], k: int) -> dict[str, Any]:
    """One part of the verdict at the k-th seed; empty where nothing was measured there."""
    found = {name: value[k] if isinstance(value, list) else value for name, value in column.items()}
    kind = KINDS.get(found["rule"])
    return (
        {"rule": found["rule"], **{each.name: found[each.name] for each in fields(kind) if each.name in found}}
        if kind
        else {}
    )


@dataclass(frozen=True)
class Replication:
    """The table: which seeds, when, by which command, and each claim."""

    rule: str
    date: str
    command: str
    claims: dict[str, Counts]

    @property
    def looked(self) -> int:
        """The first seed at which nobody has looked yet."""
        return max((each.first + each.seeds for each in self.claims.values()), default=0)


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


def count(
    page: Iterable[Mapping[str, Any]],
    runs: Sequence[Iterable[Mapping[str, Any]]],
    fingerprints: Mapping[str, str],
    first: int = 0,
    tables: Mapping[str, str] | None = None,
) -> dict[str, Counts]:
    """By claim, from the check records of a stored page and those of its runs at several seeds; `fingerprints` by claim.

    Raises ValueError where the runs did not judge the same claims as the page.
    """
    stored = {record["id"]: record for record in page}
    by_seed = [{record["id"]: record for record in run} for run in runs]
    if any(set(run) != set(stored) for run in by_seed):
        raise ValueError("runs must judge the same claims at every seed as the stored page; they do not")
    columns = {claim: [run[claim] for run in by_seed] for claim in stored if by_seed}
    changed = {
        claim for claim, records in columns.items() if any(_measured(r) != _measured(records[0]) for r in records)
    }
    found = {}
    for claim, records in columns.items():
        number, low, high = _range(records)
        found[claim] = Counts(
            page=records[0]["page"],
            fingerprint=fingerprints[claim],
            first=first,
            expected=records[0]["expected"],
            verdicts="".join(LETTERS[record["verdict"]] for record in records),
            told="".join(str(int(r["negative_control"]["verdict"] != r["verdict"])) for r in records),
            false_alarm=max(record["false_alarm"] for record in records),
            number=number,
            low=low,
            high=high,
            # What chance decides may come out the same at every seed (all draws inside); then the page tells whether its draws changed.
            fresh=claim in changed or bool(changed and records[0]["false_alarm"]),
            columns=_columns([record.get("parts", []) for record in records]),
            numbers=own_numbers(stored[claim]),
            tables=marked(tables or {}),
        )
    return found


def _measured(record: Mapping[str, Any]) -> list[Any]:
    return [record["verdict"], record["numbers"], record.get("parts", [])]


def _columns(runs: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[Mapping[str, Any], ...]:
    """Part by part, of each field its values by seed, or the one of all; a seed at which nothing was measured has None."""
    lengths = {len(parts) for parts in runs if parts}
    if len(lengths) > 1:
        raise ValueError("a claim must be judged by the same rules at every seed; it is not")
    found = []
    for number in range(max(lengths, default=0)):
        parts = [run[number] if run else {} for run in runs]
        names = dict.fromkeys(name for part in parts for name in part)  # what is no number at one seed has other fields
        values = {name: [_rounded(part.get(name), 8) for part in parts] for name in names}
        found.append({name: row[0] if all(v == row[0] for v in row) else row for name, row in values.items()})
    return tuple(found)


def _rounded(value: Any, digits: int) -> Any:
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


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
    """The table of the book in `root`; None where there is none. Raises `UserError` for a file that is none of ours, or was edited."""
    path = root / FILE
    if not path.is_file():
        return None
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        again = f"{program()} replicate --seeds 20 --write"
        raise UserError(
            f"{FILE} is no table of a replication: {one_line(error)}; restore it from git, or judge again: {again}"
        ) from None


@cache
def _read(path: Path, changed: int) -> Replication:
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.pop("format") != FORMAT:
        raise ValueError("another format")
    if content.pop("seal") != sealed(content):
        raise ValueError("edited by hand")
    claims = {
        claim: Counts(**{**entry, "columns": tuple(entry["columns"])}) for claim, entry in content.pop("claims").items()
    }
    return Replication(**content, claims=claims)


def sealed(content: Mapping[str, Any]) -> str:
    """SHA-256 of the table without its seal. It guards against edits and accidents, not against whoever computes it anew."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def written(root: Path, found: Replication) -> Path:
    """Write the table, one line per claim."""
    content = json.loads(json.dumps(asdict(found)))
    with written_aside(root / FILE) as temporary:
        text = one_line_each({"format": FORMAT, "seal": sealed(content), **content})
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return root / FILE
