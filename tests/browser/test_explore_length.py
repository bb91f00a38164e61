"""The explorer of prompt lengths, driven as a reader does: what it shows is what attnlib computes."""

import pytest

from attnbook.explorers import length as source
from attnbook.explorers.bayes_table import sampled_bayes_risk, sampled_spectrum
from attnbook.in_context import closed_form
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from tests.browser.exploring import Explorer, explored

pytestmark = pytest.mark.browser


def _compare(explorer: Explorer) -> dict[str, float]:
    """All closed forms shown against attnlib at the settings that the controls show."""
    shown = explorer.values()
    d, length, trained = (int(explorer.setting(key)) for key in ("d", "length", "trained"))
    rho, eta, sigma = (explorer.setting(key) for key in ("rho", "eta", "sigma"))
    law = RegressionLaw(d, length, sigma, covariance=toeplitz_covariance(d, rho) if rho else None)
    there = law.with_length(trained)
    fixed = float(closed_form.debiased_gd_optimal_step(there))
    expected = {
        "zero": closed_form.zero_risk(law),
        "step": closed_form.gd_risk(law, eta),
        "stepBest": closed_form.gd_optimal_risk(law),
        "centred": closed_form.debiased_gd_risk(law, eta),
        "centredBest": closed_form.debiased_gd_optimal_risk(law),
        "softmax": closed_form.debiased_gd_risk(law, fixed),
        "matrix": closed_form.preconditioned_gd_risk(law, closed_form.best_preconditioner(law)),
        "linearMean": closed_form.linear_attention_risk(there, trained, normalised=True, length=length),
        "linearRaw": closed_form.linear_attention_risk(there, trained, normalised=False, length=length),
        "leastSquares": closed_form.bayes_risk_leading_order(law),
        "bayes_low": closed_form.bayes_risk_lower_bound(law),
        "floor_softmax": closed_form.softmax_floor(law, fixed),
        "floor_step": closed_form.softmax_floor(law, eta),
        "best_step": closed_form.gd_optimal_step(law),
        "best_centred": closed_form.debiased_gd_optimal_step(law),
        "fixed_step": fixed,
    }
    assert {key: shown[key] for key in expected} == pytest.approx(
        {k: float(v) for k, v in expected.items()}, rel=1e-9, abs=1e-12
    )
    if not rho:
        at = min(source.LENGTHS, key=lambda one: abs(one / length - 1) + abs(length / one - 1))
        mean, _ = sampled_bayes_risk(sampled_spectrum(d, at), law.noise_variance)
        assert shown["bayes"] == pytest.approx(float(mean), rel=1e-6)
    word = "softmax ahead" if expected["softmax"] < expected["step"] else "plain step ahead"
    assert word in explorer.sentence()
    return shown


def test_cursor_sliders_and_switches(browser, address):
    with explored(browser, address, "length") as explorer:
        assert explorer.state == "live"
        shown = _compare(explorer)
        assert shown["pair"] == pytest.approx(0.676, abs=0.01)
        assert shown["pair"] < shown["trapped"] < 1.1 * shown["one"]
        assert "L = 90" in explorer.sentence()

        explorer.drag_marker("risk", "cursor", 150, 0)  # mouse: to longer prompts
        assert explorer.setting("length") > 90
        assert _compare(explorer)["linearRaw"] > 5
        explorer.press_marker("risk", "cursor", "ArrowLeft", times=2)  # keyboard
        explorer.press_slider("eta", "ArrowLeft", times=7)
        assert explorer.setting("eta") == pytest.approx(0.93)
        explorer.drag_slider("trained", 0.8)
        explorer.type("d", "13")
        explorer.type("sigma", "0.7")
        explorer.type("length", "160")
        _compare(explorer)
        assert explorer.text("pair") == "for the authors' setting"
        explorer.type("rho", "0.5")
        shown = _compare(explorer)
        assert shown["matrix"] < shown["stepBest"]
        explorer.drag_slider("length", 0)
        assert explorer.setting("length") == 1
        _compare(explorer)

        explorer.reset()
        line = explorer.line("risk", "softmax")
        assert explorer.line("risk", "linearRaw")
        explorer.toggle("show_linearRaw")
        assert explorer.plot("risk").locator('path[data-key="linearRaw"]').count() == 0
        explorer.choose("measure", "ratio")
        assert explorer.line("risk", "softmax") != line
        for key in ("log_x", "log_y", "deep", "show_trapped", "show_matrix"):
            explorer.toggle(key)
        _compare(explorer)
        assert explorer.visit.errors == []
        assert explorer.visit.outside == []
