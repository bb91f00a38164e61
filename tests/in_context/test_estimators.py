"""Estimators: each equals a loop, a least-squares solver or a limit; Bayes is the posterior mean; risks given covariates are means."""

import math

import numpy as np
import pytest
import torch

from attnbook.in_context.estimators import (
    bayes_prediction,
    bayes_risk,
    debiased_step,
    gradient_step,
    kernel_estimator,
    kernel_weights,
    preconditioned_step,
    preconditioned_weights,
    ridge,
    ridge_weights,
)
from attnlib.in_context.errors import conditional_risk
from attnlib.in_context.law import Prompts, RegressionLaw, toeplitz_covariance

D, LENGTH, BATCH = 3, 7, 4
OMEGA, MU = (0.3, -0.7), (1.5, -2.0)


@pytest.fixture
def prompts() -> Prompts:
    law = RegressionLaw(D, LENGTH, 0.3, covariance=toeplitz_covariance(D, 0.4), mean=(0.5, -1.0, 2.0))
    return law.draw(BATCH, 5)


def each(prompts: Prompts):
    """Prompts one by one as numpy: x (L, d), y (L,), query (d,)."""
    for b in range(prompts.y.shape[0]):
        yield prompts.x[b].numpy(), prompts.y[b].numpy(), prompts.query[b].numpy()


def close(found: torch.Tensor, wanted: list) -> None:
    np.testing.assert_allclose(found.numpy(), np.array(wanted), rtol=1e-11, atol=1e-12)


def test_kernel_estimator_is_the_loop(prompts) -> None:
    wanted = []
    for x, y, q in each(prompts):
        total = 0.0
        for omega, mu in zip(OMEGA, MU, strict=True):
            kernel = [math.exp(omega * float(row @ q)) for row in x]
            total += mu * sum(k * label for k, label in zip(kernel, y, strict=True)) / sum(kernel)
        wanted.append(total)
    close(kernel_estimator(prompts, OMEGA, MU), wanted)


def test_gradient_step_is_a_step_of_gradient_descent(prompts) -> None:
    for step in (1.0, -0.3):
        wanted = []
        for x, y, q in each(prompts):
            w = torch.zeros(D, dtype=torch.float64, requires_grad=True)
            loss = (torch.as_tensor(y) - torch.as_tensor(x) @ w).square().sum() / (2 * LENGTH)
            loss.backward()
            wanted.append(float(-step * w.grad.numpy() @ q))
        close(gradient_step(prompts, step), wanted)


def test_debiased_step_is_the_step_on_centred_data(prompts) -> None:
    """Centring labels too changes nothing; moving every covariate and the mean of the labels does not either."""
    wanted = []
    for x, y, q in each(prompts):
        centred, labels = x - x.mean(0), y - y.mean()
        wanted.append(0.8 / LENGTH * sum(labels[i] * (centred[i] @ q) for i in range(LENGTH)))
    close(debiased_step(prompts, 0.8), wanted)
    moved = Prompts(prompts.x + 3.0, prompts.y - 2.0, prompts.query, prompts.target, prompts.beta)
    close(debiased_step(moved, 0.8), wanted)
    assert (gradient_step(moved, 0.8) - gradient_step(prompts, 0.8)).abs().min() > 0.1


def test_preconditioner_of_a_number_is_the_step_and_a_matrix_is_on_the_querys_side(prompts) -> None:
    gamma = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.5, -1.0], [3.0, 0.0, 0.2]], dtype=torch.float64)
    for centred in (False, True):
        same = preconditioned_step(prompts, 0.7 * torch.eye(D), centred=centred)
        torch.testing.assert_close(same, (debiased_step if centred else gradient_step)(prompts, 0.7))
        wanted = []
        for x, y, q in each(prompts):
            shifted = x - x.mean(0) if centred else x
            wanted.append(float(q @ gamma.numpy() @ shifted.T @ y) / LENGTH)
        close(preconditioned_step(prompts, gamma, centred=centred), wanted)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 12, 13, 40])
@pytest.mark.parametrize("penalty", [0.0, 1e-9, 0.8])
def test_ridge_is_augmented_least_squares(length: int, penalty: float) -> None:
    """lstsq on (X; sqrt(penalty) I), which at penalty 0 gives the interpolation of least norm. Both routes of the spectrum."""
    prompts = RegressionLaw(D, length, 0.5).draw(BATCH, length)
    wanted = []
    for x, y, q in each(prompts):
        rows = np.vstack([x, math.sqrt(penalty) * np.eye(D)]) if penalty else x
        labels = np.concatenate([y, np.zeros(D)]) if penalty else y
        wanted.append(q @ np.linalg.lstsq(rows, labels, rcond=None)[0])
    np.testing.assert_allclose(ridge(prompts, penalty), wanted, rtol=1e-6 if 0 < penalty < 1e-3 else 1e-9)


@pytest.mark.parametrize("convention", ["notebook", "repository"])
def test_bayes_is_the_posterior_mean(convention: str) -> None:
    """By conditioning a joint Gaussian of (labels, clean target), in both conventions and with a covariance and a mean."""
    law = RegressionLaw(D, 5, 0.6, convention, toeplitz_covariance(D, -0.5), (1.0, 0.0, -1.0))
    prompts = law.draw(BATCH, 2)
    prior = 1.0 if convention == "notebook" else 1 / D
    noise = D * 0.36 if convention == "notebook" else 0.36
    wanted, variance = [], []
    for x, y, q in each(prompts):
        labels = prior * x @ x.T + noise * np.eye(5)
        cross = prior * x @ q
        wanted.append(cross @ np.linalg.solve(labels, y))
        variance.append(prior * q @ q - cross @ np.linalg.solve(labels, cross))
    close(bayes_prediction(prompts, law), wanted)
    found = conditional_risk(ridge_weights(prompts, law.noise_variance), prompts, law)
    close(found, variance)


def test_risk_given_covariates_is_the_mean_over_tasks_and_noise() -> None:
    """One prompt's covariates, 200 000 regression vectors and noises; every kind of weights; an offset too."""
    for convention in ("notebook", "repository"):
        law = RegressionLaw(D, LENGTH, 0.5, convention)
        one, rng = law.draw(1, 1), np.random.default_rng(0)
        beta = law.beta_std * rng.standard_normal((200_000, D))
        noise = law.label_noise_std * rng.standard_normal((200_000, LENGTH))
        y = beta @ one.x[0].numpy().T + noise
        for weights in (
            kernel_weights(one, OMEGA, MU),
            preconditioned_weights(one, 1.1 * torch.eye(D)),
            preconditioned_weights(one, 0.9 * torch.eye(D), centred=True),
            ridge_weights(one, 2.0),
        ):
            errors = (y @ weights[0].numpy() + 0.4 - beta @ one.query[0].numpy()) ** 2
            found = conditional_risk(weights, one, law, offset=0.4)[0].item()
            assert abs(found - errors.mean()) < 5 * errors.std() / math.sqrt(len(errors))


@pytest.mark.parametrize(
    "law",
    [
        RegressionLaw(3, 2, 0.4),
        RegressionLaw(3, 7, 0.4, "repository"),
        RegressionLaw(3, 20, 0.4, covariance=toeplitz_covariance(3, 0.5), mean=(0.5, 0.0, -1.0)),
    ],
)
def test_bayes_risk_is_the_mean_over_queries(law: RegressionLaw) -> None:
    one = law.draw(1, 4)
    many = law.draw(100_000, 6, role="search").query
    shown = Prompts(one.x[0].expand(len(many), -1, -1), one.y.expand(len(many), -1), many, many[:, 0], many)
    risks = conditional_risk(ridge_weights(shown, law.noise_variance), shown, law)
    found = bayes_risk(one.x, law)[0].item()
    assert abs(found - risks.mean()) < 5 * risks.std() / math.sqrt(len(risks))


@pytest.mark.parametrize(("call", "words"), [
    (lambda p: kernel_estimator(p, (0.1,), (1.0, 2.0)), r"omega and mu must have one shape \(..., heads\); got \(1,\)"),
    (lambda p: kernel_estimator(p, 0.1, 1.0), r"omega and mu must have one shape"),
    (lambda p: kernel_estimator(p, (math.nan,), (1.0,)), "omega must be finite numbers; got"),
    (lambda p: preconditioned_step(p, torch.eye(2)), r"preconditioner must have shape \(..., 3, 3\); got \(2, 2\)"),
])  # fmt: skip
def test_refuses(prompts, call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(prompts)
