"""The largest margin of many heads: exact SVMs of dense vectors, full enumerations, closed forms, the game behind them."""

import itertools
import math

import numpy as np
import pytest

from attnbook.open_questions.margin_and_descent.gram import (
    SelectionGram,
    head_norms,
    minimum_norms,
    multipliers,
    one_class,
    selection_gram,
)
from attnbook.open_questions.margin_and_descent.joint_norm import attention_norm, joint_cost, joint_value
from attnbook.open_questions.margin_and_descent.margin import (
    best_of,
    best_of_all,
    best_split,
    class_cost,
    division_threshold,
    every_selection,
    limit_cost,
    saddle_excess,
    soft_ascent,
)
from attnbook.open_questions.margin_and_descent.study import margin_study
from attnbook.single_head.margin import tokens_of
from attnbook.single_head.svm import NotSeparable, hard_margin
from attnbook.single_head.variants import StressedLaw
from attnlib.single_head.law import SignalNoiseLaw
from tests.bad_input import refusing


def training_set(n=12, d=900, norm=30.0, noise=0.25, seed=3):
    return tokens_of(SignalNoiseLaw(n, d, norm, noise).draw(seed), 0)


def stacked(tokens, selections):
    """(n, H m): the vectors a sample gives to all heads, side by side."""
    return np.concatenate([tokens.mixed(s) for s in selections], axis=1)


def direct(tokens, selections):
    try:
        return hard_margin(stacked(tokens, selections), tokens.labels).norm_squared
    except NotSeparable:
        return math.inf


# --- exact norms -----------------------------------------------------------------------------------------------------------


def test_gram_of_selections_is_that_of_stacked_vectors():
    tokens, rng = training_set(), np.random.default_rng(0)
    gram, soft = selection_gram(tokens), rng.random((4, 3, tokens.n))
    for selections, kernel in zip(soft, gram.of(soft), strict=True):
        signed = tokens.labels[:, None] * stacked(tokens, selections)
        np.testing.assert_allclose(kernel, signed @ signed.T, rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize(("n", "norm", "noise"), [(12, 30.0, 0.25), (5, 60.0, 0.4), (5, 12.0, 0.2)])
def test_minimum_norms_are_exact_svms_of_dense_vectors(n, norm, noise):
    """Random hard selections of three heads, equal rows, contradictions and slack constraints among them."""
    tokens, rng = training_set(n, 900, norm, noise, seed=1), np.random.default_rng(n)
    gram = selection_gram(tokens)
    sets = (rng.random((60, 3, n)) < rng.random((60, 1, 1))).astype(float)
    sets[0], sets[1], sets[2, :, tokens.clean] = 1.0, 0.0, 1.0
    found = head_norms(gram, sets)
    wanted = np.array([direct(tokens, s) for s in sets])
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
    assert np.isinf(found).any() == (not tokens.clean.all())
    alpha = multipliers(gram.of(sets))
    finite = np.isfinite(found)
    margins = (gram.of(sets)[finite] @ alpha[finite][:, :, None])[:, :, 0]
    assert (alpha >= 0).all()
    assert margins.min() > 1 - 1e-7
    np.testing.assert_allclose(alpha[finite] * (margins - 1), 0, atol=1e-8 * alpha[finite].max())


def test_best_of_all_is_brute_force():
    tokens = training_set(4, 300, 25.0, 0.3, seed=5)
    every = every_selection(4)
    for norm in (10.0, 30.0, 80.0):
        at = tokens.with_signal_norm(norm)
        brute = min(direct(at, pair) for pair in itertools.product(every, repeat=2))
        found = best_of_all(selection_gram(at), 2)
        assert found.norm_squared == pytest.approx(brute, rel=1e-9)
        assert direct(at, found.selections) == pytest.approx(brute, rel=1e-9)
        assert found.equal == pytest.approx(min(direct(at, (s,)) for s in every) / 2, rel=1e-9)


# --- closed forms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clean", "flipped", "heads"), [(3, 1, 2), (3, 2, 2), (2, 1, 3), (3, 0, 3)])
def test_formula_is_the_best_of_all_selections_with_orthogonal_noise(clean, flipped, heads):
    """Both thresholds lie inside the grid; every one of the 2^(nH) selections is tried."""
    d, seen = 600, set()
    for x in np.geomspace(0.3, 60, 14):
        norm = math.sqrt(x * d / clean)
        found = best_of_all(one_class(clean, flipped, d, norm, orthogonal=True), heads)
        split = best_split(clean, flipped, norm, d, heads)
        assert found.norm_squared == pytest.approx(class_cost(clean, flipped, norm, d, heads, *split), rel=1e-9)
        assert found.splits == (min(split) > 0)
        if flipped:
            assert found.splits == (x > division_threshold(flipped / clean, heads))
        seen.add(split)
    assert {(0, 0), (heads, 0)} <= seen
    assert (len(seen) > 2) == (flipped > 0)


@pytest.mark.parametrize(
    ("x", "u"), [(0.7, 0.2), (3.0, 0.5), (3.0, 1.5), (8.0, 1.55), (8.0, 2.0), (40.0, 10.0), (5.0, 5.0)]
)
def test_limit_cost_is_the_value_of_the_game(x, u):
    """The opponent's side of the game, by its four corners; and very many heads."""
    w, m = np.poly1d([1, 0]), np.poly1d([-1, 1])  # mass w on clean, 1 - w on flipped samples
    corners = [w**2 / x + m**2 / u, w**2 + m**2 / u, m**2 + w**2 / x, (w - m) ** 2]
    # The worst of convex corners is least where one of them is, or where two are equal.
    curves = [*(a.deriv() for a in corners), *(a - b for a, b in itertools.combinations(corners, 2))]
    places = [root.real for curve in curves for root in curve.roots if not root.imag and 0 <= root.real <= 1]
    value = min(max(corner(place) for corner in corners) for place in places)
    assert limit_cost(x, u) == pytest.approx(1 / value, rel=1e-12)
    heads = 400
    many = min(class_cost(x, u, 1.0, 1.0, heads, heads - k, k) for k in range(heads + 1))
    many = min(many, class_cost(x, u, 1.0, 1.0, heads, 0))
    assert heads * many == pytest.approx(limit_cost(x, u), rel=1e-4)
    assert heads * many >= limit_cost(x, u) * (1 - 1e-12)


# --- the game --------------------------------------------------------------------------------------------------------------


def test_a_saddle_point_certifies_every_number_of_heads():
    for norm in (12.0, 25.0, 38.0):
        gram = one_class(4, 1, 1200, norm, seed=4)
        one = best_of_all(gram, 1)
        assert saddle_excess(gram, one.one) == pytest.approx(0, abs=1e-12)
        for heads in (2, 3):
            assert best_of_all(gram, heads).norm_squared == pytest.approx(one.norm_squared / heads, rel=1e-9)
        other = 1 - one.one
        other[4] = 0
        assert saddle_excess(gram, other) > 0.01  # not the best selection: no certificate


# --- a norm on both vectors ------------------------------------------------------------------------------------------------


def test_joint_value_and_its_gradient_are_those_of_explicit_vectors():
    tokens, rng = training_set(5, 400, 25.0, 0.4, seed=8), np.random.default_rng(2)
    gram, difference = selection_gram(tokens), tokens.signal - tokens.noise
    inverse = np.linalg.inv(difference @ difference.T)
    logits = 0.5 * rng.standard_normal((2, 5))
    p = logits @ inverse @ difference  # the shortest vectors with these logits
    soft = 1 / (1 + np.exp(-(p @ difference.T)))
    wanted = 9 * direct(tokens, soft) + (p**2).sum()
    value, slope = joint_value(gram, inverse, 3.0, logits)
    assert value == pytest.approx(wanted, rel=1e-9)
    h = 1e-5
    for index in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[index] = h
        numeric = (
            joint_value(gram, inverse, 3.0, logits + step)[0] - joint_value(gram, inverse, 3.0, logits - step)[0]
        ) / (2 * h)
        assert slope[index] == pytest.approx(numeric, abs=1e-8 * np.abs(slope).max())
    single = attention_norm(gram, tokens.labels, soft[0] > 0.5)
    assert single == pytest.approx(hard_margin(difference, 2.0 * (soft[0] > 0.5) - 1).norm, rel=1e-9)


# --- claims and refusals ---------------------------------------------------------------------------------------------------


GRAM = one_class(3, 1, 50, 4.0)


def law_without_projection():
    return tokens_of(StressedLaw(6, 40, 5.0, noise_avoids_signals=False).draw(0), 0)


test_bad_arguments = refusing(
    (GRAM.of, (), {"selections": [np.ones(4), np.ones((2, 3))]}),
    (lambda: GRAM.of(np.zeros((0, 4))), "one head or more"),
    (lambda: GRAM.of(np.full((1, 4), 1.5)), "weights in"),
    (lambda: GRAM.with_signal_scaled(0), "factor must be"),
    (lambda: minimum_norms(np.ones((2, 2))), "grams must be"),
    (lambda: every_selection(13), "n must be at most 12"),
    (lambda: best_of_all(GRAM, 0), "heads must be"),
    (one_class, (3, 1, 50, 1.0), {"clean": 0, "d": 5}),
    (lambda: class_cost(3, 1, 1.0, 9, 2, 2, 1), "at most heads = 2"),
    (lambda: class_cost(3, 1, 1.0, 9, 0, 0), "heads must be"),
    (lambda: limit_cost(1.0, 2.0), "u must be"),
    (lambda: division_threshold(0.2, 1), "one head cannot divide"),
    (lambda: division_threshold(1.2), "flipped_share must be"),
    (lambda: soft_ascent(GRAM, np.ones((1, 1, 4)), steps=0), "steps must be"),
    (lambda: best_of(GRAM, np.ones((1, 4)), 2), "not separable"),
    (joint_cost, (GRAM, np.ones(4), 1, 1.0, np.ones(4)), {"labels": np.ones(3), "heads": 0, "margin": -1.0}),
    (lambda: selection_gram(law_without_projection()), "orthogonal to the signals"),
    (lambda: margin_study(draws=1), "draws must be"),
)


def test_a_gram_without_separation_has_infinite_norm():
    same = SelectionGram(np.array([[4.0, -4.0], [-4.0, 4.0]]), np.eye(2))
    assert head_norms(same, np.ones((1, 1, 2)))[0] == math.inf
    assert head_norms(same, np.zeros((1, 1, 2)))[0] == pytest.approx(2.0)
