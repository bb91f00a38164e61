"""One page of each kind, looked at by Chromium: `make browser` after `make html` or `make book`.

All pages as files: test_built_pages; the ledger: test_ledger. All faults of a page are told at once. A page is opened on a phone in the
dark, and then looked at on a desktop in the light.
"""

import pytest
from playwright.sync_api import Browser

from tests.browser import looks
from tests.browser.browsing import DESKTOP, PHONE, turned, visited

pytestmark = pytest.mark.browser

KINDS = {
    "title page": "book/preface.html",
    "story": "book/story.html",
    "explorer": "book/explorers/long_run.html",
    "notebook": "notebooks/single_head/02_two_steps.html",
    "notebook with wide tables": "notebooks/reruns/01_one_run_many_runs.html",
    "theory": "book/single_head_long_run_theory.html",
    "certified numbers": "notebooks/certified/01_certified.html",
    "notation": "book/notation.html",
    "map": "book/map.html",
    "reference": "book/reference/single_head.html",
    "lecture": "book/lecture.html",
    "bibliography": "book/bibliography.html",
    "benchmarks": "book/kernels.html",
}


@pytest.mark.parametrize("name", KINDS.values(), ids=KINDS)
def test_page(browser: Browser, address: str, name: str) -> None:
    faults = {}
    with visited(browser, address, name, PHONE, "dark") as visit:
        faults["phone"] = looks.loading(visit) + looks.sideways(visit) + looks.readable(visit, "dark")
        turned(visit, DESKTOP, "light")
        faults["desktop"] = looks.sideways(visit) + looks.readable(visit, "light")
        faults["desktop"] += looks.accessible(
            visit, contrast=name == KINDS["title page"]
        )  # with the menus, alike everywhere
    assert {where: found for where, found in faults.items() if found} == {}
