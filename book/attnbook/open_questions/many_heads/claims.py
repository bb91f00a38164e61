r"""Claims Q1-Q5, Q8-Q14 and Q41-Q47: what many heads do that one head does not. Derivations: page *Many heads* and the chapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from attnbook.open_questions.many_heads.equal_heads import VARIANTS, equal_heads, two_steps_apart, window_edge
from attnbook.open_questions.many_heads.random_starts import across_directions, random_start
from attnbook.open_questions.many_heads.study import GROWTH_BINS, PAPER_SIZE, WINDOW_ROWS, ManyHeadsStudy, thresholds
from attnbook.single_head.long_run import Course, Fates
from attnlib.single_head.descent import gradient_descent
from attnlib.single_head.flow import first_order_threshold, signal_threshold
from attnlib.single_head.trainer import train_heads
from bookkit.claims import ClaimSet, Evidence, Source, both, exactly, within

__all__ = ["CLAIMS"]

CLAIMS = ClaimSet("open_questions")


def _t(values: object) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values, dtype=float))


def _share(correct: np.ndarray, low: float, what: str) -> Evidence:
    """At least the share `low` of all classes; the counts are shown."""
    hits, total = int(correct.sum()), int(correct.size)
    rule, numbers = "share of classes; no allowance", {"share": hits / total, "classes": total}
    return Evidence(hits >= low * total, f">= {low:.2g} {what}", f"{hits} of {total} {what}", rule, total, numbers)


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
            return Evidence(False, "equal heads", "heads differ", "algebra", study.small.runs)
    return exactly(torch.cat(found), torch.cat(wanted), tolerance=1e-10, draws=study.small.runs)


@CLAIMS.claim(
    "Q1",
    "many heads from zero are one head",
    r"the sum of H heads, all from zero with step $\beta$, is one head with $(\beta_v, \beta_p) = (H\beta, \beta/H)$",
    wrong=2.0,
    wrong_text="attention steps twice as large",
)
def one_head(study: ManyHeadsStudy, constant: float) -> Evidence:
    return _against_one_head(study, ["sum"], constant)


@CLAIMS.claim(
    "Q2",
    "the same with shared values",
    r"H heads with one shared v, summed: one head with $(H^2\beta, \beta/H)$",
    wrong=2.0,
    wrong_text="attention steps twice as large",
)
def shared_values(study: ManyHeadsStudy, constant: float) -> Evidence:
    return _against_one_head(study, ["shared sum"], constant)


@CLAIMS.claim(
    "Q41",
    "means and scaled sums",
    r"with output scale c: $(c^2H\beta, \beta/H)$, and $(c^2H^2\beta, \beta/H)$ for a shared v; "
    r"$c = 1/H$ and $H^{-1/2}$",
    wrong=2.0,
    wrong_text="attention steps twice as large",
)
def other_variants(study: ManyHeadsStudy, constant: float) -> Evidence:
    return _against_one_head(study, ["mean", "root sum", "shared mean"], constant)


@CLAIMS.claim(
    "Q3",
    "two steps with two step sizes",
    r"$v_2 = \frac{\beta_v}{4n}\sum_i y_i(1+2g_i)(u_i+\xi_i)$, $p_2 = \frac{\beta_p}{4n}\sum_i g_i\gamma_i(u_i-\xi_i)$, "
    r"g and $\gamma$ from $v_1$",
    wrong=1.001,
    wrong_text="a beta_p 0.1 % larger",
)
def closed_form(study: ManyHeadsStudy, constant: float) -> Evidence:
    found = two_steps_apart(study.small, 0.4, constant * 0.07)
    path = gradient_descent(study.small, 0.4, 2, attention_step_size=0.07)
    return both(
        exactly(found.v2, path.v[-1], tolerance=1e-12),
        exactly(found.p2, path.p[-1], tolerance=1e-12),
        exactly(found.v1, path.v[1], tolerance=1e-12),
    )


def _fits(study: ManyHeadsStudy, row: object, multiple: float) -> np.ndarray:
    window = study.window
    return window.interpolates[list(WINDOW_ROWS).index(row), window.multiples.index(multiple)]


def _counts(fits: np.ndarray, wanted: bool, what: str) -> Evidence:
    shown = f"{int(fits.sum())} of {fits.size} {what}"
    rule = "every draw"
    return Evidence(bool((fits == wanted).all()), f"{'all' if wanted else 'none'} {what}", shown, rule, fits.size)


@CLAIMS.claim(
    "Q4",
    "many heads fit earlier",
    r"$n = 200$, $d = 40000$, $\rho = 30$, $\eta = 0.05$, $\beta = n/d$: after two steps 8 heads fit every label, one "
    r"head in no draw",
    source=Source.MEASURED,
    wrong=0.25,
    wrong_text="two heads in place of eight",
)
def fits_earlier(study: ManyHeadsStudy, constant: float) -> Evidence:
    return both(
        _counts(_fits(study, round(8 * constant), 1.0), True, "interpolate, many heads"),
        _counts(_fits(study, 1, 1.0), False, "interpolate, one"),
    )


@CLAIMS.claim(
    "Q5",
    "no attention is needed to fit in two steps",
    r"with attention frozen at one half, two steps fit every label at $\beta = 8n/d$ and in no draw at $5n/d$",
    source=Source.MEASURED,
    wrong=5 / 8,
    wrong_text="already at 5n/d",
)
def frozen_fits(study: ManyHeadsStudy, constant: float) -> Evidence:
    return both(
        _counts(_fits(study, "frozen", 8 * constant), True, "interpolate"),
        _counts(_fits(study, "frozen", 5.0), False, "interpolate at 5n/d"),
    )


@CLAIMS.claim(
    "Q96",
    "where the two-step window begins",
    r"the first of the page's step sizes at which at least half of the draws fit is the first above the mean-field edge, for 1, 2, 4, 8 "
    r"heads and for frozen attention",
    wrong=1.5,
    wrong_text="edges half as large again",
)
def edges(study: ManyHeadsStudy, constant: float) -> Evidence:
    window = study.window
    wanted = [constant * window_edge(PAPER_SIZE, row) for row in window.rows]
    grid = np.array(window.multiples)
    first = [grid[share >= 0.5].min(initial=np.inf) for share in window.share]
    holds = all(have == grid[grid > edge].min(initial=np.inf) for have, edge in zip(first, wanted, strict=True))
    texts = [", ".join(f"{value:.3g}" for value in row) for row in (wanted, first)]
    draws = window.interpolates.shape[-1]
    return Evidence(holds, "edges " + texts[0], "first fits at " + texts[1], "the next step size of the grid", draws)


# --- slower attention -------------------------------------------------------------------------------------------------------


def _mean_error(course: Course, low: float, high: float) -> Evidence:
    values = course.log10_error[course.at(2000)]
    error = values.std(ddof=1) / np.sqrt(values.size)
    evidence = within(_t([values.mean()]), low=low, high=high, quantity="mean log₁₀ err")
    shown = f"{values.mean():.2f} +- {error:.2f} s.e., draws in [{values.min():.2f}, {values.max():.2f}]"
    return replace(evidence, measured=shown, rule="mean over draws in the interval", draws=values.size)


@CLAIMS.claim(
    "Q8",
    "below the threshold four heads postpone the harm",
    r"$n = 200$, $d = 40000$, $\rho = 16$, $\beta = 5n/d$, step 2000: mean $\log_{10}$ err of 4 heads is $-4.4 \pm 0.5$",
    source=Source.MEASURED,
    wrong=0.25,
    wrong_text="one head",
)
def postponed(study: ManyHeadsStudy, constant: float) -> Evidence:
    return _mean_error(study.slow[round(4 * constant)][0], -4.9, -3.9)


@CLAIMS.claim(
    "Q9",
    "where one head is spoiled",
    r"the same for one head: $-0.58 \pm 0.02$",
    source=Source.MEASURED,
    wrong=4.0,
    wrong_text="four heads",
)
def spoiled(study: ManyHeadsStudy, constant: float) -> Evidence:
    return _mean_error(study.slow[round(constant)][0], -0.60, -0.56)


# --- the threshold ----------------------------------------------------------------------------------------------------------


def _fate_rule(fates: Fates, flow: bool) -> np.ndarray:
    """Whose fate is as the flow at ratio 1/H^2 says, or as the maximum-margin rule x > 1 says."""
    return (fates.x > fates.threshold if flow else fates.x > 1) == fates.on_signal


@CLAIMS.claim(
    "Q11",
    "no label noise: the threshold is x = 1 for any number of heads",
    r"$\eta = 0$, $n = 100$, $d = 10^6$, H = 1, 2, 4 from zero: every class outside 5 % of $x = 1$ ends on the token that "
    r"maximum margin selects",
    wrong=1.3,
    wrong_text="the boundary at x = 1.3",
)
def fates_without_noise(study: ManyHeadsStudy, constant: float) -> Evidence:
    right = [((f.x > constant) == f.on_signal)[np.abs(f.x - 1) > 0.05] for f in study.no_noise.values()]
    return _share(np.concatenate(right), 1.0, "classes")


def _boundaries(rows: dict[float, Sequence[float]], time: float, constant: float) -> Evidence:
    """x* at eta = 0.1, 0.2, 0.3 for each ratio r, against the values stated."""
    found = {r: [signal_threshold(eta, attention_rate=r, time=time) for eta in (0.1, 0.2, 0.3)] for r in rows}
    ratio = _t([np.divide(found[r], rows[r]) for r in rows])
    evidence = exactly(ratio, constant, tolerance=5e-3, draws=1)
    shown = "; ".join(f"r = {r:g}: " + ", ".join(f"{x:.4g}" for x in found[r]) for r in rows)
    said = "; ".join(f"r = {r:g}: " + ", ".join(f"{x:.4g}" for x in rows[r]) for r in rows)
    return replace(evidence, predicted=said, measured=shown, rule="relative deviation <= 0.5 %")


@CLAIMS.claim(
    "Q12",
    "the boundary of gradient flow at three ratios of step sizes",
    r"$x^*$ at $\eta = 0.1, 0.2, 0.3$: 1.208, 1.621, 2.80 at $r = 1$; 1.224, 1.698, 3.30 at $r = 1/4$; 1.197, 1.571, 2.53 at "
    r"$r = 4$ ($\tau = 10^7$), to 0.5 %",
    wrong=1.02,
    wrong_text="values 2 % larger",
)
def boundary_values(study: ManyHeadsStudy, constant: float) -> Evidence:
    rows = {1.0: (1.208, 1.621, 2.80), 1 / 4: (1.224, 1.698, 3.30), 4.0: (1.197, 1.571, 2.533)}
    return _boundaries(rows, 1e7, constant)


@CLAIMS.claim(
    "Q43",
    "more heads need more signal",
    r"the flow's boundary rises with the number of heads, $r = 1/H^2$: $x^*(0.2) = 1.621, 1.696, 1.781, 1.852$ and "
    r"$x^*(0.1) = 1.208, 1.224, 1.241, 1.254$ for H = 1, 2, 4, 8 ($\tau = 10^{30}$)",
    wrong=1.02,
    wrong_text="values 2 % larger",
)
def boundary_rises(study: ManyHeadsStudy, constant: float) -> Evidence:
    said = {0.1: (1.208, 1.224, 1.241, 1.254), 0.2: (1.621, 1.696, 1.781, 1.852)}
    found = {eta: [signal_threshold(eta, attention_rate=4.0**-k, time=1e30) for k in range(4)] for eta in said}
    rising = all((np.diff(row) > 0).all() for row in found.values())
    evidence = exactly(_t([np.divide(found[eta], said[eta]) for eta in said]), constant, tolerance=5e-3, draws=1)
    texts = ["; ".join(", ".join(f"{x:.4g}" for x in rows[eta]) for eta in said) for rows in (said, found)]
    rule = "rising, relative deviation <= 0.5 %"
    return replace(evidence, holds=evidence.holds and rising, predicted=texts[0], measured=texts[1], rule=rule)


@CLAIMS.claim(
    "Q13",
    "the flow predicts the fates of one head",
    r"$\eta = 0.2$, $n = 100$, $d = 10^6$, $x$ geometric in $[0.9, 2.5]$: a class ends on its signal iff $x > x^*$ of its own flips",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="the maximum-margin rule x > 1",
)
def flow_predicts(study: ManyHeadsStudy, constant: float) -> Evidence:
    return _share(_fate_rule(study.flips[1], bool(constant)), 0.95, "classes")


@CLAIMS.claim(
    "Q42",
    "and the fates of many heads",
    r"the same for the sum of 2 and of 4 heads, with $x^*$ at $r = 1/H^2$ and the clock's $\tau = 7\cdot10^9$",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="the maximum-margin rule x > 1",
)
def flow_predicts_heads(study: ManyHeadsStudy, constant: float) -> Evidence:
    return both(*(_share(_fate_rule(study.flips[H], bool(constant)), 0.95, f"classes, H = {H}") for H in (2, 4)))


@CLAIMS.claim(
    "Q14",
    "first move against final fate",
    r"$x_1/x^* = 1.025$ at $\eta = 0.05$ and $1.25$ at $0.3$ ($r = 1$), "
    r"$x_1 = \frac{\nu + \sqrt{\nu^2 + (1-\nu)^2}}{(1-\nu)^2}$ for every $r$",
    wrong=1.05,
    wrong_text="ratios 5 % larger",
)
def first_order(study: ManyHeadsStudy, constant: float) -> Evidence:
    found = _t([first_order_threshold(eta) / signal_threshold(eta) for eta in (0.05, 0.3)])
    evidence = exactly(found / _t([1.025, 1.25]), constant, tolerance=1e-2, draws=1)
    shown = ", ".join(f"{value:.4g}" for value in found.tolist())
    return replace(evidence, predicted="1.025, 1.25", measured=shown, rule="relative deviation <= 1 %")


# --- random starts ----------------------------------------------------------------------------------------------------------


def _not_far(study: ManyHeadsStudy) -> str:
    law = study.law
    x, need = law.signal_norm**2 * law.n * (1 - law.label_noise) / 2 / law.d, 1.5 * signal_threshold(law.label_noise)
    return "" if x > need else f"needs x > 1.5 x* = {need:.3g}; here {x:.3g}"


def _size(study: ManyHeadsStudy, size: float) -> float:
    return min(study.starts, key=lambda s: abs(np.log(s / size)))


@CLAIMS.claim(
    "Q10", "far above the threshold heads attend alike",
    r"starts of norm 0.1, matched steps, $x > 1.5\,x^*$: the largest difference between two heads' mean attention on clean samples is "
    r"on average below 0.01 at step 1000 and smaller at the end",
    source=Source.MEASURED, wrong=10.0, wrong_text="starts of norm 1",
    regime="$x > 1.5\\,x^*(\\eta)$", violation=_not_far,
)  # fmt: skip
def attend_alike(study: ManyHeadsStudy, constant: float) -> Evidence:
    course = study.starts[_size(study, 0.1 * constant)]
    spread = course.spread_clean
    early, late = spread[course.at(1000)], spread[-1]
    shown = f"{early.mean():.4f} +- {early.std(ddof=1) / np.sqrt(early.size):.4f} s.e. (largest {early.max():.4f}); end {late.mean():.4f}"
    holds = early.mean() < 0.01 and (late.mean() < early.mean() or course.steps[-1] == 1000)
    return Evidence(bool(holds), "< 0.01 on average, and falling", shown, "mean over draws", early.size)


@CLAIMS.claim(
    "Q44", "but they have not forgotten their starts",
    r"there, from starts of norm 0.01 to 0.3, the differences between heads' logits at the last step are within a factor 2 of those at the "
    r"start in every draw: neither gone nor grown; weights look alike because they saturate",
    source=Source.MEASURED, wrong=0.0, wrong_text="differences that vanish (a tenth or less)",
    regime="$x > 1.5\\,x^*(\\eta)$", violation=_not_far,
)  # fmt: skip
def not_forgotten(study: ManyHeadsStudy, constant: float) -> Evidence:
    growth = np.concatenate([course.growth[-1] for size, course in study.starts.items() if size <= 0.3])
    low, high = (0.5, 2.0) if constant else (0.0, 0.1)
    return within(_t(growth), low=low, high=high, quantity="logit differences, end / start")


@CLAIMS.claim(
    "Q45",
    "the growth of differences, to first order",
    r"starts of norm 0.02: the rms growth of the heads' class-mean logit differences over 1000 steps follows the linearised "
    r"mean field within 35 % in every bin of $x/x^*$, 30-fold and more at the threshold",
    wrong=0.0,
    wrong_text="no growth anywhere",
)
def growth_as_predicted(study: ManyHeadsStudy, constant: float) -> Evidence:
    _, found, wanted, _ = growth_in_bins(study)
    evidence = within(_t(found / wanted**constant), low=0.65, high=1.35, quantity="measured / predicted growth")
    shown = f"{evidence.measured.split(';')[0]} in {len(found)} bins; growth {found.min():.1f} to {found.max():.0f}"
    peak = found.max() > 30
    return replace(evidence, holds=evidence.holds and peak, measured=shown, rule="every bin", draws=study.growth.x.size)


def growth_in_bins(study: ManyHeadsStudy) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Middle of each bin of x / x*, rms growth measured and predicted, and the number of classes."""
    ratio = (study.growth.x / thresholds(study.growth)).ravel()
    apart = study.growth.class_difference.reshape(len(study.growth.steps), -1)
    predicted, rows = study.predicted_growth.ravel(), []
    for low, high in pairwise(GROWTH_BINS):
        own = (ratio >= low) & (ratio < high)
        if own.sum() >= 5:
            grown = np.sqrt((apart[-1, own] ** 2).sum() / (apart[0, own] ** 2).sum())
            rows.append((np.sqrt(low * high), grown, np.sqrt((predicted[own] ** 2).mean()), own.sum()))
    return tuple(np.array(rows).T)


@CLAIMS.claim(
    "Q46",
    "near the threshold heads divide the work",
    r"4 heads, starts of norm 0.3, 3000 steps of $n/d$: at least half of the classes with $x$ within 8 % of $x^*$ have two "
    r"heads whose attention on the signal differs by more than 1/2; none beyond 35 %",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="near and far exchanged",
)
def divided(study: ManyHeadsStudy, constant: float) -> Evidence:
    near, far = divided_classes(study)
    if not constant:
        near, far = far, near
    return both(_share(near, 0.5, "classes near x* divided"), _share(~far, 1.0, "classes far from x* not divided"))


def divided_classes(study: ManyHeadsStudy) -> tuple[np.ndarray, np.ndarray]:
    """Whether two heads' attention differs by more than 1/2 at the end: classes with x / x* within 8 %, and beyond 35 %."""
    distance = np.abs(np.log(study.division.x / thresholds(study.division)))
    apart = np.ptp(study.division.attention[-1], axis=-1) > 0.5
    return apart[distance < np.log(1.08)], apart[distance > np.log(1.35)]


@CLAIMS.claim(
    "Q47",
    "but not by direction",
    r"two directions per class near their threshold, starts of norm 0.3: heads grow apart in each, yet a head that leads in "
    r"one direction of a class neither leads nor trails in the other: cosine 0",
    source=Source.MEASURED,
    wrong=-0.5,
    wrong_text="half of a perfect division, a cosine of -1/2",
)
def not_by_direction(study: ManyHeadsStudy, constant: float) -> Evidence:
    course = study.directions
    end = across_directions(course, course.steps[-1])
    predicted = 0.0 if constant == 1.0 else constant
    error = end.std(ddof=1) / np.sqrt(end.size)
    apart = np.sqrt((course.class_difference[-1] ** 2).mean() / (course.class_difference[0] ** 2).mean())
    shown = f"{end.mean():.2f} +- {error:.2f} s.e.; differences grew {apart:.0f}-fold"
    holds = abs(end.mean() - predicted) <= 4 * error and apart > 5
    numbers = {"cosine": end.mean(), "standard_error": error, "growth": apart}
    return Evidence(bool(holds), f"{predicted:g}", shown, "|mean| <= 4 s.e.; growth > 5", end.size, numbers)


@CLAIMS.claim(
    "Q95",
    "what the data do not see stays",
    r"the parts of $v_h^0$ and $p_h^0$ outside the span of the training data never change, whatever H and the step sizes",
    wrong=1.001,
    wrong_text="a part 0.1 % larger",
)
def residue(study: ManyHeadsStudy, constant: float) -> Evidence:
    sample = study.small
    start = random_start(sample, 3, 1.0)
    path = train_heads(sample, 0.3, 50, heads=3, start=start, record=[], method="vectors")
    seen = 2 + sample.law.n  # the coordinates of signals and noise tokens; the start vectors have the others
    parts = zip((path.v[-1], path.p[-1]), start, strict=True)
    return both(*(exactly(end[..., seen:], constant * begin[..., seen:], tolerance=1e-12) for end, begin in parts))
