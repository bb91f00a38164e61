r"""Claims M1-M23 of page `04_max_margin`: which selection has the largest margin, its threshold, and what finite norms change.

Each judge takes a `MarginStudy` and a constant; 1 is the claim, the claim's `wrong` value its power twin.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from attnbook.single_head.margin import PATTERNS
from attnbook.single_head.max_margin.study import RATIOS, MarginStudy
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, NothingToMeasure, both, exactly, within

__all__ = ["CLAIMS"]

CLAIMS = ClaimSet("single_head")


def _above(study: MarginStudy) -> str:
    """A condition on the law, with room for the label counts of a draw."""
    law = study.law
    ratio = law.signal_norm / (law.noise_std * math.sqrt(2 * law.d / (law.n * (1 - law.label_noise))))
    return "" if ratio > 1.3 else f"needs rho > 1.3 sqrt(d/E|C_k|); here the ratio is {ratio:.3g}"


def _flips(study: MarginStudy) -> str:
    return "" if study.law.label_noise > 0 else "needs label noise; here eta = 0"


def _relative(measured: torch.Tensor, formula: torch.Tensor) -> torch.Tensor:
    return measured / formula


def _near(ratio: torch.Tensor, constant: float, tolerance: float, quantity: str) -> Evidence:
    """With probability 95 % every ratio of measurement to formula of a draw lies within `tolerance` of `constant`."""
    return within(ratio / constant, 1 - tolerance, 1 + tolerance, quantity=quantity)


def _noise(study: MarginStudy, multiple: float = 4.0) -> float:
    """Relative size of what the orthogonal limit drops: sqrt(n/d) times a constant."""
    return multiple * math.sqrt(study.law.n / study.law.d)


# --- selections ------------------------------------------------------------------------------------------------------------


@CLAIMS.claim(
    "M1",
    "the SVM of SS decouples",
    r"clean on signal, flipped on noise: $|v|^2 = 2/\rho^2 + 1^\top(YG_{NN}Y)^{-1}1$ if all those multipliers are $\ge 0$, exactly",
    wrong=1.001,
    wrong_text="0.1 % more",
)
def decoupled(study: MarginStudy, constant: float) -> Evidence:
    keep = ~study["ss_formula"].isnan()
    if not keep.any():
        raise NothingToMeasure("needs a draw in which every flipped sample is a support vector")
    accurate = exactly(study["residual"], 0.0, tolerance=1e-8)  # KKT conditions
    return both(exactly(_relative(study["ss"], study["ss_formula"])[keep], constant, tolerance=1e-8), accurate)


@CLAIMS.claim(
    "M2",
    "price of the flipped samples, two-sided",
    r"$|N|/\lambda_{\max} \le |v|^2 - 2/\rho^2 \le |N|/\lambda_{\min}$, eigenvalues of $YG_{NN}Y$ (the lower bound for every data set; "
    r"the upper one if the multipliers of M1 are $\ge 0$)",
    wrong=1.2,
    wrong_text="1.2 times both bounds",
    violation=_flips,
)
def price_of_flips(study: MarginStudy, constant: float) -> Evidence:
    """Both bounds divided by |N|/lambda_max, up to rounding: with one flipped sample they coincide."""
    some = study["w2_low"] > 0
    low = torch.where(some, study["w2_low"], torch.nan)
    high = torch.where(study["ss_formula"].isnan(), torch.inf, study["w2_high"]) / low
    return within(
        study["w2"] / low, constant * (1 - 1e-8), constant * (1 + 1e-8) * high, quantity="price λmax/|N|", share=1
    )


@CLAIMS.claim(
    "M3",
    "cost of the nine class-level patterns",
    r"$|v|^2 = \sum_k$ of $1/\rho^2+|N_k|/d$ (S), $n_k/d$ (X), $1/\rho^2+|C_k|/d$ (F), up to a relative $4\sqrt{n/d}$ in at "
    r"least 95 % of draws",
    wrong=1.3,
    wrong_text="1.3 times the formula",
)
def nine_costs(study: MarginStudy, constant: float) -> Evidence:
    ratio = _relative(study["costs"], study["cost_formula"])
    return _near(ratio, constant, min(_noise(study), 0.25), "exact SVM / formula")


@CLAIMS.claim(
    "M4",
    "the formula names the best of nine selections",
    r"class $k$ selects the signal iff $\rho^2 > d/|C_k|$; judged on a grid of $\rho$, where both classes are 5 % away: "
    r"right on the whole grid in at least 95 % of draws",
    wrong=1.3,
    wrong_text="threshold 1.3 times larger",
)
def best_of_nine(study: MarginStudy, constant: float) -> Evidence:
    norm, thresholds, best, away = (study["grid"][..., i] for i in (slice(0, 1), slice(1, 3), slice(3, 5), 5))
    right = (torch.where(norm > constant * thresholds, 1.0, -1.0) == best).all(-1)
    judged = torch.where(away > 0, right.to(norm.dtype), torch.nan)
    evidence = within(judged, low=1.0, quantity="correct (1 = yes)")
    count = f"{int((judged == 1).sum())} of {int((~judged.isnan()).sum())} instances"
    return replace(evidence, predicted="every instance of a draw", measured=f"{count}, {evidence.measured}")


@CLAIMS.claim(
    "M5",
    "the threshold, measured by bisection",
    r"in at least 95 % of draws the best selection of class $k$ changes at $\rho_k = \sqrt{d/|C_k|}$ (balanced: "
    r"$n\,\mathrm{SNR}^2 = 2/(1-\eta)$), to a relative $4/\sqrt d$ (2 % at $d = 40000$)",
    wrong=1.06,
    wrong_text="threshold 6 % larger",
)
def threshold(study: MarginStudy, constant: float) -> Evidence:
    tolerance = min(4 / math.sqrt(study.law.d), 0.05)
    return _near(
        _relative(study["threshold_measured"], study["threshold_predicted"]), constant, tolerance, "measured / formula"
    )


@CLAIMS.claim(
    "M6",
    "a mixed phase between the two thresholds",
    r"for $\rho_1\rho_2$'s root between thresholds that differ by 4 % or more, the class with more clean samples selects the signal "
    r"and the other its noise, in at least 99 % of such draws",
    wrong=-1.0,
    wrong_text="the other class selects the signal",
)
def mixed_phase(study: MarginStudy, constant: float) -> Evidence:
    right = (study["between_best"] == constant * study["between_predicted"]).all(1).double()
    return within(
        torch.where(study["apart"] > 0.04, right, torch.nan), low=1.0, quantity="as predicted (1 = yes)", share=0.99
    )


@CLAIMS.claim(
    "M7",
    "SS is a strict local optimum",
    r"changing the hard choice of any single sample makes $|v|^2$ larger (or the samples inseparable): the extra cost is positive, "
    r"in at least 95 % of draws",
    wrong=3.0,
    wrong_text="extra cost above 2/d",
)
def single_flips(study: MarginStudy, constant: float) -> Evidence:
    extra = study["flip_extra"]  # nan but for the first draws
    return within(extra, low=constant - 1, quantity="smallest extra cost × d", strict=True)


@CLAIMS.claim(
    "M8",
    "mixing one clean sample",
    r"signal weight $s$ on a clean sample of SS costs $\min_{A\ge1} A^2/\rho^2 + ((1-sA)_+/(1-s))^2/d - 1/\rho^2$, "
    r"up to a relative $3\sqrt{n/d}$ at seven values of $s$ in at least 95 % of draws",
    wrong=1.3,
    wrong_text="1.3 times the formula",
)
def mixing_clean(study: MarginStudy, constant: float) -> Evidence:
    ratio = _relative(study["mixing_clean"], study["mixing_clean_formula"])
    return _near(ratio, constant, min(_noise(study, 3.0), 0.2), "extra / formula")


@CLAIMS.claim(
    "M9",
    "mixing one flipped sample",
    r"signal weight $s$ on a flipped sample of SS costs $[((1+s)/(1-s))^2 - 1]/d$, up to a relative $3\sqrt{n/d}$ at seven values of $s$ "
    r"in at least 95 % of draws",
    wrong=1.3,
    wrong_text="1.3 times the formula",
    violation=_flips,
)
def mixing_noisy(study: MarginStudy, constant: float) -> Evidence:
    ratio = _relative(study["mixing_noisy"], study["mixing_noisy_formula"])
    return _near(ratio, constant, min(_noise(study, 3.0), 0.2), "extra / formula")


@CLAIMS.claim(
    "M10",
    "soft attention never beats the best hard selection",
    r"for every $p$: let $v$ be its SVM and send each sample to the token with the larger $y_i v\cdot x$; that hard selection has at "
    r"least the margin of the soft one, exactly",
    wrong=0.4,
    wrong_text="at most 0.4 times the hard margin",
)
def soft_below_hard(study: MarginStudy, constant: float) -> Evidence:
    return within(study["soft_over_hard"], high=constant * (1 + 1e-8), quantity="soft margin / hard margin", share=1)


# --- the query and finite norms --------------------------------------------------------------------------------------------


@CLAIMS.claim(
    "M11",
    "the query's SVM in closed form",
    r"$p\cdot\mu_k = \rho^2(|C_k|-|N_k|)/(d+\rho^2n_k)$ and $|p|^2 = \sum_k n_k/d - ((|C_k|-|N_k|)/d)^2/(1/\rho^2+n_k/d)$, "
    r"up to a relative $2\sqrt{n/d}$ in at least 95 % of draws",
    wrong=1.3,
    wrong_text="1.3 times the formula",
)
def query(study: MarginStudy, constant: float) -> Evidence:
    tolerance = min(_noise(study, 2.0), 0.2)
    return both(
        _near(_relative(study["query_signal"], study["query_signal_formula"]), constant, tolerance, "p·μ / formula"),
        _near(_relative(study["query"], study["query_formula"]), constant, tolerance, "|p|² / formula"),
    )


@CLAIMS.claim(
    "M12",
    "margin of the candidate",
    r"$(v_{mm}, R\,p_{mm}/|p_{mm}|)$ has margin $\Gamma\tanh(R/2|p_{mm}|)$ if $|v_{mm}\cdot\xi_i| \le 1$ on clean samples and a "
    r"flipped sample is a support vector of both",
    wrong=1.01,
    wrong_text="1 % more",
    violation=_flips,
)
def candidate(study: MarginStudy, constant: float) -> Evidence:
    measured = study["candidate"]
    keep = ~measured.isnan().any(1)
    if not keep.any():
        raise NothingToMeasure("needs a draw with |v.xi_i| <= 1 on every clean sample")
    return exactly(
        measured[keep], constant * torch.tanh(torch.tensor(RATIOS, dtype=measured.dtype) / 2), tolerance=1e-8
    )


@CLAIMS.claim(
    "M13",
    "the constrained optimum is caught between two bounds",
    r"the best min-margin over $|v|\le r$, $|p|\le R$ lies between $\tanh(R/2|p_{mm}|)$ and $1$ times that of the best hard "
    r"selection (SLSQP over p, exact SVM in v, six starts), in at least 95 % of draws",
    wrong=1.2,
    wrong_text="lower bound 1.2 times larger",
)
def caught(study: MarginStudy, constant: float) -> Evidence:
    low = constant * math.tanh(study.radius / 2)
    return within(study["above_ratio"], low * (1 - 1e-6), 1 + 1e-8, quantity="optimum / best hard margin")


@CLAIMS.claim(
    "M14",
    "its direction is caught too",
    r"if in every sample $y_i\,v^*\cdot x$ is larger on the token that the best hard selection takes, and M13's lower bound holds, "
    r"$\cos(v^*, v_{mm}) \ge \tanh(R/2|p_{mm}|)$, for every data set",
    wrong=1.2,
    wrong_text="lower bound 1.2 times larger",
)
def direction(study: MarginStudy, constant: float) -> Evidence:
    bound = math.tanh(study.radius / 2)
    cosine = torch.where(study["above_ratio"] >= bound * (1 - 1e-6), study["above_cosine"], torch.nan)
    return within(cosine, low=constant * bound * (1 - 1e-6), quantity="cos(v*, v_mm)", share=1)


@CLAIMS.claim(
    "M15",
    "minimum norm: no worse than the candidate",
    r"$\min |v|^2+|p|^2$ at margin $\gamma$ lies between $(\gamma/\Gamma)^2$ and $\min_R (\gamma/\Gamma\tanh(R/2|p_{mm}|))^2 + R^2$ "
    r"(0 and 1 below), in at least 95 % of draws",
    wrong=0.6,
    wrong_text="upper bound at 0.6",
)
def joint_value(study: MarginStudy, constant: float) -> Evidence:
    return within(study["joint"][..., 0], 0.0, constant, quantity="place of the minimum between its bounds")


@CLAIMS.claim(
    "M16",
    "minimum norm hardens attention logarithmically",
    r"$|p|$ grows with $\gamma$ like $|p_{mm}|\,W(2\gamma^2/(|p_{mm}|\Gamma)^2)$, $W$ of Lambert: from one $\gamma$ to the next the growth "
    r"agrees to 10 % in at least 95 % of draws",
    wrong=1.3,
    wrong_text="1.3 times the growth",
)
def joint_growth(study: MarginStudy, constant: float) -> Evidence:
    radius, formula = study["joint"][..., 1].diff(dim=1), study["joint"][..., 2].diff(dim=1)
    return _near(radius / formula, constant, 0.1, "growth / formula")


# --- fresh data ------------------------------------------------------------------------------------------------------------


@CLAIMS.claim(
    "T2", "maximum margin is benign above the threshold",
    r"for $\mathrm{SNR}=\Omega(1/\sqrt n)$ the max-margin solution fits every label and its clean error is small (here: below $10^{-6}$ "
    r"for every measured $R$ and in the limit, in at least 95 % of draws)",
    source=Source.PAPER, wrong=100.0, wrong_text="below $10^{-600}$ everywhere",
    regime=r"the paper's constant is not known; here $\rho > 1.3\sqrt{d/E|C_k|}$", violation=_above,
)  # fmt: skip
def benign(study: MarginStudy, constant: float) -> Evidence:
    worst = torch.cat([study["errors"], study["limit_error"][:, None]], dim=1)
    return within(worst, high=-6 * constant, quantity="log10 clean error")


@CLAIMS.claim(
    "M17",
    "error of the hard limit",
    r"$R\to\infty$: $\mathrm{err}_k = \int_{A_k}^\infty N(t;0,\omega^2)\Phi(-c_kt/\omega\tau)\,dt \le \Phi(-A_k/\omega)$, against the "
    r"exact error at $R = 10^5|p_{mm}|$ (0.1 % of the exponent, in at least 95 % of draws; the bound for every data set)",
    wrong=1.01,
    wrong_text="exponent 1 % larger",
)
def hard_limit(study: MarginStudy, constant: float) -> Evidence:
    return both(
        _near(_relative(study["far_error"], study["limit_error"]), constant, 1e-3, "exponent / limit"),
        within(study["limit_error"] - study["limit_bound"], high=1e-5, quantity="log10 limit/bound", share=1),
    )


@CLAIMS.claim(
    "M18",
    "softer attention errs less",
    r"along the candidate the clean error grows with $R$: each larger $R$ of the page has a larger error, in at least 95 % of draws",
    source=Source.MEASURED,
    wrong=-1.0,
    wrong_text="smaller error",
)
def softer(study: MarginStudy, constant: float) -> Evidence:
    return within(constant * study["errors"].diff(dim=1), low=0.0, quantity="step of log10 error")


@CLAIMS.claim(
    "T4",
    "maximum margin is harmful below the threshold",
    r"for $\mathrm{SNR}\le c/\sqrt n$ (here half the threshold) it fits every label but its clean error is at least a constant (hard "
    r"limit: exactly $\tfrac12$)",
    source=Source.PAPER,
    wrong=0.9,
    wrong_text="error 0.45",
)
def harmful(study: MarginStudy, constant: float) -> Evidence:
    return both(
        within(study["below_margin"], low=0.0, strict=True, quantity="margin", share=1),
        exactly(10 ** study["below_error"], 0.5 * constant, tolerance=1e-9),
    )


@CLAIMS.claim(
    "M19",
    "below the threshold everyone selects noise",
    r"XX is the best of nine, $v\cdot\mu_k = 0$ exactly, and $p\cdot\mu_k = -\rho^2n_k/(d+\rho^2n_k) < 0$ up to a relative $2\sqrt{n/d}$ "
    r"(first and last in at least 95 % of draws)",
    wrong=1.3,
    wrong_text="1.3 times the formula",
)
def all_noise(study: MarginStudy, constant: float) -> Evidence:
    ratio = _relative(study["below_p"], study["below_p_formula"])
    return both(
        _near(ratio, constant, min(_noise(study, 2.0), 0.2), "p·μ / formula"),
        within(study["below_xx"], low=1.0, quantity="XX best (1 = yes)"),
        exactly(study["below_v"], 0.0),
    )


@CLAIMS.claim(
    "M20",
    "harmful at finite norms too",
    r"below the threshold the constrained optimum at $R=5|p_{mm}|$ has clean error above $0.4$, in at least 95 % of draws",
    source=Source.MEASURED,
    wrong=1.26,
    wrong_text="above 0.504",
)
def harmful_at_finite_norm(study: MarginStudy, constant: float) -> Evidence:
    return within(10 ** study["low_errors"][:, 1], low=0.4 * constant, quantity="clean error")


# --- more tokens, more heads -----------------------------------------------------------------------------------------------


@CLAIMS.claim(
    "M21",
    "T tokens: a flipped sample selects one noise token",
    r"averaging $m$ of its noise tokens costs a flipped sample $m/d$ instead of $1/d$ (T = 4, to 15 %, in at least 95 % of draws)",
    wrong=1.4,
    wrong_text="1.4 m/d",
    violation=_flips,
)
def one_hot(study: MarginStudy, constant: float) -> Evidence:
    m = torch.arange(1, study["averaged"].shape[1] + 1, dtype=study["averaged"].dtype)
    return _near(study["averaged"] / m, constant, 0.15, "|w|² d / (m |N|)")


@CLAIMS.claim(
    "M22",
    "T tokens: the same threshold",
    r"T = 4, each sample offering its longest noise token: $\rho_k = \sqrt{d/|C_k|}$, to 3 % in at least 95 % of draws",
    wrong=1.08,
    wrong_text="threshold 8 % larger",
)
def many_token_threshold(study: MarginStudy, constant: float) -> Evidence:
    tolerance = max(0.03, 3.5 / math.sqrt(2 * study.search_law.d))  # 3 % at the page's defaults
    return both(
        _near(study["many_threshold"], constant, tolerance, "measured / formula"),
        exactly(study["many_residual"], 0.0, tolerance=1e-8),
    )


@CLAIMS.claim(
    "M23",
    "two heads: half the norm, the same threshold",
    r"$|v|^2$ of two heads with one selection is exactly $\tfrac12$ of one head's; heads that split "
    r"the clean samples' selection cost more than the best equal pair in at least 95 % of draws",
    wrong=1.01,
    wrong_text="0.505",
)
def two_heads(study: MarginStudy, constant: float) -> Evidence:
    return both(
        exactly(study["heads_equal"], 0.5 * constant, tolerance=1e-7),
        within(study["heads_split"], low=1.0, strict=True, quantity="best split / best equal"),
    )


def cost_table(study: MarginStudy) -> list[tuple[str, float, float]]:
    """(pattern, mean exact |v|^2, mean formula) over draws, cheapest first."""
    exact, formula = study["costs"].mean(0), study["cost_formula"].mean(0)
    return sorted(zip(PATTERNS, exact.tolist(), formula.tolist(), strict=True), key=lambda row: row[1])
