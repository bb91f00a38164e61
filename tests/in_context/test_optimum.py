"""Optima of the exact risk: against least squares on dense prompts, against expansions by hand, and against their neighbours."""

import math

import numpy as np
import pytest
import torch

from attnbook.in_context.closed_form import opposite_pair_curvature
from attnbook.in_context.optimum import (
    _one_of_two_images,
    best_mu,
    free_optimum,
    one_head_optimum,
    pair_optimum,
    pair_valley,
    risk_landscape,
)
from attnbook.in_context.reduced import reduced_moments, reduced_risk
from attnlib.in_context.law import RegressionLaw
from tests.bad_input import refusing


def test_best_mu_is_least_squares_on_dense_prompts():
    d, length, prompts, omega = 3, 9, 200_000, np.array([0.5, -0.3, 1.5])
    rng = np.random.default_rng(5)
    x = rng.standard_normal((prompts, length, d))
    query, beta = rng.standard_normal((2, prompts, d))
    y = np.einsum("pld,pd->pl", x, beta) + 1.2 * rng.standard_normal((prompts, length))
    weight = np.exp(omega[:, None, None] * np.einsum("pld,pd->pl", x, query))
    outputs = ((weight * y).sum(2) / weight.sum(2)).T
    target = (query * beta).sum(1)
    fitted = np.linalg.lstsq(outputs, target)[0]
    residual = ((target - outputs @ fitted) ** 2).mean()
    errors = np.sqrt(residual * np.diag(np.linalg.inv(outputs.T @ outputs)))
    found = best_mu(reduced_moments(omega, RegressionLaw(d, length, 1.2 / math.sqrt(3)))).numpy()
    assert (abs(found - fitted) < 5 * errors).all()
    # without the noise (or with another) mu is another
    silent = best_mu(reduced_moments(omega, RegressionLaw(d, length, 0.0))).numpy()
    assert (abs(silent - fitted) > 8 * errors).any()


def test_one_head_is_not_one_over_root_d():
    best = one_head_optimum(RegressionLaw(5, 40), prompts=20_000, seed=2)
    assert best.omega == pytest.approx(0.518, abs=0.006)
    assert best.mu == pytest.approx(1.534, abs=0.012)
    assert abs(best.omega - 5**-0.5) > 20 * best.omega_error


def test_pair_is_a_little_better_than_debiased_gradient_descent():
    law = RegressionLaw(5, 40)
    best = pair_optimum(law, prompts=20_000, seed=2)
    limit = 5 * 6.0005 / 45.0005
    assert best.omega == pytest.approx(0.0735, abs=0.006)
    assert best.risk - limit == pytest.approx(-1.8e-4, abs=3e-5)
    assert limit - best.risk > 10 * best.risk_error
    assert best.effective_step == pytest.approx(2 * best.omega * best.mu)
    assert best.effective_step == pytest.approx(40 / 45.0005, abs=2e-3)


def test_valley_is_flat_where_trained_pairs_sit():
    law = RegressionLaw(5, 40)
    valley = pair_valley(law, [0.03, 0.075, 0.14, 0.4], prompts=20_000)
    assert valley.lowest[1] == 0
    assert (valley.lowest >= 0).all()
    assert 5e-4 < valley.lowest[2] < 1.5e-3
    assert valley.lowest[2] > 5 * valley.lowest_error[2]
    assert valley.lowest[3] > 0.05
    assert valley.excess[0].item() == pytest.approx(
        0.03**2 * float(opposite_pair_curvature(law, 40 / 45.0005)), rel=0.1
    )
    torch.testing.assert_close(
        valley.effective_step[:3], torch.full((3,), 40 / 45.0005, dtype=torch.float64), atol=5e-3, rtol=0
    )


@pytest.mark.parametrize("pair", [False, True])
def test_landscape_is_the_risk_at_each_point(pair):
    law = RegressionLaw(3, 7, 0.4, "repository")
    omega, mu = np.linspace(-1, 1, 18), [0.3, 1.0, 2.0]
    value, error = risk_landscape(law, omega, mu, pair=pair, prompts=800)
    signs = np.array([1.0, -1.0] if pair else [1.0])
    grid = np.meshgrid(omega, mu, indexing="ij")
    direct = reduced_risk(grid[0][..., None] * signs, grid[1][..., None] * signs, law, prompts=800)
    torch.testing.assert_close((value, error), direct, rtol=1e-8, atol=1e-10)


def test_free_search_with_one_and_two_heads_finds_the_known_optima():
    law = RegressionLaw(5, 40)
    one = free_optimum(law, 1, prompts=4000, evaluations=25)
    assert one.omega[0] == pytest.approx(0.518, abs=0.02)
    two = free_optimum(law, 2, prompts=4000, evaluations=40)
    assert two.omega[0] * two.omega[1] < 0
    assert abs(two.mu[0] + two.mu[1]) < 0.02 * abs(two.mu[0])
    assert two.risk == pytest.approx(0.66653, abs=4e-5)


@pytest.mark.parametrize(
    "omega", [(-0.07, 0.09, -1.95), (1.95, -0.09, 0.07), (0.07, -0.07), (-0.3, -0.07, 0.07), (-0.5,)]
)
def test_of_two_mirror_images_one_is_shown(omega):
    found = _one_of_two_images(np.array(omega))
    assert found.tolist() == _one_of_two_images(-np.array(omega)).tolist()
    assert found[0] > 0
    assert sorted(found.tolist()) in (sorted(omega), sorted(-w for w in omega))
    assert (np.diff(abs(found)) >= 0).all()


LAW = RegressionLaw(3, 7)
test_bad_arguments_are_named = refusing(
    (lambda: pair_optimum(LAW.with_length(1)), "length must be a whole number >= 2"),
    (lambda: one_head_optimum(LAW.with_length(1)), "length must be a whole number >= 2"),
    (lambda: pair_valley(LAW, [0.1, -0.1]), "omega must be > 0"),
    (lambda: free_optimum(LAW, 5), "heads must be 1 to 4; got 5"),
    (lambda: one_head_optimum(RegressionLaw(2, 7, mean=(1.0, 0.0))), "law must be isotropic"),
)
