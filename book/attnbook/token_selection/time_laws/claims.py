r"""Claims TS32-TS37: the first time scale of the theorem, the state of the model then, and the time to fit every label.

Exponents are means over training sets. Bounds speak of a random training set: each holds with probability .95 or more.
"""

import math

import numpy as np
import torch

from attnbook.token_selection.theory import exponents, first_half_constant, n_snr_squared, noisy_drag_threshold
from bookkit.claims import ClaimSet, Source
from bookkit.rules import agrees, both, within
from bookkit.worlds import exchange

CLAIMS = ClaimSet("token_selection")


def _t(values):
    return torch.as_tensor(np.asarray(values), dtype=torch.float64)


def _weak_centre(study):
    need, have = 4 * noisy_drag_threshold(study.centre.law), n_snr_squared(study.centre.law)
    return "" if have >= need else f"needs n SNR^2 >= {need:.3g} at the strong signal; here {have:.3g}"


_STRONG = {
    "regime": "$n\\,\\mathrm{SNR}^2$ at least four times the drag threshold of flipped samples, at the strong signal",
    "violation": _weak_centre,
}


# --- the first time scale ----------------------------------------------------------------------------------------------------


def _exponent(study, name, expected, allowance):
    return agrees(
        study.clock[name].exponents,
        expected,
        allowance=allowance,
        allowance_text="leading order: own noise is left out",
    )


@CLAIMS.claim("TS32", wrong=1.5, source=Source.PAPER, box="ts-paper-main ts-first-half", uses="TS11 TS14", **_STRONG)
def clock_powers(study, constant):
    r"""first time scale: powers of the step size, of the two norms and of the start
    the number of steps $\tau_{1/2}$ until clean training samples give half of their attention to $x_1$ is proportional to $\alpha^{-1}$; to
    $|\mu|^{-2}$ when $|\nu| = 1/|\mu|$; at fixed $|\mu|$ to $|\nu|^{-1}$, once the loss's slope is divided out, that is
    $\tau_{1/2}/\mathcal C(h)$ with $h=|\nu||\mu|$ from a quarter to two and the constant $\mathcal C$ of the orthogonal-noise limit; and
    from $p_0=0$ to $(\sigma_w^2d)^{-1}$. The mean exponents are these up to 0.01, 0.08, 0.05 and 0.02. Together:
    $\alpha^{-1}|\nu|^{-1}|\mu|^{-3}$
    wrong: exponents half as large again"""
    axis = study.clock["head_scale"]
    slope = np.array([[first_half_constant(s.law)] for s in axis.settings])
    alone = _t(exponents(axis.values, axis.tau / slope))
    return both(
        _exponent(study, "step_size", -constant, 0.01),
        _exponent(study, "signal_norm", -2 * constant, 0.08),
        agrees(alone, -constant, allowance=0.05, allowance_text="leading order"),
        _exponent(study, "weight_scale", -constant, 0.02),
    )


@CLAIMS.claim("TS34", wrong=0.5, source=Source.PAPER, box="ts-paper-main ts-first-half", uses="TS11 TS14", **_STRONG)
def clock_dimension(study, constant):
    r"""first time scale: dimension
    the $\tau_{1/2}$ of TS32 is proportional to $d^{-1}$ at fixed $\sigma_w^2$, and does not depend on $d$ at fixed $\sigma_w^2 d$
    wrong: exponents -1/2 and +1/2"""
    fixed = _exponent(study, "d at fixed variance", -1.0 * constant, 0.06)
    return both(fixed, _exponent(study, "d", 1.0 - constant, 0.08))


@CLAIMS.claim(
    "TS35",
    wrong=exchange("steps", "products"),
    box="ts-paper-main ts-first-half ts-mean-field",
    uses="TS32 TS34",
    **_STRONG,
)
def clock_unit_holds(study):
    r"""first time scale: one unit for all settings
    from $p_0 = 0$, over all settings of the page with $|\nu||\mu|=1$, the product $\tau_{1/2}\,\alpha|\nu||\mu|^3 d\sigma_w^2$ of a
    training set, with the $\tau_{1/2}$ of TS32, varies by a factor little above 1, and $\tau_{1/2}$ itself by a factor of some fifty: on
    average over training sets both factors are those of the orthogonal-noise prediction, 1.23 and 57 at the page's sizes, up to 0.07 and
    2.5
    wrong: number of steps and product exchanged"""
    pairs = ((study.products, study.predicted_products, 0.07), (study.steps, study.predicted_steps, 2.5))
    return both(
        *(
            agrees(_t(tau.max(0) / tau.min(0)), one.max() / one.min(), allowance=allowance, allowance_text="own noise")
            for tau, one, allowance in pairs
        )
    )


@CLAIMS.claim("TS35b", wrong=exchange("in_sum", "in_maximum"), box="ts-random-prompt", uses="TS35", **_STRONG)
def clock_prompt(study):
    r"""first time scale: with a Gaussian start of p the variances add up
    of the products $\tau_{1/2}\,\alpha|\nu||\mu|^3 (\sigma_w^2 + \sigma_p^2) d$ of a training set, with the $\tau_{1/2}$ of TS32, that at
    $\sigma_p^2=\sigma_w^2$ is the geometric mean of those at $\sigma_p^2/\sigma_w^2=\tfrac14$ and 4, on average up to 1 %; with the
    maximum of the two variances, of the same order, in place of their sum it would be 0.63 times that mean
    wrong: the maximum instead of the sum"""
    less, equal, more = study.in_sum[:3]
    return agrees(_t(equal / np.sqrt(less * more)), 1.0, allowance=0.01, allowance_text="leading order in d")


@CLAIMS.claim(
    "TS36",
    wrong=(
        exchange("at_half.fresh_attention", "at_half.uniform_attention"),
        exchange("at_half.clean_fitted", "at_half.noisy_fitted"),
    ),
    source=Source.PAPER,
    box="ts-paper-main ts-first-half",
    uses="TS15",
    **_STRONG,
)
def not_overfitting(study):
    r"""not overfitting: the state of the model at the first time scale
    at the time $\tau_{1/2}$ of TS32, in all settings of the page with $p_0=0$ and $|\nu||\mu|=1$, every clean sample of a training set is
    fitted, no flipped one is, and the clean error is below 1 %: each in at least 95 % of training sets. All three hold before training as
    well, because the value vector is given. What training adds is attention, on fresh samples too (this book's addition): they give half
    of it to $x_1$, as a mean over settings and training sets, up to 0.02
    wrong: attention 1/T, as before training; and clean and flipped samples exchanged
    coarse 3: the paper's event asks for a small error; at this strength it is below $10^{-100}$, before training too"""
    at = study.at_half
    return both(
        within(_t(at.clean_fitted.T), low=1.0, quantity="clean fitted"),
        within(_t(at.noisy_fitted.T), high=0.0, quantity="flipped fitted"),
        within(_t(at.error.T), high=0.01, quantity="fresh error"),
        agrees(
            _t(at.fresh_attention.T).mean(1),
            0.5,
            allowance=0.02,
            allowance_text="fresh samples lag behind training samples",
        ),
    )


# --- overfitting ----------------------------------------------------------------------------------------------


@CLAIMS.claim("TS37", wrong=0.5, box="ts-early ts-paper-main", uses="TS11 TS14")
def overfitting_time(study, constant):
    r"""second time scale: time to fit every label
    for $1/(n\,\mathrm{SNR}^2) \ge 1$, at fixed $\sigma_w^2 d$ and $|\mu|$, all labels are fitted at a time proportional to $d^{-1}$; the
    exponent is -1 up to 0.2 in at least 95 % of the training sets whose labels can all be fitted; a set that has a label unfitted after
    2000 steps counts as outside
    wrong: exponent -1/2"""
    # A label that no attention fits; one that was not fitted in time.
    never, late = np.isinf(study.fit_times), np.isnan(study.fit_times)
    slopes = _t(exponents(study.fit_dimensions, np.where(never | late, 1.0, study.fit_times)))
    slopes[torch.as_tensor(late.any(0))] = math.inf
    bounds = -constant - 0.2, -constant + 0.2
    return within(slopes, *bounds, quantity="exponent", silent=torch.as_tensor(never.any(0)))
