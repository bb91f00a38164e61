r"""Claims Q30, Q40, Q53, Q53b and Q55-Q59: which rules leave the trap, and what the first pass of mini-batches does."""

from dataclasses import replace

import numpy as np

from attnbook.open_questions.judging import mean_share, tensor
from attnbook.open_questions.out_of_the_trap.study import MAP_XS
from attnbook.open_questions.second_solver import ends_on_signal, on_both_sides
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, agrees, both, exactly, mean_within, on_grid, share_within, within
from bookkit.worlds import changed, exchange, instead

CLAIMS = ClaimSet("open_questions", Source.MEASURED)


@CLAIMS.claim("Q40", wrong=exchange("svm", "descent"), box="thm-long-gap", uses="L3 M4")
def svm_against_descent(study):
    r"""in the trap the exact SVM selects the signal and gradient descent does not
    $\eta = 0.2$, $x = 1.3$, $n = 100$, $d = 2\cdot10^5$: the SVM puts on average at least 93 % of the classes on the signal; gradient
    descent, 20000 steps of $4n/d$ after a small-step start, leaves on average $0.780 \pm 0.025$ of them on the noise
    wrong: SVM and gradient descent exchanged"""
    level = LEVEL / 2
    svm = mean_share([study.svm], 0.93, what="classes on the signal, SVM", level=level)
    descent = mean_share([~study.descent], 0.755, 0.805, what="classes on the noise, gradient descent", level=level)
    return replace(both(svm, descent), numbers={"svm": svm.numbers["share"], "descent": descent.numbers["share"]})


@CLAIMS.claim("Q53", wrong=1.02, uses="thm-long-map")
def block_boundary(study, constant):
    """block-normalised flow has a lower boundary
    $x^*(0.05, 0.1, 0.2, 0.3) = 1.081, 1.188, 1.539, 2.408$ (gradient flow: 1.089, 1.208, 1.621, 2.799), to 0.5 %: a second solver ends on
    the noise below and on the signal above each
    wrong: values 2 % larger"""
    etas = np.array([0.05, 0.1, 0.2, 0.3])
    values = np.array([1.081, 1.188, 1.539, 2.408])
    return on_both_sides(values, constant, lambda x: ends_on_signal(x, etas, blocks=True))


@CLAIMS.claim(
    "Q53b",
    uses="Q53",
    wrong=(instead("block.boundary", "block.gradient_flow"), changed(np.ones_like, "block.boundary")),
)
def block_fates(study):
    r"""block-normalised descent follows its own boundary
    $\eta = 0.3$, $n = 200$, $d = 10^6$, $x$ in $[1.3, 3.6]$, 120 classes, block-normalised descent with small steps: on average at least 95
    % of the classes end on their signal iff $x$ is above its own boundary, and at least 95 % of the classes between that boundary and that
    of gradient flow
    wrong: gradient flow's boundary; the maximum-margin rule x > 1"""
    fates, level = study.block, LEVEL / 2
    right = (fates.x > fates.boundary) == fates.on_signal
    every = mean_share([right], 0.95, what="classes", level=level)
    between = mean_share([right], 0.95, what="classes between", judged=[fates.between], level=level)
    return replace(both(every, between), numbers={name: every.numbers[name] for name in ("share", "standard_error")})


LARGE, SMALL = "batches.batches of 20, 5 n/d", "batches.batches of 20, n/4d"


@CLAIMS.claim(
    "Q55", wrong=(instead(LARGE, SMALL), changed(lambda fitted: 1 - fitted, f"{LARGE}.train_accuracy")), uses="Q40"
)
def batches_escape(study):
    r"""mini-batches with large steps leave the trap
    the same law, batches of 20: with $\beta = 5n/d$ on average $0.92 \pm 0.03$ of the classes end on the signal, in at least 95 % of
    draws with every label fitted
    wrong: the step n/4d; no label fitted"""
    outcome, level = study.batches["batches of 20, 5 n/d"], LEVEL / 2
    fitted = within(tensor(outcome.train_accuracy), low=1.0, quantity="train accuracy", level=level)
    return both(mean_share([outcome.on_signal], 0.89, 0.95, what="classes on the signal", level=level), fitted)


@CLAIMS.claim(
    "Q30", box="prop-open-first-pass",
    wrong=(instead("passes.first pass", "passes.full batch, the same epoch"), exchange("passes.first pass", "passes.one full step")),
)  # fmt: skip
def leaning(study):
    r"""after one epoch attention leans to the signal
    $x = 0.27$, $n = 100$, $d = 20000$, $\eta = 0.1$: mean $p\cdot\mu_k$ after one epoch in batches of 20 with $\beta = 10n/d$ is
    $0.785 \pm 0.020$, and positive for both classes of at least 95 % of draws; after the one step of a full batch it is 0 exactly
    wrong: full batches, for an epoch of the same length; batches of 20 and the one full step exchanged"""
    p, one = (tensor(study.passes[name].p_signal) for name in ("first pass", "one full step"))
    mean = mean_within(p.mean(1), 0.765, 0.805, quantity="mean p.mu_k", level=LEVEL / 2)
    positive = within(p, low=0.0, quantity="p.mu_k", strict=True, level=LEVEL / 2)
    return both(mean, positive, exactly(one, 0.0, tolerance=1e-300))


def _reset_and_kept(way):
    return exchange(f"passes.{way}", f"passes.p set to 0, {way}")


@CLAIMS.claim("Q56", wrong=(_reset_and_kept("then gradient descent"), _reset_and_kept("batches on")), uses="Q30")
def first_pass_decides(study):
    r"""the first pass decides, not the noise of later steps
    $x = 0.27$: after one epoch in batches of 20 ($10n/d$), 1000 steps of full-batch descent end with a mean $\log_{10}$ clean error of
    $-5.80 \pm 0.25$; with $p$ set back to zero after that epoch, batches end with $-1.38 \pm 0.05$, full-batch descent with $-1.36 \pm
    0.05$
    wrong: p kept and p set to zero exchanged, followed by gradient descent; the same, followed by batches"""
    ranges = {
        "then gradient descent": (-6.05, -5.55),
        "p set to 0, batches on": (-1.43, -1.33),
        "p set to 0, then gradient descent": (-1.41, -1.31),
    }
    parts = (
        mean_within(tensor(study.passes[name].log10_error), *ends, quantity=f"{name}: mean log₁₀ err", level=LEVEL / 3)
        for name, ends in ranges.items()
    )
    return replace(both(*parts), numbers={})


@CLAIMS.claim("Q57", wrong=1.2, source=Source.DERIVED, box="prop-open-first-pass")
def leaning_law(study, constant):
    r"""the scores after the first pass are those of the recursion
    $p\cdot\mu_k$ after a first pass in $m$ batches with $\theta = \beta d/B$ is that of the recursion $V \leftarrow V + \frac{x\theta}m
    s(g_c - \nu g_n)$, $P \leftarrow P + \frac{x\theta}m s(1-s)V(g_c - \nu g_n)$, each class with its own counts ($d = 10^9$, $\theta = 50$,
    $m = 10$)
    wrong: scores 20 % larger"""
    ratio = tensor(study.wide_pass.p_signal) / tensor(study.wide_pass.predicted)
    return agrees(ratio.mean(1), constant, allowance=0.01, allowance_text="who is in which batch")


def _at_one(boundaries):
    return {eta: np.ones_like(boundary) for eta, boundary in boundaries.items()}


@CLAIMS.claim("Q58", wrong=changed(_at_one, "boundaries"), uses="Q57")
def fates_of_batches(study):
    r"""mini-batches have no threshold of their own at x = 1
    batches of 5, $n = 100$, $d = 2\cdot10^5$: in at least 95 % of 182 cells $(x, \theta)$ at $\eta = 0$ and at $\eta = 0.2$, most classes
    of the cell end as the orthogonal-noise prediction says, one pass followed by full-batch descent; the boundary is bracketed by the
    step of the grid, 26 % of $x$
    wrong: the maximum-margin rule x > 1
    coarse 1, 2: a map of 182 trainings takes half of the page's time, and its x are 26 % apart"""
    parts = []
    for eta, shares in study.maps.items():
        right = (shares > 0.5) == (np.array(MAP_XS)[:, None] > study.boundaries[eta])
        # Cells have draws of their own: independent trials, whose mean probability is judged.
        what = f"share of cells, eta = {eta:g}"
        parts.append(share_within(int(right.sum()), right.size, 0.95, quantity=what, level=LEVEL / len(study.maps)))
    return on_grid(both(*parts), MAP_XS[1] / MAP_XS[0] - 1)


@CLAIMS.claim("Q59", wrong=0.6, source=Source.DERIVED, box="rem-open-both-ends")
def signal_end(study, constant):
    r"""both ends of training lie in invariant sets
    $\eta = 0$, orthogonal noise of equal norm, every $x$: from a start in $\{V \ge t,\ s \ge \frac1{1+x}\}$ the set is never left and no
    step lowers attention, under gradient descent of any step size, and with heavy-ball momentum that begins there at rest
    wrong: the set s >= 0.6/(1 + x)"""
    x, attention, ahead = study.ends
    started = attention[:, 0] >= constant / (1 + x)
    falls = (np.diff(attention[started], axis=1) < -1e-12).sum(1) + (ahead[started] < -1e-12).sum(1)
    evidence = within(tensor(falls), high=0.0, quantity="falls", share=1)
    below = int((x[started] < 1).sum())
    return replace(evidence, measured=f"{int(falls.sum())} falls in {len(falls)} runs, {below} of them with x < 1")
