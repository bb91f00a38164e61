"""Page I.15: errors from below and near one half, a second way: quadrature, sixty digits, and the theorems' formulas by hand."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats

from attnbook.single_head.deviations import deviation_bounds, log_term
from attnbook.single_head.error_from_both_sides.study import (
    correlation,
    distance_from_half,
    furthest_from_half,
    large_step_distance,
    log10_error_floor,
    weak_signal_distance,
)
from attnlib.single_head.errors import FreshScores, log10_error_of_scores
from attnlib.single_head.law import SignalNoiseLaw
from tests.single_head.test_finite_dimension import PAPER_SIZE, counts, sigma


def one_class(logit, value, omega, along, tau) -> FreshScores:
    return FreshScores(
        *(counts(x, y) for x, y in ((logit, logit), (value, value), (omega, omega), (along, -along), (tau, tau)))
    )


@pytest.mark.parametrize("along", [-0.3, 0.0, 0.4])
@pytest.mark.parametrize("omega", [0.1, 0.5])
def test_lower_bound_on_the_error(along, omega):
    """Below the probability that both events of C15 happen, by quadrature, and that below the error."""
    scores = one_class(0.3, 1.5, omega, along, 0.4)
    length = math.hypot(along, 0.4)
    rho = correlation(scores)[0, 0].item()
    assert rho == pytest.approx(-along / length)
    cut = optimize.brentq(lambda t: t / omega - math.exp(0.3 - t) * 1.5 / length, 0, 5)
    x = cut / omega

    def inside(z):
        return stats.norm.pdf(z) * stats.norm.sf((x - rho * z) / math.sqrt(1 - rho**2))

    together = integrate.quad(inside, x, x + 12, epsabs=0)[0]
    floor = 10 ** log10_error_floor(scores)[0, 0].item()
    error = 10 ** log10_error_of_scores(scores, per_class=True)[0, 0].item()
    assert floor <= together <= error
    if rho >= 0:  # what Jensen costs: little
        assert math.log(floor) >= 1.3 * math.log(together)
    again = stats.norm.cdf(-(math.sqrt(2) * x + math.sqrt(2 * (1 - rho) / math.pi)) / math.sqrt(1 + rho))
    assert floor == pytest.approx(again, rel=1e-3)


@pytest.mark.parametrize(
    "scores", [(0.2, 0.05, 0.3, 0.1, 0.8), (-4.0, 2.0, 0.6, -0.2, 0.5), (0.5, -0.3, 0.2, 0.3, 0.9)]
)
def test_distance_from_one_half(scores):
    fresh = one_class(*scores)
    error = 10 ** log10_error_of_scores(fresh, per_class=True)
    torch.testing.assert_close(distance_from_half(fresh), (error - 0.5).abs(), rtol=1e-6, atol=1e-12)
    logit, value, omega, _, tau = scores
    bound = math.exp(logit + omega**2 / 2) * abs(value) / (math.sqrt(2 * math.pi) * tau)
    assert furthest_from_half(fresh)[0, 0].item() == pytest.approx(bound, rel=1e-12)
    assert (distance_from_half(fresh) <= bound * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    "scores",
    [
        (-20.0, 1.0, 2.0, -1.0, 3.0),
        (-25.0, 0.3, 1.5, -3.0, 2.0),
        (-60.0, 0.2, 1.2, -3.0, 0.7),
        (-90.0, -2.0, 4.0, 0.8, 0.5),
    ],
)
def test_tiny_distance_from_one_half_in_sixty_digits(scores):
    """Each of these integrands is lost in the rounding of Phi where the normal law has its weight."""
    logit, value, omega, along, tau = scores
    with mpmath.workdps(60):

        def integrand(z):
            step = mpmath.exp(logit - omega * z) * value / tau
            return mpmath.npdf(z) * (mpmath.ncdf(along * z / tau + step) - mpmath.ncdf(along * z / tau))

        expected = float(abs(mpmath.quad(integrand, list(range(-20, 21, 2)))))
    assert expected < 2e-9
    assert distance_from_half(one_class(*scores))[0, 0].item() == pytest.approx(expected, rel=1e-9, abs=0)


def singular_values(n, d, delta):
    tail = math.sqrt(n) + math.sqrt(2 * math.log(14 * n / delta))
    return math.sqrt(d) + tail, math.sqrt(d - 2) - tail


def test_weak_signal_bound_by_hand():
    law, beta, clean, noisy = SignalNoiseLaw(200, 40_000, 2.0, 0.05), 0.025, (97, 93), (4, 6)
    found = weak_signal_distance(law, deviation_bounds(law, beta, counts(*clean), counts(*noisy)), log_term(200, 0.01))
    most, least = singular_values(200, 40_000, 0.01)
    omega = 1.25**2 * math.sqrt(200) * most / 40_000
    for k in (0, 1):
        slope = 2 / math.sqrt(2 * math.pi) * (clean[k] + noisy[k]) * 1e-4 * 40_000 / (math.sqrt(200) * least)
        best = min(stats.norm.cdf(-x / omega) + math.exp(x) * slope for x in np.geomspace(omega / 10, 30 * omega, 2000))
        assert found[0, k].item() == pytest.approx(best, rel=0.01)
    strong = SignalNoiseLaw(200, 40_000, 30.0, 0.05)
    bounds = deviation_bounds(strong, beta, counts(*clean), counts(*noisy))
    assert weak_signal_distance(strong, bounds, log_term(200, 0.01)).isinf().all()


def test_large_step_bound_by_hand():
    beta, clean, noisy = 0.25, (97, 93), (4, 6)
    bounds = deviation_bounds(PAPER_SIZE, beta, counts(*clean), counts(*noisy))
    found = large_step_distance(PAPER_SIZE, bounds, log_term(200, 0.01))
    most, least = singular_values(200, 40_000, 0.01)
    a, eps = 12.5, bounds.score
    h = a * 0.0225
    b = [h * (c - m) for c, m in zip(clean, noisy, strict=True)]
    quiet = 2 / math.e * math.exp(-a * (1 - eps) / 2)
    spread = sum(m * (x + a * (1 + eps)) ** 2 + c * quiet**2 for c, m, x in zip(clean, noisy, b, strict=True))
    omega = a / 40_000 * most * math.sqrt(spread)
    for k in (0, 1):
        pull = h * (sigma((b[k] - a * (1 + eps)) / 2) * noisy[k] * (b[k] + a * (1 - eps)) - quiet * clean[k])
        start = 3 / math.sqrt(2 * math.pi) * (clean[k] + noisy[k]) * 0.0225 * 40_000 / (math.sqrt(200) * least)
        best = min(
            stats.norm.cdf(-t * pull / omega) + math.exp(-(1 - t) * pull) * start for t in np.arange(0.05, 0.96, 0.05)
        )
        assert found[0, k].item() == pytest.approx(best, rel=1e-9)
    alone = deviation_bounds(PAPER_SIZE, beta, counts(101, 93), counts(0, 6))
    assert large_step_distance(PAPER_SIZE, alone, log_term(200, 0.01)).isinf().tolist() == [[True, False]]
