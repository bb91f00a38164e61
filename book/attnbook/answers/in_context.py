"""Answers of Part III."""

import math
from dataclasses import replace

import numpy as np

from attnbook.answers import crossing, exercise
from attnbook.in_context.closed_form import (
    bayes_risk_proportional,
    debiased_gd_optimal_risk,
    debiased_gd_optimal_step,
    debiased_gd_risk,
    gd_optimal_risk,
    gd_risk_proportional,
)
from attnbook.in_context.deeper_and_wider.multi_task import MultiTaskLaw, best_linear_maps
from attnbook.in_context.optimum import one_head_optimum
from attnbook.in_context.what_holds_the_pattern.study import rates_at_zero
from attnlib.in_context.law import RegressionLaw

LAW = RegressionLaw(d=5, length=40, noise_std=0.01)  # of every page but the last


@exercise(
    "01-data-and-model/3", "This expectation for $s_i = 3$, $\\langle x_q, \\beta\\rangle = 2$ and $|x_q|^2 = 5$.", 2
)
def conditional_label() -> float:
    # The same by conditioning two Gaussians: E[y | s] = Cov(y, s) / Var(s) * s, with x standard normal given x_q and beta.
    query, beta = np.array([math.sqrt(5.0), 0.0]), np.array([2 / math.sqrt(5.0), 1.0])
    return float(beta @ query / (query @ query) * 3)


@exercise(
    "01-data-and-model/5", "The size of its entries after the page's 2000 steps, as a fraction of that at the start.", 3
)
def decay_of_the_column() -> float:
    # AdamW with a gradient of zero: each step multiplies by 1 - learning rate * weight decay, and adds nothing.
    column = 1.0
    for _ in range(2000):
        column *= 1 - 0.001 * 0.01
    return column


@exercise("02-training/1", "That number of batches, if the risk of one batch has the standard deviation 0.13.", 2)
def batches_to_average() -> float:
    return crossing(lambda count: 2 * 0.13 / math.sqrt(count) - (0.674 - 0.667), 1.0, 1e6)


@exercise("02-training/2", "The risk at which it levels off.", 2, slow=True)
def best_risk_of_one_head() -> float:
    return float(one_head_optimum(LAW).risk)


@exercise("03-circuits/1", "That standard deviation on this page, where tokens have six entries.", 3)
def entry_at_the_start() -> float:
    # Entries of K and Q are uniform on +-1/sqrt(n), and M = K'Q / sqrt(n).
    n = LAW.d + 1
    variance_of_an_entry = (2 / math.sqrt(n)) ** 2 / 12
    return math.sqrt(n * variance_of_an_entry**2 / n)


@exercise("04-what-the-heads-compute/2", "That difference at $d = 5$, $L = 40$ and $\\sigma = 0.01$.", 3)
def price_of_centring() -> float:
    return float(debiased_gd_optimal_risk(LAW) - gd_optimal_risk(LAW))


@exercise("04-what-the-heads-compute/3", "The risk at 40 examples of the heads that are best for 500.", 3)
def risk_of_heads_for_long_prompts() -> float:
    return float(debiased_gd_risk(LAW, debiased_gd_optimal_step(LAW, length=500), length=40))


@exercise("04-what-the-heads-compute/4", "The best $\\eta$ of a centred step at 40 examples with `noise_std` 1.", 2)
def step_with_noise() -> float:
    return float(debiased_gd_optimal_step(replace(LAW, noise_std=1.0)))


@exercise("05-two-numbers-per-head/2", "The risk at $L = 1$ for $d = 5$, $s_2 = 5$ and $\\mu = 0.5$.", 2, tolerance=0)
def risk_with_one_example() -> float:
    law = RegressionLaw(d=5, length=1, noise_std=1.0)  # s_2 = d sigma^2
    return law.d + 0.5**2 * (law.d + law.noise_variance)


@exercise(
    "05-two-numbers-per-head/3",
    "The mean square of this change per unit of $M_{jk}$, summed over all $j, k$ and both heads, for $\\mu = \\pm 1$ at the page's "
    "$d$, $L$ and $\\sigma$, small $\\omega$.",
    3,
)
def sensitivity_to_jitter() -> float:
    # The mean square of x_q' G (centred moment) over all entries is |x_q|^2 |moment|^2; the risk of a centred step holds the
    # second factor: risk(eta) = d - 2 eta f d + eta^2 d |moment|^2 per query entry.
    squares = np.linalg.solve(
        np.array([[1.0, eta, eta**2] for eta in (0.0, 1.0, 2.0)]),
        [float(debiased_gd_risk(LAW, eta)) for eta in (0.0, 1.0, 2.0)],
    )[2]
    return 2 * LAW.d * float(squares)


@exercise("06-how-many-heads/1", "This probability.", 3)
def probability_of_no_trap() -> float:
    return (1 - 1 / 6) ** 5


@exercise("07-deeper-and-wider/2", "The entry that only one of the tasks uses.", 3)
def entry_of_one_task() -> float:
    law = MultiTaskLaw()
    maps, _ = best_linear_maps(law, 2)
    uses = law.projections.sum(0)
    return float(np.diagonal(maps[0])[uses == 1][0])


@exercise("07-deeper-and-wider/3", "The second of the two numbers.", None)
def heads_for_five_tasks() -> int:
    law = MultiTaskLaw(d=5, supports=tuple((k,) for k in range(5)))
    best = best_linear_maps(law, 20)[1].sum()
    return next(heads for heads in range(1, 20) if best_linear_maps(law, heads)[1].sum() < best * (1 + 1e-9))


@exercise("07-deeper-and-wider/4", "This $\\sigma^2$, at the page's $\\xi = 0.2$.", 2)
def noise_at_twice_bayes() -> float:
    def excess(log_variance: float) -> float:
        law = RegressionLaw(d=5, length=25, noise_std=math.exp(log_variance / 2))
        return float(gd_risk_proportional(law) / bayes_risk_proportional(law)) - 2

    return math.exp(crossing(excess, math.log(1e-3), math.log(10.0)))


@exercise("08-what-holds-the-pattern/1", "This exponent.", 3)
def exponent_of_small_starts() -> float:
    # The pattern grows at the first rate, label rows and outputs at the second: what the second leaves when the first has arrived.
    pattern, rows, _ = rates_at_zero(LAW)
    return 1 - rows / pattern
