"""The explorer of the long run, driven as a reader does: what it shows is what attnlib computes."""

import math

import pytest

from attnbook.single_head.flow import first_order_threshold, flow_path, signal_threshold
from tests.browser.exploring import Explorer, explored

pytestmark = pytest.mark.browser

END = 1e5


def _compare(explorer: Explorer) -> tuple[float, float]:
    """All numbers shown, once x* has been computed anew, against attnlib at the settings that the controls show."""
    x, eta, rate = explorer.setting("x"), explorer.setting("label_noise"), float(explorer.setting("attention_rate"))
    star = signal_threshold(eta, attention_rate=rate)
    if math.isfinite(star):  # computed when the reader rests: then its ring is drawn
        explorer.plot("map").locator('g[data-key="here"] circle').wait_for()
    path = flow_path(x, eta, [1.0, END], attention_rate=rate)
    V, t_c, t_n, P, q_c, q_n = path.states[-1]
    s_c, s_n = 1 / (1 + math.exp(q_c - P)), 1 / (1 + math.exp(q_n - P))
    expected = {"attention_clean": s_c, "margin_clean": s_c * V + (1 - s_c) * t_c, "first": first_order_threshold(eta)}
    if eta:
        expected |= {"attention_noisy": s_n, "margin_noisy": -s_n * V + (1 - s_n) * t_n}
        expected["interpolation_time"] = path.interpolation_time
    shown = explorer.values()
    assert {key: shown[key] for key in expected} == pytest.approx(expected, rel=2e-6, abs=1e-9)
    if math.isfinite(star):
        assert explorer.value("threshold") == pytest.approx(star, rel=1e-6)
    else:
        assert explorer.text("threshold") == "above 40"
    word = "both choose the signal" if x > max(star, 1) else "trapped" if x > 1 else "both choose noise"
    assert word in explorer.sentence()
    return x, eta


def test_every_way_of_moving_the_point_ends_at_attnlibs_fate(browser, address):
    with explored(browser, address, "long_run") as explorer:
        assert explorer.state == "live"
        assert _compare(explorer) == (1.3, 0.2)
        assert "The trap closes" in explorer.sentence()
        closed = explorer.value("trap_time")
        assert 0 < closed < END

        explorer.press_slider("label_noise", "ArrowLeft", times=24)  # keyboard: out of the trap
        assert _compare(explorer) == (1.3, 0.08)
        assert explorer.text("trap_time") == "never"
        explorer.drag_slider("x", 0.05)  # mouse
        assert _compare(explorer)[0] < 1
        explorer.reset()
        path = explorer.line("attention", "clean")
        boundary = explorer.line("map", "boundary")
        explorer.drag_marker("map", "point", 30, -110)  # the sliders follow the point
        x, eta = _compare(explorer)
        assert x > 3
        assert eta > 0.2
        assert explorer.line("attention", "clean") != path
        explorer.press_marker("map", "point", "ArrowLeft", times=2)
        assert explorer.setting("label_noise") < eta
        explorer.click_plot("map", 1, 0.5)
        x, eta = _compare(explorer)
        assert eta == pytest.approx(0.45, abs=0.01)
        assert x == pytest.approx(math.sqrt(0.5 * 40), rel=0.05)
        assert "lies above 40" in explorer.sentence()
        explorer.type("label_noise", "0.2")
        explorer.type("x", "1.65")
        assert "both choose the signal" in explorer.sentence()
        explorer.choose("attention_rate", "0.25")
        _compare(explorer)
        assert "trapped" in explorer.sentence()
        assert explorer.line("map", "boundary") != boundary
        explorer.page.get_by_role("link", name="very many flips").click()  # an experiment of the page
        assert _compare(explorer) == (14, 0.4)
        assert "starts towards the signal" in explorer.sentence()
        assert explorer.setting("attention_rate") == "1"
        assert explorer.visit.errors == explorer.visit.outside == []
