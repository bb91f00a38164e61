"""The approximate loss against automatic derivatives, series and matrices written out, and its flow against its own limits."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.optimize import minimize, minimize_scalar

from attnbook.in_context import approximate, closed_form
from attnlib.in_context.law import RegressionLaw

AUTHORS = RegressionLaw(d=5, length=40, noise_std=0.01)
LAWS = [
    AUTHORS,
    RegressionLaw(d=3, length=11, noise_std=0.8, convention="repository"),
    RegressionLaw(d=8, length=300, noise_std=2.0),
]


def some_heads(*shape, scale=0.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(2, *shape, generator=generator, dtype=torch.float64)


def share(law):
    return (1 + law.noise_std**2) / law.length


# The loss


@pytest.mark.parametrize("law", LAWS)
def test_loss_written_out(law):
    omega, mu = some_heads(7, 3)
    for one, weights, value in zip(
        omega.numpy(), mu.numpy(), approximate.approximate_loss(law, omega, mu), strict=True
    ):
        total = 1 + law.noise_std**2
        for w, m in zip(one, weights, strict=True):
            total -= 2 * w * m
            total += sum(
                m * n * (w * v + share(law) * math.exp(law.d * w * v)) for v, n in zip(one, weights, strict=True)
            )
        assert value.item() == pytest.approx(total)


def test_risk_in_both_units():
    law, other = (RegressionLaw(d=7, length=9, noise_std=0.5, convention=name) for name in ("notebook", "repository"))
    omega, mu = some_heads(2)
    loss = approximate.approximate_loss(law, omega, mu)
    assert loss == approximate.approximate_loss(other, omega, mu)
    assert approximate.approximate_risk(other, omega, mu) == pytest.approx(loss.item() - 0.25)
    assert approximate.approximate_risk(law, omega, mu) == pytest.approx(7 * (loss.item() - 0.25))
    seeds_pair = approximate.approximate_risk(AUTHORS, [-0.1393, 0.1420], [-3.1719, 3.1868]).item()
    assert seeds_pair == pytest.approx(0.557, abs=5e-4)  # the circuits that the authors print; the exact risk is 0.668


# Derivatives and minimisers


@pytest.mark.parametrize("law", LAWS)
def test_gradient_against_autograd(law):
    omega, mu = (part.requires_grad_() for part in some_heads(4, seed=3))
    expected = torch.autograd.grad(approximate.approximate_loss(law, omega, mu), (omega, mu))
    torch.testing.assert_close(approximate.approximate_gradient(law, omega, mu), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("law", LAWS)
def test_best_mu_minimises(law):
    omega = torch.tensor([0.4, -0.15, 0.22], dtype=torch.float64)
    mu = approximate.best_mu(law, omega)
    slope = approximate.approximate_gradient(law, omega, mu)[1]
    torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-10)
    assert approximate.approximate_loss(law, omega, mu).item() == pytest.approx(
        approximate.best_loss(law, omega).item()
    )
    found = minimize(lambda m: approximate.approximate_loss(law, omega, m).item(), np.zeros(3), tol=1e-12)
    assert approximate.best_loss(law, omega).item() == pytest.approx(found.fun, abs=1e-8)


# One head, the pair, the bound


@pytest.mark.parametrize("law", LAWS)
def test_one_head_optimum(law):
    one = approximate.one_head_optimum(law)
    found = minimize_scalar(
        lambda w: approximate.best_loss(law, [w]).item(), bounds=(0.01, 2), method="bounded", options={"xatol": 1e-10}
    )
    assert one.omega == pytest.approx(found.x, abs=1e-6)
    assert one.loss == pytest.approx(found.fun, rel=1e-12)
    assert one.mu == pytest.approx(approximate.best_mu(law, [one.omega]).item())
    assert one.loss == pytest.approx(approximate.approximate_loss(law, [one.omega], [one.mu]).item())


@pytest.mark.parametrize("law", LAWS)
def test_pair_formulas(law):
    a = torch.tensor([0.05, 0.2, 0.5], dtype=torch.float64)
    m = approximate.pair_best_mu(law, a)
    heads = torch.stack([a, -a], -1), torch.stack([m, -m], -1)
    torch.testing.assert_close(approximate.best_mu(law, heads[0]), heads[1], rtol=1e-8, atol=0)
    torch.testing.assert_close(
        approximate.pair_best_loss(law, a), approximate.best_loss(law, heads[0]), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("law", LAWS)
def test_pair_limit_is_the_best_step_of_debiased_gradient_descent(law):
    limit = approximate.pair_limit_step(law)
    assert limit == pytest.approx(closed_form.debiased_gd_optimal_step(law), rel=1e-14)
    assert 2e-3 * approximate.pair_best_mu(law, 1e-3).item() == pytest.approx(limit, rel=1e-9)
    slope = (approximate.pair_best_loss(law, 0.02) - (1 + law.noise_std**2 - limit)) / 0.02**4
    assert slope.item() == pytest.approx(limit**2 * share(law) * law.d**3 / 6, rel=2e-3)


# The start


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("heads", [1, 2, 5])
def test_start_against_the_matrix_exponential(law, heads):
    identity, zero, ones = np.eye(heads), np.zeros((heads, heads)), np.ones((heads, heads))
    system = np.block([[zero, identity], [identity, -share(law) * ones]])
    rates, other = np.linalg.eigvals(system).real, approximate.growth_rates(law, heads)[1]
    assert rates.max() == pytest.approx(approximate.growth_rates(law, heads)[1 if heads == 1 else 0])
    assert min(rates, key=lambda rate: abs(rate - other)) == pytest.approx(other, rel=0, abs=1e-12)
    omega, mu = some_heads(heads, scale=0.01)
    expected = expm(1.7 * system) @ torch.cat([omega, mu]).numpy()
    found = torch.cat(approximate.linear_start(law, omega, mu, 1.7)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# The state in which all heads have one sign


def same_sign_point(law, shares):
    """All omega_h of the one-head optimum, its mu shared out."""
    shares, one = torch.tensor(shares, dtype=torch.float64), approximate.one_head_optimum(law)
    return torch.full_like(shares, one.omega), shares * one.mu


def hessian_of(law, omega, mu):
    """By autograd, in the order (omega_1 ... omega_H, mu_1 ... mu_H)."""
    return torch.autograd.functional.hessian(
        lambda both: approximate.approximate_loss(law, *both.chunk(2)), torch.cat([omega, mu])
    )


@pytest.mark.parametrize("law", LAWS)
def test_same_sign_eigenvalues_against_the_hessian(law):
    hessian = hessian_of(law, *same_sign_point(law, [0.5, 0.5]))
    values = approximate.same_sign_eigenvalues(law)
    torch.testing.assert_close(torch.linalg.eigvalsh(hessian), values, rtol=1e-9, atol=1e-12)
    q = law.d * share(law) * math.e
    assert values[1:].prod() == pytest.approx(8 * q / (1 + q) * law.d * q / (1 + q) ** 2)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.97, 0.03), (0.2, 0.3, 0.5)])
def test_positive_shares_are_a_local_minimum(law, shares):
    omega, mu = same_sign_point(law, shares)
    gradients = approximate.approximate_gradient(law, omega, mu)
    np.testing.assert_allclose(torch.stack(gradients), 0, atol=1e-12)
    values = torch.linalg.eigvalsh(hessian_of(law, omega, mu))
    np.testing.assert_allclose(values[: len(shares) - 1], 0, atol=1e-10)  # how mu is split
    assert values[len(shares) - 1] > 1e-3
    assert approximate.approximate_loss(law, omega, mu).item() == pytest.approx(approximate.one_head_optimum(law).loss)


# The flow


def test_flow_against_another_integrator():
    omega, mu = some_heads(3, scale=0.3, seed=2)

    def velocity(_, state):
        gradients = approximate.approximate_gradient(LAWS[1], state[:3], state[3:])
        return -0.5 * torch.cat(gradients).numpy()

    other = solve_ivp(velocity, (0, 20), torch.cat([omega, mu]).numpy(), method="DOP853", rtol=1e-11, atol=1e-13)
    flow = approximate.gradient_flow(LAWS[1], omega[None], mu[None], [20.0])
    np.testing.assert_allclose(torch.cat([flow.omega[0, 0], flow.mu[0, 0]]), other.y[:, -1], rtol=1e-6)


def test_phase_field_is_the_flow():
    omegas, mus = torch.linspace(-0.4, 0.5, 4), torch.linspace(-1, 2, 3)
    for kind, signs in (("one head", [1.0]), ("pair", [1.0, -1.0])):
        field = approximate.phase_field(LAWS[1], omegas, mus, kind=kind)
        assert field.loss.shape == field.omega_velocity.shape == (4, 3)
        sign = torch.tensor(signs, dtype=torch.float64)
        start = field.omega[3, 2] * sign, field.mu[3, 2] * sign
        assert start[0][0] == 0.5
        assert start[1][0] == 2
        after = approximate.gradient_flow(LAWS[1], start[0][None], start[1][None], [1e-5])
        torch.testing.assert_close(
            (after.omega[0, 0, 0] - 0.5) / 1e-5, field.omega_velocity[3, 2], rtol=1e-3, atol=1e-4
        )
        torch.testing.assert_close((after.mu[0, 0, 0] - 2) / 1e-5, field.mu_velocity[3, 2], rtol=1e-3, atol=1e-4)
        assert field.loss[3, 2] == approximate.approximate_loss(LAWS[1], *start)
