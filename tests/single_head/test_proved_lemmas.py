"""Lemmas of the proved outcomes, one by one: norms, shifts, and z and N together."""

import math

import pytest

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
