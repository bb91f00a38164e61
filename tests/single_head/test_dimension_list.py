"""The list of dimensions that a public repository runs (n = 500, rho = 30, eta = 0.1, beta = 0.02, 300 steps), with exact errors."""

import pytest

from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.population import log10_clean_error
from attnlib.single_head.training import gram_descent


@pytest.mark.parametrize(
    ("d", "fits_at_step_2", "fits_at_step_300", "low", "high"),
    [
        (250, False, False, -4, -2),
        (1000, False, True, -6, -3),
        (20_000, False, True, -55, -25),
        (100_000, True, True, -150, -75),
    ],
)
def test_fit_and_error_by_dimension(d, fits_at_step_2, fits_at_step_300, low, high):
    sample = SignalNoiseLaw(500, d, 30.0, 0.1).draw(0, 3)
    path = gram_descent(sample, 0.02, 300, record=[2, 300])
    assert path.interpolates[0].tolist() == [fits_at_step_2] * 3
    assert path.interpolates[1].tolist() == [fits_at_step_300] * 3
    error = log10_clean_error(path.v[-1], path.p[-1], sample)
    assert low < error.min()
    assert error.max() < high
