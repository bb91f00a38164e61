"""The map of the book as readers get it: every link leads to something, rows do not overlap, a phone reads a list."""

import pytest
from playwright.sync_api import Browser

from tests.browser.browsing import DESKTOP, PHONE, visited

pytestmark = pytest.mark.browser

MAP = "book/map.html"


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "light")])
def test_rows_stand_apart_and_fit(browser: Browser, address: str, viewport: dict, scheme: str) -> None:
    with visited(browser, address, MAP, viewport, scheme) as visit:
        page = visit.page
        overlaps = page.evaluate(
            """() => [...document.querySelectorAll('.book-map > li')].filter(row =>
                 [...row.querySelectorAll('.map-claims a')].some(claim =>
                   claim.getBoundingClientRect().bottom > row.getBoundingClientRect().bottom + 2)).map(row => row.id)"""
        )
        assert overlaps == []
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        arcs = page.locator(".map-arcs").first
        assert arcs.is_visible() == (viewport is DESKTOP)
        assert (page.locator(".map-uses").first.bounding_box()["width"] > 50) == (viewport is PHONE)
