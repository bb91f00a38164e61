"""Drive an explorer in Chromium as a reader does: sliders by keyboard and mouse, fields, markers, and read what is shown.

with explored(browser, address, "two_steps", settings={"n": 200}) as explorer:
    explorer.press_slider("label_noise", "ArrowRight", times=3)
    assert explorer.value("noisy_margin") == pytest.approx(expected, rel=1e-6)
    assert explorer.visit.errors == []
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from urllib.parse import urlencode

from playwright.sync_api import Browser, Locator, Page

from tests.browser.browsing import DESKTOP, Visit, visited

FOLDER = "book/explorers"

# An explorer takes the mark away when it is asked for another picture, and sets it when that is drawn.
SETTLED = "[...document.querySelectorAll('[data-state=live]')].every(root => 'drawn' in root.dataset)"


class Explorer:
    """One explorer on an open page."""

    def __init__(self, visit: Visit, name: str) -> None:
        self.visit, self.name = visit, name
        self.page: Page = visit.page
        self.root = self.page.locator(f'[data-explorer="{name}"]')

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str | None:
        """`live`, `no-data`, `failed`, or None where no script ran."""
        return self.root.get_attribute("data-state")

    def settle(self) -> None:
        """Wait until what was done is drawn."""
        self.page.wait_for_function(SETTLED)

    def stop_the_clock(self) -> None:
        """From now on time passes on the page by `pass_time` alone, and nothing is drawn meanwhile: `settle` would wait for ever."""
        start = datetime(2026, 1, 1)
        self.page.clock.install(time=start)
        self.page.clock.pause_at(start + timedelta(hours=1))

    def pass_time(self, milliseconds: int) -> None:
        """Let so much time pass on the page, frame by frame."""
        self.page.clock.run_for(milliseconds)

    def value(self, key: str) -> float:
        """A value shown, with all its digits."""
        text = self.root.locator(f'output[data-key="{key}"]').get_attribute("data-number")
        if text is None:
            raise LookupError(f"value {key!r} shows no number: {self.text(key)!r}")
        return float(text.replace("Infinity", "inf"))

    def values(self) -> dict[str, float]:
        """All values shown that are numbers."""
        found = self.root.evaluate(
            "root => [...root.querySelectorAll('output[data-number]')].map(o => [o.dataset.key, o.dataset.number])"
        )
        return {key: float(text.replace("Infinity", "inf")) for key, text in found}

    def text(self, key: str) -> str:
        """A value as it is written."""
        return self.root.locator(f'output[data-key="{key}"]').inner_text()

    def sentence(self) -> str:
        """The verdict in words."""
        return self.root.locator(".explorer-verdict").inner_text()

    def trouble(self) -> str:
        """The sentence that stands instead of the picture, or nothing."""
        return " ".join(self.root.locator(".explorer-trouble").all_inner_texts()).strip()

    def complaint(self, key: str) -> str:
        """The sentence under a control, or nothing."""
        return self.control(key).locator(".explorer-complaint").inner_text()

    def setting(self, key: str) -> float | str | bool:
        """What a control stands at: the number field, the option chosen, the switch."""
        control = self.control(key)
        if (field := control.locator("input[type=text]")).count():
            return float(field.input_value())
        if (box := control.locator("input[type=checkbox]")).count():
            return box.is_checked()
        return control.locator("input[type=radio]:checked").get_attribute("value")

    # --- finding ----------------------------------------------------------------------------------------------------

    def control(self, key: str) -> Locator:
        """A control with its label, field and sentences."""
        return self.root.locator(f'[data-control="{key}"]')

    def plot(self, key: str) -> Locator:
        """A plot with its legend."""
        return self.root.locator(f'[data-plot="{key}"]')

    def line(self, plot: str, key: str) -> str:
        """The path of a line as it is drawn."""
        return self.plot(plot).locator(f'path[data-key="{key}"]').get_attribute("d") or ""

    def marker(self, plot: str, key: str) -> Locator:
        """A marker of a plot."""
        return self.plot(plot).locator(f'.explorer-marker[data-key="{key}"]')

    # --- doing ------------------------------------------------------------------------------------------------------

    def press_slider(self, key: str, button: str, times: int = 1) -> None:
        """Keys on a slider: ArrowRight, ArrowLeft, Home, End, PageUp, PageDown."""
        slider = self.control(key).locator("input[type=range]")
        slider.focus()
        for _ in range(times):
            slider.press(button)
        self.settle()

    def drag_slider(self, key: str, share: float) -> None:
        """Drag a slider by mouse to a share of its way (0 left, 1 right)."""
        slider = self.control(key).locator("input[type=range]")
        self._show(slider)
        box = slider.bounding_box()
        top = box["y"] + box["height"] / 2
        now, end = slider.evaluate("s => [Number(s.value), Number(s.max)]")
        self.page.mouse.move(box["x"] + 9 + (box["width"] - 18) * now / end, top)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + 9 + (box["width"] - 18) * share, top, steps=4)
        self.page.mouse.up()
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

    def toggle(self, key: str) -> None:
        """Press a switch by the space bar."""
        self.control(key).locator("input[type=checkbox]").press(" ")
        self.settle()

    def reset(self) -> None:
        """Press Reset."""
        self.root.get_by_role("button", name="Reset").click()
        self.settle()

    def press_marker(self, plot: str, key: str, button: str, times: int = 1) -> None:
        """Keys on a marker: arrows, PageUp, PageDown; Shift+Arrow goes ten times as far."""
        marker = self.marker(plot, key)
        marker.focus()
        for _ in range(times):
            marker.press(button)
            self.settle()  # each step starts where the last one ended

    def drag_marker(self, plot: str, key: str, right: float, down: float) -> None:
        """Drag a marker by mouse, by so many pixels."""
        x, y = self._middle(self.marker(plot, key))
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x + right, y + down, steps=4)
        self.page.mouse.up()
        self.settle()

    def click_plot(self, plot: str, across: float, up: float) -> None:
        """Click inside a plot's axes, at shares of its width and height."""
        box = (
            self.plot(plot)
            .locator(".explorer-stage clipPath rect")
            .first.evaluate(
                """rect => {
              const svg = rect.ownerSVGElement, inner = svg.querySelector("g");
              const move = inner.transform.baseVal.getItem(0).matrix;
              svg.scrollIntoView({block: "center"});
              const now = svg.getBoundingClientRect();
              return [now.x + move.e, now.y + move.f, rect.width.baseVal.value - 2, rect.height.baseVal.value - 2];
            }"""
            )
        )
        left, top, width, height = box
        self.page.mouse.click(left + width * across, top + height * (1 - up))
        self.settle()

    @staticmethod
    def _show(place: Locator) -> None:
        place.evaluate("node => node.scrollIntoView({block: 'center'})")

    def _middle(self, marker: Locator) -> tuple[float, float]:
        self._show(marker)
        box = marker.locator(".dot").bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@contextmanager
def explored(
    browser: Browser,
    address: str,
    name: str,
    viewport: dict = DESKTOP,
    scheme: str = "light",
    settings: dict | None = None,
    folder: str = FOLDER,
) -> Iterator[Explorer]:
    """Open the page of an explorer; `settings` go into the address. `address` may also be `file://` and a folder."""
    fragment = f"#{urlencode(settings)}" if settings else ""
    with visited(browser, address, f"{folder}/{name}.html{fragment}", viewport, scheme) as visit:
        explorer = Explorer(visit, name)
        explorer.settle()
        yield explorer
