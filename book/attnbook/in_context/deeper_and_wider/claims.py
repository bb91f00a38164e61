r"""Claims I71-I79, I81-I89 and I96-I98: causal layers and stacks, other covariates, several tasks, and the distance from Bayes.

Each judge takes a `WiderStudy` and a constant (1 is the claim, `wrong` its negative control). Of the paper only its abstract was read.
"""

import math
from dataclasses import replace
from typing import Any

import torch

from attnbook.in_context.closed_form import bayes_risk_bounds
from attnbook.in_context.deeper_and_wider.findings import TaskFinding, WiderStudy
from attnbook.in_context.deeper_and_wider.multi_task import separate_maps, superposed_heads
from attnbook.in_context.deeper_and_wider.study import DEPTH_NAMES
from attnlib.in_context.law import RegressionLaw
from bookkit.claims import ClaimSet, Source, Verdict
from bookkit.rules import (
    Evidence,
    NothingToMeasure,
    agrees,
    both,
    estimate_within,
    exactly,
    mean_within,
    stored_within,
    within,
)

CLAIMS = ClaimSet("in_context")

_TRAINED = "training long enough: the page's default number of steps"


def _short(study: WiderStudy) -> str:
    steps = study.setting.steps
    return "" if steps >= 8000 else f"needs 8000 steps or more to speak of an end; here {steps}"


_LONG: dict[str, Any] = {"regime": _TRAINED, "violation": _short}


@CLAIMS.claim("I71", wrong=2.0, box="ic-exact-facts")
def no_leak(study: WiderStudy, constant: float) -> Evidence:
    """later tokens change nothing
    in a causal layer with one softmax no token's weights change when later tokens do, and no token attends to a later one
    wrong: the authors' layer, whose first token attends to all tokens"""
    return exactly(study.causal.leak["once" if constant == 1 else "twice"], 0.0, tolerance=1e-12)


@CLAIMS.claim(
    "I72",
    wrong=2.0,
    source=Source.MEASURED,
    box="ic-exact-facts",
    violation=lambda s: "" if (s.setting.d, s.setting.length) == (5, 40) else "needs d = 5 and L = 40; here others",
)
def flat_attention(study: WiderStudy, constant: float) -> Evidence:
    r"""a second softmax makes attention flat
    with the authors' two softmaxes the query's weights at a random start are uniform up to a half: $0.8\le Lp_i\le1.5$ in all heads and for
    all of twenty prompts, from at least 95 % of starts
    regime: d = 5 and L = 40, where it was measured
    wrong: one softmax"""
    return within(study.causal.spread["twice" if constant == 1 else "once"], low=0.8, high=1.5, quantity="L p")


def _median(values: torch.Tensor, low: float | None, high: float | None, quantity: str) -> Evidence:
    """Bounds on the median over starts, for what training finds from most starts but not from all. values (R,)."""
    found = stored_within(values.median().reshape(1), low, high, quantity=quantity)
    shown = f"median {values.median():.4g} of {len(values)} starts, {values.min():.4g} to {values.max():.4g}"
    rule = "bound on the median of the stored starts; the table is fixed, no chance"
    return replace(found, measured=shown, rule=rule, draws=len(values))


@CLAIMS.claim("I73", wrong=2.5, source=Source.MEASURED, uses="I71", **_LONG)
def depth(study: WiderStudy, constant: float) -> Evidence:
    """a second layer does not lower the risk
    without a residual stream, after the same number of steps from the same seeds, each of the stored stacks of two layers has 1.25 times
    the risk of one layer or more, with tied weights or not, with either mask
    wrong: 3.1 times or more"""
    one, *deeper = (risk for risk, _ in study.depth.values())
    ratios = torch.stack([risk / one.median() for risk in deeper], 1)
    return stored_within(ratios, low=1.25 * constant, quantity="risk of two layers over one")


@CLAIMS.claim("I74", wrong=0.0, source=Source.MEASURED, uses="I73", **_LONG)
def tying(study: WiderStudy, constant: float) -> Evidence:
    """tied or free weights: five starts show no difference
    in the stored trainings the ranges of the risk of two layers with tied weights and of two with free weights overlap: the best of either
    kind is better than the worst of the other, so that no difference is shown
    wrong: one layer in place of the tied ones"""
    one, free, tied = (study.depth[name][0] for name in DEPTH_NAMES[:3])
    if constant != 1:
        tied = one
    ends = torch.stack([tied.min() / free.max(), free.min() / tied.max()])
    return replace(
        stored_within(ends[None], high=1.0, quantity="best of one kind over worst of the other"),
        measured=f"{tied.min():.3g} to {tied.max():.3g} and {free.min():.3g} to {free.max():.3g}",
        draws=len(tied),
    )


def _anisotropic(study: WiderStudy) -> str:
    return "" if study.setting.rho else "needs a covariance that is not the identity; here rho = 0"


_LONG_ISOTROPIC: dict[str, Any] = {"regime": _TRAINED, "violation": lambda s: _short(s) or _anisotropic(s)}


@CLAIMS.claim("I75", wrong=0.0, source=Source.DERIVED, box="ic-step-risk ic-small-heads", uses="I17", **_LONG_ISOTROPIC)
def learned_preconditioner(study: WiderStudy, constant: float) -> Evidence:
    r"""the heads learn the preconditioner
    $\sum_h\mu_hM_h^\top$ has, along the eigenvectors of $\Sigma$, the eigenvalues of
    $\Gamma=[\Sigma+\frac{\operatorname{tr}\Sigma+s_2}{L}I]^{-1}$, each within 7 % (median of the stored runs; the abstract speaks of a form
    of preconditioned gradient descent)
    wrong: the identity instead of Γ"""
    _, gamma, along = study.anisotropic.eigenvalues()
    shape = torch.as_tensor(gamma) ** constant
    scale = gamma.sum() / shape.sum()
    ratio = along / (scale * shape)
    return _median((ratio - 1).abs().amax(1), None, 0.07, "largest relative deviation")


@CLAIMS.claim("I76", wrong=2.0, box="ic-step-risk ic-small-heads", uses="I75", **_LONG_ISOTROPIC)
def preconditioned_risk(study: WiderStudy, constant: float) -> Evidence:
    """the heads reach the risk of the preconditioned step
    the risk on anisotropic covariates is within 5 % of that of the best centred step with a matrix (median of the stored runs)
    wrong: within 5 % of twice that, about the best step with one number"""
    found = study.anisotropic
    return _median(found.risk / (constant * found.best), 0.95, 1.05, "risk over best")


@CLAIMS.claim("I77", wrong=0.5, source=Source.MEASURED, uses="I75", **_LONG_ISOTROPIC, expected=Verdict.FAILS)
def every_head(study: WiderStudy, constant: float) -> Evidence:
    r"""each head is a preconditioner by itself
    in the stored runs every head with $|\mu_h|\ge0.5$ has $M_h\propto\Gamma$ by itself: cosine 0.99 or more (the risk requires it of the
    sum over heads only)
    wrong: a cosine of 0.5 or more"""
    found = study.anisotropic
    active = found.trained.circuits().mu[:, -1].abs() >= 0.5
    cosines = found.head_cosines(found.gamma).masked_fill(~active, float("nan"))
    return stored_within(cosines, low=0.99 * constant, quantity="cosine")


def _shifted(study: WiderStudy) -> str:
    return "" if study.setting.mean else "needs covariates with a mean; here m = 0"


@CLAIMS.claim(
    "I78",
    wrong=0.0,
    source=Source.MEASURED,
    box="ic-mean ic-best-small",
    regime=_TRAINED + "; mean 0.6",
    violation=lambda s: _short(s) or ("" if s.setting.mean == 0.6 else f"needs the mean 0.6; here {s.setting.mean:g}"),
)
def debiasing_pays(study: WiderStudy, constant: float) -> Evidence:
    """with a mean, heads are better than a step with a number, not than one with a matrix
    on covariates of mean $m$, all entries 0.6, the risk of the trained heads is less than 0.6 times that of the best plain gradient step
    with one number, and at least 0.5 % above that of the best plain step with a matrix, which has to know the mean (medians of the stored
    runs; by the closed forms the best small heads have 2.5 % more there, and 0.8 % less where all entries are 1)
    wrong: the same compared with the best centred step with a matrix, no offset"""
    found = study.mean
    rival = found.preconditioned if constant == 1 else found.centred
    return both(
        _median(found.risk / found.scalar_step, None, 0.6, "risk over the plain number's"),
        _median(found.risk / rival, 1.005, None, "risk over the matrix's"),
    )


@CLAIMS.claim(
    "I79", wrong=0.0, box="ic-best-small", uses="I17", regime=_TRAINED, violation=lambda s: _short(s) or _shifted(s)
)
def offset(study: WiderStudy, constant: float) -> Evidence:
    r"""with a mean, the μ do not sum to zero
    on covariates with a mean, $\sum_h\mu_h$ of the trained heads is the offset $a$ that is best for small scores by the closed form, not
    zero (within 10 %, median of the stored runs)
    wrong: a zero sum"""
    found = study.mean
    predicted = constant * found.offset
    room = 0.1 * found.offset
    return _median(found.found_offset, predicted - room, predicted + room, "sum of mu")


@CLAIMS.claim("I81", wrong=2.0, box="ic-multi-task", uses="I17")
def enough_heads(study: WiderStudy, constant: float) -> Evidence:
    r"""N + 1 heads suffice for N tasks
    there are $N+1$ heads with $\sum_hV_{hk}=0$ for every task and $\sum_hV_{hk}M_h^\top=G_k$, the best matrix of the task alone: in the
    limit of small scores their risk is that of $N$ separate pairs
    wrong: N heads, without the one that is subtracted"""
    law = study.task_law
    M, V = (part[0] for part in superposed_heads(law, 0.1))
    if constant != 1:
        M, V = M[:-1], V[:-1]
    written = V[:, :, law.d :].diagonal(dim1=-2, dim2=-1)
    maps = torch.einsum("hk,hij->kji", written, M[:, : law.d, : law.d])
    gap = (maps - torch.as_tensor(separate_maps(law))).flatten()
    return exactly(torch.cat([gap, written.sum(0)]), 0.0, tolerance=1e-10, draws=law.tasks)


def _tasks(study: WiderStudy, heads: int) -> TaskFinding:
    return next(found for found in study.tasks if found.heads == heads)


@CLAIMS.claim("I82", wrong=1.25, source=Source.MEASURED, box="ic-multi-task", uses="I81", **_LONG)
def superposition(study: WiderStudy, constant: float) -> Evidence:
    """training finds the superposition
    three trained heads have on two tasks a mean risk within 10 % of that of separate steps (median of the stored runs)
    wrong: within 10 % of 1.25 times that"""
    ratio = _tasks(study, 3).risk / (constant * study.task_separate)
    return _median(ratio, 0.9, 1.1, "risk over separate")


@CLAIMS.claim("I83", wrong=0.75, box="ic-multi-task", uses="I81", **_LONG)
def one_matrix(study: WiderStudy, constant: float) -> Evidence:
    """two heads use one matrix for both tasks
    two trained heads have on two tasks the risk of the best single matrix for both, within 5 % (median of the stored runs)
    wrong: the risk of two separate matrices, 0.75 times as large"""
    found = _tasks(study, 2)
    return _median(found.risk / (constant * found.best), 0.95, 1.05, "risk over best")


@CLAIMS.claim("I84", wrong=0.1, source=Source.MEASURED, box="ic-multi-task", uses="I82", **_LONG)
def split_up(study: WiderStudy, constant: float) -> Evidence:
    """2N heads are little better than N + 1
    in the stored runs on two tasks the median risk of four heads is below that of three, by less than 5 %
    wrong: by less than half a per cent"""
    ratio = _tasks(study, 4).risk / _tasks(study, 3).risk.median()
    return _median(ratio, 1 - 0.05 * constant, 1.0, "four heads over three")


@CLAIMS.claim("I85", wrong=1.3, source=Source.CODE, **_LONG)
def authors_losses(study: WiderStudy, constant: float) -> Evidence:
    """the authors' losses on two tasks
    on two tasks the median loss of the stored runs at the end is that of the authors' runs: 0.40 to 0.44 with three heads, 0.35 to 0.44
    with four (published, one batch of 256 each; allowance 0.03)
    wrong: 1.3 times as large"""
    parts = []
    for heads, low, high in ((3, 0.40, 0.44), (4, 0.35, 0.44)):
        loss = _tasks(study, heads).trained.loss[:, -1]
        parts.append(_median(loss, constant * low - 0.03, constant * high + 0.03, f"{heads} heads"))
    return both(*parts)


@CLAIMS.claim("I86", wrong=1.003, source=Source.CODE, box="ic-bayes")
def published_totals(study: WiderStudy, constant: float) -> Evidence:
    r"""near Bayes at large noise
    the losses at $\sigma^2=3$, $d/L=0.2$ are 3.444 for the pair and 3.405 for ridge (proportional limit); measured at $d=100$
    wrong: 0.3 % higher"""
    found = study.large
    pair, bayes = found.pair + found.sigma2[0], found.bayes + found.sigma2[0]
    return both(
        estimate_within(
            pair, found.pair_se, found.prompts, 3.444 * constant - 0.003, 3.444 * constant + 0.003, quantity="pair"
        ),
        estimate_within(
            bayes, found.bayes_se, found.prompts, 3.405 * constant - 0.003, 3.405 * constant + 0.003, quantity="ridge"
        ),
    )


@CLAIMS.claim("I87", wrong=10_000.0, source=Source.MEASURED, uses="I88", expected=Verdict.FAILS)
def moderate_factor(study: WiderStudy, constant: float) -> Evidence:
    """the factor to Bayes is moderate
    the pair's risk is at most twice the Bayes risk at the noise of this page (the abstract's words are Bayes-optimal up to a proportional
    factor; the factor depends on the noise)
    wrong: at most twenty thousand times"""
    found = study.seed_noise
    return estimate_within(found.factor, found.factor_se, found.prompts, None, 2 * constant, quantity="pair over Bayes")


@CLAIMS.claim(
    "I88",
    wrong=1.15,
    box="ic-bayes ic-isotropic",
    violation=lambda s: "" if _formula_applies(s) else "needs L > d + 1 and s2 <= 0.01",
)
def size_of_the_factor(study: WiderStudy, constant: float) -> Evidence:
    r"""the size of the factor to Bayes
    at small noise the ratio of the pair's risk to the Bayes risk is $\frac{(d+1+s_2)(L-d-1)}{(L+d+s_2)\,s_2}$, within 3 %
    regime: L > d + 1 and s2 at most 0.01
    wrong: 15 % larger"""
    law, s = study.seed_noise.law, study.setting
    s2 = s.d * s.noise_std**2
    if not s2:
        raise NothingToMeasure("needs noise; without it the Bayes risk is zero")
    predicted = (s.d + 1 + s2) * (law.length - s.d - 1) / ((law.length + s.d + s2) * s2)
    found, scale = study.seed_noise, constant * predicted
    ratio, error = found.factor / scale, found.factor_se / scale
    return estimate_within(ratio, error, found.prompts, 0.97, 1.03, quantity="measured over predicted")


def _formula_applies(study: WiderStudy) -> bool:
    s = study.setting
    return s.length > s.d + 1 and s.d * s.noise_std**2 <= 0.01


@CLAIMS.claim("I89", wrong=0.0, box="ic-ridge-between")
def ridge_between(study: WiderStudy, constant: float) -> Evidence:
    r"""the ridge risk lies between its limits at two lengths
    for covariates $N(0,I)$ and every $d$, $L$ and noise the Bayes risk, in units of $s_\beta^2$, lies between $B(L+1)$ and $B(L-1)$,
    $B(\ell)=\frac12[\sqrt{(\ell-d+s_2)^2+4ds_2}-(\ell-d+s_2)]$ (six pairs of load $d/L$ and noise at $d=6$)
    wrong: between B(L + 2) and B(L)"""
    found = study.small_loads
    low, high = found.low, found.high
    if constant != 1:
        law = [RegressionLaw(found.d, int(L), s**0.5) for L, s in zip(found.length, found.sigma2, strict=True)]
        shifted = [bayes_risk_bounds(one, length=one.length + 1) for one in law]
        low, high = torch.tensor(shifted, dtype=torch.float64).T
    place, error = (found.bayes - low) / (high - low), found.bayes_se / (high - low)
    return estimate_within(place, error, found.draws, 0.0, 1.0, quantity="place between the two bounds")


@CLAIMS.claim("I96", wrong=0.0, box="ic-factor-load ic-bayes", uses="I89")
def factor_at_a_load(study: WiderStudy, constant: float) -> Evidence:
    r"""the factor to Bayes at a fixed load
    the risk of the best centred step over the Bayes risk is $\varrho(\xi,\sigma^2)$ at $\xi=d/L$ of 0.2, 1 and 2 and $\sigma^2$ of 0.1 and
    1, within 3 % at $d=60$
    wrong: its limit for many examples, 1 + 1/σ²"""
    found = study.loads
    ratio = found.factor / (found.limit if constant == 1 else found.many)
    return estimate_within(
        ratio, ratio * found.bayes_se / found.bayes, found.draws, 0.97, 1.03, quantity="measured over predicted"
    )


@CLAIMS.claim(
    "I97",
    wrong=0.0,
    box="ic-curvature-any",
    violation=lambda s: "" if s.setting.rho or s.setting.mean else "needs a covariance or a mean; here neither",
)
def finite_scale(study: WiderStudy, constant: float) -> Evidence:
    r"""a pair of finite scale, any covariates
    for covariates $N(m,\Sigma)$ the risk of two opposite heads with the blocks $\pm\omega N$ differs from that of the centred step with the
    matrix $N^\top$ by $\kappa\omega^2$ to leading order; $\kappa$ is the formula's, with the page's $\rho$ and mean at $L=10$: positive for
    $N=0.3\,G$, negative for the best matrix $G$
    regime: covariates that are not N(0, I)
    wrong: the formula for N(0, I), with the best matrix there"""
    found = study.scale
    short, best = found.predicted if constant == 1 else found.isotropic
    room = "order omega^4"
    return both(
        agrees(found.short, short, allowance=0.02 * abs(short), allowance_text=room),
        agrees(found.best, best, allowance=0.02 * abs(best), allowance_text=room),
        mean_within(found.best, high=0.0, quantity="kappa at the best matrix"),
    )


@CLAIMS.claim("I98", wrong=0.0, box="ic-exact-facts")
def flatness(study: WiderStudy, constant: float) -> Evidence:
    r"""how flat two softmaxes are
    with the authors' two softmaxes $\sum_i|p_i-\frac1L|\le\frac{2(e-1)}{L+e-1}$ at the query, whatever the circuits are: random starts, and
    the same with scores a hundred times as large
    wrong: one softmax"""
    found = study.causal.unevenness["twice" if constant == 1 else "once"]
    bound = 2 * (math.e - 1) / (study.setting.length + math.e - 1)
    return within(found / bound, high=1 + 1e-12, share=1, quantity="sum of |p - 1/L| over its bound")
