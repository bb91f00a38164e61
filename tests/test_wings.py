"""What holds for every wing of the package: who may import whom, ids of claims for ever, examples that run."""

import ast
import doctest
import importlib
from pathlib import Path

import pytest
from bookkit.claims import Claim, ClaimSet, Source

PACKAGE = Path(__file__).resolve().parents[1] / "attnlib"
WINGS = sorted(path.name for path in PACKAGE.iterdir() if (path / "law.py").is_file())
UPPER_FLOOR = {  # rooms above the wings, and what each stands on
    "open_questions": {"single_head"},
    "explorers": {"single_head", "token_selection", "in_context"},
    "answers": {"single_head", "token_selection", "in_context", "open_questions"},
}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def claims_of(path: Path) -> list[Claim]:
    values = vars(importlib.import_module(module_name(path))).values()
    families = {id(value): value for value in values if isinstance(value, ClaimSet)}
    alone = {value.id: value for value in values if isinstance(value, Claim)}
    return [*(claim for family in families.values() for claim in family.values()), *alone.values()]


def test_a_wing_imports_no_other_wing() -> None:
    assert WINGS == ["in_context", "single_head", "token_selection"]
    for path in PACKAGE.rglob("*.py"):
        if path.parent == PACKAGE:
            continue
        room = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            allowed = {room} | UPPER_FLOOR.get(room, set())
            rooms = {*WINGS, *UPPER_FLOOR} - allowed
            others = [name for name in names for other in rooms if f"{name}.".startswith(f"attnlib.{other}.")]
            assert others == [], f"{path.relative_to(PACKAGE)} imports {others}"


def test_the_upper_floor_stands_on_a_wing() -> None:
    for room, below in UPPER_FLOOR.items():
        text = "".join(path.read_text(encoding="utf-8") for path in (PACKAGE / room).rglob("*.py"))
        assert all(f"from attnlib.{wing}." in text for wing in below)


def test_ids_are_unique_and_sources_are_tags() -> None:
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("claims*.py")):
        for claim in claims_of(path):
            name = module_name(path)
            assert found.setdefault(claim.id, name) == name, f"claim {claim.id}: in {found[claim.id]} and in {name}"
            assert isinstance(claim.source, Source)
            assert path.parent == PACKAGE or claim.wing == path.relative_to(PACKAGE).parts[0]
    assert {f"C{k}" for k in range(4, 17)} <= set(found)
    assert len(found) > 100


def with_examples() -> list[str]:
    return sorted(
        module_name(path) for path in PACKAGE.rglob("*.py") if "\n    >>> " in path.read_text(encoding="utf-8")
    )


def test_examples_are_found() -> None:
    assert {"attnlib.attention", "attnlib.gaussian", "attnbook.single_head.study"} <= set(with_examples())


@pytest.mark.parametrize("name", with_examples())
def test_examples_in_docstrings_say_what_they_print(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
