"""One token matters: every exact risk a second way."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, special, stats

from attnbook.one_token import (
    OneTokenLaw,
    bayes_risk,
    concave_floor,
    erf_risk,
    linear_risk,
    linear_weights,
    own_score_risk,
    risk_bounds,
    risk_sampled,
    sigmoid_weights,
)
from attnbook.one_token.study import best_erf_scale, profile, strength_for, strength_ratio, window_law


def laplace_form(tokens: int, strength: float) -> float:
    """The Bayes risk as the integral of M'^2 M^(L-2), on a grid of log t, with M by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    weights = weights / math.sqrt(2 * math.pi)
    logs, step = np.linspace(-60, 40, 4001, retstep=True)
    power = np.exp(logs[:, None] + math.sqrt(strength) * nodes)
    value, slope = np.exp(-power) @ weights, (power * np.exp(-power)) @ weights  # M(t) and -t M'(t)
    return (
        (tokens - 1) * math.exp(-strength / 2) * float((slope**2 * value ** (tokens - 2) * np.exp(-logs)).sum() * step)
    )


@pytest.mark.parametrize(("tokens", "strength"), [(2, 0.7), (3, 2.0), (8, 5.0), (200, 3.0)])
def test_the_bayes_risk_is_the_integral_of_its_laplace_form(tokens: int, strength: float) -> None:
    assert bayes_risk(OneTokenLaw(tokens, strength)) == pytest.approx(laplace_form(tokens, strength), rel=1e-8)


@pytest.mark.parametrize("strength", [1e-8, 1e-3, 0.24, 0.26, 3.0, 50.0, 500.0, 1000.0])
def test_two_tokens_are_a_logistic_normal_integral(strength: float) -> None:
    """By scipy, with the exponential taken out: 1 - s = exp(-nu/4) E[1 / (2 cosh(sqrt(nu/2) z))]."""

    def density(w: float) -> float:
        return math.exp(-w * w / (4 * strength)) / math.sqrt(4 * math.pi * strength) / (2 * math.cosh(w / 2))

    reach = min(60.0, 15 * math.sqrt(2 * strength))
    middle = integrate.quad(density, -reach, reach, epsabs=0, epsrel=1e-12, limit=400)[0]
    assert bayes_risk(OneTokenLaw(2, strength)) == pytest.approx(math.exp(-strength / 4) * middle, rel=1e-10)
    assert own_score_risk(OneTokenLaw(2, 2 * strength)) == pytest.approx(math.exp(-strength / 4) * middle, rel=1e-10)


def test_many_tokens_and_ends() -> None:
    strong, weak = OneTokenLaw(3, 1500.0), OneTokenLaw(3, 1e-9)
    low, high = risk_bounds(strong)
    assert low < bayes_risk(strong) < high
    assert bayes_risk(weak) == pytest.approx(2 / 3, rel=1e-8)
    assert own_score_risk(weak) == pytest.approx(2 / 3, rel=1e-8)
    # The union bound is reached for a strong mark: L - 1 times the risk of two tokens.
    assert bayes_risk(OneTokenLaw(9, 300.0)) == pytest.approx(8 * bayes_risk(OneTokenLaw(2, 300.0)), rel=1e-3)
    assert bayes_risk(OneTokenLaw(10**200, 5.0)) == pytest.approx(1, rel=1e-12)


def test_own_score_risk_is_that_of_its_sigmoid() -> None:
    """E_1 (1 - g)^2 + (L - 1) E_0 g^2 by quadrature; other sigmoids are worse."""
    law = OneTokenLaw(7, 3.3)

    def risk(bias: float) -> float:
        def g(x: float) -> float:
            return float(sigmoid_weights(torch.tensor(x, dtype=torch.float64), law, bias=bias))

        hidden = integrate.quad(lambda x: (1 - g(x)) ** 2 * stats.norm.pdf(x - math.sqrt(3.3)), -10, 12, limit=200)[0]
        return hidden + 6 * integrate.quad(lambda x: g(x) ** 2 * stats.norm.pdf(x), -10, 12, limit=200)[0]

    assert own_score_risk(law) == pytest.approx(risk(1.0), rel=1e-8)
    assert risk(0.95) > risk(1.0) < risk(1.05)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(("tokens", "strength"), [(2, 0.5), (5, 3.0), (30, 12.0)])
def test_linear_risks_are_normal_equations(tokens: int, strength: float, centred: bool) -> None:
    """Second moments of the features 1 and score of each token, built as matrices, and the best coefficients."""
    root, hidden = math.sqrt(strength), np.eye(tokens)[0]
    take = np.eye(tokens) - np.ones((tokens, tokens)) / tokens * centred
    mean, spread = root * take @ hidden, take @ take.T
    second = spread + np.outer(mean, mean)
    gram = np.array([[tokens, mean.sum()], [mean.sum(), np.trace(second)]])
    right = np.array([1.0, mean[0]])
    best = np.linalg.solve(gram, right)
    law = OneTokenLaw(tokens, strength)
    assert linear_risk(law, centred=centred) == pytest.approx(1 - right @ best, rel=1e-12)
    scores = torch.linspace(-1, 1, tokens, dtype=torch.float64) * 2 + 0.3
    used = best[0] + best[1] * (take @ scores.numpy())
    np.testing.assert_allclose(linear_weights(scores, law, centred=centred).numpy(), used, rtol=1e-12)


@pytest.mark.parametrize("scale", [0.05, 0.4, 3.0])
def test_erf_risk_by_scipy(scale: float) -> None:
    law = OneTokenLaw(6, 5.0)

    def mean(f: Callable[[float], float]) -> float:
        return integrate.quad(lambda z: f(z) * stats.norm.pdf(z), -12, 12, epsrel=1e-12)[0]

    hidden = mean(lambda z: special.erfc(scale * (math.sqrt(5) + z)) ** 2)
    others = mean(lambda z: special.erf(scale * z) ** 2)
    assert erf_risk(law, scale) == pytest.approx(hidden + 5 * others, rel=1e-9)
    # The first term in the form of the authors' code: 1 - 2 erf(...) + zeta.
    reach = special.erf(scale * math.sqrt(5) / math.sqrt(1 + 2 * scale**2))
    square = mean(lambda z: special.erf(scale * (math.sqrt(5) + z)) ** 2)
    assert hidden == pytest.approx(1 - 2 * reach + square, rel=1e-8)


def test_the_best_erf_scale_is_a_minimum() -> None:
    law = OneTokenLaw(8, 20.0)
    found = optimize.minimize_scalar(lambda log: erf_risk(law, math.exp(log)), bounds=(-5, 1), method="bounded")
    assert erf_risk(law, best_erf_scale(law)) == pytest.approx(found.fun, rel=1e-9)


def test_the_floor_holds_for_tanh_and_names_its_integral() -> None:
    for tokens, strength in ((2, 4.0), (9, 60.0)):
        root, law = math.sqrt(strength), OneTokenLaw(tokens, strength)
        inner = integrate.quad(lambda z: z * z * stats.norm.pdf(z), -root, root, epsrel=1e-12)[0]
        reach = 1 + 1 / math.sqrt(2 * math.pi * strength)
        by_hand = min((1 - reach * g) ** 2 + (tokens - 1) * g**2 * inner / strength for g in np.linspace(0, 1, 20001))
        assert concave_floor(law) == pytest.approx(by_hand, rel=1e-4)
        for scale in (0.05, 0.3, 1.0):
            hidden = integrate.quad(lambda z: (1 - math.tanh(scale * (root + z))) ** 2 * stats.norm.pdf(z), -9, 9)[0]  # noqa: B023
            others = integrate.quad(lambda z: math.tanh(scale * z) ** 2 * stats.norm.pdf(z), -9, 9)[0]  # noqa: B023
            assert hidden + (tokens - 1) * others > concave_floor(law)


def test_an_odd_function_with_a_threshold_is_below_the_floor() -> None:
    """sign(x) where |x| > h, and 0 elsewhere, has no bias; it is not concave for positive scores."""
    law, h, normal = OneTokenLaw(8, 64.0), 4.33, stats.norm
    missed = normal.cdf(h - 8) - normal.cdf(-h - 8) + 4 * normal.cdf(-h - 8)
    risk = missed + 7 * 2 * normal.sf(h)
    assert risk == pytest.approx(2.26e-4, rel=0.01)
    assert concave_floor(law) == pytest.approx(0.0903, rel=1e-3)
    sample = law.draw(2, runs=40, samples=5000)
    sampled = risk_sampled(lambda scores: scores.sign() * (scores.abs() > h), sample)
    assert sampled.mean().item() == pytest.approx(risk, abs=4 * sampled.std().item() / 40**0.5)


def test_bounds_at_one_law_by_hand() -> None:
    low, high = risk_bounds(OneTokenLaw(4, 6.0))
    assert low == pytest.approx(math.exp(-1.5) / 4, rel=1e-14)
    assert high == pytest.approx(3 * math.exp(-1.5) * math.sqrt(math.pi / 24), rel=1e-14)
    low, high = risk_bounds(OneTokenLaw(4, 12.0), own_score=True)
    assert low == pytest.approx(math.sqrt(3) * math.exp(-1.5 - math.log(3) ** 2 / 32) / 4, rel=1e-14)
    assert high == pytest.approx(math.sqrt(3) * math.exp(-1.5) * math.sqrt(math.pi / 24), rel=1e-14)


def test_strengths_and_the_window() -> None:
    assert own_score_risk(OneTokenLaw(50, strength_for(0.3, 50, own_score_risk))) == pytest.approx(0.3, rel=1e-9)
    assert strength_ratio(2, 0.2) == pytest.approx(2, rel=1e-9)
    law = window_law(10**6, 0.5)
    logarithm = 6 * math.log(10)
    assert law.strength == pytest.approx(2 * logarithm + math.sqrt(2 * logarithm), rel=1e-14)
    assert profile(torch.tensor([1.0], dtype=torch.float64)).item() == pytest.approx(stats.norm.cdf(-1), rel=1e-14)
