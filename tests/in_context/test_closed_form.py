"""Closed forms against prompts drawn from the law, against numerical minimisation, and against arithmetic by hand."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from attnbook.in_context import closed_form
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance

MEAN = (0.8, -0.5, 0.3, 0.0)
LAWS = {
    "notebook": RegressionLaw(d=3, length=7, noise_std=0.5),
    "repository": RegressionLaw(d=5, length=12, noise_std=0.8, convention="repository"),
    "scalar covariate": RegressionLaw(d=1, length=2, noise_std=1.1),
    "covariance": RegressionLaw(d=4, length=9, noise_std=0.4, covariance=toeplitz_covariance(4, 0.6)),
    "mean": RegressionLaw(d=4, length=6, noise_std=0.3, mean=MEAN),
    "both": RegressionLaw(
        d=4, length=11, noise_std=0.7, convention="repository", mean=MEAN, covariance=toeplitz_covariance(4, -0.5)
    ),
}
COUNT = 60_000


@pytest.fixture(params=LAWS, scope="module")
def drawn(request):
    law = LAWS[request.param]
    return law, law.draw(COUNT, seed=7)


def assert_measured(prompts, prediction, predicted, *, wrong=None):
    """The sampled risk is the predicted one within four standard errors, and `wrong` is not."""
    loss = (prediction - prompts.clean_target) ** 2
    error = loss.std().item() / math.sqrt(len(loss))
    assert abs(loss.mean().item() - predicted) < 4 * error
    if wrong is not None:
        assert abs(loss.mean().item() - wrong) > 4 * error


def one_step(prompts, gamma, *, centred=False):
    x = prompts.x - prompts.x.mean(-2, keepdim=True) if centred else prompts.x
    return torch.einsum("bi,ij,blj,bl->b", prompts.query, torch.as_tensor(gamma), x, prompts.y) / prompts.length


# Against prompts drawn from the law


def test_zero_predictor(drawn):
    law, prompts = drawn
    risk = closed_form.zero_risk(law)
    assert_measured(prompts, torch.zeros(COUNT), risk, wrong=risk * 1.1)


@pytest.mark.parametrize("step", [0.4, 1.1, -0.3])
def test_one_step_of_gradient_descent(drawn, step):
    law, prompts = drawn
    risk = closed_form.gd_risk(law, step)
    wrong = closed_form.gd_risk(law, step, length=2 * law.length) if step == 1.1 else None
    assert_measured(prompts, one_step(prompts, step * np.eye(law.d)), risk, wrong=wrong)


@pytest.mark.parametrize(("step", "offset"), [(0.4, 0.0), (1.1, 0.0), (0.9, 0.6), (-0.3, -0.4)])
def test_centred_step_with_offset(drawn, step, offset):
    law, prompts = drawn
    prediction = one_step(prompts, step * np.eye(law.d), centred=True) + offset * prompts.y.mean(-1)
    risk = closed_form.debiased_gd_risk(law, step, offset=offset)
    longer = closed_form.debiased_gd_risk(law, step, offset=offset, length=2 * law.length)
    assert_measured(prompts, prediction, risk, wrong=longer if step > 0.5 else None)


@pytest.mark.parametrize("centred", [False, True])
def test_any_preconditioner(drawn, centred):
    law, prompts = drawn
    gamma = 0.5 * np.eye(law.d) + 0.2 * np.random.default_rng(law.d).standard_normal((law.d, law.d))  # not symmetric
    predicted = closed_form.preconditioned_gd_risk(law, gamma, centred=centred)
    assert_measured(prompts, one_step(prompts, gamma, centred=centred), predicted)
    if centred:
        with_offset = one_step(prompts, gamma, centred=True) + 0.6 * prompts.y.mean(-1)
        assert_measured(prompts, with_offset, closed_form.preconditioned_gd_risk(law, gamma, centred=True, offset=0.6))
    if law.covariance is not None:  # the transpose is another predictor
        swapped = closed_form.preconditioned_gd_risk(law, gamma.T, centred=centred)
        assert swapped != pytest.approx(predicted, rel=1e-3)


def test_ridge_lies_between_the_bounds():
    for law in (LAWS["notebook"], LAWS["covariance"]):
        prompts = law.draw(COUNT, seed=3)
        gram = prompts.x.mT @ prompts.x + law.noise_variance * torch.eye(law.d, dtype=torch.float64)
        moments = torch.einsum("bli,bl->bi", prompts.x, prompts.y)
        loss = ((torch.linalg.solve(gram, moments) * prompts.query).sum(-1) - prompts.clean_target) ** 2
        error = loss.std().item() / math.sqrt(COUNT)
        assert loss.mean().item() > closed_form.bayes_risk_lower_bound(law) - 4 * error
        assert loss.mean().item() < closed_form.bayes_risk_leading_order(law) + 4 * error
        beta = torch.linalg.solve(prompts.x.mT @ prompts.x, moments)  # least squares: the leading form is exact
        squares = closed_form.bayes_risk_leading_order(law)
        assert_measured(prompts, (beta * prompts.query).sum(-1), squares, wrong=squares * law.d / (law.d + 1))


@pytest.mark.parametrize("length", [60, 300, 1200])
def test_proportional_limit_of_ridge(length):
    law = RegressionLaw(d=300, length=length, noise_std=math.sqrt(3), convention="repository")
    x = np.random.default_rng(5).standard_normal((length, 300))
    spectrum = np.linalg.svd(x, compute_uv=False) ** 2
    spectrum = np.concatenate([spectrum, np.zeros(300 - len(spectrum))])
    exact = law.beta_std**2 * law.noise_variance * (1 / (spectrum + law.noise_variance)).sum()
    assert closed_form.bayes_risk_proportional(law) == pytest.approx(exact, rel=5e-3)  # one draw of size 300
    assert abs(closed_form.bayes_risk_proportional(dataclasses.replace(law, noise_std=1.2)) / exact - 1) > 0.02


@pytest.mark.parametrize(
    ("d", "length", "s2"), [(1, 1, 1.0), (3, 2, 1.0), (5, 5, 0.05), (20, 10, 2.0), (20, 20, 0.2), (8, 64, 8.0)]
)
def test_ridge_lies_between_two_lengths(d, length, s2):
    """For every d and L: the sampled risk of ridge lies between B(L + 1) and B(L - 1), roots of s t^2 + (s + L' - d) t = d times s."""
    law = RegressionLaw(d=d, length=length, noise_std=math.sqrt(s2 / d))
    x = np.random.default_rng([d, length]).standard_normal((4000, length, d))
    values = s2 * np.trace(np.linalg.inv(np.einsum("nli,nlj->nij", x, x) + s2 * np.eye(d)), axis1=1, axis2=2)
    error = values.std() / math.sqrt(len(values))
    low, high = closed_form.bayes_risk_bounds(law)
    for bound, there in ((low, length + 1), (high, length - 1)):
        roots = np.roots([s2, s2 + there - d, -d])
        assert bound == pytest.approx(s2 * roots[roots > 0][0])
    assert low - 4 * error < values.mean() < high + 4 * error
    assert 0 < high - low < 2
    # The sizes are told apart: two examples more or less and the bound is on the other side, where it is tight.
    assert high - low > 10 * error


@pytest.mark.parametrize(("xi", "noise"), [(0.2, 3.0), (0.125, 1e-4), (1.0, 0.5), (2.5, 0.1)])
def test_factor_to_ridge_at_a_fixed_ratio(xi, noise):
    law = RegressionLaw(d=1000, length=round(1000 / xi), noise_std=math.sqrt(noise))
    found = closed_form.bayes_factor_proportional(xi, noise)
    assert found == pytest.approx(closed_form.gd_risk_proportional(law) / closed_form.bayes_risk_proportional(law))
    assert closed_form.debiased_gd_optimal_risk(law) / found == pytest.approx(
        np.mean(closed_form.bayes_risk_bounds(law)), rel=2e-3
    )


# Two-number heads


def heads(prompts, omega, mu):
    scores = torch.einsum("bld,bd->bl", prompts.x, prompts.query)
    weights = torch.softmax(torch.as_tensor(omega, dtype=torch.float64)[:, None, None] * scores, -1)
    return torch.einsum("h,hbl,bl->b", torch.as_tensor(mu, dtype=torch.float64), weights, prompts.y)


@pytest.mark.parametrize("name", ["covariance", "mean", "both"])
@pytest.mark.parametrize("factor", [0.05, 3.0])
def test_curvature_of_heads_with_any_matrix(name, factor):
    """The same for covariates N(m, Sigma) and heads +-omega N, N not symmetric: a short step and a long one weigh the terms differently."""
    law = dataclasses.replace(LAWS[name], length=7)
    N = np.eye(4) + 0.3 * np.random.default_rng(5).standard_normal((4, 4))
    step = factor * 4 / np.trace(law.covariance_matrix.numpy() @ N)
    prompts, s2 = law.draw(100_000, seed=12), law.noise_variance
    scores = torch.einsum("bld,de,be->bl", prompts.x, torch.as_tensor(N), prompts.query)

    def risk(weights):
        residual = torch.einsum("bl,bld->bd", weights, prompts.x) - prompts.query
        return law.beta_std**2 * ((residual**2).sum(-1) + s2 * (weights**2).sum(-1))

    def quotient(omega):
        pair = step / 2 / omega * (torch.softmax(omega * scores, -1) - torch.softmax(-omega * scores, -1))
        return (risk(pair) - risk(step * (scores - scores.mean(-1, keepdim=True)) / law.length)) / omega**2

    curvature = (4 * quotient(0.005) - quotient(0.01)) / 3
    error = curvature.std().item() / math.sqrt(len(curvature))
    predicted = closed_form.opposite_pair_curvature(law, step, matrix=N)
    assert abs(curvature.mean().item() - predicted) < 4 * error
    assert error < 0.05 * abs(predicted)
    wrong = closed_form.opposite_pair_curvature(law, step, matrix=1.1 * N)
    assert abs(curvature.mean().item() - wrong) > 4 * error


def test_a_pair_of_finite_omega_beats_debiased_gradient_descent():
    for law in (RegressionLaw(d=5, length=40), LAWS["notebook"], RegressionLaw(d=2, length=3, noise_std=4.0)):
        step = closed_form.debiased_gd_optimal_step(law)
        expected = -4 * step * law.d * (law.d + 2) * (law.length - 1) / law.length**2
        expected *= law.beta_std**2 / (law.length + law.d + law.noise_variance)
        assert closed_form.opposite_pair_curvature(law, step) == pytest.approx(expected)
    assert closed_form.opposite_pair_curvature(law, 0.5 * step) > 0


def test_floor_is_where_both_steps_end():
    law = RegressionLaw(d=6, noise_std=0.3)
    assert closed_form.softmax_floor(law, [0.5, 0.9, 1.0]) == pytest.approx([1.5, 0.06, 0.0], abs=1e-12)
    assert closed_form.gd_risk(law, 0.9, length=10**12) == pytest.approx(0.06, rel=1e-8)
    skewed = dataclasses.replace(law, covariance=toeplitz_covariance(6, 0.4), mean=(0.2,) * 6)
    limit = closed_form.debiased_gd_risk(skewed, 0.7, offset=0.4, length=10**12)
    assert closed_form.softmax_floor(skewed, 0.7, offset=0.4) == pytest.approx(limit, rel=1e-8)


# Best steps and matrices against numerical minimisation


@pytest.mark.parametrize("name", LAWS)
def test_best_steps_minimise(name):
    law = LAWS[name]
    for risk, step, best in (
        (closed_form.gd_risk, closed_form.gd_optimal_step, closed_form.gd_optimal_risk),
        (closed_form.debiased_gd_risk, closed_form.debiased_gd_optimal_step, closed_form.debiased_gd_optimal_risk),
    ):
        found = minimize(lambda e, risk=risk: float(risk(law, e[0])), [0.5], tol=1e-10)
        assert step(law) == pytest.approx(found.x[0], rel=1e-4)
        assert best(law) == pytest.approx(found.fun, rel=1e-9)


@pytest.mark.parametrize("name", ["notebook", "mean", "both"])
def test_best_centred_heads_minimise(name):
    law = LAWS[name]

    def risk(both):
        gamma = both[1:].reshape(law.d, law.d)
        return float(closed_form.preconditioned_gd_risk(law, gamma, centred=True, offset=both[0]))

    found = minimize(risk, np.zeros(1 + law.d**2), tol=1e-9)
    gamma, offset, least = closed_form.best_centred_heads(law)
    assert least == pytest.approx(found.fun, rel=1e-7)
    assert np.append(offset, gamma) == pytest.approx(found.x, abs=1e-4)
    longer = closed_form.best_centred_heads(law, length=[3, law.length])
    assert longer[0][1] == pytest.approx(gamma)
    assert longer[2][1] == pytest.approx(least)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("name", ["notebook", "covariance", "both"])
def test_best_preconditioner_minimises(name, centred):
    law = LAWS[name]
    best = closed_form.best_preconditioner(law, centred=centred)
    least = closed_form.preconditioned_gd_risk(law, best, centred=centred)
    start = np.zeros(law.d**2)
    found = minimize(
        lambda g: float(closed_form.preconditioned_gd_risk(law, g.reshape(law.d, law.d), centred=centred)),
        start,
        tol=1e-9,
    )
    assert least == pytest.approx(found.fun, rel=1e-7)
    assert best.ravel() == pytest.approx(found.x, abs=1e-4)


# Arithmetic by hand


def test_isotropic_forms_by_hand():
    law = RegressionLaw(d=3, length=7, noise_std=0.5)  # s2 = 3 / 4
    assert closed_form.gd_risk(law, 0.6) == pytest.approx(3 * (1 - 1.2 + 0.36 * (1 + 4.75 / 7)))
    assert closed_form.gd_optimal_step(law) == pytest.approx(7 / 11.75)
    assert closed_form.gd_optimal_risk(law) == pytest.approx(3 * 4.75 / 11.75)
    assert closed_form.debiased_gd_risk(law, 0.6) == pytest.approx(3 * (1 - 1.2 * 6 / 7 + 0.36 * 6 * 10.75 / 49))
    assert closed_form.debiased_gd_optimal_step(law) == pytest.approx(7 / 10.75)
    assert closed_form.debiased_gd_optimal_risk(law) == pytest.approx(3 * 4.75 / 10.75)
    assert closed_form.bayes_risk_lower_bound(law) == pytest.approx(0.75 * 3 / 7.75)
    assert closed_form.gd_risk_proportional(law) == pytest.approx(3 * (1 - 1 / (1 + 3 / 7 * 1.25)))


# Conventions and shapes


def test_steps_and_lengths_broadcast():
    law, steps, lengths = LAWS["both"], np.array([0.2, 0.9, 1.4]), np.array([[2], [9]])
    for risk in (closed_form.gd_risk, closed_form.debiased_gd_risk):
        both = risk(law, steps, length=lengths)
        assert both.shape == (2, 3)
        assert both[1, 2] == risk(law, 1.4, length=9)
    stack = closed_form.preconditioned_gd_risk(law, steps[:, None, None] * np.eye(4), length=lengths)
    assert stack == pytest.approx(closed_form.gd_risk(law, steps, length=lengths))
    assert closed_form.linear_attention_risk(law, 11, normalised=True) == pytest.approx(
        closed_form.preconditioned_gd_risk(law, closed_form.best_preconditioner(law))
    )


def test_one_example():
    law = RegressionLaw(d=2, length=1, noise_std=0.5)
    assert closed_form.debiased_gd_risk(law, [0.3, 5.0]) == pytest.approx([2.0, 2.0])  # nothing is left to centre
    assert closed_form.debiased_gd_optimal_step(law) == pytest.approx(1 / (1 + 2 + 0.5))
