"""What holds for every room of the house: ids of claims for ever, examples that run, claims where they belong."""

import doctest
import importlib
from pathlib import Path

import pytest

from bookkit.claims import Claim, ClaimSet, Source
from tests.house import PACKAGES, files, module_name


def claims_of(path: Path) -> list[Claim]:
    values = vars(importlib.import_module(module_name(path))).values()
    families = {id(value): value for value in values if isinstance(value, ClaimSet)}
    alone = {value.id: value for value in values if isinstance(value, Claim)}
    return [*(claim for family in families.values() for claim in family.values()), *alone.values()]


def test_ids_are_unique_and_sources_are_tags() -> None:
    found: dict[str, str] = {}
    for path in sorted(PACKAGES["attnbook"].rglob("*claims*.py")):
        for claim in claims_of(path):
            name = module_name(path)
            assert found.setdefault(claim.id, name) == name, f"claim {claim.id}: in {found[claim.id]} and in {name}"
            assert isinstance(claim.source, Source)
            assert claim.wing == path.relative_to(PACKAGES["attnbook"]).parts[0]
    assert {f"C{k}" for k in range(4, 17)} <= set(found)
    assert len(found) > 100


def with_examples() -> list[str]:
    return sorted(module_name(path) for path in files() if "\n    >>> " in path.read_text(encoding="utf-8"))


def test_examples_are_found() -> None:
    assert {"attnlib.attention", "attnlib.gaussian", "attnlib.single_head.summary"} <= set(with_examples())


@pytest.mark.parametrize("name", with_examples())
def test_examples_in_docstrings_say_what_they_print(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
