r"""Claims Q1, Q4, Q5, Q9, Q11, Q42 and Q43: heads that start from zero are one head. Derivations: page *Many heads* and the chapter."""

from dataclasses import replace

import numpy as np
import torch

from attnbook.open_questions.judging import mean_share, none_judged, per_draw, tensor
from attnbook.open_questions.many_heads.study import VARIANTS, WINDOW_ROWS, equal_heads
from attnbook.open_questions.second_solver import ends_on_signal, on_both_sides
from attnlib.single_head.training import gradient_descent
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, both, exactly, mean_within, on_grid, share_within, within
from bookkit.worlds import changed, exchange

CLAIMS = ClaimSet("open_questions")


# --- from zero: one head --------------------------------------------------------------------------------------------------


@CLAIMS.claim("Q1", wrong=2.0, box="thm-open-equal-heads")
def one_head(study, constant):
    r"""many heads from zero are one head
    the sum of H heads, all from zero with step $\beta$, is one head with $(\beta_v, \beta_p) = (H\beta, \beta/H)$
    wrong: attention steps twice as large"""
    heads = VARIANTS["sum"]
    value, attention = heads.one_head_steps(0.3, 3)
    one = gradient_descent(study.small, value, 3, attention_step_size=constant * attention)
    path = heads.train(study.small, 0.3, 3, 3, method="vectors")
    apart = equal_heads(path)
    if apart > 1e-12:
        return exactly(torch.tensor([apart]), 0.0, tolerance=1e-12, draws=study.small.runs)
    many = heads.as_one_head(path)
    pairs = [(have / want.abs().max(), want / want.abs().max()) for have, want in ((many.v, one.v), (many.p, one.p))]
    found, wanted = (torch.cat([side.flatten(1) for side in sides]) for sides in zip(*pairs, strict=True))
    return exactly(found, wanted, tolerance=1e-10, draws=study.small.runs)


def _fits(study, row, multiple):
    window = study.window
    return window.interpolates[list(WINDOW_ROWS).index(row), window.multiples.index(multiple)]


def _fit_in(fits, low=None, high=None, *, what):
    """A draw interpolates with a probability in [low, high]; half of LEVEL, for claims of two parts."""
    return share_within(int(fits.sum()), fits.size, low, high, quantity=f"P({what})", level=LEVEL / 2)


def _rows(*order):
    """Other rows of the window in the place of its own."""
    places = [list(WINDOW_ROWS).index(row) for row in order]
    return changed(lambda fits: fits[places], "window.interpolates")


@CLAIMS.claim("Q4", wrong=(_rows(1, 2, 4, 2, "frozen"), _rows(8, 2, 4, 1, "frozen")), source=Source.MEASURED, uses="Q1")
def fits_earlier(study):
    r"""many heads fit with smaller steps
    $n = 200$, $d = 40000$, $\rho = 30$, $\eta = 0.05$, $\beta = n/d$: after two steps 8 heads fit every label in at least 95 % of draws,
    one head in at most 5 %
    wrong: two heads in place of eight; one head and eight exchanged"""
    return both(
        _fit_in(_fits(study, 8, 1.0), 0.95, what="fit, many heads"),
        _fit_in(_fits(study, 1, 1.0), high=0.05, what="fit, one head"),
    )


@CLAIMS.claim("Q5", wrong=changed(lambda fits: fits[:, ::-1], "frozen.interpolates"), source=Source.MEASURED)
def frozen_fits(study):
    r"""no attention is needed to fit in two steps
    with attention frozen at one half, two steps fit every label in at least 95 % of draws at $\beta = 8n/d$ and in at most 5 % at $5n/d$,
    on either side of the edge $5.5n/d$ of the orthogonal-noise prediction
    wrong: the two step sizes exchanged"""
    slow, fast = study.frozen.interpolates[0]
    return both(_fit_in(fast, 0.95, what="fit at 8n/d"), _fit_in(slow, high=0.05, what="fit at 5n/d"))


# --- slower attention -------------------------------------------------------------------------------------------------------


def _mean_error(course, low, high):
    values = tensor(course.log10_error[course.at(2000)])
    evidence = mean_within(values, low, high, quantity="mean log₁₀ err", level=LEVEL / 2)
    shown = f"{values.mean():.2f} +- {evidence.numbers['standard_error']:.2f}, draws in [{values.min():.2f}, {values.max():.2f}]"
    return replace(evidence, measured=shown)


@CLAIMS.claim("Q9", wrong=exchange("slow.1", "slow.4"), source=Source.MEASURED, uses="Q1 R3")
def postponed(study):
    r"""below the threshold one head generalises poorly, and four heads postpone it
    $n = 200$, $d = 40000$, $\rho = 16$, $\beta = 5n/d$, from zero, step 2000: the mean $\log_{10}$ clean error of one head is $-0.58 \pm
    0.02$, that of four heads $-4.37 \pm 0.13$
    wrong: one head and four heads exchanged"""
    one, four = (study.slow[heads][0] for heads in (1, 4))
    return replace(both(_mean_error(one, -0.60, -0.56), _mean_error(four, -4.50, -4.24)), numbers={})


# --- the threshold ----------------------------------------------------------------------------------------------------------


@CLAIMS.claim("Q11", wrong=1.5, source=Source.MEASURED, box="thm-open-one-threshold thm-open-equal-heads", uses="Q1")
def fates_without_noise(study, constant):
    r"""no label noise: the threshold is x = 1 for any number of heads
    $\eta = 0$, $n = 100$, $d = 10^6$, H = 1, 2, 4 from zero: in at least 95 % of the runs every class outside 5 % of $x = 1$, the
    step by which the threshold is bracketed, ends on the token that maximum margin selects
    wrong: the boundary at x = 1.5"""
    fates = study.no_noise.values()  # the same draws for every H
    right, far = [(f.x > constant) == f.on_signal for f in fates], [np.abs(f.x - 1) > 0.05 for f in fates]
    shares = per_draw(right, far)
    evidence = on_grid(within(shares, low=1.0, quantity="share of a run's classes", silent=none_judged(far)), 0.05)
    return replace(
        evidence, numbers={"share": shares[~none_judged(far)].mean().item(), "failures": evidence.numbers["failures"]}
    )


@CLAIMS.claim("Q43", wrong=1.02, source=Source.MEASURED, uses="Q1")
def boundary_rises(study, constant):
    r"""more heads need more signal
    the flow's boundary rises with the number of heads, $r = 1/H^2$: $x^*(0.2) = 1.621, 1.696, 1.781$ and $x^*(0.1) = 1.208, 1.224, 1.241$
    for H = 1, 2, 4, to 0.5 %: a second solver ends on the noise below and on the signal above each ($\tau = 10^{12}$)
    wrong: values 2 % larger"""
    values = np.array([1.208, 1.621, 1.224, 1.696, 1.241, 1.781])
    rate, eta = np.repeat([1.0, 1 / 4, 1 / 16], 2), np.tile([0.1, 0.2], 3)
    return on_both_sides(values, constant, lambda x: ends_on_signal(x, eta, rate=rate, time=1e12))


MARGIN_RULE = changed(np.ones_like, "flips.2.threshold", "flips.4.threshold")


@CLAIMS.claim("Q42", wrong=MARGIN_RULE, source=Source.MEASURED, box="thm-open-equal-heads", uses="Q1 Q43")
def flow_predicts_heads(study):
    r"""the flow predicts the outcomes of two and four heads
    $\eta = 0.2$, $n = 100$, $d = 10^6$, the sum of $H = 2$ and of $H = 4$ heads from zero: at least 95 % of the classes end on their signal
    iff $x > x^*$ of their own flips at $r = 1/H^2$ and $\tau = 7\cdot10^9$
    wrong: the maximum-margin rule x > 1"""
    right = {H: (f.x > f.threshold) == f.on_signal for H, f in study.flips.items()}
    return both(*(mean_share([own], 0.95, what=f"classes, H = {H}", level=LEVEL / 2) for H, own in right.items()))
