"""The explorer "finite_data": its formulas against attnlib, the ends of all sliders among the settings."""

import itertools

import numpy as np
import pytest

from attnbook.finite_data.limits import (
    limit_error,
    many_prompts_error,
    pattern_error,
    prompt_cost,
    ridge_error,
    stieltjes,
)
from tests.explorers.node import evaluate

RANDOM = np.random.default_rng(5)
ENDS = {"tau": (0.1, 10.0), "kappa": (0.125, 8.0), "alpha": (0.25, 32.0), "noise": (0.01, 2.0)}
SETTINGS = [
    *(dict(zip(ENDS, ends, strict=True)) for ends in itertools.product(*ENDS.values())),
    *({k: float(np.exp(RANDOM.uniform(*np.log(v)))) for k, v in ENDS.items()} for _ in range(60)),
    {"tau": 1.0, "kappa": 1.0, "alpha": 1.0, "noise": 0.1},
]


def both(function, *arguments: float) -> dict[str, float]:
    return {tasks: function(*arguments, tasks) for tasks in ("fresh", "seen")}


def said(tau: float, kappa: float, alpha: float, noise: float) -> str:
    zero, best = 1 + noise, pattern_error(alpha, noise)
    half = (zero + best) / 2
    error = both(limit_error, tau, alpha, kappa, noise)
    return "regresses" if error["fresh"] <= half else "memorises" if error["seen"] <= half else "does neither"


def test_the_formulas_are_attnlibs() -> None:
    calls, expected = [], []
    for setting in SETTINGS:
        tau, kappa, alpha, noise = setting.values()
        for name, value in (
            ("limit_error", both(limit_error, tau, alpha, kappa, noise)),
            ("many_prompts", both(many_prompts_error, alpha, kappa, noise)),
            ("prompt_cost", both(prompt_cost, alpha, kappa, noise)),
        ):
            calls.append((name, setting))
            expected.append(value)
    for found, wanted in zip(evaluate("finite_data", calls), expected, strict=True):
        assert found == pytest.approx(wanted, rel=1e-9)


def test_what_it_is_compared_with() -> None:
    calls = [(name, setting) for name in ("pattern_error", "ridge_error") for setting in SETTINGS]
    expected = [f(s["alpha"], s["noise"]) for f in (pattern_error, ridge_error) for s in SETTINGS]
    assert evaluate("finite_data", calls) == pytest.approx(expected, rel=1e-9)
    pairs = [{"q": q, "kappa": kappa} for q in (1e-6, 0.3, 40.0) for kappa in (0.01, 1.0, 50.0)]
    found = evaluate("finite_data", [("stieltjes", pair) for pair in pairs])
    assert found == pytest.approx([stieltjes(**pair) for pair in pairs], rel=1e-9)


def test_the_words() -> None:
    words = evaluate("finite_data", [("word", setting) for setting in SETTINGS])
    assert words == [said(**setting) for setting in SETTINGS]
    assert set(words) == {"regresses", "memorises", "does neither"}
