"""The explorer of finite data in context, driven as a reader does: what it shows is what attnlib computes."""

import pytest

from attnlib.finite_data import GapLaw, mean_attention
from tests.browser.exploring import Explorer, explored

pytestmark = pytest.mark.browser


def compare(explorer: Explorer) -> None:
    expected = mean_attention(GapLaw(explorer.setting("largest_gap")))
    assert explorer.value("mean_attention") == pytest.approx(expected, rel=1e-9)


def test_slider_field_and_point(browser, address) -> None:
    with explored(browser, address, "finite_data") as explorer:
        assert explorer.state == "live"
        compare(explorer)
        explorer.press_slider("largest_gap", "ArrowRight", times=3)
        compare(explorer)
        explorer.type("largest_gap", "0.1")
        compare(explorer)
        explorer.drag_marker("mean", "here", 100, 0)
        assert explorer.setting("largest_gap") > 0.1
        compare(explorer)
        assert explorer.visit.errors == []
        assert explorer.visit.outside == []
