r"""Claims Q35-Q38, Q81-Q86 and Q88: more classes, more label noise, unequal classes."""

from dataclasses import replace

import numpy as np

from attnbook.open_questions.judging import mean_share, one_way, tensor
from attnbook.open_questions.more_classes.class_flow import class_ends_on_signal, first_order_class_threshold
from attnbook.open_questions.more_classes.study import CLASSES, ClassesStudy, trap_exits
from attnbook.open_questions.second_solver import on_both_sides
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, Evidence, both, mean_within, within
from bookkit.sharpness import Fixed

CLAIMS = ClaimSet("open_questions")


# --- K classes -------------------------------------------------------------------------------------------------------------


@CLAIMS.claim("Q35", wrong=0.0, box="prop-open-classes")
def closed_form(study: ClassesStudy, constant: float) -> Evidence:
    """K classes: two steps in closed form
    after two steps from zero $v_c$ and $p$ computed by the trainer are those of the closed form, for $K = 2, 3, 5, 10$
    wrong: the second step taken with the first step's probabilities, 1/K"""
    rows = [study.two_steps[K] for K in CLASSES]
    worst = tensor([row.deviation if constant else row.without_slopes for row in rows])
    evidence = within(worst, high=1e-12, quantity="relative deviation", share=1)
    shown = "below 1e-12" if evidence.holds else f"{worst.max().item():.2g}"
    return replace(evidence, measured=shown, rule="algebra: four K, three x, every draw", draws=study.draws, numbers={})


@CLAIMS.claim("Q36", wrong=(0.0, -1.0), source=Source.MEASURED, box="prop-open-classes", uses="Q35")
def preference(study: ClassesStudy, constant: float) -> Evidence:
    r"""K = 5: which samples prefer their signal
    $K = 5$, $n = 200$, $d = 40000$, $\eta = 0.05$: the mean fraction of clean samples with $\gamma > 0$ is below .2 at $x = 0.8$, above .8
    at $1.25$ and above .98 at $2$, on either side of $\kappa = 1$, which is $x = 1.01$ here
    wrong: x = 0.8 and x = 1.25 exchanged; x = 0.8 and x = 2 exchanged"""
    order = {1.0: [0, 1, 2], 0.0: [1, 0, 2], -1.0: [2, 1, 0]}[constant]
    low, middle, high = tensor(study.two_steps[5].preference)[order]
    parts = (
        mean_within(low, high=0.2, quantity="mean share at x = 0.8", level=LEVEL / 3),
        mean_within(middle, low=0.8, quantity="at 1.25", level=LEVEL / 3),
        mean_within(high, low=0.98, quantity="at 2", level=LEVEL / 3),
    )
    numbers = dict(zip(("x08", "x125", "x2"), (part.numbers["measured"] for part in parts), strict=True))
    return replace(both(*parts), numbers=numbers)


@CLAIMS.claim("Q81", wrong=0.5, box="prop-open-classes")
def two_classes(study: ClassesStudy, constant: float) -> Evidence:
    r"""K = 2 is the two-class head
    $v_1 - v_2$ and $p$ with step $\beta$ are $v$ and $p$ of the two-class head with $(\beta_v, \beta_p) = (2\beta, \beta)$, 60 steps
    wrong: the two-class head with the steps (β, β)"""
    deviation = study.same_as_two_classes[2 * constant]
    evidence = within(deviation, high=1e-10, quantity="relative deviation", share=1)
    shown = "below 1e-10 in every draw" if evidence.holds else "above 1e-10"
    return replace(evidence, measured=shown, rule="algebra, every draw", numbers={})


@CLAIMS.claim("Q82", wrong=1.3, box="thm-open-classes-trap")
def classes_one_way(study: ClassesStudy, constant: float) -> Evidence:
    r"""no label noise: attention moves one way for every K
    $\eta = 0$, orthogonal noise of equal norm, judged at $K = 4$, gradient descent from zero with steps of any size: no step lowers the
    weight on the signal of a sample if $x > 1$ or raises it if $x < 1$, and the second step moves it to the side named
    wrong: the boundary at x = 1.3"""
    x, moves, units = study.one_way
    return replace(one_way(x, moves, constant, units), numbers={})


@CLAIMS.claim("Q83", wrong=1.9, box="thm-open-classes-trap")
def trap(study: ClassesStudy, constant: float) -> Evidence:
    r"""there is a trap for every K
    orthogonal noise of equal norm: gradient descent with any step sizes does not leave the set $\{V \le t,\ s_c \le \frac1{1+x},\ s_n \le
    \frac1{1+a_K\nu x},\ V+T_y-T_k \ge 0,\ T_y \ge T_o\}$, $a_K = \frac K{2K-2}$
    wrong: a set 1.9 times wider in s_c"""
    exits, ends = trap_exits(study.trap, constant)
    runs = study.trap[1].shape[1]
    shown = f"{exits} exits in {runs} runs; {ends} with x > 1 end inside"
    return Evidence(
        exits == 0, "no exits", shown, "proved for every step of every run", runs, {"exits": exits, "inside": ends},
        parts=(Fixed(exits == 0),),
    )  # fmt: skip


_TABLE = {
    (2, 0.2): 1.657,
    (3, 0.2): 1.360,
    (5, 0.2): 1.233,
    (10, 0.2): 1.164,
    (3, 0.4): 2.932,
    (5, 0.4): 1.881,
    (10, 0.4): 1.530,
    (2, 0.4): 28.94,
    (5, 0.6): 7.213,
}


@CLAIMS.claim("Q84", wrong=1.02, source=Source.MEASURED, uses="Q83")
def boundary_values(study: ClassesStudy, constant: float) -> Evidence:
    r"""more classes, a smaller trap
    equal step sizes: $x^*_K(0.2) = 1.657, 1.360, 1.233, 1.164$ for $K = 2, 3, 5, 10$; $x^*_K(0.4) = 2.932, 1.881, 1.530$ for $K = 3, 5,
    10$, to 0.5 %: a second solver ends on the noise below and on the signal above each. These seven lie below the root $x_1$ of
    $(1-\mu)^2x^2 - K\mu x - 1$, $\mu = \frac{\eta}{(1-\eta)(K-1)}$; with more flips $x^*_K$ may lie above it: 28.9 against 12.7 at $K = 2$,
    $\eta = 0.4$, 7.21 against 5.28 at $K = 5$, $\eta = 0.6$
    wrong: values 2 % larger"""
    classes, etas = (np.array(part) for part in zip(*_TABLE, strict=True))
    values = np.array(list(_TABLE.values()))
    first = np.array([first_order_class_threshold(eta, int(K)) for K, eta in _TABLE])
    evidence = on_both_sides(values, constant, lambda x: class_ends_on_signal(x, etas, classes))
    low, high = 0.995 * values, 1.005 * values
    placed = bool((high < first)[:-2].all() and (low > first)[-2:].all())  # below x_1, but for the last two
    parts = tuple(replace(part, holds=part.holds and placed) for part in evidence.parts)
    return replace(evidence, holds=evidence.holds and placed, parts=parts)


@CLAIMS.claim("Q85", wrong=0.0, source=Source.MEASURED, box="thm-open-classes-trap", uses="Q84")
def fates(study: ClassesStudy, constant: float) -> Evidence:
    r"""the K-class flow predicts the outcomes of gradient descent
    $\eta = 0.2$ and $0.4$, $K = 3, 5, 10$, $d = 10^6$, $x/x^*_K$ from 0.75 to 1.4: at least 95 % of the classes end on their signal iff $x
    > x^*_K$ at their own fraction of flips
    wrong: the maximum-margin rule x > 1"""
    # Run r of every (K, eta) is made of the same Gaussian numbers: one row.
    found = study.fates.values()
    right = [(fate.x > fate.threshold**constant) == fate.on_signal for fate in found]
    return mean_share(right, 0.95, what="classes", judged=[fate.x > 0 for fate in found])


@CLAIMS.claim("Q86", wrong=2.0, source=Source.MEASURED, uses="Q82")
def late_fates(study: ClassesStudy, constant: float) -> Evidence:
    r"""little label noise: the maximum-margin rule nearly suffices
    $\eta = 0.05$, $x = 0.5 \dots 3$, $K = 2, 3, 5, 10$, a thousand steps of $5n/d$: at least 90 % of the classes end on the signal iff $x >
    1$
    wrong: the boundary at x = 2"""
    fates = [late.fates for late in study.late.values()]
    right = [(fate.x > constant) == fate.on_signal for fate in fates]
    return mean_share(right, 0.9, what="classes", judged=[fate.x > 0 for fate in fates])


@CLAIMS.claim("Q86b", wrong=0.0, source=Source.MEASURED, uses="Q84")
def step_trap(study: ClassesStudy, constant: float) -> Evidence:
    r"""K classes: large first steps lead into the trap
    $\eta = 0.2$, $x = 4$, $n = 100$, $d = 20000$, $K = 3, 5$: with steps of $5n/d$ from zero fewer than half of the classes end on the
    signal; on the same draws after 300 steps of $n/4d$ at least nine of ten, all but those that hold so many flips that their own $x <
    x^*_K$
    wrong: the two ways to start exchanged"""
    order = (0, 1) if constant else (1, 0)
    plain, warm = ([pair[i].on_signal for pair in study.step_trap.values()] for i in order)
    parts = (
        mean_share(plain, high=0.5, what="classes, large steps", level=LEVEL / 2),
        mean_share(warm, 0.9, what="classes, small steps first", level=LEVEL / 2),
    )
    return replace(both(*parts), numbers={"plain": parts[0].numbers["share"], "warm": parts[1].numbers["share"]})


# --- two steps: label noise and unequal classes -------------------------------------------------------------------------------


@CLAIMS.claim("Q37", wrong=0.0, source=Source.MEASURED, uses="R3")
def benign_cells(study: ClassesStudy, constant: float) -> Evidence:
    r"""two steps: how many cells are benign under more label noise
    $n = 200$, $d = 40000$, 90 cells ($n\,\mathrm{SNR}^2$ 2..100, $\beta d/n$ 0.5..10): the mean fraction of benign cells is at least .3 at
    $\eta = 0.35$, at most .3 at $0.4$ and at most .2 at $0.45$
    wrong: cells counted at eta = 0.45 for the first, at 0.35 for the others"""
    first, middle, last = (
        tensor(study.benign[200, eta]) for eta in ((0.35, 0.4, 0.45) if constant else (0.45, 0.35, 0.35))
    )
    parts = (
        mean_within(first, low=0.3, quantity="mean share of cells at eta = 0.35", level=LEVEL / 3),
        mean_within(middle, high=0.3, quantity="at 0.4", level=LEVEL / 3),
        mean_within(last, high=0.2, quantity="at 0.45", level=LEVEL / 3),
    )
    numbers = {f"eta_{eta:g}": benign.mean() for (n, eta), benign in study.benign.items() if n == 200}
    return replace(both(*parts), numbers=numbers)


@CLAIMS.claim("Q88", wrong=0.0, source=Source.MEASURED, uses="Q37")
def cells_return(study: ClassesStudy, constant: float) -> Evidence:
    r"""with more samples two steps are benign under the same label noise
    $n = 800$, $d = n^2$: at $\eta = 0.4$ the mean fraction of benign cells among the 90 is at least .4
    wrong: the same at n = 200, d = 40000"""
    evidence = mean_within(tensor(study.benign[800 if constant else 200, 0.4]), low=0.4, quantity="mean share of cells")
    return replace(evidence, numbers={"cells": evidence.numbers["measured"]})


@CLAIMS.claim("Q38", wrong=(0.0, -1.0), source=Source.MEASURED, uses="R3")
def minority(study: ClassesStudy, constant: float) -> Evidence:
    r"""unequal classes: the signal of the minority is given up
    80/20, $\rho = 24$ ($x = 2.2$ and $0.55$), $n = 200$, $d = 40000$: after 1000 steps the mean $\log_{10}$ err is below $-60$ for the
    majority, and that of the minority above $-2.5$ in at least 95 % of draws
    wrong: the errors after two steps; majority and minority exchanged"""
    errors = tensor(study.imbalance[1000 if constant else 2])
    if constant < 0:
        errors = errors.flip(1)
    return both(
        mean_within(errors[:, 0], high=-60.0, quantity="mean, majority", level=LEVEL / 2),
        within(errors[:, 1], low=-2.5, quantity="minority", level=LEVEL / 2),
    )
