r"""Claims Q1-Q5, Q8, Q9, Q11, Q41-Q43 and Q96: heads that start from zero are one head. Derivations: page *Many heads* and the chapter."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from attnbook.open_questions.equal_heads import VARIANTS, equal_heads, two_steps_apart, window_edge
from attnbook.open_questions.judging import mean_share, per_draw, tensor
from attnbook.open_questions.many_heads.study import PAPER_SIZE, WINDOW_ROWS, ManyHeadsStudy
from attnbook.open_questions.second_solver import ends_on_signal, on_both_sides
from attnbook.single_head.long_run import Course
from attnlib.single_head.training import gradient_descent
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, Evidence, both, exactly, mean_within, share_within, within
from bookkit.sharpness import Fixed

CLAIMS = ClaimSet("open_questions")


# --- from zero: one head --------------------------------------------------------------------------------------------------


def _against_one_head(study: ManyHeadsStudy, names: Sequence[str], constant: float) -> Evidence:
    """H = 3 heads, 3 steps, against one head with (beta_v, constant x beta_p)."""
    found, wanted = [], []
    for name in names:
        variant = VARIANTS[name]
        path = variant.train(study.small, 0.3, 3, 3, method="vectors")
        value, attention = variant.one_head_steps(0.3, 3)
        one = gradient_descent(study.small, value, 3, attention_step_size=constant * attention)
        many = variant.as_one_head(path)
        for have, want in ((many.v, one.v), (many.p, one.p)):
            found.append((have / want.abs().max()).flatten(1))
            wanted.append((want / want.abs().max()).flatten(1))
        if equal_heads(path) > 1e-12:
            return Evidence(
                False, "equal heads", "heads differ", "algebra", study.small.runs, parts=(Fixed(False, "digits", 1e-12),)
            )  # fmt: skip
    return exactly(torch.cat(found), torch.cat(wanted), tolerance=1e-10, draws=study.small.runs)


@CLAIMS.claim("Q1", wrong=2.0, box="thm-open-equal-heads")
def one_head(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""many heads from zero are one head
    the sum of H heads, all from zero with step $\beta$, is one head with $(\beta_v, \beta_p) = (H\beta, \beta/H)$
    wrong: attention steps twice as large"""
    return _against_one_head(study, ["sum"], constant)


@CLAIMS.claim("Q2", wrong=2.0, box="thm-open-equal-heads")
def shared_values(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""many heads with shared values, from zero, are one head
    the sum of H heads with one shared v, all from zero with step $\beta$, is one head with $(\beta_v, \beta_p) = (H^2\beta, \beta/H)$
    wrong: attention steps twice as large"""
    return _against_one_head(study, ["shared sum"], constant)


@CLAIMS.claim("Q41", wrong=2.0, box="thm-open-equal-heads")
def other_variants(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""means and scaled sums of heads
    c times the sum of H heads, all from zero with step $\beta$, is one head with $(\beta_v, \beta_p) = (c^2H\beta, \beta/H)$, and with
    $(c^2H^2\beta, \beta/H)$ for a shared v; judged at $c = 1/H$ and $H^{-1/2}$
    wrong: attention steps twice as large"""
    return _against_one_head(study, ["mean", "root sum", "shared mean"], constant)


@CLAIMS.claim("Q3", wrong=1.001, box="prop-open-two-steps")
def closed_form(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""two steps with two step sizes
    from zero, $v_2 = \frac{\beta_v}{4n}\sum_i y_i(1+2g_i)(u_i+\xi_i)$ and $p_2 = \frac{\beta_p}{4n}\sum_i g_i\gamma_i(u_i-\xi_i)$, with the
    slopes $g_i$ and the preferences $\gamma_i$ taken at $v_1$
    wrong: both step sizes 0.1 % larger"""
    found = two_steps_apart(study.small, constant * 0.4, constant * 0.07)
    path = gradient_descent(study.small, 0.4, 2, attention_step_size=0.07)
    return both(
        exactly(found.v2, path.v[-1], tolerance=1e-12),
        exactly(found.p2, path.p[-1], tolerance=1e-12),
        exactly(found.v1, path.v[1], tolerance=1e-12),
    )


def _fits(study: ManyHeadsStudy, row: object, multiple: float) -> np.ndarray:
    window = study.window
    return window.interpolates[list(WINDOW_ROWS).index(row), window.multiples.index(multiple)]


def _fit_in(fits: np.ndarray, low: float | None = None, high: float | None = None, *, what: str) -> Evidence:
    """A draw interpolates with a probability in [low, high]; half of LEVEL, for claims of two parts."""
    return share_within(int(fits.sum()), fits.size, low, high, quantity=f"P({what})", level=LEVEL / 2)


@CLAIMS.claim("Q4", wrong=(0.25, 0.0), source=Source.MEASURED, uses="Q1")
def fits_earlier(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""many heads fit with smaller steps
    $n = 200$, $d = 40000$, $\rho = 30$, $\eta = 0.05$, $\beta = n/d$: after two steps 8 heads fit every label in at least 80 % of draws,
    one head in at most 20 %
    wrong: two heads in place of eight; one head and eight exchanged"""
    many, one = (round(8 * constant), 1) if constant else (1, 8)
    return both(
        _fit_in(_fits(study, many, 1.0), 0.8, what="fit, many heads"),
        _fit_in(_fits(study, one, 1.0), high=0.2, what="fit, one head"),
    )


@CLAIMS.claim("Q5", wrong=0.0, source=Source.MEASURED)
def frozen_fits(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""no attention is needed to fit in two steps
    with attention frozen at one half, two steps fit every label in at least 70 % of draws at $\beta = 8n/d$ and in at most 20 % at $5n/d$,
    on either side of the edge $5.5n/d$ of the orthogonal-noise prediction
    wrong: the two step sizes exchanged"""
    slow, fast = study.frozen.interpolates[0] if constant else study.frozen.interpolates[0][::-1]
    return both(_fit_in(fast, 0.7, what="fit at 8n/d"), _fit_in(slow, high=0.2, what="fit at 5n/d"))


@CLAIMS.claim("Q96", wrong=1.5, source=Source.MEASURED, box="prop-open-two-steps prop-mean-field", uses="Q3")
def edges(study: ManyHeadsStudy, constant: float) -> Evidence:
    """where the two-step window begins
    the smallest of the page's step sizes at which a draw fits every label in two steps is the smallest above the predicted edge (orthogonal
    noise), on average for at least 80 % of the pairs of a draw and a model: 1, 2, 4, 8 heads and frozen attention
    wrong: edges half as large again"""
    window, grid = study.window, np.array(study.window.multiples)
    wanted = [constant * window_edge(PAPER_SIZE, row) for row in window.rows]
    fits = window.interpolates  # (rows, step sizes, draws)
    first = np.where(fits.any(1), grid[fits.argmax(1)], np.inf)
    said = np.array([grid[grid > edge].min(initial=np.inf) for edge in wanted])
    evidence = mean_share([(first == said[:, None]).T], 0.8, what="draws and rows with the first fit as predicted")
    texts = [", ".join(f"{value:.3g}" for value in row) for row in (wanted, np.median(first, axis=1))]
    return replace(
        evidence, predicted="edges " + texts[0], measured=f"median first fits at {texts[1]}; {evidence.measured}"
    )


# --- slower attention -------------------------------------------------------------------------------------------------------


def _mean_error(course: Course, low: float | None, high: float) -> Evidence:
    values = tensor(course.log10_error[course.at(2000)])
    evidence = mean_within(values, low, high, quantity="mean log₁₀ err")
    shown = f"{values.mean():.2f} +- {evidence.numbers['standard_error']:.2f}, draws in [{values.min():.2f}, {values.max():.2f}]"
    return replace(evidence, measured=shown)


@CLAIMS.claim("Q8", wrong=0.25, source=Source.MEASURED, uses="Q1")
def postponed(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""below the threshold four heads postpone the rise of the error
    $n = 200$, $d = 40000$, $\rho = 16$, $\beta = 5n/d$, from zero, step 2000: the mean $\log_{10}$ clean error of 4 heads is $-4$ or less
    wrong: one head"""
    return _mean_error(study.slow[round(4 * constant)][0], None, -4.0)


@CLAIMS.claim("Q9", wrong=4.0, source=Source.MEASURED, uses="R3")
def spoiled(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""below the threshold one head generalises poorly
    $n = 200$, $d = 40000$, $\rho = 16$, $\beta = 5n/d$, from zero, step 2000: the mean $\log_{10}$ clean error of one head is $-0.58 \pm
    0.02$
    wrong: four heads"""
    return _mean_error(study.slow[round(constant)][0], -0.60, -0.56)


# --- the threshold ----------------------------------------------------------------------------------------------------------


@CLAIMS.claim("Q11", wrong=1.5, source=Source.MEASURED, box="thm-open-one-threshold thm-open-equal-heads", uses="Q1")
def fates_without_noise(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""no label noise: the threshold is x = 1 for any number of heads
    $\eta = 0$, $n = 100$, $d = 10^6$, H = 1, 2, 4 from zero: in at least 95 % of the runs every class outside 5 % of $x = 1$ ends on the
    token that maximum margin selects
    wrong: the boundary at x = 1.5"""
    fates = study.no_noise.values()  # the same draws for every H
    right, far = [(f.x > constant) == f.on_signal for f in fates], [np.abs(f.x - 1) > 0.05 for f in fates]
    shares = per_draw(right, far)
    evidence = within(shares, low=1.0, quantity="share of a run's classes")
    return replace(evidence, numbers={"share": shares.nanmean().item(), "failures": evidence.numbers["failures"]})


@CLAIMS.claim("Q43", wrong=1.02, source=Source.MEASURED, uses="Q1")
def boundary_rises(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""more heads need more signal
    the flow's boundary rises with the number of heads, $r = 1/H^2$: $x^*(0.2) = 1.621, 1.696, 1.781$ and $x^*(0.1) = 1.208, 1.224, 1.241$
    for H = 1, 2, 4, to 0.5 %: a second solver ends on the noise below and on the signal above each ($\tau = 10^{12}$)
    wrong: values 2 % larger"""
    values = np.array([1.208, 1.621, 1.224, 1.696, 1.241, 1.781])
    rate, eta = np.repeat([1.0, 1 / 4, 1 / 16], 2), np.tile([0.1, 0.2], 3)
    return on_both_sides(values, constant, lambda x: ends_on_signal(x, eta, rate=rate, time=1e12))


@CLAIMS.claim("Q42", wrong=0.0, source=Source.MEASURED, box="thm-open-equal-heads", uses="Q1 Q43")
def flow_predicts_heads(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""the flow predicts the outcomes of two and four heads
    $\eta = 0.2$, $n = 100$, $d = 10^6$, the sum of $H = 2$ and of $H = 4$ heads from zero: at least 95 % of the classes end on their signal
    iff $x > x^*$ of their own flips at $r = 1/H^2$ and $\tau = 7\cdot10^9$
    wrong: the maximum-margin rule x > 1"""
    right = {H: (f.x > (f.threshold if constant else 1)) == f.on_signal for H, f in study.flips.items()}
    return both(*(mean_share([own], 0.95, what=f"classes, H = {H}", level=LEVEL / 2) for H, own in right.items()))
