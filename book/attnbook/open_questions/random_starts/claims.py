r"""Claims Q10 and Q45-Q47: heads that start apart; Q49b and Q93-Q94b: heads whose vectors are products of matrices.

Proofs of the derived ones in the theory chapter of Part IV.
"""

from dataclasses import replace

import numpy as np
import torch

from attnbook.open_questions.judging import mean_share, tensor
from attnbook.single_head.flow import signal_threshold
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, agrees, both, mean_within, statistic_within, within
from bookkit.worlds import changed, exchange, instead, times, together

CLAIMS = ClaimSet("open_questions")


# --- random starts ----------------------------------------------------------------------------------------------------------


def _not_far(study):
    law = study.law
    x, need = law.signal_norm**2 * law.n * (1 - law.label_noise) / 2 / law.d, 1.5 * signal_threshold(law.label_noise)
    return "" if x > need else f"needs x > 1.5 x* = {need:.3g}; here {x:.3g}"


def _nearest(starts, size):
    return min(starts, key=lambda s: abs(np.log(s / size)))


def _large(starts):
    return starts | {_nearest(starts, 0.1): starts[_nearest(starts, 1.0)]}


def _end_first(course):
    """Step 1000 and the end exchanged."""
    rows = np.arange(len(course.steps))
    rows[[course.at(1000), -1]] = rows[[-1, course.at(1000)]]
    return replace(course, attention_clean=course.attention_clean[rows])


LARGE = changed(_large, "starts")
END_FIRST = changed(lambda starts: {size: _end_first(course) for size, course in starts.items()}, "starts")


@CLAIMS.claim("Q10", wrong=(LARGE, END_FIRST), source=Source.MEASURED, uses="Q12", violation=_not_far)
def attend_alike(study):
    r"""far above the threshold heads attend alike
    starts of norm 0.1, matched steps, $x > 1.5\,x^*$: the agreement of two heads, 1 less the difference of their mean attention on clean
    samples, is 0.98 or more for any two at step 1000 in at least 90 % of draws; on average the largest difference is a fifth or more
    smaller at the end
    regime: $x > 1.5\,x^*(\eta)$
    wrong: starts of norm 1; step 1000 and the end exchanged"""
    course = study.starts[_nearest(study.starts, 0.1)]
    early, late = tensor(course.spread_clean[course.at(1000)]), tensor(course.spread_clean[-1])
    small = within(1 - early, low=0.98, quantity="agreement at step 1000", share=0.9, level=LEVEL / 2)
    if course.steps[-1] == 1000:
        return small
    falls = mean_within(0.8 * early - late, low=0.0, quantity="0.8 of it minus that at the end", level=LEVEL / 2)
    shown = f"{small.measured}; mean difference {early.mean():.4f}, at the end {late.mean():.4f}"
    return replace(both(small, falls), measured=shown, numbers={})


NO_GROWTH = changed(np.ones_like, "predicted_growth")


@CLAIMS.claim("Q45", wrong=NO_GROWTH, source=Source.MEASURED, box="thm-open-differences", uses="Q12")
def growth_as_predicted(study):
    r"""the growth of differences, to first order
    starts of norm 0.02, $x$ from $0.35$ to $3.5$ times $x^*$: the growth of the difference between heads' class-mean logits over 1000
    steps, over that of the linearised orthogonal-noise equations, has geometric mean 1 up to 0.05 over the classes of a draw
    wrong: no growth anywhere"""
    grown = np.log(study.growth.class_difference[-1] / study.growth.class_difference[0])
    apart = tensor(grown - np.log(study.predicted_growth))
    bounds = {"low": 0.95, "high": 1.05, "quantity": "measured / predicted"}
    return replace(statistic_within(_geometric_mean, apart, **bounds), numbers={})


def _geometric_mean(logs):
    return logs.mean().exp().item()


def _growth(end, start):
    return (end.sum() / start.sum()).sqrt().item()


@CLAIMS.claim("Q46", wrong=exchange("divided.near", "divided.far"), source=Source.MEASURED, uses="Q12")
def divided(study):
    """near the threshold heads divide between signal and noise
    4 heads, starts of norm 0.3, 3000 steps of $n/d$: on average at least half of the classes with $x$ within 8 % of $x^*$ have two heads
    whose attention on the signal differs by more than 1/2, and at most 5 % of the classes with $x$ further than 35 % from $x^*$
    wrong: near and far exchanged"""
    heads, level = study.divided, LEVEL / 2
    return both(
        mean_share([heads.apart], 0.5, what="classes near x* divided", judged=[heads.near], level=level),
        mean_share([heads.apart], high=0.05, what="classes far from x* divided", judged=[heads.far], level=level),
    )


HALF_DIVIDED, FOURFOLD = changed(lambda cosine: cosine + 0.5, "cosine"), times(1 / 16, "squares.1")


@CLAIMS.claim("Q47", wrong=(HALF_DIVIDED, FOURFOLD), source=Source.MEASURED, box="thm-open-differences", uses="Q12")
def not_by_direction(study):
    r"""heads do not divide by direction
    two directions per class near their threshold, starts of norm 0.3: heads grow apart in each, yet a head that leads in one direction of a
    class neither leads nor trails in the other: mean cosine 0, while differences grow $20.9 \pm 0.7$-fold
    wrong: half of a perfect division, a cosine of -1/2; a growth 4 times as large
    coarse 2: the spread over twenty seeds; to see half as much would take eighty"""
    none = agrees(tensor(study.cosine), 0.0, level=LEVEL / 2)
    start, end = (tensor(squares) for squares in study.squares)
    bounds = {"low": 20.2, "high": 21.6, "quantity": "growth of differences"}
    grown = statistic_within(_growth, end, start, **bounds, level=LEVEL / 2)
    numbers = {
        "cosine": none.numbers["measured"],
        "standard_error": none.numbers["standard_error"],
        "growth": grown.numbers["measured"],
    }
    return replace(both(none, grown), numbers=numbers)


# --- products of matrices --------------------------------------------------------------------------------------------------


@CLAIMS.claim("Q93", wrong=(0.5, 2.0), box="thm-heads-products")
def attention_waits(study, constant):
    r"""the attention of a product of matrices grows slowly from a small start
    $p = W_K a$, both trained by step $\beta$: $|p_t| \le \tfrac12 E_0 \prod_{s<t}(1+\beta|\nabla_pL_s|)^2$ with $E_0 = |W_K|^2 + |a|^2$ at
    the start, and the bound is at most $e^4$ away in at least 95 % of draws: $\log|p|$ grows twice as fast as the sum of gradient norms
    wrong: a bound in which log |p| grows half as fast; one in which it grows twice as fast"""
    slack = []
    for path in study.factors.runs.values():
        bound = torch.log(path.attention_size[:1] / 2) + 2 * constant * path.drive
        slack.append((bound - path.p.norm(dim=-1).log()).permute(1, 0, 2).flatten(1))
    slack = torch.cat(slack, 1)
    proved = within(slack, low=-1e-9, quantity="log of bound / |p|", share=1)
    return both(proved, within(slack, high=4.0, quantity="log of bound / |p|"))


def _of_norm_three_tenths(runs):
    return {(norm, size): runs[norm, 0.3] if size == 0.01 else run for (norm, size), run in runs.items()}


LARGER = together(instead("factors.kept.small", "factors.kept.large"), changed(_of_norm_three_tenths, "factors.runs"))
FIRST_STEP = changed(lambda margins: margins[:2], "margins")  # steps 0 and 1
UNFITTED = changed(lambda runs: {key: FIRST_STEP(run) for key, run in runs.items()}, "factors.runs")
EXCHANGED = exchange("factors.kept.small", "factors.kept.plain")


@CLAIMS.claim("Q94", wrong=(LARGER, UNFITTED, EXCHANGED), source=Source.MEASURED, box="thm-heads-products", uses="Q93")
def small_factors(study):
    r"""from small factors training gives a linear model for a long time
    factors of norm 0.01, $n = 100$, $d = 20000$, $\eta = 0.05$: after 500 steps every label is fitted in at least 95 % of draws, and
    the attention $s$ of clean samples is near one half: $1 - |2s - 1|$ is on average $0.95$ or more; below the threshold $\log_{10}$ clean
    error is on average at least 95 % of the linear model's, and with plain $p$, $v$ on average at least 77 % of it is lost
    wrong: factors of norm 0.3; the first step in place of the last; factors and plain vectors exchanged"""
    runs = [study.factors.runs[norm, 0.01] for norm in study.factors.norms]
    clean = torch.stack([run.attention_clean[-1, :, 0] for run in runs], 1)
    fitted = torch.stack([(run.margins[-1] > 0).double().mean(-1) for run in runs], 1)
    small, plain = (tensor(study.factors.kept[name]) for name in ("small", "plain"))
    level = LEVEL / 4
    whole = both(
        within(fitted, low=1.0, quantity="train accuracy", level=level),
        mean_within((1 - (2 * clean - 1).abs()).mean(1), 0.95, quantity="mean of 1 - |2 s - 1|", level=level),
        mean_within(small, low=0.95, quantity="mean exponent / linear model", level=level),
        mean_within(1 - plain, low=0.77, quantity="mean fraction lost, plain", level=level),
    )
    return replace(whole, numbers={})


@CLAIMS.claim("Q94b", wrong=0.1, box="thm-heads-products")
def rank_one(study, constant):
    r"""the learned matrix is close to rank one
    $p = W_K a$, both trained: $W_K^\top W_K - aa^\top$ is conserved by small steps, so the second singular value of $W_K$ stays below
    $\|W_K^\top W_K - aa^\top\|^{1/2}$ of the start, up to 2 % in at least 95 % of draws, while the first one grows
    wrong: a tenth of the bound"""
    ratios = []
    for (_, size), path in study.factors.runs.items():
        if size < 1:  # at norm 1 the first steps are not small
            ratios.append((path.singular_values[..., 1] / path.second_bound).permute(1, 0, 2).flatten(1))
    evidence = within(torch.cat(ratios, 1), high=1.02 * constant, quantity="second singular value / bound")
    smallest = study.factors.runs[study.factors.norms[0], 0.01].singular_values[-1]
    shown = f"; second / first at the end {(smallest[..., 1] / smallest[..., 0]).mean().item():.2f} (start 0.01)"
    return replace(evidence, measured=evidence.measured + shown)


def _one_class(flags):
    """The other way round in the first of two classes."""
    return flags ^ np.array([True, False])


HALF = changed(lambda divided: {name: _one_class(flags) for name, flags in divided.items()}, "factors.divided")


@CLAIMS.claim("Q49b", wrong=HALF, source=Source.MEASURED, uses="Q49")
def not_found(study):
    r"""gradient descent does not find the division
    $n = 40$, $d = 8000$, $\eta = 0.2$, $\rho = 120$ ($u \approx 7$), two heads from random starts, factors of norm 0.1 and vectors with the
    same start: at most 5 % of the classes divide on average, although maximum margin divides nearly all
    wrong: half of the classes"""
    parts = {
        name: mean_share([flags], -0.05, 0.05, what=f"classes divided, {name}", level=LEVEL / 2)
        for name, flags in study.factors.divided.items()
    }
    evidence, flags = both(*parts.values()), study.factors.divided
    shown = ", ".join(f"{int(part.sum())} of {part.size} ({name})" for name, part in flags.items())
    numbers = {name: part.numbers["share"] for name, part in parts.items()}
    return replace(evidence, predicted="at most 5 % of the classes", measured=shown, numbers=numbers)
