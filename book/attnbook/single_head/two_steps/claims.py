r"""Claims C8-C10, C13, C14, C16 and C17 of page `02_two_steps`, and what the paper's theorem itself says about the setting of the page.

Each judge takes a `TwoStepStudy` and a constant that multiplies the formula's own. All statements but T1 are derived in the theory
chapter of Part I; none is a lemma of the paper. Letters as there: $a = \beta d/4n$, $b_k = \beta\rho^2(|C_k|-|N_k|)/4n$, $\varepsilon$ the
bound of C7.
"""

import math

import torch

from attnbook.single_head.mean_field import mean_field_log10_error
from attnbook.single_head.study import both_kinds, noise_tolerance, scale_a
from bookkit.claims import ClaimSet, Source
from bookkit.rules import agrees, within
from bookkit.worlds import exchange

CLAIMS = ClaimSet("single_head")


def _strong_level(study):
    """a (1 + eps): a signal b_k above it outweighs every sample's own noise after one step."""
    return scale_a(study) * (1 + noise_tolerance(study))


def _weak_signal(study):
    """Violation of E b > a (1 + eps): a condition on the law, so that no single draw decides it."""
    law, need = study.law, _strong_level(study)
    expected = study.step_size * law.signal_norm**2 * (1 - 2 * law.label_noise) / 8
    return "" if expected > need else f"needs E b > a(1 + eps); here E b = {expected:.3g} <= {need:.3g}"


# --- after one step ----------------------------------------------------------------------------------------------------------


@CLAIMS.claim("C8", wrong=1.1, box="claim-theory-c8 prop-mean-field", uses="C7 claim-theory-c5")
def margins_after_one_step(study, constant):
    r"""margins after one step
    the mean margins are $\tfrac12(a + b_k)$ on clean and $\tfrac12(a - b_k)$ on flipped samples (orthogonal-noise prediction)
    wrong: a and b larger by 10 %"""
    field = study.mean_field
    predicted = constant * study.per_sample(field.margin1_clean, field.margin1_noisy)
    return both_kinds(study, study.margins1, predicted)


@CLAIMS.claim("C8b", wrong=1.01, box="claim-theory-c8 claim-theory-c9", uses="C7", violation=_weak_signal)
def accuracy_after_one_step(study, constant):
    r"""one step fits exactly the clean samples
    in a draw with $b_k > a(1+\varepsilon)$ for both classes, with probability at least $1-2\delta$ (C7): every clean margin is positive and
    every flipped one negative, so the training accuracy is the fraction of clean samples, and the slope of the loss, $1/(1+e^{m_i})$ at
    the margin $m_i$, is below $\tfrac12$ on clean and above it on flipped samples
    regime: $E\,b > a(1+\varepsilon)$; judged on the draws with $b_k > a(1+\varepsilon)$ for both classes
    wrong: 1.01 times the fraction of clean samples"""
    accuracy, clean = (study.margins1 > 0).double().mean(1), (~study.noisy).double().mean(1)
    weak = (study.mean_field.b <= _strong_level(study)).any(1)
    share = 1 - 2 * study.delta
    return within(
        accuracy - constant * clean, -1e-10, 1e-10, quantity="train accuracy − clean fraction", share=share, silent=weak
    )


@CLAIMS.claim("C10", wrong=1.1, box="claim-theory-c10 prop-mean-field", uses="C7 claim-theory-c6")
def token_preference(study, constant):
    r"""which token a sample prefers
    $\gamma_i = y_i v_1\cdot(u_i-\xi_i)$, positive where the signal speaks more for the label than the noise, has mean $b_k - a$ on
    clean samples (positive iff $b_k > a$) and $-(b_k+a)$ on flipped ones (orthogonal-noise prediction)
    wrong: a and b larger by 10 %"""
    field = study.mean_field
    predicted = constant * study.per_sample(field.preference_clean, field.preference_noisy)
    return both_kinds(study, study.preference, predicted)


# --- after two steps ---------------------------------------------------------------------------------------------------------


@CLAIMS.claim("C13", wrong=1.15, box="claim-theory-c13 prop-mean-field", uses="C12 C12b")
def attention_after_two_steps(study, constant):
    r"""attention after two steps
    the mean weight on the signal token is $\sigma\big(p_2\cdot\mu_k + a g_i\gamma_i\big)$ on clean and on flipped samples (orthogonal-noise
    prediction)
    wrong: 1.15 times the prediction
    coarse 2: the weight of flipped samples, a twentieth, is small beside the (n + 1)/d that is allowed"""
    field = study.mean_field
    predicted = constant * study.per_sample(field.attention_clean, field.attention_noisy)
    return both_kinds(study, study.attention2, predicted)


@CLAIMS.claim("C14", wrong=1.05, box="claim-theory-c14 prop-mean-field", uses="C13 thm-closed-forms")
def margins_after_two_steps(study, constant):
    r"""margins after two steps
    the mean margins are $s V_k + (1-s)t$ on clean and $-sV_k + (1-s)t$ on flipped samples, with $V_k = s_kv_2\cdot\mu_k$, $t = a(1+2g)$ and
    $s$ the weight of C13 (orthogonal-noise prediction)
    wrong: 1.05 times the prediction"""
    field = study.mean_field
    predicted = constant * study.per_sample(field.margin2_clean, field.margin2_noisy)
    return both_kinds(study, study.margins2, predicted)


@CLAIMS.claim("C16", wrong=2.0, source=Source.MEASURED, box="claim-theory-c16 claim-theory-c14", uses="C14 R4")
def interpolation(study, constant):
    """two steps interpolate
    after two steps every training label is fitted, also the flipped ones, in at least 95 % of draws
    wrong: every margin at least its orthogonal-noise prediction instead of 0"""
    field = study.mean_field
    floor = 0.0 if constant == 1.0 else study.per_sample(field.margin2_clean, field.margin2_noisy)
    return within(study.margins2, low=floor, quantity="margins", strict=True)


@CLAIMS.claim(
    "C16b",
    wrong=1.15,
    box="claim-theory-c16",
    uses="R3",
    violation=lambda s: "" if s.law.label_noise > 0 else "needs label noise; here eta = 0",
)
def benign(study, constant):
    r"""the test error on fresh samples with flipped labels
    on fresh samples whose labels are flipped with probability $\eta$ the test error is $\eta + (1-2\eta)\,\mathrm{err}$, with
    $\mathrm{err}$ the exact clean error
    regime: $\eta > 0$
    wrong: 1.15 times that"""
    eta = study.law.label_noise
    error = torch.pow(10.0, study.log10_error2).mean(1)
    return agrees(study.sampled_noisy_error2, constant * (eta + (1 - 2 * eta) * error))


@CLAIMS.claim("C17", wrong=1.1, box="claim-theory-c17", uses="C14 R3")
def error_from_counts(study, constant):
    r"""the clean error from the label counts
    the orthogonal-noise predictions of values and scores, inserted into the exact integral, give the mean of $\log_{10}\mathrm{err}$
    over draws from $\beta$, $\rho$, $n$, $d$ and the counts $|C_k|$, $|N_k|$ of each draw alone, up to a relative $(n+1)/d$
    wrong: an exponent 1.1 times larger"""
    law = study.law
    predicted = mean_field_log10_error(law, study.step_size, study.clean_counts, study.noisy_counts)
    exact = torch.logsumexp(study.log10_error2 * math.log(10), 1) / math.log(10) - math.log10(2)
    relative = (law.n + 1) / law.d * predicted.abs().mean().item()
    return agrees(exact, constant * predicted, allowance=relative, allowance_text="finite d: (n + 1)/d of the exponent")


def _dimension(study):
    n, d = study.law.n, study.law.d
    need = n**2 * math.log(n / study.delta)
    return (
        ""
        if d >= need
        else f"needs d >= C n^2 log(n/delta) = {need:.3g} C, C unknown; here d = {d:.3g}: fails for every C > {d / need:.2g}"
    )


@CLAIMS.claim(
    "T1",
    wrong=exchange("margins1", "margins2"),
    source=Source.PAPER,
    box="thm-paper-two-steps",
    uses="C16 R3",
    violation=_dimension,
)
def theorem(study):
    r"""the two-step theorem
    after two steps at $\mathrm{SNR} = \Theta(1/\sqrt n)$ the head interpolates (it fits every training label) and its clean error is small
    (here: both classes below $10^{-2}$, in at least 95 % of draws; $n = 60$ at $d = 40000$)
    regime: $d \ge C n^2 \log(n/\delta)$, $C$ not known to us (judged with $C = 1$)
    wrong: after one step in place of two
    coarse: the paper does not say how small"""
    error = study.log10_error2.amax(1)
    fitted = (study.margins2 > 0).all(1)
    return within(torch.where(fitted, error, 0.0), high=-2.0, quantity="log₁₀ err (0 if not interpolating)")
