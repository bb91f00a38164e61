"""The map of the book as readers get it: every link leads to something, rows do not overlap, a phone reads a list."""

import re
from urllib.parse import unquote, urldefrag

import pytest
from playwright.sync_api import Browser

from bookkit.settings import settings
from tests.browser.browsing import DESKTOP, HTML, PHONE, visited
from tests.house import ROOT

pytestmark = pytest.mark.browser

MAP = "book/map.html"


def test_every_link_of_the_map_leads_to_what_it_names() -> None:
    page = (HTML / MAP).read_text(encoding="utf-8")
    lists = re.findall(r'<ol class="book-map">.*?</ol>', page, flags=re.DOTALL)
    links = re.findall(r'href="([^"]+)"', "".join(lists))
    assert len(lists) == len(settings(ROOT).parts)
    assert len(links) > 500  # a box or more for each of some hundred and seventy rows, and some four hundred claims
    missing = []
    for link in sorted(set(links)):
        address, fragment = urldefrag(unquote(link))
        target = (HTML / MAP).parent / address if address else HTML / MAP
        if not target.is_file() or (fragment and f'id="{fragment}"' not in target.read_text(encoding="utf-8")):
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")])
def test_rows_stand_apart_and_fit(browser: Browser, address: str, viewport: dict, scheme: str) -> None:
    with visited(browser, address, MAP, viewport, scheme, drawn=False) as visit:
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
