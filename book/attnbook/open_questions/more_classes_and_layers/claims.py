r"""Claims Q35, Q36, Q38, Q83-Q86 and Q88: more classes, more label noise, unequal classes."""

from dataclasses import replace

import numpy as np

from attnbook.open_questions.judging import mean_share, tensor
from attnbook.open_questions.more_classes_and_layers.class_flow import class_ends_on_signal, first_order_class_threshold
from attnbook.open_questions.more_classes_and_layers.study import CLASSES, trap_exits
from attnbook.open_questions.second_solver import on_both_sides
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, Evidence, both, exactly, mean_within
from bookkit.sharpness import Fixed
from bookkit.worlds import changed, exchange, instead

CLAIMS = ClaimSet("open_questions")


def _in_each(name, change):
    return changed(lambda cases: {case: change(found) for case, found in cases.items()}, name)


# --- K classes -------------------------------------------------------------------------------------------------------------


@CLAIMS.claim("Q35", wrong=_in_each("two_steps", instead("deviation", "without_slopes")), box="prop-open-classes")
def closed_form(study):
    """K classes: two steps in closed form
    after two steps from zero $v_c$ and $p$ computed by the trainer are those of the closed form, for $K = 2, 3, 5, 10$
    wrong: the second step taken with the first step's probabilities, 1/K"""
    worst = tensor([study.two_steps[K].deviation for K in CLASSES])
    return exactly(worst, 0.0, tolerance=1e-12, draws=study.draws)


AT_X = "two_steps.5.preference"
LEAST_AND_MIDDLE, LEAST_AND_LARGEST = (exchange(f"{AT_X}.0", f"{AT_X}.{i}") for i in (1, 2))


@CLAIMS.claim(
    "Q36", wrong=(LEAST_AND_MIDDLE, LEAST_AND_LARGEST), source=Source.MEASURED, box="prop-open-classes", uses="Q35"
)
def preference(study):
    r"""K = 5: which samples prefer their signal
    $K = 5$, $n = 200$, $d = 40000$, $\eta = 0.05$: the mean fraction of clean samples for which the sign of $\gamma$ is that of $\kappa -
    1$ ($\kappa = 1$ is $x = 1.01$ here) is $0.93 \pm 0.03$ at $x = 0.8$, $0.92 \pm 0.03$ at $1.25$, and at least $0.98$ at $2$
    wrong: x = 0.8 and x = 1.25 exchanged; x = 0.8 and x = 2 exchanged"""
    low, middle, high = tensor(study.two_steps[5].preference)
    parts = (
        mean_within(1 - low, 0.90, 0.96, quantity="mean share at x = 0.8", level=LEVEL / 3),
        mean_within(middle, 0.89, 0.95, quantity="at 1.25", level=LEVEL / 3),
        mean_within(high, low=0.98, quantity="at 2", level=LEVEL / 3),
    )
    return replace(both(*parts), numbers={})


@CLAIMS.claim("Q83", wrong=1.9, box="thm-open-classes-trap")
def trap(study, constant):
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
def boundary_values(study, constant):
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


MARGIN_RULE = _in_each("fates", changed(np.ones_like, "threshold"))


@CLAIMS.claim("Q85", wrong=MARGIN_RULE, source=Source.MEASURED, box="thm-open-classes-trap", uses="Q84")
def fates(study):
    r"""the K-class flow predicts the outcomes of gradient descent
    $\eta = 0.2$ and $0.4$, $K = 3, 5, 10$, $d = 10^6$, $x/x^*_K$ from 0.75 to 1.4: at least 95 % of the classes end on their signal iff $x
    > x^*_K$ at their own fraction of flips
    wrong: the maximum-margin rule x > 1"""
    # Run r of every (K, eta) is made of the same Gaussian numbers: one row.
    found = study.fates.values()
    right = [(fate.x > fate.threshold) == fate.on_signal for fate in found]
    return mean_share(right, 0.95, what="classes", judged=[fate.x > 0 for fate in found])


@CLAIMS.claim("Q86", wrong=2.0, source=Source.MEASURED, uses="Q83")
def late_fates(study, constant):
    r"""little label noise: the maximum-margin rule nearly suffices
    $\eta = 0.05$, $x = 0.5 \dots 3$, $K = 2, 3, 5, 10$, a thousand steps of $5n/d$: at least 90 % of the classes end on the signal iff $x >
    1$
    wrong: the boundary at x = 2"""
    fates = [late.fates for late in study.late.values()]
    right = [(fate.x > constant) == fate.on_signal for fate in fates]
    return mean_share(right, 0.9, what="classes", judged=[fate.x > 0 for fate in fates])


# --- two steps: label noise and unequal classes -------------------------------------------------------------------------------


@CLAIMS.claim("Q88", wrong=instead("benign.800", "benign.200"), source=Source.MEASURED, uses="R3")
def cells_return(study):
    r"""with more samples two steps are benign under the same label noise
    $n = 800$, $d = n^2$: at $\eta = 0.4$ the mean fraction of benign cells among the 90 is $0.45 \pm 0.02$
    wrong: the same at n = 200, d = 40000"""
    evidence = mean_within(tensor(study.benign[800]), 0.43, 0.47, quantity="mean share of cells")
    return replace(evidence, numbers={"cells": evidence.numbers["measured"]})


EARLY = instead("imbalance.1000", "imbalance.2")
EXCHANGED = changed(lambda errors: errors[:, [1, 0]], "imbalance.1000")


@CLAIMS.claim("Q38", wrong=(EARLY, EXCHANGED), source=Source.MEASURED, uses="R3")
def minority(study):
    r"""unequal classes: the signal of the minority is given up
    80/20, $\rho = 24$ ($x = 2.2$ and $0.55$), $n = 200$, $d = 40000$: after 1000 steps the mean $\log_{10}$ err is $-87 \pm 3$ for the
    majority and $-1.25 \pm 0.05$ for the minority
    wrong: the errors after two steps; majority and minority exchanged"""
    errors = tensor(study.imbalance[1000])
    whole = both(
        mean_within(errors[:, 0], -90.0, -84.0, quantity="mean, majority", level=LEVEL / 2),
        mean_within(errors[:, 1], -1.30, -1.20, quantity="minority", level=LEVEL / 2),
    )
    return replace(whole, numbers={})
