"""Claims E1 to E12: finite data in context. Each judge takes a `Study` and a constant (1 is the claim, `wrong` its negative control)."""

import math

import torch

from attnbook.finite_data.limits import limit_error, pattern_error, ridge_error
from attnbook.finite_data.study import CURVE, LARGE, Ladder, Study
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, agrees, both, mean_within, median_within, statistic_within, within

CLAIMS = ClaimSet("finite_data")


def _limits(study: Study, ladder: Ladder, kappa: float) -> Evidence:
    alpha, noise = study.law.alpha, study.law.noise
    pairs = ((ladder.limit(tasks), limit_error(ladder.tau, alpha, kappa, noise, tasks)) for tasks in ("fresh", "seen"))
    return both(*(agrees(*pair) for pair in pairs))


@CLAIMS.claim("E1", wrong=0.63, box="prop-finite-data-moments")
def exact_errors(study: Study, constant: float) -> Evidence:
    r"""the error of any linear attention, exactly
    the error of any $\Gamma$ on new prompts is $1+\rho+\frac1d\mathrm{tr}(\Gamma B\Gamma^\top)-\frac2d\mathrm{tr}(\Gamma A)$, with the
    moments $A$, $B$ of fresh tasks or of the tasks of pretraining, at every $d$ and $l$
    wrong: the mean square $1+\rho^2$ of the last feature, as in one of the authors' programs, in place of $(1+\frac2l)(1+\rho)^2$"""
    predicted = study.plain.exact + (constant - 1) * study.plain.moment * study.plain.corner[:, None]
    return both(*(agrees(study.plain.counted[:, i], predicted[:, i]) for i in (0, 1)))


@CLAIMS.claim("E2", wrong=math.inf, source=Source.CODE, box="prop-finite-data-few", uses="E1")
def few_prompts(study: Study, constant: float) -> Evidence:
    r"""the limit for few prompts
    at $\tau=\frac12$ the errors of least squares on fresh and on seen tasks, extrapolated to $d=\infty$, are those of the formula for
    $\tau<1$
    wrong: the formula for a new task in each prompt, $\kappa=\infty$"""
    return _limits(study, study.ladders[0], study.ladders[0].kappa * constant)


@CLAIMS.claim("E3", wrong=math.inf, source=Source.CODE, box="prop-finite-data-many", uses="E1")
def many_prompts(study: Study, constant: float) -> Evidence:
    r"""the limit for many prompts
    at $\tau=2$ the errors of least squares on fresh and on seen tasks, extrapolated to $d=\infty$, are $e_\infty+C/(\tau-1)$
    wrong: the formula for a new task in each prompt, $\kappa=\infty$"""
    return _limits(study, study.ladders[1], study.ladders[1].kappa * constant)


@CLAIMS.claim("E4", wrong=1.25, box="prop-finite-data-unlimited", uses="E1")
def unlimited_prompts(study: Study, constant: float) -> Evidence:
    r"""the limit of unlimited prompts
    the errors of the best linear attention for $k$ tasks, extrapolated to $d=\infty$, are those of Marchenko and Pastur's law
    wrong: a quarter more tasks"""
    return _limits(study, study.unlimited, study.unlimited.kappa * constant)


@CLAIMS.claim("E5", wrong=2.0, box="prop-finite-data-transition", uses="E4")
def transition(study: Study, constant: float) -> Evidence:
    r"""the transition at as many tasks as dimensions
    with unlimited prompts and long ones the excess over the noise on fresh tasks falls like $\alpha^{-1/2}$ for $\kappa=1$, like
    $\alpha^{-1}$ for $\kappa=2$, and stays at $1-\kappa$ for $\kappa=\frac12$
    regime: exponents between $\alpha=25$ and $100$, within 0.1
    wrong: $\alpha^{-1}$ at $\kappa=1$ too"""

    def exponent(pairs: torch.Tensor) -> float:
        short, long = pairs.mean(0).tolist()
        return math.log(short / long) / math.log(4)

    wanted = (0.0, 0.5 * constant, 1.0)
    return both(*(
        statistic_within(exponent, study.long[..., i], low=w - 0.1, high=w + 0.1, quantity="exponent") for i, w in enumerate(wanted)
    ))  # fmt: skip


@CLAIMS.claim("E6", wrong=0.0, source=Source.MEASURED, box="prop-finite-data-many", uses="E1")
def peak(study: Study, constant: float) -> Evidence:
    """double descent, and its cure
    at $n=d(d+1)$ prompts and $d=16$ the median error on fresh tasks is more than ten times that of predicting zero; with the page's
    penalty, on the same prompts, it is less than three times it
    wrong: a peak of the penalised fit"""
    (plain, _, ridge), zero = study.curve[..., CURVE.index(1.0)], study.law.label_variance
    return both(
        median_within(plain if constant else ridge, low=10 * zero, quantity="median without penalty"),
        median_within(ridge, high=3 * zero, quantity="median with penalty"),
    )


@CLAIMS.claim("E7", wrong=1.5, box="prop-finite-data-ridge")
def ridge(study: Study, constant: float) -> Evidence:
    r"""ridge regression on the prompt
    the error of ridge regression on the examples of a prompt, extrapolated to $d=\infty$, is $\rho+\frac\rho\alpha
    M_\alpha(\frac\rho\alpha)$
    wrong: noise of half as much variance again"""
    return agrees(study.ridge_limit, ridge_error(study.law.alpha, constant * study.law.noise))


@CLAIMS.claim("E8", wrong=2.0, box="prop-finite-data-memory", uses="E4")
def memorising(study: Study, constant: float) -> Evidence:
    r"""the memorising predictor answers with a wrong task
    the posterior mean over $k$ known tasks errs on fresh tasks by more than $1+\rho$, as predicting zero does, and by less than $2+\rho$,
    as an independent task does; the best linear attention of $k$ tasks stays below $1+\rho$
    regime: $d=32$ and $64$, the page's $\alpha$, $\rho$ and $\kappa$
    wrong: twice the error of predicting zero, or more"""
    zero = study.law.label_variance
    return both(
        mean_within(study.at_kappa(study.predictors[0]), low=constant * zero, high=1 + zero, quantity="posterior mean"),
        mean_within(study.at_kappa(study.shares[0]), high=zero, quantity="linear attention"),
    )


@CLAIMS.claim("E9", wrong=0.909, box="thm-finite-data-pattern prop-finite-data-summary", uses="E1")
def pattern_of_one_task(study: Study, constant: float) -> Evidence:
    r"""one task is enough for the pattern
    fitted to prompts of a single task, the step of $\Gamma=(\eta I,0)$ is $\eta=1/(1+\frac1l+q)$, and its error on fresh tasks is
    $1+\rho-\eta$; all of $\Gamma$, fitted to the same prompts, errs by more than predicting zero
    regime: $d=16$, $n=20\,d(d+1)$
    wrong: the step without label noise, $q=1/\alpha$"""
    one = study.one_task
    step = 1 / (1 + 1 / one.law.length + constant * one.law.label_variance / one.law.alpha)
    return both(agrees(one.step, step), mean_within(one.full, low=one.law.label_variance, quantity="all of Gamma"))


@CLAIMS.claim("E10", wrong=1.1, box="thm-finite-data-pattern", uses="E1")
def no_better(study: Study, constant: float) -> Evidence:
    r"""no linear attention undercuts the pattern on fresh tasks
    every linear attention that the page fits, and the best one for each number of tasks, has on fresh tasks at least the error of the best
    step, $1+\rho-1/(1+\frac1l+q)$
    wrong: a bound that is ten per cent higher"""
    law, away = study.law, torch.tensor(CURVE) != 1.0  # at the peak the errors are large
    found = ((study.curve[0][:, away], law.length), (study.shares[0], round(law.alpha * LARGE)))
    return both(*(
        within(values, low=constant * pattern_error(law.alpha, law.noise, length), quantity="error on fresh tasks", share=1)
        for values, length in found
    ))  # fmt: skip


@CLAIMS.claim("E11", wrong=2.0, source=Source.MEASURED, box="prop-finite-data-softmax")
def pair_and_pattern(study: Study, constant: float) -> Evidence:
    r"""the opposite pair survives, its pattern does not
    two softmax heads that start opposite stay opposite at each $k$ (an imbalance below $\frac12$); but less than half of the squared norm
    of their key-query circuits is in the pattern $\omega I$ at $k=2$ tasks, and more than half at $k=20$
    regime: $d=5$, $l=20$, the page's noise and steps
    wrong: a pattern that is all of the circuit at $k=20$"""
    heads, imbalance = study.heads, torch.cat([row.imbalance for row in study.heads.values()])
    return both(
        mean_within(imbalance, high=0.5, quantity="imbalance"),
        mean_within(heads[2].pattern, high=0.5, quantity="pattern at k = 2"),
        mean_within(heads[20].pattern, low=0.5 * constant, quantity="pattern at k = 20"),
    )


@CLAIMS.claim("E12", wrong=4.0, source=Source.MEASURED, box="prop-finite-data-softmax", uses="E4 E11")
def steeper(study: Study, constant: float) -> Evidence:
    """softmax heads memorise more, and the transition is steeper
    at $k=2$ and $3$ tasks trained softmax heads are at least as good on the seen tasks as the best linear attention; on fresh tasks their
    error, over that of linear attention, is at least 1.5 times what it is at $k=20$ (geometric mean over draws)
    regime: $d=5$, $l=20$, the page's noise and steps
    wrong: a factor of six"""
    heads, few = study.heads, [study.heads[k] for k in (2, 3)]
    excess = torch.cat([row.seen - row.linear_seen for row in few])
    ratio = torch.stack([row.log_ratio for row in few]).mean(0) - heads[20].log_ratio
    return both(
        mean_within(excess, high=0.0, quantity="softmax minus linear, seen tasks"),
        mean_within(ratio, low=math.log(1.5 * constant), quantity="log of the ratio"),
    )
