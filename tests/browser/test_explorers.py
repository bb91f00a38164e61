"""Each explorer, driven as a reader does: keys, mouse, field, reset; numbers shown are those of Python at the settings shown.

All formulas of an explorer are compared with Python's in Node (tests/explorers); here, that the page shows what they say.
"""

import math
from inspect import signature
from typing import Any

import pytest
from playwright.sync_api import Browser

from attnbook.explorers import token_selection as player
from attnbook.finite_data.limits import limit_error, prompt_cost, ridge_error
from attnbook.in_context import closed_form
from attnbook.one_token import OneTokenLaw, bayes_risk, linear_risk, own_score_risk
from attnbook.single_head.flow import first_order_threshold
from attnbook.token_selection import theory
from attnlib.in_context.law import RegressionLaw
from tests.browser import looks
from tests.browser.browsing import DESKTOP, HTML, PHONE, visited
from tests.browser.exploring import Explorer, explored

pytestmark = pytest.mark.browser


def two_steps(n: int, d: int, signal_norm: float, step: float) -> dict[str, float]:
    return {"snr": signal_norm / math.sqrt(d), "n_snr2": n * signal_norm**2 / d, "step_size": step * n / d}


def long_run(label_noise: float) -> dict[str, float]:
    return {"first": first_order_threshold(label_noise)}


def token_selection() -> dict[str, float]:
    law = player.law_of(5.0, 4500, 0.2)
    floor, uniform = theory.loss_floor(law), theory.uniform_attention_accuracy(law)
    return {"floor": floor, "uniform": uniform, "n_snr_squared": theory.n_snr_squared(law)}


def two_numbers(d: int, length: int, sigma: float) -> dict[str, float]:
    law = RegressionLaw(int(d), int(length), sigma)
    plain, centred = closed_form.gd_optimal_risk(law), closed_form.debiased_gd_optimal_risk(law)
    return {"zero": closed_form.zero_risk(law), "plain": plain, "centred": centred}


def length(d: int, length: int, sigma: float, eta: float) -> dict[str, float]:
    law = RegressionLaw(int(d), int(length), sigma)
    best = closed_form.debiased_gd_optimal_risk(law)
    return {"zero": closed_form.zero_risk(law), "step": closed_form.gd_risk(law, eta), "centredBest": best}


def finite_data(tau: float, kappa: float, alpha: float, noise: float) -> dict[str, float]:
    fresh, cost = limit_error(tau, alpha, kappa, noise), prompt_cost(alpha, kappa, noise)
    return {"fresh": fresh, "cost": cost, "ridge": ridge_error(alpha, noise)}


def one_token(tokens: int, strength: float) -> dict[str, float]:
    law = OneTokenLaw(int(tokens), strength)
    risks = {"bayes_risk": bayes_risk(law), "own_score_risk": own_score_risk(law), "linear_risk": linear_risk(law)}
    return risks | {"threshold": 2 * math.log(law.tokens)}


# A slider and the key pressed on it three times; a plot, its marker, pixels to the right and down, and the control that
# it moves; a field and what is typed; the numbers then shown, as a function of the settings that its arguments name.
CASES: dict[str, Any] = {
    "two_steps": (("step", "ArrowLeft"), ("map", "point", 90, -60), "signal_norm", ("n", "150"), two_steps),
    "long_run": (("label_noise", "ArrowLeft"), ("map", "point", 30, -110), "x", ("label_noise", "0.2"), long_run),
    "token_selection": (("time", "ArrowRight"), ("family", "now", 60, 0), "time", ("time", "2.5"), token_selection),
    "two_numbers": (("sigma", "ArrowRight"), ("map", "head1", 60, 25), "omega1", ("time", "0.5"), two_numbers),
    "length": (("eta", "ArrowLeft"), ("risk", "cursor", 150, 0), "length", ("d", "13"), length),
    "finite_data": (("alpha", "ArrowRight"), ("curve", "tau", -60, 0), "tau", ("kappa", "0.125"), finite_data),
    "one_token": (("strength", "ArrowRight"), ("risks", "here", 100, 0), "strength", ("tokens", "200"), one_token),
}


def test_every_explorer_of_the_book_is_driven() -> None:
    assert set(CASES) == {path.stem for path in (HTML / "book" / "explorers").glob("*.html")} - {"index"}


# Whether an explorer shows these numbers, among others.
SHOWS = """numbers => Object.entries(numbers).every(([key, number]) =>
  Number(document.querySelector(`output[data-key="${key}"]`).dataset.number) === number)"""


@pytest.mark.parametrize("name", CASES)
def test_what_a_reader_does_is_answered(browser: Browser, address: str, name: str) -> None:
    slider, marker, moved, typed, expected = CASES[name]
    with explored(browser, address, name) as e:
        assert (e.root.get_attribute("data-state"), e.trouble()) == ("live", "")
        first, before = e.values(), (e.setting(slider[0]), e.setting(moved))
        e.press_slider(*slider, times=3)
        assert e.setting(slider[0]) != before[0]
        now = e.setting(moved)
        e.drag_marker(*marker)
        assert e.setting(moved) != now
        e.type(*typed)
        assert e.setting(typed[0]) == float(typed[1])
        if name == "token_selection":
            e.choose("snr", "0.0745")
            e.choose("label_noise", "0.4")
            assert "harmful" in e.sentence()
            e.choose("label_noise", "0.2")
        shown, wanted = e.values(), expected(**{key: e.setting(key) for key in signature(expected).parameters})
        assert {key: shown[key] for key in wanted} == pytest.approx(wanted, rel=1e-6, abs=1e-12)
        assert shown != first
        e.page.wait_for_function("location.hash !== ''")  # a link to what is seen
        e.press("Reset")
        # What is trained or followed in the background comes when it has been computed, before or after.
        e.page.wait_for_function(SHOWS, arg=first)
        assert e.visit.errors == e.visit.outside == []


def test_an_experiment_of_the_prose_sets_the_explorer(browser: Browser, address: str) -> None:
    with explored(browser, address, "long_run") as e:
        e.page.get_by_role("link", name="very many flips").click()
        e.page.wait_for_function("document.querySelector('[data-control=x] input[type=text]').value === '14'")
        e.settle()
        assert (e.setting("x"), e.setting("label_noise")) == (14, 0.4)
        assert "starts towards the signal" in e.sentence()


WITHIN = {
    "two_steps": "notebooks/single_head/02_two_steps.html",
    "long_run": "notebooks/single_head/14_the_trap.html",
    "token_selection": "notebooks/token_selection/02_dynamics.html",
    "two_numbers": "notebooks/in_context/04_what_the_heads_compute.html",
}


@pytest.mark.parametrize("name", WITHIN)
def test_an_explorer_stands_in_its_page(browser: Browser, address: str, name: str) -> None:
    with visited(browser, address, WITHIN[name], PHONE, java_script_enabled=False) as visit:
        picture = Explorer(visit, name).root.locator(".explorer-still img")
        picture.scroll_into_view_if_needed()
        assert picture.is_visible()
    for viewport in (DESKTOP, PHONE):
        with visited(browser, address, WITHIN[name], viewport) as visit:
            explorer = Explorer(visit, name)
            assert visit.page.locator(f'script[src$="/{name}.js"]').count() == 0  # it is far
            explorer.root.evaluate("root => root.scrollIntoView()")
            visit.page.wait_for_selector("[data-state=live][data-drawn]", state="attached")
            assert explorer.sentence()
            assert not explorer.root.locator(".explorer-still").is_visible()
            assert looks.loading(visit) + looks.sideways(visit) == []
