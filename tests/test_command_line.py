"""The command itself, whatever it is asked: its version, misspelt words, names of pages, a reader that closes the pipe, Windows."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from bookkit import cli

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


def test_a_reader_that_has_enough_is_no_error() -> None:
    head = f"{sys.executable} -m bookkit pages | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {head}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


def test_without_click_the_command_says_what_to_install() -> None:
    code = "import sys; sys.modules['click'] = None; import bookkit.cli"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: commands need click, which is not installed: python -m pip install '.[rerun]' in the repository\n"
    )
