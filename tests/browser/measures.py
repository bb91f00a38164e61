"""What a reader meets on each page of the built book, as a table: `python -m tests.browser.measures` after `make html`.

Words and claims are those of `tests.page_checks`; the place of the first picture, and boxes whose content is wider than they are (they
scroll in themselves), are Chromium's, on a desktop and on a phone.
"""

import shutil
import sys

import nbformat
from playwright.sync_api import sync_playwright

from bookkit.claims import read_checks
from bookkit.pages.catalogue import find_pages
from tests.browser.browsing import DESKTOP, HTML, PHONE
from tests.house import ROOT
from tests.page_checks import code_cells, folded, visible_words

SEEN = """() => {
  const shown = node => node.checkVisibility() && !node.closest("details:not([open])");
  const pictures = [...document.querySelectorAll(".bd-article img")].filter(shown);
  const wide = [...document.querySelectorAll(".formula, .bd-article pre, .pst-scrollable-table-container, .cell_output .output.text_html")];
  return {
    first: pictures.length ? Math.round(pictures[0].getBoundingClientRect().top + scrollY) : null,
    wide: wide.filter(node => shown(node) && node.scrollWidth > node.clientWidth + 2).length,
    moves: document.documentElement.scrollWidth - innerWidth,
  };
}"""


def main() -> None:
    """Print one line a page."""
    print(f"{'page':44}{'words':>6}{'claims':>7}{'open':>5}{'picture at':>12}{'wide boxes':>12}{'on a phone':>12}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        views = [browser.new_page(viewport=size) for size in (DESKTOP, PHONE)]
        for page in find_pages(ROOT):
            notebook = nbformat.read(page.stored, as_version=4)
            seen = []
            for view in views:
                view.goto((HTML / "notebooks" / f"{page.name}.html").as_uri())
                seen.append(view.evaluate(SEEN))
            lines = next((len(cell.source.splitlines()) for cell in code_cells(notebook)[2:] if not folded(cell)), 0)
            numbers = f"{visible_words(notebook):6}{len(read_checks(notebook)):7}{lines:5}"
            print(f"{page.name:44}{numbers}{seen[0]['first']!s:>12}{seen[0]['wide']:12}{seen[1]['wide']:12}")
            if moved := [each["moves"] for each in seen if each["moves"] > 0]:
                print(f"    the page itself is {max(moved)} px too wide", file=sys.stderr)
        browser.close()


if __name__ == "__main__":
    main()
