"""What a book says of itself: read from its pyproject.toml, refused where it is not as described, empty where nothing is said."""

from pathlib import Path

import pytest

from bookkit.code import code_of
from bookkit.pages.catalogue import UserError
from bookkit.settings import Part, Settings, settings
from tests.tiny_book import write

PART = 'a = { number = "I", title = "First" }'


def told(root: Path, table: str) -> Settings:
    write(root / "pyproject.toml", f"[tool.bookkit]\n{table}\n")
    return settings(root)


def test_a_book_that_says_nothing_has_nothing(tmp_path: Path) -> None:
    assert settings(tmp_path) == Settings()
    assert told(tmp_path, "") == Settings(command="bookkit")
    assert code_of(tmp_path).folders == ()
    told(tmp_path, 'packages = ["code/no_such_package"]')
    with pytest.raises(UserError, match="got no_such_package, which is neither"):
        code_of(tmp_path)


def test_what_is_said_is_read_and_an_edit_is_seen(tmp_path: Path) -> None:
    found = told(
        tmp_path,
        f'packages = ["code/mine"]\ncommand = "mine"\n[tool.bookkit.parts]\n{PART}\n[tool.bookkit.kept]\n"a/01_b" = ["mine.long"]',
    )
    assert (found.packages, found.program) == (("code/mine",), "python -m mine")
    assert found.parts == {"a": Part("I", "First")}
    second = told(tmp_path, f"[tool.bookkit.parts]\n{PART[:-2]}, paper = '1' }}")
    assert second.parts["a"] == Part("I", "First", "1")
    assert found.kept == {"a/01_b": ("mine.long",)}
    moved = told(tmp_path, '[tool.bookkit.redirects]\n"book/old" = "book/new#part"')
    assert moved.redirects == {"book/old": "book/new#part"}
    assert told(tmp_path, 'command = "other"').program == "python -m other"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('pakages = ["a"]', r"knows packages, command, .*; got pakages$"),
        ('packages = "a"', r"packages of \[tool.bookkit\] must be a list of names; got 'a'$"),
        ("packages = [1]", r"must be a list of names; got \[1\]$"),
        ('address = "book.org"', r"address of the published book must be https://host/path; got 'book.org'$"),
        ("command = 3", r"command of \[tool.bookkit\] must be a text; got 3$"),
        ("parts = 3", r"parts of \[tool.bookkit\] must be a table; got 3$"),
        (
            '[tool.bookkit.parts]\na = { number = "I" }',
            r"parts.a of \[tool.bookkit\] must be a table of number, title and",
        ),
        ('[tool.bookkit.kept]\n"a/01_b" = "x"', r"a/01_b of \[tool.bookkit\] must be a list of names"),
        ("[tool.bookkit.redirects]\na = 1", r"a of \[tool.bookkit\] must be a text; got 1$"),
        ("packages = [", r"^pyproject.toml cannot be read: "),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, table: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as error:
        told(tmp_path, table)
    assert "\n" not in str(error.value)
