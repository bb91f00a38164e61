"""A page begins with its question, the answer, the claim and its regime, then the setting; the error is defined at its first use."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PAGES = sorted(NOTEBOOKS.glob("open_questions/*.md"))
OPENING = ["# ", "?", "**Answer.**", "**Claim", "**Regime.**"]
DEFINITION = "test error on fresh samples with unflipped labels"


def prose(text: str) -> str:
    """The page without its header and code, one blank between words."""
    text = re.sub(r"\A---\n.*?\n---\n|```.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"[\s>]+", " ", text)


def faults(page: str, marks: list[str]) -> list[str]:
    places = [(page.find(mark), mark) for mark in marks]
    found = [f"{mark!r} is missing" for place, mark in places if place < 0]
    return found + [f"{b!r} before {a!r}" for (x, a), (y, b) in pairwise(places) if y < x]


def undefined(page: str) -> list[str]:
    first = re.search(r"\bclean\*? error", page.replace("*", ""))
    around = page.replace("*", "")[first.start() : first.start() + 120] if first else ""
    return [] if DEFINITION in around else [f"clean error is not defined where it is first used: {around!r}"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_begins_with_question_answer_claim_and_setting(path: Path) -> None:
    page = prose(path.read_text(encoding="utf-8"))
    assert faults(page, [*OPENING, "**Setting.**", r"$$", "| before you read"]) + undefined(page) == []


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("in_context/*.md")), ids=lambda path: path.stem)
def test_a_page_of_part_three_begins_with_question_answer_and_claim(path: Path) -> None:
    assert faults(prose(path.read_text(encoding="utf-8")), OPENING) == []
