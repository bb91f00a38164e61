r"""Claims S1-S4 of page `13_where_attention_begins`: where clean samples begin to prefer their signal, and what one step does below.

All statements are derived in the theory chapter of Part I (orthogonal noise, $d\to\infty$ at fixed label counts) or follow from it.
"""

import math
from dataclasses import replace

import numpy as np
import torch

from attnbook.single_head.phase_theory import log_slope, preference_spread
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, NothingToMeasure, both, mean_within, within

CLAIMS = ClaimSet("single_head")


def _many_draws(study):
    return "" if study.draws >= 30 else f"needs 30 draws or more for a standard error of the fit; here {study.draws}"


def _need_noise(study):
    return "" if study.label_noise > 0 else "needs label noise; here eta = 0"


def _fits(study):
    if bad := [fit.reason for fit in study.fits if fit.verdict != "inside"]:
        raise NothingToMeasure(f"threshold outside the grid: {bad[0]}")
    return study.fits


def _log_ratio(gaps, allowed, level=LEVEL):
    """The mean of log ratios is 0 up to `allowed`: judged as that of 1 + log, so that what it could have refused is said as a factor."""
    return mean_within(1 + gaps, 1 - allowed, 1 + allowed, level=level)


@CLAIMS.claim("S1", wrong=1.15, box="claim-theory-c10", uses="C10", violation=_many_draws)
def preference_location(study, constant):
    r"""where clean samples begin to prefer their signal
    after one step from zero, half of the clean samples prefer their signal ($\gamma_i > 0$) at $n\,\mathrm{SNR}^2 = 2/(1-2\eta)$, up to a
    relative $2/n$, at four values of $n$
    regime: 30 draws or more
    wrong: 1.15 times the formula
    coarse 1: at n = 50, forty draws know the place to a tenth"""
    fits, formula = _fits(study), constant * 2 / (1 - 2 * study.label_noise)
    sizes = study.threshold.plan.y
    gaps = torch.as_tensor(study.pseudo_values[..., 0]) - math.log(formula)
    parts = [_log_ratio(gap, 2 / n, level=LEVEL / len(fits)) for gap, n in zip(gaps, sizes, strict=True)]
    shown = ", ".join(f"{f.location:.3f} [{f.low:.3f}, {f.high:.3f}]" for f in fits)
    return replace(
        both(*parts),
        predicted=f"{formula:.4g}",
        measured=f"{shown} at n = {', '.join(f'{n:g}' for n in sizes)}",
        rule="log ratio within 2/n + Student's t standard errors; fit by maximum likelihood, jackknife over draws",
        numbers={f"location_n{n:g}": f.location for f, n in zip(fits, sizes, strict=True)},
    )


@CLAIMS.claim("S2", wrong=1.4, box="prop-width", uses="C10", violation=_many_draws)
def transition_width(study, constant):
    r"""the width of this transition
    in $\log \mathrm{SNR}$ the transition of S1 has standard deviation $\tfrac12\big[\tfrac{2-(1-2\eta)^2}{n(1-2\eta)^2} +
    \tfrac{n+1}{d}\big]^{1/2}$ to leading order, without a free parameter; judged on the mean of the log ratio over four values of $n$
    regime: 30 draws or more
    wrong: 1.4 times as wide
    coarse: the width of a transition is known to a few per cent only"""
    plan, fits = study.threshold.plan, _fits(study)
    formula = [
        constant * preference_spread(n, d, study.label_noise) for n, d in zip(plan.n[:, 0], plan.d[:, 0], strict=True)
    ]
    # The axis is n SNR^2: widths are twice those of log SNR.
    gaps = torch.as_tensor(study.pseudo_values[..., 1].T - np.log(2 * np.array(formula))).mean(1)
    allowed = float((4 / plan.y).mean())
    return replace(
        _log_ratio(gaps, allowed),
        predicted=", ".join(f"{w:.3g}" for w in formula),
        measured=", ".join(f"{f.width / 2:.3g} +- {f.width_error / 2:.1g}" for f in fits),
        rule="mean log ratio within the mean of 4/n + Student's t standard errors; jackknife over draws",
        numbers={f"width_n{n:g}": f.width / 2 for f, n in zip(fits, plan.y, strict=True)},
    )


@CLAIMS.claim("S2b", wrong=1.5, box="prop-width", uses="S2", violation=_many_draws)
def width_scaling(study, constant):
    r"""the width falls with the number of samples
    along $d \propto n^2$ the width of S2 falls like $n^{-1/2}$, so that the transition becomes a jump as $n\to\infty$
    regime: 30 draws or more
    wrong: like $n^{-3/4}$
    coarse: the width of a transition is known to a few per cent only, and n changes by a factor of 8"""
    _fits(study)
    slopes = torch.as_tensor(log_slope(study.threshold.plan.y, study.pseudo_values[..., 1]))
    evidence = mean_within(slopes, -constant / 2 - 0.02, -constant / 2 + 0.02)
    return _power(evidence, f"exponent {-constant / 2:g}", "0.02 (finite n)")


def _power(evidence, predicted, allowance):
    """The evidence on an exponent, in the words and numbers of a slope."""
    slope, error = evidence.numbers["measured"], evidence.numbers["standard_error"]
    return replace(
        evidence,
        predicted=predicted,
        measured=f"{slope:.3f} +- {error:.2g}",
        rule=f"{evidence.rule} + {allowance}",
        numbers={"slope": slope, "standard_error": error},
    )


def _kappa_below(study, limit):
    """Cells of the threshold strip with kappa <= limit, at n and 2 n (smaller sets fluctuate too much)."""
    plan = study.threshold.plan
    kappa = plan.x[None, :] * (1 - 2 * plan.label_noise) / 2
    return (kappa <= limit) & (plan.n >= study.n)


@CLAIMS.claim(
    "S3",
    wrong=4.0,
    source=Source.MEASURED,
    box="claim-theory-c8",
    uses="C8",
    violation=lambda s: _need_noise(s) or ("" if 100 * s.n <= s.d else f"needs n/d <= 1/100; here {s.n / s.d:.3g}"),
)
def one_step_is_enough(study, constant):
    r"""below κ = 1 one step fits every label
    for $\kappa = n\,\mathrm{SNR}^2(1-2\eta)/2 \le \tfrac12$ the head after one step, the averaging classifier, fits every training label in
    at least 95 % of draws: attention is not needed
    regime: $\eta > 0$; $n/d \le 1/100$
    wrong: for κ ≤ 2"""
    cells = study.threshold.train_accuracy_step1[_kappa_below(study, constant / 2)]  # (cells, draws)
    return within(torch.as_tensor(cells.T), low=1.0, quantity="train accuracy after one step")


@CLAIMS.claim(
    "S4",
    wrong=4.0,
    source=Source.MEASURED,
    box="claim-theory-c12",
    uses="C10 C12",
    violation=lambda s: "" if 100 * s.n <= s.d else f"needs n/d <= 1/100; here {s.n / s.d:.3g}",
)
def attention_turns_to_noise(study, constant):
    r"""below κ = 1 attention turns to the noise
    for $\kappa \le \tfrac12$, after two steps, $p_2\cdot\mu_k < 0$ and the mean weight of clean samples on their signal token is below
    $\tfrac12$, each in at least 95 % of draws
    regime: $n/d \le 1/100$
    wrong: for κ ≤ 2"""
    cells = _kappa_below(study, constant / 2)
    parts = (
        (study.threshold.p_signal, 0.0, "p₂·μ"),
        (study.threshold.attention_clean, 0.5, "attention of clean samples"),
    )
    return both(*(within(torch.as_tensor(v[cells].T), high=h, quantity=q, strict=True) for v, h, q in parts))
