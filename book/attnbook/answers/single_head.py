"""Answers of Part I."""

import math

import numpy as np
import torch

from attnbook.answers import crossing, exercise
from attnbook.open_questions.margin_and_descent.margin import class_cost
from attnbook.single_head.deviations import log_term, smallest_certified_dimension
from attnbook.single_head.flow import first_order_threshold
from attnbook.single_head.long_run import law_at
from attnbook.single_head.mean_field import mean_field
from attnbook.single_head.phase_theory import lower_snr_limit, preference_spread
from attnbook.single_head.signal_and_noise.study import averaging_error
from attnbook.single_head.variants import StressedLaw
from attnlib.gaussian import bartlett_rows
from attnlib.randomness import stream
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.summary import summarise
from attnlib.single_head.training import gradient_descent

N, D, RHO, ETA, STEP = 200, 40000, 30.0, 0.05, 0.025  # of most pages of this part


def _expected(n: int, d: int, signal_norm: float, step_size: float, label_noise: float):
    """Mean field with the expected counts of clean and flipped samples."""
    half = torch.full((1, 2), n / 2, dtype=torch.float64)
    return mean_field(SignalNoiseLaw(n, d, signal_norm), step_size, (1 - label_noise) * half, label_noise * half)


# --- 01 signal and noise --------------------------------------------------------------------------------------------


@exercise(
    "01-signal-and-noise/1", "The variance along $\\mu_1/\\rho$ of the misprinted covariance, for $\\rho = 30$.", 3
)
def misprinted_variance() -> float:
    signals = RHO * np.eye(2, 5)  # any d >= 3 will do
    covariance = np.eye(5) - sum(np.outer(mu, mu) for mu in signals) / RHO
    unit = signals[0] / RHO
    return float(unit @ covariance @ unit)


@exercise("01-signal-and-noise/2", "The $n$, not rounded to a whole number, at which the formula gives $10^{-6}$.", 2)
def samples_for_one_in_a_million() -> float:
    def excess(rho_squared_root_n: float) -> float:
        # n enters as n rho^4 / d only: one sample, with the signal norm scaled to stand for n of them.
        law = SignalNoiseLaw(1, D, RHO * rho_squared_root_n**0.25, ETA)
        return math.log10(averaging_error(law)) + 6

    return crossing(excess, 0.1, 100.0)


@exercise(
    "01-signal-and-noise/3",
    "The step size that gives, with normalised noise, the path of step size 0.025 at d = 40000.",
    2,
)
def normalised_step() -> float:
    law = SignalNoiseLaw(12, 400, 3.0, 0.1)
    sample = law.draw(0, 1)
    outputs = gradient_descent(sample, 0.1, 1).v[1]
    scaled = type(sample)(**{**vars(sample), "tokens": sample.tokens / 20.0, "signals": sample.signals / 20.0})
    small = gradient_descent(scaled, 0.1, 1).v[1]
    # v must be sqrt(d) larger for the same outputs; v after one step is linear in the step size.
    factor = float((outputs.norm() * 20.0 / small.norm()).item())
    return STEP * factor * D / law.d


# --- 02 two steps ---------------------------------------------------------------------------------------------------


@exercise("02-two-steps/1", "$\\kappa$ at signal norm 10, with the page's other parameters.", 3)
def kappa_at_ten() -> float:
    state = _expected(N, D, 10.0, STEP, ETA)
    return float(state.b[0, 0]) / state.a


@exercise("02-two-steps/2", "The smallest signal norm at which clean samples prefer their signal after one step.", 3)
def smallest_preferring_norm() -> float:
    return crossing(lambda rho: float(_expected(N, D, rho, STEP, ETA).preference_clean[0, 0]), 1.0, 100.0)


@exercise(
    "02-two-steps/3",
    "The mean attention of flipped samples on their signal after two steps at these values (`attention_noisy`).",
    2,
)
def attention_in_a_billion_dimensions() -> float:
    return float(summarise(SignalNoiseLaw(N, 10**9, 4743.4165, ETA), 1e-6).attention_noisy.mean())


@exercise("02-two-steps/4", "`log10_clean_error_mean` of the page with `label_noise` 0.", 3)
def exponent_without_flips() -> float:
    return float(summarise(SignalNoiseLaw(N, D, RHO, 0.0), STEP).log10_clean_error.mean())


# --- 03 rotations are free ------------------------------------------------------------------------------------------


@exercise("03-rotations-are-free/1", "How many entries of the trapezium are not zero for $n = 40$ and $d = 22$.", None)
def entries_of_the_trapezium() -> int:
    return int(np.count_nonzero(bartlett_rows(stream(0, "noise"), 40, 20)))


@exercise(
    "03-rotations-are-free/2",
    "All coordinates, the two of the signals included, for $n = 40$, large $d$ and such a start.",
    None,
)
def coordinates_with_a_start() -> int:
    return int(SignalNoiseLaw(40, 2000, 7.0, 0.1).draw(0, 1, start_vectors=2).tokens.shape[-1])


# --- 04 maximum margin ----------------------------------------------------------------------------------------------


@exercise(
    "04-max-margin/2", "The signal norm at the threshold without label noise, $n = 100$, $d = 40000$, equal classes.", 3
)
def margin_threshold_without_flips() -> float:
    return crossing(lambda rho: class_cost(50, 0, rho, 40000, 1, 1) - class_cost(50, 0, rho, 40000, 1, 0), 1.0, 1000.0)


@exercise("04-max-margin/3", "This ratio, $R/|p_{mm}|$.", 3)
def ratio_at_ninety_nine_per_cent() -> float:
    return crossing(lambda ratio: math.tanh(ratio / 2) - 0.99, 0.1, 100.0)


# --- 05 phase diagram -----------------------------------------------------------------------------------------------


@exercise("05-phase-diagram/2", "The SNR on that line at $n = 200$, $d = 40000$, $\\eta = 0.05$.", 3)
def snr_of_the_lower_limit() -> float:
    return lower_snr_limit(N, D, ETA)


@exercise("05-phase-diagram/4", "This $n$, not rounded to a whole number.", 3)
def samples_for_a_flipped_one() -> float:
    return crossing(lambda n: (1 - ETA / 2) ** n - 0.01, 1.0, 1000.0)


# --- 07 assumptions under stress ------------------------------------------------------------------------------------


@exercise(
    "07-assumptions-under-stress/1",
    "The $T$, not rounded, above which a flipped sample is fitted after one step at the page's parameters (expected counts).",
    3,
)
def tokens_for_one_step() -> float:
    state = _expected(N, D, RHO, STEP, ETA)
    return crossing(lambda tokens: (tokens - 1) * state.a - float(state.b[0, 0]), 1.0, 100.0)


@exercise("07-assumptions-under-stress/2", "The factor at $n\\,\\mathrm{SNR}^2 = 4.5$.", 3)
def isotropic_factor() -> float:
    # The averaging classifier on tokens without projection: |v|^2 over the part of it that is noise, with expected lengths.
    theta, snr_squared = 1.0, 4.5 / N
    noise, signal = N * theta**2 * D, 2 * (N * theta / 2) ** 2 * snr_squared * D
    return 1 + signal / noise


@exercise("07-assumptions-under-stress/4", "The class probability $\\pi$ of the larger class at which this happens.", 3)
def class_probability_of_weakness() -> float:
    strength = N * StressedLaw(N, D, RHO, ETA).snr ** 2 * (1 - 2 * ETA)
    return crossing(lambda share: (1 - share) * strength - 1, 0.5, 1.0)


# --- 08 how many dimensions -----------------------------------------------------------------------------------------


@exercise(
    "08-finite-dimension/1", "The dimension, over $n\\log(14n/\\delta)$, that the bounds certify at $n = 400$.", 2
)
def certified_dimension() -> float:
    law = SignalNoiseLaw(400, D, math.sqrt(4.5 * D / 400), ETA)
    return smallest_certified_dimension(law, 5 * 400 / D) / (400 * log_term(400, 0.01))


# --- 09 a public script ---------------------------------------------------------------------------------------------


@exercise("09-a-public-script/1", "This weight.", 2)
def attention_without_the_mean_score() -> float:
    field = _expected(N, D, RHO, STEP, ETA)
    shared = STEP * RHO**2 / (4 * N) * field.b * N / 2 * ((1 - ETA) * field.slope_clean - ETA * field.slope_noisy)
    return float(torch.sigmoid(shared - field.a**2 * field.slope_noisy)[0, 0])


# --- 10 two steps, bound by bound -----------------------------------------------------------------------------------


@exercise("10-bound-by-bound/1", "This dimension.", 3)
def dimension_of_the_crude_bound() -> float:
    pair = 1.1 * math.sqrt(2 * math.log(N**2 / 0.01))  # largest product of two noise tokens, over sqrt(d)
    return crossing(lambda d: N * pair / math.sqrt(d) - 1, 1.0, 1e12)


# --- 12 hard attention on fresh data ----------------------------------------------------------------------------------


@exercise("12-hard-attention/1", "The cost for $H = 4$, $j = 1$, $\\rho = 50$, $d = 40000$ and $|C_k| = 45$.", 3)
def cost_of_a_split() -> float:
    return class_cost(45, 0, 50.0, 40000, 4, 1)


# --- 13 where attention begins --------------------------------------------------------------------------------------


@exercise(
    "13-where-attention-begins/1",
    "The $d$ at which both terms of the width are equal, for $n = 200$ and $\\eta = 0.05$.",
    2,
)
def dimension_of_equal_terms() -> float:
    counts = preference_spread(N, 1e30, ETA) ** 2
    return 10 ** crossing(lambda log_d: preference_spread(N, 10**log_d, ETA) ** 2 / counts - 2, 2.0, 8.0)


# --- 14 the trap ---------------------------------------------------------------------------------------------------


@exercise("14-the-trap/1", "$x_1$ at $\\eta = 0.1$.", 3)
def first_move_threshold() -> float:
    return first_order_threshold(0.1)


@exercise("14-the-trap/3", "$x$ at signal norm 20, with the page's $n$, $d$ and $\\eta$ (expected counts).", 2)
def x_at_twenty() -> float:
    return crossing(lambda x: law_at(x, 100, 20000, ETA).signal_norm - 20.0, 1e-3, 10.0)


# --- 15 the error from both sides ------------------------------------------------------------------------------------


@exercise("15-error-from-both-sides/1", "This correlation, $\\varrho$ with its sign.", 2)
def correlation_of_five() -> float:
    return crossing(lambda rho: 5 * (1 + rho) - 2, -0.99, 0.99)
