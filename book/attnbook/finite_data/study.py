"""What the page of finite data in context draws and measures: ladders of sizes, tasks without prompts, predictors, softmax heads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.finite_data.softmax import SoftmaxRow, softmax_rows
from attnlib import checks
from attnlib.finite_data import (
    TaskLaw,
    best_attention,
    exact_error,
    extrapolate,
    fit_attention,
    fit_step,
    ridge_estimate,
    sampled_error,
    task_estimate,
)
from attnlib.finite_data.predictors import estimate_error
from attnlib.randomness import stream

__all__ = [
    "CURVE", "LARGE", "TASK_COUNTS", "TASK_SHARES", "Curve", "Ladder", "OneTask", "Plain", "Study", "Unlimited",
    "make_study",
]  # fmt: skip

CURVE = (0.25, 0.4, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0)  # tau of the first figure
LARGE = 64  # d where no prompts are fitted
LENGTHS = (25, 100)  # alpha of the transition
TASK_SHARES = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)  # kappa of the second figure
TASK_COUNTS = (1, 2, 3, 5, 10, 20)  # of the softmax heads
_FIRST = 10_000  # runs of different measurements are numbered apart, so that they share no draw


@dataclass(frozen=True)
class Ladder:
    """Errors of fitted linear attention at several d: R independent rows; an entry is the mean of several draws."""

    tau: float
    kappa: float
    sizes: tuple[int, ...]
    fresh: torch.Tensor  # (R, sizes)
    seen: torch.Tensor  # (R, sizes)

    def limit(self, tasks: str) -> torch.Tensor:
        """(R,): the extrapolated errors on "fresh" or "seen" tasks."""
        return extrapolate(self.sizes, getattr(self, tasks))


@dataclass(frozen=True)
class Curve:
    """Errors at one d over `CURVE`, (R, CURVE): least squares of minimum norm on fresh and on seen tasks, and ridge on fresh ones."""

    law: TaskLaw
    plain: torch.Tensor
    seen: torch.Tensor
    ridge: torch.Tensor


@dataclass(frozen=True)
class Plain:
    """A random Gamma: its exact errors and those counted on whole prompts, on fresh and on seen tasks."""

    exact: torch.Tensor  # (R, 2)
    counted: torch.Tensor  # (R, 2)
    corner: torch.Tensor  # (R,): mean square of the last column, the factor of E h_{d+1}^2 in the error
    moment: float  # (1 + 2/l)(1 + rho)^2, that mean square of h_{d+1}


@dataclass(frozen=True)
class Unlimited:
    """The best linear attention of k tasks, without a prompt being drawn: at d = `LARGE`, and at the sizes of `ladder`."""

    ladder: Ladder  # tau is infinite
    fresh: torch.Tensor  # (R, TASK_SHARES)
    seen: torch.Tensor  # (R, TASK_SHARES)
    long: torch.Tensor  # (R, 3, 2): excess over rho on fresh tasks, at kappa = 1/2, 1, 2 and alpha of `LENGTHS`


@dataclass(frozen=True)
class OneTask:
    """Pretraining on prompts of one task: the fitted step of the pattern, and all of Gamma, both on fresh tasks."""

    law: TaskLaw
    prompts: int
    step: torch.Tensor  # (R,)
    pattern: torch.Tensor  # (R,): error of that step
    full: torch.Tensor  # (R,): error of all of Gamma, fitted to the same prompts


@dataclass(frozen=True)
class Study:
    ladders: tuple[Ladder, ...]  # tau < 1, tau > 1
    curve: Curve
    plain: Plain
    unlimited: Unlimited
    one_task: OneTask
    predictors: torch.Tensor  # (R, 2, TASK_SHARES): error on fresh and on seen tasks of the posterior mean over k tasks
    ridge: torch.Tensor  # (R, 3): ridge regression at three d
    ridge_sizes: tuple[int, ...]
    softmax: tuple[SoftmaxRow, ...]

    @property
    def law(self) -> TaskLaw:
        """That of the curve: alpha, kappa and noise of the page."""
        return self.curve.law

    @property
    def ridge_limit(self) -> torch.Tensor:
        """(R,): the error of ridge regression, extrapolated."""
        return extrapolate(self.ridge_sizes, self.ridge)

    def at_kappa(self, values: torch.Tensor) -> torch.Tensor:
        """(R,): the column of values (R, TASK_SHARES) whose kappa is nearest to the page's."""
        nearest = min(range(len(TASK_SHARES)), key=lambda i: abs(TASK_SHARES[i] - self.ladders[0].kappa))
        return values[:, nearest]

    @property
    def heads(self) -> dict[int, SoftmaxRow]:
        """Softmax heads by their number of tasks."""
        return {row.tasks: row for row in self.softmax}


def _pair(gamma: torch.Tensor, law: TaskLaw, known: torch.Tensor, each: int = 1) -> torch.Tensor:
    """(2, R): exact errors on fresh and on the known tasks, means over `each` draws."""
    pair = torch.stack([exact_error(gamma, law), exact_error(gamma, law, known)])
    return pair.reshape(2, -1, each).mean(-1)


def _law(alpha: float, kappa: float, noise: float, d: int) -> TaskLaw:
    return TaskLaw(d, max(1, round(alpha * d)), max(1, round(kappa * d)), noise)


def measure_ladder(
    tau: float,
    alpha: float,
    kappa: float,
    noise: float,
    *,
    sizes: tuple[int, ...],
    each: tuple[int, ...],
    draws: int,
    seed: int,
) -> Ladder:
    """R rows of a ladder. The number of prompts is tau d (d + 1): the limit is that of tau d^2, and the term in 1/d is smaller."""
    columns = []
    for place, (d, count) in enumerate(zip(sizes, each, strict=True)):
        law = _law(alpha, kappa, noise, d)
        data = law.draw(round(tau * law.features), seed, runs=draws * count, first_run=(1 + place) * _FIRST)
        columns.append(_pair(fit_attention(data), law, data.task_vectors, count))
    return Ladder(tau, kappa, sizes, *torch.stack(columns, dim=-1))


def measure_curve(alpha: float, kappa: float, noise: float, penalty: float, *, d: int, draws: int, seed: int) -> Curve:
    """Errors at one d over tau; the draws of one tau are not those of another."""
    law, columns = _law(alpha, kappa, noise, d), []
    for place, tau in enumerate(CURVE):
        data = law.draw(round(tau * law.features), seed, runs=draws, first_run=(10 + place) * _FIRST)
        ridge = exact_error(fit_attention(data, penalty=penalty), law)
        columns.append(torch.stack([*_pair(fit_attention(data), law, data.task_vectors), ridge]))
    return Curve(law, *torch.stack(columns, dim=-1))


def measure_plain(alpha: float, kappa: float, noise: float, *, d: int, prompts: int, draws: int, seed: int) -> Plain:
    """A Gamma that nobody fitted: a fitted one plus random entries, and 2 in the last column, so that each entry matters."""
    law = _law(alpha, kappa, noise, d)
    data = law.draw(2 * law.features, seed, runs=draws, first_run=40 * _FIRST)
    starts = [stream(seed, "start", 50 * _FIRST + run).standard_normal((d, d + 1)) for run in range(draws)]
    gamma = fit_attention(data) + torch.as_tensor(np.stack(starts))
    gamma[..., -1] = 2.0
    known = data.task_vectors
    counted = [sampled_error(gamma, law, prompts, seed + i, task_vectors=t)[0] for i, t in enumerate((None, known))]
    exact = [exact_error(gamma, law, t) for t in (None, known)]
    corner = gamma[..., -1].square().mean(-1)
    return Plain(
        torch.stack(exact, dim=1), torch.stack(counted, dim=1), corner, (1 + 2 / law.length) * law.label_variance**2
    )


def measure_one_task(alpha: float, noise: float, *, d: int, draws: int, seed: int) -> OneTask:
    """Twenty times as many prompts as entries of Gamma, all of one task."""
    law = TaskLaw(d, max(1, round(alpha * d)), 1, noise)
    data = law.draw(20 * law.features, seed, runs=draws, first_run=95 * _FIRST)
    step = fit_step(data)
    pattern = torch.nn.functional.pad(step[:, None, None] * torch.eye(d, dtype=torch.float64), (0, 1))
    return OneTask(law, 20 * law.features, step, exact_error(pattern, law), exact_error(fit_attention(data), law))


def measure_unlimited(alpha: float, share: float, noise: float, *, draws: int, seed: int) -> Unlimited:
    """Tasks are drawn, prompts are not: moments are exact. `share` is the kappa of the ladder."""
    rungs = []
    for place, d in enumerate((16, 32, 64)):
        law = _law(alpha, share, noise, d)
        known = law.draw_tasks(seed, runs=4 * draws, first_run=(50 + place) * _FIRST)
        rungs.append(_pair(best_attention(law, known), law, known, 4))
    ladder = Ladder(math.inf, share, (16, 32, 64), *torch.stack(rungs, dim=-1))
    columns = []
    for place, kappa in enumerate(TASK_SHARES):
        law = _law(alpha, kappa, noise, LARGE)
        known = law.draw_tasks(seed, runs=draws, first_run=(60 + place) * _FIRST)
        columns.append(_pair(best_attention(law, known), law, known))
    long = []
    for place, kappa in enumerate((0.5, 1.0, 2.0)):
        laws = [_law(length, kappa, noise, LARGE) for length in LENGTHS]
        known = laws[0].draw_tasks(seed, runs=draws, first_run=(70 + place) * _FIRST)
        long.append(torch.stack([exact_error(best_attention(law, known), law) - noise for law in laws], dim=1))
    return Unlimited(ladder, *torch.stack(columns, dim=-1), torch.stack(long, dim=1))


def measure_predictors(alpha: float, noise: float, *, d: int, prompts: int, draws: int, seed: int) -> torch.Tensor:
    """(R, 2, TASK_SHARES): the memorising predictor on fresh and on seen tasks."""
    columns = []
    for place, kappa in enumerate(TASK_SHARES):
        law, first = _law(alpha, kappa, noise, d), (80 + place) * _FIRST
        known = law.draw_tasks(seed, runs=draws, first_run=first)
        pair = []
        for tasks in (None, known):
            drawn = law.draw_prompts(prompts, seed, runs=draws, first_run=first, task_vectors=tasks)
            pair.append(estimate_error(task_estimate(drawn, known, noise), drawn, noise))
        columns.append(torch.stack(pair, dim=1))
    return torch.stack(columns, dim=2)


def measure_ridge(
    alpha: float, noise: float, *, sizes: tuple[int, ...], prompts: int, draws: int, seed: int
) -> torch.Tensor:
    """(R, sizes): ridge regression on the examples of fresh tasks."""
    columns = []
    for place, d in enumerate(sizes):
        law = _law(alpha, 1.0, noise, d)
        drawn = law.draw_prompts(prompts * sizes[-1] // d, seed, runs=draws, first_run=(90 + place) * _FIRST)
        columns.append(estimate_error(ridge_estimate(drawn, noise), drawn, noise))
    return torch.stack(columns, dim=1)


def make_study(
    alpha: float, kappa: float, noise: float, *, draws: int, steps: int, penalty: float, softmax_draws: int, seed: int
) -> Study:
    """Draw, fit and train everything that the page shows. ValueError for an argument out of its range."""
    checks.positive_number("alpha", alpha)
    checks.positive_number("kappa", kappa)
    checks.positive_number("noise", noise, hint="the posterior over known tasks needs noise")
    checks.whole_number("draws", draws, at_least=2)
    ladders = (
        measure_ladder(0.5, alpha, kappa, noise, sizes=(16, 24, 32, 48), each=(50, 16, 8, 2), draws=draws, seed=seed),
        measure_ladder(2.0, alpha, kappa, noise, sizes=(12, 16, 24, 32), each=(50, 30, 8, 2), draws=draws, seed=seed),
    )  # fmt: skip
    ridge_sizes = (8, 16, 32)
    return Study(
        ladders=ladders,
        curve=measure_curve(alpha, kappa, noise, penalty, d=16, draws=draws, seed=seed),
        plain=measure_plain(alpha, kappa, noise, d=6, prompts=20_000, draws=draws, seed=seed),
        unlimited=measure_unlimited(alpha, kappa, noise, draws=draws, seed=seed),
        one_task=measure_one_task(alpha, noise, d=16, draws=draws, seed=seed),
        predictors=measure_predictors(alpha, noise, d=32, prompts=100, draws=draws, seed=seed),
        ridge=measure_ridge(alpha, noise, sizes=ridge_sizes, prompts=400, draws=draws, seed=seed),
        ridge_sizes=ridge_sizes,
        softmax=softmax_rows(
            TASK_COUNTS, d=5, length=20, noise=noise, draws=softmax_draws, steps=steps, prompts=2000, seed=seed
        ),
    )
