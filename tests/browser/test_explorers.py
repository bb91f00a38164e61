"""Each explorer, driven as a reader does: keys, mouse, field, reset; numbers shown are those of Python at the settings shown.

All formulas of an explorer are compared with Python's in Node (tests/explorers); here, that the page shows what they say.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser

from attnbook.explorers import token_selection as player
from attnbook.finite_data.limits import limit_error, prompt_cost, ridge_error
from attnbook.in_context import closed_form
from attnbook.one_token import OneTokenLaw, bayes_risk, linear_risk, own_score_risk
from attnbook.single_head.flow import first_order_threshold
from attnbook.token_selection import theory
from attnlib.in_context.law import RegressionLaw
from tests.browser.browsing import HTML
from tests.browser.exploring import Explorer, explored

pytestmark = pytest.mark.browser


@dataclass(frozen=True)
class Case:
    """What is done to an explorer, and what it then shows."""

    slider: tuple[str, str]  # a control, and the key pressed three times
    marker: tuple[str, str, float, float]  # plot, marker, pixels to the right and down
    moved: str  # the control that the marker moves
    typed: tuple[str, str]  # a field, and what is written into it
    expected: Callable[[Explorer], dict[str, float]]
    choices: dict[str, str] = field(default_factory=dict)
    words: str = ""  # of the sentence, at the end


def two_steps(e: Explorer) -> dict[str, float]:
    n, d, norm, step = (e.setting(key) for key in ("n", "d", "signal_norm", "step"))
    return {"snr": norm / math.sqrt(d), "n_snr2": n * norm**2 / d, "step_size": step * n / d}


def long_run(e: Explorer) -> dict[str, float]:
    return {"first": first_order_threshold(e.setting("label_noise"))}


def token_selection(e: Explorer) -> dict[str, float]:
    law = player.law_of(5.0, 4500, 0.4)
    return {
        "uniform": theory.uniform_attention_accuracy(law),
        "floor": theory.loss_floor(law),
        "n_snr_squared": theory.n_snr_squared(law),
    }


def regression(e: Explorer) -> RegressionLaw:
    return RegressionLaw(int(e.setting("d")), int(e.setting("length")), e.setting("sigma"))


def two_numbers(e: Explorer) -> dict[str, float]:
    law = regression(e)
    return {
        "zero": closed_form.zero_risk(law),
        "centred": closed_form.debiased_gd_optimal_risk(law),
        "plain": closed_form.gd_optimal_risk(law),
    }


def length(e: Explorer) -> dict[str, float]:
    law = regression(e)
    return {
        "zero": closed_form.zero_risk(law),
        "step": closed_form.gd_risk(law, e.setting("eta")),
        "centredBest": closed_form.debiased_gd_optimal_risk(law),
    }


def finite_data(e: Explorer) -> dict[str, float]:
    tau, kappa, alpha, noise = (float(e.setting(key)) for key in ("tau", "kappa", "alpha", "noise"))
    return {
        "fresh": limit_error(tau, alpha, kappa, noise),
        "cost": prompt_cost(alpha, kappa, noise),
        "ridge": ridge_error(alpha, noise),
    }


def one_token(e: Explorer) -> dict[str, float]:
    law = OneTokenLaw(int(e.setting("tokens")), e.setting("strength"))
    return {
        "bayes_risk": bayes_risk(law),
        "own_score_risk": own_score_risk(law),
        "linear_risk": linear_risk(law),
        "threshold": 2 * math.log(law.tokens),
    }


CASES = {
    "two_steps": Case(("step", "ArrowLeft"), ("map", "point", 90, -60), "signal_norm", ("n", "150"), two_steps),
    "long_run": Case(("label_noise", "ArrowLeft"), ("map", "point", 30, -110), "x", ("label_noise", "0.2"), long_run),
    "token_selection": Case(
        ("time", "ArrowRight"), ("family", "now", 60, 0), "time", ("time", "2.5"), token_selection,
        choices={"snr": "0.0745", "label_noise": "0.4"}, words="harmful",
    ),
    "two_numbers": Case(("sigma", "ArrowRight"), ("map", "head1", 60, 25), "omega1", ("time", "0.5"), two_numbers),
    "length": Case(("eta", "ArrowLeft"), ("risk", "cursor", 150, 0), "length", ("d", "13"), length),
    "finite_data": Case(("alpha", "ArrowRight"), ("curve", "tau", -60, 0), "tau", ("kappa", "0.125"), finite_data),
    "one_token": Case(("strength", "ArrowRight"), ("risks", "here", 100, 0), "strength", ("tokens", "200"), one_token),
}  # fmt: skip


def test_every_explorer_of_the_book_is_driven() -> None:
    assert set(CASES) == {path.stem for path in (HTML / "book" / "explorers").glob("*.html")} - {"index"}


# Whether an explorer shows these numbers, among others.
SHOWS = """([name, numbers]) => Object.entries(numbers).every(([key, number]) =>
  Number(document.querySelector(`[data-explorer=${name}] output[data-key="${key}"]`).dataset.number) === number)"""


@pytest.mark.parametrize("name", CASES)
def test_what_a_reader_does_is_answered(browser: Browser, address: str, name: str) -> None:
    case = CASES[name]
    with explored(browser, address, name) as e:
        assert (e.state, e.trouble()) == ("live", "")
        first = e.values()
        key, button = case.slider
        before = e.setting(key)
        e.press_slider(key, button, times=3)
        assert e.setting(key) != before
        before = e.setting(case.moved)
        plot, marker, right, down = case.marker
        e.drag_marker(plot, marker, right, down)
        assert e.setting(case.moved) != before
        key, text = case.typed
        e.type(key, text)
        assert e.setting(key) == float(text)
        for key, value in case.choices.items():
            e.choose(key, value)
        expected = {key: float(value) for key, value in case.expected(e).items()}
        shown = e.values()
        assert {key: shown[key] for key in expected} == pytest.approx(expected, rel=1e-6, abs=1e-12)
        assert case.words in e.sentence()
        assert shown != first
        e.page.wait_for_function("location.hash !== ''")  # a link to what is seen
        e.reset()
        # What is trained or followed in the background comes when it has been computed, before or after.
        e.page.wait_for_function(SHOWS, arg=[name, first])
        assert e.visit.errors == e.visit.outside == []


def test_an_experiment_of_the_prose_sets_the_explorer(browser: Browser, address: str) -> None:
    with explored(browser, address, "long_run") as e:
        e.page.get_by_role("link", name="very many flips").click()
        e.page.wait_for_function("document.querySelector('[data-control=x] input[type=text]').value === '14'")
        e.settle()
        assert (e.setting("x"), e.setting("label_noise")) == (14, 0.4)
        assert "starts towards the signal" in e.sentence()
