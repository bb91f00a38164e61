"""What the judges of Part IV share: draws that say nothing, and a boundary that lies elsewhere."""

import numpy as np
import pytest

from attnbook.open_questions.judging import mean_share, none_judged, one_way, per_draw
from attnbook.open_questions.second_solver import on_both_sides
from bookkit.rules import within


def test_draws_of_which_nothing_is_judged_are_silent_and_others_are_not():
    flags, judged = np.ones((8, 4), bool), np.ones((8, 4), bool)
    judged[0] = False
    assert none_judged([judged]).tolist() == [True] + [False] * 7
    assert none_judged([judged, np.ones((8, 1), bool)]).sum() == 0
    assert mean_share([flags], 0.5, what="classes", judged=[judged]).draws == 7
    shares = per_draw([flags], [judged])
    assert within(shares, low=1.0, silent=none_judged([judged])).holds
    shares[3] = np.nan
    assert within(shares, low=1.0, silent=none_judged([judged])).mute


def test_a_boundary_elsewhere():
    x = np.repeat([0.5, 0.9, 1.1, 1.5], 5)
    moves = np.outer(np.sign(x - 1.2), [0.0, 0.01, 0.02])
    assert not one_way(x, moves, 1.0).holds
    assert one_way(x, moves, 1.2).holds
    # No sharper than the nearest x on either side.
    assert [part.grid for part in one_way(x, moves, 1.2).parts] == [pytest.approx(1.5 / 1.2 - 1)]
    assert not one_way(x, np.zeros_like(moves), 1.0).holds  # weights that never move follow no boundary
    values = np.array([1.2, 3.0])
    assert not on_both_sides(values, 1.0, lambda x: x > 1.02 * values).holds
    assert on_both_sides(values, 1.02, lambda x: x > 1.02 * values).holds
