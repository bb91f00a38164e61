r"""Claims Q34, Q76, Q77, Q77b and Q78: what other noise laws change in the long run."""

from dataclasses import replace

import numpy as np
import torch

from attnbook.open_questions.judging import per_draw, tensor
from attnbook.open_questions.noise_in_the_long_run.study import XS
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, agrees, both, mean_within, within
from bookkit.worlds import changed, instead, times

CLAIMS = ClaimSet("open_questions")


ARITHMETIC, HALF = instead("radial.3.harmonic", "radial.3.arithmetic"), times(2.0, "radial.3.harmonic")


@CLAIMS.claim("Q34", wrong=(ARITHMETIC, HALF), source=Source.MEASURED, box="thm-open-noise-harmonic")
def harmonic_threshold(study):
    r"""heavy radial tails: the harmonic rule holds away from its threshold
    $\eta = 0$, $\nu = 3$, $n = 200$, $d = 40000$: at expected $x_h = 1.6$ and $0.8$ both classes end where the rule $x_h > 1$ says, on
    their signal at $1.6$ and on their noise at $0.8$, in at least 85 % of the draws of each
    wrong: the arithmetic rule ρ²|C| > d; a threshold at x_h = 1/2"""
    fates = study.radial[3]
    right = [per_draw([((fates.harmonic > 1) == fates.on_signal)[fates.at(target)]]) for target in (0.8, 1.6)]
    words = "share of classes right"
    parts = [within(shares, low=1.0, quantity=words, share=0.85, level=LEVEL / 2) for shares in right]
    return replace(both(*parts), numbers={"share": torch.cat(right).mean().item()})


def _in_each(name, change):
    return changed(lambda laws: {law: change(fates) for law, fates in laws.items()}, name)


def _class_by_class(fates):
    """A class-level rule can at best be right for the majority it names."""
    majority = (fates.harmonic > 1).mean(1, keepdims=True) > 0.5
    return replace(fates, predicted=np.repeat(majority, fates.samples.shape[1], 1))


OTHER_TOKEN = _in_each("radial", changed(np.logical_not, "predicted"))


@CLAIMS.claim("Q76", wrong=(_in_each("radial", _class_by_class), OTHER_TOKEN), source=Source.MEASURED)
def lengths_decide(study):
    r"""the norms alone decide the outcome of nearly every sample
    $\nu = 3, 5, 10$, $x_h = 0.6 \dots 2$: training a copy with orthogonal noise tokens of the same norms predicts which token each single
    sample ends on: correctly for at least 92 % of the samples on average in each of the 24 cells, and for 97 % over all
    wrong: the rule x_h > 1, class by class; of each sample the token that is not predicted"""
    cells = [
        per_draw([(fates.predicted == fates.samples)[fates.at(target)]])
        for fates in study.radial.values()
        for target in np.unique(fates.target)
    ]
    half = LEVEL / 2
    parts = [
        mean_within(shares, low=0.92, quantity="mean share in each cell", level=half / len(cells)) for shares in cells
    ]
    whole = mean_within(torch.cat(cells), low=0.97, quantity="over all cells", level=half)
    worst = min(parts, key=lambda part: part.numbers["measured"])
    return replace(
        both(*parts, whole), measured=f"worst of {len(cells)} cells {worst.measured}; over all {whole.measured}",
        rule=f"{worst.rule}; {whole.rule}", numbers={"worst": worst.numbers["measured"], "mean": whole.numbers["measured"]},
    )  # fmt: skip


BY_TRACE = _in_each("correlated", instead("effective", "trace"))
TWICE = _in_each("correlated", times(2.0, "effective"))


@CLAIMS.claim("Q77", wrong=(BY_TRACE, TWICE), box="prop-open-noise-effective")
def effective_length(study):
    r"""correlated noise: the largest margin on noise alone costs n/D, not n/tr Σ
    the exact SVM on n noise tokens has $|w|^2 = n/D$, $D = \sum_j\lambda_j/(1+n\lambda_j/D)$ (within 3 %): white, AR(1) 0.9, half the
    trace, and a spike of variance $d$, which doubles $\mathrm{tr}\,\Sigma$ and leaves $D \approx d$
    wrong: tr Σ; a D twice as large"""
    parts = []
    for fates in study.correlated.values():
        room = {"allowance": 0.03 * fates.effective, "allowance_text": "3 %, finite n and d"}
        parts.append(agrees(tensor(1 / fates.cost), fates.effective, **room, level=LEVEL / len(study.correlated)))
    return both(*parts)


@CLAIMS.claim("Q77b", wrong=TWICE, source=Source.MEASURED, uses="Q77")
def effective_length_decides(study):
    r"""correlated noise: the effective trace D decides the outcomes
    $\eta = 0$, the rule is that a class ends on its signal iff $\rho^2|C_k| > D$: over twelve signal norms and four covariances it is on
    average right for at least 96 % of a draw's classes with the exact SVM, and for at least 94 % with gradient descent
    wrong: a D twice as large"""
    parts = []
    for rule, low in (("svm", 0.96), ("on_signal", 0.94)):
        right = [getattr(fates, rule) == (fates.x > fates.effective) for fates in study.correlated.values()]
        # The same draws at every signal norm, and in every law.
        shares = torch.stack([tensor(flags.reshape(len(XS), -1, 2).mean((0, 2))) for flags in right])
        parts.append(mean_within(shares.mean(0), low=low, quantity=f"mean fraction, {rule}", level=LEVEL / 2))
    return replace(both(*parts), numbers={})


EARLY = changed(lambda error: error[:1], "avoiding.0.log10_error", "meeting.0.log10_error")


@CLAIMS.claim("Q78", wrong=EARLY, source=Source.MEASURED, uses="A11 L11")
def late_phase_stays(study):
    r"""noise not orthogonal to the signals: the late phase is the same at low SNR
    $\xi \sim N(0, I_d)$, $n = 100$, $d = 20000$, $\eta = 0.05$, $\rho = 10$, step 3000: $\log_{10}$ of the clean error is on average within
    $0.02$ of that with projected noise
    wrong: the same agreement after one step"""
    projected, other = (tensor(courses[0].log10_error[-1]) for courses in (study.avoiding, study.meeting))
    return replace(mean_within(other - projected, -0.02, 0.02, quantity="mean difference of log₁₀ err"), numbers={})
