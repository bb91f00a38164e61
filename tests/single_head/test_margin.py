"""The support vector machine, and selections of tokens: against scipy, formulas and random instances."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from attnbook.single_head.margin import (
    PATTERNS,
    best_pattern,
    check_law,
    measured_threshold,
    pattern_cost,
    pattern_costs,
    pattern_selection,
    predicted_pattern,
    predicted_thresholds,
    selection_margin,
    tokens_of,
)
from attnbook.single_head.svm import NotConverged, NotSeparable, hard_margin
from attnlib.single_head.law import SignalNoiseLaw


def draw(n=24, d=6000, signal_norm=40.0, label_noise=0.15, seed=0, run=0):
    sample = SignalNoiseLaw(n, d, signal_norm, label_noise).draw(seed, run + 1)
    return sample, tokens_of(sample, run)


def test_svm_equals_a_general_optimiser_and_satisfies_its_conditions():
    rng = np.random.default_rng(0)
    for n, m in ((3, 5), (7, 11), (13, 4)):
        truth = rng.standard_normal(m)
        rows = rng.standard_normal((n, m))
        labels = np.sign(rows @ truth)
        found = hard_margin(rows, labels)
        constraint = {"type": "ineq", "fun": lambda w, x=rows, y=labels: y * (x @ w) - 1}
        start = truth * 2 / np.abs(rows @ truth).min()
        other = minimize(lambda w: w @ w, start, jac=lambda w: 2 * w, method="SLSQP", constraints=[constraint],
                         options={"ftol": 1e-14, "maxiter": 1000})  # fmt: skip
        assert found.norm_squared == pytest.approx(other.fun, rel=1e-6)
        margins = labels * (rows @ found.weights)
        assert margins.min() == pytest.approx(1, abs=1e-9)
        assert (found.multipliers >= -1e-12).all()
        np.testing.assert_allclose((found.multipliers * labels) @ rows, found.weights, rtol=1e-8, atol=1e-12)
        assert found.multipliers.sum() == pytest.approx(found.norm_squared, rel=1e-9)  # strong duality
        assert found.residual < 1e-12


def test_equal_rows_are_one_constraint_and_scale_moves_nothing():
    rows, labels = np.array([[3.0, 0.0], [3.0, 0.0], [0.0, 2.0]]), np.array([1.0, 1.0, -1.0])
    found = hard_margin(rows, labels)
    np.testing.assert_allclose(found.weights, [1 / 3, -1 / 2])
    np.testing.assert_allclose(found.multipliers, [1 / 18, 1 / 18, 1 / 4])
    assert found.margin == pytest.approx(1 / math.sqrt(1 / 9 + 1 / 4))
    for unit in (1e-150, 1e-9, 1e9, 1e149):
        np.testing.assert_allclose(hard_margin(rows * unit, labels).weights * unit, found.weights, rtol=1e-10)


def test_best_selection_is_the_formulas_in_100_random_instances():
    """n, d, eta, rho and the draw all random; both classes at least 5 % from their threshold; best of nine by the exact SVM."""
    rng = np.random.default_rng(1)
    judged, seen = 0, set()
    while judged < 100:
        n, eta = int(rng.integers(20, 50)), rng.uniform(0, 0.25)
        d = n * int(rng.integers(300, 2000))
        rho = math.sqrt(2 * d / (n * (1 - eta))) * math.exp(rng.uniform(-0.7, 0.7))
        _, tokens = draw(n, d, rho, eta, seed=int(rng.integers(10**6)))
        if np.abs(rho / predicted_thresholds(tokens) - 1).min() < 0.05:
            continue
        judged += 1
        assert best_pattern(pattern_costs(tokens)) == predicted_pattern(tokens)
        seen.add(predicted_pattern(tokens))
    assert seen == {"SS", "XX", "SX", "XS"}


def test_measured_threshold_within_two_per_cent():
    for run in range(4):
        _, tokens = draw(60, 60 * 500, 30.0, 0.1, seed=9, run=run)
        for k in (0, 1):
            measured, predicted = measured_threshold(tokens, k), predicted_thresholds(tokens)[k]
            assert measured == pytest.approx(predicted, rel=0.02)
            # Just beside the measured value the best of nine flips its letter.
            sides = [best_pattern(pattern_costs(tokens.with_signal_norm(measured * f)))[k] for f in (0.999, 1.001)]
            assert sides == ["X", "S"]


def test_costs_decouple_and_follow_the_formula():
    _, tokens = draw(30, 30 * 2000, 70.0, 0.2, seed=3)
    for pattern in PATTERNS:
        exact = selection_margin(tokens, pattern_selection(tokens, pattern)).norm_squared
        assert exact == pytest.approx(pattern_cost(tokens, pattern), rel=0.06)
    signed = (tokens.labels[:, None] * tokens.noise)[~tokens.clean]
    multipliers = np.linalg.solve(signed @ signed.T, np.ones(len(signed)))
    assert (multipliers > 0).all()
    exact = selection_margin(tokens, pattern_selection(tokens, "SS")).norm_squared
    assert exact == pytest.approx(2 / 70.0**2 + multipliers.sum(), rel=1e-12)
    # So the flipped samples cost their number over an eigenvalue of that Gram matrix, the largest or the smallest at the ends.
    ends = len(signed) / np.linalg.eigvalsh(signed @ signed.T)[[-1, 0]]
    assert ends[0] < multipliers.sum() < ends[1]
    assert not ends[0] < 0.9 * multipliers.sum()


TOKENS = draw()[1]
FEW = np.random.default_rng(0).standard_normal((30, 3))  # few of the samples are support vectors


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: hard_margin(np.array([[1.0, 2.0]] * 2), np.array([1.0, -1.0])), NotSeparable, "contradict"),
        # The origin lies inside a triangle: no two rows contradict each other.
        (
            lambda: hard_margin(np.array([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]]), np.ones(3)),
            NotSeparable,
            "contradict",
        ),
        # A vector separates these, 1e9 long: no proof that there is none.
        (lambda: hard_margin(np.array([[1.0, 0.0], [-1.0, 1e-9]]), np.ones(2)), NotConverged, "nearly contradictory"),
        (lambda: hard_margin(FEW[:3] * [1e-5, 1.0, 1e5], np.ones(3)), NotConverged, "nearly contradictory"),
        (lambda: hard_margin(np.zeros((2, 3)), np.ones(2)), NotSeparable, "zero"),
        (lambda: selection_margin(TOKENS, np.ones(TOKENS.n)), NotSeparable, "contradict"),
        (lambda: best_pattern({"SS": math.inf}), NotSeparable, "no class-level pattern"),
        (lambda: hard_margin(FEW, np.sign(FEW[:, 0]), max_iterations=1), NotConverged, "MaxIterations"),
        (lambda: hard_margin(TOKENS.noise, TOKENS.labels, tolerance=1e-30), NotConverged, "KKT"),
        (lambda: hard_margin(np.ones((2, 2)), np.ones(3)), ValueError, "rows must be"),
        (lambda: hard_margin(np.ones(2), np.ones(2)), ValueError, "rows must be"),
        (lambda: hard_margin(np.ones((0, 2)), np.ones(0)), ValueError, "rows must be"),
        (lambda: hard_margin(np.ones((2, 2)), np.array([1.0, 0.5])), ValueError, "labels must be"),
        (lambda: hard_margin(np.array([[np.nan, 1.0]]), np.ones(1)), ValueError, "rows finite"),
        (
            lambda: hard_margin(1e170 * np.eye(2), np.ones(2)),
            ValueError,
            "rows must be of a size between 1e-150 and 1e150",
        ),
        (
            lambda: hard_margin(1e-170 * np.eye(2), np.ones(2)),
            ValueError,
            "rows must be of a size between 1e-150 and 1e150",
        ),
        (lambda: check_law(SignalNoiseLaw(10, 21, 5.0)), ValueError, "d must be at least 2 n"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()
