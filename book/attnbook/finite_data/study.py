"""What the page of finite data in context draws and measures: ladders of sizes, tasks without prompts, predictors, softmax heads."""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.finite_data import TaskLaw, best_attention, exact_error, extrapolate, fit_attention, limit_error
from attnbook.finite_data.attention import fit_step, sampled_error
from attnbook.finite_data.predictors import estimate_error, ridge_estimate, task_estimate
from attnbook.finite_data.softmax import softmax_rows
from attnlib.randomness import stream

CURVE = (0.25, 0.4, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0)  # tau of the first figure
LARGE = 64  # d where no prompts are fitted
LENGTHS = (25, 100)  # alpha of the transition
TASK_SHARES = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)  # kappa of the second figure
TASK_COUNTS = (1, 2, 3, 5, 10, 20)  # of the softmax heads
RIDGE_SIZES = (8, 16, 32)
_FIRST = 10_000  # runs of different measurements are numbered apart, so that they share no draw


def formula(ladder, law, tasks):
    """The limit at the tau of a ladder and the alpha and kappa of a law, on "fresh" or "seen" tasks."""
    return limit_error(ladder.tau, law.alpha, law.kappa, law.noise, tasks)


def ladder_of(tau, law, laws, fresh, seen):
    """Errors of fitted linear attention at several `sizes` d, (R, sizes): R independent rows; an entry is the mean of several draws.

    `limit`: the extrapolated errors (R,), by tasks. Where alpha d or kappa d is no whole number, a law has another alpha or kappa than the
    limit, which has those of `law`; its errors are first moved by the difference of the formula at the two.
    """
    s = SimpleNamespace(tau=tau, kappa=law.kappa, sizes=tuple(one.d for one in laws), fresh=fresh, seen=seen)
    s.limit = {}
    for tasks, values in (("fresh", fresh), ("seen", seen)):
        moved = [formula(s, law, tasks) - formula(s, one, tasks) for one in laws]
        s.limit[tasks] = extrapolate(s.sizes, values + torch.tensor(moved, dtype=torch.float64))
    return s


def at_kappa(values, kappa):
    """(R,): the column of values (R, TASK_SHARES) whose kappa is nearest to this one."""
    return values[:, min(range(len(TASK_SHARES)), key=lambda i: abs(TASK_SHARES[i] - kappa))]


@dataclass(frozen=True)
class Measurer:
    """What all measurements share: alpha and noise of the prompts, R draws, the seed."""

    alpha: float
    noise: float
    draws: int
    seed: int

    def law(self, kappa, d, alpha=None):
        return TaskLaw(d, max(1, round((alpha or self.alpha) * d)), max(1, round(kappa * d)), self.noise)

    def pair(self, gamma, law, known):
        """(2, R): exact errors on fresh and on the known tasks; of more than R draws, means over as many as there are for a row."""
        pair = torch.stack([exact_error(gamma, law), exact_error(gamma, law, known)])
        return pair.reshape(2, self.draws, -1).mean(-1)

    def ladder(self, tau, law, sizes, each):
        """The number of prompts is tau d (d + 1): the limit is that of tau d^2, and the term in 1/d is smaller."""
        columns, laws = [], [self.law(law.kappa, d) for d in sizes]
        for place, (here, count) in enumerate(zip(laws, each, strict=True)):
            data = here.draw(
                round(tau * here.features), self.seed, runs=self.draws * count, first_run=(1 + place) * _FIRST
            )
            columns.append(self.pair(fit_attention(data), here, data.task_vectors))
        return ladder_of(tau, law, laws, *torch.stack(columns, dim=-1))

    def curve(self, law, penalty):
        """Errors (R, CURVE) of least squares on "fresh" and on "seen" tasks, and with a "penalty", on fresh ones."""
        columns = []
        for place, tau in enumerate(CURVE):
            first = (10 + place) * _FIRST
            data = law.draw(round(tau * law.features), self.seed, runs=self.draws, first_run=first)
            ridge = exact_error(fit_attention(data, penalty=penalty), law)
            columns.append(torch.stack([*self.pair(fit_attention(data), law, data.task_vectors), ridge]))
        return dict(zip(("fresh", "seen", "penalty"), torch.stack(columns, dim=-1), strict=True))

    def plain(self, law, prompts):
        """A Gamma that nobody fitted: exact errors and those counted on whole prompts, on fresh and on seen tasks, (R, 2) each.

        corner (R,): mean square of the last column, the factor of E h_{d+1}^2 in the error; moment: (1 + 2/l)(1 + rho)^2, that mean
        square of h_{d+1}. It is fitted, plus random entries, and 2 in the last column, so that each entry matters.
        """
        data, runs = law.draw(2 * law.features, self.seed, runs=self.draws, first_run=40 * _FIRST), range(self.draws)
        starts = [stream(self.seed, "start", 50 * _FIRST + r).standard_normal((law.d, law.d + 1)) for r in runs]
        gamma = fit_attention(data) + torch.as_tensor(np.stack(starts))
        gamma[..., -1] = 2.0
        both = enumerate((None, data.task_vectors))
        counted = [sampled_error(gamma, law, prompts, self.seed + i, task_vectors=known)[0] for i, known in both]
        exact, corner = self.pair(gamma, law, data.task_vectors).T, gamma[..., -1].square().mean(-1)
        moment = (1 + 2 / law.length) * law.label_variance**2
        return SimpleNamespace(exact=exact, counted=torch.stack(counted, dim=1), corner=corner, moment=moment)

    def one_task(self, d):
        """Twenty times as many prompts as entries of Gamma, all of one task: the fitted `step` of the pattern, and errors on fresh tasks of
        that step (`pattern`) and of all of Gamma, fitted to the same prompts (`full`), (R,) each."""
        law = self.law(1 / d, d)
        data = law.draw(20 * law.features, self.seed, runs=self.draws, first_run=95 * _FIRST)
        step = fit_step(data)
        pattern = torch.nn.functional.pad(step[:, None, None] * torch.eye(d, dtype=torch.float64), (0, 1))
        one, full = (exact_error(gamma, law) for gamma in (pattern, fit_attention(data)))
        return SimpleNamespace(law=law, prompts=20 * law.features, step=step, pattern=one, full=full)

    def unlimited(self, laws, first, each=1):
        """(2, R, laws): errors of the best Gamma of k tasks. Tasks are drawn, prompts are not: moments are exact."""
        columns = []
        for place, law in enumerate(laws):
            known = law.draw_tasks(self.seed, runs=each * self.draws, first_run=(first + place) * _FIRST)
            columns.append(self.pair(best_attention(law, known), law, known))
        return torch.stack(columns, dim=-1)

    def predictors(self, d, prompts):
        columns = []
        for place, law in enumerate(self.law(kappa, d) for kappa in TASK_SHARES):
            same = {"runs": self.draws, "first_run": (80 + place) * _FIRST}
            known, pair = law.draw_tasks(self.seed, **same), []
            for tasks in (None, known):
                drawn = law.draw_prompts(prompts, self.seed, **same, task_vectors=tasks)
                pair.append(estimate_error(task_estimate(drawn, known, self.noise), drawn, self.noise))
            columns.append(torch.stack(pair))
        return torch.stack(columns, dim=-1)

    def ridge(self, prompts):
        columns = []
        for place, d in enumerate(RIDGE_SIZES):
            count, first = prompts * RIDGE_SIZES[-1] // d, (90 + place) * _FIRST
            drawn = self.law(1.0, d).draw_prompts(count, self.seed, runs=self.draws, first_run=first)
            columns.append(estimate_error(ridge_estimate(drawn, self.noise), drawn, self.noise))
        return torch.stack(columns, dim=1)


def make_study(alpha, kappa, noise, *, draws, steps, penalty, softmax_draws, seed):
    """Draw, fit and train everything that the page shows, at its alpha, kappa and noise.

    ladders: tau < 1, tau > 1; unlimited: the best linear attention of k tasks, tau is infinite. shares (2, R, TASK_SHARES): its errors at
    d = `LARGE`, on fresh and on seen tasks; predictors: those of the posterior mean over k tasks. long (R, LENGTHS, 3): its excess over rho
    on fresh tasks there, at kappa = 1/2, 1, 2. ridge_limit (R,): the error of ridge regression, extrapolated. heads: by number of tasks.
    """
    here = Measurer(alpha, noise, draws, seed)
    law, laws = here.law(kappa, 16), [here.law(kappa, d) for d in (16, 32, 64)]
    s = SimpleNamespace(law=law, curve=here.curve(law, penalty), plain=here.plain(here.law(kappa, 6), 20_000))
    s.ladders = [
        here.ladder(0.5, law, (16, 24, 32, 48), (50, 16, 8, 2)),
        here.ladder(2.0, law, (12, 16, 24, 32), (50, 30, 8, 2)),
    ]
    s.unlimited = ladder_of(math.inf, law, laws, *here.unlimited(laws, 50, 4))
    s.shares = here.unlimited([here.law(share, LARGE) for share in TASK_SHARES], 60)
    long = [here.unlimited([here.law(k, LARGE, far) for k in (0.5, 1.0, 2.0)], 70)[0] - noise for far in LENGTHS]
    s.long = torch.stack(long, dim=1)
    s.one_task = here.one_task(16)
    s.predictors = here.predictors(32, 100)
    s.ridge_limit = extrapolate(RIDGE_SIZES, here.ridge(400))
    softmax = {"d": 5, "length": 20, "draws": softmax_draws, "steps": steps, "prompts": 2000}
    s.heads = softmax_rows(TASK_COUNTS, noise=noise, seed=seed, **softmax)
    return s
