"""Pages run, are kept by content, and survive what a cache must survive."""

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import papermill
import pytest

from bookkit.code import Code, code_of, tree_hash
from bookkit.pages import execution
from bookkit.pages.execution import PagesFailed, execute_pages, pins_hash
from bookkit.pages.one_page import PageError, as_text, read_source, run_source
from tests.house import ROOT
from tests.tiny_book import make_package, page_text, write

# What a page prints, and a line in a file outside the notebook for every time that it really ran.
COUNTING = """import attnlib
from pathlib import Path
with Path({log!r}).open("a") as log:
    log.write("{name}\\n")
print("value", attnlib.VALUE)"""


class Book:
    """Two pages, a package of one constant, a cache; `run()` returns what each page printed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = make_package(root, value=1)
        self.log = root / "runs.log"
        self.pages = [self.write_page(name) for name in ("one", "two")]

    def write_page(self, name: str, title: str = "A page") -> Path:
        text = page_text(COUNTING.format(log=str(self.log), name=name), title=title)
        return write(self.root / "notebooks" / f"{name}.md", text)

    def run(self, jobs: int = 1, parameters: dict | None = None, environment: dict | None = None) -> dict[str, str]:
        where = (self.root / "cache", self.root, Code((self.package,)))
        results = execute_pages(self.pages, parameters, jobs, *where, environment)
        return {path.stem: printed(nbformat.reads(r.notebook, 4)) for path, r in results.items()}

    def ran(self) -> list[str]:
        """Pages that ran since the last call."""
        names = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return sorted(names)


def printed(notebook) -> str:
    return "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", []))


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


# --- one page -------------------------------------------------------------------------------------------------------


def test_two_runs_of_a_page_give_the_same_bytes() -> None:
    source = page_text("x: int = 1", "print(x); x", "x")
    first, second = (as_text(run_source(source)) for _ in range(2))
    assert first == second
    stored = json.loads(first)
    assert set(stored["metadata"]) == {"kernelspec", "language_info", "jupytext"}
    assert "version" not in stored["metadata"]["language_info"]
    assert [cell["metadata"] for cell in stored["cells"]] == [{}] * 4
    assert [cell["execution_count"] for cell in stored["cells"] if cell["cell_type"] == "code"] == [1, 2, 3]


def test_ids_of_cells_stay_when_a_cell_is_inserted() -> None:
    before = [cell.id for cell in read_source(page_text("a = 1", "b = 2", "b = 2")).cells]
    after = [cell.id for cell in read_source(page_text("a = 1", "c = 3", "b = 2", "b = 2")).cells]
    assert len(set(before)) == 4  # equal cells have ids of their own
    assert [one for one in after if one in before] == before


def test_the_kernel_is_this_python_on_one_thread_in_an_empty_folder(tmp_path: Path, monkeypatch) -> None:
    """Whatever the reader's home calls "python3"; and this process stays as it was."""
    write(tmp_path / "kernels/python3/kernel.json", '{"argv": ["false"], "display_name": "", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = dict(os.environ)
    text = printed(run_source(page_text("import os\nprint(os.environ['OMP_NUM_THREADS'], os.listdir())")))
    assert text == "1 []\n"
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("x = 1\ny = 7\ny / 0", "code cell 2 failed with ZeroDivisionError: division by zero [at line 3: y / 0]"),
        ("x = 1\ny = = 2", "code cell 2 failed with SyntaxError"),
        ("def f():\n    raise KeyError('k')\n\nf()", "code cell 2 failed with KeyError: 'k' [at line 4: f()]"),
        ("raise SystemExit", "a cell ended the page with SystemExit"),
        (
            "import os\nos.write(2, b'out of luck')\nos._exit(3)",
            "the kernel failed in code cell 2: DeadKernelError: Kernel died",
        ),
    ],
)
def test_a_failing_page_names_page_cell_error_and_line(cell: str, expected: str) -> None:
    with pytest.raises(PageError) as caught:
        run_source(page_text("ok = True", cell, "never = 0"), page="notebooks/bad.md")
    assert str(caught.value).startswith("notebooks/bad.md: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_page_error_carries_traceback_and_executed_part_the_same_every_time() -> None:
    source = page_text(":tags: [parameters]\n\nn: int = 1", "print(n)", "def f():\n    return 1 / 0\n\nf()", "n")
    errors = []
    for _ in range(2):
        with pytest.raises(PageError) as caught:
            run_source(source, {"n": 5})
        errors.append(pickle.loads(pickle.dumps(caught.value)))  # as when it comes from another process
    first, second = errors
    # The cell that papermill adds for the parameters is not one of the page's.
    assert str(first) == "page: code cell 3 failed with ZeroDivisionError: division by zero [at line 4: f()]"
    assert (first.page, first.what, first.cell) == ("page", str(first).removeprefix("page: "), 3)
    assert "\x1b" not in first.traceback
    assert "in f()" in first.traceback
    assert printed(first.notebook) == "5\n"
    assert as_text(first.notebook) == as_text(second.notebook)


def test_a_page_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = tmp_path / "seen"
    run_source(page_text(f"import os\nopen({str(seen)!r}, 'w').write('\\n'.join(os.listdir({str(tmp_path)!r})))"))
    private = [name for name in seen.read_text().split() if name != "seen"]  # while the page ran: its folder, no key
    assert [name.startswith("page-") for name in private] == [True]
    assert list(tmp_path.iterdir()) == [seen]


@pytest.mark.parametrize(
    "cell",
    [
        "import os\nprint(os.getcwd())",
        "from pathlib import Path\nPath.home() / 'data'",
        "import attnlib\nattnlib",  # its repr shows the file
        "import sys\nfrom IPython.display import HTML\nHTML(f'<a href=\"file://{sys.prefix}/x\">x</a>')",
        "import warnings\nwarnings.warn('this quotes a temporary file')",
    ],
)
def test_a_path_of_this_machine_is_refused(cell: str) -> None:
    with pytest.raises(PageError, match="code cell 1 prints a path of this machine"):
        run_source(page_text(cell), code=code_of(ROOT))


def test_words_that_look_like_the_home_folder_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/root")
    words = "square/root, a/root/b, /rooted"
    assert printed(run_source(page_text(f"print({words!r})"))) == words + "\n"


# --- the cache ------------------------------------------------------------------------------------------------------


def test_unchanged_pages_come_from_the_cache(book: Book, capfd: pytest.CaptureFixture) -> None:
    first = book.run(jobs=2)
    assert first == {"one": "value 1\n", "two": "value 1\n"}
    assert book.ran() == ["one", "two"]
    assert "cached" not in capfd.readouterr().err
    assert book.run(jobs=2) == first
    assert book.ran() == []
    told = capfd.readouterr().err
    assert "notebooks/one.md  cached" in told
    assert "notebooks/two.md  cached" in told


def test_what_changed_runs_again_and_shows_the_new_number(book: Book) -> None:
    book.run()
    book.ran()
    book.write_page("two", title="Another title")
    book.run()
    assert book.ran() == ["two"]
    for change in ("attnlib/__init__.py", "attnlib/deep/new_module.py", "requirements.txt"):
        write(book.root / change, "numpy==2.0.1\n" if change.endswith("txt") else "VALUE = 2\n")
        assert book.run() == {"one": "value 2\n", "two": "value 2\n"}
        assert book.ran() == ["one", "two"], change


def test_other_parameters_and_another_environment_are_other_results(book: Book) -> None:
    show = "import os\nprint(n, os.environ.get('SHAKEN'))"
    book.pages = [write(book.pages[0], page_text(":tags: [parameters]\n\nn: int = 1", show))]
    given = [({}, {}), ({"n": 5}, {}), ({}, {}), ({"n": 5.0}, {}), ({"n": 5}, {"SHAKEN": "1"})]
    assert [book.run(1, *each)["one"] for each in given] == ["1 None\n", "5 None\n", "1 None\n", "5.0 None\n", "5 1\n"]


def test_a_damaged_entry_is_not_trusted_and_the_page_runs_again(book: Book) -> None:
    book.pages = book.pages[:1]
    whole = book.run()
    book.ran()
    [entry] = (book.root / "cache").rglob("*.json")
    kept = entry.read_bytes()
    assert execution._recall(entry) is not None
    one_letter = kept.replace(b"value 1", b"value 7")  # reads without complaint
    for damaged in (kept[: len(kept) // 2], b"", bytes(range(256)) * 8, one_letter):
        assert damaged != kept
        entry.write_bytes(damaged)
        assert execution._recall(entry) is None
    assert book.run() == whole
    assert book.ran() == ["one"]
    assert entry.read_bytes() != one_letter
    assert book.run() == whole
    assert book.ran() == []


def test_what_was_not_used_for_longest_leaves_the_cache_first(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(execution, "CACHE_LIMIT", 25)
    for age, name in enumerate(("new", "deep/middle", "old")):
        os.utime(write(tmp_path / name, "ten bytes\n"), (10**9, 10**9 - age))
    execution._shorten(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["middle", "new"]


def test_a_build_killed_in_the_middle_is_taken_up_where_it_was(book: Book) -> None:
    # The second page waits for as long as this file is there.
    wait, started = write(book.root / "wait", ""), book.root / "started"
    slow = f"from pathlib import Path\nimport time\nPath({str(started)!r}).touch()\n"
    slow += f"while Path({str(wait)!r}).exists():\n    time.sleep(0.05)\nprint('slow')"
    write(book.pages[1], page_text(slow))
    script = write(
        book.root / "build.py",
        "import sys; from pathlib import Path\n"
        "from bookkit.pages.execution import execute_pages\n"
        "root = Path(sys.argv[1])\n"
        "if __name__ == '__main__':\n"
        "    pages = [root / 'notebooks/one.md', root / 'notebooks/two.md']\n"
        "    execute_pages(pages, {}, 2, root / 'cache', root)\n",
    )
    build = subprocess.Popen([sys.executable, "-P", script, book.root], stderr=subprocess.DEVNULL)
    while not (started.exists() and list((book.root / "cache").rglob("*.json"))):
        assert build.poll() is None, "the build ended before its second page"
        time.sleep(0.05)
    build.send_signal(signal.SIGKILL)
    assert build.wait() == -signal.SIGKILL
    kept = list((book.root / "cache").rglob("*.json"))
    assert len(kept) == 1
    book.ran()
    wait.unlink()
    assert book.run(jobs=2) == {"one": "value 1\n", "two": "slow\n"}
    assert book.ran() == []  # the first page, finished before the kill, did not run again


def test_a_page_that_fails_leaves_the_others_finished_and_kept(book: Book, capfd: pytest.CaptureFixture) -> None:
    write(book.pages[0], page_text("1 / 0"))
    third = write(book.root / "notebooks" / "three.md", "---\nnot: [yaml\n---\n")
    book.pages.append(third)
    with pytest.raises(PagesFailed) as caught:
        book.run(jobs=2)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("notebooks/one.md: code cell 1 failed with ZeroDivisionError")
    assert lines[1].startswith("notebooks/three.md: not a MyST Markdown notebook")
    assert book.ran() == ["two"]
    assert "notebooks/one.md  FAILED" in capfd.readouterr().err
    book.pages = book.pages[1:2]
    assert book.run() == {"two": "value 1\n"}
    assert book.ran() == []  # it was kept


def test_a_failed_page_is_not_kept_as_a_result(book: Book) -> None:
    gate = book.root / "gate"
    book.pages = [write(book.pages[0], page_text(f"assert __import__('os').path.exists({str(gate)!r})"))]
    with pytest.raises(PagesFailed):
        book.run()
    gate.touch()
    assert book.run() == {"one": ""}


class TakenPorts:
    """papermill, but the first `times` kernels find one of their ports taken, as the log says, or die in another way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int, log: str) -> None:
        self.real, self.times, self.log, self.starts = papermill.execute_notebook, times, log, 0
        monkeypatch.setattr(papermill, "execute_notebook", self)

    def __call__(self, notebook, saved: str, **options: object):
        self.starts += 1
        if self.starts <= self.times:
            (Path(saved).parent / "kernel.log").write_text(f"Traceback\n{self.log}\n")
            raise RuntimeError("Kernel died before replying to kernel_info")
        return self.real(notebook, saved, **options)


def test_a_kernel_whose_port_was_taken_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run_source(page_text("print(2 + 3)"))
    taken = TakenPorts(monkeypatch, 2, "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:1')")
    assert as_text(run_source(page_text("print(2 + 3)"))) == as_text(plain)
    assert taken.starts == 3


@pytest.mark.parametrize(("times", "log", "starts"), [(3, "Address already in use", 3), (1, "Killed", 1)])
def test_a_kernel_that_does_not_start_is_an_error_in_the_end(monkeypatch, times: int, log: str, starts: int) -> None:
    taken = TakenPorts(monkeypatch, times, log)
    with pytest.raises(PageError, match=f"the kernel failed: RuntimeError: Kernel died .* {log}"):
        run_source(page_text("print(2 + 3)"))
    assert taken.starts == starts


# --- bad input ------------------------------------------------------------------------------------------------------


def test_bad_calls_are_refused_before_anything_runs(book: Book) -> None:
    with pytest.raises(ValueError, match=r"jobs must be a whole number >= 1; got 0"):
        book.run(jobs=0)
    book.pages.append(book.root / "notebooks" / "none.md")
    with pytest.raises(FileNotFoundError, match=r"pages must be files that exist; got .*none\.md"):
        book.run()
    assert book.ran() == []
    with pytest.raises(FileNotFoundError, match=r"root must hold requirements\.txt"):
        pins_hash(book.root / "notebooks")


def test_the_package_hash_sees_names_and_bytes_but_not_byte_code(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    write(folder / "a.py", "x = 1\n")
    plain = tree_hash(folder)
    write(folder / "__pycache__" / "a.pyc", "anything")
    assert tree_hash(folder) == plain
    (folder / "a.py").rename(folder / "b.py")
    renamed = tree_hash(folder)
    assert renamed != plain
    write(folder / "c.cpp", "int x;\n")
    assert tree_hash(folder) != renamed


def test_what_is_printed_in_pieces_is_stored_in_one() -> None:
    """A kernel sends what is printed whenever some time has passed; the stored page must not depend on its pace."""
    code = "import time\nfor word in ('one', 'two'):\n    print(word, flush=True)\n    time.sleep(0.4)\ndisplay(3)\nprint('three')"
    (cell,) = [cell for cell in run_source(page_text(code)).cells if code in cell.source]
    assert [output.output_type for output in cell.outputs] == ["stream", "display_data", "stream"]
    assert [output.text for output in cell.outputs if output.output_type == "stream"] == ["one\ntwo\n", "three\n"]
