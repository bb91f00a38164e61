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

HIDDEN = """selectors => selectors.filter(s => [...document.querySelectorAll(s)].some(n => n.checkVisibility()))"""
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
        menus = [
            ".bd-sidebar-primary",
            ".bd-sidebar-secondary",
            ".bd-header-article",
            ".prev-next-area",
            ".copybtn",
            ".headerlink",
            ".bd-footer",
        ]
        assert page.evaluate(HIDDEN, menus) == []
        assert page.locator(".bd-article h1").first.is_visible()
        solutions = page.locator("details:has(> summary:text-is('Solutions'))")
        assert solutions.locator("li").first.is_visible()
        assert page.locator("details.hide pre").first.is_visible()
        assert not page.locator("details.hide summary").first.is_visible()
        line = page.locator("details.provenance").first
        assert "attnlib rerun single_head/02_two_steps" in line.inner_text()
        assert not line.locator(".provenance-meaning").first.is_visible()
        assert page.evaluate(CUT) == []
        for selector in ("p", "pre span", "figcaption", "h2", "td"):
            colour = page.locator(f".bd-article {selector}").first.evaluate("n => getComputedStyle(n).color")
            assert sum(map(int, re.findall(r"\d+", colour)[:3])) < 3 * 100, (selector, colour)
        printed = PdfReader(BytesIO(page.pdf(prefer_css_page_size=True)))
        text = letters("".join(sheet.extract_text() for sheet in printed.pages))
        assert letters("Before you run on:") in text
        assert letters("Clean samples prefer the signal when") in text  # of a solution


def test_the_whole_books_pdf_on_some_pages(tmp_path: Path) -> None:
    write(tmp_path / "_config.yml", (ROOT / "_config.yml").read_text(encoding="utf-8"))
    toc = f"root: book/running\nparts:\n- caption: Part one\n  chapters:\n  - file: {PAGE}\n"
    write(tmp_path / "_toc.yml", toc)
    output = tmp_path / "book.pdf"
    # In a process of its own: this one has a browser open, and Playwright allows one at a time.
    command = [sys.executable, "-m", "bookkit.pdf.printing", "--root", str(tmp_path), "--html", str(HTML)]
    told = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    assert re.search(r"Written: .*book\.pdf \([\d.]+ MB\)", told.stdout)
    assert [path.name for path in tmp_path.iterdir() if "pdf" in path.name and path != output] == []

    book = PdfReader(output)
    assert book.metadata.title == "Attention, Checked"
    catalogue = book.trailer["/Root"]
    assert (catalogue["/Lang"], catalogue["/MarkInfo"]["/Marked"]) == ("en", True)
    # Each mark of a page has a tag, which holds it; no tag says nothing.
    numbers = catalogue["/StructTreeRoot"]["/ParentTree"]["/Nums"]
    lists = {number: tags.get_object() for number, tags in zip(numbers[::2], numbers[1::2], strict=True)}
    for sheet in book.pages:
        for mark, tag in enumerate(lists[sheet["/StructParents"]]):
            if (found := tag.get_object()) is not None:
                held = [kid.get_object() for kid in found["/K"]]
                own = mark in held and found.raw_get("/Pg") == sheet.indirect_reference
                named = [kid["/Pg"] for kid in held if isinstance(kid, dict) and kid.get("/MCID") == mark]
                assert own or sheet in named, (sheet.page_number, mark, found)
                assert found["/S"] != "/NonStruct" or "/ID" in found
    pages = [letters(sheet.extract_text()) for sheet in book.pages]
    header = re.compile(r"^Attention,Checked(?:Howtorunit|I\.2Twostepsofgradientdescent)\d+")
    whole = "".join(header.sub("", text) for text in pages)  # a sentence may go on over the page

    article = BeautifulSoup((HTML / f"{PAGE}.html").read_text(encoding="utf-8"), "html.parser").select_one(
        ".bd-article"
    )

    # Bookmarks: part, chapters below it, sections below these; each where its title is.
    titles = {}
    flat = [(book.outline, 0)]
    while flat:
        entries, depth = flat.pop()
        for entry in entries:
            if isinstance(entry, list):
                flat.append((entry, depth + 1))
            else:
                titles[entry.title] = (depth, book.get_destination_page_number(entry))
    assert titles["Part one"][0] + 1 == titles["I.2 Two steps of gradient descent"][0] == titles["Exercises"][0] - 1
    for title in ("I.2 Two steps of gradient descent", "Exercises", "Verdicts"):
        assert letters(title) in pages[titles[title][1]], title

    # The contents name each chapter, and a chapter begins with its header, number and part.
    start = titles["I.2 Two steps of gradient descent"][1]
    assert "I.2Twostepsofgradientdescent" in pages[1]
    assert pages[start].startswith(f"Attention,CheckedI.2Twostepsofgradientdescent{start + 1}Partone")

    # Links within the book end in it.
    annotations = [note.get_object() for sheet in book.pages for note in sheet.get("/Annots", [])]
    inside = {str(note["/Dest"]).lstrip("/") for note in annotations if "/Dest" in note}
    assert {"c00", "c01", "c00-other-parameters"} <= inside
    assert inside <= {name.lstrip("/") for name in book.named_destinations}
    assert not [note for note in annotations if "file:" in str(note.get("/A", ""))]

    # Formulas are drawn, none is left as TeX; folded text is there.
    assert not re.search(r"\\[(\[]", whole)
    for meaning in article.select(
        ".provenance-meaning"
    ):  # of a parameter: it stands in the parameters cell, printed above
        meaning.decompose()
    folded = [
        node.get_text()
        for node in article.select("details p, details li, details pre")
        if not node.select(".math, p, li")
    ]
    folded = [
        text for text in folded if "Show code" not in text and "Hide code" not in text and "find_spec" not in text
    ]
    assert len(folded) > 5
    lost = [text for text in folded if letters(text) not in whole]
    assert lost == []
