"""The command itself, whatever it is asked: its version, misspelt words, names of pages, a reader that closes the pipe, Windows."""

import ast
import errno
import importlib.metadata
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from bookkit import cli
from bookkit.book import BuildError
from bookkit.pages.catalogue import UserError
from bookkit.pages.execution import PagesFailed
from bookkit.pages.rerun import RunError
from tests.refusals import refused
from tests.tiny_book import write
from tests.tiny_page import make_book

ROOT = Path(__file__).resolve().parents[1]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `attnlib` with these arguments."""
    try:
        code = cli.main(arguments, name="attnlib")
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, *capsys.readouterr()


def test_it_says_its_version(capsys) -> None:
    assert run(capsys, "--version") == (0, f"attnlib {importlib.metadata.version('attnlib')}\n", "")


def test_a_misspelt_command_gets_the_nearest_one(capsys) -> None:
    code, _, said = run(capsys, "rerunn", "two_steps")
    assert code == 2
    assert "did you mean 'rerun'?" in said
    assert "choose from" not in said
    assert "choose from" in run(capsys, "xyz")[2]  # nothing is near: all of them


def test_claims_and_results_take_a_page_by_any_of_its_names(capsys, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    code, text, _ = run(capsys, "claims", "two_steps", "C8")
    assert (code, text.split()[0]) == (0, "C8")
    assert run(capsys, "claims", "notebooks/single_head/02_two_steps.ipynb", "C8")[1] == text
    assert run(capsys, "results", "02_two_steps")[1] == run(capsys, "results", "single_head/02_two_steps")[1] != ""
    assert "did you mean 'two_steps'?" in run(capsys, "claims", "two_stps")[2]


@pytest.mark.parametrize("command", ["html", "book", "sweep", "stability"])
def test_help_is_under_the_name_that_was_typed(capsys, command) -> None:
    assert run(capsys, command, "--help")[1].startswith(f"usage: attnlib {command} ")


def test_a_shell_completes_commands_and_options(capsys, monkeypatch) -> None:
    monkeypatch.setenv("_ATTNLIB_COMPLETE", "bash_source")
    code, script, _ = run(capsys)
    assert (code, "complete -o nosort -F _attnlib_completion attnlib" in script) == (0, True)
    monkeypatch.setenv("_ATTNLIB_COMPLETE", "bash_complete")
    for typed, found in {
        "attnlib re": ["rerun", "results", "register", "replicate", "real"],
        "attnlib rerun --f": ["--force"],
    }.items():
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
        assert run(capsys)[1].split() == [f"plain,{word}" for word in found]


def test_a_reader_that_has_enough_is_no_error() -> None:
    head = f"{sys.executable} -m bookkit pages | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {head}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


TOO_BIG = "9" * 30
LONG = "n" * 300
BAD = {  # words of a command -> what its one line holds
    "rerun tiny -o loop.ipynb": "is a link that leads back to itself",
    "rerun tiny -o dead.ipynb": "nowhere does not exist: make it first",
    f"rerun tiny -o {LONG}.ipynb": "File name too long",
    f"rerun {LONG} -o out.ipynb": "no page",
    "rerun \033[2J -o out.ipynb": "no page '\\x1b[2J'",
    "claims deep.ipynb": "is not a whole notebook",
    "claims part": "no page 'part'",
    "results notebooks": "no page 'notebooks'",
    "claims odd.ipynb": "holds no checked claims",
    "register --check": "01_tiny.ipynb is not a whole notebook",
    "claims --uses C1": "01_tiny.ipynb is not a whole notebook",
    "replicate --seeds 1000000000": "seeds must be 1 to 10000",
    "replicate -o file": "-o must be a folder; file is a file",
    "replicate": "01_tiny.ipynb is not a whole notebook",
    "notebooks --jobs 0": "argument --jobs: must be a whole number from 1 to 1024; got '0'",
    "stability --jobs 1e3": "argument --jobs: must be a whole number from 1 to 1024; got '1e3'",
    f"book --jobs {TOO_BIG}": "argument --jobs: must be a whole number from 1 to 1024",
    "sweep tiny tiny.yml -o file": "file is a file: give another",
}


@pytest.fixture
def hard_book(tmp_path: Path, monkeypatch) -> Path:
    """A book of one page among files of the wrong kinds, and we stand in it."""
    monkeypatch.chdir(make_book(tmp_path))
    odd = {"application/vnd.attnlib.claims+json": 5}
    cell = nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("display_data", data=odd)])
    files = {
        "deep.ipynb": "[" * 100_000, "notebooks/part/01_tiny.ipynb": "{", "file": "",
        "odd.ipynb": nbformat.writes(nbformat.v4.new_notebook(cells=[cell])), "tiny.yml": "product: {n: [1, 2]}",
        "pyproject.toml": '[project]\nname = "tiny"\nversion = "1"',
    }  # fmt: skip
    for name, text in files.items():
        write(tmp_path / name, text)
    (tmp_path / "loop.ipynb").symlink_to("loop.ipynb")
    (tmp_path / "dead.ipynb").symlink_to("nowhere/out.ipynb")
    return tmp_path


@pytest.mark.parametrize(("words", "told"), BAD.items(), ids=[words[:40] for words in BAD])
def test_a_bad_request_is_one_line_without_a_traceback(hard_book, capsys, words: str, told: str) -> None:
    refused(words.split(), [told], hard_book, [], capsys, exit_code=1 if "too long" in told else 2)


def test_where_no_kernel_can_be_reached_a_page_is_not_begun(hard_book, capsys, monkeypatch) -> None:
    def unreachable(*_, **__):
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    code, _, said = run(capsys, "rerun", "tiny", "-o", "out.ipynb")
    assert code == 2
    assert "over 127.0.0.1, and nothing reaches it here (Network is unreachable): bring the loopback" in said
    command = "ulimit -n 60; exec " + shlex.join([sys.executable, "-m", "bookkit", "rerun", "tiny", "-o", "out.ipynb"])
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("error: a page needs 128 open files, and 60 are allowed here: ulimit -n 1024\n")


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (KeyError("a\nb"), 1, "pages met an error that nobody foresaw, KeyError: 'a\\nb'; BOOKKIT_TRACEBACK=1"),
        (UserWarning("old"), 1, "a warning ends pages, as Python was asked to do: old: unset PYTHONWARNINGS"),
        (MemoryError(), 1, "pages needs more memory than it can have"),
        (OSError(errno.EROFS, "Read-only file system", "/book"), 1, "/book: Read-only file system"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory"),
            1,
            "the current folder was deleted",
        ),  # os.getcwd
        (KeyboardInterrupt(), 130, "interrupted"),
        (UserError("a \x1b[2J b"), 2, "a \N{REPLACEMENT CHARACTER}[2J b"),
    ],
)
def test_whatever_is_raised_is_one_sentence(capsys, monkeypatch, error, code: int, told: str) -> None:
    def fail(root: Path) -> None:
        raise error

    monkeypatch.setattr(cli, "find_pages", fail)
    found, _, said = run(capsys, "pages")
    assert (found, said.count("\n")) == (code, 1)
    assert said.startswith(f"attnlib: error: {told}")
    monkeypatch.setenv("BOOKKIT_TRACEBACK", "1")
    if isinstance(error, KeyError):
        with pytest.raises(KeyError):
            cli.main(["pages"])


@pytest.mark.parametrize("arguments", ["pages", "sweep --help"])
def test_a_full_or_closed_output_is_no_traceback(arguments: str) -> None:
    # Without a buffer argparse itself passes over what cannot be written.
    command = f"env -u PYTHONUNBUFFERED {sys.executable} -m bookkit {arguments}"
    for where, told in {">/dev/full": "No space left on device", ">&-": ""}.items():
        done = subprocess.run(f"{command} {where}", cwd=ROOT, shell=True, capture_output=True, text=True, check=False)
        assert (done.returncode, told in done.stderr, "Traceback" in done.stderr) == (1 if told else 0, True, False)


def test_without_click_the_command_says_what_to_install() -> None:
    code = "import sys; sys.modules['click'] = None; import bookkit.cli"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: commands need click, which is not installed: python -m pip install '.[rerun]' in the repository\n"
    )


@pytest.mark.parametrize(
    ("words", "where", "kind"),
    [
        ("notebooks", "pages.notebooks.execute_pages", PagesFailed),
        ("stability --machines native", "pages.stability.execute_pages", PagesFailed),
        ("book", "book.build", BuildError),
        ("rerun tiny -o out.ipynb", "pages.rerun.run_page", RunError),
    ],
)
def test_an_error_of_a_page_moves_no_terminal(hard_book, capsys, monkeypatch, words: str, where: str, kind) -> None:
    def fail(*_, **__):
        raise kind("01_tiny: \x1b[31mred\n\u202etwo")

    monkeypatch.setattr(f"bookkit.{where}", fail)
    code, _, said = run(capsys, *words.split())
    assert (code, said.removeprefix("native\n")) == (1, "attnlib: error: 01_tiny: \ufffd[31mred\n\ufffdtwo\n")


def test_all_that_the_kit_prints_goes_one_way() -> None:
    """Through `parser.say`, for all may hold words of a page; what calls `print` itself has no words but its own."""
    modules = [path for path in (ROOT / "book" / "bookkit").rglob("*.py") if path.name != "parser.py"]
    nodes = [node for path in modules for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"]
    assert calls
    assert [ast.unparse(call) for call in calls if not all(isinstance(word, ast.Constant) for word in call.args)] == []


@pytest.mark.parametrize(
    ("door", "imported"),
    [("-m attnlib", "attnbook"), ("-m bookkit", "click"), ("-c import~attnbook.command~as~c;c.main()", "click")],
)
def test_ctrl_c_while_modules_are_imported_is_silent(tmp_path: Path, door: str, imported: str) -> None:
    write(tmp_path / f"{imported}.py", "raise KeyboardInterrupt")
    command = [sys.executable, *(word.replace("~", " ") for word in door.split()), "pages"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_every_file_that_is_run_answers_in_one_sentence() -> None:
    """A study that makes a stored table ends like the other commands: no traceback, an exit code (`bookkit.parser.answered`)."""
    files = [path for name in ("book", "benchmarks") for path in (ROOT / name).rglob("*.py")]
    ends = {path: path.read_text(encoding="utf-8").partition('if __name__ == "__main__":')[2] for path in files}
    run = {path.relative_to(ROOT).as_posix(): end for path, end in ends.items() if end}
    assert len(run) > 12
    assert [name for name, end in run.items() if "answered(" not in end] == [
        "book/bookkit/__main__.py"
    ]  # `cli.main` answers itself
