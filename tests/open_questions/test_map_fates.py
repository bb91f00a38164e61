"""Where classes end under each map, and the exact statements behind it."""

import numpy as np

from attnbook.open_questions.attention_maps.fates import (
    SHARES,
    boundary_curve,
    equal_to_slower_attention,
    linear_fates,
    logit_moves,
    map_fates,
    thresholds_of_shares,
)
from attnbook.single_head.flow import own_thresholds
from attnbook.single_head.long_run import class_fates, law_at, small_then_long
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.maps import SIGMOID, SOFTMAX
from tests.bad_input import refusing


def test_softmax_fates_are_the_known_study_run_by_run():
    laws = [law_at(x, 40, 10**5, 0.2) for x in (0.8, 1.5, 2.5)]
    schedule = small_then_long(40, 10**5)
    known = class_fates(laws, schedule, draws=1, seed=4)
    found = map_fates(laws, SOFTMAX, schedule, draws=1, seed=4)
    np.testing.assert_allclose(found.x, known.x)
    np.testing.assert_allclose(found.flipped, known.flipped)
    np.testing.assert_array_equal(found.on_signal, known.on_signal)
    np.testing.assert_allclose(found.net, found.x * (1 - 2 * found.flipped) / (1 - found.flipped))
    assert found.on_signal.any()
    assert not found.on_signal.all()
    assert (found.train_accuracy == 1).all()


def test_thresholds_of_softmax_are_the_known_ones():
    clean, noisy = np.array([[40, 45], [30, 36]]), np.array([[4, 5], [10, 9]])
    curve = boundary_curve(SOFTMAX)
    found = thresholds_of_shares(curve, noisy / (clean + noisy))
    np.testing.assert_allclose(found, own_thresholds(clean, noisy), rtol=0.01)
    assert curve[0] == 1
    assert np.isinf(thresholds_of_shares(curve, np.array([0.48])))
    assert len(curve) == len(SHARES) == 10


test_bad_arguments = refusing(
    (lambda: map_fates([law_at(1.0, 10, 500, 0.1)], SIGMOID, [(0.1, 2)]), "attention_map must be normalised"),
    (map_fates, lambda: ([law_at(1.0, 10, 500, 0.1)], SOFTMAX, [(0.1, 2)]), {"laws": [[]], "draws": 0}),
    (lambda: map_fates([law_at(1.0, 10, 500, 0.1)], SOFTMAX, []), "schedule must hold"),
    (
        linear_fates,
        lambda: ([law_at(1.0, 10, 500, 0.1)], 0.1, 0.1, 2),
        {"start_size": 0.0, "laws": [[SignalNoiseLaw(5, 50, 1.0, tokens=3)]]},
    ),
    (lambda: logit_moves(SOFTMAX, (-1.0,), (0.1,)), "x must be"),
    (equal_to_slower_attention, lambda: (SignalNoiseLaw(5, 50, 1.0).draw(0), 0.1, 2), {"temperature": 0.0}),
)
