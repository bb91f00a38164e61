r"""Claims Q18, Q21, Q22, Q22b, Q24 and Q69: two steps and long training with every attention map, and attention in windows.

Local attention has a size of its own, whatever the page's parameters; the rest is at the page's law, over several signal norms.
"""

import math
from dataclasses import replace

import numpy as np
import torch

from attnbook.open_questions.attention_maps.study import unnormalised_p2
from attnbook.open_questions.judging import mean_share, tensor
from attnbook.open_questions.maps import MAPS, MOVING, UNNORMALISED
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, NothingToMeasure, both, exactly, mean_within, statistic_within, within
from bookkit.worlds import changed, exchange

CLAIMS = ClaimSet("open_questions")


# --- two steps -------------------------------------------------------------------------------------------------------------


@CLAIMS.claim("Q18", wrong=1.01, box="thm-open-universality")
def slope_alone(study, constant):
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


@CLAIMS.claim("Q21", wrong=1.01, box="thm-open-universality", uses="Q18")
def no_competition(study, constant):
    r"""unnormalised weights: p_2 without competition
    from zero, $p_2 = \frac{\beta\phi'(0)}{n}\sum_i g_iy_i[(v_1\cdot u_i)u_i + (v_1\cdot\xi_i)\xi_i]$ for the weights $\phi(z)$ = sigmoid
    ($\phi'(0) = \frac14$) and $\frac12 + z$ ($\phi'(0) = 1$)
    wrong: a factor 1 % larger"""
    found = torch.stack([study.two[m.name][2] for m in UNNORMALISED])
    predicted = [unnormalised_p2(study.sample, study.step_size, constant * m.slope(2)) for m in UNNORMALISED]
    return exactly(found, torch.stack(predicted), tolerance=1e-12, draws=study.sample.runs)


# --- long training at the page's law ---------------------------------------------------------------------------------------

_LOW = "$x < 0.3$ and $n\\rho^4(1-2\\eta)^2/d \\ge 25$ at a signal norm"


def _not_low(study):
    law, x = study.law, study.x[study.low]
    strength = law.n * study.low**4 * (1 - 2 * law.label_noise) ** 2 / law.d
    if x >= 0.3 or strength < 25:
        return f"needs a signal norm with x < 0.3 and n rho^4 (1 - 2 eta)^2 / d >= 25; here {x:.3g} and {strength:.3g}"
    return ""


def _courses(change, names):
    """The change in every course of some maps."""

    def changes(courses):
        return courses | {name: {norm: change(course) for norm, course in courses[name].items()} for name in names}

    return changed(changes, "courses")


SIGMOID_AND_SOFTMAX = exchange("courses.sigmoid", "courses.softmax")
UNFITTED = _courses(changed(lambda fitted: 1 - fitted, "train_accuracy"), ("sigmoid", "softmax"))
EARLY = _courses(changed(lambda error: error[:2], "log10_error"), [m.name for m in MOVING])  # steps 1 and 2


@CLAIMS.claim(
    "Q22", wrong=(SIGMOID_AND_SOFTMAX, UNFITTED, EARLY), source=Source.MEASURED, regime=_LOW, violation=_not_low
)
def sigmoid_is_benign(study):
    r"""low SNR, long training: sigmoid stays benign, six competing weight functions do not
    below the threshold the sigmoid head ends with a mean $\log_{10}$ clean error of $-2.24 \pm 0.07$, the softmax head with $-0.48 \pm
    0.02$, both with every label fitted in at least 95 % of draws; the least of softmax at three temperatures, sparsemax, entmax and
    linearised softmax has a mean of $-0.71 \pm 0.03$
    wrong: softmax and sigmoid exchanged; no label fitted; the six after two steps"""
    level, ends = LEVEL / 4, {name: courses[study.low] for name, courses in study.courses.items()}
    fitted = np.minimum(ends["sigmoid"].train_accuracy[-1], ends["softmax"].train_accuracy[-1])
    errors = {name: tensor(course.log10_error[-1]) for name, course in ends.items()}
    six = torch.stack([errors[m.name] for m in MOVING])
    whole = both(
        mean_within(errors["sigmoid"], -2.31, -2.17, quantity="mean log₁₀ err, sigmoid", level=level),
        mean_within(errors["softmax"], -0.50, -0.46, quantity="softmax", level=level),
        within(tensor(fitted), low=1.0, quantity="train accuracy", level=level),
        mean_within(six.amin(0), -0.74, -0.68, quantity="least of six", level=level),
    )
    return replace(whole, numbers={})


def _kept(course, since):
    """Final exponent over that of an early step, per draw."""
    return tensor(course.log10_error[-1] / course.log10_error[course.at(since)])


SIGMOID_AND_HALF_PLUS = exchange("courses.sigmoid", "courses.half plus")


@CLAIMS.claim("Q22b", wrong=SIGMOID_AND_HALF_PLUS, source=Source.MEASURED, uses="Q22", regime=_LOW, violation=_not_low)
def bounded_recover(study):
    r"""below the threshold the late error does not rise with the sigmoid and rises with 1/2 + z
    below the threshold, from step 1000 to the end: $|\log_{10}|$ of the clean error does not shrink with the sigmoid (mean ratio $\ge 1$),
    and with $\frac12 + z$ it does (mean ratio $\le 0.97$)
    wrong: the two maps exchanged"""
    bounded, unbounded = (_kept(study.courses[name][study.low], 1000) for name in ("sigmoid", "half plus"))
    return both(
        mean_within(bounded, low=1.0, quantity="mean ratio, bounded", level=LEVEL / 2),
        mean_within(unbounded, high=0.97, quantity="mean ratio, unbounded", level=LEVEL / 2),
    )


SOFTMAX_FOR_ALL = changed(lambda predicted: dict.fromkeys(predicted, predicted["softmax"]), "predicted")


@CLAIMS.claim("Q69", wrong=SOFTMAX_FOR_ALL, source=Source.MEASURED, box="thm-long-map")
def mean_field_predicts(study):
    r"""six numbers per class predict the error of nine weight functions
    gradient descent with orthogonal noise, six variables per class, each draw's own counts and no fitted number, gives the $\log_{10}$
    clean error of a draw within 20 % (or 0.1) for on average at least 95 % of the values over nine weight functions, all recorded steps and
    the signal norms away from the threshold ($x < 0.7$ or $x > 1.3$)
    wrong: the predictions of softmax for all maps"""
    columns = {norm: i for i, norm in enumerate(study.norms) if not 0.7 <= study.x[norm] <= 1.3}
    if not columns:
        raise NothingToMeasure("needs a signal norm with x < 0.7 or x > 1.3; all are in between")
    # (maps, norms, steps, draws)
    found = np.array([[study.courses[m.name][norm].log10_error for norm in columns] for m in MAPS])
    wanted = np.array([study.predicted[m.name][:, list(columns.values())].transpose(1, 0, 2) for m in MAPS])
    right = np.abs(found - wanted) <= 0.1 + 0.2 * np.abs(wanted)
    return mean_share([np.moveaxis(right, -1, 0)], 0.95, what="values")


# --- local attention -------------------------------------------------------------------------------------------------------


ALIKE, REVERSED = (changed(change, "local.predicted") for change in (np.sign, np.flip))


@CLAIMS.claim("Q24", wrong=(ALIKE, REVERSED), source=Source.MEASURED)
def window_law(study):
    r"""local attention: with windows of W the signal in p_2 is proportional to 1 - 1/W
    $T = 8$, mean over softmax windows of W tokens: the coefficient of $\mu_k$ in $p_2$ is proportional to $1 - 1/W$ to leading order;
    ratios 0, 0.571, 0.857 to that of $W = 8$
    wrong: the same for each window of two tokens or more; ratios in the reverse order of W
    coarse 2, 3: the law is of leading order, and 0.03 is allowed for the rest"""
    local = study.local
    signal = tensor(local.signal_in_p2).mT  # (draws, widths)
    predicted = tensor(local.predicted / local.predicted.max())
    parts, level = [], LEVEL / (len(local.widths) - 1)  # the last ratio is 1
    for i, wanted in enumerate(predicted[:-1].tolist()):
        ratio = statistic_within(
            lambda one, whole: (one.mean() / whole.mean()).item(), signal[:, i], signal[:, -1],
            low=wanted - 0.03, high=wanted + 0.03, quantity=f"W = {local.widths[i]}", level=level,
        )  # fmt: skip
        parts.append(ratio)
    shown = ", ".join(f"{part.numbers['measured']:.3f}" for part in parts)
    said = ", ".join(f"{value:.3f}" for value in predicted[:-1].tolist())
    return replace(both(*parts), predicted=said, measured=shown, rule=f"ratios of means within 0.03; {parts[0].rule}")
