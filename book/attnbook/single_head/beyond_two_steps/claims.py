r"""Claims L2, L6, L8 and L11-L17 of page I.14: what long training selects, and what it costs."""

from dataclasses import replace

import numpy as np
import torch

from attnbook.single_head.beyond_two_steps.study import LongStudy
from attnbook.single_head.flow import signal_threshold
from attnbook.single_head.long_run import Course, Fates
from attnlib.single_head.law import SignalNoiseLaw
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, both, mean_within, on_grid, within

CLAIMS = ClaimSet("single_head")


def _counted(evidence: Evidence, correct: np.ndarray, judged: np.ndarray | None, what: str) -> Evidence:
    """The evidence with the number of classes shown: both classes of every draw, or those that are `judged`."""
    right = correct if judged is None else correct[judged]
    hits, total = int(right.sum()), int(right.size)
    shown = f"{hits} of {total} {what}"
    return replace(evidence, measured=shown, numbers={"share": hits / total, "classes": total})


def share_right(correct: np.ndarray, low: float, what: str) -> Evidence:
    """At least the share `low` of classes on average over draws; the two classes of a draw are not independent."""
    evidence = mean_within(tensor(correct.mean(1)), low=low, quantity="share")
    return _counted(replace(evidence, predicted=f">= {low:.2g} {what}"), correct, None, what)


def both_right(correct: np.ndarray, share: float, what: str, judged: np.ndarray | None = None) -> Evidence:
    """With probability `share` both classes of a draw are right: those that are `judged`."""
    silent = None if judged is None else torch.as_tensor(~judged)
    evidence = within(tensor(correct), low=1.0, share=share, silent=silent)
    return _counted(
        replace(evidence, predicted=f"all {what} of a draw, with probability >= {share:g}"), correct, judged, what
    )


def tensor(values: object) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values), dtype=torch.float64)


# --- which token the long run selects --------------------------------------------------------------------------------------


@CLAIMS.claim("L2", wrong=1.3, source=Source.MEASURED, box="thm-long-no-noise thm-margin-threshold", uses="L1 M4 R4")
def fates_without_noise(study: LongStudy, constant: float) -> Evidence:
    r"""without label noise the outcome of a class changes at x = 1
    for $\eta = 0$ and $d = 10^6$ the classes of a draw with $|x - 1| > 0.02$ (nearer ones are not judged) end on the token that maximum
    margin selects (the signal iff $x > 1$), in at least 99 % of draws
    wrong: the threshold at x = 1.3"""
    fates = study.no_noise
    far = np.abs(fates.x - 1) > 0.02
    return on_grid(both_right((fates.x > constant) == fates.on_signal, 0.99, "classes", far), 0.02)


def _fate_rule(fates: Fates, power: float) -> np.ndarray:
    """x > x*^power: power 1 is the flow's boundary, power 0 the maximum-margin rule x > 1."""
    return (fates.x > fates.threshold**power) == fates.on_signal


@CLAIMS.claim("L6", wrong=0.0, source=Source.MEASURED, box="thm-long-map thm-long-gap", uses="L3 R4")
def flow_predicts(study: LongStudy, constant: float) -> Evidence:
    r"""the flow predicts the outcome of gradient descent
    for $\eta = 0.2$, $n = 100$, twelve $x$ spaced geometrically in $[0.85, 2.3]$, at $d = 10^6$ and at $d = 40000$, at least 95 % of
    classes end on their signal iff $x > x^*$, with the $x$ and the fraction of flipped samples of the class itself
    wrong: the maximum-margin rule x > 1, by which only about six in ten end there"""
    return both(
        *(share_right(_fate_rule(study.fates[d], constant), 0.95, f"classes, d = {d:.0e}") for d in (10**6, 40_000))
    )


@CLAIMS.claim("L8", wrong=0.0, source=Source.MEASURED, box="thm-long-gap thm-margin-threshold", uses="L3 M4")
def told_apart(study: LongStudy, constant: float) -> Evidence:
    r"""on the same draws the exact SVM and gradient descent select different tokens
    for $\eta = 0.2$, $x = 1.3$, $n = 100$, $d = 2\cdot10^5$ the SVM of a draw selects the signal iff $x > 1$, and gradient descent on the
    same draw ends on it iff $x > x^*$: the first for all classes with $|x - 1| > 0.02$ in at least 95 % of draws, the second for both
    classes in at least 90 %
    wrong: the two thresholds exchanged"""
    fates = study.same_draws
    clear = np.abs(fates.x - 1) > 0.02
    svm = both_right((fates.x > fates.threshold ** (1 - constant)) == fates.svm, 0.95, "classes of the SVM", clear)
    return both(on_grid(svm, 0.02), both_right(_fate_rule(fates, constant), 0.9, "classes of GD"))


# --- trajectories at the page's own law ------------------------------------------------------------------------------------


def _asked(
    values: np.ndarray, constant: float, *, quantity: str, silent: torch.Tensor | None = None, **ends: float
) -> Evidence:
    """Bounds in 95 % of draws; for a negative constant the opposite: beyond the bound."""
    if constant < 0:
        ends = {{"low": "high", "high": "low"}[name]: end for name, end in ends.items()}
    return within(tensor(values), **ends, strict=constant < 0, quantity=quantity, silent=silent)


def _unflipped(course: Course) -> torch.Tensor:
    """(draws,), no label is flipped: nothing to see of flipped samples."""
    return torch.as_tensor(course.flipped == 0)


def _own_x(law: SignalNoiseLaw) -> float:
    return law.signal_norm**2 * law.n * (1 - law.label_noise) / 2 / law.d


def _not_high(study: LongStudy) -> str:
    x, need = _own_x(study.law), 1.5 * signal_threshold(study.law.label_noise)
    return "" if x > need else f"needs x > 1.5 x* = {need:.3g}; here {x:.3g}"


def _not_low(study: LongStudy) -> str:
    x, law = _own_x(study.low_law), study.low_law
    if x >= 0.5:
        return f"needs x < 0.5 at the lower signal norm; here {x:.3g}"
    strength = law.n * law.signal_norm**4 * (1 - 2 * law.label_noise) ** 2 / law.d
    return (
        "" if strength >= 25 else f"needs n rho^4 (1 - 2 eta)^2 / d >= 25 at the lower signal norm; here {strength:.3g}"
    )


_HIGH, _LOW = "$x > 1.5\\,x^*(\\eta)$", "$x < 0.5$ and $n\\rho^4(1-2\\eta)^2/d \\ge 25$ at the lower signal norm"


@CLAIMS.claim("L11", wrong=(0.0, -1.0), source=Source.MEASURED, uses="R3 R4", regime=_LOW, violation=_not_low)
def harmful_late(study: LongStudy, constant: float) -> Evidence:
    r"""low SNR: benign after one step, harmful after many
    at the signal norm below the threshold the clean error after one step is small: its logarithm is that of $\tfrac12\sum_k\Phi\big(-\rho^2
    (|C_k|-|N_k|)/\sqrt{nd}\big)$, orthogonal noise, up to 3 %; at the end it is above $0.355$, and every training label is still fitted:
    each in at least 95 % of draws
    wrong: the head with frozen attention; a third of that logarithm, and the opposite of the other parts"""
    course, factor = study.low if constant else study.frozen_low, 3 if constant < 0 else 1
    ratio = factor * course.log10_error[0] / study.averaging_low
    return both(
        within(tensor(ratio), 0.97, 1.03, quantity="log err / formula, step 1"),
        _asked(10 ** course.log10_error[-1], constant, low=0.355, quantity="err, end"),
        _asked(course.train_accuracy[-1], constant, low=1.0, quantity="train accuracy, end"),
    )


@CLAIMS.claim("L12", wrong=(0.0, -1.0), source=Source.MEASURED, uses="R3 R4", regime=_HIGH, violation=_not_high)
def benign_for_long(study: LongStudy, constant: float) -> Evidence:
    """high SNR: benign at each recorded step
    at the signal norm above the threshold every training label is fitted from step 2 on, the clean error is below $10^{-20}$ at every
    recorded step, and attention ends above $0.98$ on clean samples, each in at least 95 % of draws, and below $0.01$ on flipped ones on
    average
    wrong: the same law below the threshold; the opposite of each part
    coarse 1: the exponent varies by a factor of four with the label counts of a draw, and is smallest at step 3, for which no formula is
    known"""
    course, last = study.high if constant else study.low, {"low": 0.02} if constant < 0 else {"high": 0.01}
    return both(
        _asked(course.log10_error.max(0), constant, high=-20.0, quantity="largest log₁₀ err"),
        _asked(course.train_accuracy[1:].min(0), constant, low=1.0, quantity="train accuracy"),
        _asked(course.attention_clean[-1], constant, low=0.98, quantity="attention, clean"),
        mean_within(
            tensor(course.attention_noisy[-1]), **last, quantity="attention, flipped", silent=_unflipped(course)
        ),
    )


@CLAIMS.claim("L13", wrong=0.0, source=Source.MEASURED, uses="R3", regime=_LOW, violation=_not_low)
def frozen_is_safe(study: LongStudy, constant: float) -> Evidence:
    """frozen attention stays benign at low SNR
    at the signal norm below the threshold of the full head, the exponent of the clean error of logistic regression on token means is at the
    end at least 91 % of that at step 2, in at least 95 % of draws
    wrong: the full head"""
    course = study.frozen_low if constant else study.low
    return within(tensor(course.log10_error[-1] / course.log10_error[course.at(2)]), low=0.91, quantity="exponent kept")


@CLAIMS.claim("L14", wrong=2.0, source=Source.MEASURED, uses="R3", regime=_HIGH, violation=_not_high)
def attention_pays(study: LongStudy, constant: float) -> Evidence:
    """above the threshold attention lowers the clean error, after many steps
    at step 1000 the exponent of the clean error of the full head is on average at least 1.95 times that of the frozen head
    wrong: the same at step 2"""
    row = study.high.at(1000 if constant == 1.0 else 2)
    return mean_within(
        tensor(study.high.log10_error[row] / study.frozen_high.log10_error[row]), low=1.95, quantity="ratio"
    )


@CLAIMS.claim(
    "L15",
    wrong=-1.0,
    source=Source.MEASURED,
    uses="L11 L12",
    regime=_HIGH + " and " + _LOW,
    violation=lambda s: _not_high(s) or _not_low(s),
)
def small_steps(study: LongStudy, constant: float) -> Evidence:
    """small steps have the same outcome
    with a step size 50 times smaller every label is fitted at step 50 and not at step 20 (draws with flipped labels), and the outcome is
    that of the large step size: above the threshold a clean error below $10^{-20}$, each in at least 95 % of draws, and below it one that
    is on average between $0.23$ and $0.25$
    wrong: the opposite of each part
    coarse 3: the exponent varies by a factor of three with the label counts of a draw, and no formula for it is known"""
    high = study.small_high
    accuracy, silent, ends = high.train_accuracy, _unflipped(high), (0.23, 0.25) if constant > 0 else (None, 0.01)
    return both(
        _asked(accuracy[high.at(50)], constant, low=1.0, quantity="train accuracy, step 50", silent=silent),
        _asked(accuracy[high.at(20)], -constant, low=1.0, quantity="train accuracy, step 20", silent=silent),
        _asked(high.log10_error[-1], constant, high=-20.0, quantity="log₁₀ err above"),
        mean_within(tensor(10 ** study.small_low.log10_error[-1]), *ends, quantity="err below"),
    )


@CLAIMS.claim("L16", wrong=0.0, source=Source.MEASURED, box="thm-margin-soft thm-margin-exact", uses="M4 M10")
def margin_creeps(study: LongStudy, constant: float) -> Evidence:
    r"""the normalised margin slowly approaches its maximum
    at $n = 40$, $d = 8000$, $\eta = 0.1$ and step 10000 the normalised margin $\min_i y_if(X_i) / |v|$ is 84.5 to 90 % of that of the best
    hard selection where the selection SS is best on average ($\rho = 40$), and 94 to 98 % where XX is ($\rho = 12$), each in at least
    95 % of draws
    wrong: the same at step 1"""
    row, ends = -1 if constant else 0, ((0.845, 0.9), (0.94, 0.98))
    return both(*(within(tensor(r[row]), *pair, quantity="ratio") for r, pair in zip(study.ratios, ends, strict=True)))


@CLAIMS.claim("L17", wrong=100.0, source=Source.MEASURED, uses="R3", regime=_HIGH, violation=_not_high)
def small_starts(study: LongStudy, constant: float) -> Evidence:
    """small Gaussian starts change little
    from Gaussian $v_0, p_0$ of norm $0.01$ the exponents of the clean error after 2 and 300 steps are those from zero up to 5 %, in at
    least 95 % of draws
    wrong: starts of norm 1"""
    size = min(study.starts, key=lambda s: abs(s - 0.01 * constant))
    ratio = study.starts[size].log10_error / study.starts[0.0].log10_error
    return within(tensor(ratio.T), low=0.95, high=1.05, quantity="ratio of exponents")
