"""Ways through the book without a mouse, without a network, on a phone: keys, menus, search, theme, paper."""

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
    with visited(browser, address, NOTEBOOK, DESKTOP) as visit:
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
    with visited(browser, address, NOTEBOOK, PHONE, "dark") as visit:
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


def test_the_menu_of_a_phone_opens_where_one_is(browser: Browser, address: str) -> None:
    with visited(browser, address, "book/bibliography.html", {"width": 390, "height": 560}) as visit:
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
    with visited(browser, base, NOTEBOOK, DESKTOP) as visit:
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
        assert visit.errors == []


def test_a_link_into_a_folded_part_opens_it(browser: Browser, address: str) -> None:
    with visited(browser, address, NOTEBOOK) as visit:
        name = visit.page.evaluate("""() => {
          const inner = document.querySelector("article details:not(.hide, .provenance, [open]) li");
          inner.id = "inside"; location.hash = "inside"; return inner.id;
        }""")
        visit.page.wait_for_function(f"document.getElementById('{name}').checkVisibility()")
        visit.page.wait_for_function(ARRIVED)


def test_a_wide_formula_scrolls_in_itself_and_is_reached_by_keyboard(browser: Browser) -> None:
    with visited(browser, FROM_DISK, "book/single_head_theory.html", PHONE) as visit:
        page = visit.page
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        wide = page.evaluate("""[...document.querySelectorAll(".formula")].filter(box => box.scrollWidth > box.clientWidth + 1)
          .map(box => [box.tabIndex, getComputedStyle(box).overflowX])""")
        assert wide
        assert all(found == [0, "auto"] for found in wide)
        assert (visit.errors, visit.outside) == ([], [])


def test_without_scripts_the_page_is_whole(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport=DESKTOP, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/{NOTEBOOK}", wait_until="load")
    text = page.locator("article").inner_text()
    assert "Two steps of gradient descent" in text
    assert page.locator("article .math > math").first.is_visible()  # drawn, and no TeX is seen
    assert "\\sqrt" not in text
    context.close()


def test_addresses_with_a_space_work_from_disk(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "a book"
    folder.symlink_to(HTML, target_is_directory=True)
    with visited(browser, f"file://{quote(str(folder))}", NOTEBOOK, PHONE) as visit:
        assert visit.page.evaluate("document.fonts.check('16px \"Book Math\"')")  # the font of formulas came from there
        assert (visit.errors, visit.outside) == ([], [])
