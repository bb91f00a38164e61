"""One browser and one server for all browser tests of a run."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.browsing import served

MISSING = (
    "no Chromium on this machine: `sudo apt-get install chromium` (or chromium-browser, google-chrome), then again"
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's own Chromium, headless."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)  # a machine that proves the book must look at it
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        # Tests run as root in containers, where there is no sandbox. No page reaches another host.
        alone = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", alone])
        yield running
        running.close()


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with served() as url:
        yield url
