"""Ways through the book without a mouse, without a network, on a phone: keys, menus, search, theme, paper."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.browsing import DESKTOP, HTML, PHONE, visited

pytestmark = pytest.mark.browser

NOTEBOOK = "notebooks/single_head/02_two_steps.html"
FROM_DISK = HTML.as_uri()

# What the keyboard stands on: its text or name, and whether the eye can tell (an outline, a ring, a mark beside it).
# A motion is set to its end, not waited for: one inside a fold that has been closed stands still, and never ends.
STANDS_ON = """async () => {
  const passing = document.getAnimations().filter(motion => motion.effect.getComputedTiming().endTime < Infinity);
  passing.forEach(motion => motion.finish());
  const e = document.activeElement, s = getComputedStyle(e), inside = e.closest("form.bd-search");
  const shown = (s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0) || s.boxShadow !== "none"
    || (inside && getComputedStyle(inside).boxShadow !== "none") || e.matches("mjx-container");
  const inView = () => {
    const box = e.getBoundingClientRect();
    return box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  };
  for (let frame = 0; frame < 600 && e !== document.body && !inView(); frame++) await new Promise(go => setTimeout(go, 16)); // scrolls
  return {name: (e.ariaLabel || e.title || e.textContent || "").trim().replace(/\\s+/g, " ").slice(0, 60),
          tag: e.tagName.toLowerCase(), shown, inView: inView()};
}"""


def walk(page: Page, reached: Callable[[dict], bool], limit: int = 160) -> list[dict]:
    """Press Tab until `reached`; what was passed. Fails where that never comes, or where a stop cannot be seen."""
    passed: list[dict] = []
    for _ in range(limit):
        page.keyboard.press("Tab")
        passed.append(page.evaluate(STANDS_ON))
        if reached(passed[-1]):
            unseen = [stop for stop in passed if stop["tag"] != "body" and not (stop["shown"] and stop["inView"])]
            assert unseen == []
            return passed
    raise AssertionError(f"not reached in {limit} stops: {[stop['name'][:30] for stop in passed]}")


def test_keys_reach_everything_on_a_desktop(browser: Browser, address: str) -> None:
    with visited(browser, address, NOTEBOOK, DESKTOP, drawn=False) as visit:
        page = visit.page
        # The first stop leads past the menus.
        walk(page, lambda stop: stop["name"] == "Skip to main content", limit=2)
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#main-content"
        after = walk(page, lambda stop: stop["name"] == "Color mode")
        assert not [stop for stop in after if "Proofs for Part I" in stop["name"]], "the side bar came again"
        # The theme: three states in a ring, the page follows.
        shown = []
        mode = page.evaluate("document.documentElement.dataset.mode")
        for _ in range(3):
            page.wait_for_function("document.activeElement.matches('.theme-switch-button')")  # focus came back
            page.keyboard.press("Enter")
            page.wait_for_function("mode => document.documentElement.dataset.mode !== mode", arg=mode)
            mode = page.evaluate("document.documentElement.dataset.mode")
            shown.append(
                page.evaluate("[document.documentElement.dataset.mode, document.documentElement.dataset.theme]")
            )
        assert sorted(shown) == [["auto", "light"], ["dark", "dark"], ["light", "light"]]
        # A menu opens with Enter, arrows go through it, Escape closes it and gives the place back.
        page.focus(".dropdown-source-buttons > button")
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowDown")
        assert page.evaluate(STANDS_ON)["name"] == "Repository"
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
        # Folded code opens and closes.
        page.focus("details.hide > summary")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.parentElement.open")
        page.keyboard.press("Enter")
        assert not page.evaluate("document.activeElement.parentElement.open")
        # The side bar and the page's own contents.
        page.focus("#pst-primary-sidebar a.navbar-brand")
        walk(page, lambda stop: stop["name"] == "Proofs for Part I: two steps")
        page.focus("#pst-page-toc-nav a")
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#setting"
        assert visit.errors == []


def test_keys_and_menus_on_a_phone(browser: Browser, address: str) -> None:
    with visited(browser, address, NOTEBOOK, PHONE, "dark", drawn=False) as visit:
        page = visit.page
        for button, bar in (
            (".primary-toggle", "#pst-primary-sidebar-modal"),
            (".secondary-toggle", "#pst-secondary-sidebar-modal"),
        ):
            page.focus(button)
            page.keyboard.press("Enter")
            page.wait_for_selector(f"{bar}[open]")
            page.keyboard.press("Tab")
            assert page.evaluate("bar => document.querySelector(bar).contains(document.activeElement)", bar)
            page.keyboard.press("Escape")
            page.wait_for_selector(f"{bar}:not([open])", state="attached")
            page.wait_for_function("button => document.activeElement === document.querySelector(button)", arg=button)
        assert visit.errors == []


@pytest.mark.parametrize("name", ["book/bibliography.html", "notebooks/in_context/07_deeper_and_wider.html"])
def test_the_menu_of_a_phone_opens_where_one_is(browser: Browser, address: str, name: str) -> None:
    with visited(browser, address, name, {"width": 390, "height": 560}, drawn=False) as visit:
        page = visit.page
        page.click(".primary-toggle")
        page.wait_for_selector("#pst-primary-sidebar-modal[open]")
        seen = """() => {
          const menu = document.querySelector("#pst-primary-sidebar-modal"), own = [...menu.querySelectorAll(".active > a")].pop();
          const box = own.getBoundingClientRect();
          return {scrolled: menu.scrollTop > 0, inView: box.top >= 0 && box.bottom <= innerHeight, text: own.textContent.trim()};
        }"""
        page.wait_for_function(f"({seen})().scrolled")
        entry = page.evaluate(seen)
        assert entry["inView"]
        assert entry["text"] == page.locator("article h1").inner_text().removesuffix("#").strip()
        assert visit.errors == []


@pytest.mark.parametrize("where", ["served", "from disk"])
def test_search_from_the_keyboard(browser: Browser, address: str, where: str) -> None:
    base = address if where == "served" else FROM_DISK
    with visited(browser, base, NOTEBOOK, DESKTOP, drawn=False) as visit:
        page = visit.page
        page.keyboard.press("Control+k")
        page.wait_for_selector("#pst-search-dialog[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("#pst-search-dialog:not([open])", state="attached")
        page.keyboard.press("Control+k")
        page.keyboard.type("bibliography")
        page.keyboard.press("Enter")
        page.wait_for_url("**/search.html?q=bibliography")
        link = page.locator("#search-results ul.search li a[href*='book/bibliography.html']").first
        link.wait_for()
        page.wait_for_function(
            "/found \\d+ page|Search finished/.test(document.querySelector('#search-results').textContent)"
        )
        link.focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/book/bibliography.html*")
        assert page.locator("article h1").inner_text().startswith("Bibliography")
        assert (visit.errors, visit.outside) == ([], [])


def test_formulas_come_as_one_reads_also_from_disk(browser: Browser) -> None:
    name = "book/single_head_theory.html"
    written = len(re.findall(r'class="(?:[^"]* )?math(?: [^"]*)?"', (HTML / name).read_text(encoding="utf-8")))
    with visited(browser, FROM_DISK, name, PHONE, drawn=False) as visit:
        page = visit.page
        drawn = "document.querySelectorAll('.math:has(mjx-container)').length"
        page.evaluate("document.querySelector('.math').scrollIntoView()")
        page.wait_for_function(f"{drawn} > 0")
        page.wait_for_function("""[...document.querySelectorAll(".math")].filter(formula => {
            const box = formula.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight;
        }).every(formula => formula.querySelector("mjx-container"))""")
        assert 0 < page.evaluate(drawn) < written / 2, "all formulas were drawn before anybody saw them"
        page.evaluate(
            "document.querySelectorAll('.math')[document.querySelectorAll('.math').length >> 1].scrollIntoView()"
        )
        middle = "document.querySelectorAll('.math')[document.querySelectorAll('.math').length >> 1].querySelector('mjx-container')"
        page.wait_for_function(f"{middle} !== null")
        assert page.evaluate(drawn) < written
        # Paper has them all, whoever asks for it: the page's own button calls `print`.
        page.evaluate("() => window.drawWholePage()")
        assert page.evaluate(drawn) == written
        # MathML for screen readers, and nothing to stop at on the way but what scrolls.
        assert page.evaluate("document.querySelectorAll('mjx-assistive-mml').length") == written
        stops = page.evaluate(
            "[...document.querySelectorAll('mjx-container[tabindex]')].map(m => m.scrollWidth > m.clientWidth)"
        )
        assert all(stops)
        assert (visit.errors, visit.outside) == ([], [])


def test_printing_waits_for_the_whole_page(browser: Browser, address: str) -> None:
    """Ctrl+P and the page's own button: formulas and pictures first, then the printer, once each."""
    with visited(browser, address, NOTEBOOK, DESKTOP, drawn=False) as visit:
        page = visit.page
        state = """() => ({formulas: [...document.querySelectorAll(".math")].every(m => m.querySelector("mjx-container")),
            pictures: [...document.images].filter(i => !i.complete || !i.naturalWidth).length})"""
        # The browser's own print was kept by light.js when it ran: a page that loads with a stand-in shows the order.
        page.add_init_script(f"window.printed = []; window.print = () => window.printed.push(({state})())")
        page.reload(wait_until="load")
        page.keyboard.press("Control+p")
        page.wait_for_function("window.printed.length === 1")
        page.evaluate("document.querySelector('.btn-download-pdf-button').click()")
        page.wait_for_function("window.printed.length === 2")
        assert page.evaluate("window.printed") == [{"formulas": True, "pictures": 0}] * 2


def test_without_scripts_the_page_is_whole(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport=DESKTOP, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/{NOTEBOOK}", wait_until="load")
    text = page.locator("article").inner_text()
    assert "Two steps of gradient descent" in text
    assert "\\(1/\\sqrt n\\)" in text  # formulas as TeX, not as holes
    context.close()


def test_addresses_with_a_space_work_from_disk(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "a book"
    folder.symlink_to(HTML, target_is_directory=True)
    with visited(browser, f"file://{quote(str(folder))}", NOTEBOOK, PHONE) as visit:
        assert visit.page.evaluate("document.querySelectorAll('mjx-container').length") > 0
        assert (visit.errors, visit.outside) == ([], [])
