"""The ledger's chapter names every rule that a stored check names, and no rule that none uses."""

import re
from functools import cache
from pathlib import Path

import nbformat
import pytest

from bookkit.claims import read_checks

ROOT = Path(__file__).parents[1]


@cache
def names() -> tuple[str, ...]:
    """The last column of the table under "Tolerance rules"."""
    section = (ROOT / "book" / "ledger.md").read_text(encoding="utf-8").split("## Tolerance rules")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
    return tuple(
        name.replace(r"\|", "|") for row in rows for name in re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", row)[-2])
    )


@cache
def rules() -> dict[str, str]:
    """By claim, the rule of its stored check."""
    pages = sorted((ROOT / "notebooks").glob("*/*.ipynb"))
    return {check["id"]: check["rule"] for page in pages for check in read_checks(nbformat.read(page, 4))}


def parts(rule: str) -> list[str]:
    """A rule's parts without what stands in brackets: "mean over draws, 4 s.e. and share; exact binomial test" has two."""
    while (shorter := re.sub(r"\s*\([^()]*\)", "", rule)) != rule:
        rule = shorter
    rule = rule.replace("draws and fresh points", "draws & fresh points")  # one rule
    return [part.replace("&", "and") for part in rule.split(" and ")]


def named(part: str) -> list[str]:
    """The names that a part begins with, after its number where it has one."""
    bare = re.sub(r"^[\d.]+(e[-+]?\d+)? ", "", part)
    return [name for name in names() if bare.startswith(name)]


def unnamed(checks: dict[str, str]) -> dict[str, str]:
    return {id: part for id, rule in checks.items() for part in parts(rule) if not named(part)}


def test_every_rule_of_a_stored_check_is_in_the_list() -> None:
    assert unnamed(rules()) == {}


def test_every_name_in_the_list_is_used() -> None:
    used = {name for rule in rules().values() for part in parts(rule) for name in named(part)}
    assert set(names()) - used <= {"not judged"}


@pytest.mark.parametrize(
    "rule",
    ["within a factor 1.25 of mean field", "mean over draws, 4.33 s.e. (Student's t) and about right", "looks good"],
)
def test_a_rule_that_the_list_lacks_is_found(rule: str) -> None:
    assert list(unnamed({"X1": rule})) == ["X1"]


def test_allowances_may_hold_any_words() -> None:
    rule = (
        "mean difference within 6.59 s.e. (Student's t) + 0.02 (4.8 s.e. of the fresh points, and third order (in d))"
    )
    assert unnamed({"X1": rule}) == {}
