"""The book as one document for paper: what is joined, opened, renamed and linked; and refusals. Printing: tests/browser/test_print.py."""

import shutil
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from bookkit.pdf import printing as pdf
from bookkit.pdf.document import chapters, merged
from tests.house import ROOT
from tests.tiny_book import write

PAGE = """<html><body><nav>menu</nav><article class="bd-article"><section id="top"><h1>{title}<a class="headerlink" href="#top">#</a></h1>
{body}</section></article></body></html>"""
FIRST = """<p>See <a href="../notebooks/part/01_page.html#exercises">exercises</a>, <a href="ledger.html#claim-c1">C1</a>,
<a href="ledger.html?verdict=fails">failures</a>, <a href="../search.html">search</a>, <a href="https://example.org/x">outside</a>,
<a href="#made-by-a-script">nowhere</a>.</p><figure><a class="image-reference" href="../_images/a.webp"><img src="../_images/a.webp"
srcset="../_images/a.webp 2x" loading="lazy" alt="A picture."></a></figure><div class="screen-only">slider</div>
<svg class="map-arcs"></svg><script>evil()</script>"""
NOTEBOOK = """<div class="cell"><pre>if importlib.util.find_spec("attnlib") is None:</pre></div>
<div class="cell"><details class="hide above-input"><summary>Show code</summary><pre>hidden = 1</pre></details></div>
<section id="exercises"><h2>Exercises</h2><details><summary>Solutions</summary><p>It is \\(x\\).</p></details></section>
<details class="provenance"><summary>How this figure was made<span class="provenance-of">: A</span></summary><p>By hand.</p></details>"""
LEDGER = """<section id="exercises"><div class="ledger-overview">again</div><div class="ledger-group" data-source="derived">
<h3 class="ledger-head">Derived <span>1</span></h3><div class="ledger-page"><p class="ledger-from"><a
href="../notebooks/part/01_page.html">Page "one"</a></p><details class="claim" id="claim-c1"><summary><b>C1</b><span>long</span><i>9</i>
<span class="verdict verdict-fails">fails as expected</span></summary><div class="claim-body"><p>a&lt;b <em>is</em> true</p><p>Twice.</p>
<dl><dt>Rule</dt><dd>long</dd><dt>Predicted</dt><dd>1</dd><dt>Measured</dt><dd>2 ± 1 ≤ 3</dd></dl></div></details></div></div></section>"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A book of three pages, built as far as the document needs it."""
    write(
        tmp_path / "_config.yml", "title: A <Title>\nauthor: An author\nrepository:\n  url: https://example.org/book\n"
    )
    toc = "root: book/preface\nparts:\n- caption: Part one\n  chapters:\n  - file: notebooks/part/01_page\n"
    toc += "    sections:\n    - file: book/ledger\n"
    write(tmp_path / "_toc.yml", toc)
    built = tmp_path / "html"
    for name, title, body in (
        ("book/preface", "Preface", FIRST),
        ("notebooks/part/01_page", 'Page "one"', NOTEBOOK),
        ("book/ledger", "Ledger", LEDGER),
    ):
        write(built / f"{name}.html", PAGE.format(title=title, body=body))
    shutil.copytree(ROOT / "book" / "assets" / "formulas", built / "_static" / "formulas")
    return tmp_path


@pytest.fixture
def document(root: Path) -> BeautifulSoup:
    return BeautifulSoup(merged(root / "html", root), "html.parser")


def test_order_parts_and_nested_sections(root: Path) -> None:
    assert [(c.key, c.name, c.part) for c in chapters(root)] == [
        ("c00", "book/preface", ""),
        ("c01", "notebooks/part/01_page", "Part one"),
        ("c02", "book/ledger", ""),
    ]


def test_names_are_unique_and_every_link_inside_has_its_end(document: BeautifulSoup) -> None:
    names = [element["id"] for element in document.find_all(id=True)]
    assert len(names) == len(set(names))
    assert {"c01-exercises", "c02-exercises", "c02-claim-c1"} <= set(names)
    links = {link.get_text(): link["href"] for link in document.select(".chapter a[href]")}
    assert links["exercises"] == "#c01-exercises"
    assert links["C1"] == "#c01"  # of the ledger's row: to the page that checks it
    assert links["failures"] == "#c02"
    assert links["nowhere"] == "#c00"
    assert links["outside"] == "https://example.org/x"
    assert "search" not in links
    assert "search" in document.select_one("#c00").get_text()
    assert document.select_one("#c00 a[href='#c02-claim-c1']") is not None
    inside = [link["href"][1:] for link in document.find_all("a", href=True) if link["href"].startswith("#")]
    assert set(inside) <= set(names)


def test_folded_parts_lie_open_and_controls_are_gone(document: BeautifulSoup) -> None:
    assert not document.select("details, summary, .screen-only, .map-arcs, nav.menu, .headerlink, .chapter script")
    text = document.get_text()
    for shown in ("hidden = 1", "Solutions", "It is \\(x\\).", "By hand."):
        assert shown in text
    for gone in ("Show code", "find_spec(", "slider", "evil", "again", ": A"):
        assert gone not in document.select_one("body").get_text(), gone


def test_headings_leave_room_for_parts(document: BeautifulSoup) -> None:
    assert [h.get_text() for h in document.find_all("h1")] == ["Part one"]
    assert [h.get_text() for h in document.find_all("h2")] == ["Preface", 'Page "one"', "Ledger"]
    assert [h.get_text() for h in document.find_all("h3")] == ["Exercises"]


def test_pictures_are_files_and_plain(document: BeautifulSoup, root: Path) -> None:
    image = document.select_one("#c00 img")
    assert image["src"] == (root / "html" / "_images" / "a.webp").resolve().as_uri()
    assert image.parent.name == "figure"
    assert set(image.attrs) == {"src", "alt"}
    assert document.select_one(".cover img")["src"] == image["src"]


def test_the_ledger_is_a_table(document: BeautifulSoup) -> None:
    (row,) = document.select("table.compact-ledger tbody tr")
    assert row["id"] == "c02-claim-c1"
    assert [cell.get_text() for cell in row.find_all(["th", "td"])] == [
        "C1",
        "a<b is true Twice. derived",
        "1; 2 ± 1 ≤ 3",
        "fails as expected",
    ]
    assert "long" not in document.select_one("#c02").get_text()
    assert document.select_one("table.compact-ledger caption").get_text() == "Derived 1"


def test_contents_and_running_headers(document: BeautifulSoup) -> None:
    lines = [(line["href"], line.get_text()) for line in document.select(".contents-line a")]
    assert lines == [("#c00", "Preface"), ("#c01", 'Page "one"'), ("#c02", "Ledger")]
    style = document.style.string
    assert '@page c01 { @top-left { content: "A \\3c Title>" } @top-right { content: "Page \\"one\\"" } }' in style
    assert document.title.get_text() == "A <Title>"


def test_a_missing_page_is_named(root: Path) -> None:
    (root / "html" / "book" / "ledger.html").unlink()
    with pytest.raises(FileNotFoundError, match="the built book lacks book/ledger: build it again"):
        merged(root / "html", root)


@pytest.mark.parametrize("lacking", ["chromium", "playwright", "pypdf", "folder"])
def test_what_is_lacking_is_told_in_one_line_before_any_work(root: Path, monkeypatch, capsys, lacking: str) -> None:
    """A reader's environment has neither browser nor packages."""
    output = write(root / "book.pdf", "old")
    monkeypatch.setattr(pdf.shutil, "which", lambda name: None if lacking == "chromium" else name)
    if lacking == "folder":
        output = root / "none" / "book.pdf"
    elif lacking != "chromium":
        monkeypatch.setitem(sys.modules, lacking, None)  # its import fails
    assert pdf.main(["--root", str(root), "-o", str(output)]) == 1
    told = capsys.readouterr().err
    says = {
        "chromium": "error: the PDF is printed by Chromium, and there is none",
        "folder": f"error: output folder {root / 'none'} does not exist: make it first",
    }
    assert told.startswith(
        says.get(lacking, f"error: the PDF needs the package {lacking}: `make pdf` installs it first")
    )
    assert told.count("\n") == 1
    assert (root / "book.pdf").read_text() == "old"
    assert not (root / "_build").exists()
