"""`make check`: what a change reaches, in which order, and what a run that must end in time leaves out."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import check
from tests.tiny_book import write

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    "attnlib/__init__.py": "",
    "attnlib/a.py": "CONSTANT = 1\n",
    "attnlib/b.py": "def late():\n    from attnlib import a\n    return a\n",
    "attnlib/c.py": "",
    "attnlib/c_table.json": "{}",
    "attnlib/extension.py": "",
    "attnlib/_loops.py": "from attnlib import c\n",
    "attnlib/fast.py": "SOURCE = Path(__file__).with_name('_loops.py')\n",
    "_config.yml": "extensions: [attnlib.extension]\n",
    "book/page.md": "# Page\n",
    "tests/__init__.py": "",
    "tests/conftest.py": "",
    "tests/helper.py": "import attnlib.c\n",
    "tests/test_a.py": "from attnlib.a import CONSTANT\n",
    "tests/test_b.py": "from attnlib.b import late\n",
    "tests/test_c.py": "from tests.helper import attnlib\nNAME = 'c_table.json'\n",
    "tests/test_command.py": "COMMAND = ['-m', 'attnlib.b']\n",
    "tests/test_fast.py": "import attnlib.fast\n",
    "tests/test_prose.py": 'PAGES = ROOT / "book", ROOT / "_config.yml"\n',
    "tests/browser/test_page.py": "from attnlib import a\n",
}
REACHED = {
    "attnlib/a.py": ["a", "b", "command"],  # test_a imports it itself
    "attnlib/b.py": ["b", "command"],
    "attnlib/c.py": ["c", "fast"],
    "attnlib/_loops.py": ["fast"],  # read as text, and compiled
    "attnlib/extension.py": ["prose"],  # loaded by Sphinx
    "attnlib/c_table.json": ["c"],
    "tests/helper.py": ["c"],
    "tests/test_a.py": ["a"],
    "tests/conftest.py": ["a", "b", "c", "command", "fast", "prose"],
    "book/page.md": ["prose"],
    "attnlib/gone.py": [],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        write(tmp_path / name, text)
    return tmp_path


def names(paths: list[Path]) -> list[str]:
    return [path.stem.removeprefix("test_") for path in paths]


@pytest.mark.parametrize("changed", REACHED)
def test_what_a_change_reaches_the_nearest_first(changed: str, root: Path) -> None:
    assert names(check.reached_tests(root, [Path(changed)])) == REACHED[changed]
    if changed == "attnlib/a.py":  # a module that is gone reaches whoever still imports it
        (root / changed).unlink()
        assert names(check.reached_tests(root, [Path(changed)])) == REACHED[changed]


def test_every_module_of_this_repository_is_reached_by_some_test() -> None:
    """Otherwise a change of it would be checked by nothing, and green all the same."""
    known = check.modules(ROOT)
    ours = [path for name, path in known.items() if name.startswith(("attnlib.", "attnbook.", "bookkit."))]
    code = [path for path in ours if path.name != "__main__.py"]
    assert len(code) > 200
    graph = check.graph(ROOT, known)
    reached = {path for path in graph if path.name.startswith("test_") and "browser" not in path.parts}
    waiting = list(reached)
    while waiting:
        new = graph.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    assert [str(path) for path in code if path not in reached] == []


def test_changes_since_main_committed_or_not(root: Path) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)

    with pytest.raises(check.CheckError, match="run this in a clone of the repository"):
        check.starting_point(root)
    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "first")
    first = check.starting_point(root)
    assert check.changed_files(root, first) == []
    write(root / ".gitignore", "ignored\n")
    git("switch", "-c", "mine")
    git("add", ".gitignore")
    git("commit", "-m", "second")
    assert check.starting_point(root) == first
    write(root / "attnlib" / "a.py", "CONSTANT = 2\n")
    write(root / "attnlib" / "new file.py", "")
    write(root / "ignored", "")
    (root / "attnlib" / "c.py").unlink()
    expected = [".gitignore", "attnlib/a.py", "attnlib/c.py", "attnlib/new file.py"]
    assert [path.as_posix() for path in check.changed_files(root, first)] == expected
    assert check.starting_point(root, "HEAD") != first
    # A docstring and a comment are words; half a line is no such thing, nor a text that is a value, nor a new module.
    for text, words in (
        ('"""New."""\n# why\nCONSTANT = 1\n', True),
        ("CONSTANT = (\n", False),
        ('CONSTANT = "1"\n', False),
    ):
        write(root / "attnlib" / "a.py", text)
        assert check.only_words(root, first, Path("attnlib/a.py")) == words, text
    others = [Path("attnlib/new file.py"), Path("attnlib/c.py"), Path(".gitignore")]
    assert not any(check.only_words(root, first, path) for path in others)
    with pytest.raises(check.CheckError, match="nowhere"):
        check.starting_point(root, "nowhere")


# --- a run that ends in time ------------------------------------------------------------------------------------------

TESTS = """
import pytest

def test_quick(): pass
def test_other(): pass
@pytest.mark.timeout(900)
def test_patient(): pass
"""


@pytest.mark.parametrize(
    ("budget", "jobs", "kept"), [(600, 0, {"quick", "other"}), (600, 1, {"quick", "other"}), (0, 0, set())]
)
def test_slow_and_late_tests_are_left_out_and_counted(budget: int, jobs: int, kept: set[str], tmp_path: Path) -> None:
    write(tmp_path / "test_it.py", TESTS)
    write(tmp_path / "pytest.ini", "[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "tests.check", "-p", "pytest_timeout", "-p", "xdist.plugin"]
    command += ["-n", str(jobs), "--budget", str(budget)]
    plain = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    done = subprocess.run(command, cwd=tmp_path, env=plain, capture_output=True, text=True, check=False)
    # xdist writes the outcome first.
    told = re.findall(r"(?:(PASSED|SKIPPED) )?test_it\.py::test_(\w+)(?: (PASSED|SKIPPED))?", done.stdout)
    assert {name for before, name, after in told if "PASSED" in (before, after)} == kept
    assert f"Left out: {3 - len(kept)} slow or late tests" in done.stdout
    assert done.returncode == (0 if kept else 1)  # where nothing was checked it is no success
    assert ("nothing was checked" in done.stdout) == (not kept)


LETTERS = ((True, f"{check.LEFT_OUT}the time is up"), (True, "no GPU"), (False, f"{check.LEFT_OUT}the time is up"))


def test_only_what_is_left_out_prints_no_letter() -> None:
    told = [SimpleNamespace(skipped=skipped, longrepr=("file", 1, text)) for skipped, text in LETTERS]
    assert [check.pytest_report_teststatus(report) for report in told] == [("skipped", "", "SKIPPED"), None, None]
