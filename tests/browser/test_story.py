"""The story in pictures, read as a reader does: by keyboard, on a desktop and on a phone, from a disk, without scripts, on paper."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Locator

from tests.browser.browsing import DESKTOP, HTML, PHONE, Visit, visited
from tests.explorers.test_story import FOLDER, PANELS, STORED

pytestmark = pytest.mark.browser

NAME = "book/story.html"
# The page takes the mark away when another drawing is asked for, and sets it when that is drawn.
DRAWN = "'drawn' in document.querySelector('.story-stage').dataset"


class Story:
    """The open page."""

    def __init__(self, visit: Visit) -> None:
        self.visit, self.page = visit, visit.page
        self.stage = self.page.locator(".story-stage")
        self.drawing = self.stage.locator("svg.story-drawing")

    def stands_at(self, panel: str) -> None:
        stands = f"document.querySelector('.story-stage').dataset.panel === '{panel}' && {DRAWN}"
        self.page.wait_for_function(stands)

    def section(self, panel: str) -> Locator:
        return self.page.locator(f'section:has(> .story-panel[data-panel="{panel}"])')

    def slide(self, panel: str, number: int, key: str) -> str:
        """Press a key on a slider of a panel; returns what is said below it."""
        self.section(panel).locator("input[type=range]").nth(number).press(key)
        self.page.wait_for_function(DRAWN)
        return self.section(panel).locator(".story-said").inner_text()


@contextmanager
def story(browser: Browser, address: str, viewport: dict = DESKTOP) -> Iterator[Story]:
    with visited(browser, address, NAME, viewport) as visit:
        visit.page.emulate_media(reduced_motion="reduce")
        visit.page.wait_for_function("document.querySelector('.story-stage').dataset.state === 'live'")
        yield Story(visit)
        assert visit.errors == visit.outside == []


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop from a disk", "phone"])
def test_keys_go_from_panel_to_panel_and_the_drawing_stays_in_view(
    browser: Browser, address: str, viewport: dict
) -> None:
    shapes = "svg => [...svg.children].map(n => [n.tagName, n.getAttribute('d') ?? n.getAttribute('x'), n.textContent])"
    with story(browser, address if viewport is PHONE else HTML.as_uri(), viewport) as page:
        for k, panel in enumerate(PANELS):
            if k:
                page.page.keyboard.press("ArrowRight")
            page.stands_at(panel)
            # The live drawing is the still one, and it says the same.
            still = page.section(panel).locator(".story-panel svg")
            assert page.drawing.evaluate(shapes) == still.evaluate(shapes), panel
            says = page.drawing.get_attribute("aria-label")
            assert says == still.get_attribute("aria-label")
            assert f'aria-label="{says}"' in (FOLDER / f"panel-{panel}.svg").read_text(encoding="utf-8")
            drawing, heading = page.drawing.bounding_box(), page.section(panel).locator("h2").bounding_box()
            assert drawing
            assert heading
            if k:
                assert 40 <= drawing["y"] <= viewport["height"] - drawing["height"]  # below the bar at the top
                assert heading["y"] + heading["height"] <= viewport["height"]
                below = heading["y"] >= drawing["y"] + drawing["height"]  # the drawing does not hide the heading
                assert below if viewport is PHONE else drawing["x"] + drawing["width"] <= heading["x"]
        assert page.stage.get_by_role("button", name="Next panel").is_disabled()
        page.page.keyboard.press("ArrowLeft")
        page.stands_at(PANELS[-2])
        assert page.page.evaluate("document.activeElement.tagName") == "H2"
        page.stage.get_by_role("button", name="Previous panel").click()
        page.stands_at(PANELS[-3])


def test_what_the_reader_touches_answers(browser: Browser, address: str) -> None:
    with story(browser, address) as page:
        assert "Sample 200: " in page.slide("sample", 0, "End")
        box = page.drawing.bounding_box()
        assert box
        page.page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.7 * box["height"])
        page.page.wait_for_function(DRAWN)
        assert "class \u22121" in page.section("sample").locator(".story-said").inner_text()
        page.slide("head", 0, "End")
        assert "0.98 and 0.02" in (page.drawing.get_attribute("aria-label") or "")
        assert "fitted at once" in page.slide("pulls", 0, "Home")
        fitted = f"After step 3: {STORED['head']['fitted'][3]} of 200 labels are fitted"
        assert page.slide("sides", 0, "ArrowRight").startswith(fitted)
        assert page.slide("fresh", 0, "Home").startswith("harmful")
        assert "noise wins" in page.slide("race", 0, "Home")
        assert "signal wins" in page.slide("race", 0, "End")
        assert "1.6\u00d710\u00b2\u00b3" in page.slide("clock", 0, "End")
        said = [page.slide("pair", 0, key) for key in ("Home", "End")]
        blunt, sharp = (float(re.findall(r"explains ([\d.]+)", one)[0]) for one in said)
        assert sharp < 60 < 99.9 < blunt


def test_without_scripts_and_on_paper_every_panel_has_its_still_picture(browser: Browser, address: str) -> None:
    with visited(browser, address, NAME, PHONE, java_script_enabled=False) as visit:
        for panel in PANELS:
            box = visit.page.locator(f'.story-panel[data-panel="{panel}"] svg').bounding_box()
            assert box
            assert (box["width"] > 300, box["height"] > 200) == (True, True)
    with story(browser, address) as live:
        assert not live.page.locator(".story-panel svg").first.is_visible()
        live.page.emulate_media(media="print")
        assert all(live.section(panel).locator(".story-panel svg").is_visible() for panel in PANELS)
        assert not live.stage.is_visible()
