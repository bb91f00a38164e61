"""What a refused command must be: exit code 2, one line that says why, nothing started, nothing written."""

from pathlib import Path

from bookkit.cli import main


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
