"""Pages run, are kept by content, and survive what a cache must survive."""

import json
import os
import pickle
import re
import sys
import tempfile
from pathlib import Path

import nbformat
import papermill
import pytest
from joblib.externals.loky.process_executor import BrokenProcessPool
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookkit.code import NO_CODE, Code, tree_hash
from bookkit.pages import execution
from bookkit.pages.environment import chosen, page_environment
from bookkit.pages.execution import PagesFailed, execute_pages, pins_hash
from bookkit.pages.one_page import PageError, as_text, read_source, refuse_machine_paths, run_in_folder, run_source
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

    def run(self, jobs: int = 1, environment: dict | None = None) -> dict[str, str]:
        where = (self.root / "cache", self.root, Code((self.package,)))
        results = execute_pages(self.pages, jobs, *where, environment)
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


def test_two_runs_of_a_page_give_the_same_bytes_however_it_prints() -> None:
    pieces = "import time\nfor word in ('one', 'two'):\n    print(word, flush=True)\n    time.sleep(0.4)\ndisplay(3)"
    source = page_text("x: int = 1", f"{pieces}\nprint('three'); x")
    first, second = (as_text(run_source(source)) for _ in range(2))
    assert first == second
    stored = json.loads(first)
    assert set(stored["metadata"]) == {"kernelspec", "language_info", "jupytext"}
    assert "version" not in stored["metadata"]["language_info"]
    assert [cell["metadata"] for cell in stored["cells"]] == [{}] * 3

    assert [cell["execution_count"] for cell in stored["cells"] if cell["cell_type"] == "code"] == [1, 2]
    outputs = nbformat.reads(first, 4).cells[-1].outputs  # a kernel sends what is printed at its own pace
    assert [o.get("text") for o in outputs] == ["one\ntwo\n", None, "three\n", None]


def test_a_notebook_keeps_which_tables_were_read_while_it_ran() -> None:
    note = "import os\nwith open(os.environ['BOOKKIT_TABLES'], 'a') as file:\n    print('{}', file=file)"
    lines = [f"{'b' * 64}  b/two words.npz", f"{'a' * 64}  a.json", f"{'b' * 64}  b/two words.npz"]
    kept = run_source(page_text(*(note.format(line) for line in lines))).metadata["tables"]
    assert list(kept.items()) == [("a.json", "a" * 64), ("b/two words.npz", "b" * 64)]


def test_ids_of_cells_stay_when_a_cell_is_inserted() -> None:
    before = [cell.id for cell in read_source(page_text("a = 1", "b = 2", "b = 2")).cells]
    after = [cell.id for cell in read_source(page_text("a = 1", "c = 3", "b = 2", "b = 2")).cells]
    assert len(set(before)) == 4  # equal cells have ids of their own
    assert [one for one in after if one in before] == before


def test_the_kernel_is_this_python_on_one_thread_in_a_private_folder_that_goes(tmp_path: Path, monkeypatch) -> None:
    """Whatever the reader's home calls "python3"; and this process stays as it was."""
    write(tmp_path / "kernels/python3/kernel.json", '{"argv": ["false"], "display_name": "", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    before = dict(os.environ)
    look = f"print(os.environ['OMP_NUM_THREADS'], os.listdir(), len(os.listdir({tempfile.tempdir!r})))"
    assert printed(run_source(page_text(f"import os\n{look}"))) == "1 [] 1\n"  # its folder, and no key beside it
    assert dict(os.environ) == before
    assert os.listdir(tempfile.tempdir) == []


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("x = 1\ny = = 2", "code cell 2 failed with SyntaxError"),
        ("raise SystemExit", "code cell 2 ended the page with SystemExit"),
        ("import os\nos._exit(3)", "the kernel failed in code cell 2: DeadKernelError: Kernel died"),
    ],
)
def test_a_failing_page_names_page_cell_and_error(cell: str, expected: str) -> None:
    with pytest.raises(PageError) as caught:
        run_source(page_text("ok = True", cell, "never = 0"), page="notebooks/bad.md")
    assert str(caught.value).startswith("notebooks/bad.md: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (page_text("x = 'a\u2028b'"), "line 16 holds the invisible U+2028"),
        (page_text("x = 1", title="A\x0cB"), "line 13 holds the invisible U+000C"),
        (page_text("x = 1").replace("---\n", "---\norphan: true\n", 1), "got orphan, which would be lost"),
        (page_text("x = 1", "!false"), "code cell 2 holds `!false`, which no runner of pages hears"),
        (page_text("if True:\n    exit()"), "code cell 1 holds `exit()`, which no runner of pages hears"),
    ],
)
def test_what_would_be_lost_of_a_page_is_refused_before_it_runs(source: str, told: str) -> None:
    with pytest.raises(PageError, match=re.escape(told)):
        run_source(source)


def test_a_page_error_carries_traceback_and_executed_part(tmp_path: Path) -> None:
    source = page_text(":tags: [parameters]\n\nn: int = 1", "print(n)", "def f():\n    return 1 / 0\n\nf()", "n")
    with pytest.raises(PageError) as caught:
        run_in_folder(tmp_path, source, {"n": 5}, "page", NO_CODE)
    error = pickle.loads(pickle.dumps(caught.value))  # as when it comes from another process
    # The cell that papermill adds for the parameters is not one of the page's.
    assert str(error) == "page: code cell 3 failed with ZeroDivisionError: division by zero [at line 4: f()]"
    assert (error.page, error.what, error.cell) == ("page", str(error).removeprefix("page: "), 3)
    assert "\x1b" not in error.traceback
    assert "in f()" in error.traceback
    assert printed(error.notebook) == "5\n"


def test_a_path_of_this_machine_is_refused_and_words_like_one_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/root")
    paths = (
        "see /root/data",
        f"<a href='{sys.prefix}/x'>",
        "/folder/of/code/a.py",
        "/tmp/ipykernel_12/3.py:1: Warning",
    )
    for text in (*paths, "square/root, a/root/b, /rooted"):
        shown = new_output("display_data", data={"text/html": text})
        page = new_notebook(cells=[new_code_cell("x", outputs=[shown])])
        if text in paths:
            with pytest.raises(PageError, match="code cell 1 prints a path of this machine"):
                refuse_machine_paths(page, "page", [Path("/folder/of/code")])
        else:
            assert refuse_machine_paths(page, "page") is None
    with pytest.raises(PageError, match="prints a path of this machine"):
        run_source(page_text("import os\nos.getcwd()"))
    # A container's user without a name has no home.
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert refuse_machine_paths(page, "page") is None


# --- the cache ------------------------------------------------------------------------------------------------------


def test_unchanged_pages_are_kept_and_what_changed_runs_again(book: Book, capfd: pytest.CaptureFixture) -> None:
    first = book.run(jobs=2)
    assert first == {"one": "value 1\n", "two": "value 1\n"}
    assert book.ran() == ["one", "two"]
    assert "cached" not in capfd.readouterr().err
    assert book.run() == first
    assert book.ran() == []
    told = capfd.readouterr().err
    assert "notebooks/one.md  cached" in told
    assert "notebooks/two.md  cached" in told
    book.write_page("two", title="Another title")
    book.run()
    assert book.ran() == ["two"]
    book.pages = book.pages[:1]
    for change in ("attnlib/__init__.py", "attnlib/deep/new_module.py", "requirements.txt", "constraints.txt"):
        write(book.root / change, "numpy==2.0.1\n" if change.endswith("txt") else "VALUE = 2\n")
        assert book.run() == {"one": "value 2\n"}
        assert book.ran() == ["one"], change


# What shells, containers and servers set, and what people try: none of it may change an output.
HOSTILE = {
    "MPLBACKEND": "Agg", "MPLCONFIGDIR": "here", "MATPLOTLIBRC": "here", "IPYTHONDIR": "here", "IPYTHON_PROFILE": "mine",
    "JUPYTER_PATH": "here", "JUPYTER_CONFIG_DIR": "here", "JUPYTER_RUNTIME_DIR": "here", "PYTHONPATH": "here", "PYTHONSTARTUP": "here",
    "PYTHONHASHSEED": "7",
    "PYTHONOPTIMIZE": "2", "PYTHONWARNINGS": "error", "PYTHONBREAKPOINT": "0", "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0",
    "PYTHONDEVMODE": "1", "PYTHONTRACEMALLOC": "1", "LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR", "LANGUAGE": "de", "TZ": "Asia/Tokyo",
    "COLUMNS": "40", "LINES": "5", "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "7", "MKL_NUM_THREADS": "7",
    "OPENBLAS_NUM_THREADS": "7", "NUMBA_NUM_THREADS": "7", "NUMBA_DISABLE_JIT": "1", "NUMBA_FASTMATH": "1", "TORCH_LOGS": "all",
    "TORCHDYNAMO_DISABLE": "1", "PYTORCH_JIT": "0", "CUBLAS_WORKSPACE_CONFIG": ":16:8", "NUMPY_EXPERIMENTAL_ARRAY_FUNCTION": "0",
    "NPY_PROMOTION_STATE": "legacy", "PANDAS_COPY_ON_WRITE": "0", "SCIPY_ARRAY_API": "1", "SOURCE_DATE_EPOCH": "0", "DISPLAY": ":0",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_no_variable_of_a_shell_reaches_a_page(monkeypatch, tmp_path: Path, name: str) -> None:
    monkeypatch.delenv(name, raising=False)
    clean = page_environment(tmp_path)
    monkeypatch.setenv(name, HOSTILE[name])
    assert page_environment(tmp_path) == clean
    assert name not in chosen()


def test_who_has_no_home_has_another_place_for_the_list_of_fonts(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "MPLCONFIGDIR" not in page_environment(tmp_path)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # a container's user without a name
    for leave in (lambda: monkeypatch.setenv("HOME", "/dev/null"), lambda: monkeypatch.delenv("HOME")):
        leave()
        assert page_environment(tmp_path)["MPLCONFIGDIR"] == str(tmp_path / "matplotlib")


@pytest.mark.parametrize("full", ["HOME", "XDG_CACHE_HOME"])
def test_a_full_disk_at_home_is_not_told_in_a_page(monkeypatch, tmp_path: Path, full: str) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    assert "MPLCONFIGDIR" not in page_environment(tmp_path)
    opened = tempfile.TemporaryFile

    def no_room(dir: str):
        if dir == str(tmp_path / full):
            raise OSError(28, "No space left on device")
        return opened(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", no_room)
    assert page_environment(tmp_path)["MPLCONFIGDIR"] == str(tmp_path / "matplotlib")


def test_a_page_is_the_same_in_a_hostile_shell(tmp_path: Path, monkeypatch) -> None:
    draw = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    tell = "import locale, shutil, sys, time\nprint([*{'a', 'b', 'c'}], sys.flags, time.tzname, locale.getlocale())"
    tell += "\nprint(shutil.get_terminal_size())\nimport numpy\nprint(numpy.array([1 / 3]))"
    text = page_text("print(list(range(3)))", draw, tell)
    clean = run_source(text)
    home = tmp_path / "home"
    write(home / ".ipython/profile_default/startup/00.py", "range = lambda n: 'not a range'")
    write(home / "here/sitecustomize.py", "import numpy\nnumpy.set_printoptions(precision=3)")
    write(home / ".config/matplotlib/matplotlibrc", "lines.linewidth: 20")
    write(tmp_path / "matplotlibrc", "figure.dpi: 10")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")))  # of fonts
    for name, value in {**HOSTILE, "HOME": str(home)}.items():
        monkeypatch.setenv(name, str(home / value) if value == "here" else value)
    found = run_source(text)
    assert [cell.get("outputs") for cell in found.cells] == [cell.get("outputs") for cell in clean.cells]
    assert "image/png" in str(found.cells)


def test_what_is_asked_for_reaches_a_page_and_names_its_result(monkeypatch, book: Book) -> None:
    show = "import os\nprint(os.environ.get('ATTNLIB_SHAKE'), os.environ['OMP_NUM_THREADS'])"
    book.pages = [write(book.pages[0], page_text(show))]
    assert book.run() == {"one": "None 1\n"}
    assert book.run(environment={"ATTNLIB_SHAKE": "1"}) == {"one": "1 1\n"}
    monkeypatch.setenv("ATTNLIB_SHAKE", "3")
    monkeypatch.setenv("BOOKKIT_THREADS", "2")
    assert book.run() == {"one": "3 2\n"}
    monkeypatch.delenv("ATTNLIB_SHAKE")
    monkeypatch.delenv("BOOKKIT_THREADS")
    book.ran()
    assert (book.run(), book.ran()) == ({"one": "None 1\n"}, [])


def test_a_damaged_entry_is_not_trusted_and_the_page_runs_again(book: Book) -> None:
    book.pages = book.pages[:1]
    whole = book.run()
    book.ran()
    [entry] = (book.root / "cache").rglob("*.json")
    kept = entry.read_bytes()
    one_letter = kept.replace(b"value 1", b"value 7")  # reads without complaint
    for damaged in (kept[: len(kept) // 2], b"", bytes(range(256)) * 8, one_letter):
        entry.write_bytes(damaged)
        assert execution._recall(entry) is None
    assert book.run() == whole
    assert book.ran() == ["one"]
    assert execution._recall(entry) is not None


def test_what_was_not_used_for_longest_leaves_the_cache_first(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(execution, "CACHE_LIMIT", 25)
    for age, name in enumerate(("new", "deep/middle", "old")):
        os.utime(write(tmp_path / name, "ten bytes\n"), (10**9, 10**9 - age))
    execution._shorten(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["middle", "new"]


def test_a_page_that_fails_leaves_the_others_finished_and_kept(book: Book, capfd: pytest.CaptureFixture) -> None:
    write(book.pages[0], page_text("1 / 0"))
    book.pages.append(write(book.root / "notebooks" / "three.md", "---\nnot: [yaml\n---\n"))
    for again in (["two"], []):  # what failed is tried again, what was finished is kept
        with pytest.raises(PagesFailed) as caught:
            book.run(jobs=2)
        one, three = str(caught.value).splitlines()
        assert one.startswith("notebooks/one.md: code cell 1 failed with ZeroDivisionError")
        assert three.startswith("notebooks/three.md: not a MyST Markdown notebook")
        assert book.ran() == again
        assert "notebooks/one.md  FAILED" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("times", "log", "starts"), [(2, "Address already in use", 3), (3, "Address already in use", 3), (1, "Killed", 1)]
)
def test_a_kernel_whose_port_was_taken_is_started_again(monkeypatch, times: int, log: str, starts: int) -> None:
    """The first `times` kernels find one of their ports taken, as the log says, or die in another way."""
    real, calls = papermill.execute_notebook, []

    def execute(notebook, saved: str, **options: object):
        calls.append(saved)
        if len(calls) <= times:
            (Path(saved).parent / "kernel.log").write_text(f"Traceback\n{log}\n")
            raise RuntimeError("Kernel died before replying to kernel_info")
        return real(notebook, saved, **options)

    monkeypatch.setattr(papermill, "execute_notebook", execute)
    if log == "Killed" or times == starts:
        with pytest.raises(PageError, match=f"the kernel failed: RuntimeError: Kernel died .* {log}"):
            run_source(page_text("print(2 + 3)"))
    else:
        assert printed(run_source(page_text("print(2 + 3)"))) == "5\n"
    assert len(calls) == starts


# --- bad input ------------------------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_is_told_and_what_ran_is_not_lost(monkeypatch, book: Book) -> None:
    def killed(**options):
        def results(calls):
            list(calls)
            yield book.pages[0], execution.PageResult("{}", 1.0, cached=False)
            raise BrokenProcessPool

        return results

    monkeypatch.setattr(execution.joblib, "Parallel", killed)
    with pytest.raises(PagesFailed) as caught:
        book.run()
    assert str(caught.value).startswith("notebooks/two.md: not run to its end, as a worker process was killed")
    assert "\n" not in str(caught.value)


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
