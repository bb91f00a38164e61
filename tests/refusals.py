"""What is refused: a command by exit code 2 and one line that says why, a call by its error; nothing started, nothing written."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bookkit.cli import main
from bookkit.pages.catalogue import UserError


def snapshot(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, also empty folders."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


def refused(command: list[str], parts: list[str], book: Path, started: list, capsys, exit_code: int = 2) -> None:
    """`command` exits with `exit_code` and one line that has all `parts`; nothing was `started` and nothing in `book` changed.

    The line moves no terminal, and is of an error that somebody foresaw.
    """
    before = snapshot(book)
    try:
        code = main(command)
    except SystemExit as error:  # argparse leaves this way
        code = error.code
    out, err = capsys.readouterr()
    assert code == exit_code
    assert out == ""
    assert err.startswith("bookkit: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert re.search(r"nobody foresaw|[\x00-\x09\x0b-\x1f]", err) is None
    for part in parts:
        assert part in err
    assert started == []
    assert snapshot(book) == before


def refused_call(call: Callable[[], object], *parts: str) -> None:
    """`call` raises a `UserError` of one line, not a long one, that has all `parts`."""
    with pytest.raises(UserError) as error:
        call()
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 400
    assert [part for part in parts if part not in message] == []
