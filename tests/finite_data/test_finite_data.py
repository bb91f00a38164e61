"""Finite data in context: law, exact fits, exact errors, limits, predictors; each a second way."""

import math

import numpy as np
import pytest
import torch

from attnbook.finite_data import TaskLaw, best_attention, exact_error, extrapolate, fit_attention, limit_error
from attnbook.finite_data.attention import fit_step, sampled_error
from attnbook.finite_data.law import PretrainingSet, summary_of
from attnbook.finite_data.limits import many_prompts_error, pattern_error, prompt_cost, ridge_error, stieltjes
from attnbook.finite_data.predictors import estimate_error, task_estimate
from tests.bad_input import refusing

LAW = TaskLaw(d=5, length=8, tasks=3, noise=0.3)
NEW = TaskLaw(d=5, length=8, tasks=None, noise=0.3)


# --- law ------------------------------------------------------------------------------------------------------------


def test_drawn_summaries_have_the_law_of_whole_prompts() -> None:
    """Mean and second moments of (h, h x w, target) both ways: drawn by d + 2 numbers, and from the examples."""
    law = TaskLaw(d=3, length=4, tasks=1, noise=0.4)
    data = law.draw(60_000, 3, runs=1)
    whole = law.draw_prompts(60_000, 4, runs=1, task_vectors=data.task_vectors)
    quick = data.summary[0], data.query[0], data.target[0]
    slow = summary_of(whole.x, whole.y)[0], whole.query[0], whole.target[0]
    for h, other in zip(*(moments(*one) for one in (quick, slow)), strict=True):
        difference, error = h.mean(0) - other.mean(0), (h.var(0) + other.var(0)).sqrt() / 60_000**0.5
        assert (difference.abs() < 5 * error).all()


def moments(h: torch.Tensor, query: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
    cubes = h[:, :1] * h[:, 1:2] * h
    return [
        h,
        (h[:, :, None] * h[:, None, :]).flatten(1),
        h * (query * target[:, None])[:, :1],
        cubes,
        target[:, None] ** 2,
    ]


def test_tasks_are_on_the_sphere_shared_by_prompts_and_runs_are_separate() -> None:
    data = LAW.draw(200, 1, runs=3)
    assert data.task_vectors.shape == (3, 3, 5)
    torch.testing.assert_close(data.task_vectors.norm(dim=-1), torch.full((3, 3), 5**0.5, dtype=torch.float64))
    torch.testing.assert_close(data.task_vectors, LAW.draw_tasks(1, runs=3))
    torch.testing.assert_close(LAW.draw(200, 1, runs=1, first_run=2).summary[0], data.summary[2])
    assert not torch.equal(data.query[0], data.query[1])
    assert NEW.draw(7, 1, runs=2).task_vectors.shape == (2, 7, 5)
    quiet = TaskLaw(d=5, length=8, tasks=3, noise=0.0).draw(200, 1, runs=1)
    products = torch.einsum("nd,kd->nk", quiet.query[0], quiet.task_vectors[0])
    gaps = (products - quiet.target[0][:, None]).abs()
    torch.testing.assert_close(gaps.min(1).values, torch.zeros(200, dtype=torch.float64), rtol=0, atol=1e-12)
    counts = torch.bincount(gaps.argmin(1), minlength=3)
    assert counts.min() > 40


# --- fits -----------------------------------------------------------------------------------------------------------


def features(data: PretrainingSet, run: int) -> torch.Tensor:
    return torch.einsum("ni,nj->nij", data.query[run], data.summary[run]).flatten(1)


@pytest.mark.parametrize("prompts", [6, 25, 29, 40, 200])
def test_least_squares_is_that_of_a_pseudo_inverse(prompts: int) -> None:
    data = LAW.draw(prompts, 2, runs=2)
    found = fit_attention(data)
    for run in range(2):
        expected = torch.linalg.pinv(features(data, run)) @ data.target[run]
        torch.testing.assert_close(found[run].flatten(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("prompts", [12, 90])
def test_a_penalty_is_extra_rows_of_the_design(prompts: int) -> None:
    data = LAW.draw(prompts, 2, runs=2)
    found = fit_attention(data, penalty=0.7)
    extra = math.sqrt(prompts * 0.7 / 5) * torch.eye(30, dtype=torch.float64)
    for run in range(2):
        design = torch.cat([features(data, run), extra])
        target = torch.cat([data.target[run], torch.zeros(30, dtype=torch.float64)])
        torch.testing.assert_close(found[run].flatten(), torch.linalg.lstsq(design, target[:, None]).solution[:, 0])


def test_the_step_is_least_squares_in_one_number() -> None:
    data = LAW.draw(50, 2, runs=2)
    for run in range(2):
        pattern = torch.nn.functional.pad(torch.eye(5, dtype=torch.float64), (0, 1)).flatten()
        design = features(data, run) @ pattern
        assert fit_step(data)[run].item() == pytest.approx(
            (torch.linalg.pinv(design[:, None]) @ data.target[run]).item()
        )


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seen", [False, True])
def test_the_exact_error_is_that_of_whole_prompts(seen: bool) -> None:
    gamma = torch.as_tensor(np.random.default_rng(1).standard_normal((4, 5, 6)))
    known = LAW.draw_tasks(7, runs=4) if seen else None
    exact = exact_error(gamma, LAW, known)
    mean, error = sampled_error(gamma, LAW, 20_000, 8, task_vectors=known)
    assert ((mean - exact).abs() < 4.5 * error).all()
    assert (error < 0.04 * exact).all()


def test_the_best_attention_has_no_slope_and_least_squares_tends_to_it() -> None:
    known = LAW.draw_tasks(7, runs=2)
    for tasks in (None, known):
        best = best_attention(LAW, tasks).expand(2, 5, 6).clone().requires_grad_()
        exact_error(best, LAW, tasks).sum().backward()
        assert best.grad is not None
        torch.testing.assert_close(best.grad, torch.zeros_like(best.grad), rtol=0, atol=1e-12)
    data = LAW.draw(40_000, 7, runs=2)
    fitted = exact_error(fit_attention(data), LAW, known)
    least = exact_error(best_attention(LAW, known), LAW, known)
    assert (fitted >= least).all()
    assert (fitted / least < 1.01).all()


def test_one_task_without_noise_has_many_best_matrices() -> None:
    """Their last column is free: what is returned solves the normal equations and is the one of least norm."""
    for tasks in (1, 2):
        law = TaskLaw(d=4, length=8, tasks=tasks, noise=0.0)
        known = law.draw_tasks(3, runs=1)[0]
        best = best_attention(law, known)
        drawn = law.draw(3000, 3, runs=1)
        h = drawn.summary[0]
        fitted = torch.linalg.lstsq(
            (drawn.query[0, :, :, None] * h[:, None, :]).flatten(1), drawn.target[0], driver="gelsd"
        ).solution.reshape(4, 5)
        assert exact_error(fitted, law, known).item() == pytest.approx(exact_error(best, law, known).item(), rel=0.02)
        assert (fitted - best).abs().max() < 0.05
        null = torch.cat([known[0], torch.tensor([-4.0], dtype=torch.float64)])  # <w, h> = d h_{d+1}, with one task
        moved = exact_error(best + 0.1 * null, law, known) - exact_error(best, law, known)
        if tasks == 1:
            for zero in (h @ null, moved, best @ null):
                torch.testing.assert_close(zero, torch.zeros_like(zero), rtol=0, atol=1e-12)
        else:
            assert (h @ null).abs().max() > 0.1
            assert abs(moved) > 1e-4


def test_no_matrix_undercuts_the_pattern() -> None:
    best = best_attention(LAW)
    assert exact_error(best, LAW).item() == pytest.approx(pattern_error(LAW.alpha, LAW.noise, LAW.length), rel=1e-12)
    step = 1.3 - pattern_error(LAW.alpha, LAW.noise, LAW.length)
    torch.testing.assert_close(best, torch.nn.functional.pad(step * torch.eye(5, dtype=torch.float64), (0, 1)))
    one = LAW.draw_tasks(3, runs=1)[:, :1]  # the same step is the best on one task, by a scan
    steps = torch.linspace(0.8, 1.2, 401, dtype=torch.float64) * step
    pattern = torch.nn.functional.pad(steps[:, None, None] * torch.eye(5, dtype=torch.float64), (0, 1))
    assert exact_error(pattern, LAW, one.expand(401, 1, 5)).argmin() == 200


# --- limits ---------------------------------------------------------------------------------------------------------


def spectrum(kappa: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Marchenko and Pastur's law of k tasks in d dimensions, an atom at zero for kappa < 1 included."""
    nodes = np.cos(np.pi * np.arange(1, 2001) / 2001)
    ratio = 1 / kappa
    values = 1 + ratio + 2 * math.sqrt(ratio) * nodes
    weights = (1 - nodes**2) / values
    weights *= min(1.0, kappa) / weights.sum()
    return np.append(values, 0.0), np.append(weights, max(0.0, 1 - kappa))


@pytest.mark.parametrize("kappa", [0.3, 0.8, 1.7, 6.0])
def test_unlimited_prompts_by_the_spectrum(kappa: float) -> None:
    alpha, noise = 1.3, 0.2
    q, (values, weights) = 1.2 / 1.3, spectrum(kappa)
    shrunk = values / (values + q)
    assert stieltjes(q, kappa) == pytest.approx((weights / (values + q)).sum(), rel=1e-8)
    fresh = 1.2 - 2 * (weights * shrunk).sum() + (1 + q) * (weights * shrunk**2).sum()
    seen = 1.2 - (weights * values * shrunk).sum()
    assert many_prompts_error(alpha, kappa, noise) == pytest.approx(fresh, rel=1e-8)
    assert many_prompts_error(alpha, kappa, noise, "seen") == pytest.approx(seen, rel=1e-8)


@pytest.mark.parametrize("tasks", ["fresh", "seen"])
def test_the_two_branches_meet_in_one_pole(tasks: str) -> None:
    for kappa in (0.4, 1.0, 3.0):
        cost = prompt_cost(0.9, kappa, 0.2, tasks)
        for side in (-1, 1):
            assert 1e-6 * limit_error(1 + side * 1e-6, 0.9, kappa, 0.2, tasks) == pytest.approx(cost, rel=1e-4)
    assert limit_error(1.0, 0.9, 1.0, 0.2, tasks) == math.inf
    assert limit_error(1e9, 0.9, 1.0, 0.2, tasks) == pytest.approx(many_prompts_error(0.9, 1.0, 0.2, tasks))


def test_limits_of_the_limits() -> None:
    assert limit_error(1e-9, 1.0, 2.0, 0.1) == pytest.approx(1.1, rel=1e-6)  # no prompts: zero is predicted
    assert limit_error(1e-9, 1.0, 2.0, 0.1, "seen") == pytest.approx(1.1, rel=1e-6)
    for tasks in ("fresh", "seen"):  # a new task in each prompt: both are the same
        for tau in (0.3, 4.0):
            assert limit_error(tau, 1.0, math.inf, 0.1, tasks) == pytest.approx(
                limit_error(tau, 1.0, 1e8, 0.1), rel=1e-6
            )
    assert many_prompts_error(1.0, math.inf, 0.1) == pytest.approx(pattern_error(1.0, 0.1))
    for kappa, excess in ((0.25, 0.75), (4.0, 1.1e-8), (1.0, 0.5 * math.sqrt(1.1e-8))):
        assert many_prompts_error(1e8, kappa, 0.1) - 0.1 == pytest.approx(excess, rel=2e-3)
    assert stieltjes(1e-9, 0.01) * 1e-9 == pytest.approx(0.99, rel=1e-9)  # no digits lost where k is far below d


def test_ridge_regression_by_its_spectrum() -> None:
    values, weights = spectrum(1.8)
    expected = 0.2 + 0.2 * (weights / (1.8 * values + 0.2)).sum()
    assert ridge_error(1.8, 0.2) == pytest.approx(expected, rel=1e-8)


def test_extrapolation_is_exact_for_its_polynomials_and_ignores_the_order() -> None:
    d = torch.tensor([8.0, 12.0, 20.0, 44.0], dtype=torch.float64)
    values = torch.stack([2 - 3 / d + 40 / d**2, 1 + 0 * d])
    torch.testing.assert_close(extrapolate(d.tolist(), values), torch.tensor([2.0, 1.0], dtype=torch.float64))
    noisy = values + torch.tensor([0.1, -0.2, 0.05, 0.01])
    design = np.stack([np.ones(4), 1 / d.numpy(), 1 / d.numpy() ** 2], axis=1)
    fit = np.linalg.solve(
        design.T @ np.diag(d.numpy() ** 2) @ design, design.T @ np.diag(d.numpy() ** 2) @ noisy[0].numpy()
    )
    assert extrapolate(d.tolist(), noisy)[0].item() == pytest.approx(fit[0], rel=1e-9)


# --- predictors -----------------------------------------------------------------------------------------------------


def test_the_posterior_mean_by_bayes_rule() -> None:
    known = LAW.draw_tasks(2, runs=2)
    prompts = LAW.draw_prompts(3, 2, runs=2, task_vectors=known)
    found = task_estimate(prompts, known, 0.3)
    weights = [
        math.exp(-sum((prompts.y[1, 2, i] - prompts.x[1, 2, i] @ task).item() ** 2 for i in range(8)) / 0.6)
        for task in known[1]
    ]
    expected = sum(w * task for w, task in zip(weights, known[1], strict=True)) / sum(weights)
    torch.testing.assert_close(found[1, 2], expected)
    error = estimate_error(found, prompts, 0.3)
    by_hand = 0.3 + ((found - prompts.task) ** 2).sum(-1).mean(-1) / 5
    torch.testing.assert_close(error, by_hand)


# --- refused input --------------------------------------------------------------------------------------------------


def law(**changes) -> TaskLaw:
    return TaskLaw(**({"d": 4, "length": 4, "tasks": 2, "noise": 0.1} | changes))


test_refusals = refusing(
    (lambda: LAW.draw(2, 0, runs=1), "prompts must be at least the number of tasks, 3; got 2"),
    (lambda: NEW.draw_tasks(0, runs=1), "got None: a new task in each prompt"),
    (
        lambda: fit_attention(law(tasks=1, noise=0.0).draw(20, 0, runs=1)),
        "those of one task without label noise are not",
    ),
    (lambda: fit_attention(law(tasks=1, noise=0.0).draw(90, 0, runs=1)), "give a penalty > 0, or noise"),
    (lambda: exact_error(torch.zeros(6, 5, dtype=torch.float64), LAW), "gamma must have shape"),
    (lambda: best_attention(LAW, torch.zeros(2, 4, dtype=torch.float64)), "task_vectors must have shape"),
    (lambda: extrapolate([8, 16], torch.zeros(2, 2)), r"sizes must be three different d or more .* got \[8, 16\]"),
    (lambda: extrapolate([8, 16, 32], torch.zeros(2, 2)), "values must have shape"),
    (lambda: limit_error(0.5, 1.0, 0.0, 0.1), "kappa must be a finite number > 0; got 0"),
    (lambda: limit_error(math.inf, 1.0, 1.0, -1.0), "noise must be >= 0; got -1"),
    (limit_error, (0.5, 1.0, 1.0, 0.1), {"tau": 0.0, "alpha": -1.0, "tasks": "new"}),
)
