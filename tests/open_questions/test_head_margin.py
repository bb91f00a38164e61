"""The largest margin of many heads: exact SVMs of dense vectors, full enumerations, closed forms, the game behind them."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

from attnbook.open_questions.many_heads.claims_margin import head_study
from attnbook.open_questions.many_heads.gram import (
    SelectionGram,
    head_norms,
    minimum_norms,
    multipliers,
    one_class,
    selection_gram,
)
from attnbook.open_questions.many_heads.joint_norm import attention_norm, joint_cost, joint_value
from attnbook.open_questions.many_heads.margin import (
    best_of,
    best_of_all,
    best_of_patterns,
    best_split,
    class_cost,
    division_threshold,
    every_selection,
    limit_cost,
    norm_gradient,
    saddle_excess,
    soft_ascent,
    tie_norm,
)
from attnbook.single_head.margin import pattern_costs, tokens_of
from attnbook.single_head.svm import NotSeparable, hard_margin
from attnbook.single_head.variants import StressedLaw
from attnlib.single_head.law import SignalNoiseLaw

GOLDEN = (1 + math.sqrt(5)) / 2


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
    assert (alpha[finite] * np.abs(margins - 1)).max() < 1e-8 * alpha[finite].max()


def test_slack_constraints_occur_and_are_found():
    """At high SNR some constraint is inactive: the one-solve shortcut alone would be wrong."""
    gram = one_class(4, 1, 1200, 120.0)
    every = every_selection(5)
    sets = every[np.array(list(itertools.combinations_with_replacement(range(32), 2)))]
    kernels = gram.of(sets)
    norms = minimum_norms(kernels)
    alpha = multipliers(kernels)
    slack = np.isfinite(norms) & (
        (kernels @ np.where(np.isfinite(alpha), alpha, 0)[:, :, None])[:, :, 0] > 1 + 1e-6
    ).any(1)
    assert slack.sum() > 20
    for k in np.flatnonzero(slack)[::7]:
        values, vectors = np.linalg.eigh(kernels[k])
        again = hard_margin(vectors * np.sqrt(values.clip(0)), np.ones(5)).norm_squared
        assert norms[k] == pytest.approx(again, rel=1e-8)


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


def test_class_patterns_are_a_subset_of_all_selections():
    tokens = training_set(6, 500, 30.0, 0.3, seed=2)
    patterns, everything = best_of_patterns(tokens, 2), best_of_all(selection_gram(tokens), 2)
    assert everything.norm_squared <= patterns.norm_squared * (1 + 1e-12)
    assert patterns.norm_squared == pytest.approx(direct(tokens, patterns.selections), rel=1e-9)
    assert patterns.equal == pytest.approx(direct(tokens, (patterns.one,)) / 2, rel=1e-9)
    assert 2 * patterns.equal == pytest.approx(min(pattern_costs(tokens).values()), rel=1e-9)


# --- closed forms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [9.0, 14.0, 40.0])
def test_cost_of_every_split_with_orthogonal_noise(norm):
    clean, flipped, d, heads = 5, 3, 700, 3
    gram = one_class(clean, flipped, d, norm, orthogonal=True)
    for j in range(heads + 1):
        for k in range(heads + 1 - j):
            selections = np.zeros((1, heads, clean + flipped))
            selections[0, :j, :clean] = 1
            selections[0, heads - k :, clean:] = 1
            exact = head_norms(gram, selections)[0]
            assert class_cost(clean, flipped, norm, d, heads, j, k) == pytest.approx(exact, rel=1e-10)
            if 0 < j:  # another count of heads is another number
                assert class_cost(clean, flipped, norm, d, heads, j - 1, k) != pytest.approx(exact, rel=1e-3)


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


def test_every_split_ties_at_the_threshold_and_the_optimum_jumps():
    clean, flipped, d, heads = 4, 1, 800, 3
    norm = math.sqrt(d / clean)
    gram = one_class(clean, flipped, d, norm, orthogonal=True)
    selections = np.zeros((heads + 1, heads, clean + flipped))
    for j in range(heads + 1):
        selections[j, :j, :clean] = 1
    norms = head_norms(gram, selections)
    np.testing.assert_allclose(norms, norms[0], rtol=1e-12)
    assert best_split(clean, flipped, norm * 0.999, d, heads) == (0, 0)
    assert best_split(clean, flipped, norm * 1.001, d, heads) == (heads, 0)
    for factor in (0.9, 1.1):
        moved = head_norms(gram.with_signal_scaled(factor), selections)
        assert (moved[1:-1] > min(moved[0], moved[-1]) * 1.01).all()
    assert tie_norm(gram, clean) == pytest.approx(1.0, rel=1e-12)
    for d in range(300, 330):  # a tie goes to the heads that agree, whichever way rounding falls
        tied = best_of_all(one_class(3, 1, d, math.sqrt(d / 3), orthogonal=True), 2).selections
        assert (tied[0] == tied[1]).all()


def test_division_thresholds_at_large_x():
    for heads, u in ((2, 1 + math.sqrt(2)), (3, 2.0), (5, (5 + math.sqrt(89)) / 8), (None, GOLDEN)):
        assert 1e-6 * division_threshold(1e-6, heads) == pytest.approx(u, rel=1e-5)
    thresholds = [division_threshold(0.25, heads) for heads in (2, 3, 10, 1000)]
    assert thresholds == sorted(thresholds, reverse=True)
    assert division_threshold(0.25) == pytest.approx(thresholds[-1], rel=2e-3)
    assert division_threshold(0.0, 2) == math.inf
    assert division_threshold(1.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("x", "u"), [(0.7, 0.2), (3.0, 0.5), (3.0, 1.5), (8.0, 1.55), (8.0, 2.0), (40.0, 10.0), (5.0, 5.0)]
)
def test_limit_cost_is_the_value_of_the_game(x, u):
    """The opponent's side of the game, minimised numerically; and very many heads."""

    def worst(share):  # mass w on clean, 1 - w on flipped samples, against the four corners
        w, m = share, 1 - share
        return max(w * w / x + m * m / u, w * w + m * m / u, m * m + w * w / x, (w - m) ** 2)

    value = minimize_scalar(worst, bounds=(0, 1), method="bounded", options={"xatol": 1e-11}).fun  # convex, with a kink
    assert limit_cost(x, u) == pytest.approx(1 / value, rel=1e-8)
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


def test_without_a_saddle_point_the_bound_still_holds_and_heads_gain():
    gram = one_class(4, 1, 1200, 80.0, seed=4)
    one = best_of_all(gram, 1)
    excess = saddle_excess(gram, one.one)
    assert excess > 1
    for heads in (2, 3):
        best = best_of_all(gram, heads)
        assert best.splits
        assert one.norm_squared / (heads * (1 + excess)) <= best.norm_squared < 0.95 * one.norm_squared / heads


def test_gaussian_noise_breaks_the_tie_in_favour_of_a_split():
    gram = one_class(5, 2, 300, 8.0, seed=1)
    at = gram.with_signal_scaled(tie_norm(gram, 5))
    on_signal = np.r_[np.ones(5), np.zeros(2)]
    pure = head_norms(at, np.stack([on_signal, np.zeros(7)])[:, None])
    assert pure[0] == pytest.approx(pure[1], rel=1e-10)
    split = best_of(at, np.stack([on_signal, np.zeros(7)]), 2)
    assert split.splits
    assert 1e-6 < 1 - split.norm_squared / split.equal < 0.05


@pytest.mark.parametrize("power", [1.0, 4.0])
def test_other_norms_of_the_heads_agree(power):
    """Norm (sum_h |v_h|^power)^(1/power), by its dual, min over the simplex: the same selection on both sides of x = 1."""
    d, clean = 500, 2
    dual = math.inf if power == 1 else power / (power - 1)

    def margin(gram, selections):
        kernels = [gram.of(s[None]) for s in selections]

        def value(alpha):
            roots = np.array([math.sqrt(max(alpha @ k @ alpha, 0)) for k in kernels])
            return np.linalg.norm(roots, dual)

        simplex = {"type": "eq", "fun": lambda a: a.sum() - 1}
        ends = [
            minimize(
                value, start, bounds=[(0, 1)] * gram.n, constraints=[simplex], method="SLSQP", options={"ftol": 1e-12}
            ).fun
            for start in (np.full(gram.n, 1 / gram.n), np.array([0.25, 0.25, 0.5]))
        ]
        return min(ends)

    for x, wanted in ((0.6, 0.0), (1.8, 1.0)):
        gram = one_class(clean, 1, d, math.sqrt(x * d / clean), orthogonal=True)
        pairs = [np.array(p) for p in itertools.combinations_with_replacement(every_selection(3), 2)]
        margins = [margin(gram, pair) for pair in pairs]
        best = pairs[int(np.argmax(margins))]
        agreed = np.array([[wanted, wanted, 0.0]] * 2)
        at = next(i for i, pair in enumerate(pairs) if (pair == agreed).all())
        assert max(margins) == pytest.approx(margins[at], rel=1e-5), best


# --- soft selections -------------------------------------------------------------------------------------------------------


def test_gradient_of_the_norm_against_central_differences():
    gram, rng = one_class(4, 1, 1200, 22.0, seed=2), np.random.default_rng(1)
    s = rng.uniform(0.2, 0.8, (1, 3, 5))
    slope, h = norm_gradient(gram, s), 1e-5
    numeric = np.zeros_like(s)
    for index in np.ndindex(s.shape):
        up, down = s.copy(), s.copy()
        up[index] += h
        down[index] -= h
        numeric[index] = (head_norms(gram, up)[0] - head_norms(gram, down)[0]) / (2 * h)
    assert np.abs(slope - numeric).max() < 1e-8 * np.abs(slope).max()
    assert np.abs(slope / 2 - numeric).max() > 0.1 * np.abs(slope).max()


def test_soft_search_rises_to_the_hard_optimum_and_never_beyond():
    gram = one_class(4, 1, 1200, 25.0, seed=6)
    start = np.random.default_rng(0).random((25, 2, 5))
    end, norms = soft_ascent(gram, start)
    hard = best_of_all(gram, 2).norm_squared
    assert (norms <= head_norms(gram, start)).all()
    assert (norms >= hard * (1 - 1e-12)).all()
    assert norms.min() < 1.02 * hard
    assert ((end >= 0) & (end <= 1)).all()


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


def test_equal_heads_cost_h_times_one_head_at_margin_over_h():
    gram, labels = one_class(4, 1, 1200, 25.0, seed=3), np.r_[np.ones(4), -1.0]
    one = best_of_all(gram, 1)
    unit = attention_norm(gram, labels, one.one) / math.sqrt(one.equal)
    for heads in (2, 3):
        many, norms = joint_cost(gram, labels, heads, 4 * unit, one.one)
        single, _ = joint_cost(gram, labels, 1, 4 * unit / heads, one.one)
        assert many <= heads * single * (1 + 1e-4)
        assert many >= 0.99 * heads * single
        assert norms.min() > 0.5 * norms.max()
    # The average of the tokens alone shows that the cost vanishes like 1/H.
    assert many <= (4 * unit) ** 2 * head_norms(gram, np.full((1, 3, 5), 0.5))[0]


# --- claims and refusals ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study():
    return head_study(draws=6, seed=2)


GRAM = one_class(3, 1, 50, 4.0)


def law_without_projection():
    return tokens_of(StressedLaw(6, 40, 5.0, noise_avoids_signals=False).draw(0), 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GRAM.of(np.ones(4)), "selections must be"),
        (lambda: GRAM.of(np.ones((2, 3))), "selections must be"),
        (lambda: GRAM.of(np.zeros((0, 4))), "one head or more"),
        (lambda: GRAM.of(np.full((1, 4), 1.5)), "weights in"),
        (lambda: GRAM.with_signal_scaled(0), "factor must be"),
        (lambda: minimum_norms(np.ones((2, 2))), "grams must be"),
        (lambda: every_selection(13), "n must be at most 12"),
        (lambda: best_of_all(GRAM, 0), "heads must be"),
        (lambda: one_class(0, 1, 50, 1.0), "clean must be"),
        (lambda: one_class(3, 1, 5, 1.0), "d must be"),
        (lambda: class_cost(3, 1, 1.0, 9, 2, 2, 1), "at most heads = 2"),
        (lambda: class_cost(3, 1, 1.0, 9, 0, 0), "heads must be"),
        (lambda: limit_cost(1.0, 2.0), "u must be"),
        (lambda: division_threshold(0.2, 1), "one head cannot divide"),
        (lambda: division_threshold(1.2), "flipped_share must be"),
        (lambda: soft_ascent(GRAM, np.ones((1, 1, 4)), steps=0), "steps must be"),
        (lambda: best_of(GRAM, np.ones((1, 4)), 2), "not separable"),
        (lambda: joint_cost(GRAM, np.ones(3), 1, 1.0, np.ones(4)), "labels must be"),
        (lambda: joint_cost(GRAM, np.ones(4), 0, 1.0, np.ones(4)), "heads must be"),
        (lambda: joint_cost(GRAM, np.ones(4), 1, -1.0, np.ones(4)), "margin must be"),
        (lambda: selection_gram(law_without_projection()), "orthogonal to the signals"),
        (lambda: head_study(draws=1), "draws must be"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_gram_without_separation_has_infinite_norm():
    same = SelectionGram(np.array([[4.0, -4.0], [-4.0, 4.0]]), np.eye(2))
    assert head_norms(same, np.ones((1, 1, 2)))[0] == math.inf
    assert head_norms(same, np.zeros((1, 1, 2)))[0] == pytest.approx(2.0)


@pytest.mark.weekly
def test_studies_are_the_same_number_by_number(study):
    again = SimpleNamespace(margin=study.margin)
    from attnbook.open_questions.many_heads.margin_study import LOW_NORMS, _enumerations

    np.testing.assert_array_equal(_enumerations(LOW_NORMS, 2, 3, 2), again.margin.low[2][:3])
