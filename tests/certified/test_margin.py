"""Margins in whole numbers: exact examples, the float path, and what is refused."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("flint")

from attnbook.certified.margin import (
    MarginStudy,
    _whole,
    best_of_all,
    cost_bounds,
    make_margin_study,
    nine,
    signal_wins,
    threshold_proved,
)
from attnbook.single_head.margin import measured_threshold, selection_margin, tokens_of
from attnbook.single_head.svm import NotSeparable
from attnlib.single_head.law import SignalNoiseLaw


@pytest.fixture(scope="module")
def study() -> MarginStudy:
    return make_margin_study(seed=3, n=20, d=4000, draws=5, small_n=5)


def test_floats_are_whole_numbers_over_a_power_of_two() -> None:
    numbers = np.array([[0.1, -3.0, 0.0], [2.0**-40, 1e10, -1 / 3]])
    whole, shift = _whole(numbers)
    assert [[Fraction(x, 2**shift) for x in row] for row in whole] == [[Fraction(x) for x in row] for row in numbers]


def test_orthogonal_samples_add_their_inverse_squares() -> None:
    """Lengths 3, 1/3 and 2, in whole numbers but for the third: |v|^2 = 1/9 + 9 (as floats) + 1/4."""
    lengths = [3.0, 1 / 3, 2.0]
    low, high = cost_bounds(np.diag(lengths), np.array([1.0, -1.0, 1.0]))
    true = sum(1 / Fraction(x) ** 2 for x in lengths)
    assert low <= true <= high
    assert high - low < true / 10**12
    assert not low <= true * (1 + Fraction(1, 10**9)) <= high


def test_opposite_samples_are_refused() -> None:
    with pytest.raises(NotSeparable):
        cost_bounds(np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([1.0, -1.0]))


def test_the_best_of_all_selections_by_the_float_solver() -> None:
    tokens = tokens_of(SignalNoiseLaw(4, 60, 6.0, 0.25).draw(2, 1))
    costs = {}
    for key in itertools.product((0.0, 1.0), repeat=4):
        try:
            costs[key] = selection_margin(tokens, np.array(key)).norm_squared
        except NotSeparable:
            continue
    assert best_of_all(tokens) == min(costs, key=lambda key: costs[key])


def test_the_threshold_is_where_bisection_of_the_whole_problem_finds_it(study: MarginStudy) -> None:
    for tokens, k, norm in study.thresholds[::5]:
        assert measured_threshold(tokens, k) == pytest.approx(norm, rel=1e-5)
        assert threshold_proved(tokens, k, norm) is True
        assert threshold_proved(tokens, k, norm * (1 + 1e-6)) is False
        below, above = (nine(tokens.with_signal_norm(norm * factor)).best for factor in (0.999, 1.001))
        assert below is not None
        assert above is not None
        assert (below[k], above[k]) == ("X", "S")


def test_brackets_that_overlap_decide_nothing() -> None:
    sets = {
        name: (Fraction(w), Fraction(w) + Fraction(1, 2)) for name, w in (("II", 4), ("IN", 3), ("NI", 3), ("NN", 2))
    }
    assert signal_wins(sets, Fraction(1, 10)) is True
    assert signal_wins(sets, Fraction(1)) is None
    assert signal_wins(sets, Fraction(3)) is False


def test_tokens_that_share_a_coordinate_are_refused(study: MarginStudy) -> None:
    tokens, k, norm = study.thresholds[0]
    mixed = type(tokens)(**{**vars(tokens), "noise": tokens.noise + 0.1})
    with pytest.raises(ValueError, match="no coordinate in which both a signal and a noise token are not zero"):
        threshold_proved(mixed, k, norm)


@pytest.mark.parametrize("name", ["draws", "small_n"])
def test_sizes_are_checked_first(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        make_margin_study(seed=0, **{name: 0})
