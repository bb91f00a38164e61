"""Slides and a one-page handout, printed by Chromium from a built page of the book: see `bookkit.sphinx.slides`.

    python -m bookkit.pdf.slides                        from book/teaching, to _build/slides/slides.pdf and handout.pdf
    python -m bookkit.pdf.slides --html _build/html     from a book that is built already
    python -m bookkit.pdf.slides book/other -o folder   another page, another folder

The slides are the page's `{slide}`s without what the speaker says; the handout is its section "Handout". A slide is one sheet of 16:9,
the handout one of A4; more is refused.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bs4 import BeautifulSoup, Tag

from bookkit.book import build
from bookkit.parser import Parser, answered
from bookkit.pdf.document import document
from bookkit.pdf.printing import PdfError, chromium, command, printed, put_on_paper

if TYPE_CHECKING:
    from argparse import Namespace

    from bookkit.pdf.printing import Page

PAGE = "book/teaching"
SLIDES, HANDOUT = "slides.pdf", "handout.pdf"
SHEETS = {
    SLIDES: """@page { size: 297mm 167mm; margin: 0; }
html { font: 21pt/1.3 Book, serif; } body { margin: 0; }
.sheet { height: 166.9mm; padding: 10mm 15mm 8mm; box-sizing: border-box; break-after: page; overflow: hidden; }
.sheet { display: flex; flex-direction: column; }
.sheet:last-child { break-after: auto; }
.sheet p { margin: 0; }
.slide-title { font-size: 27pt; font-weight: bold; line-height: 1.15; text-wrap: balance; }
.slide-picture { flex: 1; min-height: 0; margin: 4mm 0; } .slide-picture svg { display: block; width: 100%; height: 100%; }
.slide-line { font-size: 20pt; text-align: center; text-wrap: balance; }
.sheet:not(:has(.slide-picture)) { justify-content: center; gap: 10mm; } .sheet:not(:has(.slide-picture)) .slide-line { text-align: left; }
.sheet > footer { font-size: 11pt; color: #4d5560; text-align: right; }""",
    HANDOUT: """@page { size: A4; margin: 14mm 16mm; }
html { font: 10pt/1.36 Book, serif; } body { margin: 0; }
h1 { font-size: 17pt; margin: 0 0 3mm; } h2 { font-size: 12pt; margin: 3.5mm 0 1mm; } p { margin: 0 0 1.6mm; }
ul, ol { margin: 0 0 1.6mm; padding-left: 5mm; } table { border-collapse: collapse; width: 100%; margin-bottom: 2mm; }
td, th { text-align: left; vertical-align: top; padding: 0.7mm 3mm 0.7mm 0; border-bottom: 0.4pt solid #d3d8df; }
a { color: #0b4f80; text-decoration: none; } svg { max-width: 100%; height: auto; }
.story-panel svg { display: block; width: 7.4cm; margin: 0 auto; } .formula { display: block; margin: 1mm 0; }""",
}

CUT = """[...document.querySelectorAll('.sheet')].filter(sheet => sheet.scrollHeight > sheet.clientHeight + 1)
  .map(sheet => sheet.textContent.trim().slice(0, 60))"""


def make(root: Path, page: str, folder: Path, html: Path | None = None) -> int:
    """Print slides and handout of `page` into `folder`; returns the number of slides. Raises `PdfError` and `book.BuildError`."""
    browser = chromium()  # before minutes of work
    built = (html or build(root, fresh=False).parent).resolve()
    path = built / f"{page}.html"
    if not path.is_file():
        raise PdfError(f"the built book has no page {page}: build it again with `make html`")
    soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    shown = soup.select(".slide .slide-shown")
    handout = soup.select_one("section#handout")
    if not shown or handout is None:
        raise PdfError(f'{page} needs {{slide}}s and a section "Handout"; it has {len(shown)} slides')
    bodies = {SLIDES: _sheets(shown, _title(soup)), HANDOUT: _handout(handout)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in bodies.items():
        sheets = len(shown) if name == SLIDES else 1
        text = document(built, _title(soup), SHEETS[name], body)
        put_on_paper(text, folder / name, browser, partial(_printed, name=name, sheets=sheets))
    return len(shown)


def _title(soup: BeautifulSoup) -> str:
    """The heading of the section with the slides; of the page where they stand in none."""
    slide = soup.select_one("section:has(> .slide)")
    heading = (slide or soup).find(re.compile("^h[1-4]$"))
    for link in heading.select(".headerlink") if heading else []:
        link.decompose()
    return " ".join(heading.get_text().split()) if heading else "Slides"


def _sheets(shown: Sequence[Tag], title: str) -> str:
    return "".join(
        f'<section class="sheet">{slide.decode_contents()}<footer>{title}, {number} of {len(shown)}</footer></section>'
        for number, slide in enumerate(shown, 1)
    )


def _handout(section: Tag) -> str:
    """The section as a document of its own: its heading is the title, links show where they lead in colour only."""
    for element in section.select(".headerlink, .screen-only, script, style"):
        element.decompose()
    for level in (2, 3):
        for heading in section.find_all(f"h{level}"):
            heading.name = f"h{level - 1}"
    for link in section.find_all("a", href=True):
        if "://" not in link["href"]:
            link.unwrap()  # of the book: nothing to follow on paper
    return section.decode_contents()


def _printed(page: Page, name: str, sheets: int) -> bytes:
    if cut := page.evaluate(CUT):
        raise PdfError(
            f"{len(cut)} slides hold more than fits, the first is {cut[0]!r}: make its title or line shorter"
        )
    whole = printed(page)
    if (found := len(re.findall(rb"/Type\s*/Page\b", whole))) != sheets:
        raise PdfError(f"{name} has {found} sheets, not {sheets}: make its text shorter")
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of `python -m bookkit.pdf.slides`; returns the exit status."""
    parser = Parser(prog="python -m bookkit.pdf.slides", description="Slides and a handout, as PDF.")
    parser.add_argument("page", nargs="?", default=PAGE, help=f"page of the book (default: {PAGE})")
    parser.add_argument("-o", dest="folder", type=Path, help="folder to write to (default: _build/slides)")

    def work(root: Path, options: Namespace) -> None:
        folder = (options.folder or root / "_build" / "slides").resolve()
        count = make(root, options.page, folder, options.html)
        print(f"Written: {folder / SLIDES} ({count} slides), {folder / HANDOUT}")

    return command(parser, argv, work)


if __name__ == "__main__":
    sys.exit(answered("slides", main))
