"""Selections, their exact SVMs, the threshold, and the query's side: against enumeration, scipy and formulas."""

import contextlib
import dataclasses
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from attnbook.single_head.margin import (
    PATTERNS,
    best_pattern,
    measured_threshold,
    pattern_cost,
    pattern_costs,
    pattern_selection,
    predicted_pattern,
    predicted_thresholds,
    selection_margin,
    tokens_of,
)
from attnbook.single_head.max_margin.attention_margin import (
    attention_margin,
    attention_margin_of_all_tokens,
    closed_form,
    constrained_optimum,
    directional_margin,
    joint_optimum,
    joint_radius,
    limit_error,
    log10_error,
    weight_on_signal,
)
from attnbook.single_head.max_margin.claims import CLAIMS
from attnbook.single_head.max_margin.finite_threshold import (
    exact_threshold,
    expected_gain,
    gain,
    gain_bounds,
    noise_cost_bounds,
)
from attnbook.single_head.max_margin.fresh_study import fresh_study
from attnbook.single_head.max_margin.optimum_limit import (
    best_hard,
    error_near_noise,
    log10_error_near_signal,
    second_best_cost,
)
from attnbook.single_head.max_margin.optimum_study import optimum_study
from attnbook.single_head.max_margin.study import margin_study, mixing_extra, predicted_mixing
from attnbook.single_head.svm import NotConverged, NotSeparable, hard_margin
from attnlib.single_head.law import SignalNoiseLaw
from bookkit.claims import Verdict
from tests.bad_input import refusing


def draw(n=24, d=6000, signal_norm=40.0, label_noise=0.15, seed=0, run=0):
    sample = SignalNoiseLaw(n, d, signal_norm, label_noise).draw(seed, run + 1)
    return sample, tokens_of(sample, run)


# --- the solver ------------------------------------------------------------------------------------------------------------


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
    for unit in (1e-150, 1e-9, 1e155, 1e300):
        np.testing.assert_allclose(hard_margin(rows * unit, labels).weights * unit, found.weights, rtol=1e-10)
    with pytest.raises(ValueError, match="rows must not be so small"):
        hard_margin(rows * 1e-160, labels)


# --- selections and the threshold ------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("weight", [0.05, 0.5, 0.9, 0.99])
def test_mixing_costs(weight):
    _, tokens = draw(20, 20 * 4000, 120.0, 0.2, seed=6)
    clean, flipped = np.flatnonzero(tokens.clean)[0], np.flatnonzero(~tokens.clean)[0]
    for sample, kind in ((clean, True), (flipped, False)):
        formula = predicted_mixing(tokens, weight, clean=kind)
        assert mixing_extra(tokens, int(sample), weight) == pytest.approx(formula, rel=0.06)
    grid = np.linspace(1, 1 / weight, 200_001)
    brute = grid**2 / 120.0**2 + (np.maximum(1 - weight * grid, 0) / (1 - weight)) ** 2 / tokens.noise_scale
    assert predicted_mixing(tokens, weight, clean=True) == pytest.approx(brute.min() - 1 / 120.0**2, rel=1e-6)


# --- the query -------------------------------------------------------------------------------------------------------------


def test_query_closed_form_and_candidate_margin():
    sample, tokens = draw(40, 40 * 3000, 100.0, 0.15, seed=2)
    selection = pattern_selection(tokens, "SS")
    v, p, form = (
        selection_margin(tokens, selection),
        attention_margin(tokens, selection),
        closed_form(tokens, selection),
    )
    assert p.norm_squared == pytest.approx(form.norm_squared, rel=0.03)
    np.testing.assert_allclose(sample.signals[0].numpy() @ p.weights, form.on_signals, rtol=0.03)
    np.testing.assert_allclose(tokens.noise @ p.weights, form.on_noise, atol=0.03)
    gaps = (2 * selection - 1) * ((tokens.signal - tokens.noise) @ p.weights)
    assert gaps.min() == pytest.approx(1, abs=1e-9)
    for ratio in (0.5, 1.0, 3.0):
        margin = directional_margin(tokens, v.weights, ratio * p.weights)
        assert margin * v.norm == pytest.approx(math.tanh(ratio / 2), rel=1e-9)


@pytest.mark.parametrize("signal_norm", [60.0, 12.0])
def test_constrained_optimum_is_caught_and_beats_random_queries(signal_norm):
    sample, tokens = draw(12, 12 * 400, signal_norm, 0.2, seed=1)
    selection = pattern_selection(tokens, best_pattern(pattern_costs(tokens)))
    v, p = selection_margin(tokens, selection), attention_margin(tokens, selection)
    top = constrained_optimum(tokens, 2 * p.norm)
    assert top.radius <= 2 * p.norm * (1 + 1e-9)
    assert math.tanh(1) <= top.value * v.norm <= 1 + 1e-9
    assert directional_margin(tokens, top.v, top.p) == pytest.approx(top.value, rel=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(20):
        q = p.weights + rng.standard_normal(len(p.weights)) * rng.uniform(0, 1) * p.norm / math.sqrt(len(p.weights))
        q *= 2 * p.norm / np.linalg.norm(q)
        assert selection_margin(tokens, weight_on_signal(tokens, q)).margin <= top.value * (1 + 1e-6)
    if signal_norm < 20:  # below the threshold: the harmful side
        assert 10 ** log10_error(sample, top.v, top.p) > 0.2


def test_joint_problem_balances_and_grows_like_a_logarithm():
    _, tokens = draw(10, 10 * 400, 60.0, 0.2, seed=1)
    selection = pattern_selection(tokens, "SS")
    v, p = selection_margin(tokens, selection), attention_margin(tokens, selection)
    unit = p.norm * v.margin
    # R = P W(.) solves the stationarity condition exp(-R/P) = R P Gamma^2 / (2 gamma^2).
    R = joint_radius(7.0, v.margin, p.norm)
    assert math.exp(-R / p.norm) == pytest.approx(R * p.norm * v.margin**2 / (2 * 49), rel=1e-9)
    small, large = (joint_optimum(tokens, multiple * unit, patterns=("SS",)) for multiple in (10, 100))
    for multiple, found in ((10, small), (100, large)):
        base = (multiple * p.norm) ** 2
        assert found.value > base
        assert found.value == pytest.approx(
            (multiple * unit / selection_margin(tokens, weight_on_signal(tokens, found.p)).margin) ** 2
            + found.radius**2,
            rel=1e-9,
        )
    growth = (large.radius - small.radius) / p.norm
    predicted = (joint_radius(100 * unit, v.margin, p.norm) - joint_radius(10 * unit, v.margin, p.norm)) / p.norm
    assert growth == pytest.approx(predicted, rel=0.1)


def test_errors_of_the_hard_limit():
    sample, tokens = draw(40, 40 * 300, 45.0, 0.1, seed=5)
    selection = pattern_selection(tokens, "SS")
    v, p = selection_margin(tokens, selection).weights, attention_margin(tokens, selection).weights
    limit, bound = limit_error(sample, v, p)
    assert limit <= bound + 1e-6
    assert log10_error(sample, v, 1e6 * p) == pytest.approx(limit, rel=1e-3)
    nothing = np.zeros(tokens.n)
    v, p = selection_margin(tokens, nothing).weights, attention_margin(tokens, nothing).weights
    assert 10 ** log10_error(sample, v, 10 * p) == pytest.approx(0.5, rel=1e-12)


def test_many_tokens():
    sample = SignalNoiseLaw(10, 10 * 400, 60.0, 0.3, tokens=4).draw(0)
    longest, first = (tokens_of(sample, noise_token=token) for token in ("longest", 0))
    assert ((longest.noise**2).sum(1) >= (first.noise**2).sum(1)).all()
    chosen = np.where(first.clean, 0, 1)
    query = attention_margin_of_all_tokens(sample, chosen)
    scores = sample.tokens[0].numpy() @ query.weights
    assert (scores.argmax(1) == chosen).all()
    top = np.sort(scores, axis=1)
    assert (top[:, -1] - top[:, -2]).min() == pytest.approx(1, abs=1e-9)


# --- finite d: the threshold ------------------------------------------------------------------------------------------------


def test_exact_threshold_is_where_all_hard_selections_change():
    """Noise SVMs alone against all 2^8 selections of the whole problem, just below and just above."""
    _, tokens = draw(8, 400, 15.0, 0.3, seed=5)
    clean, flipped = tokens.counts()
    assert (clean > flipped).all()
    assert (flipped > 0).all()
    for k in (0, 1):
        exact = exact_threshold(tokens, k)
        for factor, letter in ((0.9999, "X"), (1.0001, "S")):
            at, costs = tokens.with_signal_norm(exact * factor), {}
            for choice in itertools.product((0.0, 1.0), repeat=8):
                with contextlib.suppress(NotSeparable):
                    costs[choice] = selection_margin(at, np.array(choice)).norm_squared
            best = np.array(min(costs, key=costs.get))
            own = (tokens.classes == k) & tokens.clean
            assert (best[own] == (letter == "S")).all()
        assert abs(exact / predicted_thresholds(tokens)[k] - 1) > 1e-3  # the limit's is another number


def test_gain_is_the_schur_complement_and_has_the_law_of_the_theorem():
    """With positive multipliers the gain is h' Q^-1 h of the projected tokens, and |h|^2 / gain is chi-square of m - a - c + 1 freedom."""
    from scipy.stats import chi2, kstest

    n, d, values = 12, 60, []
    for run in range(150):
        _, tokens = draw(n, d, 5.0, 0.2, seed=11, run=run)
        signed = tokens.labels[:, None] * tokens.noise
        gram = signed @ signed.T
        own, flipped = tokens.classes == 0, (tokens.classes == 0) & ~tokens.clean
        J = own & tokens.clean
        if not J.any():
            continue
        A = ~own | flipped
        a, c = A.sum(), J.sum()
        alpha = np.linalg.solve(gram[np.ix_(A, A)], np.ones(a))
        h = 1 - gram[np.ix_(J, A)] @ alpha
        schur = gram[np.ix_(J, J)] - gram[np.ix_(J, A)] @ np.linalg.solve(gram[np.ix_(A, A)], gram[np.ix_(A, J)])
        interpolators = h @ np.linalg.solve(schur, h)
        values.append(chi2.cdf(h @ h / interpolators, d - 2 - a - c + 1))
        whole = np.linalg.solve(gram[np.ix_(A | J, A | J)], np.ones(a + c))
        if (alpha > 0).all() and (whole > 0).all():
            assert gain(tokens, 0, other_on_noise=True) == pytest.approx(interpolators, rel=1e-8)
    assert kstest(values, "uniform").pvalue > 1e-4


def test_expected_gain_is_the_difference_of_two_inverse_chi_squares():
    a, c, d = 13, 7, 200
    assert expected_gain(c, a, d) == pytest.approx((a + c) / (d - 3 - a - c) - a / (d - 3 - a), rel=1e-12)


def test_bounds_of_the_gain_by_simulated_variables():
    """The two sides of the theorem drawn as random variables: outside the printed bounds less often than delta."""
    c, a, d, delta = 30, 40, 2000, 0.1
    low, high = gain_bounds(c, a, d, delta)
    rng = np.random.default_rng(4)
    m, size = d - 2, 20_000
    w = a / rng.chisquare(m - a + 1, size)
    z = rng.standard_normal((size, c))
    Z, Y = z.sum(1) / math.sqrt(c), (z**2).sum(1)
    lower = np.maximum(math.sqrt(c) - np.sqrt(w) * Z, 0) ** 2 / rng.chisquare(m, size)
    upper = (c - 2 * np.sqrt(c * w) * Z + w * Y) / rng.chisquare(m - a - c + 1, size)
    assert np.mean((lower < low) | (upper > high)) < delta
    assert low < lower.mean() < upper.mean() < high
    assert high / low < 2
    assert gain_bounds(c, a, 60, delta) == (0.0, math.inf)  # too few dimensions: nothing is said
    assert noise_cost_bounds(0, d, 3.0) == (0.0, 0.0)
    assert noise_cost_bounds(5, 6, 3.0)[1] == math.inf


# --- finite norms: the optimum itself ---------------------------------------------------------------------------------------


def test_second_best_of_all_hard_selections_by_enumeration():
    for rho, seed in ((60.0, 5), (12.0, 5), (60.0, 2)):
        _, tokens = draw(8, 8 * 400, rho, 0.3, seed=seed)
        costs = pattern_costs(tokens)
        best = best_pattern(costs)
        every = []
        for choice in itertools.product((0.0, 1.0), repeat=8):
            with contextlib.suppress(NotSeparable):
                every.append(selection_margin(tokens, np.array(choice)).norm_squared)
        every.sort()
        assert every[0] == pytest.approx(costs[best], rel=1e-9)
        assert second_best_cost(tokens, best, costs) == pytest.approx(every[1], rel=1e-9)


@pytest.mark.parametrize("rho", [60.0, 14.0])
def test_dual_slack_holds_for_every_pair_and_is_nearly_sharp_at_the_optimum(rho):
    """Random queries around p_mm, their exact SVM in v: all three inequalities; the optimum reaches two thirds of the first."""
    _, tokens = draw(10, 10 * 400, rho, 0.2, seed=1)
    hard = best_hard(tokens)
    assert hard.rival < 1
    assert hard.second < 1
    assert math.isfinite(hard.divergence)
    rng, judged = np.random.default_rng(3), 0
    for _ in range(40):
        size = rng.uniform(2, 12)
        p = hard.p.weights + rng.standard_normal(tokens.noise.shape[1]) * hard.p.norm * rng.uniform(0, 0.1)
        p *= size * hard.p.norm / np.linalg.norm(p)
        v = selection_margin(tokens, weight_on_signal(tokens, p))
        delta = 1 - v.margin * hard.v.norm
        if delta >= 1 - hard.second:
            assert hard.cosine_bound(delta, size * hard.p.norm) == -1
            continue
        judged += 1
        assert hard.gap(delta) > 0
        assert hard.slack(p) <= delta / hard.gap(delta) * (1 + 1e-9)
        cosine = p @ hard.p.weights / np.linalg.norm(p) / hard.p.norm
        assert cosine >= hard.cosine_bound(delta, np.linalg.norm(p)) - 1e-12
        assert v.weights @ hard.v.weights / v.norm / hard.v.norm >= 1 - delta - 1e-12
        assert delta >= hard.gap(delta) * math.exp(-hard.divergence - size)
        own = weight_on_signal(tokens, p)
        other = np.where(hard.selection > 0.5, 1 - own, own)
        np.testing.assert_allclose(other, 1 / (1 + np.exp(hard.logits(p))), rtol=1e-9, atol=1e-12)  # 1 - a weight
    assert judged > 10
    top = constrained_optimum(tokens, 8 * hard.p.norm, patterns=(hard.pattern,), random_starts=0)
    delta = 1 - top.value * hard.v.norm
    assert 0.6 < hard.slack(top.p) * hard.gap(delta) / delta <= 1 + 1e-6


def test_a_query_that_rests_on_a_sample_without_multiplier_has_infinite_divergence():
    _, tokens = draw(10, 10 * 400, 14.0, 0.2, seed=1)
    hard = best_hard(tokens)
    assert 0 <= hard.divergence < 0.1
    multipliers = hard.v.multipliers.copy()
    multipliers[0] = 0.0
    broken = dataclasses.replace(hard, v=dataclasses.replace(hard.v, multipliers=multipliers))
    assert broken.divergence == math.inf
    assert broken.cosine_bound(1e-4, 8 * hard.p.norm) == -1


@pytest.mark.parametrize(("rho", "turn"), [(60.0, 0.02), (14.0, 0.02), (60.0, 0.0)])
def test_error_bounds_near_the_hard_solution(rho, turn):
    """Turned by hand, not by a search: the exact error stays on its side of the bound, and the bound is not empty."""
    sample, tokens = draw(20, 20 * 400, rho, 0.1, seed=2)
    hard = best_hard(tokens)
    rng = np.random.default_rng(0)
    on_signals = sample.signals[0].numpy() @ hard.p.weights
    away = rng.standard_normal(len(hard.p.weights))
    p = hard.p.weights / hard.p.norm + turn * away / np.linalg.norm(away)
    p *= 12 * hard.p.norm / np.linalg.norm(p)
    cosine = p @ hard.p.weights / np.linalg.norm(p) / hard.p.norm
    if rho == 60.0:
        unit = hard.v.weights / hard.v.norm
        bound = log10_error_near_signal(hard, on_signals, cosine, hard.v.margin)
        assert log10_error(sample, unit, p) <= bound < -3
        assert log10_error_near_signal(hard, on_signals, 0.5, hard.v.margin) == 0
    else:
        v = hard.v.weights / hard.v.norm + 1e-6 * sample.signals[0].numpy().sum(0)
        v /= np.linalg.norm(v)
        both = cosine, float(v @ hard.v.weights / hard.v.norm)
        bound = error_near_noise(hard, on_signals, both, 12 * hard.p.norm)
        assert 0.2 < bound <= 10 ** log10_error(sample, v, p)
        assert error_near_noise(hard, on_signals, (0.0, 0.0), 12 * hard.p.norm) == 0


@pytest.mark.parametrize(("rho", "seed"), [(60.0, 1), (14.0, 1), (60.0, 4)])
def test_value_and_turn_of_the_optimum_to_second_order(rho, seed):
    """delta e^{R/P} tends to e^{-K}, and R^2 (1 - cos) stays bounded: the search against the expansion, at growing R."""
    _, tokens = draw(10, 10 * 400, rho, 0.2, seed=seed)
    hard = best_hard(tokens)
    assert (hard.p.multipliers > 0).all()
    found = []
    for size in (4.0, 8.0, 12.0):
        top = constrained_optimum(tokens, size * hard.p.norm, patterns=(hard.pattern,), random_starts=0)
        log_delta = math.log(1 - top.value * hard.v.norm)
        turn = 1 - top.p @ hard.p.weights / np.linalg.norm(top.p) / hard.p.norm
        found.append((log_delta + size + hard.level, turn * size**2))
    errors, turns = np.abs(np.array(found)).T
    assert errors[1] < 0.02
    assert errors[2] < 0.02
    assert errors[1] < errors[0]
    assert turns.max() < 3 * turns.min()
    assert abs(hard.level) > 2 * errors[1] or hard.pattern == "XX"


# --- refusals -----------------------------------------------------------------------------------------------------------------

SAMPLE, TOKENS = draw()
FEW = np.random.default_rng(0).standard_normal((30, 3))  # few of the samples are support vectors
MANY = SignalNoiseLaw(10, 10 * 400, 60.0, 0.3, tokens=4).draw(0)
NEAR = predicted_thresholds(TOKENS)[0]


def blind():
    """The head that selects noise everywhere: its value has no sign on the signals."""
    nothing = np.zeros(TOKENS.n)
    return selection_margin(TOKENS, nothing).weights, attention_margin(TOKENS, nothing).weights


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
        (lambda: hard_margin(np.zeros((2, 3)), np.ones(2)), NotSeparable, "zero"),
        (lambda: selection_margin(TOKENS, np.ones(TOKENS.n)), NotSeparable, "contradict"),
        (lambda: best_pattern({"SS": math.inf}), NotSeparable, "no class-level pattern"),
        (lambda: hard_margin(FEW, np.sign(FEW[:, 0]), max_iterations=1), NotConverged, "MaxIterations"),
        (lambda: hard_margin(TOKENS.noise, TOKENS.labels, tolerance=1e-30), NotConverged, "KKT"),
        (lambda: constrained_optimum(TOKENS, 0.1, max_iterations=1), NotConverged, "must converge from one start"),
        (lambda: hard_margin(np.ones((2, 2)), np.ones(3)), ValueError, "rows must be"),
        (lambda: hard_margin(np.ones(2), np.ones(2)), ValueError, "rows must be"),
        (lambda: hard_margin(np.ones((0, 2)), np.ones(0)), ValueError, "rows must be"),
        (lambda: hard_margin(np.ones((2, 2)), np.array([1.0, 0.5])), ValueError, "labels must be"),
        (lambda: hard_margin(np.array([[np.nan, 1.0]]), np.ones(1)), ValueError, "rows finite"),
        (lambda: measured_threshold(TOKENS, 2), ValueError, "k must be 0 or 1"),
        (lambda: exact_threshold(TOKENS, 2), ValueError, "k must be 0 or 1"),
        (lambda: selection_margin(TOKENS, np.full(24, 1.5)), ValueError, "selection must be 24 weights"),
        (lambda: selection_margin(TOKENS, np.zeros(3)), ValueError, "selection must be 24 weights"),
        (lambda: pattern_selection(TOKENS, "AB"), ValueError, "pattern must be one of"),
        (lambda: tokens_of(SAMPLE, 1), ValueError, "run must be below 1"),
        (lambda: tokens_of(SAMPLE, noise_token=1), ValueError, "noise_token must be below 1"),
        (lambda: attention_margin(TOKENS, np.full(24, 0.5)), ValueError, "must be hard"),
        (lambda: limit_error(SAMPLE, *blind()), ValueError, "right sign"),
        (lambda: attention_margin_of_all_tokens(MANY, np.full(10, 4)), ValueError, "10 token indices below 4"),
        (lambda: constrained_optimum(TOKENS, 0.0), ValueError, "radius must be a finite number > 0"),
        (lambda: constrained_optimum(TOKENS, math.nan), ValueError, "radius must be a finite number > 0"),
        (lambda: joint_optimum(TOKENS, -1.0), ValueError, "margin must be a finite number > 0"),
        (lambda: joint_optimum(TOKENS, True), ValueError, "margin must be a finite number > 0"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_without_label_noise_claims_about_flips_say_so():
    law = SignalNoiseLaw(24, 9600, 50.0, 0.0)
    exact, fresh = margin_study(law, draws=2), fresh_study(law, draws=2, few_samples=8, few_draws=1)
    for id, study in (("M8", exact), ("M21", fresh)):
        result = CLAIMS[id].check(study)
        assert result.verdict == Verdict.OUTSIDE, id
        assert result.violated == "needs label noise; here eta = 0"
    assert CLAIMS["M1"].check(exact).verdict == Verdict.HOLDS
    assert torch.isnan(exact["mixing_noisy"]).all()


SMALL = SignalNoiseLaw(10, 500, 5.0)


test_bad_input = refusing(
    (margin_study, (SMALL,), {"law": "paper", "draws": 1}),
    (optimum_study, (SMALL,), {"radius": 0.0, "search_samples": 5, "search_draws": 0}),
    (fresh_study, (SMALL,), {"draws": 1, "few_samples": 5, "few_draws": 0}),
    (lambda: optimum_study(replace(SMALL, tokens=3)), "law must be a SignalNoiseLaw with two tokens"),
    (lambda: fresh_study(replace(SMALL, d=15)), "d must be at least 2 n"),
)
