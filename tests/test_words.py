"""One word for one thing: the old words of the table in book/style.md are gone from all that a reader sees.

A page on which "clean error" occurs says at its first use what it is. A claim's number stands in the text only after the page has
said, or linked, what it names.
"""

import re
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

import pytest

from bookkit.ledger.records import read_ledger
from tests.reader_text import (
    ROOT,
    chapters,
    javascript,
    page_cells,
    pages,
    prose,
    reading_order,
    strings,
    told_to_readers,
)

# A noun "share" follows an article or an adjective, or is followed by what it is a share of; "samples share a signal" is the verb.
_BEFORE = (
    "a|an|the|its|their|his|this|that|these|those|same|mean|equal|largest|smallest|small|large|noise|least|given|what|which|each|by|in|as|of|"
    "floating|no"
)
_VECTOR = (
    r"(?:(?:a|an|the|its|each|this|that|both|two|noise|signal|value|attention|unit|trained|every|all|one)\s+)*"
    r"(?:token|vector|gradient|signal|noise|query|arrow of)s?\b"
)
OLD = {
    "power twin": r"\bpower[ -]twins?\b|\b(?:its|the|whether the|a|their) twins?\b|\btwins? (?:must|that holds|fails?)\b",
    "wing": r"(?<!--)\bwings?\b",
    "fate": r"\bfates?\b",
    "share (noun)": rf"\b(?:{_BEFORE})\s+shares?\b(?!\s+(?:the|a|an|one|their|its|with)\b)"
    r"|\bshares?\s+(?:of|that)\b",
    "spoiled": r"\bspoil(?:s|ed|t|ing)?\b",
    "length (of a vector)": rf"\b(?:squared|unit)[ -]lengths?\b|\blengths? of {_VECTOR}",
    "axis-wise, by axes": r"\baxis-?wise\b|\bby axes\b",
    "mean field": r"\bmean[ -]fields?\b",
    "attention map (a function)": r"\battention maps?\b",
    "max-margin": r"\bmax-margin\b",
    "mistake on fresh data": r"\bmistakes? (?:on|for|at) (?:a |one )?fresh\b",
}
# Strings that are data: names of rules in stored outputs, and what a claim said before it was changed.
QUOTED = ("share; exact binomial test", "|formula - share of fresh points|")


def hits(lines: Iterable[tuple[int, str]]) -> list[str]:
    """ "12: a share of" for each old word."""
    found = []
    for number, line in lines:
        for quoted in QUOTED:
            line = line.replace(quoted, "")
        line = re.sub(r"[ \t]+", " ", line)
        places = (found for old in OLD.values() for found in re.finditer(old, line, re.I))
        found += [f"{number}: {line[max(0, place.start() - 20) : place.end() + 12].strip()}" for place in places]
    return found


GROUPS = {
    "chapters": chapters,
    "pages": pages,
    "restated": lambda: [ROOT / "book" / "restated.json"],
    "attnbook": lambda: sorted((ROOT / "book" / "attnbook").rglob("*.py")),
    "bookkit": lambda: sorted((ROOT / "book" / "bookkit").rglob("*.py")),
    "attnlib": lambda: sorted((ROOT / "attnlib").rglob("*.py")),
    "scripts": lambda: sorted((ROOT / "book" / "scripts").rglob("*.js")),
}


def told(path: Path) -> list[tuple[int, str]]:
    lines = list(told_to_readers(path))
    if path == ROOT / "book" / "style.md":  # the table itself
        lines = [(number, line) for number, line in lines if not line.startswith("| ")]
    return lines


def test_the_table_of_words_and_the_search_name_the_same_words() -> None:
    section = (ROOT / "book" / "style.md").read_text(encoding="utf-8").split("\n## Words\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")
    ]
    assert [row[0] for row in rows[1:]] == list(OLD)
    assert all(row[1] for row in rows)


@pytest.mark.parametrize("group", GROUPS)
def test_no_old_word_is_left(group: str) -> None:
    left = {path.relative_to(ROOT).as_posix(): hits(told(path)) for path in GROUPS[group]()}
    assert {name: found for name, found in left.items() if found} == {}


FOUND = """
the power twin fails; common to all wings; the fate of a class; the share of clean samples; a mean share above .9; shares that
centring leaves; the head is spoiled; noise of squared length $d$; the length of a gradient; taken by axes; Mean-field limit; in mean field;
another attention map; the max-margin threshold; a mistake on fresh data
"""
LEFT_ALONE = [
    "What samples share is short. Samples share the signal, the signal that they share, two heads share $v$",
    "the length of the prompt, an interval of length two, a mistake in a proof, runs may share their prompts",
    "`mean_field`, [a](mean-field.md), {eq}`eq-mean-field`, $\\text{mean field}$, `benchmarks --wing kernels`",
    "```python\nthe share of clean samples\n```",
    ":::{prf:lemma} Six variables\n:label: mean-field\n:::",
    "(mean-field)=",
    "```{explorer} long_run\n:figure: fate fig-fates\n```\n:::::{grid}\n::::{card}\n:class: fates\n",
]


@pytest.mark.parametrize("text", FOUND.replace("\n", " ").split(";"))
def test_the_search_finds_old_words(text: str) -> None:
    assert len(hits([(1, prose(text))])) == 1


def test_text_in_and_after_a_directive_is_read() -> None:
    directive = "```{explorer} x\n:figure: fate\nthe share of flips\n```\nthe fate of a class"
    box = ":::{prf:lemma} A fate\n:label: fate\nin mean field\n:::\nwings"
    found = ["3: the share of flips", "5: the fate of a class", "6: A fate", "8: in mean field", "10: wings"]
    assert hits(enumerate(prose(f"{directive}\n{box}").split("\n"), 1)) == found


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_the_search_leaves_other_senses_and_code_alone(text: str) -> None:
    assert hits(enumerate(prose(text).split("\n"))) == []


def test_words_in_code_are_read_where_a_reader_sees_them() -> None:
    lines = [
        '"""The fate of a module."""',
        "%pip install x",
        'key = "fate"',
        'ax.set(ylabel="share")',
        'print(f"{x} in mean field")',
    ]
    assert [text for _, text in strings("\n".join(lines))] == ["share", " in mean field"]
    lines = [
        'a = "mean field: rough"; // a fate of words',
        "b = `the ${share} fate <i>x</i>`; /* the fate */",
        'import {fate} from "./fate.js";',
    ]
    assert hits(javascript("\n".join(lines))) == ["1: mean field: rough", "2: the fate x"]


# --- said before it is used -------------------------------------------------------------------------------------------------

SAID = re.compile(r"unflipped|not flipped|without (?:flipped|wrong)|true label|no (?:flipped|wrong) label", re.I)


def first_uses(text: str, word: str) -> str:
    """The paragraph in which `word` occurs first, or ""."""
    return next((part for part in re.split(r"\n\s*\n|\n(?=[*|-] )", text) if re.search(word, part, re.I)), "")


@pytest.mark.parametrize("path", reading_order(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_clean_error_is_explained_where_it_is_first_used(path: Path) -> None:
    if path.is_relative_to(ROOT / "notebooks"):
        text = "\n\n".join(
            part
            for kind, source, captions in page_cells(path)
            for part in ([prose(source)] if kind == "markdown" else [*map(prose, captions)])
        )
    else:
        text = prose(path.read_text(encoding="utf-8"))
    first = first_uses(text, r"\bclean\s+errors?\b")
    assert not first or SAID.search(first), f"say what a clean error is: {first[:200]!r}"


@cache
def page_of() -> dict[str, str]:
    """By claim, the page whose stored outputs hold its check."""
    return {record["id"]: record["page"] for record in read_ledger(ROOT)}


CODE = re.compile(r"\b(?:TS|[A-Z])\d+[a-z]?\b")
LINKED = re.compile(
    r"\{claim\}`(?P<claim>[^`]+)`|\{prf:ref\}`(?P<box>[A-Z]+\d+[a-z]?) <[^`]*`|\[(?P<link>(?:TS|[A-Z])\d+[a-z]?)\]\([^)]*\)"
    r"|claim-(?P<label>[a-z]+\d+[a-z]?)\b|\{prf:ref\}`[^`]+` \((?P<after>[A-Z]\d+)\)"
)
RANGE = re.compile(
    r"\b(?P<kind>TS|[A-Z])(?P<first>\d+)[a-z]?(?:\s+to\s+|\s*[-\N{EN DASH}]\s*)(?P=kind)?(?P<last>\d+)[a-z]?\b"
)
ANNOUNCED = re.compile(r"\b(?:claims?|lemmas?|statements?|labelled|theorems?)\b[^.;|]*", re.I)
OF_A_PAGE = re.compile(r"\b((?:TS|[A-Z])\d+[a-z]?) \([^()]*a claim of \[")
TITLE = re.compile(r"^ ([A-Z]\d+[a-z]?),")


def numbers_in(text: str) -> set[str]:
    """Numbers of claims in `text`, those between the ends of a range among them."""
    spans = ((found["kind"], range(int(found["first"]), int(found["last"]) + 1)) for found in RANGE.finditer(text))
    return set(CODE.findall(text)) | {f"{kind}{number}" for kind, span in spans for number in span}


def introduced(line: str, own: Collection[str]) -> set[str]:
    """Numbers of claims that a line links, announces as claims, or has as a box's title; of the page's own also those in brackets."""
    names = set(TITLE.findall(line)) | set(OF_A_PAGE.findall(line))
    for found in LINKED.finditer(line):
        names |= {name for kind, name in found.groupdict().items() if name and kind != "label"}
        names |= {re.sub(r"^[a-z]+", lambda kind: kind[0].upper(), found["label"])} if found["label"] else set()
    for part in ANNOUNCED.findall(line):
        names |= numbers_in(part)
        for kind in re.findall(r"\b(TS|[A-Z])1,(?: \1\d+,?)* and so on", part):
            names |= {id for id in page_of() if re.fullmatch(rf"{kind}\d+[a-z]?", id)}
    for part in re.findall(r"\(([^()]*)\)", line):
        names |= numbers_in(part) & set(own)
    return names | set(own if re.search(r"\bcodes such as\b", line, re.I) else ())


def unsaid(lines: Iterable[str], known: Iterable[str], own: Collection[str] = (), table: str = "") -> list[str]:
    """Numbers among `known` that the text uses before it introduces them; a line `table` introduces those of `own`."""
    met: set[str] = set()
    found = []
    for line in lines:
        met |= set(own) if line == table else introduced(line, own)
        met |= {id for id in known if re.sub(r"[a-z]$", "", id) in met}  # C8b after C8
        found += [id for id in CODE.findall(LINKED.sub(" ", line)) if id in known and id not in met]
        met |= set(found)  # once for each page
    return found


TABLE = "\N{WHITE SQUARE} verdicts"


@pytest.mark.parametrize("path", reading_order(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_numbers_of_claims_are_introduced_before_they_are_used(path: Path) -> None:
    name = path.relative_to(ROOT).with_suffix("").as_posix()
    if path.is_relative_to(ROOT / "notebooks"):
        lines: list[str] = []
        for kind, source, captions in page_cells(path):
            if kind == "markdown":
                lines += prose(source, roles=True).split("\n")
            lines += [prose(caption, roles=True) for caption in captions]
            lines += [TABLE] if kind == "code" and "verdict_table(" in source else []
    else:
        lines = prose(path.read_text(encoding="utf-8"), roles=True).split("\n")
    own = [id for id, page in page_of().items() if page == name]
    assert unsaid(lines, page_of(), own, TABLE) == []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("By C8 this holds.", ["C8"]),
        ("By {claim}`C8` this holds, and so by C8b.", []),
        ("Then (C8).\n\nBy {claim}`C8`.", ["C8"]),
        ("Claims C1 to C9 are checked; C8 holds.", []),
        ("The claims of that page are M1, M2 and so on.\nBy M24.", []),
        (":::{prf:lemma} C8, margins\nBy C8.", []),
        ("By {prf:ref}`C8 <claim-theory-c8>` and C8.", []),
        ("[C8](ledger.md#claim-c8), and as in C8 {ref}`claim-l6b`, L6b.", []),
        ("The bound of C4 (a claim of [I.2](02_two_steps.ipynb)), and C4.", []),
        ("Its norm is near one (D2 to D4). By D3.", []),
        ("The table has D3. Its norm is near one (D3).", ["D3"]),
        ("Codes such as D1 name the claims of the table. By D5.", []),
        ("an A100 and a vector $C8$", []),
    ],
)
def test_the_search_for_numbers_of_claims(text: str, left: list[str]) -> None:
    lines = prose(text, roles=True).split(". ")
    assert (
        unsaid([line for part in lines for line in part.split("\n")], page_of(), own=["D1", "D2", "D3", "D4", "D5"])
        == left
    )
