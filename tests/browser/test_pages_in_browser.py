"""Every page of the built book, looked at by Chromium: `make browser` after `make html` or `make book`.

All faults of a page are told at once. Most of the time goes into drawing formulas and into axe: a page is drawn once, on a phone in
the dark, and then looked at on a desktop in the light as well; a second, fresh visit on the desktop draws no formulas.
"""

import pytest
from playwright.sync_api import Browser

from tests.browser import looks
from tests.browser.browsing import DESKTOP, HTML, PHONE, page_names, turned, visited
from tests.browser.weights import BLOCKING, LIMIT, REQUESTS, blocking, fetched, weight

pytestmark = pytest.mark.browser

PAGES = page_names()
# Pages for finding one's way, which hold nothing else.
ASIDE = ["search.html", "genindex.html"]


def test_a_book_was_built() -> None:
    assert PAGES, f"no page in {HTML}: run `make html` first"


@pytest.mark.parametrize("name", PAGES)
def test_page(browser: Browser, address: str, name: str) -> None:
    faults = {}
    with visited(browser, address, name, PHONE, "dark") as visit:
        faults["phone"] = looks.loading(visit) + looks.formulas(visit, (HTML / name).read_text(encoding="utf-8"))
        faults["phone"] += looks.sideways(visit) + looks.readable(visit, "dark") + looks.accessible(visit)
        turned(visit, DESKTOP, "light")
        faults["desktop"] = looks.loading(visit) + looks.ledger_fits(visit) + looks.sideways(visit)
        faults["desktop"] += looks.readable(visit, "light") + looks.accessible(visit)
    with visited(browser, address, name, DESKTOP, "light", drawn=False) as visit:
        faults["fresh on a desktop"] = looks.loading(visit, everything=False) + looks.ledger_fits(visit)
        faults["fresh on a desktop"] += looks.sideways(visit) + looks.readable(visit, "light")
    assert {where: found for where, found in faults.items() if found} == {}


def test_the_first_visit_of_every_page_is_light() -> None:
    weights = {name: weight(HTML, name)[1] for name in [*PAGES, *ASIDE]}
    assert {name: sent for name, sent in weights.items() if sent > LIMIT} == {}
    assert min(weights.values()) > 20_000, "too light to be true: styles and scripts were not counted"


def test_the_first_visit_of_every_page_asks_little_and_waits_for_little() -> None:
    asked = {name: len(fetched(HTML, name)) for name in [*PAGES, *ASIDE]}
    assert {name: count for name, count in asked.items() if count > REQUESTS} == {}
    assert min(asked.values()) > 3, "too few to be true"
    waits = {name: blocking(HTML, name) for name in [*PAGES, *ASIDE]}
    assert {name: found for name, found in waits.items() if len(found) > BLOCKING} == {}
    assert all(found and ".css" in found[0] for found in waits.values()), (
        "too few to be true: no page without a style sheet"
    )
