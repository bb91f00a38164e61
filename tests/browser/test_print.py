"""Paper: single pages by Ctrl+P."""

import re
from io import BytesIO

import pytest
from playwright.sync_api import Browser
from pypdf import PdfReader

from tests.browser.browsing import visited

pytestmark = pytest.mark.browser

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
