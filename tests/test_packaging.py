"""pyproject.toml and the two requirements files say the same; the package stays small, light to import, and welcome on Colab."""

import ast
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import attnlib
from bookkit.editions.student import PINNED
from tests.house import PACKAGES, ROOT, files, module_name

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, TOOL = PYPROJECT["project"], PYPROJECT["tool"]
EXTRAS = PROJECT["optional-dependencies"]
# Colab's machines of August 2026 (Python 3.13), and the older ones that can still be chosen (Python 3.12).
COLAB = {"numpy": "2.1.3 2.0.2", "torch": "2.11.0", "matplotlib": "3.10.0", "ipython": "7.34.0", "ipykernel": "6.17.1"}

# Of the extra `real`, and tested with stand-ins: a release of torchvision demands one release of torch, and medmnist needs it.
UNPINNED = {"torchvision", "medmnist", "jupyterlab"}
RANGES = {"triton"}  # a CUDA build of torch demands one release of it: a pin of ours would shut that build out
# What reads and runs the book, and what proves it. The second begins with the first.
READER, PROVER = "requirements.txt", "requirements-test.txt"
REST = "constraints.txt"  # what these two leave open
BEYOND_EXTRAS = ["nbval", "pytest-timeout"]  # of the extra `test`, but small: pages can be compared with their outputs


# --- the pins and the ranges ------------------------------------------------------------------------------------------


def pins(file: str) -> dict[str, Version]:
    """By canonical name; of a range, what is installed. Every line but the first must be an exact pin."""
    lines = [line.split("#")[0].strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
    texts = [*filter(None, lines)]
    if file != REST:
        assert texts.pop(0) == ("-e ." if file == READER else f"-r {READER}")
    found = {}
    for requirement in map(Requirement, texts):
        name = canonicalize_name(requirement.name)
        assert name not in found, f"{file}: {name} is pinned twice"
        if requirement.marker is None or requirement.marker.evaluate():
            match = re.fullmatch(r"==([^\s;*]+)", str(requirement.specifier))
            assert match or name in RANGES, f"{file}: not an exact pin: {requirement}"
            found[name] = Version(match[1] if match else importlib.metadata.version(name))
            assert requirement.specifier.contains(found[name])
    return found


def requirements(*extras: str) -> dict[str, SpecifierSet]:
    """Ranges of the core and of `extras`, those that they include too, by canonical name."""
    found: dict[str, SpecifierSet] = {}
    for requirement in map(
        Requirement, [*PROJECT["dependencies"], *(each for name in extras for each in EXTRAS[name])]
    ):
        if requirement.name == "attnlib":
            found |= requirements(*requirement.extras)
        else:
            found[canonicalize_name(requirement.name)] = requirement.specifier
    return found


def reached_from(names: Iterable[str]) -> set[str]:
    """`names` and all that they require, as installed here."""
    reached: set[tuple[str, str]] = set()
    waiting = [(name, "") for name in names]
    while waiting:
        if (asked := waiting.pop()) not in reached:
            reached.add(asked)
            name, extra = asked
            for needed in map(Requirement, importlib.metadata.requires(name) or []):
                if not needed.marker or needed.marker.evaluate({"extra": extra}):
                    waiting += [(canonicalize_name(needed.name), each) for each in ("", *needed.extras)]
    return {name for name, _ in reached}


def test_every_range_admits_its_pin_and_colab() -> None:
    ranges, pinned = requirements(*EXTRAS), pins(READER) | pins(PROVER)
    assert pins(READER).keys() & pins(PROVER).keys() == set()
    assert set(ranges) - set(pinned) == UNPINNED, "asked for in pyproject.toml, pinned in neither file"
    shut_out = {name: pin for name, pin in pinned.items() if name in ranges and not ranges[name].contains(pin)}
    assert shut_out == {}
    assert sorted(requirements()) == ["numpy", "torch"]  # the core
    ranges = requirements("figures", "rerun")
    for name, versions in COLAB.items():
        assert all(ranges[name].contains(version) for version in versions.split()), name
        assert not re.search("==|<", str(ranges[name])), f"{name}: an upper bound would one day shut Colab out"
    pythons = ("3.10.14", "3.11.7", "3.12.13", "3.13.15")
    assert list(SpecifierSet(PROJECT["requires-python"]).filter(pythons)) == list(pythons[1:])
    named = re.findall(r"Python :: (3\.\d+)\b", "\n".join(PROJECT["classifiers"]))
    assert named == [version.rpartition(".")[0] for version in pythons[1:]]
    assert JOBS["weekly-newest"]["strategy"]["matrix"]["python"] == named


def test_every_pin_is_needed_and_is_what_these_tests_run_with() -> None:
    reader, prover = pins(READER), pins(PROVER)
    for pinned, extras in ((reader, ["book"]), (prover, EXTRAS)):
        wanted = reached_from([*(set(requirements(*extras)) - UNPINNED), *BEYOND_EXTRAS])
        assert sorted(set(pinned) - wanted) == [], "needed by nothing"
        installed = {
            name: importlib.metadata.version(name).split("+")[0] for name in pinned
        }  # +cpu: the index's choice
        assert installed == {name: str(version) for name, version in pinned.items()}
    assert sorted(set(requirements("book")) - set(reader)) == [], "needed, and not in the reader's file"
    heavy = {"triton", "playwright", "transformers", "datasets", "ruff"}  # a reader installs nothing of the proof
    assert heavy <= set(prover)
    assert sorted(heavy & reached_from(reader)) == []


def test_what_the_pins_leave_open_is_pinned_too_and_made_alike_everywhere() -> None:
    """Nothing is pinned twice or in vain, all that is installed because of a pin is, and every install of ours uses it."""
    named, rest = pins(READER) | pins(PROVER), pins(REST)
    assert named.keys() & rest.keys() == set()
    needed = {name for name in reached_from(named) if not name.startswith(("nvidia-", "cuda-"))}  # of a build of torch
    assert needed - named.keys() - {"pip", "setuptools", "wheel"} == rest.keys(), "run `make pins`"
    assert {name: importlib.metadata.version(name) for name in rest} == {name: str(pin) for name, pin in rest.items()}
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in [*ROOT.glob("*.md"), *ROOT.glob("book/*.md"), ROOT / "Makefile"]
    }
    installs = [
        line
        for text in texts.values()
        for line in text.splitlines()
        if re.search(r"pip install.* -r |^INSTALL :=", line)
    ]
    assert len(installs) == 5
    assert [line for line in installs if REST not in line and "_build/pins/" not in line] == []


def test_nothing_of_ours_is_asked_of_a_second_index() -> None:
    """Beside an extra index pip takes a name, one of ours too, from whoever offers the highest version: torch alone, and by itself."""
    files = [
        *(ROOT / ".github").rglob("*.yml"),
        *ROOT.glob("*.*"),
        ROOT / "Makefile",
        ROOT / ".ci" / "run",
        *ROOT.glob("book/*.md"),
    ]
    lines = [line for path in files if path.is_file() for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line for line in lines if re.search("extra.index", line, flags=re.I)] == []
    installs = [line for line in lines if "--index-url" in line]
    assert len(installs) == 3
    assert all(re.search(r"--no-deps --index-url \S+ (torch|\$\(shell sed .*torch==.*\))", line) for line in installs)
    done = subprocess.run(
        ["make", "-nB", "ready", "TORCH_INDEX=there"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    alone, all_of_it = re.findall(r"pip install .*", done.stdout)
    assert alone.endswith(f"--constraint {REST} --no-deps --index-url there torch=={pins(READER)['torch']}")
    assert all_of_it.endswith(f"--constraint {REST} -r {READER}")


def test_what_proposes_newer_packages_knows_what_is_held_and_formats_as_lint_does() -> None:
    dependabot = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))
    ignored = [each["dependency-name"] for update in dependabot["updates"] for each in update.get("ignore", [])]
    assert ignored == re.findall(r"^(\S+)==.*# \(hold\)", (ROOT / READER).read_text(encoding="utf-8"), flags=re.M)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    for hook in hooks:
        assert hook["additional_dependencies"] == [f"ruff=={pins(PROVER)['ruff']}"]
        assert hook["entry"].replace("--force-exclude", ".") in make


# --- who imports what -------------------------------------------------------------------------------------------------

owners = cache(importlib.metadata.packages_distributions)  # reads all that is installed: a second


def distributions(code: str, at_the_top: bool = False) -> set[str]:
    """Canonical names of what brings the modules that `code` imports, without the standard library and our own."""
    modules, tree = set(), ast.parse(code)
    for node in tree.body if at_the_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules.add(str(node.module).split(".")[0])
    foreign = modules - set(sys.stdlib_module_names) - set(PACKAGES)
    return {canonicalize_name(owner) for module in foreign for owner in owners().get(module, [module])}


def test_no_page_and_nothing_that_builds_the_book_imports_what_only_its_proof_needs() -> None:
    """At the top or in a function: modules of the test file may be imported only by these, which say what to install."""
    only_proof = set(pins(PROVER)) - reached_from(pins(READER))
    assert only_proof
    found = {}
    for path in files():
        if imported := distributions(path.read_text(encoding="utf-8")) & only_proof:
            found[path.relative_to(ROOT).as_posix()] = sorted(imported)
    gpu = {name: ["triton"] for name in found if re.fullmatch(r"attnlib/kernels/\w+/_?(gpu\w*|programs)\.py", name)}
    assert found == gpu | {
        "book/attnbook/token_selection/real_data/backbones.py": ["transformers"],
        "book/attnbook/token_selection/real_data/fixed_tokens.py": ["transformers"],
        "book/attnbook/token_selection/real_data/loaders.py": ["datasets"],
    }
    for path in sorted((ROOT / "notebooks").glob("*/*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        imports = "\n".join(re.findall(r"^\s*((?:import|from) +\w+)", code, flags=re.M)).replace("from", "import")
        assert distributions(imports) & only_proof == set(), path.name


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
    (
        "book",
    ): "attnbook.extensions bookkit.editions bookkit.exercises.pages bookkit.toc bookkit.ledger bookkit.formulas.pages "
    "bookkit.sphinx bookkit.book bookkit.replication",
    ("rerun",): "bookkit.cli bookkit.pages bookkit.formulas",
    ("figures",): "bookkit.figures",
    # A file that runs alone, with numpy and scipy; and studies that only their own page reads.
    ("margin",): "attnlib.nutshell attnbook.single_head.max_margin attnbook.single_head.where_attention_begins "
    "attnbook.single_head.phase_diagram attnbook.open_questions.out_of_the_trap attnbook.open_questions.margin_and_descent",
    ("sweep",): "bookkit.sweeps",
}
ROOMS = {room: extras for extras, rooms in ROOMS_OF.items() for room in rooms.split()}


def test_each_part_imports_only_what_its_extra_asks_for() -> None:
    for path in files():
        module = module_name(path)
        extras = ROOMS[max((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), key=len)]
        if module.startswith("attnlib.kernels.") or path.name == "_loops.py":  # loaded when such a loop is used
            gpu = path.name.startswith(("gpu", "_gpu", "_programs"))
            extras = ("gpu",) if gpu else ("kernels",) if path.name.startswith(("_", "compiled")) else ()
        undeclared = distributions(path.read_text(encoding="utf-8"), at_the_top=True) - set(requirements(*extras))
        assert undeclared == set(), f"{path.relative_to(ROOT)} imports what {extras or 'the core'} does not ask for"


# --- what is installed ------------------------------------------------------------------------------------------------


def test_every_folder_and_every_data_file_is_installed_and_lies_beside_code_that_reads_it() -> None:
    """A stored table that is not found where the code looks is computed again, for minutes or hours."""
    # setuptools leaves out folders without __init__.py, and an editable installation would not notice.
    assert [path for path in files() if not (path.parent / "__init__.py").is_file()] == []
    installed: set[Path] = set()
    for package, globs in TOOL["setuptools"]["package-data"].items():
        top, *rest = package.split(".")
        folder = PACKAGES[top].joinpath(*rest)
        for glob in globs:
            found = set(folder.glob(glob))
            assert found, f"{package}: no file is {glob}"
            installed |= found
        if globs != ["py.typed"]:  # empty: it tells type checkers that the package has types
            code = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
            pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").rglob("*.md"))
            assert "__file__" in code or f'files("{package}")' in pages, f"nothing in {package} looks beside itself"
    there = {path for folder in PACKAGES.values() for path in folder.rglob("*") if path.is_file()}
    there -= {path for path in there if path.suffix == ".py" or path.parent.name == "__pycache__"}
    assert {path.relative_to(ROOT).as_posix() for path in there ^ installed} == set()


def test_modules_that_are_not_compiled_at_installation_are_compiled_once() -> None:
    """Where the environment forbids byte code, each page's kernel would compile torch again."""
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert ("--no-compile" in make) == ("\nunexport PYTHONDONTWRITEBYTECODE\n" in make)


def test_licence_citation_changelog_and_package_agree_and_the_checked_papers_are_cited() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["license"] == "BSD-3-Clause" == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("BSD 3-Clause License")
    newest = re.findall(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)[0]
    assert newest == (citation["version"], str(citation["date-released"]))
    assert attnlib.__version__ == PROJECT["version"] == citation["version"]
    # By the titles and authors of the book's own references.
    papers = [part["paper"] for part in TOOL["bookkit"]["parts"].values() if "paper" in part]
    entries = (ROOT / "book" / "references.bib").read_text(encoding="utf-8").split("\n@")
    for paper, cited in zip(papers, citation["references"], strict=True):
        assert cited["url"] == f"https://arxiv.org/abs/{paper}"
        (entry,) = (entry for entry in entries if cited["url"] in entry)
        assert f"{{{cited['title']}}}" in entry
        names = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in cited["authors"])
        assert f"{{{names}}}" in entry


def test_a_part_copied_as_the_book_says_names_nothing_of_the_smallest_part(tmp_path: Path) -> None:
    (block,) = re.findall(r"```bash\n(part=.*?)```", (ROOT / "docs" / "adding.md").read_text(encoding="utf-8"), re.S)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in (name for name in listed if "one_token" in name):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for command in ("init --quiet", "add ."):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    subprocess.run(["bash", "-ec", block.replace("NAME", "many_words")], cwd=tmp_path, check=True)
    made = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*many_words*/*") if path.is_file()}
    assert {"book/attnbook/many_words/law.py", "notebooks/many_words/01_many_words.md"} <= set(made)
    assert (tmp_path / "tests" / "explorers" / "test_many_words.py").is_file()
    assert [name for name, path in made.items() if re.search(r"one[_-]token|\bK\d", path.read_text())] == []


# --- continuous integration -------------------------------------------------------------------------------------------

# Each release's commit, which nobody can move, as its tag names it in the action's own repository. All of them run on Node 24
# (`runs.using` in action.yml): those before run on Node 20, which GitHub has retired.
ACTIONS = {
    "actions/checkout": ("3d3c42e5aac5ba805825da76410c181273ba90b1", "v7.0.1"),
    "actions/setup-python": ("5fda3b95a4ea91299a34e894583c3862153e4b97", "v7.0.0"),
    "actions/upload-artifact": ("bbbca2ddaa5d8feaa63e36b76fdaad77386f024f", "v7.0.0"),
    "actions/upload-pages-artifact": ("fc324d3547104276b827a68afc52ff2a11cc49c9", "v5.0.0"),
    "actions/deploy-pages": ("cd2ce8fcbc39b97be8ca5fce6e763baed58fa128", "v5.0.0"),
}
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
WORKFLOWS = {
    path.stem: yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # BaseLoader: `on` stays a word
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
JOBS = {f"{name}-{job}": content for name, workflow in WORKFLOWS.items() for job, content in workflow["jobs"].items()}


def commands(job: dict) -> str:
    return "\n".join(step.get("run", "") for step in job.get("steps", []))


@pytest.mark.parametrize("name", JOBS)
def test_a_job_calls_what_exists_with_the_least_rights(name: str) -> None:
    job = JOBS[name]
    if uses := job.get("uses"):
        called = WORKFLOWS[uses.removeprefix("./.github/workflows/").removesuffix(".yml")]
        inputs = called["on"]["workflow_call"]["inputs"]
        assert (
            {each for each, asked in inputs.items() if asked["required"] == "true"} <= set(job["with"]) <= set(inputs)
        )
        assert {**job["permissions"]} == {**called["jobs"]["issue"]["permissions"]}
    else:
        assert int(job["timeout-minutes"]) > 0
    for step in job.get("steps", []):
        assert ("run" in step) != ("uses" in step)
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"
    assert set(re.findall(r"\bmake ([a-z]+)", commands(job))) <= TARGETS
    # Who may write runs nothing of the repository, and no package.
    writes = job["permissions"] != {"contents": "read"}
    if writes:
        allowed = (
            {"issues": "write"},
            {"pages": "write", "id-token": "write"},
            {"contents": "write", "actions": "read"},
        )
        assert job["permissions"] in allowed
    assert writes != bool(re.search(r"checkout@|\b(make|pip|python)\b", str(job.get("steps"))))


def test_published_pages_install_the_commit_of_their_book() -> None:
    """`make book` hands the commit on, and the branch that it fills is there before the HTML leads to it."""
    assert 'make book PIN="$(git rev-parse HEAD)"' in commands(JOBS["pages-build"])
    done = subprocess.run(["make", "-n", "book", "PIN=abc123"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(r"-m attnlib book .*--pin abc123$", done.stdout, flags=re.M)
    assert "git push --force" in commands(JOBS["pages-notebooks"])
    assert f" {PINNED}\n" in commands(JOBS["pages-notebooks"])
    assert JOBS["pages-deploy"]["needs"] == ["build", "notebooks"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_grants_nothing_by_itself_and_takes_actions_by_commit(name: str) -> None:
    workflow = WORKFLOWS[name]
    assert workflow["on"]
    assert workflow["permissions"] == {}
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    taken = re.findall(r"uses: (?!\./)(.*)", text)
    assert set(taken) <= {f"{action}@{commit}  # {tag}" for action, (commit, tag) in ACTIONS.items()}
    if "schedule" in workflow["on"]:  # what may fail unseen is told by an issue
        others = set(workflow["jobs"]) - {"tell"}
        assert set(workflow["jobs"]["tell"]["needs"]) == others
        # A job whose time ran out is no failure to GitHub, but cancelled; a run that a person cancelled is left alone.
        assert (
            workflow["jobs"]["tell"]["if"]
            == "${{ !cancelled() && (failure() || contains(needs.*.result, 'cancelled')) }}"
        )


def test_every_browser_test_waits_for_the_built_book() -> None:
    """Without the mark they run before the book is rendered, with the unit tests."""
    files = sorted((ROOT / "tests" / "browser").glob("test_*.py"))
    assert files
    assert [f.name for f in files if "pytestmark = pytest.mark.browser" not in f.read_text(encoding="utf-8")] == []
