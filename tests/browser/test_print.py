"""Paper: single pages by Ctrl+P, and the whole book's PDF made of some real pages."""

import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser
from pypdf import PdfReader

from tests.browser.browsing import HTML, visited
from tests.tiny_book import write

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
PAGE = "notebooks/single_head/02_two_steps"
MENUS = (
    ".bd-sidebar-primary, .bd-sidebar-secondary, .bd-header-article, .prev-next-area, .copybtn, .headerlink, .bd-footer"
)
CUT = """() => [...document.querySelectorAll('.bd-article :is(pre, table, img, figure)')].filter(n => n.checkVisibility())
  .filter(n => n.getBoundingClientRect().right > innerWidth + 1 || (n.tagName === 'PRE' && n.scrollWidth > n.clientWidth + 1))
  .map(n => n.tagName + ' ' + n.textContent.trim().slice(0, 50))"""


def letters(text: str) -> str:
    """Text without what a line break can change: spaces, hyphens, ligatures."""
    return re.sub(r"[\s\u00ad\u2010-]+", "", text.replace("ﬁ", "fi").replace("ﬂ", "fl").replace("’", "'"))


def test_a_page_on_paper_is_the_text_alone(browser: Browser, address: str) -> None:
    """Also from a dark screen: no menus, folded parts open, nothing cut, dark ink."""
    with visited(browser, address, f"{PAGE}.html", {"width": 660, "height": 900}, "dark") as visit:
        page = visit.page
        assert not page.locator("details:not([open]) li").first.is_visible()
        page.emulate_media(media="print", color_scheme="dark")
        assert page.locator(MENUS).filter(visible=True).count() == 0
        for shown in (".bd-article h1", "details:has(> summary:text-is('Solutions')) li", "details.hide pre"):
            assert page.locator(shown).first.is_visible(), shown
        for hidden in ("details.hide summary", "details.provenance .provenance-meaning"):
            assert not page.locator(hidden).first.is_visible(), hidden
        assert "attnlib rerun single_head/02_two_steps" in page.locator("details.provenance").first.inner_text()
        assert page.evaluate(CUT) == []
        for selector in ("p", "pre span", "figcaption", "h2", "td"):
            colour = page.locator(f".bd-article {selector}").first.evaluate("n => getComputedStyle(n).color")
            assert sum(map(int, re.findall(r"\d+", colour)[:3])) < 3 * 100, (selector, colour)
        printed = PdfReader(BytesIO(page.pdf(prefer_css_page_size=True)))
        text = letters("".join(sheet.extract_text() for sheet in printed.pages))
        assert letters("Clean samples prefer the signal when") in text  # of a solution


def bookmarks(entries: list, depth: int = 0) -> list[tuple[str, int]]:
    """Titles of bookmarks, each with its depth."""
    found = []
    for entry in entries:
        found += bookmarks(entry, depth + 1) if isinstance(entry, list) else [(entry.title, depth)]
    return found


def untagged(book: PdfReader) -> list[tuple[int, int]]:
    """(page, mark) of the marks whose tag does not hold them."""
    numbers = book.trailer["/Root"]["/StructTreeRoot"]["/ParentTree"]["/Nums"]
    lists, lost = dict(zip(numbers[::2], numbers[1::2], strict=True)), []
    for sheet in book.pages:
        for mark, tag in enumerate(lists[sheet["/StructParents"]].get_object()):
            if (found := tag.get_object()) is not None:
                held = [kid.get_object() for kid in found["/K"]]
                own = mark in held and found.raw_get("/Pg") == sheet.indirect_reference
                named = [kid["/Pg"] for kid in held if isinstance(kid, dict) and kid.get("/MCID") == mark]
                if not own and sheet not in named:
                    lost.append((sheet.page_number, mark))
    return lost


def test_the_whole_books_pdf_on_some_pages(tmp_path: Path) -> None:
    write(tmp_path / "_config.yml", (ROOT / "_config.yml").read_text(encoding="utf-8"))
    toc = f"root: book/running\nparts:\n- caption: Part one\n  chapters:\n  - file: {PAGE}\n"
    write(tmp_path / "_toc.yml", toc)
    output = tmp_path / "book.pdf"
    # In a process of its own: this one has a browser open, and Playwright allows one at a time.
    command = [sys.executable, "-m", "bookkit.pdf.printing", "--root", str(tmp_path), "--html", str(HTML)]
    told = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir() if "pdf" in path.name] == ["book.pdf"]

    book = PdfReader(output)
    assert book.metadata.title == "Attention, Checked"
    assert (book.trailer["/Root"]["/Lang"], untagged(book)) == ("en", [])
    pages = [letters(sheet.extract_text()) for sheet in book.pages]

    # Bookmarks: part, chapters below it, sections below these.
    titles = dict(bookmarks(book.outline))
    assert titles["Part one"] + 1 == titles["I.2 Two steps of gradient descent"] == titles["Exercises"] - 1
    # The contents name each chapter, and a chapter begins with its header, number and part.
    assert "I.2Twostepsofgradientdescent" in pages[1]
    assert any(re.match(r"Attention,CheckedI\.2Twostepsofgradientdescent\d+Partone", text) for text in pages)
    # Links within the book end in it.
    annotations = [note.get_object() for sheet in book.pages for note in sheet.get("/Annots", [])]
    inside = {str(note["/Dest"]).lstrip("/") for note in annotations if "/Dest" in note}
    assert {"c00", "c01", "c00-other-parameters"} <= inside
    assert inside <= {name.lstrip("/") for name in book.named_destinations}
    assert not [note for note in annotations if "file:" in str(note.get("/A", ""))]

    # Formulas are drawn, none is left as TeX; folded text is there, without the meaning of a parameter, which stands in the
    # parameters cell. A sentence may go on over the page, whose header is taken out.
    header = re.compile(r"^Attention,Checked(?:Howtorunit|I\.2Twostepsofgradientdescent)\d+")
    whole = "".join(header.sub("", text) for text in pages)
    assert not re.search(r"\\[(\[]", whole)
    built = BeautifulSoup((HTML / f"{PAGE}.html").read_text(encoding="utf-8"), "html.parser")
    for meaning in built.select(".provenance-meaning"):
        meaning.decompose()
    folded = [
        node.get_text()
        for node in built.select(".bd-article details :is(p, li, pre)")
        if not node.select(".math, p, li") and not re.search("Hide the code|Each line opens|find_spec", node.get_text())
    ]
    assert len(folded) > 5
    assert [text for text in folded if letters(text) not in whole] == []
