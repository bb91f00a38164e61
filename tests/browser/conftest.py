"""One browser and one server for all browser tests of a run."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.browsing import MISSING, chromium, launched, served


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)  # a machine that proves the book must look at it
        pytest.skip(MISSING)
    with launched() as running:
        yield running


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with served() as url:
        yield url
