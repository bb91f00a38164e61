r"""Claims I51-I59: heads that are two numbers each, their exact risk, its valley, its optima, and where training stops in it.

Each judge takes a `TwoNumbersStudy` and a constant (1 is the claim, `wrong` its negative control). None is a theorem of the paper.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from attnbook.in_context.approximate import approximate_risk, creep_of_the_pair, one_head_optimum
from attnbook.in_context.closed_form import (
    debiased_gd_optimal_risk,
    debiased_gd_optimal_step,
    gd_optimal_step,
    opposite_pair_curvature,
)
from attnbook.in_context.two_numbers_per_head.study import FLAT_TO, LAST, EndPoints, TwoNumbersStudy, jitter_price
from bookkit.claims import ClaimSet, Source, Verdict
from bookkit.rules import Evidence, agrees, both, estimate_within, mean_within, within

CLAIMS = ClaimSet("in_context")


def _rounded(values: torch.Tensor, decimals: int) -> torch.Tensor:
    """What is kept of trained numbers: the last digits of a float32 training differ between processors."""
    return values.double().round(decimals=decimals)


def _bounded(values: torch.Tensor, decimals: int, **bounds: Any) -> Evidence:
    """`within` for trained numbers: judged as they are, shown with the decimals that do not differ between processors."""
    found = within(values, **bounds)
    shown = {name: round(found.numbers[name], decimals) for name in ("min", "max")}
    inside = found.measured[found.measured.index(";") :]
    return replace(found, measured=f"[{shown['min']:g}, {shown['max']:g}]{inside}", numbers=found.numbers | shown)


@CLAIMS.claim("I51", wrong=5.0, box="ic-reduction", uses="I14")
def reduction(study: TwoNumbersStudy, constant: float) -> Evidence:
    r"""a prompt reduces to L + 1 random numbers
    heads with $M_h=\omega_hI$, $V_h=\mu_he_{d+1}$ have the risk $s_\beta^2\,\mathbb E\big[(r-\sum_ic_ig_i)^2+(d-1+s_2)\sum_ic_i^2\big]$,
    $c_i=\sum_h\mu_h\mathrm{softmax}_i(\omega_hrg_i)$, with $g_i$ standard normal and $r^2$ chi-squared with $d$ degrees of freedom: four
    models, compared with dense prompts
    wrong: d − 1 + s2 twice as large"""
    check = study.reduction
    predicted = check.reduced + (constant - 1) * (check.wrong - check.reduced)  # which is a quarter larger
    return both(*(agrees(check.dense[:, k], predicted[:, k]) for k in range(check.dense.shape[1])))


@CLAIMS.claim("I52", wrong=(6 / 7, 2.0), box="ic-curvature", uses="I17 I51")
def finite_omega(study: TwoNumbersStudy, constant: float) -> Evidence:
    r"""an opposite pair is better than debiased gradient descent
    near $\omega=0$ at the step $L/(L+d+s_2)$ the risk is that of debiased gradient descent minus
    $4s_\beta^2\frac{d(d+2)(L-1)}{L(L+d+s_2)^2}\,\omega^2$; so some $\omega>0$ has a lower risk. The best one has a risk lower by 0.4
    of that term there or more, and for $L=8d$ by less than 0.04 % of the risk
    wrong: d + 1 in place of d + 2 (at d = 5); twice as large a term and a gain
    coarse: of the gain two bounds are claimed, not a number"""
    law = study.law
    curvature = float(opposite_pair_curvature(law, debiased_gd_optimal_step(law)))
    predicted = constant * curvature
    # A parabola with a positive fourth order gains half of its quadratic term at its minimum.
    least = constant * 0.4 * abs(curvature) * study.pair.omega**2
    most = constant * 0.0004 * float(debiased_gd_optimal_risk(law)) if law.length == 8 * law.d else None
    return both(
        agrees(study.narrow, predicted, allowance=0.02 * abs(predicted), allowance_text="order omega^4"),
        mean_within(study.gain, least, most, quantity="gain over debiased gradient descent"),
    )


@CLAIMS.claim(
    "I53",
    rf"""the valley is flat
    a pair with its best $\mu$ has the same risk within 0.25 % for all $\omega$ from 0.008 to {FLAT_TO} (times $\sqrt{{5/d}}$), a factor of
    more than ten
    regime: L = 8 d
    wrong: within 0.01 %""",
    wrong=0.04,
    box="ic-curvature",
    uses="I51",
    violation=lambda s: "" if s.law.length == 8 * s.law.d else f"needs L = {8 * s.law.d}; here {s.law.length}",
)
def flat_valley(study: TwoNumbersStudy, constant: float) -> Evidence:
    valley = study.valley
    flat = valley.omega <= FLAT_TO * math.sqrt(5 / study.law.d) * (1 + 1e-12)
    share, error = ((part / valley.risk)[flat] for part in (valley.lowest, valley.lowest_error))
    worst = f"[{share.min():.4g}, {share.max():.4g}], each +- {error.max():.1g} at most"
    highest = share.argmax(keepdim=True)
    found = estimate_within(
        share[highest],
        error[highest],
        len(study.pair_risk),
        high=0.0025 * constant,
        quantity="excess over the lowest risk, as a share of it",
    )
    return replace(found, measured=worst)


@CLAIMS.claim("I54", wrong=1.16, source=Source.CODE, box="ic-one-sign", uses="I51", expected=Verdict.FAILS)
def one_over_root_d(study: TwoNumbersStudy, constant: float) -> Evidence:
    r"""the best single head has ω = 1/√d
    $\omega=1/\sqrt d$, the optimum of the approximate loss, is the best scale of a single head within 5 %; the authors' notebook prints it
    beside its trained heads as a hypothesis
    wrong: 1.16/√d"""
    ratio = torch.tensor([one.omega for one in study.one_again]) * math.sqrt(study.law.d)
    return within(ratio, low=0.95 * constant, high=1.05 * constant, quantity="best omega times root d")


@CLAIMS.claim("I55", wrong=0.0, source=Source.MEASURED, box="ic-reduction", uses="I51")
def trained_one_head(study: TwoNumbersStudy, constant: float) -> Evidence:
    r"""a trained single head is at the optimum of the exact risk
    $|\omega|$ and $|\mu|$ of single heads trained from random starts are on average those that minimise the exact risk, to 1.5 %
    wrong: the optimum of the approximate loss"""
    omega, mu = (_rounded(part[:, -LAST:, 0].abs().mean(1), 3) for part in (study.one_head.omega, study.one_head.mu))
    best = study.one if constant == 1 else one_head_optimum(study.law)
    return both(
        agrees(omega, best.omega, allowance=0.015 * study.one.omega, allowance_text="1.5 %, optimiser's noise"),
        agrees(mu, best.mu, allowance=0.015 * study.one.mu, allowance_text="1.5 %, optimiser's noise"),
    )  # fmt: skip


@CLAIMS.claim(
    "I56",
    wrong=6 / 5,
    box="ic-level ic-pair ic-origin",
    uses="I51",
    violation=lambda s: "" if s.law.length == 8 * s.law.d else f"needs L = {8 * s.law.d}; here {s.law.length}",
)
def right_step_wrong_level(study: TwoNumbersStudy, constant: float) -> Evidence:
    r"""the approximate loss has the right best step and a wrong level
    at the best pair the effective step $2\omega\mu$ is $L/(L+d+s_2)$ within 1 %, and the approximate risk is the exact one times
    $\frac{d+s_2}{d+1+s_2}$
    regime: L = 8 d
    wrong: no error of the level (at d = 5), and the step of the plain step, $L/(L+d+1+s_2)$"""
    law, pair = study.law, study.pair
    approximate = approximate_risk(law, [pair.omega, -pair.omega], [pair.mu, -pair.mu])
    share = constant * (law.d + law.noise_variance) / (law.d + 1 + law.noise_variance)
    step = torch.tensor(
        [pair.effective_step / float((debiased_gd_optimal_step if constant == 1 else gd_optimal_step)(law))]
    )
    return both(
        replace(
            within(step, low=0.99, high=1.01, quantity="step over L/(L+d+s2)", share=1),
            rule="bound on one number, the place of a minimum",
        ),
        agrees(approximate / study.pair_risk, share, allowance=0.002, allowance_text="order omega^2"),
    )


def _unsettled(study: TwoNumbersStudy) -> str:
    first, last = study.ends[0].learning_rate, study.ends[-1].learning_rate
    if first < 9.99 * last:
        return f"needs rates a factor of ten apart; here {first / last:.3g}"
    way = last * study.ends[-1].history.experiment.steps
    return "" if way >= 9.99 else f"needs smallest rate times steps >= 10; here {way:.3g}"


def _of_pairs(study: TwoNumbersStudy, values: Callable[[EndPoints], torch.Tensor]) -> torch.Tensor:
    """(runs, rates): a number of each end, nan where a run is in the same-sign trap at that learning rate."""
    return torch.stack([values(end).where(end.opposite, math.nan) for end in study.ends], 1)


@CLAIMS.claim("I57", wrong=1.9, source=Source.MEASURED, box="ic-noise-price", uses="I51 I53", violation=_unsettled)
def place_in_the_valley(study: TwoNumbersStudy, constant: float) -> Evidence:
    r"""the optimiser determines the place in the valley
    training stops at an $|\omega|$ that increases with the learning rate: in at least 95 % of runs it is at the largest learning rate 1.2
    times that at the smallest or more, and at the smallest still 1.2 times the best $\omega$ or more
    regime: rates a factor of ten apart, smallest rate times steps 10 or more; runs that end as opposite pairs
    wrong: 2.28 times
    coarse: about one trained start in twenty-five lies outside"""
    sizes = _of_pairs(study, lambda end: end.size[:, -LAST:].mean(1))
    return both(
        _bounded(
            sizes[:, 0] / sizes[:, -1], 1, low=1.2 * constant, quantity="ratio of |omega|, largest to smallest rate"
        ),
        _bounded(sizes[:, -1] / study.pair.omega, 1, low=1.2 * constant, quantity="|omega| over the best one"),
    )


@CLAIMS.claim("I58", wrong=(1.5, 0.0), box="ic-noise-price", uses="I17 I51", violation=_unsettled)
def price_of_jitter(study: TwoNumbersStudy, constant: float) -> Evidence:
    r"""jitter raises the risk, most at small ω
    jitter, independent noise of variance $\tau^2$ on the entries of both $d\times d$ blocks, adds
    $2s_\beta^2d^2\frac{(L-1)(L+d+s_2)}{L^2}\,\mu^2\tau^2$ to the risk of a pair: with $\omega\mu$ fixed, $\propto\omega^{-2}$; and the mean
    training loss at the end lies above the exact risk of the two numbers per head, in at least 95 % of runs, and the more the larger the
    learning rate in at least 85 % (a run that leaves the same-sign trap late still has the trap's loss in the mean)
    regime: rates a factor of ten apart, smallest rate times steps 10 or more; runs that end as opposite pairs
    wrong: 1.5 times as much; the mean training loss below the risk, and the more the larger the learning rate
    coarse: trained starts differ, and one in thirty lies outside"""
    predicted = (constant or 1.0) * jitter_price(study.law)
    floors = _of_pairs(study, lambda end: end.floor)
    if not constant:
        floors = -floors.flip(1)
    return both(
        agrees(study.jitter, predicted, allowance=0.05 * predicted, allowance_text="order omega^2, tau^2"),
        _bounded(floors, 3, low=0.0, strict=True, quantity="mean training loss - exact risk"),
        _bounded(floors[:, :-1] / floors[:, 1:], 1, low=1.0, share=0.85, quantity="ratio to the next smaller rate"),
    )


@CLAIMS.claim("I59", wrong=1.05, box="ic-creep")
def endless_creep(study: TwoNumbersStudy, constant: float) -> Evidence:
    r"""the flow on the approximate loss never stops
    the flow on the approximate loss moves an opposite pair along the valley without end: at late times $|\omega|=(4cd^3t)^{-1/6}$,
    $c=(1+\sigma^2)/L$, to 1 %
    wrong: 5 % larger"""
    late = study.flow.times >= 1e4
    measured = study.flow.omega[late, 0, 0] / creep_of_the_pair(study.law, study.flow.times[late])
    found = within(measured, low=0.99 * constant, high=1.01 * constant, quantity="|omega| over the formula", share=1)
    return replace(found, rule="bound at every late time; the flow is deterministic")
