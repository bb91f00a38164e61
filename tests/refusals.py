"""What a refused command must be: exit code 2, one line that says why, nothing started, nothing written."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bookkit.cli import main
from bookkit.pages.catalogue import UserError


def snapshot(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, also empty folders."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


def refused(command: list[str], parts: list[str], book: Path, started: list, capsys) -> None:
    """`command` exits with 2 and one line that has all `parts`; nothing was `started` and nothing in `book` changed."""
    before = snapshot(book)
    try:
        code = main(command)
    except SystemExit as error:  # argparse leaves this way
        code = error.code
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("bookkit: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
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
