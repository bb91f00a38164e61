"""Every page of the built book, looked at by Chromium: `make browser` after `make html` or `make book`.

Each page is opened twice, as different readers meet it; all faults of a visit are told at once.
"""

import pytest
from playwright.sync_api import Browser

from tests.browser import looks
from tests.browser.browsing import DESKTOP, HTML, PHONE, page_names, visited
from tests.browser.weights import LIMIT, weight

pytestmark = pytest.mark.browser

PAGES = page_names()
# Pages for finding one's way, which hold nothing else.
ASIDE = ["search.html", "genindex.html"]


def test_a_book_was_built() -> None:
    assert PAGES, f"no page in {HTML}: run `make html` first"


@pytest.mark.parametrize("name", PAGES)
def test_page_on_a_desktop(browser: Browser, address: str, name: str) -> None:
    with visited(browser, address, name, DESKTOP, "light") as visit:
        faults = looks.loading(visit)
        faults += looks.formulas(visit, (HTML / name).read_text(encoding="utf-8"))
        faults += looks.ledger_fits(visit) + looks.sideways(visit)
        faults += looks.readable(visit, "light") + looks.accessible(visit)
    assert faults == []


@pytest.mark.parametrize("name", PAGES)
def test_page_on_a_phone_in_the_dark(browser: Browser, address: str, name: str) -> None:
    with visited(browser, address, name, PHONE, "dark") as visit:
        faults = looks.sideways(visit) + looks.readable(visit, "dark") + looks.accessible(visit)
        faults += [f"console: {text}" for text in visit.errors if "ERR_FAILED" not in text]
    assert faults == []


def test_the_first_visit_of_every_page_is_light() -> None:
    weights = {name: weight(HTML, name)[1] for name in [*PAGES, *ASIDE]}
    assert {name: sent for name, sent in weights.items() if sent > LIMIT} == {}
    assert min(weights.values()) > 20_000, "too light to be true: styles and scripts were not counted"
