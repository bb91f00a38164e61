r"""Claims Q17-Q22, Q24 and Q69: two steps and long training with every attention map, and attention in windows.

Local attention has a size of its own, whatever the page's parameters; the rest is at the page's law, over several signal norms.
"""

import math
from dataclasses import replace

import numpy as np
import torch

from attnbook.open_questions.attention_maps.courses import MAPS, MOVING, UNNORMALISED, unnormalised_p2
from attnbook.open_questions.attention_maps.study import MapsStudy
from attnbook.open_questions.judging import mean_share, tensor
from attnbook.single_head.long_run import Course
from attnlib.single_head.maps import HALF_PLUS, HARDMAX, LINEAR, SOFTMAX, relu
from attnlib.single_head.training import train_heads
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, Evidence, NothingToMeasure, both, exactly, mean_within, statistic_within, within

CLAIMS = ClaimSet("open_questions")


# --- two steps -------------------------------------------------------------------------------------------------------------


@CLAIMS.claim("Q17", wrong=1.0001, box="thm-open-universality")
def universal_values(study: MapsStudy, constant: float) -> Evidence:
    r"""two steps: v does not depend on the weight function
    from zero with two tokens, $v_1$ and $v_2$ are the same for the normalised weight functions of the page, which treat tokens alike, and
    for the unnormalised ones with $\phi(0) = \frac12$
    wrong: v_2 larger by 10^-4"""
    own = study.two["softmax"]
    found = torch.stack([torch.stack(study.two[m.name][:2]) for m in MAPS])
    scale = found.new_tensor([1.0, constant]).view(2, 1, 1)
    return exactly(found, torch.stack(own[:2]) * scale, tolerance=1e-12, draws=study.sample.runs)


@CLAIMS.claim("Q18", wrong=1.01, box="thm-open-universality", uses="Q17")
def slope_alone(study: MapsStudy, constant: float) -> Evidence:
    r"""two steps: p depends on one number of the weight function
    from zero with two tokens, $p_2 = \frac{c}{c_{\mathrm{softmax}}}\,p_2^{\mathrm{softmax}}$ with the slope c of the weight function at
    zero: factors 2 (sparsemax, temperature $\frac12$), $\sqrt2$ (entmax-1.5), 1 (linearised), $\frac12$ (temperature 2), 0 (hardmax)
    wrong: factors 1 % larger"""
    own = study.two["softmax"][2]
    factors = {"sparsemax": 2.0, "softmax at temperature 0.5": 2.0, "entmax-1.5": math.sqrt(2), "linearised softmax": 1.0,
               "softmax at temperature 2": 0.5, "hardmax": 0.0}  # fmt: skip
    found = torch.stack([study.two[name][2] for name in factors])
    predicted = own.new_tensor(list(factors.values())).view(-1, 1, 1) * constant * own
    return exactly(found, predicted, tolerance=1e-12, draws=study.sample.runs)


@CLAIMS.claim("Q19", wrong=0.0, box="thm-open-universality", uses="Q18")
def hardmax_is_linear(study: MapsStudy, constant: float) -> Evidence:
    """hardmax is the linear model
    with hardmax from zero, $p_t = 0$ after every step $t$, so the head is logistic regression on token means, step by step
    wrong: softmax in its place"""
    own = HARDMAX if constant else SOFTMAX
    path = train_heads(study.sample, study.step_size, 20, attention_map=own, record=[1, 20])
    frozen = train_heads(study.sample, study.step_size, 20, attention_step_size=0.0, record=[1, 20])
    stays = within(path.p.abs().amax((0, 2, 3)), high=0.0, quantity="largest |p|", share=1)
    return both(exactly(path.v, frozen.v, tolerance=1e-12, draws=study.sample.runs), stays)


@CLAIMS.claim("Q20", wrong=0.0, box="thm-open-universality")
def saddle(study: MapsStudy, constant: float) -> Evidence:
    r"""linear attention does not start from zero
    with the weights $w = z$ and $w = \max(z, 0)$ both gradients vanish at zero, so nothing moves from there
    wrong: w = 1/2 + z"""
    maps = (LINEAR, relu(0.0), relu(1.0)) if constant else (HALF_PLUS,)
    paths = [train_heads(study.sample, study.step_size, 20, attention_map=m, record=[1, 20]) for m in maps]
    largest = torch.stack([torch.maximum(p.v.abs().amax((0, 2, 3)), p.p.abs().amax((0, 2, 3))) for p in paths], 1)
    return within(largest, high=0.0, quantity="largest parameter", share=1)


@CLAIMS.claim("Q21", wrong=1.01, box="thm-open-universality", uses="Q17")
def no_competition(study: MapsStudy, constant: float) -> Evidence:
    r"""unnormalised weights: p_2 without competition
    from zero, $p_2 = \frac{\beta\phi'(0)}{n}\sum_i g_iy_i[(v_1\cdot u_i)u_i + (v_1\cdot\xi_i)\xi_i]$ for the weights $\phi(z)$ = sigmoid
    ($\phi'(0) = \frac14$) and $\frac12 + z$ ($\phi'(0) = 1$)
    wrong: a factor 1 % larger"""
    found = torch.stack([study.two[m.name][2] for m in UNNORMALISED])
    predicted = [unnormalised_p2(study.sample, study.step_size, constant * m.slope(2)) for m in UNNORMALISED]
    return exactly(found, torch.stack(predicted), tolerance=1e-12, draws=study.sample.runs)


# --- long training at the page's law ---------------------------------------------------------------------------------------

_LOW = "$x < 0.3$ and $n\\rho^4(1-2\\eta)^2/d \\ge 25$ at a signal norm"


def _not_low(study: MapsStudy) -> str:
    law, x = study.law, study.x(study.low)
    strength = law.n * study.low**4 * (1 - 2 * law.label_noise) ** 2 / law.d
    if x >= 0.3 or strength < 25:
        return f"needs a signal norm with x < 0.3 and n rho^4 (1 - 2 eta)^2 / d >= 25; here {x:.3g} and {strength:.3g}"
    return ""


def _kept(course: Course, since: int = 2) -> torch.Tensor:
    """Final exponent over that of an early step, per draw."""
    return tensor(course.log10_error[-1] / course.log10_error[course.at(since)])


@CLAIMS.claim("Q22", wrong=0.0, source=Source.MEASURED, regime=_LOW, violation=_not_low)
def sigmoid_is_benign(study: MapsStudy, constant: float) -> Evidence:
    r"""low SNR, long training: sigmoid stays benign, softmax does not
    below the threshold the sigmoid head ends with mean $\log_{10}$ clean error below $-1.7$; in at least 95 % of draws its error is below
    $0.1$, that of the softmax head above $0.1$, and both fit every label
    wrong: softmax and sigmoid exchanged, and a label that is not fitted"""
    names, level = ("sigmoid", "softmax") if constant else ("softmax", "sigmoid"), LEVEL / 4
    own, other = (study.at_norm(name, study.low) for name in names)
    fitted = np.minimum(own.train_accuracy[-1], other.train_accuracy[-1])
    low, high = (1.0, None) if constant else (None, 1 - 1e-9)
    return both(
        within(tensor(own.log10_error[-1]), high=-1.0, quantity="log₁₀ err, sigmoid", level=level),
        mean_within(tensor(own.log10_error[-1]), high=-1.7, quantity="its mean", level=level),
        within(tensor(other.log10_error[-1]), low=-1.0, quantity="log₁₀ err, softmax", level=level),
        within(tensor(fitted), low=low, high=high, quantity="train accuracy", level=level),
    )


@CLAIMS.claim("Q22b", wrong=0.0, source=Source.MEASURED, uses="Q22", regime=_LOW, violation=_not_low)
def bounded_recover(study: MapsStudy, constant: float) -> Evidence:
    r"""below the threshold the late error does not rise with the sigmoid and rises with 1/2 + z
    below the threshold, from step 1000 to the end: $|\log_{10}|$ of the clean error does not shrink with the sigmoid (mean ratio $\ge 1$),
    and with $\frac12 + z$ it does (mean ratio $\le 0.97$)
    wrong: the two maps exchanged"""
    names = ("sigmoid", "half plus") if constant else ("half plus", "sigmoid")
    bounded, unbounded = (_kept(study.at_norm(name, study.low), 1000) for name in names)
    return both(
        mean_within(bounded, low=1.0, quantity="mean ratio, bounded", level=LEVEL / 2),
        mean_within(unbounded, high=0.97, quantity="mean ratio, unbounded", level=LEVEL / 2),
    )


@CLAIMS.claim("Q22c", wrong=0.0, source=Source.MEASURED, uses="Q19", regime=_LOW, violation=_not_low)
def all_harmful(study: MapsStudy, constant: float) -> Evidence:
    r"""below the threshold six competing weight functions generalise poorly in long training
    softmax at three temperatures, sparsemax, entmax, linearised softmax: the clean error is above $0.1$ at the end in at least 95 % of
    draws; with hardmax, whose attention never moves, $\log_{10}$ clean error keeps 90 % of its early value on average
    wrong: the same maps after two steps, softmax in place of hardmax"""
    row, level = (-1 if constant else 1), LEVEL / 2
    ends = tensor([study.at_norm(m.name, study.low).log10_error[row] for m in MOVING]).mT
    kept = _kept(study.at_norm("hardmax" if constant else "softmax", study.low))
    return both(
        within(ends, low=-1.0, quantity="log₁₀ err, six maps", level=level),
        mean_within(kept, low=0.9, quantity="mean exponent kept, hardmax", level=level),
    )


@CLAIMS.claim("Q69", wrong=0.0, source=Source.MEASURED, box="thm-long-map")
def mean_field_predicts(study: MapsStudy, constant: float) -> Evidence:
    r"""six numbers per class predict the error of nine weight functions
    gradient descent with orthogonal noise, six variables per class, each draw's own counts and no fitted number, gives the $\log_{10}$
    clean error of a draw within 20 % (or 0.1) for on average at least 95 % of the values over nine weight functions, all recorded steps and
    the signal norms away from the threshold ($x < 0.7$ or $x > 1.3$)
    wrong: the predictions of softmax for all maps"""
    columns = [i for i, norm in enumerate(study.norms) if not 0.7 <= study.x(norm) <= 1.3]
    if not columns:
        raise NothingToMeasure("needs a signal norm with x < 0.7 or x > 1.3; all are in between")
    # (maps, norms, steps, draws)
    found = np.array([[study.courses[m.name][i].log10_error for i in columns] for m in MAPS])
    wanted = np.array([study.predicted[m.name if constant else "softmax"][:, columns].transpose(1, 0, 2) for m in MAPS])
    right = np.abs(found - wanted) <= 0.1 + 0.2 * np.abs(wanted)
    return mean_share([np.moveaxis(right, -1, 0)], 0.95, what="values")


# --- local attention -------------------------------------------------------------------------------------------------------


@CLAIMS.claim("Q24", wrong=(20.0, -1.0), source=Source.MEASURED)
def window_law(study: MapsStudy, constant: float) -> Evidence:
    r"""local attention: with windows of W the signal in p_2 is proportional to 1 - 1/W
    $T = 8$, mean over softmax windows of W tokens: the coefficient of $\mu_k$ in $p_2$ is proportional to $1 - 1/W$ to leading order;
    ratios 0, 0.571, 0.857 to that of $W = 8$
    wrong: the same for each window of two tokens or more; ratios in the reverse order of W
    coarse: the law is of leading order, and 0.03 is allowed for the rest"""
    local = study.local
    signal = tensor(local.signal_in_p2).mT  # (draws, widths)
    predicted = 1 - tensor(local.widths) ** -abs(constant)
    predicted = (predicted if constant > 0 else predicted.flip(0)) / predicted.max()
    parts, level = [], LEVEL / (len(local.widths) - 1)  # the last ratio is 1
    for width, wanted in zip(range(len(local.widths) - 1), predicted.tolist(), strict=False):
        ratio = statistic_within(
            lambda one, whole: (one.mean() / whole.mean()).item(), signal[:, width], signal[:, -1],
            low=wanted - 0.03, high=wanted + 0.03, quantity=f"W = {local.widths[width]}", level=level,
        )  # fmt: skip
        parts.append(ratio)
    shown = ", ".join(f"{part.numbers['measured']:.3f}" for part in parts)
    said = ", ".join(f"{value:.3f}" for value in predicted[:-1].tolist())
    return replace(both(*parts), predicted=said, measured=shown, rule=f"ratios of means within 0.03; {parts[0].rule}")


@CLAIMS.claim("Q24b", wrong=0.0, source=Source.MEASURED, uses="Q24")
def window_harm(study: MapsStudy, constant: float) -> Evidence:
    r"""local attention with windows above one token generalises poorly in long training
    $T = 8$, $n = 60$, $d = 12000$, $\rho = 16$, step 100: in at least 95 % of draws $\log_{10}$ clean error keeps at least 85 % of its
    value at step 2 with $W = 1$ (no attention), and loses a third of it or more with $W = 2, 4, 8$
    wrong: windows of one token and larger ones exchanged"""
    kept = tensor(study.local.late_error / study.local.early_error)  # (widths, draws)
    narrow, wide = (kept[:1].mT, kept[1:].mT) if constant else (kept[1:].mT, kept[:1].mT)
    return both(
        within(narrow, low=0.85, quantity="exponent kept, W = 1", level=LEVEL / 2),
        within(wide, high=0.67, quantity="exponent kept, W > 1", level=LEVEL / 2),
    )
