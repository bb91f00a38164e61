"""The explorer of one token matters, driven as a reader does: what it shows is what attnlib computes."""

import math

import pytest

from attnbook.one_token import OneTokenLaw, bayes_risk, linear_risk, own_score_risk
from tests.browser.exploring import Explorer, explored

pytestmark = pytest.mark.browser


def compare(explorer: Explorer) -> None:
    law = OneTokenLaw(int(explorer.setting("tokens")), explorer.setting("strength"))
    assert explorer.value("bayes_risk") == pytest.approx(bayes_risk(law), rel=1e-9)
    assert explorer.value("own_score_risk") == pytest.approx(own_score_risk(law), rel=1e-9)
    assert explorer.value("linear_risk") == pytest.approx(linear_risk(law), rel=1e-12)
    assert explorer.value("centred_risk") == pytest.approx(linear_risk(law, centred=True), rel=1e-12)
    assert explorer.value("threshold") == pytest.approx(2 * math.log(law.tokens), rel=1e-12)


def test_sliders_fields_and_point(browser, address) -> None:
    with explored(browser, address, "one_token") as explorer:
        assert explorer.state == "live"
        compare(explorer)
        explorer.press_slider("strength", "ArrowRight", times=3)
        compare(explorer)
        explorer.type("tokens", "200")
        assert explorer.setting("tokens") == 200
        compare(explorer)
        explorer.type("strength", "0.5")
        compare(explorer)
        explorer.drag_marker("risks", "here", 100, 0)
        assert explorer.setting("strength") > 0.5
        compare(explorer)
        explorer.press_slider("draw", "ArrowRight", times=2)
        compare(explorer)
        assert explorer.visit.errors == []
        assert explorer.visit.outside == []
