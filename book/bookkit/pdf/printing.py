"""The whole book as one PDF, printed by Chromium from the built pages: no LaTeX.

    python -m bookkit.pdf.printing                         from the stored outputs, to _build/attention-checked.pdf
    python -m bookkit.pdf.printing --html _build/html      from a book that is built already, whatever ran its pages
    python -m bookkit.pdf.printing -o mine.pdf             to another file

Chromium writes bookmarks and tags. Nothing is fetched, and the file appears under its name only when it is whole.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from bookkit.book import BuildError, build
from bookkit.files import written_aside
from bookkit.pages.catalogue import UserError, find_root
from bookkit.parser import Parser, answered
from bookkit.pdf.document import merged

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pypdf import PdfWriter

WIDTH = 650  # CSS pixels of a line: A4 less the margins of pdf.css
PATIENCE = 20 * 60 * 1000  # milliseconds for the whole book, on a slow machine
NO_CHROMIUM = (
    "the PDF is printed by Chromium, and there is none: `sudo apt-get install chromium` "
    "(or chromium-browser, google-chrome), then again"
)
NO_PACKAGE = (
    "the PDF needs the package {}: `make pdf` installs it first, and so does `pip install '.[pdf]'` in the repository"
)

# What is wider than the page is made smaller, never cut. Formulas by their font, tables whole.
FIT = """() => {
  for (const node of document.querySelectorAll('math')) {
    const block = node.closest('.formula, p, td, th, dd, li, div, figcaption') ?? node.parentElement;
    // What fills its line says by what it holds how wide it is.
    const inner = node.matches('.tml-display') ? node.firstElementChild : node;
    const wide = Math.max(inner.getBoundingClientRect().width, node.scrollWidth), r = block.getBoundingClientRect().width;
    const own = parseFloat(getComputedStyle(node).fontSize);
    if (r > 0 && wide > r + 0.5) { node.style.fontSize = `${own * r / wide * 0.985}px`; }
  }
  // Twice: text that is smaller breaks elsewhere.
  for (const node of document.querySelectorAll('table')) for (let i = 0; i < 2; i += 1) {
    const r = node.parentElement.getBoundingClientRect().width, wide = node.getBoundingClientRect().width;
    if (r > 0 && wide > r + 0.5) { node.style.zoom = (parseFloat(node.style.zoom) || 1) * r / wide * 0.99; }
  }
}"""
TOO_WIDE = """() => [...document.querySelectorAll('.chapter :is(table, img, pre, math)')]
  .filter(n => n.getBoundingClientRect().right > document.body.getBoundingClientRect().right + 2)
  .map(n => `${n.tagName} ${Math.round(n.getBoundingClientRect().right)}: ${n.textContent.trim().slice(0, 60)}`)"""


class PdfError(Exception):
    """No PDF was made. The message says why and what to do; an older file is untouched."""


def chromium() -> str:
    """Path of the machine's Chromium. Raises PdfError where it, or a package that printing needs, is missing."""
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    if not found:
        raise PdfError(NO_CHROMIUM)
    for name in ("playwright", "pypdf"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise PdfError(NO_PACKAGE.format(name)) from None
    return found[0]


def make(root: Path, output: Path, html: Path | None = None) -> None:
    """Print the book in `root` to `output`.

    `html`: a built book; None builds one from the stored outputs. Raises `PdfError` and `book.BuildError`.
    """
    browser = chromium()  # before minutes of work
    if not output.parent.is_dir():
        raise PdfError(f"output folder {output.parent} does not exist: make it first")
    built = html or build(root, fresh=False).parent
    start = time.perf_counter()
    _say(start, "Joining the pages")
    try:
        text = merged(built.resolve(), root)
    except (FileNotFoundError, ValueError) as error:
        raise PdfError(str(error)) from None
    _say(start, "Printing")
    put_on_paper(text, output, browser, lambda page: finished(printed(page)))
    _say(start, f"Written: {output} ({output.stat().st_size / 1e6:.1f} MB)")


def _say(start: float, what: str) -> None:
    print(f"[{time.perf_counter() - start:5.0f} s] {what}", flush=True)


# --- in the browser ---------------------------------------------------------------------------------------------------


def put_on_paper(text: str, output: Path, browser: str, made: Callable[[Page], bytes]) -> None:
    """Write to `output` what `made` makes of a document that is open in Chromium as paper sees it, offline.

    Raises PdfError where printing fails.
    """
    from playwright.sync_api import Error, sync_playwright

    arguments = ["--disable-gpu", "--disable-background-networking", "--no-first-run"]
    if getattr(os, "geteuid", lambda: None)() == 0:
        arguments.append("--no-sandbox")  # Chromium refuses root otherwise
    with tempfile.TemporaryDirectory(prefix="printing-", dir=output.parent) as folder:
        document = Path(folder) / "document.html"
        document.write_text(text, encoding="utf-8", newline="\n")
        try:
            with sync_playwright() as playwright:
                running = playwright.chromium.launch(executable_path=browser, args=arguments)
                window = {"width": WIDTH, "height": 1000}
                context = running.new_context(viewport=window, offline=True, color_scheme="light")
                page = context.new_page()
                page.set_default_timeout(PATIENCE)
                page.emulate_media(media="print", color_scheme="light")
                page.goto(document.as_uri(), wait_until="load")
                settle(page)
                whole = made(page)
                running.close()
        except Error as error:
            raise PdfError(f"Chromium did not print the book: {' '.join(str(error).split())[:300]}") from None
    with written_aside(output) as temporary:
        temporary.write_bytes(whole)


def settle(page: Page) -> None:
    """Wait for fonts and pictures; fit what is too wide. Raises PdfError for what would be missing on paper."""
    page.evaluate("document.fonts.ready.then(() => true)")
    if broken := page.evaluate("[...document.images].filter(i => !(i.complete && i.naturalWidth)).map(i => i.src)"):
        raise PdfError(f"{len(broken)} pictures are missing, the first is {broken[0]}: build the book again")
    page.evaluate(FIT)
    for fault in page.evaluate(TOO_WIDE):
        print(f"warning: wider than the page: {fault}", file=sys.stderr)


def printed(page: Page) -> bytes:
    """The open document as a PDF."""
    return page.pdf(prefer_css_page_size=True, print_background=True, tagged=True, outline=True)


def finished(printed: bytes) -> bytes:
    """The file with bookmarks that say each heading once (Chromium says it again for each of its lines), open beside the text."""
    from pypdf import PdfReader, PdfWriter
    from pypdf.generic import NameObject, TextStringObject

    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it remarks that Chromium counts objects in another way
    writer = PdfWriter(clone_from=PdfReader(BytesIO(printed)))
    waiting = [writer.root_object["/Outlines"]["/First"]] if "/Outlines" in writer.root_object else []
    while waiting:
        entry = waiting.pop().get_object()
        if again := re.fullmatch(r"(.{3,}?)\1+", entry["/Title"]):
            entry[NameObject("/Title")] = TextStringObject(again[1])
        waiting += [entry[link] for link in ("/Next", "/First") if link in entry]
    if "/StructTreeRoot" in writer.root_object:
        lighten(writer)
    writer.root_object[NameObject("/PageMode")] = NameObject("/UseOutlines")
    whole = BytesIO()
    writer.write(whole)
    return whole.getvalue()


def lighten(writer: PdfWriter) -> None:
    """Take out the tags that say nothing: Chromium writes one for each part of a formula, two thirds of the file.

    What a tag of the kind `NonStruct` holds goes to the tag around it, in the same place, and the pages' lists of tags follow.
    """
    from pypdf.generic import ArrayObject, DictionaryObject, IndirectObject, NameObject

    root = writer.root_object["/StructTreeRoot"]
    moved: dict[int, IndirectObject] = {}  # number of a tag that goes -> the tag around it

    def lift(own: IndirectObject) -> None:
        tag, kids = own.get_object(), ArrayObject()
        for kid in _listed(tag):
            child = kid.get_object()
            if not _is_tag(child):
                kids.append(kid)
                continue
            lift(kid)
            if child["/S"] != "/NonStruct" or "/ID" in child:
                kids.append(kid)
                continue
            moved[kid.idnum] = own
            for inner in child.get("/K", []):
                held = inner.get_object()
                if _is_tag(held):
                    held[NameObject("/P")] = own
                elif not isinstance(held, DictionaryObject):  # a number: this mark on the tag's page
                    page = child.raw_get("/Pg")
                    tag.setdefault(NameObject("/Pg"), page)
                    if tag.raw_get("/Pg") != page:
                        mark = {"/Type": NameObject("/MCR"), "/Pg": page, "/MCID": inner}
                        inner = DictionaryObject({NameObject(key): value for key, value in mark.items()})
                elif "/Pg" in child:
                    held.setdefault(NameObject("/Pg"), child.raw_get("/Pg"))
                kids.append(inner)
            child.clear()
        if "/K" in tag:
            tag[NameObject("/K")] = kids

    def holder(tag: IndirectObject) -> IndirectObject:
        while tag.idnum in moved:
            tag = moved[tag.idnum]
        return tag

    lift(root.raw_get("/K"))
    numbers = root["/ParentTree"]["/Nums"]  # number of a page or link, its tags, number, tags, ...
    for place in range(1, len(numbers), 2):
        tags = numbers[place].get_object()
        if isinstance(tags, ArrayObject):
            tags[:] = [holder(tag) if isinstance(tag, IndirectObject) else tag for tag in tags]
        else:
            numbers[place] = holder(numbers[place])
    writer.compress_identical_objects(remove_duplicates=False, remove_unreferenced=True)


def _is_tag(value: object) -> bool:
    return isinstance(value, dict) and "/S" in value and "/P" in value


def _listed(tag: Mapping) -> list:
    """What a tag holds, one or many."""
    held = tag.get("/K", [])
    return list(held) if isinstance(held, list) else [tag.raw_get("/K")]


# --- command line -----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of `python -m bookkit.pdf.printing`; returns the exit status."""
    parser = Parser(prog="python -m bookkit.pdf.printing", description="The book as one PDF.")
    parser.add_argument("-o", dest="output", type=Path, help="file to write (default: _build/attention-checked.pdf)")

    def work(root: Path, options: Namespace) -> None:
        output = options.output or root / "_build" / "attention-checked.pdf"
        if options.output is None:
            output.parent.mkdir(exist_ok=True)
        make(root, output.resolve(), options.html)

    return command(parser, argv, work)


def command(parser: Parser, argv: Sequence[str] | None, work: Callable[[Path, Namespace], None]) -> int:
    """Run `work` with the folder of the book and the options, those that all printing has among them; the exit status."""
    parser.add_argument("--root", type=Path, help="folder of the book (default: the one around the current folder)")
    parser.add_argument("--html", type=Path, help="a built book (default: one is built from the stored outputs)")
    options = parser.parse_args(argv)
    try:
        work(options.root.resolve() if options.root else find_root(), options)
    except (PdfError, BuildError, UserError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(answered("printing", main))
