"""The plan of the house, and what holds in every room: who imports whom, ids of claims for ever, examples that run."""

import ast
import doctest
import graphlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from bookkit.claims import Check, Claim, ClaimSet, Source
from bookkit.code import JUDGING, Code, code_of
from bookkit.ledger.records import read_ledger
from bookkit.map.links import Links, links_of
from bookkit.pages.catalogue import UserError
from bookkit.rules import Evidence
from bookkit.settings import settings
from tests.house import PACKAGES, ROOT, files, module_name

# --- the rules of import, held by import-linter -----------------------------------------------------------------------


def test_the_rules_of_import_know_every_part_and_every_folder_of_a_page() -> None:
    """import-linter takes no patterns that would do, so the lists stand in pyproject.toml; a name that is missing is found here."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    rules = {table["name"].partition(",")[0]: table for table in tables}
    parts = settings(ROOT).parts
    named = {f"attnlib.{name}" for name in parts if (PACKAGES["attnlib"] / name / "__init__.py").is_file()}
    assert set(rules["parts do not import each other"]["modules"]) == named
    assert set(rules["kernels lie below the parts"]["layers"][0].split(" : ")) == named
    layers = rules["parts of the book stand on the first"]["layers"]
    assert {f"attnbook.{part}" for part in parts} <= {name for layer in layers for name in layer.split(" : ")}
    folders = {path.parent for path in files("attnbook") if path.parents[2] == PACKAGES["attnbook"]}
    pages = {f"attnbook.{path.parent.name}.{path.name}" for path in folders if path.parent.name in parts}
    assert set(rules["folders of pages do not import each other"]["modules"]) == pages


# A line, where it is added, and the rule that it breaks.
BREACHES = {
    "attnlib/gaussian.py": ("bookkit.results", "attnlib and bookkit know neither"),
    "attnlib/checks.py": ("attnlib.single_head.law", "kernels lie below the parts"),
    "attnlib/token_selection/gram.py": ("attnlib.in_context.law", "parts do not import each other"),
    "book/bookkit/results.py": ("attnlib.checks", "bookkit knows no book"),
    "book/attnbook/single_head/phase.py": ("attnbook.open_questions.optimisers.signs", "parts of the book stand"),
    "book/attnbook/token_selection/setting/study.py": ("attnbook.token_selection.time_laws.study", "folders of pages"),
}


def test_every_rule_of_import_can_be_broken(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    unread = shutil.ignore_patterns("__pycache__", "tables")
    for folder in PACKAGES.values():
        shutil.copytree(folder, tmp_path / folder.relative_to(ROOT), ignore=unread)
    for name, (module, _) in BREACHES.items():
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write(f"\nimport {module}\n")
    command = [str(Path(sys.prefix) / "bin" / "lint-imports"), "--no-cache"]
    environment = {"PYTHONPATH": f"{tmp_path}:{tmp_path / 'book'}", "PYTHONUTF8": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [line for line in done.stdout.splitlines() if " BROKEN" in line]
    for _, rule in BREACHES.values():
        assert any(line.startswith(rule) for line in broken), (rule, broken)


def imported(path: Path) -> set[str]:
    """Our modules that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return found


@pytest.mark.parametrize("package", ["attnlib", "attnbook"])
def test_no_module_leads_back_to_itself(package: str) -> None:
    """Not by imports inside functions either: two modules that need each other are one. A face is what its package shows."""
    modules = {module_name(path): path for path in files(package) if path.name != "__init__.py"}
    graph = {name: imported(path) & set(modules) for name, path in modules.items()}
    assert sum(map(len, graph.values())) > len(modules) / 2
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("name", JUDGING)
def test_a_kept_verdict_is_named_by_the_rules_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A rule that changes is no kept page's rule: `make book` runs the pages again, and shows no verdict of the old one."""
    before = code_of(ROOT).hash()
    shutil.copytree(ROOT / "book" / "bookkit", tmp_path / "bookkit")
    monkeypatch.setattr("bookkit.code._OWN", tmp_path)
    assert code_of(ROOT).hash() == before
    with (tmp_path / "bookkit" / "toc.py").open("a", encoding="utf-8") as press:
        press.write("# the press\n")
    assert code_of(ROOT).hash() == before
    with (tmp_path / "bookkit" / f"{name}.py").open("a", encoding="utf-8") as file:
        file.write("LEVEL = 0.5\n")
    assert code_of(ROOT).hash() != before


def test_a_kept_number_is_named_by_the_mathematics_wherever_it_lies(tmp_path: Path) -> None:
    code = code_of(ROOT)
    assert code.names == ("attnlib", "attnbook")
    copies = Code(tuple(Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in code.folders))
    hashes = [code.hash()]
    for name in ("attnlib/single_head/law.py", "attnbook/single_head/study.py"):
        assert copies.hash() == hashes[-1]
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write("# a comment\n")
        hashes.append(copies.hash())
    # Of the same length and the same time: a clock may go back, and a disk keep its times to two seconds.
    law = tmp_path / "attnlib" / "single_head" / "law.py"
    before = law.stat()
    law.write_text(law.read_text(encoding="utf-8").replace("# a comment", "# A comment"), encoding="utf-8")
    os.utime(law, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert len({*hashes, copies.hash()}) == 4
    with pytest.raises(UserError, match="in a folder without ':' in its path"):
        _ = Code((tmp_path / "a:b" / "attnlib",)).search_path


# --- claims -----------------------------------------------------------------------------------------------------------


def claims_of(path: Path) -> list[Claim]:
    values = vars(importlib.import_module(module_name(path))).values()
    families = {id(value): value for value in values if isinstance(value, ClaimSet)}
    alone = {value.id: value for value in values if isinstance(value, Claim)}
    return [*(claim for family in families.values() for claim in family.values()), *alone.values()]


def test_ids_are_unique_and_stored_records_say_what_the_claims_say() -> None:
    """All that a page stores of a claim but its evidence; and its links, which builds read off the text of the module."""
    found: dict[str, tuple[str, Claim]] = {}
    for path in sorted(PACKAGES["attnbook"].rglob("*claims*.py")):
        for claim in claims_of(path):
            name = module_name(path)
            assert found.setdefault(claim.id, (name, claim))[0] == name, f"{claim.id}: in {found[claim.id]} and {name}"
            assert isinstance(claim.source, Source)
            assert claim.part == path.relative_to(PACKAGES["attnbook"]).parts[0]
    records = read_ledger(ROOT)
    assert sorted(record["id"] for record in records) == sorted(found)
    assert len(found) > 300
    nothing = Evidence(True, "", "", "", 0)
    for record in records:
        claim = found[record["id"]][1]
        said = Check(claim, nothing, (nothing,), "").as_record()
        for key in ("title", "statement", "source", "part", "regime", "expected", "function"):
            assert record[key] == said[key], f"{claim.id}: {key}"
        assert record["negative_control"]["wrong"] == claim.wrong_text, claim.id
        assert links_of(record, ROOT) == Links(claim.box, claim.uses), claim.id


# --- examples ---------------------------------------------------------------------------------------------------------

EXAMPLES = sorted(module_name(path) for path in files() if re.search(r"^ +>>> ", path.read_text("utf-8"), re.M))


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings_say_what_they_print(name: str) -> None:
    module = importlib.import_module(name)
    face = importlib.import_module(".".join(name.split(".")[:2]))  # examples start from what the face exports
    public = {word: getattr(face, word) for word in getattr(face, "__all__", ())}
    result = doctest.testmod(module, extraglobs={"np": np, "torch": torch} | public | vars(module))
    assert result.attempted > 0
    assert result.failed == 0
