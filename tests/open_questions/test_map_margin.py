"""Maximum margin with unnormalised weights: exact SVMs, enumeration, and a linear programme for unbounded weights."""

import numpy as np
import pytest
from scipy.optimize import linprog

from attnbook.open_questions.attention_maps.margin import (
    SELECTIONS,
    best_of_all,
    product_costs,
    selected,
    unnormalised_cost,
    unnormalised_svm,
)
from attnbook.single_head.long_run import orthogonal_sample
from attnbook.single_head.margin import tokens_of
from attnbook.single_head.svm import NotSeparable
from attnlib.single_head.law import SignalNoiseLaw


def orthogonal(n=16, d=600, norm=9.0, eta=0.2, seed=3):
    return tokens_of(orthogonal_sample(SignalNoiseLaw(n, d, norm, eta), seed), 0)


@pytest.mark.parametrize("norm", [1.5, 7.0, 40.0])
@pytest.mark.parametrize("kind", SELECTIONS)
def test_costs_are_exact_for_orthogonal_noise(kind, norm):
    tokens = orthogonal(norm=norm)
    clean, flipped = tokens.counts()
    assert (flipped > 0).all()
    assert (clean > flipped).all()
    assert unnormalised_svm(tokens, kind) == pytest.approx(unnormalised_cost(tokens, kind), rel=1e-9)


def test_free_weights_are_the_best_of_all_selections():
    """3^6 exact SVMs on real noise, far below and above the normalised threshold: clean samples take both, flipped their noise."""
    drawn = SignalNoiseLaw(6, 1200, 1.0, 0.2).draw(2, 1)
    tokens = tokens_of(drawn, 0)
    assert 0 < (~tokens.clean).sum() < 3
    for norm in (4.0, 40.0):
        at = tokens.with_signal_norm(norm)
        cost, weights = best_of_all(at)
        assert (weights == np.stack([tokens.clean, np.ones(6)], 1)).all()
        assert cost == pytest.approx(unnormalised_svm(at, "free"), rel=1e-9)
        assert cost < unnormalised_svm(at, "shared") < unnormalised_svm(at, "noise")


def test_selected_vectors():
    tokens = orthogonal()
    both = selected(tokens, "shared")
    np.testing.assert_allclose(both, tokens.signal + tokens.noise)
    np.testing.assert_allclose(selected(tokens, "free")[tokens.clean], both[tokens.clean])
    np.testing.assert_allclose(selected(tokens, "free")[~tokens.clean], tokens.noise[~tokens.clean])
    np.testing.assert_allclose(selected(tokens, "noise"), tokens.noise)


@pytest.mark.parametrize("norm", [4.0, 8.0, 10.5, 13.0, 30.0])
def test_unbounded_weights_are_a_linear_programme(norm):
    """min sum |m| / |x|^2 subject to margins >= 1, one class at a time: the signal is used iff rho^2 (|C| - |N|) > d."""
    tokens = orthogonal(norm=norm)
    for k, (with_signal, without) in enumerate(product_costs(tokens)):
        clean, flipped = (int(part[k]) for part in tokens.counts())
        count = clean + flipped
        price = np.concatenate([[1 / norm**2], np.full(count, 1 / 600)])
        sign = np.concatenate([np.ones(clean), -np.ones(flipped)])
        margins = np.column_stack([sign, np.eye(count)])
        # Variables: positive and negative parts of the signal's and of every noise token's product.
        found = linprog(np.concatenate([price, price]), A_ub=-np.hstack([margins, -margins]), b_ub=-np.ones(count))
        uses_signal = found.x[0] - found.x[1 + count] > 1e-9
        assert found.fun == pytest.approx(min(with_signal, without), rel=1e-7)
        assert uses_signal == (norm**2 * (clean - flipped) > 600)


def test_bad_arguments():
    tokens = orthogonal()
    for call in (selected, unnormalised_cost, unnormalised_svm):
        with pytest.raises(ValueError, match="selection must be one of free, shared, noise; got 'both'"):
            call(tokens, "both")
    with pytest.raises(ValueError, match="tokens must hold at most 8 samples; got 16"):
        best_of_all(tokens)


def test_contradictions_are_not_separable():
    tokens = orthogonal(n=4, d=100, seed=0)
    twisted = type(tokens)(**{**vars(tokens), "noise": np.zeros_like(tokens.noise), "signal": 0 * tokens.signal})
    with pytest.raises(NotSeparable):
        best_of_all(twisted)
