"""The growth function against its definition: a derivative, a differential equation, a softmax."""

import numpy as np
import pytest
from scipy.special import expit

from attnbook.token_selection.dynamics.growth import growth, inverse_growth
from tests.bad_input import refusing


@pytest.mark.parametrize("tokens", [2, 3, 8, 101])
def test_derivative_is_one_over_s_times_one_minus_s(tokens):
    x = np.linspace(-6, 9, 31)
    s = expit(x - np.log(tokens - 1))
    slope = (growth(x + 1e-5, tokens) - growth(x - 1e-5, tokens)) / 2e-5
    np.testing.assert_allclose(slope, 1 / (s * (1 - s)), rtol=1e-7)


def _runge_kutta(x, rate, time, steps):
    for _ in range(steps):
        h = time / steps
        a = rate(x)
        b = rate(x + h / 2 * a)
        c = rate(x + h / 2 * b)
        d = rate(x + h * c)
        x = x + h / 6 * (a + 2 * b + 2 * c + d)
    return x


@pytest.mark.parametrize(("tokens", "start"), [(5, 0.0), (8, -0.7), (2, 1.3)])
def test_first_integral_of_a_saturating_weight(tokens, start):
    """x' = lambda s(1-s) by Runge-Kutta equals g^-1(g(x0) + lambda t); with log T for log(T-1) it would not."""
    speed, time = 0.37, 60.0
    shift = np.log(tokens - 1)
    end = _runge_kutta(start, lambda x: speed * expit(x - shift) * expit(shift - x), time, 4000)
    assert inverse_growth(growth(start, tokens) + speed * time, tokens) == pytest.approx(end, abs=1e-9)
    assert abs(inverse_growth(growth(start, tokens + 1) + speed * time, tokens + 1) - end) > 0.01  # the wrong constant


def test_inverse_over_the_whole_range():
    x = np.concatenate([np.linspace(-700, 700, 1401), [-1e-9, 0.0, 1e-9, 1e-3]])
    np.testing.assert_allclose(inverse_growth(growth(x, 7), 7), x, rtol=1e-12, atol=1e-12)
    y = np.array([-1e300, -3.0, 0.0, 1e-12, 5.0, 1e8, 1e300])
    np.testing.assert_allclose(growth(inverse_growth(y, 7), 7), y, rtol=1e-11, atol=1e-11)


test_bad_input_is_named = refusing(
    (lambda: growth(0.0, 1), "tokens must be a whole number >= 2"), (lambda: inverse_growth(0.0, 2.5), "tokens")
)
