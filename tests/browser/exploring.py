"""Drive an explorer in Chromium as a reader does: sliders and markers by keyboard and mouse, fields; and read what is shown.

with explored(browser, address, "two_steps", settings={"n": 200}) as explorer:
    explorer.press_slider("label_noise", "ArrowRight", times=3)
    assert explorer.values()["noisy_margin"] == pytest.approx(expected, rel=1e-6)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

from playwright.sync_api import Browser, Locator

from tests.browser.browsing import DESKTOP, Visit, visited

# An explorer takes the mark away when it is asked for another picture, and sets it when that is drawn.
SETTLED = "[...document.querySelectorAll('[data-state=live]')].every(root => 'drawn' in root.dataset)"


class Explorer:
    """One explorer on an open page."""

    def __init__(self, visit: Visit, name: str) -> None:
        self.visit, self.page = visit, visit.page
        self.root = self.page.locator(f'[data-explorer="{name}"]')

    def settle(self) -> None:
        """Wait until what was done is drawn."""
        self.page.wait_for_function(SETTLED)

    # --- reading ----------------------------------------------------------------------------------------------------

    def values(self) -> dict[str, float]:
        """All values shown that are numbers, with all their digits."""
        shown = "root => [...root.querySelectorAll('output[data-number]')].map(o => [o.dataset.key, o.dataset.number])"
        return {key: float(text.replace("Infinity", "inf")) for key, text in self.root.evaluate(shown)}

    def sentence(self) -> str:
        """The verdict in words."""
        return self.root.locator(".explorer-verdict").inner_text()

    def trouble(self) -> str:
        """The sentence that stands instead of the picture, or nothing."""
        return " ".join(self.root.locator(".explorer-trouble").all_inner_texts()).strip()

    def complaint(self, key: str) -> str:
        """The sentence under a control, or nothing."""
        return self.control(key).locator(".explorer-complaint").inner_text()

    def setting(self, key: str) -> float | str | bool | None:
        """What a control stands at: the number field, the switch, the option chosen."""
        control = self.control(key)
        if (field := control.locator("input[type=text]")).count():
            return float(field.input_value())
        if (box := control.locator("input[type=checkbox]")).count():
            return box.is_checked()
        return control.locator("input[type=radio]:checked").get_attribute("value")

    def control(self, key: str) -> Locator:
        """A control with its label, field and sentences."""
        return self.root.locator(f'[data-control="{key}"]')

    def plot(self, key: str) -> Locator:
        """A plot with its legend."""
        return self.root.locator(f'[data-plot="{key}"]')

    def marker(self, plot: str, key: str) -> Locator:
        """A marker of a plot."""
        return self.plot(plot).locator(f'.explorer-marker[data-key="{key}"]')

    def middle(self, marker: Locator) -> tuple[float, float]:
        """Where a marker is seen, once it has come into view."""
        marker.evaluate("node => node.scrollIntoView({block: 'center'})")
        box = marker.locator(".dot").bounding_box()
        assert box
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    # --- doing ------------------------------------------------------------------------------------------------------

    def press_slider(self, key: str, button: str, times: int = 1) -> None:
        """Keys on a slider: ArrowRight, ArrowLeft, Home, End, PageUp, PageDown."""
        slider = self.control(key).locator("input[type=range]")
        for _ in range(times):
            slider.press(button)
        self.settle()

    def type(self, key: str, text: str) -> None:
        """Type into a number field and press Enter."""
        field = self.control(key).locator("input[type=text]")
        field.fill(text)
        field.press("Enter")
        self.settle()

    def choose(self, key: str, value: str) -> None:
        """Choose an option by its label's click."""
        radio = self.control(key).locator(f'input[type=radio][value="{value}"]')
        self.control(key).locator(f'label[for="{radio.get_attribute("id")}"]').click()
        self.settle()

    def press(self, button: str) -> None:
        """Press a button by its name."""
        self.root.get_by_role("button", name=button).click()
        self.settle()

    def press_marker(self, plot: str, key: str, button: str, times: int = 1) -> None:
        """Keys on a marker: arrows, PageUp, PageDown; Shift+Arrow goes ten times as far."""
        for _ in range(times):
            self.marker(plot, key).press(button)
            self.settle()  # each step starts where the last one ended

    def drag_marker(self, plot: str, key: str, right: float, down: float) -> None:
        """Drag a marker by mouse, by so many pixels."""
        x, y = self.middle(self.marker(plot, key))
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x + right, y + down, steps=4)
        self.page.mouse.up()
        self.settle()


@contextmanager
def explored(
    browser: Browser, address: str, name: str, viewport: dict = DESKTOP, scheme: str = "light", **settings: object
) -> Iterator[Explorer]:
    """Open the page of an explorer; `settings` go into the address. `address` may also be `file://` and a folder."""
    page = f"book/explorers/{name}.html" + (f"#{urlencode(settings)}" if settings else "")
    with visited(browser, address, page, viewport, scheme) as visit:
        explorer = Explorer(visit, name)
        explorer.settle()
        yield explorer
