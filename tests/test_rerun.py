"""`python -m attnlib rerun` and its neighbours: good requests give a notebook, bad ones one line, nothing gives half a file."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import nbformat
import papermill
import psutil
import pytest

from bookkit.cli import main
from bookkit.pages.catalogue import UserError
from bookkit.pages.rerun import RunError, rerun
from tests.house import ROOT
from tests.refusals import refused, snapshot
from tests.tiny_book import ODD, write
from tests.tiny_page import PAGE, make_book

SLOW = """import os, pathlib, time

pathlib.Path("pid").write_text(str(os.getpid()))
pathlib.Path("pid").rename("started")
while True:
    time.sleep(6000)"""


@pytest.fixture
def book(tmp_path: Path, monkeypatch) -> Path:
    """A book of one page, and we stand in it."""
    made = make_book(tmp_path / ODD)
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def started(monkeypatch) -> list:
    """Executions that were asked for: papermill is replaced by a list, so that no kernel can start."""
    calls: list = []

    def refuse(*arguments, **options):
        calls.append((arguments, options))
        raise KeyboardInterrupt

    monkeypatch.setattr(papermill, "execute_notebook", refuse)
    return calls


# --- bad requests

INTEGER = "parameter n must be an integer >= 1; got "
PARAMETERS = [
    (["step_sise", "0.1"], "has no parameter 'step_sise'; did you mean 'step_size'? it takes: n, label"),
    (["label_noise", "0.7"], "parameter label_noise must be a number in [0, 0.5]; got 0.7"),
    (["n", "0100"], f"{INTEGER}'0100': write 100"),
    (["n", "1", "-p", "n", "2"], "parameter n is given twice with -p: keep one"),
    (["n", "3", "-p", "label_noise", "x"], "label_noise must be a number in [0, 0.5]; got 'x'"),
]
FILES = [
    (None, "parameter file params.yml cannot be read: No such file or directory"),
    (b"n: [1, 2", "parameter file params.yml is not YAML: while parsing"),
    (b"\xff\xfe\x00n", "parameter file params.yml is not UTF-8 text"),
    (b"n: 2026-99-99", f"{INTEGER}'2026-99-99'"),
    (b"n: 0100", f"{INTEGER}'0100': write 100"),  # 64 for YAML 1.1, 100 for YAML 1.2
    (b"n: 1:30", f"{INTEGER}'1:30'"),  # 90 for YAML 1.1
    (b"n: 1_000", f"{INTEGER}'1_000': write 1000"),
    (b"n: 0x10", f"{INTEGER}'0x10'"),
    (b"verbose: yes", "parameter verbose must be true or false; got 'yes'"),
    (b"n: !!int 7", "parameter file params.yml is not YAML: could not determine a constructor"),
    (b"a: &a {n: 1}\n<<: [*a, *a]", "parameter file params.yml, line 2: write out what *a stands for"),
    (b"n: " + b"[" * 9999, "parameter file params.yml nests its lists and mappings too deeply"),
    (b"#" * 300_000, "parameter file params.yml is larger than 256 kB"),
    (b"- n\n- 3\n", "parameter file params.yml must hold a mapping, lines like `n: 200`; it holds a list"),
    (b"", "parameter file params.yml must hold a mapping, lines like `n: 200`; it holds nothing"),
]
PLACES = [
    ("out.txt", "output must end in .ipynb, or in .html to be read in a browser; got out.txt"),
    ("away/out.ipynb", "output folder away does not exist"),
    ("folder.ipynb", "output folder.ipynb is a folder"),
    ("notebooks/part/01_tiny.ipynb", "is a stored page of the book"),
    ("notebooks/../notebooks/part/01_tiny.ipynb", "is a stored page of the book"),
]
COMMANDS = [
    (["rerun", "tinny", "-o", "out.ipynb"], ["no page 'tinny'; did you mean 'tiny'? pages: part/01_tiny"]),
    (["rerun", "tiny"], ["Missing option '-o'"]),
    (["rerun", "tiny", "-p", "n", "-o", "out.ipynb"], ["Missing option '-o'"]),
    (["rerun", "tiny", "-o", "out.ipynb", "--fast"], ["No such option", "--fast"]),
]
REQUESTS = [
    *((["rerun", "tiny", "-p", *words, "-o", "out.ipynb"], [told]) for words, told in PARAMETERS),
    *((["rerun", "tiny", "-o", place], [told]) for place, told in PLACES),
    *COMMANDS,
]


@pytest.mark.parametrize(("command", "told"), REQUESTS, ids=[" ".join(command[2:]) for command, _ in REQUESTS])
def test_a_bad_request_is_one_line_and_no_kernel_starts(book, started, capsys, command, told: list[str]) -> None:
    Path("folder.ipynb").mkdir()
    refused(command, told, book, started, capsys)


@pytest.mark.parametrize(("content", "told"), FILES)
def test_a_bad_parameter_file_is_one_line_and_no_kernel_starts(book, started, capsys, content, told: str) -> None:
    if content is not None:
        Path("params.yml").write_bytes(content)
    refused(["rerun", "tiny", "-f", "params.yml", "-o", "out.ipynb"], [told], book, started, capsys)


def test_an_unwritable_folder_is_refused_before_the_page_runs(book, started, capsys, monkeypatch) -> None:
    # A read-only folder stops nobody who runs the tests as root, so the system's answer is replaced.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    refused(["rerun", "tiny", "-o", "out.ipynb"], ["output folder . is not writable"], book, started, capsys)


def test_what_cannot_be_run_is_refused_before_a_kernel_starts(book, started, capsys) -> None:
    write(book / "pyproject.toml", '[tool.bookkit]\nroom = "attnbook.room:require_room"')
    told = ["page part/01_tiny: n = 1000000000000000 needs 7.11 PiB of memory, and ", " would fit"]
    refused(["rerun", "tiny", "-p", "n", "1e15", "-o", "out.ipynb"], told, book, started, capsys)


def test_the_watch_on_papermill_sees_a_good_request(book, started, capsys) -> None:
    """Without this, "no kernel starts" above could pass because the watch is broken."""
    assert main(["rerun", "tiny", "-p", "n", "3", "-o", "out.ipynb"]) == 130
    assert len(started) == 1
    assert "interrupted" in capsys.readouterr().err


def test_from_a_shell_too_there_is_one_line_and_no_traceback(book) -> None:
    done = run(["rerun", "tiny", "-p", "n", "ten", "-o", "out.ipynb"], book)
    assert done.returncode == 2
    assert done.stderr == "attnlib: error: page part/01_tiny: parameter n must be an integer >= 1; got 'ten'\n"


# --- good requests


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "attnlib", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_rerun_takes_file_and_options_and_its_results_can_be_read(book) -> None:
    Path("params.yml").write_text("n: 1e3\nlabel_noise: 1e-1\nmode: dense\n")
    page = Path("notebooks/part/01_tiny.md")
    cut = page.read_text(encoding="utf-8").replace(
        'print(f"{n} samples', 'print("cut", flush=True)\nprint(f"{n} samples'
    )
    page.write_text(cut, encoding="utf-8")
    done = run(["rerun", "tiny", "-f", "params.yml", "-p", "n", "50", "-o", "out.ipynb"], book)
    assert done.returncode == 0, done.stderr
    assert "part/01_tiny" in done.stderr  # the progress bar carries the page's name
    notebook = nbformat.read("out.ipynb", as_version=4)
    assert notebook.metadata.papermill.parameters == {"n": 50, "label_noise": 0.1, "mode": "dense"}
    printed = [o.text for c in notebook.cells for o in c.get("outputs", []) if o.output_type == "stream"]
    assert (
        "cut\n50 samples, dense, rate 0.002500\n" in printed
    )  # 0.1 x the default 0.025; where a kernel cuts, it depends on its pace

    shown = run(["results", "out.ipynb"], book)
    assert json.loads(shown.stdout) == {"flipped": 5.0, "samples": 50}
    assert sorted(p.name for p in book.iterdir()) == [
        "_toc.yml",
        "notebooks",
        "out.ipynb",
        "params.yml",
        "requirements.txt",
    ]
    assert not (book / "notebooks/part/01_tiny.ipynb").exists()


def test_what_is_there_is_replaced_when_asked_and_a_link_stays_a_link(book, monkeypatch) -> None:
    work, link = book / "mine.ipynb", book / "link.ipynb"
    work.write_text("notes")
    link.symlink_to(work)
    monkeypatch.setattr("bookkit.pages.rerun.run_page", lambda page, values: nbformat.v4.new_notebook())
    os.mkfifo(book / "fifo.ipynb")  # no device: a test that fails would replace it for the whole machine
    (book / "leads.ipynb").symlink_to(book / "fifo.ipynb")
    for output in ("leads", "fifo"):
        with pytest.raises(UserError, match=f"{output}.ipynb is a device or a pipe, not a file"):
            rerun("tiny", [], None, book / f"{output}.ipynb", book, force=True)
    for output in (work, link):
        with pytest.raises(UserError, match="is there already: give another name, or --force"):
            rerun("tiny", [], None, output, book)
    assert work.read_text() == "notes"
    rerun("tiny", [], None, link, book, force=True)
    assert link.is_symlink()
    assert json.loads(work.read_text())["cells"] == []
    longest = book / f"{'n' * 249}.ipynb"  # 255 bytes: no name is longer
    rerun("tiny", [], None, longest, book)
    assert longest.is_file()


def test_a_full_disk_loses_no_result(book, monkeypatch, tmp_path: Path) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("bookkit.pages.rerun.run_page", lambda page, values: nbformat.v4.new_notebook())
    monkeypatch.setattr("bookkit.pages.rerun.write_atomically", full)
    with pytest.raises(RunError, match=r"No space left on device.*: the result is kept in ") as told:
        rerun("tiny", [], None, book / "out.ipynb", book)
    assert json.loads(Path(str(told.value).rpartition(" ")[2]).read_text())["cells"] == []
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=3 << 20))
    with pytest.raises(UserError, match="must have 64 MB of free space; it has 3: make room first"):
        rerun("tiny", [], None, book / "other.ipynb", book)


def test_a_page_that_fails_names_page_cell_and_error_and_leaves_the_old_output(book) -> None:
    bad = PAGE.replace("record(flipped", "# what follows cannot work\n1 / (n - 13)\nrecord(flipped")
    make_book(book, text=bad)
    Path("out.ipynb").write_text("an earlier result")
    before = snapshot(book)
    done = run(["rerun", "tiny", "-p", "n", "13", "-o", "out.ipynb", "--force"], book)
    assert done.returncode == 1
    message = done.stderr[done.stderr.index("attnlib: error:") :]
    assert message.startswith("attnlib: error: page part/01_tiny, code cell 5 (")
    assert "ZeroDivisionError: division by zero" in message.splitlines()[0]
    assert "    1 / (n - 13)" in message.splitlines()
    assert "Traceback" not in done.stderr
    assert snapshot(book) == before


def test_a_page_that_ends_early_is_no_result(book, monkeypatch) -> None:
    """papermill takes `SystemExit` for a wish of the page, and says nothing."""

    def half(notebook, *arguments, **options):
        cell = [cell for cell in notebook.cells if cell.cell_type == "code"][2]
        cell.outputs = [nbformat.v4.new_output("error", ename="SystemExit", evalue="0")]
        return notebook

    monkeypatch.setattr(papermill, "execute_notebook", half)
    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    with pytest.raises(RunError, match=r"^page part/01_tiny: code cell 3 ended the page with SystemExit"):
        rerun("tiny", [], None, book / "out.ipynb", book)
    assert not (book / "out.ipynb").exists()


def test_what_a_kernel_says_past_the_page_is_not_for_the_reader_unless_it_dies(book) -> None:
    # The process's own stderr: ipykernel keeps it in this attribute, or leaves it alone under pytest. There it now and then
    # reports, at its end, that a socket is closed.
    past = (
        "import os, sys\nos.write(getattr(sys.stderr, '_original_stdstream_copy', 2), b'a remark of the kernel\\n')\n"
    )
    make_book(book, text=PAGE.replace("record(flipped", past + "record(flipped"))
    done = run(["rerun", "tiny", "-o", "out.ipynb"], book)
    assert done.returncode == 0, done.stderr
    assert "remark" not in done.stdout + done.stderr

    make_book(book, text=PAGE.replace("record(flipped", past + "os._exit(3)\nrecord(flipped"))
    done = run(["rerun", "tiny", "-o", "dead.ipynb"], book)
    assert done.returncode == 1
    message = done.stderr[done.stderr.index("attnlib: error:") :]
    assert "the kernel died while the page ran" in message
    assert "a remark of the kernel" in message
    assert not Path("dead.ipynb").exists()


STUBBORN = "import os, signal\n\nsignal.signal(signal.SIGINT, lambda *_: {})\n"


@pytest.mark.parametrize(
    ("before", "end"),
    [
        ("", signal.SIGINT), ("", signal.SIGTERM), ("", signal.SIGHUP), (STUBBORN.format("os._exit(3)"), signal.SIGINT),
        (STUBBORN.format("None"), signal.SIGINT),
    ],
    ids=["plain", "terminated", "hung up", "dies", "deaf"],
)  # fmt: skip
def test_an_interrupted_rerun_leaves_nothing(book, monkeypatch, before: str, end: signal.Signals) -> None:
    """Whatever the kernel does with an interrupt: it ends its cell, dies of it, or does not hear it. Nor in temporary folders."""
    (book / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(book / "temporary"))
    make_book(
        book, text=PAGE.replace("record(flipped", f"{before}import os\nos.chdir({str(book)!r})\n{SLOW}\nrecord(flipped")
    )
    files = snapshot(book)
    process = subprocess.Popen(
        [sys.executable, "-m", "attnlib", "rerun", "tiny", "-o", "out.ipynb"],
        cwd=book, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(end, signal.SIG_DFL),  # below `nohup` a hang-up is ignored, and so it would be here
    )  # fmt: skip
    try:
        while not (book / "started").exists():
            assert process.poll() is None, "the rerun ended before its slow cell"
            time.sleep(0.05)
        os.killpg(process.pid, end)  # as Ctrl-C does: the whole foreground group
        _, err = process.communicate()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + end
    assert err.splitlines()[-1] == "attnlib: error: interrupted; nothing was written"
    assert snapshot(book) == files | {"started": (book / "started").read_bytes()}
    with suppress(psutil.NoSuchProcess):
        kernel, patience = psutil.Process(int((book / "started").read_text())), time.monotonic() + 10
        while kernel.status() != psutil.STATUS_ZOMBIE and time.monotonic() < patience:  # a kill takes a moment
            time.sleep(0.05)
        assert kernel.status() == psutil.STATUS_ZOMBIE


# --- results and pages


def notebook_file(path: Path, *outputs: dict) -> str:
    cell = nbformat.v4.new_code_cell(
        "1", outputs=[nbformat.v4.new_output("display_data", data=data) for data in outputs]
    )
    text = nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))
    path.write_text(text)
    return text


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "notebook out.ipynb cannot be read: No such file or directory"),
        ("", "out.ipynb is not a whole notebook"),
        ("[1, 2]", "out.ipynb is not a whole notebook"),
        ('{"nbformat": 4}', "out.ipynb is not a whole notebook"),
        ("cut", "out.ipynb is not a whole notebook"),
        ("none", "out.ipynb holds no named results: execute the page first"),
        ("garbled", "out.ipynb holds no readable named results"),
    ],
)
def test_results_of_what_has_none_is_one_line(tmp_path, monkeypatch, capsys, content, complaint: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("out.ipynb")
    if content == "cut":
        whole = notebook_file(path, {"application/vnd.attnlib.results+json": {"a": 1}})
        path.write_text(whole[: len(whole) // 2])
    elif content == "none":
        notebook_file(path, {"text/plain": "1"})
    elif content == "garbled":
        notebook_file(path, {"application/vnd.attnlib.results+json": [1, 2]})
    elif content is not None:
        path.write_text(content)
    assert main(["results", "out.ipynb"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"bookkit: error: {complaint}")
    assert err.count("\n") == 1


def test_pages_are_listed_with_their_parameters(book, capsys) -> None:
    assert main(["pages"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "part/01_tiny"
    assert [line.split() for line in lines[1:3]] == [
        "n: int = 200 training samples: an integer >= 1".split(),
        "label_noise: float = 0.05 probability that a label is flipped, eta: a number in [0, 0.5]".split(),
    ]


def test_a_missing_extra_is_told_by_the_command_that_installs_it(book, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "papermill", None)  # import then fails as it does where it is not installed
    monkeypatch.delitem(sys.modules, "papermill.exceptions", raising=False)
    assert main(["rerun", "tiny", "-o", "out.ipynb"]) == 2
    err = capsys.readouterr().err
    assert err == (
        "bookkit: error: rerun needs papermill, which is not installed: python -m pip install '.[rerun]' in the repository\n"
    )
    assert not Path("out.ipynb").exists()


def test_a_rerun_as_html_shows_its_numbers_and_asks_no_host(book: Path) -> None:
    shutil.copytree(ROOT / "book/assets/formulas", book / "book/assets/formulas")
    done = run(["rerun", "tiny", "-p", "n", "13", "-o", "out.html"], book)
    assert done.returncode == 0, done.stderr
    text = Path("out.html").read_text(encoding="utf-8")
    assert "Parameters" in text
    assert re.search(r"n</span>.{0,80}=.{0,80}13<", text)
    assert re.findall(r"""<(?:script|link|img)[^>]*(?:src|href)=["']https?:""", text) == []
    assert 'url("data:font/woff2;base64,' in text  # formulas are drawn, their font is inside
