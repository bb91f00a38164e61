"""pyproject.toml and the two requirements files say the same; the package stays small, light to import, and welcome on Colab."""

import ast
import functools
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import attnlib
from tests.house import PACKAGES, files, module_name

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, TOOL = PYPROJECT["project"], PYPROJECT["tool"]
EXTRAS = PROJECT["optional-dependencies"]
# Colab's machines of August 2026 (Python 3.13), and the older ones that can still be chosen (Python 3.12).
COLAB = {
    "numpy": ["2.1.3", "2.0.2"],
    "torch": ["2.11.0"],
    "matplotlib": ["3.10.0"],
    "ipython": ["7.34.0"],
    "ipykernel": ["6.17.1"],
}


# Of the extra `real`, and tested with stand-ins: a release of torchvision demands one release of torch, and medmnist needs it.
UNPINNED = {"torchvision", "medmnist"}
RANGES = {"triton"}  # a CUDA build of torch demands one release of it: a pin of ours would shut that build out


# What reads and runs the book, and what proves it. The second begins with the first.
READER, PROVER = "requirements.txt", "requirements-test.txt"
READER_EXTRAS = ["book"]
BEYOND_EXTRAS = ["nbval", "pytest-timeout"]  # of the extra `test`, but small: pages can be compared with their outputs
FIRST_LINE = {READER: "-e .", PROVER: f"-r {READER}"}


def pins(*files: str) -> dict[str, Version]:
    """`files` (default: both) by canonical name; of a range, what is installed. Every other line must be an exact pin."""
    found = {}
    for file in files or (READER, PROVER):
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        texts = [text for line in lines if (text := line.split("#")[0].strip())]
        assert texts[0] == FIRST_LINE[file], f"{file} must begin with {FIRST_LINE[file]}"
        for text in texts[1:]:
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            assert name not in found, f"{file}: {name} is pinned twice"
            if requirement.marker is not None and not requirement.marker.evaluate():
                continue
            match = re.fullmatch(r"==([^\s;*]+)", str(requirement.specifier))
            assert match or name in RANGES, f"{file}: not an exact pin: {text}"
            found[name] = Version(match[1] if match else importlib.metadata.version(name))
            assert requirement.specifier.contains(found[name])
    return found


def requirements(*extras: str) -> dict[str, SpecifierSet]:
    """Ranges of the core and of `extras`, those that they include too, by canonical name."""
    found: dict[str, SpecifierSet] = {}
    for text in [*PROJECT["dependencies"], *(text for extra in extras for text in EXTRAS[extra])]:
        requirement = Requirement(text)
        if requirement.name == "attnlib":
            found |= requirements(*requirement.extras)
        else:
            found[canonicalize_name(requirement.name)] = requirement.specifier
    return found


packages_distributions = functools.cache(importlib.metadata.packages_distributions)


def distributions(modules: set[str]) -> set[str]:
    """Canonical names of what brings the top-level `modules`, without the standard library and our own."""
    owners = packages_distributions()
    foreign = modules - set(sys.stdlib_module_names) - set(PACKAGES)
    return {canonicalize_name(owner) for module in foreign for owner in owners.get(module, [module])}


def distributions_of(nodes: Iterable[ast.AST]) -> set[str]:
    """What brings the modules that the import statements among `nodes` name."""
    modules = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules.add(str(node.module).split(".")[0])
    return distributions(modules)


def imports_at_the_top(path: Path) -> set[str]:
    """Distributions whose modules `path` imports when it is imported itself."""
    return distributions_of(ast.parse(path.read_text(encoding="utf-8")).body)


def reached_from(names: Iterable[str]) -> set[str]:
    """`names` and all that they require, as installed here."""
    reached: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            texts = map(Requirement, importlib.metadata.requires(name) or [])
            waiting += [
                canonicalize_name(r.name) for r in texts if r.marker is None or r.marker.evaluate({"extra": ""})
            ]
    return reached


def test_every_range_admits_its_pin() -> None:
    pinned = pins()
    ranges = requirements(*EXTRAS)
    assert set(ranges) - set(pinned) == UNPINNED, "asked for in pyproject.toml, pinned in neither file"
    assert {
        name: str(ranges[name]) for name in ranges if name in pinned and not ranges[name].contains(pinned[name])
    } == {}


@pytest.mark.parametrize(("file", "extras"), [(READER, READER_EXTRAS), (PROVER, EXTRAS)])
def test_every_pin_is_used_and_is_what_these_tests_run_with(file: str, extras: Iterable[str]) -> None:
    pinned = pins(file)
    assert sorted(set(pinned) - reached_from([*(set(requirements(*extras)) - UNPINNED), *BEYOND_EXTRAS])) == [], (
        "needed by nothing"
    )
    installed = {name: importlib.metadata.version(name).split("+")[0] for name in pinned}  # +cpu is the index's choice
    assert installed == {name: str(version) for name, version in pinned.items()}


def test_a_reader_installs_what_the_book_asks_for_and_nothing_of_its_proof() -> None:
    reader = reached_from(pins(READER))
    assert sorted(set(requirements(*READER_EXTRAS)) - set(pins(READER))) == [], "needed, and not in the reader's file"
    heavy = {"triton", "playwright", "transformers", "datasets", "ruff"}
    assert heavy <= set(pins(PROVER))
    assert sorted(heavy & reader) == []


def test_modules_that_are_not_compiled_at_installation_are_compiled_once() -> None:
    """Where the environment forbids byte code, each page's kernel would compile torch again."""
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert ("--no-compile" in make) == ("\nunexport PYTHONDONTWRITEBYTECODE\n" in make)


def test_no_page_and_nothing_that_builds_the_book_imports_what_only_its_proof_needs() -> None:
    """At the top or in a function: modules of the test file may be imported only by these, which say what to install."""
    only_proof = set(pins(PROVER)) - reached_from(pins(READER))
    assert only_proof
    found = {}
    for path in files():
        if imported := distributions_of(ast.walk(ast.parse(path.read_text(encoding="utf-8")))) & only_proof:
            found[path.relative_to(ROOT).as_posix()] = sorted(imported)
    gpu = {name: ["triton"] for name in found if re.fullmatch(r"attnlib/kernels/\w+/_?(gpu\w*|programs)\.py", name)}
    assert found == gpu | {
        "book/bookkit/pdf/printing.py": ["playwright", "pypdf"],
        "book/attnbook/token_selection/real_data/backbones.py": ["transformers"],
        "book/attnbook/token_selection/real_data/loaders.py": ["datasets"],
    }
    for path in sorted((ROOT / "notebooks").glob("*/*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        modules = set(re.findall(r"^\s*(?:import|from) +(\w+)", code, flags=re.M))
        assert distributions(modules) & only_proof == set(), path.name


def test_the_core_is_numpy_and_torch() -> None:
    assert sorted(requirements()) == ["numpy", "torch"]


def test_colab_is_welcome() -> None:
    ranges = requirements("figures", "rerun")
    for name, versions in COLAB.items():
        for version in versions:
            assert ranges[name].contains(version), f"{name} {ranges[name]} shuts out Colab's {version}"
        assert "==" not in str(ranges[name])
        assert "<" not in str(ranges[name]), f"{name}: an upper bound would one day shut Colab out"
    versions = ("3.10.14", "3.11.7", "3.12.13", "3.13.15")
    assert list(SpecifierSet(PROJECT["requires-python"]).filter(versions)) == list(versions[1:])


# Each a text of its own: so `make check` knows which modules are reached from here.
LIGHT = [
    "attnlib",
    "attnbook.command",
    "bookkit.cli",
    "bookkit.results",
    "bookkit.pages.rerun",
    "bookkit.book",
    "bookkit.sweeps",
]


@pytest.mark.parametrize("module", LIGHT)
def test_import_is_light(module: str) -> None:
    """Torch takes a second or more to import; a command that lists pages must not wait for it."""
    code = f"import sys, {module}; print(sorted({{'torch', 'matplotlib', 'papermill', 'pandas', 'dask'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# What each room may import at its top, beside the core: extras of pyproject.toml. The longest name counts.
ROOMS_OF = {
    (): "attnlib attnbook bookkit",
    ("book",): "attnbook.extensions bookkit.editions bookkit.ledger bookkit.formulas.pages bookkit.light "
    "bookkit.sphinx bookkit.book bookkit.reference bookkit.replication",
    ("rerun",): "bookkit.cli bookkit.pages bookkit.formulas",
    ("figures",): "bookkit.figures",
    ("pdf",): "bookkit.pdf",
    ("sweep",): "bookkit.sweeps",
    ("figures", "sweep"): "bookkit.sweeps.figures",
}
ROOMS = {room: extras for extras, rooms in ROOMS_OF.items() for room in rooms.split()}


def room_of(module: str) -> str:
    return max((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), key=len)


def test_each_part_imports_only_what_its_extra_asks_for() -> None:
    for path in files():
        module = module_name(path)
        extras = ROOMS[room_of(module)]
        if module.startswith("attnlib.kernels."):  # loaded when such a loop is used
            gpu = path.name.startswith(("gpu", "_gpu", "_programs"))
            extras = ("gpu",) if gpu else ("kernels",) if path.name.startswith(("_", "compiled")) else ()
        undeclared = imports_at_the_top(path) - set(requirements(*extras))
        assert undeclared == set(), f"{path.relative_to(ROOT)} imports what {extras or 'the core'} does not ask for"


def test_every_folder_of_the_packages_is_installed() -> None:
    """setuptools leaves out folders without __init__.py, and an editable installation would not notice."""
    folders = {path.parent for path in files()}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_every_data_file_is_installed_and_lies_beside_code_that_reads_it() -> None:
    """A stored table that is not found where the code looks is computed again, for minutes or hours."""
    patterns = TOOL["setuptools"]["package-data"]
    installed: set[Path] = set()
    for package, globs in patterns.items():
        top, *rest = package.split(".")
        folder = PACKAGES[top].joinpath(*rest)
        for glob in globs:
            found = set(folder.glob(glob))
            assert found, f"{package}: no file is {glob}"
            installed |= found
        if globs == ["py.typed"]:
            continue  # empty: it tells type checkers that the package has types
        code = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
        pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").rglob("*.md"))
        assert "__file__" in code or f'files("{package}")' in pages, f"nothing in {package} looks beside itself"
    there = {path for folder in PACKAGES.values() for path in folder.rglob("*") if path.is_file()}
    there -= {path for path in there if path.suffix == ".py" or path.parent.name == "__pycache__"}
    assert {path.relative_to(ROOT).as_posix() for path in there ^ installed} == set()


# Majors that run on Node 24: `runs.using` in the action.yml of each. Those before run on Node 20, which GitHub has retired.
ACTIONS = {
    "actions/checkout": "v7",
    "actions/setup-python": "v7",
    "actions/upload-artifact": "v7",
    "actions/upload-pages-artifact": "v5",
    "actions/deploy-pages": "v5",
}


def check_step(step: dict) -> None:
    """A step runs a command, one of the book's own actions, or one of `ACTIONS`; each `make` in it has a rule."""
    assert ("run" in step) != ("uses" in step)
    if (uses := step.get("uses", "")).startswith("./"):
        action = yaml.load((ROOT / uses / "action.yml").read_text(encoding="utf-8"), yaml.BaseLoader)
        required = {name for name, asked in action["inputs"].items() if asked.get("required") == "true"}
        assert required <= set(step["with"]) <= set(action["inputs"])
    elif uses:
        name, _, version = uses.partition("@")
        assert ACTIONS[name] == version
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    assert set(re.findall(r"\bmake ([a-z]+)", step.get("run", ""))) <= targets


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_is_whole_and_calls_only_commands_that_exist(path: Path) -> None:
    workflow = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # BaseLoader: `on` stays a word
    assert workflow["on"]
    assert workflow["permissions"]  # no more rights than the job needs
    for name, job in workflow["jobs"].items():
        assert int(job["timeout-minutes"]) > 0
        for step in job["steps"]:
            check_step(step)
        # What may fail unseen is told by an issue, of this job or of one that waits for it.
        if "schedule" in workflow["on"]:
            told = [job, *(other for other in workflow["jobs"].values() if name in other.get("needs", []))]
            uses = [step.get("uses") for each in told for step in each["steps"]]
            tells = "./.github/actions/open-issue" in uses
            assert tells or "needs" in job, f"{name} can fail unseen"
            assert not tells or any(each.get("permissions", {}).get("issues") == "write" for each in told)


def test_licence_citation_changelog_and_package_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["license"] == "BSD-3-Clause" == PROJECT["license"]["text"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("BSD 3-Clause License")
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)
    assert newest is not None
    assert newest.groups() == (citation["version"], str(citation["date-released"]))
    assert attnlib.__version__ == PROJECT["version"] == citation["version"]


def test_the_papers_that_are_checked_are_cited() -> None:
    """By the titles and authors of the book's own references."""
    parts = TOOL["bookkit"]["parts"]
    references = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    entries = (ROOT / "book" / "references.bib").read_text(encoding="utf-8").split("\n@")
    for part, cited in zip([part for part in parts.values() if "paper" in part], references, strict=True):
        assert cited["url"] == f"https://arxiv.org/abs/{part['paper']}"
        (entry,) = (entry for entry in entries if cited["url"] in entry)
        assert f"{{{cited['title']}}}" in entry
        names = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in cited["authors"])
        assert f"{{{names}}}" in entry


def test_every_browser_test_waits_for_the_built_book() -> None:
    """Without the mark they run before the book is rendered, with the unit tests."""
    files = sorted((ROOT / "tests" / "browser").glob("test_*.py"))
    assert files
    assert [f.name for f in files if "pytestmark = pytest.mark.browser" not in f.read_text(encoding="utf-8")] == []
