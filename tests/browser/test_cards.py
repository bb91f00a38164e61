"""Hover cards as readers meet them: by pointer, keyboard and finger, from a disk, without scripts."""

import pytest
from playwright.sync_api import Browser, Locator

from tests.browser.browsing import DESKTOP, HTML, PHONE, visited

pytestmark = pytest.mark.browser

THEORY = "book/single_head_theory.html"
CLAIM = ".box-claims a >> nth=0"
CARD = "#hover-card:not([hidden])"


def within(card: Locator, viewport: dict) -> bool:
    box = card.bounding_box()
    return box is not None and 0 <= box["x"] <= viewport["width"] - box["width"]


def test_pointer_keyboard_and_escape_from_a_disk(browser: Browser) -> None:
    with visited(browser, HTML.as_uri(), THEORY) as visit:
        page = visit.page
        claim, card = page.locator(CLAIM), page.locator(CARD)
        name = claim.inner_text().split()[0]
        assert page.locator("script[src*='cards_data']").count() == 0  # asked for by the first card only
        claim.hover()
        card.wait_for()
        assert card.inner_text().startswith(f"{name}: ")
        assert "Measured: " in card.inner_text()
        assert claim.get_attribute("title") is None  # not said twice
        assert within(card, DESKTOP)
        page.keyboard.press("Escape")
        page.wait_for_selector("#hover-card", state="hidden")
        assert name not in (claim.get_attribute("title") or "missing")
        # By keyboard; Escape leaves the reader on the link.
        before = "document.querySelector('.box-claims a').parentElement.previousElementSibling"
        page.evaluate(f"() => {{ {before}.tabIndex = 0; {before}.focus() }}")
        page.keyboard.press("Tab")
        card.wait_for()
        assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "hover-card"
        page.keyboard.press("Escape")
        page.wait_for_selector("#hover-card", state="hidden")
        assert page.evaluate("document.activeElement.textContent").split()[0] == name
        # A theorem, a citation, a symbol.
        page.evaluate("""() => [...document.querySelectorAll("article p > span.math")]
          .find(m => ["\\\\rho", "\\\\eta"].includes(m.dataset.tex)).classList.add("wanted")""")
        for link, words in (
            ("article p a[href^='#thm-'] >> nth=0", "Theorem"),
            ("article .bibtex-citation a >> nth=0", "Benign overfitting in single-head attention"),
            (".wanted", "probability|\\u03bc|mu|𝜇"),
        ):
            page.locator(link).hover()
            page.wait_for_function("words => document.querySelector('#hover-card').innerText.match(words)", arg=words)
        assert (visit.errors, visit.outside) == ([], [])


def test_a_finger_sees_the_card_first_and_the_second_touch_leads_on(browser: Browser, address: str) -> None:
    with visited(browser, address, THEORY, PHONE, has_touch=True, is_mobile=True) as visit:
        visit.page.locator(CLAIM).tap()
        visit.page.wait_for_selector(CARD)
        assert visit.page.url.endswith(THEORY)
        assert within(visit.page.locator(CARD), PHONE)
        visit.page.locator(CLAIM).tap()
        visit.page.wait_for_url("**/ledger.html#claim-*")


def test_without_scripts_a_link_is_a_link(browser: Browser, address: str) -> None:
    with visited(browser, address, THEORY, java_script_enabled=False) as visit:
        visit.page.locator(CLAIM).click()
        visit.page.wait_for_url("**/ledger.html#claim-*")
