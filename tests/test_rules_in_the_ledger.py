"""The ledger's chapter names every rule that a stored check names, and no rule that none uses."""

import re

from bookkit.ledger.records import read_ledger
from tests.house import ROOT

# The last column of the table under "Tolerance rules"; a bar inside a cell is written \|.
_SECTION = (ROOT / "book" / "ledger.md").read_text(encoding="utf-8").split("## Tolerance rules")[1].split("\n## ")[0]
_CELLS = [re.split(r"(?<!\\)\|", line)[-2] for line in _SECTION.splitlines() if line.startswith("| ")]
NAMES = {name.replace(r"\|", "|") for cell in _CELLS for name in re.findall(r"`([^`]+)`", cell)}
RULES = {record["rule"] for record in read_ledger(ROOT)}


def parts(rule: str) -> list[str]:
    """A rule's parts without what stands in brackets: "mean over draws, 4 s.e. and share; exact binomial test" has two."""
    while (shorter := re.sub(r"\s*\([^()]*\)", "", rule)) != rule:
        rule = shorter
    rule = rule.replace("draws and fresh points", "draws & fresh points")  # one rule
    return [part.replace("&", "and") for part in rule.split(" and ")]


def named(part: str) -> set[str]:
    """The names that a part begins with, after its number where it has one."""
    return {name for name in NAMES if re.sub(r"^[\d.]+(e[-+]?\d+)? ", "", part).startswith(name)}


def unnamed(rules: set[str]) -> list[str]:
    return [part for rule in rules for part in parts(rule) if not named(part)]


def test_the_list_names_the_rules_of_all_stored_checks_and_no_other() -> None:
    assert unnamed(RULES) == []
    assert NAMES - {name for rule in RULES for part in parts(rule) for name in named(part)} <= {"not judged"}


def test_a_rule_that_the_list_lacks_is_found_and_allowances_may_hold_any_words() -> None:
    assert unnamed({"within a factor 1.25 of mean field"}) == ["within a factor 1.25 of mean field"]
    assert unnamed({"mean over draws, 4.33 s.e. (Student's t) and about right"}) == ["about right"]
    allowance = "0.02 (4.8 s.e. of the fresh points, and third order (in d))"
    assert unnamed({f"mean difference within 6.59 s.e. (Student's t) + {allowance}"}) == []
