"""The token selection player, driven in Chromium: what is shown against `attnlib` and against the stored data."""

import math

import pytest
from playwright.sync_api import Browser

from attnbook.explorers import token_selection as player
from attnbook.token_selection import theory
from tests.browser.exploring import explored
from tests.explorers.node import evaluate
from tests.explorers.test_token_selection import stored

pytestmark = pytest.mark.browser
NAME = "token_selection"
SHOWN = {
    "clean": "clean relevant", "noisy": "noisy relevant", "confusing": "noisy confusing", "fresh": "fresh relevant",
    "clean_fitted": "clean fitted", "noisy_fitted": "noisy fitted", "accuracy": "fresh accuracy", "loss": "fresh loss",
}  # fmt: skip


# The mean field and the closed forms are computed in tasks of their own after the picture.
COMPLETE = """() => ["half_theory", "select_closed"].every(
  key => !document.querySelector(`output[data-key=${key}]`).textContent.includes("…"))"""


def expected(size: int, label_noise: float, log_times: list[float]) -> list[dict[str, float]]:
    """Values of the page at some times, from the stored data."""
    index = len(player.LABEL_NOISES) * size + player.LABEL_NOISES.index(label_noise)
    calls = [("at_time", {"data": stored(), "index": index, "log_time": at}) for at in log_times]
    return [{key: seen[name] for key, name in SHOWN.items()} for seen in evaluate(NAME, calls)]


def test_scrubber_by_keys_mouse_field_and_marker(browser: Browser, address: str) -> None:
    """Every way to move time shows the stored values of that time; ratio and label noise by click; the step size counts steps."""
    with explored(browser, address, NAME) as e:
        assert e.state == "live"
        seen, at = [], []

        def look() -> None:
            values = e.values()
            seen.append({key: values[key] for key in SHOWN})
            at.append(e.setting("time"))

        look()
        e.press_slider("time", "ArrowRight", 7)
        look()
        e.drag_slider("time", 0.8)
        look()
        e.type("time", "-0.25")
        look()
        e.press_marker("attention", "now", "ArrowRight", 2)
        look()
        e.drag_marker("family", "now", 60, 0)
        look()
        e.click_plot("accuracy", 0.5, 0.2)
        look()
        assert at[:2] == pytest.approx([3, 3.35])
        assert at[3] == -0.25
        assert at[4] > at[3]
        assert at[5] > at[4] + 1
        assert at[6] == pytest.approx(11.5, abs=0.3)  # half way from -3 to 26
        assert at[2] == pytest.approx(-3 + 0.8 * 29, abs=0.5)
        for one, wanted in zip(seen, expected(2, 0.2, at), strict=True):
            assert one == pytest.approx(wanted, rel=0, abs=1e-9)
        e.press_slider("step_size", "Home")
        assert e.value("steps") == pytest.approx(10 ** at[-1] / 1e-5, rel=1e-6)
        e.choose("snr", "0.0745")
        e.choose("label_noise", "0.4")
        e.page.wait_for_function(COMPLETE)
        values = e.values()
        (wanted,) = expected(0, 0.4, at[-1:])
        assert {key: values[key] for key in SHOWN} == pytest.approx(wanted, rel=0, abs=1e-9)
        assert e.sentence().startswith("✗ harmful") or e.sentence().startswith("harmful")
        assert "Whole run: memorised from time" in e.sentence()
        law = player.law_of(5.0, 4500, 0.4)
        assert values["uniform"] == pytest.approx(theory.uniform_attention_accuracy(law), rel=1e-9)
        assert values["floor"] == pytest.approx(theory.loss_floor(law), rel=1e-9)
        assert values["n_snr_squared"] == pytest.approx(theory.n_snr_squared(law), rel=1e-9)
        assert 10 ** values["power_clock"] == pytest.approx(theory.not_overfitting_clock(law, 1.0), rel=1e-9)
        assert 10 ** values["delay_clock"] == pytest.approx(theory.benign_clock(law, 1.0), rel=1e-9)
        assert values["select_closed"] == math.inf == theory.selection_time(law, 1.0)[0]
        assert e.text("select_closed") == "never"
        e.choose("snr", "0.112")
        e.page.wait_for_function(COMPLETE)
        law = player.law_of(20.0, 32000, 0.4)
        assert e.value("half_theory") == pytest.approx(math.log10(theory.first_half_time(law, 1.0)), abs=1e-6)
        assert e.value("select_closed") == pytest.approx(theory.selection_time(law, 1.0)[0] / math.log(10), rel=1e-6)
        assert "02_dynamics" not in e.root.locator(".explorer-command").inner_text()
        assert e.visit.errors == e.visit.outside == []
