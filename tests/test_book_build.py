"""The book is built, kept when nothing changed, and never replaced by one that is broken."""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bookkit import book
from bookkit.pages.one_page import as_text, run_source
from tests.tiny_book import make_book, page_text, write

PROSE = {
    "preface": "# Preface\n\nSee {doc}`../notebooks/wing/01_page` and {cite:t}`one`.\n",
    "sources": "# S\n\n```{bibliography}\n```\n",
}
PAGE = page_text("print('number', 41 + 1)", title="First page")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A book of one notebook and two prose pages, not built yet."""
    return make_book(tmp_path / "a book", {"wing/01_page": PAGE}, PROSE)


def store(root: Path, source: str = PAGE) -> None:
    """Store the outputs of the page, as `make notebooks` does."""
    write(root / "notebooks" / "wing" / "01_page.ipynb", as_text(run_source(source)))


def build(root: Path, *options: str) -> int:
    return book.main(["--root", str(root), "--jobs", "1", *options])


def page_html(root: Path) -> str:
    return (root / "_build" / "html" / "notebooks" / "wing" / "01_page.html").read_text(encoding="utf-8")


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_fresh_build_then_nothing_to_do_then_the_one_change(root: Path, capfd: pytest.CaptureFixture) -> None:
    assert build(root) == 0
    html = root / "_build" / "html"
    told = capfd.readouterr().out
    assert f"Open {html / 'index.html'}" in told
    assert "the pages run all the same: every page needs its stored notebook" in told  # nothing to show first
    assert "number 42" in page_html(root)
    record = json.loads((html / "build.json").read_text())
    assert record["source"] == "fresh"
    assert list(record["pages"]) == ["notebooks/wing/01_page.ipynb"]
    assert record["pages"]["notebooks/wing/01_page.ipynb"]["seconds"] > 0
    assert record["pages"]["notebooks/wing/01_page.ipynb"]["cached"] is False
    assert record["versions"]["sphinx"] == "7.4.7"

    # Nothing that is published tells where it was made, or loads a script, a style or a picture from elsewhere.
    for name, data in content(html).items():
        assert str(root).encode() not in data, name
        if name.endswith(".html"):
            assert not re.search(
                rb"<(script|link|img|iframe)[^>]*(src|href)=\"(https?:)?//(?![^\"]*\"[^>]*rel=\"canon)", data
            ), name
            assert b"thebe_js_url" not in data.lower(), name

    made = {name: path.stat().st_mtime_ns for name in content(html) if (path := html / name).suffix == ".html"}
    assert build(root) == 0
    told = capfd.readouterr().out
    assert "A book to read is there: pages run on this machine by an earlier build" in told
    assert "Nothing changed" in told
    assert "Rendering" not in told
    assert made == {name: (html / name).stat().st_mtime_ns for name in made}
    assert json.loads((html / "build.json").read_text())["pages"]["notebooks/wing/01_page.ipynb"]["cached"] is True

    write(root / "book" / "preface.md", "# Another title\n\nSee {cite:t}`one`.\n")
    assert build(root) == 0
    told = capfd.readouterr()
    assert "notebooks/wing/01_page.md  cached" in told.err
    assert told.out.count("Rendering\n") == 1
    assert "Another title" in page_html(root)  # menus of pages that did not change are new, too


def test_stored_build_shows_the_stored_number_and_runs_nothing(root: Path) -> None:
    store(root)
    notebook = root / "notebooks" / "wing" / "01_page.ipynb"
    notebook.write_text(notebook.read_text().replace("number 42", "number 43"))
    assert build(root, "--stored") == 0
    assert "number 43" in page_html(root)
    record = json.loads((root / "_build" / "html" / "build.json").read_text())
    assert record["source"] == "stored"
    assert record["pages"] == {"notebooks/wing/01_page.ipynb": {"seconds": None, "cached": None}}
    assert not (root / "_build" / "cache").exists()


def store_another_number(root: Path, more: str = "") -> None:
    """Stored outputs that can be told from fresh ones: 43 in place of 42. `more` goes into the text of the page."""
    store(root)
    notebook = root / "notebooks" / "wing" / "01_page.ipynb"
    text = notebook.read_text().replace("number 42", "number 43").replace("# First page", f"# First page{more}")
    notebook.write_text(text)


def test_a_first_fresh_build_shows_the_stored_book_while_the_pages_run(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    store_another_number(root)
    html = root / "_build" / "html"
    meanwhile: dict[str, object] = {}

    def observed(*arguments, **options):
        meanwhile.update(page=page_html(root), files=set(content(html)), told=capfd.readouterr().out)
        meanwhile.update(record=json.loads((html / "build.json").read_text()))
        return execute_pages(*arguments, **options)

    execute_pages = book.execute_pages
    monkeypatch.setattr(book, "execute_pages", observed)
    assert build(root) == 0
    assert "number 43" in meanwhile["page"]
    assert meanwhile["record"]["source"] == "stored"
    assert f"outputs stored in the repository. Open {html / 'index.html'}\n" in meanwhile["told"]
    assert "number 42" in page_html(root)
    assert json.loads((html / "build.json").read_text())["source"] == "fresh"
    assert set(content(html)) == meanwhile["files"]  # nothing is lost
    assert capfd.readouterr().out.count("Rendering\n") == 1


def test_pages_that_fail_leave_the_stored_book_and_say_so(root: Path, capfd: pytest.CaptureFixture) -> None:
    store_another_number(root)
    write(root / "notebooks" / "wing" / "01_page.md", page_text("x = 1\nx.missing", title="First page"))
    for renderings in (1, 0):  # the second time the book is there
        assert build(root) == 1
        told = capfd.readouterr()
        assert told.out.count("Rendering\n") == renderings
        failed, *_, left = told.err[told.err.index("error: ") :].splitlines()
        assert failed == "error: pages failed, the HTML was not touched:"
        index = root / "_build" / "html" / "index.html"
        assert left == f"A book to read is there: outputs stored in the repository. Open {index}"
        assert "number 43" in page_html(root)


def test_stored_outputs_that_do_not_render_do_not_stop_a_fresh_build(root: Path, capfd: pytest.CaptureFixture) -> None:
    store_another_number(root, more="\\n\\nSee {prf:ref}`no-theorem`.")
    assert build(root) == 0
    told = capfd.readouterr().out
    assert "the pages run all the same: rendering failed" in told
    assert "A book to read is there" not in told
    assert "number 42" in page_html(root)


def test_a_failing_page_is_named_and_the_last_html_stays(root: Path, capfd: pytest.CaptureFixture) -> None:
    store(root)
    assert build(root, "--stored") == 0
    good = content(root / "_build" / "html")
    write(root / "notebooks" / "wing" / "01_page.md", page_text("x = 1", "y = x\nx.missing"))
    write(root / "notebooks" / "wing" / "02_page.md", page_text("print('fine')"))
    capfd.readouterr()
    assert build(root) == 1
    told = capfd.readouterr().err
    assert "notebooks/wing/01_page.md: code cell 2 failed with AttributeError" in told
    assert "[at line 2: x.missing]" in told
    assert "notebooks/wing/02_page.md  FAILED" not in told
    assert content(root / "_build" / "html") == good


FAULTS = {  # all on one page: each must be told
    "{ref}`nowhere`": "undefined label: 'nowhere'",
    "{doc}`nowhere`": "unknown document: 'nowhere'",
    "{cite:t}`nobody`": "could not find bibtex key",
    "{prf:ref}`no-theorem`": "no-theorem",
}


def test_a_warning_fails_and_fails_again_and_the_last_html_stays(root: Path, capfd: pytest.CaptureFixture) -> None:
    store(root)
    assert build(root, "--stored") == 0
    good = content(root / "_build" / "html")
    sound = (root / "book" / "preface.md").read_text()
    write(root / "book" / "preface.md", f"{sound}\nAlso {', '.join(FAULTS)}.\n")
    for _ in range(2):
        capfd.readouterr()
        assert build(root, "--stored") == 1
        told = capfd.readouterr().err
        assert [named for named in FAULTS.values() if named not in told] == []
        assert told.count("book/preface.md:") >= len(FAULTS)  # the source, not the copy that Sphinx reads
        assert str(root / "_build" / "source") not in told
        assert content(root / "_build" / "html") == good
    log = (root / "_build" / "render.log").read_text()
    assert [named for named in FAULTS.values() if named not in log] == []
    # One fault alone is enough.
    write(root / "book" / "preface.md", f"{sound}\nAlso {{prf:ref}}`no-theorem`.\n")
    assert build(root, "--stored") == 1
    write(root / "book" / "preface.md", sound)
    assert build(root, "--stored") == 0


def test_a_page_missing_from_the_contents_fails(root: Path, capfd: pytest.CaptureFixture) -> None:
    store(root)
    write(root / "book" / "forgotten.md", "# Forgotten\n")
    assert build(root, "--stored") == 1
    assert "book/forgotten.md: WARNING: document isn't included in any toctree" in capfd.readouterr().err


def test_an_error_of_sphinx_itself_is_told(root: Path, capfd: pytest.CaptureFixture) -> None:
    store(root)
    (root / "book" / "preface.md").unlink()
    assert build(root, "--stored") == 1
    told = capfd.readouterr().err.splitlines()
    assert told[0].startswith("error: rendering failed")
    assert told[1].startswith("Sphinx is unable to load the master document (book/preface")
    assert len(told) == 2


def test_leftovers_of_a_killed_build_do_no_harm(root: Path) -> None:
    store(root)
    assert build(root, "--stored") == 0
    work = root / "_build"
    # Killed between the two renames of the swap, while Sphinx had written half of the next book.
    (work / "html").rename(work / "html.old")
    write(work / "sphinx-killed" / "_build" / "html" / "index.html", "half")
    write(work / "source" / "book" / "stale.md", "# Stale\n")
    assert build(root, "--stored") == 0
    assert "number 42" in page_html(root)
    assert sorted(path.name for path in work.iterdir()) == [".lock", "html", "render.log", "source"]
    # And killed while the record was written.
    write(work / "html" / "build.json", '{"content": "')
    assert build(root, "--stored") == 0
    assert json.loads((work / "html" / "build.json").read_text())["source"] == "stored"
    assert "stale" not in " ".join(content(work / "html"))
    # And when another program, as `jupyter-book build .` does, wrote a page into the same folder.
    write(work / "html" / "notebooks" / "wing" / "01_page.html", "another page")
    assert build(root, "--stored") == 0
    assert "number 42" in page_html(root)


def test_a_build_killed_while_rendering_is_followed_by_a_whole_one(root: Path) -> None:
    store(root)
    command = [sys.executable, "-m", "bookkit.book", "--stored", "--root", str(root)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not list((root / "_build").glob("sphinx-*/_build/.doctrees")):  # Sphinx reads
        assert first.poll() is None, "the build ended by itself"
        time.sleep(0.01)
    first.kill()
    first.wait()
    assert not (root / "_build" / "html").exists()
    # Its Sphinx is an orphan now, and may still be writing.
    assert build(root, "--stored") == 0
    assert "number 42" in page_html(root)


def test_two_builds_at_once_are_refused(root: Path, capfd: pytest.CaptureFixture) -> None:
    store(root)
    (root / "_build").mkdir()
    with (root / "_build" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert build(root, "--stored") == 1
    assert "another build is running" in capfd.readouterr().err
    assert not (root / "_build" / "html").exists()


def test_bad_requests_are_refused_before_any_work(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    assert build(root, "--stored") == 1
    assert "missing: notebooks/wing/01_page.ipynb: run `make notebooks`" in capfd.readouterr().err
    assert build(tmp_path) == 1
    assert "lacks _config.yml, _toc.yml, book, notebooks, requirements.txt" in capfd.readouterr().err
    assert os.listdir(tmp_path) == ["a book"]
    for jobs in ("0", "-1", "two", "1.5"):
        with pytest.raises(SystemExit) as ended:
            book.main(["--root", str(root), "--jobs", jobs])
        assert ended.value.code == 2
        assert f"expected a whole number >= 1; got '{jobs}'" in capfd.readouterr().err


def test_results_of_benchmarks_are_staged(tmp_path):
    root = make_book(tmp_path, {}, {"preface": "# Title\n", "more": "# More\n"})
    (root / "notebooks").mkdir(exist_ok=True)
    write(root / "benchmarks" / "results" / "kernels-cpu-2026-01-01.json", "{}")
    book._stage(root, tmp_path / "staged", {})
    assert (tmp_path / "staged" / "benchmarks" / "results" / "kernels-cpu-2026-01-01.json").is_file()
