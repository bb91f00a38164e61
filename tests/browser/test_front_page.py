"""The front page as it is first seen, and the picture that a link to the book shows: `python -m tests.browser.test_front_page` draws it."""

import io
import shutil

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from tests.browser.browsing import DESKTOP, HTML, PHONE, visited
from tests.house import ROOT

pytestmark = pytest.mark.browser

PREVIEW = ROOT / "book" / "assets" / "preview.png"
FRAME = ROOT / "book" / "assets" / "story" / "panel-step-2.svg"


def drawn(browser: Browser) -> bytes:
    """The frame after step 2 as a picture of the size that messages show, in the light colours."""
    page = browser.new_page(viewport={"width": 1200, "height": 630})
    page.set_content(f'<body style="margin: 0; background: #fff">{FRAME.read_text(encoding="utf-8")}</body>')
    try:
        return page.screenshot()
    finally:
        page.close()


def test_the_picture_of_the_book_is_the_frame_after_step_2(browser: Browser) -> None:
    """Coarsely: letters differ from machine to machine, points and lines do not."""
    small = [
        np.asarray(Image.open(io.BytesIO(png)).convert("RGB").resize((60, 32)), dtype=float)
        for png in (PREVIEW.read_bytes(), drawn(browser))
    ]
    assert np.abs(small[0] - small[1]).mean() < 3
    assert Image.open(io.BytesIO(PREVIEW.read_bytes())).size == (1200, 630)


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_front_page_opens_on_the_frame_after_step_2_and_its_buttons_do_not_wrap(
    browser: Browser, viewport: dict
) -> None:
    with visited(browser, HTML.as_uri(), "book/preface.html", viewport) as visit:
        seen = visit.page.eval_on_selector_all(
            ".moving > .story-panel", "all => all.map(one => [one.dataset.panel, getComputedStyle(one).opacity])"
        )
        assert seen == [["before", "0"], ["step-1", "0"], ["step-2", "1"]]
        picture = visit.page.locator(".moving svg").last.bounding_box()
        assert picture
        assert picture["y"] + picture["height"] < viewport["height"]
        tops = visit.page.eval_on_selector_all(
            ".buttons a", "all => all.map(one => Math.round(one.getBoundingClientRect().top))"
        )
        assert len(tops) == 4
        assert len(set(tops)) == 1 or viewport is PHONE
        assert visit.errors == visit.outside == []


if __name__ == "__main__":
    with sync_playwright() as play:
        PREVIEW.write_bytes(
            drawn(play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"]))
        )
