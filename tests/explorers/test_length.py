"""The explorer "length": its formulas against attnlib, its tables against what made them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from attnbook.explorers import length as source
from attnbook.explorers.bayes_table import NOISE_RANGE, sampled_bayes_risk, sampled_spectrum
from attnbook.in_context import closed_form
from attnbook.in_context.estimators import bayes_risk
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from tests.explorers.node import ROOT, evaluate

EXACT = 1e-9
RNG = np.random.default_rng(9)


def stored(name: str = "length") -> dict:
    text = Path(ROOT, "book", "assets", "explorers", "data", f"{name}.js").read_text(encoding="utf-8")
    return json.loads(text[text.index("] = ") + 4 : text.rindex(";")])


def settings(count: int) -> list[dict]:
    """Random settings, then every combination of the sliders' ends."""
    found = [
        {
            "d": int(RNG.integers(1, 21)),
            "sigma": float(10 ** RNG.uniform(-3, math.log10(3))),
            "rho": float(RNG.choice([0.0, RNG.uniform(0, 0.9)])),
            "trained": int(10 ** RNG.uniform(0.31, 3)),
            "eta": float(RNG.uniform(0, 1.5)),
            "length": int(10 ** RNG.uniform(0, 3)),
        }
        for _ in range(count)
    ]
    for number in range(64):
        ends = [(1, 20), (0.001, 3.0), (0.0, 0.9), (2, 1000), (0.0, 1.5), (1, 1000)]
        keys = ("d", "sigma", "rho", "trained", "eta", "length")
        found.append({key: pair[number >> k & 1] for k, (key, pair) in enumerate(zip(keys, ends, strict=True))})
    return found


def law_of(one: dict, length: int) -> RegressionLaw:
    covariance = toeplitz_covariance(one["d"], one["rho"]) if one["rho"] else None
    return RegressionLaw(one["d"], length, one["sigma"], covariance=covariance)


def risks_by_attnlib(one: dict) -> dict[str, float]:
    law, trained = law_of(one, one["length"]), law_of(one, one["trained"])
    there = float(closed_form.debiased_gd_optimal_step(trained))
    best = closed_form.best_preconditioner(law)
    return {
        "zero": closed_form.zero_risk(law),
        "step": closed_form.gd_risk(law, one["eta"]),
        "stepBest": closed_form.gd_optimal_risk(law),
        "centred": closed_form.debiased_gd_risk(law, one["eta"]),
        "centredBest": closed_form.debiased_gd_optimal_risk(law),
        "softmax": closed_form.debiased_gd_risk(law, there),
        "matrix": closed_form.preconditioned_gd_risk(law, best),
        "linearMean": closed_form.linear_attention_risk(law, one["trained"], normalised=True),
        "linearRaw": closed_form.linear_attention_risk(law, one["trained"], normalised=False),
        "leastSquares": closed_form.bayes_risk_leading_order(law),
        "bayes": closed_form.bayes_risk_lower_bound(law),
    }


def test_every_closed_form_is_attnlibs():
    asked = settings(40)
    for one, found in zip(asked, evaluate("length", [("risks", one) for one in asked]), strict=True):
        expected = risks_by_attnlib(one)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name] == pytest.approx(float(value), rel=EXACT, abs=EXACT * one["d"]), (name, one)


def test_floors_and_steps_are_attnlibs():
    asked = settings(10)
    floors = evaluate("length", [("floors", one) for one in asked])
    steps = evaluate("length", [("bestStep", one | {"centred": c}) for one in asked for c in (False, True)])
    limits = evaluate("length", [("bayesLimit", one) for one in asked])
    far = 10**9
    for k, one in enumerate(asked):
        law, trained = law_of(one, one["length"]), law_of(one, one["trained"])
        there = float(closed_form.debiased_gd_optimal_step(trained))
        assert floors[k]["softmax"] == pytest.approx(float(closed_form.softmax_floor(law, there)), rel=EXACT)
        assert floors[k]["step"] == pytest.approx(float(closed_form.softmax_floor(law, one["eta"])), rel=EXACT)
        # A floor is the risk of very long prompts: the second way round.
        mean = closed_form.linear_attention_risk(trained, one["trained"], normalised=True, length=far)
        assert floors[k]["linearMean"] == pytest.approx(float(mean), abs=1e-5 * one["d"])
        plain = closed_form.gd_optimal_risk(law, length=far)
        assert floors[k]["stepBest"] == pytest.approx(float(plain), abs=1e-5 * one["d"])
        assert steps[2 * k] == pytest.approx(float(closed_form.gd_optimal_step(law)), rel=EXACT)
        assert steps[2 * k + 1] == pytest.approx(float(closed_form.debiased_gd_optimal_step(law)), rel=EXACT)
        isotropic = RegressionLaw(one["d"], one["length"], one["sigma"])
        assert limits[k] == pytest.approx(float(closed_form.bayes_risk_proportional(isotropic)), rel=EXACT)


def test_spectrum_is_that_of_the_covariance():
    asked = [{"d": d, "rho": rho} for d, rho in ((1, 0.5), (2, 0.9), (7, 0.3), (20, 0.9), (13, 0.0))]
    for one, found in zip(asked, evaluate("length", [("spectrum", one) for one in asked]), strict=True):
        expected = np.linalg.eigvalsh(np.array(toeplitz_covariance(one["d"], one["rho"])))
        assert found == pytest.approx(expected, rel=1e-11, abs=1e-13)


def test_sampled_bayes_risk_equals_the_draws_at_any_noise():
    data, asked, expected, limits = stored(), [], [], []
    for d, length in ((1, 2), (5, 5), (5, 40), (7, 3), (20, 20), (13, 1000)):
        squares = sampled_spectrum(d, length)
        for sigma in (*NOISE_RANGE, 0.01, *np.exp(RNG.uniform(*np.log(NOISE_RANGE), 4))):
            cell = data["bayes"][source.DIMENSIONS.index(d)][data["lengths"].index(length)]
            asked.append(
                ("bayesSampled", {"cell": cell, "d": d, "sigma": sigma, "length": length, "noise": data["noise"]})
            )
            expected.append(sampled_bayes_risk(squares, d * sigma**2))
            limits.append((d, length, sigma))
    for found, (mean, error), (d, length, sigma) in zip(evaluate("length", asked), expected, limits, strict=True):
        assert found["risk"] == pytest.approx(float(mean), rel=1e-6)
        assert found["error"] == pytest.approx(float(error), rel=0.4, abs=1e-8 * d)
        law = RegressionLaw(d, length, sigma)
        assert found["risk"] >= float(closed_form.bayes_risk_lower_bound(law)) - 5 * found["error"]
        assert found["risk"] <= float(closed_form.bayes_risk_leading_order(law)) + 5 * found["error"]


def test_triangles_give_the_bayes_risk_of_whole_prompts():
    """The reduced draws against attnlib's own Bayes risk of dense covariates; another length is seen."""
    for d, length in ((3, 12), (4, 2)):
        law = RegressionLaw(d, length, 0.6)
        dense = bayes_risk(law.draw(4000, 3).x, law).numpy()
        error = dense.std(ddof=1) / math.sqrt(len(dense))
        mean, own = sampled_bayes_risk(sampled_spectrum(d, length), law.noise_variance)
        assert abs(dense.mean() - mean) < 4 * math.hypot(error, own)
        wrong, _ = sampled_bayes_risk(sampled_spectrum(d, length + 2), law.noise_variance)
        assert abs(dense.mean() - wrong) > 8 * math.hypot(error, own)


def test_trained_heads_are_remade_by_the_same_call():
    few = source.trained_heads((14,), prompts=400)
    groups = stored()["trained"]["groups"]
    at = source.LENGTHS.index(14)
    for name in groups:
        tolerance = 5 * math.hypot(few[name]["error"][0], groups[name]["error"][at])
        assert few[name]["risk"][0] == pytest.approx(groups[name]["risk"][at], abs=tolerance)


def test_crossings_are_where_the_order_changes():
    """d = 5, no correlation: the step eta = 1 passes the softmax pair of training length 40 where the quadratics meet."""
    setting = {"d": 5, "sigma": 0.01, "rho": 0.0, "trained": 40, "eta": 1.0}
    found = evaluate(
        "length", [("crossings", setting | {"pairs": [["step", "softmax"], ["linearRaw", "zero"]], "longest": 1000})]
    )[0]
    s2 = 5e-4
    eta = 40 / (45 + s2)
    # d (6 + s2) / L = d [1 - 2 eta (L-1)/L + eta^2 (L-1)(L + 5 + s2)/L^2]: a quadratic in L.
    roots = np.roots([(1 - eta) ** 2, 2 * eta + eta**2 * (4 + s2) - (6 + s2), -(eta**2) * (5 + s2)])
    expected = math.ceil(roots.real.max())
    assert [one["length"] for one in found if one["first"] == "step"] == [expected]
    raw = [one for one in found if one["first"] == "zero"]
    law = RegressionLaw(5, 40, 0.01)
    risk = [
        float(closed_form.linear_attention_risk(law, 40, normalised=False, length=raw[0]["length"] - k)) for k in (1, 0)
    ]
    assert risk[0] < 5 <= risk[1]
