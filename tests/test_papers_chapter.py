"""The chapter on what was read of the papers: all their claims stand in it, none that does not exist, and its counts are right."""

import re
from collections import Counter

import pytest

from bookkit.ledger.records import read_ledger
from bookkit.settings import settings
from tests.house import ROOT

PAPERS = {part.title: name for name, part in settings(ROOT).parts.items() if part.paper}
THEIRS = {"paper", "paper, second-hand", "authors' code"}
HEAD = ["no.", "statement", "read in", "verdict"]
VERDICTS = {"Fails": "fails", "Outside its regime": "outside its regime", "Not checked": None}  # "holds" behind others
WORDS = ("Setting", "Holds", "Fails", "Outside its regime", "In part", "Not checked")
COUNTS = re.compile(
    r"Of these (\d+) rows, (\d+) are settings\. Of the other (\d+) statements, (\d+) holds?, (\d+) fails?, "
    r"(\d+) (?:is|are) outside (?:its|their) regime, (\d+) (?:is|are) checked in part and (\d+) (?:is|are) not checked\."
)
LEDGER = {record["id"]: record for record in read_ledger(ROOT)}


def section(title: str) -> str:
    """The text under a heading of the second level."""
    chapter = (ROOT / "book" / "papers.md").read_text(encoding="utf-8")
    return re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", chapter, re.M | re.S)[1]


def rows(title: str) -> list[list[str]]:
    """The cells of the one table of a section. A formula with a bar in it would show as a cell too many."""
    lines = re.findall(r"^ *\|(.*)\| *$", section(title), re.M)
    head, _, *cells = ([cell.strip() for cell in line.split("|")] for line in lines)
    assert head == HEAD, f"{title}: one table of {HEAD}"
    return cells


def word(verdict: str) -> str:
    """The word in bold with which a verdict begins, without its full stop."""
    found = re.match(r"\*\*([^*]+?)\.?\*\*", verdict)
    return found[1] if found else ""


def whose(verdict: str) -> tuple[list[str], list[str]]:
    """Ids of the claims before and after the word "ours"."""
    theirs, *ours = re.split(r"\b[Oo]urs\b", verdict, maxsplit=1)
    return tuple(re.findall(r"\{claim\}`([^`]*)`", text) for text in (theirs, "".join(ours)))


def faults(row: list[str]) -> list[str]:
    """What is wrong with a row. Claims and boxes that do not exist stop the build of the book already."""
    if len(row) != len(HEAD) or not all(row) or any(cell.count("$") % 2 for cell in row):
        return [f"{len(row)} cells, one of them empty or with half a formula: a bar inside a formula?"]
    said, (theirs, ours) = word(row[3]), whose(row[3])
    verdicts = {LEDGER[name]["verdict"] for name in theirs}
    wrong = {
        "a claim of ours stands before the word ours": any(LEDGER[name]["source"] not in THEIRS for name in theirs),
        "a claim of theirs stands behind it": any(LEDGER[name]["source"] in THEIRS for name in ours),
        f"{said!r} is none of {WORDS}": said not in WORDS,
        "not checked: why?": said == "Not checked" and not re.search(r"because|for the same reason", row[3]),
        f"{said}, and the claims say {verdicts}": not verdicts <= {VERDICTS.get(said, "holds")},
        # A row that is checked names a claim or the box that proves it.
        "checked by which claim?": said not in ("Setting", "Not checked") and not theirs and not ours,
    }
    return [fault for fault, there in wrong.items() if there]


@pytest.mark.parametrize("title", PAPERS)
def test_the_table_of_a_paper_is_whole_and_counted_and_says_what_the_claims_say(title: str) -> None:
    """What is derived or measured here stands after "ours", what the papers say before; the word is the ledger's verdict."""
    table = rows(title)
    assert {row[0]: found for row in table if (found := faults(row))} == {}
    wanted = {name for name, each in LEDGER.items() if each["part"] == PAPERS[title] and each["source"] in THEIRS}
    assert wanted <= {name for row in table for name in whose(row[3])[0]}
    assert [row[0] for row in table] == [str(number) for number in range(1, len(table) + 1)]
    count = Counter(word(row[3]) for row in table)
    counted = (len(table), count["Setting"], len(table) - count["Setting"], *(count[each] for each in WORDS[1:]))
    assert COUNTS.findall(section(title).replace("\n", " ")) == [tuple(map(str, counted))]


@pytest.mark.parametrize("name", ["single_head", "token_selection", "in_context"])
def test_the_page_of_a_paper_counts_what_is_not_checked(name: str) -> None:
    page = (ROOT / "book" / "papers" / f"{name}.md").read_text(encoding="utf-8")
    said = re.findall(
        r"\[All (\d+) statements\].*?: (\d+) are settings, and (\d+) of the other (\d+) are not checked", page
    )
    title = next(title for title, part in PAPERS.items() if part == name)
    total, settings_, rest, *_, unchecked = COUNTS.findall(section(title).replace("\n", " "))[0]
    assert said == [(total, settings_, unchecked, rest)]


def test_boxes_are_named_where_papers_are_spoken_of() -> None:
    """A number such as Theorem 4 would be read as the paper's: it is this book's."""
    places = [*(ROOT / "book" / "papers").glob("*.md"), ROOT / "book" / "papers.md", ROOT / "book" / "story.md"]
    cited = {path.name: re.findall(r"\{prf:ref\}`([^`]*)`", path.read_text(encoding="utf-8")) for path in places}
    assert all(cited.values())
    assert [text for found in cited.values() for text in found if not text.endswith(">")] == []


def test_only_parts_with_a_paper_speak_for_papers() -> None:
    assert {record["part"] for record in LEDGER.values() if record["source"] in THEIRS} == set(PAPERS.values())
