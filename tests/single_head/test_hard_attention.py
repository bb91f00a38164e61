"""Page I.12: the query in closed form, the error of hard attention, four tokens."""

import math

import numpy as np
import pytest

from attnbook.single_head.hard_attention.claims import CLAIMS
from attnbook.single_head.hard_attention.study import (
    attention_margin_of_all_tokens,
    closed_form,
    fresh_study,
    limit_error,
)
from attnbook.single_head.margin import (
    attention_margin,
    log10_error,
    pattern_selection,
    selection_margin,
    tokens_of,
)
from attnbook.single_head.max_margin.optimum import directional_margin
from attnlib.single_head.law import SignalNoiseLaw
from bookkit.claims import Verdict
from tests.single_head.test_margin import draw


def test_query_closed_form_and_candidate_margin():
    sample, tokens = draw(40, 40 * 3000, 100.0, 0.15, seed=2)
    selection = pattern_selection(tokens, "SS")
    v, p = selection_margin(tokens, selection), attention_margin(tokens, selection)
    on_signals, norm_squared = closed_form(tokens, selection)
    assert p.norm_squared == pytest.approx(norm_squared, rel=0.03)
    np.testing.assert_allclose(sample.signals[0].numpy() @ p.weights, on_signals, rtol=0.03)
    np.testing.assert_allclose(tokens.noise @ p.weights, on_signals[tokens.classes] - (2 * selection - 1), atol=0.03)
    gaps = (2 * selection - 1) * ((tokens.signal - tokens.noise) @ p.weights)
    assert gaps.min() == pytest.approx(1, abs=1e-9)
    for ratio in (0.5, 1.0, 3.0):
        margin = directional_margin(tokens, v.weights, ratio * p.weights)
        assert margin * v.norm == pytest.approx(math.tanh(ratio / 2), rel=1e-9)


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


def test_without_label_noise_the_claim_about_flips_says_so():
    study = fresh_study(SignalNoiseLaw(24, 9600, 50.0, 0.0), draws=2, few_samples=8, few_draws=1)
    result = CLAIMS["M21"].check(study)
    assert (result.verdict, result.violated) == (Verdict.OUTSIDE, "needs label noise; here eta = 0")
