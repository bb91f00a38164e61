"""The chapter on what was read of the papers: all their claims stand in it, none that does not exist, and its counts are right."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from bookkit.ledger.records import read_ledger
from bookkit.settings import settings

ROOT = Path(__file__).parents[1]
CHAPTER = ROOT / "book" / "papers.md"
PAPERS = {part.title: name for name, part in settings(ROOT).parts.items() if part.paper}
THEIRS = {"paper", "paper, second-hand", "authors' code"}
HEAD = ["no.", "statement", "read in", "verdict"]
WORDS = ("Setting", "Holds", "Fails", "Outside its regime", "In part", "Not checked")

ROLE = re.compile(r"\{claim\}`([^`]*)`")
COUNTS = re.compile(
    r"Of these (\d+) rows, (\d+) are settings\. Of the other (\d+) statements, (\d+) holds?, (\d+) fails?, "
    r"(\d+) (?:is|are) outside (?:its|their) regime, (\d+) (?:is|are) checked in part and (\d+) (?:is|are) not checked\."
)


@cache
def ledger() -> dict[str, dict]:
    return {record["id"]: record for record in read_ledger(ROOT)}


def section(title: str) -> str:
    """The text under a heading of the second level."""
    return re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", CHAPTER.read_text(encoding="utf-8"), re.M | re.S)[1]


def rows(title: str) -> list[list[str]]:
    """The cells of the one table of a section. A formula with a bar in it would show as a cell too many."""
    lines = [line.strip() for line in section(title).splitlines() if line.lstrip().startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == HEAD, f"{title}: one table of {HEAD}"
    return cells[2:]


def word(verdict: str) -> str:
    """The word in bold with which a verdict begins, without its full stop."""
    found = re.match(r"\*\*([^*]+?)\.?\*\*", verdict)
    return found[1] if found else ""


def whose(verdict: str) -> tuple[list[str], list[str]]:
    """Ids of the claims before and after the word "ours"."""
    theirs, *ours = re.split(r"\b[Oo]urs\b", verdict, maxsplit=1)
    return ROLE.findall(theirs), ROLE.findall("".join(ours))


def test_every_claim_of_the_papers_stands_in_the_table_of_its_part() -> None:
    for title, part in PAPERS.items():
        wanted = {
            name for name, record in ledger().items() if (record["part"], record["source"] in THEIRS) == (part, True)
        }
        standing = {name for row in rows(title) for name in whose(row[3])[0]}
        assert wanted <= standing, f"{title}: no row for {sorted(wanted - standing)}"
    assert {record["part"] for record in ledger().values() if record["source"] in THEIRS} == set(PAPERS.values())


def faults(row: list[str]) -> list[str]:
    """What is wrong with a row. Claims and boxes that do not exist stop the build of the book already."""
    if len(row) != len(HEAD) or not all(row) or any(cell.count("$") % 2 for cell in row):
        return [f"{len(row)} cells, one of them empty or with half a formula: a bar inside a formula?"]
    said, (theirs, ours) = word(row[3]), whose(row[3])
    found = [f"{name} is ours" for name in theirs if ledger()[name]["source"] not in THEIRS]
    found += [f"{name} is theirs" for name in ours if ledger()[name]["source"] in THEIRS]
    if said not in WORDS:
        found.append(f"{said!r} is none of {WORDS}")
    if said == "Not checked" and not re.search(r"because|for the same reason", row[3]):
        found.append("not checked: why?")
    allowed = {"Fails": "fails", "Outside its regime": "outside its regime", "Not checked": None}
    verdicts = {ledger()[name]["verdict"] for name in theirs}
    if not verdicts <= {allowed.get(said, "holds")}:
        found.append(f"{said}, and the claims say {verdicts}")
    # A row that is checked names a claim or the box that proves it.
    if said not in ("Setting", "Not checked") and not theirs and not ours:
        found.append("checked by which claim?")
    return found


def test_each_row_is_whole_and_its_word_agrees_with_the_claims() -> None:
    """What is derived or measured here stands after "ours", what the papers say before; the word is the ledger's verdict."""
    told = {f"{PAPERS[title]}-{row[0]}": faults(row) for title in PAPERS for row in rows(title)}
    assert len(told) > 50
    assert {where: found for where, found in told.items() if found} == {}


@pytest.mark.parametrize("title", PAPERS)
def test_the_counts_below_a_table_are_those_of_its_rows(title: str) -> None:
    table = rows(title)
    assert [row[0] for row in table] == [str(number) for number in range(1, len(table) + 1)]
    count = Counter(word(row[3]) for row in table)
    counts = COUNTS.findall(section(title).replace("\n", " "))
    wanted = (len(table), count["Setting"], len(table) - count["Setting"], *(count[each] for each in WORDS[1:]))
    assert counts == [tuple(map(str, wanted))]
