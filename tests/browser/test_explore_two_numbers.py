"""The explorer of two numbers per head, driven as a reader does: what it shows is what attnlib computes."""

import pytest

from attnbook.in_context import approximate, closed_form
from attnbook.in_context.reduced import reduced_risk
from attnlib.in_context.law import RegressionLaw
from tests.browser.exploring import Explorer, explored

pytestmark = pytest.mark.browser

CHOICES = {"one": 1, "pair": 2, "two": 2}


def _compare(explorer: Explorer) -> dict[str, float]:
    """Risks at the start and now, and every level, against attnlib at the settings that the controls show."""
    shown, heads, landscape = explorer.values(), explorer.setting("heads"), explorer.setting("landscape")
    law = RegressionLaw(int(explorer.setting("d")), int(explorer.setting("length")), explorer.setting("sigma"))
    omega, mu = ([explorer.setting(f"{name}{head}") for head in (1, 2)[: CHOICES[heads]]] for name in ("omega", "mu"))
    if heads == "pair":
        omega, mu = [omega[0], -omega[0]], [mu[0], -mu[0]]
    now = [[shown[f"{name}{end}_now"] for end in ("", "2")[: CHOICES[heads]]] for name in ("omega", "mu")]
    exact = landscape == "exact" and explorer.setting("law") != "any"
    states = [omega, now[0]], [mu, now[1]]
    risks = reduced_risk(*states, law)[0] if exact else approximate.approximate_risk(law, *states)
    assert [shown["risk_start"], shown["risk_now"]] == pytest.approx(risks.tolist(), rel=1e-6)
    levels = {
        "zero": closed_form.zero_risk(law),
        "step1": closed_form.gd_risk(law, 1.0),
        "centred": closed_form.debiased_gd_optimal_risk(law),
        "plain": closed_form.gd_optimal_risk(law),
        "step_now": sum(w * m for w, m in zip(*now, strict=True)),
        "offset_now": sum(now[1]),
    }
    assert {key: shown[key] for key in levels} == pytest.approx(
        {k: float(v) for k, v in levels.items()}, rel=1e-9, abs=1e-12
    )
    if exact:
        like = closed_form.debiased_gd_risk(law, levels["step_now"], offset=levels["offset_now"])
        assert shown["same_step"] == pytest.approx(float(like), rel=1e-9)
    return shown


def test_one_head_by_keyboard_mouse_and_time(browser, address):
    with explored(browser, address, "two_numbers") as explorer:
        assert explorer.state == "live"
        shown = _compare(explorer)
        assert shown["risk_now"] == pytest.approx(shown["one_risk"], rel=1e-8)
        assert "best that one head can do" in explorer.sentence()
        path = explorer.line("map", "head1-path")

        explorer.drag_marker("map", "head1", 60, 25)  # mouse
        assert explorer.setting("omega1") > -0.85
        assert explorer.setting("mu1") < 1.4
        assert explorer.line("map", "head1-path") != path
        explorer.press_marker("map", "head1", "ArrowRight", times=2)  # keyboard
        _compare(explorer)
        explorer.type("time", "0.5")
        shown = _compare(explorer)
        assert shown["one_risk"] < shown["risk_now"] < shown["risk_start"]
        explorer.choose("landscape", "approximate")
        explorer.type("time", "1000000")
        shown = _compare(explorer)
        assert abs(shown["omega_now"]) == pytest.approx(5**-0.5, rel=1e-5)
        # d and L of no table: the approximate risk, and the sentence says so.
        explorer.choose("landscape", "exact")
        explorer.press_slider("d", "ArrowRight", times=2)
        assert (explorer.setting("law"), explorer.setting("landscape")) == ("any", "approximate")
        _compare(explorer)
        assert "this is the approximate one" in explorer.sentence()
        explorer.choose("law", "20-40")
        assert (explorer.setting("d"), explorer.setting("length")) == (20, 40)
        explorer.choose("landscape", "exact")
        # The second head has numbers of its own only where there are two free heads.
        for heads, resting in (("one", True), ("pair", True), ("two", False), ("one", True)):
            explorer.choose("heads", heads)
            second = explorer.root.locator(":is([data-control=omega2], [data-control=mu2]) input")
            assert [field.is_disabled() for field in second.all()] == [resting] * 4
        explorer.type("omega1", "1.5")  # tables end at 0.8 there
        assert "ends at |ω| = 0.8" in explorer.sentence()
        explorer.type("omega1", "0.2")
        _compare(explorer)
        assert explorer.visit.errors == []
        assert explorer.visit.outside == []


def test_pairs_escape_and_trap(browser, address):
    trap = {"heads": "two", "omega1": 0.3, "mu1": 0.8, "omega2": 0.2, "mu2": 0.5}
    with explored(browser, address, "two_numbers", settings=trap) as explorer:
        shown = _compare(explorer)
        assert "trapped" in explorer.sentence()
        assert shown["risk_now"] == pytest.approx(shown["one_risk"], rel=1e-5)
        explorer.type("omega2", "0.1")
        explorer.type("mu2", "0.01")
        shown = _compare(explorer)
        assert shown["risk_now"] < 0.5 * shown["one_risk"]
        assert "cancel the mean label" in explorer.sentence()
        assert explorer.line("map", "head2-path")
        explorer.page.get_by_role("link", name="Let a pair go.").click()  # a link of the prose sets the explorer
        explorer.settle()
        assert (explorer.setting("heads"), explorer.setting("mu1")) == ("pair", 0.4)
        shown = _compare(explorer)
        assert "a gradient step" in explorer.sentence()
        assert shown["pair_risk"] <= shown["risk_now"] < shown["centred"] < shown["one_risk"]
        explorer.drag_slider("sigma", 0.9)
        assert explorer.setting("sigma") > 1
        _compare(explorer)
        assert explorer.visit.errors == []
