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

    @property
    def panel(self) -> str | None:
        return self.stage.get_attribute("data-panel")

    def press(self, key: str, panel: str) -> None:
        """Press a key, and wait for the panel that it leads to."""
        self.page.keyboard.press(key)
        self.stands_at(panel)

    def stands_at(self, panel: str) -> None:
        self.page.wait_for_function(
            "panel => document.querySelector('.story-stage').dataset.panel === panel", arg=panel
        )
        self.page.wait_for_function(DRAWN)

    def drawing(self) -> Locator:
        return self.stage.locator("svg.story-drawing")

    def says(self) -> str:
        return self.drawing().get_attribute("aria-label") or ""

    def section(self, panel: str) -> Locator:
        return self.page.locator(f'section:has(> .story-panel[data-panel="{panel}"])')

    def slide(self, panel: str, number: int, key: str) -> str:
        """Press a key on a slider of a panel; returns what is said below it."""
        slider = self.section(panel).locator("input[type=range]").nth(number)
        slider.focus()
        slider.press(key)
        self.page.wait_for_function(DRAWN)
        return self.section(panel).locator(".story-said").inner_text()


@contextmanager
def story(browser: Browser, address: str, viewport: dict = DESKTOP) -> Iterator[Story]:
    with visited(browser, address, NAME, viewport) as visit:
        visit.page.emulate_media(reduced_motion="reduce")
        visit.page.wait_for_function("document.querySelector('.story-stage').dataset.state === 'live'")
        yield Story(visit)


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop from a disk", "phone"])
def test_keys_go_from_panel_to_panel_and_the_drawing_stays_in_view(
    browser: Browser, address: str, viewport: dict
) -> None:
    with story(browser, address if viewport is PHONE else HTML.as_uri(), viewport) as page:
        assert page.panel == PANELS[0]
        for panel in PANELS[1:]:
            page.press("ArrowRight", panel)
            in_view(page, viewport)
        assert page.stage.get_by_role("button", name="Next panel").is_disabled()
        page.press("ArrowRight", PANELS[-1])
        page.press("ArrowLeft", PANELS[-2])
        assert page.page.evaluate("document.activeElement.tagName") == "H2"
        page.stage.get_by_role("button", name="Previous panel").click()
        page.stands_at(PANELS[-3])
        assert page.visit.errors == page.visit.outside == []


def in_view(page: Story, viewport: dict) -> None:
    drawing, heading = page.drawing().bounding_box(), page.section(page.panel or "").locator("h2").bounding_box()
    assert drawing
    assert heading
    assert 40 <= drawing["y"] <= viewport["height"] - drawing["height"]  # below the bar at the top
    assert heading["y"] + heading["height"] <= viewport["height"]
    if viewport is PHONE:
        assert drawing["height"] <= viewport["height"] / 2
        assert heading["y"] >= drawing["y"] + drawing["height"], "the drawing hides the heading"
    else:
        assert drawing["x"] + drawing["width"] <= heading["x"], "drawing and text lie on each other"


def test_the_live_drawing_is_the_still_one(browser: Browser, address: str) -> None:
    shapes = """svg => [...svg.children].map(n =>
      [n.tagName, n.getAttribute("d") ?? n.getAttribute("x") ?? n.getAttribute("cx"), n.textContent])"""
    with story(browser, address) as page:
        for k, panel in enumerate(PANELS):
            if k:
                page.press("ArrowRight", panel)
            still = page.section(panel).locator(".story-panel svg")
            assert page.drawing().evaluate(shapes) == still.evaluate(shapes), panel
            assert page.says() == still.get_attribute("aria-label")
            assert f'aria-label="{page.says()}"' in (FOLDER / f"panel-{panel}.svg").read_text(encoding="utf-8")


def test_what_the_reader_touches_answers(browser: Browser, address: str) -> None:
    head = STORED["head"]
    with story(browser, address) as page:
        assert "Sample 200: " in page.slide("sample", 0, "End")
        box = page.drawing().bounding_box()
        assert box
        page.page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.7 * box["height"])
        page.page.wait_for_function(DRAWN)
        assert "class \u22121" in page.section("sample").locator(".story-said").inner_text()
        page.slide("head", 0, "End")
        assert page.panel == "head"
        assert "0.98 and 0.02" in page.says()
        assert "fitted at once" in page.slide("pulls", 0, "Home")
        said = page.slide("sides", 0, "ArrowRight")
        assert said.startswith(f"After step 3: {head['fitted'][3]} of 200 labels are fitted")
        assert "10\u00b9\u2077\u2070" in said
        assert page.slide("fresh", 0, "Home").startswith("harmful")
        assert page.slide("fresh", 0, "End").startswith("not fitted") or "not fitted" in page.slide("fresh", 1, "Home")
        assert "noise wins" in page.slide("race", 0, "Home")
        assert "signal wins" in page.slide("race", 0, "End")
        assert "1.6\u00d710\u00b2\u00b3" in page.slide("clock", 0, "End")
        blunt, sharp = (
            float(re.findall(r"explains ([\d.]+)", page.slide("pair", 0, key))[0]) for key in ("Home", "End")
        )
        assert sharp < 60 < 99.9 < blunt
        assert page.visit.errors == []


def test_without_scripts_and_on_paper_every_panel_has_its_still_picture(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport=PHONE, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/{NAME}")
    for panel in PANELS:
        box = page.locator(f'.story-panel[data-panel="{panel}"] svg').bounding_box()
        assert box
        assert box["width"] > 300
        assert box["height"] > 200
    assert page.locator(".story-stage").bounding_box()["height"] < 5
    context.close()
    with story(browser, address) as live:
        assert not live.page.locator(".story-panel svg").first.is_visible()
        live.page.emulate_media(media="print")
        assert all(live.section(panel).locator(".story-panel svg").is_visible() for panel in PANELS)
        assert not live.stage.is_visible()
