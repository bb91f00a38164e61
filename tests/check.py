"""`make check`: the unit tests that a change can reach, the nearest first, in about a minute.

    python -m tests.check [--since COMMIT] [--jobs N] [--seconds S] [--list]

A test file is reached when it imports a changed module, itself or through others, or when it, or such a module, names a
changed file that is no module; a changed page reaches the tests of all pages, a changed docstring those that read
docstrings. Files that import it directly run first.
What has not begun in time is left out, and so is a test that asks for patience by a mark `timeout` of its own. Before
all of them, and whatever changed, come those that find a claim or a page half made.
Pages and browser tests are never run here. So green means "go on", not "proven".
"""

import argparse
import ast
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from bookkit.parser import answered

CODE = ("attnlib", "book/attnbook", "book/bookkit", "benchmarks", "tests")
# A claim in the code is on a stored page, and registered; both files of a page say the same.
HALF_MADE = (
    "tests/test_replication.py::test_every_claim_of_the_code_is_on_a_stored_page",
    "tests/test_replication.py::test_every_claim_is_registered_as_it_stands",
    "tests/test_pages.py::test_a_page_is_as_a_page_must_be",
)
READERS = (Path("tests/test_reference.py"), Path("tests/test_prose.py"))  # of docstrings
MAIN = ("origin/main", "main", "HEAD")  # what a change is compared with: where it left the first of these that is there


class CheckError(Exception):
    """The change cannot be found. The message says why and what to do."""


# --- what changed -----------------------------------------------------------------------------------------------------


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CheckError(f"git {' '.join(arguments)}: {done.stderr.strip()}: run this in a clone of the repository")
    return done.stdout


def starting_point(root: Path, since: str | None = None) -> str:
    """The commit that a change is compared with: `since`, or where HEAD left main. Raises CheckError for an unknown one."""
    if since is not None:
        return _git(root, "rev-parse", "--verify", f"{since}^{{commit}}").strip()
    known = _git(root, "for-each-ref", "--format=%(refname:short)").split()
    return _git(root, "merge-base", "HEAD", next(name for name in MAIN if name in (*known, "HEAD"))).strip()


def changed_files(root: Path, commit: str) -> list[Path]:
    """Files that differ from `commit`, committed or not, new or gone; relative to `root`."""
    tracked = _git(root, "diff", "--name-only", "--no-renames", "-z", commit).split("\0")
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return sorted({Path(name) for name in tracked if name} | {Path(name) for name in new if (root / name).is_file()})


def only_words(root: Path, commit: str, path: Path) -> bool:
    """Whether only docstrings and comments of a module changed: it computes what it did."""
    before = subprocess.run(
        ["git", "show", f"{commit}:{path.as_posix()}"], cwd=root, capture_output=True, text=True, check=False
    )
    if path.suffix != ".py" or before.returncode != 0 or not (root / path).is_file():
        return False
    try:
        return _without_words(before.stdout) == _without_words((root / path).read_text(encoding="utf-8"))
    except SyntaxError:  # half written: the tests will say so
        return False


def _without_words(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:]
    return ast.dump(tree)


# --- what it reaches --------------------------------------------------------------------------------------------------


def modules(root: Path) -> dict[str, Path]:
    """Every module of the repository by its dotted name; a package by the name of its folder."""
    found = {"conftest": Path("conftest.py")}
    for folder in CODE:
        found |= {_dotted(path.relative_to(root)): path.relative_to(root) for path in (root / folder).rglob("*.py")}
    return found


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts if path.suffix == ".py" else path.parts
    parts = parts[1:] if parts[:1] == ("book",) else parts  # packages there are imported by their own names
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, text: str, known: Mapping[str, Path], settings: Iterable[str] = ()) -> set[Path]:
    """Modules of the repository that `path` imports at any place, or names in a string, and its conftest files.

    In strings stand: modules that are run (`python -m`), modules beside this one (of generated sources, or imported by
    a list of names), and `_config.yml`, whose modules (`settings`) Sphinx loads.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            beside = _dotted(path.parent / node.value.removesuffix(".py")) if node.value.isprintable() else ""
            names |= {node.value, beside} & set(known)
            if path.parts[0] in ("tests", "benchmarks"):  # elsewhere "attnlib" is a word
                names |= {f"{node.value}.__main__"} & set(known)
            names |= set(settings) if node.value == "_config.yml" else set()
        elif isinstance(node, ast.Name) and path.name == "__init__.py" and node.id in ("__path__", "__name__"):
            # A package that looks into its own folder, or tells somebody its name, imports all of it.
            names |= {name for name, other in known.items() if other.parent == path.parent}
    parts = [name.split(".") for name in names]  # a module's packages are imported with it
    within = {".".join(each[: i + 1]) for each in parts for i in range(len(each))}
    found = {known[name] for name in within if name in known}
    if path.parts[0] == "tests":
        found |= {folder / "conftest.py" for folder in path.parents}
    return found - {path}


def graph(root: Path, known: Mapping[str, Path]) -> dict[Path, set[Path]]:
    """What each module imports (see `imports`)."""
    settings = set(re.findall(r"[\w.]+", (root / "_config.yml").read_text(encoding="utf-8"))) & set(known)
    there = [path for path in known.values() if (root / path).is_file()]
    return {path: imports(path, (root / path).read_text(encoding="utf-8"), known, settings) for path in there}


def names_it(reader: Path, text: str, path: Path) -> bool:
    """Whether the module `reader` with this `text` has to do with the file `path`, which is no module: its name stands there.

    A file beside modules is a table that one of them reads. Any other is read by tests alone, as far as a change goes: all of the
    book would follow from pyproject.toml. A test of all pages, which names their folder, reads each.
    """
    if any(path.is_relative_to(folder) for folder in CODE):
        return path.name in text
    is_page = path.suffix in (".md", ".ipynb") and len(path.parts) > 1
    return reader.name.startswith("test_") and (path.name in text or (is_page and f'"{path.parts[0]}"' in text))


def reached_tests(root: Path, changed: Iterable[Path]) -> list[Path]:
    """Test files that `changed` reaches, those of the fewest steps first (a changed test file itself is at zero)."""
    changed = list(changed)
    known = {_dotted(path): path for path in changed if path.suffix == ".py"} | modules(root)
    importers: dict[Path, set[Path]] = {}
    modules_there = graph(root, known)
    for path, imported in modules_there.items():
        for other in imported:
            importers.setdefault(other, set()).add(path)
    for path in changed:
        if path not in modules_there and path not in importers:  # data, prose, a script; not a module that is gone
            importers[path] = {
                other for other in modules_there if names_it(other, (root / other).read_text("utf-8"), path)
            }
    steps = {path: 0 for path in changed}
    waiting = deque(steps)
    while waiting:
        path = waiting.popleft()
        for importer in importers.get(path, ()):
            if importer not in steps:
                steps[importer] = steps[path] + 1
                waiting.append(importer)
    tests = [path for path in steps if path in modules_there and path.name.startswith("test_")]
    tests = [path for path in tests if path.parts[:2] != ("tests", "browser")]
    return sorted(tests, key=lambda path: (steps[path], path))


# --- what is left out: this module is a pytest plugin too, `-p tests.check --budget SECONDS` ---------------------------

LEFT_OUT = "left out of a quick run: "
_begun: list[float] = []  # when the first test of this process began


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", type=float, required=True, help="begin no test so many seconds after the first")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _begun[:] = _begun or [time.monotonic()]
    if time.monotonic() - _begun[0] > item.config.getoption("budget"):
        pytest.skip(f"{LEFT_OUT}the time is up")
    if item.get_closest_marker("timeout"):
        pytest.skip(f"{LEFT_OUT}asks for patience")


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """What is left out is counted at the end; a letter for each would fill the screen."""
    return ("skipped", "", "SKIPPED") if report.skipped and LEFT_OUT in str(report.longrepr) else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run that left out everything fails: nothing was checked."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):  # xdist: the workers' reports come to one process
        return
    left_out = sum(LEFT_OUT in str(report.longrepr) for report in reporter.stats.get("skipped", []))
    reporter.write_line(f"\nLeft out: {left_out} slow or late tests. `make unit` runs them all.")
    if left_out and session.exitstatus == pytest.ExitCode.OK and not reporter.stats.get("passed"):
        reporter.write_line("error: nothing was checked: all tests that were reached are left out", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


# --- command line -----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of `python -m tests.check`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.check", description="Fast tests of what changed.")
    parser.add_argument("--since", help="commit to compare with (default: where HEAD left main)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--seconds", type=float, default=40.0, help="begin no test so long after the first (40)")
    parser.add_argument("--list", action="store_true", help="only list the test files")
    options = parser.parse_args(argv)
    root = Path(__file__).resolve().parents[1]
    try:
        commit = starting_point(root, options.since)
        changed = changed_files(root, commit)
    except CheckError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    words = {path for path in changed if only_words(root, commit, path)}
    tests = reached_tests(root, set(changed) - words)
    tests += [path for path in READERS if words and path not in tests]
    print(f"Changed since {commit[:7]}: {len(changed)} files. They reach {len(tests)} test files.", flush=True)
    if options.list:
        print(*tests, sep="\n")
    if options.list or not tests:
        return 0
    run = [sys.executable, "-m", "pytest", "-q"]
    if status := subprocess.run([*run, "-n", "0", "--tb", "short", *HALF_MADE], cwd=root, check=False).returncode:
        return status
    # One file after the other, as they are ordered here.
    fixed = "--maxfail 5 --dist loadfile --no-loadscope-reorder -p tests.check".split()
    command = [*run, *fixed, "-m", "not browser and not weekly"]
    command += ["-n", str(options.jobs), "--budget", str(options.seconds)]
    return subprocess.run([*command, *map(str, tests)], cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(answered("check", main))
