"""Ways through the book: keys, menus, theme, search, links and the way back; from a disk, and without scripts."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.browsing import HTML, PHONE, visited
from tests.house import ROOT

pytestmark = pytest.mark.browser

NOTEBOOK = "notebooks/single_head/02_two_steps.html"
LOW = {"width": 390, "height": 560}
FROM_DISK = HTML.as_uri()

# What the keyboard stands on: its text or name, and whether the eye can tell (an outline, a ring, a mark beside it).
# A motion is set to its end, not waited for: one inside a fold that has been closed stands still, and never ends.
STANDS_ON = """async () => {
  const passing = document.getAnimations().filter(motion => motion.effect.getComputedTiming().endTime < Infinity);
  passing.forEach(motion => motion.finish());
  const e = document.activeElement, s = getComputedStyle(e), inside = e.closest("form.bd-search");
  const shown = (s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0) || s.boxShadow !== "none"
    || (inside && getComputedStyle(inside).boxShadow !== "none");
  const inView = () => {
    const box = e.getBoundingClientRect();
    return box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  };
  if (e !== document.body && !inView()) await new Promise(go => { // the browser scrolls there with its next frame
    const seen = new IntersectionObserver(([entry]) => entry.isIntersecting && (seen.disconnect(), go()));
    seen.observe(e);
  });
  return {name: (e.ariaLabel || e.title || e.textContent || "").trim().replace(/\\s+/g, " ").slice(0, 60),
          seen: e === document.body || shown && inView()};
}"""


def walk(page: Page, reached: Callable[[str], bool], limit: int = 160) -> list[str]:
    """Press Tab until `reached`; names of what was passed. Fails where that never comes, or a stop cannot be seen."""
    passed: list[str] = []
    for _ in range(limit):
        page.keyboard.press("Tab")
        stop = page.evaluate(STANDS_ON)
        assert stop["seen"], stop
        passed.append(stop["name"])
        if reached(stop["name"]):
            return passed
    raise AssertionError(f"not reached in {limit} stops: {passed}")


def test_keys_reach_everything_on_a_desktop(browser: Browser, address: str) -> None:
    with visited(browser, address, NOTEBOOK) as visit:
        page = visit.page
        # The first stop leads past the menus.
        walk(page, lambda name: name == "Skip to main content", limit=2)
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#main-content"
        after = walk(page, lambda name: name == "Color mode")
        assert not [name for name in after if name == "What you have learned"], "the side bar came again"
        # The theme: three states in a ring, the page follows.
        seen, mode = set(), page.evaluate("document.documentElement.dataset.mode")
        for _ in range(3):
            page.wait_for_function("document.activeElement.matches('.theme-switch-button')")  # focus came back
            page.keyboard.press("Enter")
            page.wait_for_function("mode => document.documentElement.dataset.mode !== mode", arg=mode)
            mode, theme = page.evaluate("(({mode, theme}) => [mode, theme])(document.documentElement.dataset)")
            seen.add((mode, theme))
        assert seen == {("auto", "light"), ("dark", "dark"), ("light", "light")}
        # A menu opens with Enter, arrows go through it, Escape closes it and gives the place back.
        page.focus(".dropdown-source-buttons > button")
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowDown")
        assert page.evaluate(STANDS_ON)["name"] == "Repository"
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
        # Folded code opens and closes.
        page.focus("details.hide > summary")
        for opened in (True, False):
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.parentElement.open") == opened
        # The side bar and the page's own contents.
        page.focus("#pst-primary-sidebar a.navbar-brand")
        walk(page, lambda name: name == "What you have learned")
        page.focus("#pst-page-toc-nav a")
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#claim-and-setting"
        assert visit.errors == []


def test_menus_of_a_phone(browser: Browser, address: str) -> None:
    with visited(browser, address, "notebooks/certified/01_certified.html", LOW, "dark") as visit:
        page = visit.page
        for side, button in (("primary", ".primary-toggle"), ("secondary", ".secondary-toggle")):
            bar = f"#pst-{side}-sidebar-modal"
            page.focus(button)
            page.keyboard.press("Enter")
            page.wait_for_selector(f"{bar}[open]")
            if side == "primary":  # it opens where one is
                page.wait_for_function("""() => {
                  const menu = document.querySelector("#pst-primary-sidebar-modal");
                  const own = [...menu.querySelectorAll(".active > a")].pop(), box = own.getBoundingClientRect();
                  return menu.scrollTop > 0 && box.top >= 0 && box.bottom <= innerHeight
                    && document.querySelector("article h1").textContent.startsWith(own.textContent.trim());
                }""")
            page.keyboard.press("Tab")
            assert page.evaluate("bar => document.querySelector(bar).contains(document.activeElement)", bar)
            page.keyboard.press("Escape")
            page.wait_for_selector(f"{bar}:not([open])", state="attached")
            page.wait_for_function("button => document.activeElement === document.querySelector(button)", arg=button)
        assert visit.errors == []


@pytest.mark.parametrize("where", ["served", "from disk"])
def test_search_from_the_keyboard(browser: Browser, address: str, where: str) -> None:
    with visited(browser, address if where == "served" else FROM_DISK, NOTEBOOK) as visit:
        page = visit.page
        page.keyboard.press("Control+k")
        page.wait_for_selector("#pst-search-dialog[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("#pst-search-dialog:not([open])", state="attached")
        page.keyboard.press("Control+k")
        page.keyboard.type("sign gradient")
        page.keyboard.press("Enter")
        page.wait_for_url("**/search.html?q=sign+gradient")
        first = page.locator("#search-results ul.search > li >> nth=0")  # the page that treats it, and a quotation
        first.locator(".context, .search-summary").first.wait_for()
        assert "gradient" in first.inner_text().lower()
        first.locator("a[href*='02_optimisers']").first.press("Enter")
        page.wait_for_url("**/02_optimisers.html*")
        assert page.locator(".highlighted, .highlight-link").count() == 0
        assert visit.errors == visit.outside == []


@pytest.mark.parametrize("paper", ["single_head", "token_selection", "in_context"])
def test_a_paper_is_found_first_by_its_title_its_authors_and_its_number(
    browser: Browser, address: str, paper: str
) -> None:
    source = (ROOT / f"book/papers/{paper}.md").read_text(encoding="utf-8")
    title, number = re.search(r"^# (.+?) \(arXiv ([\d.]+)\)$", source, re.M).groups()  # type: ignore[union-attr]
    authors = re.split(r", | and ", re.search(r"^(\S.+?) \{cite", source, re.M)[1])  # type: ignore[index]
    assert len(authors) > 1
    with visited(browser, address, "search.html") as visit:
        for asked in (title, number, f"arXiv:{number}", *authors):
            visit.page.goto(f"{address}/search.html?q={quote(asked)}")
            first = visit.page.locator("#search-results ul.search > li >> nth=0 >> a >> nth=0")
            assert f"book/papers/{paper}.html" in (first.get_attribute("href") or ""), asked
        assert visit.errors == []


# What is asked, and the page that comes first: its title begins so, or it wants to be found for it, or it treats it most.
FOUND_FIRST = {
    "phase diagram": "single_head/05_phase_diagram",
    "token selection": "papers/token_selection",
    "in-context learning": "papers/in_context",
    "cite": "book/cite",
    "install": "book/running",
    "max margin": "single_head/04_max_margin",
    "signal-to-noise ratio": "single_head/01_signal_and_noise",
    "gradient descent": "single_head/14_the_trap",
    "colab": "book/running",
    "softmax": "open_questions/03_attention_maps",
    "benign overfitting": "papers/",
    "2410.07746": "papers/single_head",
    "exercises": "book/short_book",
    "real data": "token_selection/",
    "label noise": "single_head/",
}


def test_the_page_that_is_named_so_comes_first(browser: Browser, address: str) -> None:
    with visited(browser, address, "search.html") as visit:
        first = {}
        for asked in FOUND_FIRST:
            visit.page.goto(f"{address}/search.html?q={quote(asked)}")
            link = visit.page.locator("#search-results ul.search > li >> nth=0 >> a >> nth=0")
            first[asked] = link.get_attribute("href") or ""
        assert {asked: link for asked, link in first.items() if FOUND_FIRST[asked] not in link} == {}
        assert visit.errors == []


@pytest.mark.parametrize(
    "asked", ["constructor", "__proto__", "%"]
)  # what every object of a script holds, and no word at all
def test_what_no_page_has_is_not_found(browser: Browser, address: str, asked: str) -> None:
    with visited(browser, address, f"search.html?q={quote(asked)}") as visit:
        visit.page.locator("#search-results >> text=did not match any documents").wait_for()
        assert visit.errors == []


DENIED = """for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, {
  configurable: true, get() { throw new DOMException("Access is denied for this document.", "SecurityError"); },
});"""


def test_a_browser_that_lets_no_page_keep_anything_has_menus_search_and_light(browser: Browser, address: str) -> None:
    with visited(browser, address, NOTEBOOK) as visit:
        page = visit.page
        page.context.add_init_script(DENIED)
        page.reload()
        page.locator(".theme-switch-button:visible").first.click()
        page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
        page.keyboard.press("Control+k")
        page.wait_for_selector("#pst-search-dialog[open]")
        page.keyboard.type("sign gradient")
        page.keyboard.press("Enter")
        page.locator("#search-results ul.search > li").first.wait_for()
        assert visit.errors == []


# What the address names stands at the top of the view, below the bar.
ARRIVED = """() => {
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1))), top = place?.getBoundingClientRect().top;
  const end = scrollY + innerHeight > document.documentElement.scrollHeight - 3;
  return place?.checkVisibility() && top >= 30 && top < (end ? innerHeight : 160);
}"""


def test_links_end_at_what_they_name_and_the_way_back_where_the_reader_was(browser: Browser, address: str) -> None:
    with visited(browser, address, "book/in_context_theory.html#ic-trap", PHONE) as visit:
        page = visit.page
        page.wait_for_function(ARRIVED)
        page.evaluate("window.scrollBy(0, 650)")
        there = page.evaluate("scrollY")
        page.goto(f"{address}/book/bibliography.html")
        page.go_back(wait_until="load")
        page.wait_for_function("there => Math.abs(scrollY - there) < 3", arg=there)
        for name in ("the-setting", "ic-trap"):
            page.evaluate("name => { location.hash = name }", name)
            page.wait_for_function(ARRIVED)
        page.goto(f"{address}/{NOTEBOOK}")
        page.evaluate("""() => {  // into a folded part, which opens
          document.querySelector("article details:not(.hide, .provenance, [open]) li").id = location.hash = "inside";
        }""")
        page.wait_for_function(ARRIVED)
        assert visit.errors == []


def test_a_wide_formula_scrolls_in_itself_and_is_reached_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "a book"  # also where the address has a space
    folder.symlink_to(HTML, target_is_directory=True)
    with visited(browser, f"file://{quote(str(folder))}", "book/single_head_theory.html", PHONE) as visit:
        page = visit.page
        assert page.evaluate("document.fonts.check('16px \"Book Math\"')")  # the font of formulas came from there
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        wide = page.evaluate("""[...document.querySelectorAll(".formula")]
          .filter(box => box.scrollWidth > box.clientWidth + 1)
          .map(box => [box.tabIndex, getComputedStyle(box).overflowX])""")
        assert wide
        assert all(found == [0, "auto"] for found in wide)
        assert visit.errors == visit.outside == []


def test_a_formula_is_copied_as_its_tex(browser: Browser, address: str) -> None:
    copied = """paragraph => {
      getSelection().selectAllChildren(paragraph);
      const event = new ClipboardEvent("copy", { clipboardData: new DataTransfer(), bubbles: true, cancelable: true });
      paragraph.dispatchEvent(event);
      return [event.clipboardData.getData("text/plain"), event.clipboardData.getData("text/html")];
    }"""
    with visited(browser, address, "book/single_head_theory.html") as visit:
        paragraph = visit.page.locator("article p:has(span.math)").first
        text, html = paragraph.evaluate(copied)
        assert "a limit, $d\\to\\infty$ at fixed $n$ unless its box" in text
        assert "<math>" in html
        assert visit.page.locator("article p:not(:has(.math))").first.evaluate(copied) == [
            "",
            "",
        ]  # left to the browser


def test_without_scripts_the_page_is_whole(browser: Browser, address: str) -> None:
    with visited(browser, address, NOTEBOOK, java_script_enabled=False) as visit:
        text = visit.page.locator("article").inner_text()
        assert "Two steps of gradient descent" in text
        assert visit.page.locator("article .math > math").first.is_visible()  # drawn, and no TeX is seen
        assert "\\sqrt" not in text
