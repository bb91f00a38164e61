"""The explorer of finite data in context, driven as a reader does: what it shows is what attnlib computes."""

import math

import pytest

from attnbook.finite_data.limits import limit_error, many_prompts_error, pattern_error, prompt_cost, ridge_error
from tests.browser.exploring import Explorer, explored

pytestmark = pytest.mark.browser


def compare(explorer: Explorer) -> None:
    tau, kappa, alpha, noise = (float(explorer.setting(key)) for key in ("tau", "kappa", "alpha", "noise"))
    expected = {
        "fresh": limit_error(tau, alpha, kappa, noise),
        "seen": limit_error(tau, alpha, kappa, noise, "seen"),
        "unlimited": many_prompts_error(alpha, kappa, noise),
        "cost": prompt_cost(alpha, kappa, noise),
        "pattern": pattern_error(alpha, noise),
        "ridge": ridge_error(alpha, noise),
        "zero": 1 + noise,
    }
    shown = explorer.values()
    assert {key: shown[key] for key in expected} == pytest.approx(expected, rel=1e-9)


def test_sliders_fields_and_points(browser, address) -> None:
    with explored(browser, address, "finite_data") as explorer:
        assert explorer.state == "live"
        compare(explorer)
        explorer.press_slider("alpha", "ArrowRight", times=3)
        compare(explorer)
        explorer.type("tau", "10")
        explorer.type("kappa", "8")
        compare(explorer)
        assert "regresses" in explorer.sentence()
        explorer.type("kappa", "0.125")
        assert "memorises" in explorer.sentence()
        explorer.drag_marker("curve", "tau", -60, 0)
        assert float(explorer.setting("tau")) < 10
        compare(explorer)
        explorer.type("tau", "1")
        assert math.isinf(explorer.value("fresh"))
        assert "infinite" in explorer.sentence()
        assert explorer.visit.errors == []
        assert explorer.visit.outside == []
