"""A page begins with its question, the answer, the claim and its regime, then the setting; the error is defined at its first use."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PAGES = sorted([*NOTEBOOKS.glob("open_questions/*.md"), *NOTEBOOKS.glob("reruns/*.md")])
DEFINITION = "test error on fresh samples with unflipped labels"


def prose(text: str) -> str:
    """The page without its header and code, one blank between words."""
    text = re.sub(r"\A---\n.*?\n---\n|```.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"[\s>]+", " ", text)


def faults(text: str) -> list[str]:
    page = prose(text)
    marks = ["# ", "?", "**Answer.**", "**Claim", "**Regime.**", "**Setting.**", r"$$", "| before you read"]
    places = [(page.find(mark), mark) for mark in marks]
    found = [f"{mark!r} is missing" for place, mark in places if place < 0]
    found += [f"{b!r} before {a!r}" for (x, a), (y, b) in pairwise(places) if y < x]
    first = re.search(r"\bclean\*? error", page.replace("*", ""))
    around = page.replace("*", "")[first.start() : first.start() + 120] if first else ""
    return found + ([] if DEFINITION in around else [f"clean error is not defined where it is first used: {around!r}"])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_begins_with_question_answer_claim_and_setting(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("**Answer.**", "**Reply.**"),
        ("**Setting.**", "**Set.**"),
        (DEFINITION, "error that counts"),
        ("> **Regime.**", "> **Limits.**"),
        ("?", "."),
    ],
)
def test_what_is_missing_is_found(old: str, new: str) -> None:
    text = PAGES[0].read_text(encoding="utf-8").replace("\nsamples with unflipped", " samples with unflipped")
    assert faults(text) == []
    assert faults(text.replace(old, new)) != []
