"""The book is built, kept when nothing changed, and never replaced by one that is broken.

Sphinx itself runs where its own words or files are looked at; where only the order of things matters, `quick` stands for it.
"""

import json
import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import nbformat
import pytest
from filelock import FileLock

from bookkit import book
from bookkit.pages.catalogue import find_pages
from bookkit.pages.execution import PageResult, PagesFailed
from bookkit.pages.one_page import run_source
from bookkit.pages.tolerances import Tolerance, Tolerances
from tests.tiny_book import ODD, as_renewed, make_book, page_text, write

PROSE = {
    "preface": "# Preface\n\nSee {doc}`../notebooks/part/01_page` and {cite:t}`one`.\n",
    "sources": "# S\n\n```{bibliography}\n```\n",
}
PAGE = page_text("print('number', 41 + 1)", title="First page")


@cache
def executed() -> str:
    return as_renewed(run_source(PAGE))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A book of one notebook with its stored outputs and two prose pages, not built yet."""
    made = make_book(tmp_path / ODD, {"part/01_page": PAGE}, PROSE)
    write(made / "notebooks" / "part" / "01_page.ipynb", executed())
    return made


def quick(root: Path, work: Path, code: object) -> Path:
    """In place of Sphinx: every page is its own source, a role that leads nowhere is refused."""
    print("Rendering")
    built = Path(tempfile.mkdtemp(prefix="sphinx-", dir=work)) / "_build" / "html"
    for path in (work / "source").rglob("*"):
        if path.suffix in (".md", ".ipynb"):
            text = path.read_text()
            if "no-theorem" in text:
                raise book.BuildError(f"rendering failed: {path.name}")
            write(built / path.relative_to(work / "source").with_suffix(".html"), text)
    return write(built / "index.html", "").parent


@pytest.fixture
def without_sphinx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "_render", quick)


def build(root: Path, *options: str) -> int:
    return book.main(["--root", str(root), "--jobs", "1", *options])


def page_html(root: Path) -> str:
    return (root / "_build" / "html" / "notebooks" / "part" / "01_page.html").read_text(encoding="utf-8")


def recorded(root: Path) -> dict:
    return json.loads((root / "_build" / "html" / "build.json").read_text())


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def store_another_number(root: Path, more: str = "") -> None:
    """Stored outputs that can be told from fresh ones: 43 in place of 42. `more` goes into the text of the page."""
    notebook = root / "notebooks" / "part" / "01_page.ipynb"
    text = notebook.read_text().replace("number 42", "number 43").replace("# First page", f"# First page{more}")
    notebook.write_text(as_renewed(nbformat.reads(text, as_version=4)))


def test_fresh_build_then_nothing_to_do_then_the_one_change(
    root: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "notebooks" / "part" / "01_page.ipynb").unlink()
    measured = '{"machine": "m", "date": "d", "pages": {}}'
    write(root / "benchmarks" / "results" / "pages-cpu-2026-01-01.json", measured)
    assert build(root) == 0
    html = root / "_build" / "html"
    told = capfd.readouterr().out
    assert f"Open {html / 'index.html'}" in told
    assert "number 42" in page_html(root)
    (name, page), record = next(iter(recorded(root)["pages"].items())), recorded(root)
    assert (record["source"], name, page["cached"]) == ("fresh", "notebooks/part/01_page.ipynb", False)
    assert page["seconds"] > 0
    assert (root / "_build/source/benchmarks/results/pages-cpu-2026-01-01.json").is_file()

    # Nothing that is published tells where it was made, or loads a script, a style or a picture from elsewhere.
    elsewhere = (
        rb"<(script|link(?! rel=\"canonical\")|img|iframe)[^>]*(src|href)=\"(https?:)?//(?![^\"]*\"[^>]*rel=\"canon)"
    )
    for name, data in content(html).items():
        assert str(root).encode() not in data, name
        if name.endswith(".html"):
            assert not re.search(elsewhere, data), name
            assert b"thebe_js_url" not in data.lower(), name

    made = {name: path.stat().st_mtime_ns for name in content(html) if (path := html / name).suffix == ".html"}
    assert build(root) == 0
    told = capfd.readouterr().out
    assert "A book to read is there: pages run on this machine by an earlier build" in told
    assert "Nothing changed" in told
    assert "Rendering" not in told
    assert made == {name: (html / name).stat().st_mtime_ns for name in made}
    assert recorded(root)["pages"]["notebooks/part/01_page.ipynb"]["cached"] is True

    monkeypatch.setattr(book, "_render", quick)
    write(root / "book" / "preface.md", "# Another title\n")
    assert build(root) == 0
    told = capfd.readouterr()
    assert "notebooks/part/01_page.md  cached" in told.err
    assert told.out.count("Rendering\n") == 1
    assert "Another title" in (html / "book" / "preface.html").read_text()


@pytest.mark.usefixtures("without_sphinx")
def test_stored_build_shows_the_stored_number_and_an_edit_of_the_press_is_rendered_once(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    store_another_number(root)
    press = write(tmp_path / "press" / "words.py", "")
    monkeypatch.setattr(book, "PRESS", press.parent)
    for words, renderings in (("", 1), ("", 0), ("x", 1)):
        press.write_text(words)
        assert build(root, "--stored") == 0
        assert capfd.readouterr().out.count("Rendering\n") == renderings
    assert "number 43" in page_html(root)
    assert recorded(root)["source"] == "stored"
    assert recorded(root)["pages"] == {"notebooks/part/01_page.ipynb": {"seconds": None, "cached": None}}
    assert not (root / "_build" / "cache").exists()


@pytest.mark.usefixtures("without_sphinx")
def test_a_fresh_build_leaves_the_book_that_is_there_while_the_pages_run_and_when_they_fail(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    store_another_number(root)
    assert build(root, "--stored") == 0
    there = f"A book to read is there: outputs stored in the repository. Open {root / '_build/html/index.html'}"
    results = {page.source: PageResult(executed(), 1.0, cached=False) for page in find_pages(root)}
    outcomes = [PagesFailed("notebooks/part/01_page.md: code cell 2 failed"), results]

    def execute_pages(pages: list[Path], *_: object) -> dict[Path, PageResult]:
        assert there in capfd.readouterr().out
        assert "number 43" in page_html(root)
        if isinstance(found := outcomes.pop(0), PagesFailed):
            raise found
        return found

    monkeypatch.setattr(book, "execute_pages", execute_pages)
    assert build(root) == 1
    failed = "bookkit: error: pages failed, the HTML was not touched:\nnotebooks/part/01_page.md: code cell 2 failed"
    assert capfd.readouterr().err == f"{failed}\n{there}\n"
    assert "number 43" in page_html(root)
    assert build(root) == 0
    assert capfd.readouterr().out.count("Rendering\n") == 1
    assert "number 42" in page_html(root)
    assert recorded(root)["source"] == "fresh"


FAULTS = {  # all in one build: each must be told
    "{ref}`nowhere`": "undefined label: 'nowhere'",
    "{doc}`nowhere`": "unknown document: 'nowhere'",
    "{cite:t}`nobody`": "could not find bibtex key",
    "{prf:ref}`no-theorem`": "no-theorem",
    "{named-result}`notebooks/part/01_page loss`": "no result called 'loss'",
    "{named-result}`notebooks/part/01_page loss .1f range`": "only the word interval may follow",
    "\n\n```{notebook-figure} notebooks/part/01_page fig-lines\n```\n\n": "no figure called 'fig-lines'",
}


def test_every_warning_of_sphinx_fails_is_told_and_the_last_html_stays(
    root: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(book, "_render", quick)
        assert build(root, "--stored") == 0
    good = content(root / "_build" / "html")
    sound = (root / "book" / "preface.md").read_text()
    write(root / "book" / "preface.md", f"{sound}\nAlso {', '.join(FAULTS)}.\n")
    write(root / "book" / "forgotten.md", "# Forgotten\n")
    capfd.readouterr()
    assert build(root, "--stored") == 1
    told = capfd.readouterr().err
    assert [named for named in FAULTS.values() if named not in told] == []
    assert "book/forgotten.md: WARNING: document isn't included in any toctree" in told
    assert told.count("book/preface.md:") >= len(FAULTS)  # the source, not the copy that Sphinx reads
    assert str(root / "_build" / "source") not in told
    log = (root / "_build" / "render.log").read_text()
    assert [named for named in FAULTS.values() if named not in log] == []
    # What Sphinx itself cannot do.
    (root / "book" / "preface.md").unlink()
    assert build(root, "--stored") == 1
    told = capfd.readouterr().err.splitlines()
    assert told[0].startswith("bookkit: error: rendering failed")
    assert told[1].startswith("Sphinx is unable to load the master document (book/preface")
    assert len(told) == 2
    assert content(root / "_build" / "html") == good


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({".*": ""}, "is not a whole notebook"),  # jupyter-book/jupyter-book#966: an empty file
        ({r'"execution_count": \d+': '"execution_count": null', r'"outputs": \[.*?\n   \]': '"outputs": []'}, "has no outputs"),
        ({'"output_type": "stream"': '"output_type": "error"'}, "holds an error, in code cell 1"),
    ],
)  # fmt: skip
def test_a_stored_page_without_its_outputs_is_not_shown(
    root: Path, capfd: pytest.CaptureFixture, change: dict, said: str
) -> None:
    """executablebooks/MyST-NB#617, #650: outputs left empty, or an error among them, and the book is built all the same."""
    stored = root / "notebooks" / "part" / "01_page.ipynb"
    for old, new in change.items():
        stored.write_text(re.sub(old, new, stored.read_text(), flags=re.DOTALL))
    assert build(root, "--stored") == 1
    assert f"notebooks/part/01_page.ipynb {said}" in capfd.readouterr().err
    assert not (root / "_build" / "html").exists()


@pytest.mark.usefixtures("without_sphinx")
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("41 + 1", "41 + 2", "the code of part/01_page changed after it was run"),
        ("number 42", "number 43", "outputs of part/01_page were edited after it was run"),
        ('"ran"', '"was"', "the code of part/01_page changed after it was run"),
    ],
)
def test_a_page_that_changed_after_it_was_run_is_refused_and_the_last_book_stays(
    root: Path, capfd: pytest.CaptureFixture, old: str, new: str, said: str
) -> None:
    assert build(root, "--stored") == 0
    good = content(root / "_build" / "html")
    stored = root / "notebooks" / "part" / "01_page.ipynb"
    stored.write_text(stored.read_text().replace(old, new))
    capfd.readouterr()
    assert build(root, "--stored") == 1
    assert capfd.readouterr().err == f"bookkit: error: {said}: `python -m attnlib notebooks part/01_page`\n"
    assert content(root / "_build" / "html") == good


@pytest.mark.usefixtures("without_sphinx")
def test_a_book_with_an_edited_tolerance_is_not_built(root: Path, capfd: pytest.CaptureFixture) -> None:
    kept = Tolerances(numbers={"a": Tolerance(1e-9, "exact")}).as_json()
    write(root / "notebooks" / "part" / "01_page.tolerances.json", kept.replace("1e-09", "1e-04"))
    assert build(root, "--stored") == 1
    assert capfd.readouterr().err.startswith(
        "bookkit: error: 01_page.tolerances.json was edited: `python -m attnlib stability part/01_page"
    )
    assert not (root / "_build" / "html").exists()


@pytest.mark.usefixtures("without_sphinx")
def test_leftovers_of_a_killed_build_do_no_harm(root: Path) -> None:
    work = root / "_build"
    # Killed while it rendered: the half-made book is not taken for one.
    write(work / "sphinx-killed" / "_build" / "html" / "index.html", "half")
    write(work / "source" / "book" / "stale.md", "# Stale\n")
    assert build(root, "--stored") == 0
    assert "number 42" in page_html(root)
    assert "stale" not in " ".join(content(work / "html"))
    assert sorted(os.listdir(work)) == [".lock", "html", "source"]
    # Between the two renames of the swap: the last book is back even though the next one fails.
    (work / "html").rename(work / "html.old")
    write(root / "book" / "preface.md", "no-theorem\n")
    assert build(root, "--stored") == 1
    assert "number 42" in page_html(root)
    assert not (work / "html.old").exists()
    write(root / "book" / "preface.md", PROSE["preface"])
    # While the record was written; and another program, as `jupyter-book build .` does, wrote into the same folder.
    for path, text in (
        (work / "html/build.json", '{"content": "'),
        (work / "html/notebooks/part/01_page.html", "another"),
    ):
        path.write_text(text)
        assert build(root, "--stored") == 0
        assert recorded(root)["source"] == "stored"
        assert "number 42" in page_html(root)


def test_no_variable_of_the_shell_and_no_locale_shapes_the_book(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = {
        "PYTHONOPTIMIZE": "2",
        "LANG": "tr_TR.UTF-8",
        "LC_TIME": "de_DE",
        "SOURCE_DATE_EPOCH": "0",
        "DOCUTILSCONFIG": "mine",
    }
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    said = []

    def sphinx(command: list[str], **options: object) -> subprocess.CompletedProcess:
        said.append(options)
        return subprocess.CompletedProcess(command, 1, "WARNING: \N{GREEK SMALL LETTER XI}")

    monkeypatch.setattr(subprocess, "run", sphinx)
    assert build(root, "--stored") == 1
    assert shell.keys() & said[0]["env"].keys() == set()
    assert (said[0]["env"]["PYTHONUTF8"], said[0]["encoding"]) == ("1", "utf-8")


@pytest.mark.usefixtures("without_sphinx")
def test_bad_requests_are_refused_before_any_work(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (root / "notebooks" / "part" / "01_page.ipynb").unlink()
    assert build(root, "--stored") == 1
    assert "missing: notebooks/part/01_page.ipynb: run `make notebooks`" in capfd.readouterr().err
    with FileLock(root / "_build" / ".lock"):
        assert build(root, "--stored") == 1
    assert "another build is running" in capfd.readouterr().err
    assert not (root / "_build" / "html").exists()
    assert build(tmp_path) == 1
    assert "lacks _config.yml, _toc.yml, book, notebooks, requirements.txt" in capfd.readouterr().err
    assert os.listdir(tmp_path) == [ODD]
    with pytest.raises(SystemExit) as ended:
        book.main(["--root", str(root), "--jobs", "0"])
    assert ended.value.code == 2
    assert "--jobs" in capfd.readouterr().err
