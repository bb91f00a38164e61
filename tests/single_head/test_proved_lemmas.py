"""Lemmas of the proved outcomes, one by one: norms, shifts, z and N together, and no counts twice."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from attnlib.single_head import proved
from attnlib.single_head.law import SignalNoiseLaw
from tests.single_head.test_proved import plain  # noqa: F401


def test_norms_and_shifts_are_those_of_the_lemma(plain):  # noqa: F811
    """eq-proved-norm with numbers in a calculator's order; a second derivative that is 0 beyond the range may add nothing to a mean."""
    c = plain.setting(50, 300, 1.0, 0.1, 0.1, 0.1)._replace(scale=(0.3, 0.3))
    most, along = plain.norm_and_along(c, (4.0, 4.0), (1.0, 1.0), (9.0, 9.0), 0.5)
    assert most == pytest.approx((math.sqrt(3**2 + 0.3**2 * 9) + 0.3 * 0.5 * c.gauss,) * 2)
    assert along[1] == -along[0] == pytest.approx(2 * c.normal + 0.3 * 0.5 * c.chi)
    assert plain.noise(c, (9.0, 9.0))[1] == pytest.approx(0.3 * 3 * c.gauss)
    assert plain.shift((1.0, 2.0), (0.3, 0.3)) == pytest.approx((0, 0.09))
    assert plain.shift((-2.0, -1.0), (0.3, 0.3)) == pytest.approx((-0.09, 0))


def test_z_and_N_together(plain):  # noqa: F811
    """eq-proved-together where the pieces say nothing: one sample with phi = 1.5, r = 1, Q = d, no signal."""
    a, d, scale, reach, both = 2.0, 300.0, 0.3, 2.0, 3.0
    c = plain.setting(50, d, 1.0, 1.0, 0.1, 0.1)._replace(
        a=(a, a), middle=(0.0, 0.0), scale=(scale, scale), q=(1.0, 1.0), offset=(0.01, 0.01), drift=(d**-0.5, d**-0.5)
    )
    nothing = ((0.0, 0.0),) * 2
    own = plain.Shared(
        (1.2, 1.4), (-2.0, 2.0), (0.0, 3.0), nothing, (0.0, 0.0), (0.0, 0.0), (1.0, 1.0), 1.0, nothing, nothing
    )
    group = plain.Group(*[None] * 9, reach, both)
    room = plain.room_of_group(c, own, 0, 1.0, group, [[-reach, reach, 1.5, 1.5, 0.0, 0.0, 500.0]])
    swing = both * math.hypot(scale * 1.3, 3 / math.sqrt(d)) + scale * 0.1 * reach
    assert room == pytest.approx(a * (1.5 - swing - 2 * (0.01 + reach / d)))


def test_no_counts_are_proved_twice(plain):  # noqa: F811
    """The search proves at most the probability of the counts that are proved one by one, by scipy, and nearly all of it."""
    n, eta, numbers = 10, 0.13, (10.0, 12428.0, 0.67 * 12428**0.5, 5.8 * 10 / 12428, 0.004, 0.1)
    c, proved = plain.setting(*numbers), 0.0
    law = plain.count_law(n, eta, 1e-5, np.log(np.maximum(np.arange(n + 1), 1)).cumsum())
    known, tables = np.zeros((2, n + 1, 2 + plain.PIECES)), np.empty((2, 2, plain.PIECES, 7))
    for m, f in itertools.product(range(5, n + 1), range(8)):
        for g in range(min(8, n - m + 1)):
            chance = stats.binom.pmf(m, n, 0.5) * stats.binom.pmf(f, m, eta) * stats.binom.pmf(g, n - m, eta)
            if chance > 1e-5:
                classes = plain.classes_of(n, (m, m, m - 2 * f, m - 2 * f, n - m - 2 * g, n - m - 2 * g), (0, n, 0, n))
                if plain.judge(c, classes, plain.FITS_AND_ERRS_LESS, known, tables)[0] == plain.FITS_AND_ERRS_LESS:
                    proved += chance * (1 if 2 * m == n else 2)
    found = plain.decide(numbers, eta, *law, 10, proved + 1e-3, 200)[1]
    assert 0.5 < proved < 0.99
    assert proved - 0.1 < found < proved + 1e-6


def test_the_error_is_that_of_boxes_likely_enough(monkeypatch):
    """Boxes of probability .3, .1 and .6 prove errors below e^-10, e^-6 and e^-8: at delta .01 all are needed, at .2 two of them."""
    kept = np.array([[10, 0.3], [6, 0.1], [8, 0.6]])
    loops = SimpleNamespace(count_law=lambda *_: (), decide=lambda *_: (0, 1.0, kept, None, None, None))
    monkeypatch.setattr(proved, "_loops", lambda: loops)
    proved._count_law.cache_clear()
    for delta, exponent in ((0.01, 6), (0.2, 8)):
        answer = proved.proved_outcome(SignalNoiseLaw(20, 400, 1.0), 1.0, delta)
        assert answer.probability == pytest.approx(1 - 0.2 * delta)
        assert answer.log10_error == pytest.approx(-exponent / math.log(10))
    proved._count_law.cache_clear()
