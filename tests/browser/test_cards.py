"""Hover cards as readers meet them: pointer, keyboard, finger, disk, no scripts; and search from a disk."""

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.browsing import DESKTOP, HTML, PATIENCE, PHONE, visited

pytestmark = pytest.mark.browser

THEORY = "book/single_head_theory.html"
CLAIM = ".box-claims a >> nth=0"
CARD = "#hover-card:not([hidden])"


def card(page: Page) -> str:
    return page.locator(CARD).inner_text()


def test_pointer_keyboard_and_escape_from_a_disk(browser: Browser) -> None:
    with visited(browser, HTML.as_uri(), THEORY, DESKTOP) as visit:
        page = visit.page
        claim = page.locator(CLAIM)
        name = claim.inner_text().split()[0]
        assert page.locator("script[src*='cards_data']").count() == 0  # asked for by the first card only
        claim.hover()
        page.wait_for_selector(CARD)
        assert card(page).startswith(f"{name}: ")
        assert "Measured: " in card(page)
        assert claim.get_attribute("title") is None  # not said twice
        box = page.locator(CARD).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= DESKTOP["width"]
        page.keyboard.press("Escape")
        page.wait_for_selector("#hover-card", state="hidden")
        assert name not in (claim.get_attribute("title") or "missing")
        # By keyboard; Escape leaves the reader on the link.
        page.evaluate("document.querySelector('.box-claims a').parentElement.previousElementSibling.tabIndex = 0")
        page.evaluate("document.querySelector('.box-claims a').parentElement.previousElementSibling.focus()")
        page.keyboard.press("Tab")
        page.wait_for_selector(CARD)
        assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "hover-card"
        page.keyboard.press("Escape")
        page.wait_for_selector("#hover-card", state="hidden")
        assert page.evaluate("document.activeElement.textContent").split()[0] == name
        # A theorem, a citation, a symbol.
        for link, words in (
            ("article p a[href^='#thm-'] >> nth=0", "Theorem"),
            ("article .bibtex-citation a >> nth=0", "Benign overfitting in single-head attention"),
        ):
            page.locator(link).hover()
            page.wait_for_function(
                "words => document.querySelector('#hover-card').innerText.includes(words)", arg=words
            )
        page.evaluate("""() => [...document.querySelectorAll("article p > span.math")]
          .find(m => ["\\\\rho", "\\\\eta"].includes(m.dataset.tex))
          .classList.add("wanted")""")
        page.locator(".wanted").hover()
        page.wait_for_function("document.querySelector('#hover-card').innerText.match(/probability|\\u03bc|mu|𝜇/)")
        assert (visit.errors, visit.outside) == ([], [])


def test_a_finger_sees_the_card_first_and_the_second_touch_leads_on(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(f"{address}/{THEORY}", wait_until="load")
    page.locator(CLAIM).tap()
    page.wait_for_selector(CARD)
    assert page.url.endswith(THEORY)
    box = page.locator(CARD).bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
    page.locator(CLAIM).tap()
    page.wait_for_url("**/ledger.html#claim-*")
    context.close()


def test_without_scripts_a_link_is_a_link(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport=DESKTOP, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/{THEORY}", wait_until="load")
    assert page.locator("#hover-card").count() == 0
    page.locator(CLAIM).click()
    page.wait_for_url("**/ledger.html#claim-*")
    context.close()


def test_search_from_a_disk_finds_the_page_and_quotes_it(browser: Browser) -> None:
    with visited(browser, HTML.as_uri(), "search.html?q=sign+gradient", DESKTOP) as visit:
        page = visit.page
        first = page.locator("#search-results ul.search > li >> nth=0")
        first.locator(".context, .search-summary").first.wait_for()
        assert "02_optimisers" in first.locator("a").first.get_attribute("href")
        assert "gradient" in first.inner_text().lower()
        icon = page.locator(".bd-search-container .fa-magnifying-glass").bounding_box()
        field = page.locator(".bd-search-container input")
        padding = float(field.evaluate("field => parseFloat(getComputedStyle(field).paddingLeft)"))
        assert icon["x"] + icon["width"] <= field.bounding_box()["x"] + padding
        first.locator("a").first.click()
        page.wait_for_url("**/02_optimisers.html*")
        assert page.locator(".highlighted, .highlight-link").count() == 0
        assert visit.outside == []
