"""Every page of the built book, looked at by Chromium: `make browser` after `make html` or `make book`."""

import pytest
from playwright.sync_api import Browser

from tests.browser import looks
from tests.browser.browsing import DESKTOP, HTML, PHONE, page_names, visited

pytestmark = pytest.mark.browser

PAGES = page_names()


def test_a_book_was_built() -> None:
    assert PAGES, f"no page in {HTML}: run `make html` first"


@pytest.mark.parametrize("name", PAGES)
def test_page_loads_from_this_host_alone_with_all_formulas_drawn(browser: Browser, address: str, name: str) -> None:
    with visited(browser, address, name) as visit:
        assert looks.loading(visit) == []
        assert looks.formulas(visit, (HTML / name).read_text(encoding="utf-8")) == []
        assert looks.ledger_fits(visit) == []


@pytest.mark.parametrize("name", PAGES)
def test_no_page_scrolls_sideways_on_a_phone(browser: Browser, address: str, name: str) -> None:
    with visited(browser, address, name, PHONE) as visit:
        assert looks.sideways(visit) == []


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "dark phone"])
@pytest.mark.parametrize("name", PAGES)
def test_page_can_be_read_by_all(browser: Browser, address: str, name: str, viewport: dict, scheme: str) -> None:
    with visited(browser, address, name, viewport, scheme) as visit:
        assert looks.readable(visit, scheme) == []
        assert looks.accessible(visit) == []
