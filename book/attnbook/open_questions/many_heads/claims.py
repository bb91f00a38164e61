r"""Claims Q1-Q5, Q8-Q14 and Q41-Q47: what many heads do that one head does not. Derivations: page *Many heads* and the chapter."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from attnbook.open_questions.judging import mean_share, per_draw, tensor
from attnbook.open_questions.many_heads.equal_heads import VARIANTS, equal_heads, two_steps_apart, window_edge
from attnbook.open_questions.many_heads.random_starts import across_directions, random_start
from attnbook.open_questions.many_heads.study import GROWTH_BINS, PAPER_SIZE, WINDOW_ROWS, ManyHeadsStudy, thresholds
from attnbook.open_questions.second_solver import ends_on_signal, on_both_sides
from attnbook.single_head.flow import first_order_threshold, signal_threshold
from attnbook.single_head.long_run import Course, Fates
from attnlib.single_head.training import gradient_descent, train_heads
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, Evidence, agrees, both, exactly, mean_within, share_within, statistic_within, within

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
            return Evidence(False, "equal heads", "heads differ", "algebra", study.small.runs)
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
    wrong: a beta_p 0.1 % larger"""
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


def _fit_in(fits: np.ndarray, low: float | None = None, high: float | None = None, *, what: str) -> Evidence:
    """A draw interpolates with a probability in [low, high]; half of LEVEL, for claims of two parts."""
    return share_within(int(fits.sum()), fits.size, low, high, quantity=f"P({what})", level=LEVEL / 2)


@CLAIMS.claim("Q4", wrong=0.25, source=Source.MEASURED, uses="Q1")
def fits_earlier(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""many heads fit with smaller steps
    $n = 200$, $d = 40000$, $\rho = 30$, $\eta = 0.05$, $\beta = n/d$: after two steps 8 heads fit every label in at least 80 % of draws,
    one head in at most 20 %
    wrong: two heads in place of eight"""
    return both(
        _fit_in(_fits(study, round(8 * constant), 1.0), 0.8, what="fit, many heads"),
        _fit_in(_fits(study, 1, 1.0), high=0.2, what="fit, one head"),
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


def _mean_error(course: Course, low: float, high: float) -> Evidence:
    values = tensor(course.log10_error[course.at(2000)])
    evidence = mean_within(values, low, high, quantity="mean log₁₀ err")
    shown = f"{values.mean():.2f} +- {evidence.numbers['standard_error']:.2f}, draws in [{values.min():.2f}, {values.max():.2f}]"
    return replace(evidence, measured=shown)


@CLAIMS.claim("Q8", wrong=0.25, source=Source.MEASURED, uses="Q1")
def postponed(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""below the threshold four heads postpone the rise of the error
    $n = 200$, $d = 40000$, $\rho = 16$, $\beta = 5n/d$, from zero, step 2000: the mean $\log_{10}$ clean error of 4 heads is $-4.4 \pm 0.5$
    wrong: one head"""
    return _mean_error(study.slow[round(4 * constant)][0], -4.9, -3.9)


@CLAIMS.claim("Q9", wrong=4.0, source=Source.MEASURED, uses="R3")
def spoiled(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""below the threshold one head generalises poorly
    $n = 200$, $d = 40000$, $\rho = 16$, $\beta = 5n/d$, from zero, step 2000: the mean $\log_{10}$ clean error of one head is $-0.58 \pm
    0.02$
    wrong: four heads"""
    return _mean_error(study.slow[round(constant)][0], -0.60, -0.56)


# --- the threshold ----------------------------------------------------------------------------------------------------------


def _fate_rule(fates: Fates, flow: bool) -> np.ndarray:
    """Whose fate is as the flow at ratio 1/H^2 says, or as the maximum-margin rule x > 1 says."""
    return (fates.x > fates.threshold if flow else fates.x > 1) == fates.on_signal


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


def _boundaries(rows: dict[float, dict[float, float]], time: float, constant: float) -> Evidence:
    """Boundaries {r: {eta: x*}}: a second solver, to `time`, ends on the noise just below each and on the signal just above."""
    cells = [(r, eta, x) for r, row in rows.items() for eta, x in row.items()]
    rate, eta, values = (np.array(part) for part in zip(*cells, strict=True))
    return on_both_sides(values, constant, lambda x: ends_on_signal(x, eta, rate=rate, time=time))


@CLAIMS.claim("Q12", wrong=1.02, source=Source.MEASURED, uses="L4 thm-long-map")
def boundary_values(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""the boundary of gradient flow at three ratios of step sizes
    $x^*$ at $\eta = 0.1, 0.2, 0.3$: 1.208, 1.621, 2.80 at $r = 1$; 1.224, 1.698, 3.30 at $r = 1/4$; 1.197, 1.571, 2.53 at $r = 4$ ($\tau =
    10^7$), to 0.5 %: a second solver ends on the noise below and on the signal above each
    wrong: values 2 % larger"""
    etas = (0.1, 0.2, 0.3)
    rows = {1.0: (1.208, 1.621, 2.80), 1 / 4: (1.224, 1.698, 3.30), 4.0: (1.197, 1.571, 2.533)}
    return _boundaries({r: dict(zip(etas, row, strict=True)) for r, row in rows.items()}, 1e7, constant)


@CLAIMS.claim("Q43", wrong=1.02, source=Source.MEASURED, uses="Q1")
def boundary_rises(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""more heads need more signal
    the flow's boundary rises with the number of heads, $r = 1/H^2$: $x^*(0.2) = 1.621, 1.696, 1.781$ and $x^*(0.1) = 1.208, 1.224, 1.241$
    for H = 1, 2, 4, to 0.5 %: a second solver ends on the noise below and on the signal above each ($\tau = 10^{12}$)
    wrong: values 2 % larger"""
    values = {0.1: (1.208, 1.224, 1.241), 0.2: (1.621, 1.696, 1.781)}
    return _boundaries({4.0**-k: {eta: row[k] for eta, row in values.items()} for k in range(3)}, 1e12, constant)


@CLAIMS.claim("Q13", wrong=0.0, source=Source.MEASURED, box="thm-long-gap", uses="Q12")
def flow_predicts(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""the flow predicts the outcomes of one head
    $\eta = 0.2$, $n = 100$, $d = 10^6$, $x$ geometric in $[0.9, 2.5]$: at least 95 % of the classes end on their signal iff $x > x^*$ of
    their own flips
    wrong: the maximum-margin rule x > 1"""
    return mean_share([_fate_rule(study.flips[1], bool(constant))], 0.95, what="classes")


@CLAIMS.claim("Q42", wrong=0.0, source=Source.MEASURED, box="thm-open-equal-heads", uses="Q1 Q43")
def flow_predicts_heads(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""the flow predicts the outcomes of two and four heads
    $\eta = 0.2$, $n = 100$, $d = 10^6$, the sum of $H = 2$ and of $H = 4$ heads from zero: at least 95 % of the classes end on their signal
    iff $x > x^*$ of their own flips at $r = 1/H^2$ and $\tau = 7\cdot10^9$
    wrong: the maximum-margin rule x > 1"""
    right = {H: _fate_rule(study.flips[H], bool(constant)) for H in (2, 4)}
    return both(*(mean_share([own], 0.95, what=f"classes, H = {H}", level=LEVEL / 2) for H, own in right.items()))


@CLAIMS.claim("Q14", wrong=1.05, source=Source.MEASURED, box="thm-long-first-move", uses="Q12")
def first_order(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""the first move and the final outcome have different boundaries
    $x_1/x^* = 1.025$ at $\eta = 0.05$ and $1.25$ at $0.3$ ($r = 1$), to 1 %, $x_1 = \frac{\nu + \sqrt{\nu^2 + (1-\nu)^2}}{(1-\nu)^2}$: a
    second solver ends on the noise below and on the signal above
    wrong: ratios 5 % larger"""
    ratios, etas = constant * np.array([1.025, 1.25]), np.array([0.05, 0.3])
    values = np.array([first_order_threshold(eta) for eta in etas]) / ratios
    evidence = on_both_sides(values, 1.0, lambda x: ends_on_signal(x, etas), width=0.01)
    return replace(evidence, predicted=", ".join(f"x_1 / x* = {ratio:.4g}" for ratio in ratios))


# --- random starts ----------------------------------------------------------------------------------------------------------


def _not_far(study: ManyHeadsStudy) -> str:
    law = study.law
    x, need = law.signal_norm**2 * law.n * (1 - law.label_noise) / 2 / law.d, 1.5 * signal_threshold(law.label_noise)
    return "" if x > need else f"needs x > 1.5 x* = {need:.3g}; here {x:.3g}"


def _size(study: ManyHeadsStudy, size: float) -> float:
    return min(study.starts, key=lambda s: abs(np.log(s / size)))


@CLAIMS.claim("Q10", wrong=10.0, source=Source.MEASURED, uses="Q12", violation=_not_far)
def attend_alike(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""far above the threshold heads attend alike
    starts of norm 0.1, matched steps, $x > 1.5\,x^*$: the largest difference between two heads' mean attention on clean samples is below
    0.02 at step 1000 in at least 90 % of draws, and on average a fifth or more smaller at the end
    regime: $x > 1.5\,x^*(\eta)$
    wrong: starts of norm 1"""
    course = study.starts[_size(study, 0.1 * constant)]
    early, late = tensor(course.spread_clean[course.at(1000)]), tensor(course.spread_clean[-1])
    small = within(early, high=0.02, quantity="difference at step 1000", share=0.9, level=LEVEL / 2)
    if course.steps[-1] == 1000:
        return small
    falls = mean_within(0.8 * early - late, low=0.0, quantity="0.8 of it minus that at the end", level=LEVEL / 2)
    shown = f"{small.measured}, mean {early.mean():.4f}; end {late.mean():.4f}"
    return replace(both(small, falls), measured=shown)


@CLAIMS.claim("Q44", wrong=0.0, source=Source.MEASURED, uses="Q10", violation=_not_far)
def not_forgotten(study: ManyHeadsStudy, constant: float) -> Evidence:
    r"""far above the threshold the heads' logits keep the differences of their starts
    from starts of norm 0.01 to 0.3, the differences between heads' logits at the last step are within a factor 2 of those at the start in
    at least 95 % of draws: they neither vanish nor grow; the weights are alike because they saturate
    regime: $x > 1.5\,x^*(\eta)$
    wrong: differences that vanish (a tenth or less)"""
    growth = np.stack([course.growth[-1] for size, course in study.starts.items() if size <= 0.3], 1)  # (draws, sizes)
    low, high = (0.5, 2.0) if constant else (0.0, 0.1)
    return within(tensor(growth), low=low, high=high, quantity="logit differences, end / start")


@CLAIMS.claim("Q45", wrong=0.0, source=Source.MEASURED, box="thm-open-differences", uses="Q12")
def growth_as_predicted(study: ManyHeadsStudy, constant: float) -> Evidence:
    """the growth of differences, to first order
    starts of norm 0.02: the root mean square growth of the differences between heads' class-mean logits over 1000 steps follows the
    linearised orthogonal-noise equations within 25 % in each of ten bins of $x/x^*$; at the threshold it is 30-fold or more
    wrong: no growth anywhere"""
    parts, grown = [], []
    end, start, predicted, held = _squares_in_bins(study)
    used = [b for b in range(held.shape[1]) if held[:, b].sum() >= 5]
    level = LEVEL / (len(used) + 1)
    for b in used:
        columns = (end[:, b], start[:, b], predicted[:, b] if constant else held[:, b], held[:, b])
        parts.append(
            statistic_within(_growth_ratio, *columns, low=0.75, high=1.25, quantity="measured / predicted", level=level)
        )
        grown.append(_growth(end[:, b], start[:, b]))
    peak = used[int(np.argmax(grown))]
    parts.append(
        statistic_within(_growth, end[:, peak], start[:, peak], low=30.0, quantity="largest growth", level=level)
    )
    ratios = [part.numbers["measured"] for part in parts[:-1]]
    shown = f"[{min(ratios):.4g}, {max(ratios):.4g}] in {len(used)} bins; growth {min(grown):.1f} to {max(grown):.0f}"
    numbers = {"min": min(ratios), "max": max(ratios)}
    return replace(both(*parts), measured=shown, rule=f"each bin; {parts[0].rule}", numbers=numbers)


def _growth(end: torch.Tensor, start: torch.Tensor) -> float:
    return (end.sum() / start.sum()).sqrt().item()


def _growth_ratio(end: torch.Tensor, start: torch.Tensor, predicted: torch.Tensor, held: torch.Tensor) -> float:
    """Measured rms growth over the predicted one, from sums over the classes of every draw."""
    return _growth(end, start) / (predicted.sum() / held.sum()).sqrt().item()


def _squares_in_bins(study: ManyHeadsStudy) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sums over a draw's classes in each bin of x / x*, (draws, bins): squared difference at the end and at the start, squared
    predicted growth, and the number of classes."""
    ratio, apart = study.growth.x / thresholds(study.growth), study.growth.class_difference
    inside = np.stack([(ratio >= low) & (ratio < high) for low, high in pairwise(GROWTH_BINS)], -1)  # (R, K, bins)
    parts = (apart[-1] ** 2, apart[0] ** 2, study.predicted_growth**2, np.ones_like(ratio))
    return tuple(tensor((part[..., None] * inside).sum(1)) for part in parts)


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


@CLAIMS.claim("Q46", wrong=0.0, source=Source.MEASURED, uses="Q12")
def divided(study: ManyHeadsStudy, constant: float) -> Evidence:
    """near the threshold heads divide between signal and noise
    4 heads, starts of norm 0.3, 3000 steps of $n/d$: on average at least half of the classes with $x$ within 8 % of $x^*$ have two heads
    whose attention on the signal differs by more than 1/2, and at most 5 % of the classes with $x$ further than 35 % from $x^*$
    wrong: near and far exchanged"""
    apart, near, far = _divided(study)
    if not constant:
        near, far = far, near
    return both(
        mean_share([apart], 0.5, what="classes near x* divided", judged=[near], level=LEVEL / 2),
        mean_share([apart], high=0.05, what="classes far from x* divided", judged=[far], level=LEVEL / 2),
    )


def _divided(study: ManyHeadsStudy) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Flags (draws, 2): two heads' attention differs by more than 1/2 at the end; x / x* is within 8 %; it is beyond 35 %."""
    distance = np.abs(np.log(study.division.x / thresholds(study.division)))
    apart = np.ptp(study.division.attention[-1], axis=-1) > 0.5
    return apart, distance < np.log(1.08), distance > np.log(1.35)


def divided_classes(study: ManyHeadsStudy) -> tuple[np.ndarray, np.ndarray]:
    """Whether two heads' attention differs by more than 1/2 at the end: classes with x / x* within 8 %, and beyond 35 %."""
    apart, near, far = _divided(study)
    return apart[near], apart[far]


@CLAIMS.claim("Q47", wrong=-0.5, source=Source.MEASURED, box="thm-open-differences", uses="Q12")
def not_by_direction(study: ManyHeadsStudy, constant: float) -> Evidence:
    """heads do not divide by direction
    two directions per class near their threshold, starts of norm 0.3: heads grow apart in each, yet a head that leads in one direction of a
    class neither leads nor trails in the other: mean cosine 0, while differences grow 5-fold or more
    wrong: half of a perfect division, a cosine of -1/2"""
    course = study.directions
    cosine = tensor(across_directions(course, course.steps[-1]))
    none = agrees(cosine, 0.0 if constant == 1.0 else constant, level=LEVEL / 2)
    end, start = (tensor((course.class_difference[row] ** 2).sum(-1)) for row in (-1, 0))
    grown = statistic_within(_growth, end, start, low=5.0, quantity="growth of differences", level=LEVEL / 2)
    numbers = {
        "cosine": none.numbers["measured"],
        "standard_error": none.numbers["standard_error"],
        "growth": grown.numbers["measured"],
    }
    return replace(both(none, grown), numbers=numbers)


@CLAIMS.claim("Q95", wrong=1.001, box="prop-open-span")
def residue(study: ManyHeadsStudy, constant: float) -> Evidence:
    """what the training tokens do not span stays
    under gradient descent the components of the starts $v_h^0$ and $p_h^0$ outside the span of the training tokens never change, for any H
    and any step sizes
    wrong: a part 0.1 % larger"""
    sample = study.small
    start = random_start(sample, 3, 1.0)
    path = train_heads(sample, 0.3, 50, heads=3, start=start, record=[], method="vectors")
    seen = 2 + sample.law.n  # the coordinates of signals and noise tokens; the start vectors have the others
    parts = zip((path.v[-1], path.p[-1]), start, strict=True)
    return both(*(exactly(end[..., seen:], constant * begin[..., seen:], tolerance=1e-12) for end, begin in parts))
