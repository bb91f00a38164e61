"""The plan of the house: what is loaded with what, what a kept number is named by, and that the rules of import can be broken."""

import ast
import graphlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bookkit.code import Code, code_of
from bookkit.settings import settings
from tests.house import PACKAGES, ROOT, files, module_name

STANDING = "parts of the book stand on the first, answers and explorers on all of them"


def loaded(code: str, cwd: Path = ROOT) -> list[str]:
    """Which of our packages are loaded after `code`, in a process of its own."""
    show = f"{code}\nimport sys; print(*sorted({set(PACKAGES)!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", show], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def importing(package: str, leave_out: str = "") -> str:
    names = [module_name(path) for path in files(package) if path.name != "__main__.py"]
    return "\n".join(f"import {name}" for name in names if not (leave_out and re.search(leave_out, name)))


def test_attnlib_stands_alone() -> None:
    # GPU programs need Triton.
    assert loaded(importing("attnlib", "gpu")) == ["attnlib"]


def test_bookkit_stands_alone() -> None:
    refuse = """
class Refuse:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in ("attnlib", "attnbook"):
            raise ModuleNotFoundError(name, name=name)
import sys
sys.meta_path.insert(0, Refuse())
"""
    assert loaded(refuse + importing("bookkit")) == ["bookkit"]


def test_a_kept_number_is_named_by_the_mathematics_and_not_by_the_press(tmp_path: Path) -> None:
    code = code_of(ROOT)
    assert code.names == ("attnlib", "attnbook")
    copies = Code(tuple(Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in code.folders))
    press = Path(shutil.copytree(PACKAGES["bookkit"], tmp_path / "bookkit"))
    first = copies.hash()
    assert first == code.hash()  # wherever the packages lie
    (press / "pdf" / "pdf.css").write_text("/* a comment */")
    assert copies.hash() == first
    law = tmp_path / "attnlib" / "single_head" / "law.py"
    law.write_text(law.read_text(encoding="utf-8") + "# a comment\n", encoding="utf-8")
    second = copies.hash()
    assert second != first
    study = tmp_path / "attnbook" / "single_head" / "study.py"
    study.write_text(study.read_text(encoding="utf-8").replace("0", "1", 1), encoding="utf-8")
    assert copies.hash() != second


def test_the_rules_of_import_know_every_part_and_every_folder_of_a_page() -> None:
    """import-linter takes no patterns that would do, so the lists stand in pyproject.toml; a name that is missing is found here."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    rules = {table["name"]: table for table in tables}
    named = [
        f"attnlib.{name}" for name in settings(ROOT).parts if (PACKAGES["attnlib"] / name / "__init__.py").is_file()
    ]
    assert set(rules["parts do not import each other"]["modules"]) == set(named)
    assert set(rules["kernels lie below the parts"]["layers"][0].split(" : ")) == set(named)
    layered = {name for layer in rules[STANDING]["layers"] for name in layer.split(" : ")}
    assert {f"attnbook.{part}" for part in settings(ROOT).parts} <= layered
    folders = {path.parent for path in files("attnbook") if path.parents[2] == PACKAGES["attnbook"]}
    pages = {f"attnbook.{path.parent.name}.{path.name}" for path in folders if path.parent.name in settings(ROOT).parts}
    assert set(rules["folders of pages do not import each other"]["modules"]) == pages


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


# A line, where it is added, and the rule that it breaks.
BREACHES = {
    "attnlib/gaussian.py": ("import bookkit.results", "attnlib and bookkit know neither"),
    "attnlib/checks.py": ("import attnlib.single_head.law", "kernels lie below the parts"),
    "attnlib/token_selection/gram.py": ("import attnlib.in_context.law", "parts do not import each other"),
    "book/bookkit/results.py": ("import attnlib.checks", "bookkit knows no book"),
    "book/attnbook/single_head/phase.py": (
        "import attnbook.open_questions.optimisers.signs",
        "parts of the book stand",
    ),
    "book/attnbook/token_selection/setting/study.py": (
        "import attnbook.token_selection.time_laws.clock",
        "folders of pages",
    ),
}


def test_every_rule_of_import_can_be_broken(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in PACKAGES.values():
        shutil.copytree(
            folder, tmp_path / folder.relative_to(ROOT), ignore=shutil.ignore_patterns("__pycache__", "tables")
        )
    for name, (line, _) in BREACHES.items():
        path = tmp_path / name
        path.write_text(f"{path.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    command = [str(Path(sys.prefix) / "bin" / "lint-imports"), "--no-cache"]
    environment = {"PYTHONPATH": f"{tmp_path}:{tmp_path / 'book'}", "PYTHONUTF8": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [line for line in done.stdout.splitlines() if " BROKEN" in line]
    for _, rule in BREACHES.values():
        assert any(line.startswith(rule) for line in broken), (rule, broken)


@pytest.mark.parametrize(
    "name", ["book", "notebooks", "attnlib", "tests", "requirements.txt", "_config.yml", "_toc.yml"]
)
def test_the_top_level_is_as_ordered(name: str) -> None:
    assert (ROOT / name).exists()
