"""Page I.4: mixed samples, thresholds at finite d and the optimum at finite norms, against enumeration, simulation and formulas."""

import contextlib
import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch

from attnbook.single_head.finite_threshold import exact_threshold, expected_gain, gain, gain_bounds
from attnbook.single_head.margin import (
    attention_margin,
    best_pattern,
    log10_error,
    noise_cost_bounds,
    pattern_costs,
    pattern_selection,
    predicted_thresholds,
    selection_margin,
)
from attnbook.single_head.max_margin.claims import CLAIMS
from attnbook.single_head.max_margin.optimum import (
    best_hard,
    constrained_optimum,
    directional_margin,
    error_near_noise,
    joint_optimum,
    joint_radius,
    log10_error_near_signal,
    second_best_cost,
    weight_on_signal,
)
from attnbook.single_head.max_margin.study import margin_study, mixing_extra, predicted_mixing
from attnbook.single_head.svm import NotConverged, NotSeparable
from attnlib.single_head.law import SignalNoiseLaw
from bookkit.claims import Verdict
from tests.single_head.test_margin import draw


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


# --- the threshold at finite d -----------------------------------------------------------------------------------------------


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


# --- the optimum at finite norms ---------------------------------------------------------------------------------------------


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


def test_a_search_that_no_start_ends_is_refused():
    with pytest.raises(NotConverged, match="must converge from one start"):
        constrained_optimum(draw()[1], 0.1, max_iterations=1)


def test_without_label_noise_claims_about_flips_say_so():
    study = margin_study(SignalNoiseLaw(24, 9600, 50.0, 0.0), draws=2)
    result = CLAIMS["M8"].check(study)
    assert (result.verdict, result.violated) == (Verdict.OUTSIDE, "needs label noise; here eta = 0")
    assert CLAIMS["M1"].check(study).verdict == Verdict.HOLDS
    assert torch.isnan(study.mixing_noisy).all()
