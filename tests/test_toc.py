"""The table of contents as groups, the path through the first of them, and how long its pages take."""

import re
from pathlib import Path

import pytest
from nbformat import v4, writes

from bookkit.settings import settings
from bookkit.toc import groups, way
from tests.house import ROOT
from tests.page_checks import toc_files
from tests.tiny_book import rendered, write

TOC = """root: book/first
parts:
- caption: A path
  chapters:
  - file: book/one
  - file: notebooks/two.ipynb
    sections:
    - file: book/three
- caption: More
  chapters:
  - file: book/four
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A book whose path has three pages: of 1000 words, of 300 words and 40 lines of open code, of nothing."""
    write(tmp_path / "_toc.yml", TOC)
    write(tmp_path / "pyproject.toml", '[tool.bookkit]\npath = "A path"\n')
    write(tmp_path / "book/one.md", f"---\na: word\n---\n{'word ' * 999}$a + b$\n\n```\nnot counted\n```\n")
    cells = [v4.new_markdown_cell("word " * 300), v4.new_code_cell("x = 1\n\n" * 40), v4.new_code_cell("y\n" * 99)]
    cells[2].metadata["tags"] = ["hide-input"]
    write(tmp_path / "notebooks/two.ipynb", writes(v4.new_notebook(cells=cells)))
    write(tmp_path / "book/three.md", "# Three\n")
    return tmp_path


def test_groups_hold_their_files_in_order(root: Path) -> None:
    assert groups(root) == [("A path", ["book/one", "notebooks/two", "book/three"]), ("More", ["book/four"])]
    write(root / "_toc.yml", "root: book/first\nchapters:\n- file: book/one\n")
    assert groups(root) == [("", ["book/one"])]
    assert toc_files(ROOT / "_toc.yml") == ["book/preface", *(name for _, files in groups(ROOT) for name in files)]


def test_a_path_has_its_pages_and_their_minutes(root: Path) -> None:
    found = way(root, "A path")
    assert found.minutes == {"book/one": 1000 / 200, "notebooks/two": 300 / 200 + 40 / 10, "book/three": 1 / 200}
    assert str(found) == "A path: 3 pages, 11 minutes of reading, about half an hour"
    assert way(root, "Another").pages == way(root, "").pages == []
    for words, said in (
        (6_000, "half an hour"),
        (12_000, "one hour"),
        (17_400, "one and a half hours"),
        (36_000, "three hours"),
    ):
        write(root / "book/three.md", "word " * (words - 2100))
        assert way(root, "A path").hours == said


def test_each_page_of_the_path_says_how_far_along_one_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    (root / "notebooks").mkdir(exist_ok=True)
    write(root / "_toc.yml", TOC.replace("notebooks/two.ipynb", "book/two"))
    tree = "```{toctree}\none\ntwo\nthree\nfour\n```\n"
    pages = {
        "book/first": f"# First\n\n{{path}}`hours` in {{path}}`pages` pages, {{path}}`days`\n\n{tree}",
        "book/one": "# One\n" + "word " * 4_000,
        "book/two": "# Two\n" + "word " * 2_300,
        "book/three": "# Three\n",
        "book/four": "# Four\n",
    }
    html, told = rendered(root, pages, "bookkit.sphinx.path")
    texts = {name: (html / f"{name}.html").read_text(encoding="utf-8") for name in pages}
    lines = {name: re.findall(r'<p class="path-line.*?</p>', text) for name, text in texts.items()}
    assert [re.sub("<[^>]*>", "", line) for found in lines.values() for line in found] == [
        "A path · 1 of 3 · about 20 minutes",
        "A path · 2 of 3 · about 10 minutes",
        "A path · 3 of 3 · about 5 minutes",
    ]
    assert lines["book/first"] == lines["book/four"] == []
    assert 'href="one.html"' in lines["book/three"][0]
    assert "half an hour in 3 pages, ?" in texts["book/first"]
    assert "path: knows hours and pages of a path; got 'days'" in told
    assert told.count("WARNING") == 1
    # Behind the last page nothing follows; behind the others, the next one.
    assert ['rel="next"' in text for text in texts.values()] == [True, True, True, False, False]


def test_the_short_book_is_an_evening() -> None:
    path = way(ROOT, settings(ROOT).path)
    assert 9 <= len(path.pages) <= 12
    assert 90 <= sum(path.minutes.values()) <= 210
    assert max(path.minutes.values()) <= 30
    # Where the hours are typed, since nothing computes them there.
    told = re.findall(
        r"[Ss]hort book[^.]*?((?:\w+ and a half|half an|\w+) hours?)\b",
        (ROOT / "README.md").read_text(encoding="utf-8"),
    )
    assert set(told) <= {path.hours}
