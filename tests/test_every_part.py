"""What holds for every room of the house: ids of claims for ever, examples that run, claims where they belong."""

import doctest
import importlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bookkit.claims import Check, Claim, ClaimSet, Source
from bookkit.ledger.records import read_ledger
from bookkit.map.links import Links, links_of
from bookkit.rules import Evidence
from tests.house import PACKAGES, ROOT, files, module_name


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
            assert claim.part == path.relative_to(PACKAGES["attnbook"]).parts[0]
    assert {f"C{k}" for k in range(4, 17)} <= set(found)
    assert len(found) > 100


def test_stored_records_say_what_the_claims_say() -> None:
    """All that a page stores of a claim but its evidence; and its links, which builds read off the text of the module."""
    found = {c.id: c for path in PACKAGES["attnbook"].rglob("*claims*.py") for c in claims_of(path)}
    nothing = Evidence(True, "", "", "", 0)
    records = read_ledger(ROOT)
    assert sorted(record["id"] for record in records) == sorted(found)
    for record in records:
        claim = found[record["id"]]
        said = Check(claim, nothing, nothing, "").as_record()
        for key in ("title", "statement", "source", "part", "regime", "expected", "function"):
            assert record[key] == said[key], f"{claim.id}: {key}"
        assert record["negative_control"]["wrong"] == claim.wrong_text, claim.id
        assert links_of(record, ROOT) == Links(claim.box, claim.uses), claim.id


def with_examples() -> list[str]:
    return sorted(module_name(path) for path in files() if re.search(r"^ +>>> ", path.read_text("utf-8"), re.M))


def test_examples_are_found() -> None:
    assert {"attnlib.attention", "attnlib.gaussian", "attnlib.single_head.summary"} <= set(with_examples())


@pytest.mark.parametrize("name", with_examples())
def test_examples_in_docstrings_say_what_they_print(name: str) -> None:
    module = importlib.import_module(name)
    face = importlib.import_module(".".join(name.split(".")[:2]))  # examples start from what the face exports
    public = {word: getattr(face, word) for word in getattr(face, "__all__", ())}
    result = doctest.testmod(module, extraglobs={"np": np, "torch": torch} | public | vars(module))
    assert result.attempted > 0
    assert result.failed == 0
