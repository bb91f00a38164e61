"""What a book says of itself: read from its pyproject.toml, refused where it is not as described, empty where nothing is said."""

from pathlib import Path

import pytest

from bookkit.code import code_of
from bookkit.pages.catalogue import UserError
from bookkit.settings import Part, Settings, settings
from bookkit.sphinx.each_part import filled, of_part, written_out
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
    second = told(tmp_path, f"[tool.bookkit.parts]\n{PART[:-2]}, paper = '1', also = ['2', '3'] }}")
    assert second.parts["a"] == Part("I", "First", "1", ("2", "3"))
    assert found.kept == {"a/01_b": ("mine.long",)}
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
        (
            '[tool.bookkit.parts]\na = { number = "I", title = "First", also = "2001.00001" }',
            r"also of \[tool.bookkit\] must be a list of names; got '2001.00001'$",
        ),
        ('[tool.bookkit.kept]\n"a/01_b" = "x"', r"a/01_b of \[tool.bookkit\] must be a list of names"),
        ("packages = [", r"^pyproject.toml cannot be read: "),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, table: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as error:
        told(tmp_path, table)
    assert "\n" not in str(error.value)


def test_words_are_put_in_and_unknown_ones_are_told() -> None:
    assert filled("<<a>> $<<b>>$ << c", {"a": "1", "b": "2"}) == "1 $2$ << c"
    with pytest.raises(LookupError, match="no word <<c>>; there are a, b"):
        filled("<<c>>", {"a": "1", "b": "2"})


def test_a_passage_is_written_once_for_each_part(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.bookkit.parts]\n" + "\n".join(
        f'{name} = {{ number = "{number}", title = "{title}"{paper} }}'
        for name, number, title, paper in (("one", "I", "One thing", ', paper = "2001.00001"'), ("two", "II", "Another", ""))
    ))  # fmt: skip
    write(
        tmp_path / "book" / "references.bib",
        "@a{wrong, url={x}}\n@b{right,\n url = {https://arxiv.org/abs/2001.00001}}\n",
    )
    text = "# A\n\n::::{each-part}\n## Part <<number>>: <<title>>\n\n```{x} <<folder>>\n```\n<<paper>>\n::::\n\nEnd.\n"
    expected = "# A\n\n"
    expected += "## Part I: one thing\n\n```{x} one\n```\nThe paper is {cite:t}`right`, [arXiv 2001.00001](https://arxiv.org/abs/2001.00001).\n\n"
    expected += "## Part II: another\n\n```{x} two\n```\nThis part checks no paper.\n\nEnd.\n"
    assert written_out(text, tmp_path, tmp_path) == expected
    with pytest.raises(LookupError, match="no word <<name>>"):
        written_out(text.replace("folder", "name"), tmp_path, tmp_path)
    alone = "The paper is [arXiv 2001.00002](https://arxiv.org/abs/2001.00002)."
    second = (
        "Statements of {cite:t}`right`, [arXiv 2001.00001](https://arxiv.org/abs/2001.00001) are checked beside it."
    )
    two = Part("I", "One", "2001.00002", ("2001.00001",))
    assert of_part("one", two, tmp_path / "book" / "references.bib")["paper"] == f"{alone} {second}"
