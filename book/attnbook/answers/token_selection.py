"""Answers of Part II."""

import math

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from attnbook.answers import crossing, exercise
from attnbook.token_selection.dynamics.study import growth
from attnbook.token_selection.theory import (
    delay_exponent,
    existence_window,
    first_half_constant,
    loss_floor,
    uniform_attention_accuracy,
)
from attnlib.token_selection.law import TokenLaw

TOKENS = 8  # on every page of this part


def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


@exercise("01-setting/2", "The accuracy before training at signal norm 2, with the page's other parameters.", 3)
def accuracy_before_training() -> float:
    return uniform_attention_accuracy(TokenLaw(20, 2000, TOKENS, 2.0))


@exercise("02-dynamics/4", "The probability that no attention whatever fits a flipped sample, at $|\\mu| = 5$.", 2)
def nothing_to_attend_to() -> float:
    law = TokenLaw(20, 2000, TOKENS, 5.0)
    # Values for the observed label of a flipped sample: minus the relevant, plus the confusing, minus the weak token of its class.
    means = law.signal_norm / math.sqrt(2) * np.array([-1.0, law.weak_signal, -law.weak_signal] + [0.0] * (TOKENS - 3))
    return math.prod(_normal_cdf(-mean / law.noise_std) for mean in means)


@exercise(
    "02-dynamics/5",
    "The time at which half of the attention is on the relevant token, $T = 8$, in units of $1/\\lambda$.",
    3,
)
def half_time() -> float:
    return float(growth(math.log(TOKENS - 1), TOKENS) - growth(0.0, TOKENS))


@exercise(
    "03-time-laws/3",
    "That multiple of the theorem's unit, $T = 8$ and $\\eta = 0.2$, as $\\rho$ and $h$ tend to zero.",
    3,
)
def half_time_of_strong_signals() -> float:
    return first_half_constant(TokenLaw(20, 1000, TOKENS, 100.0, weak_signal=0.0, head_scale=1e-6))


@exercise("08-the-delay/1", "That label noise for eight tokens, in the limit $\\rho \\to 0$.", 3)
def noise_that_doubles_the_exponent() -> float:
    def exponent(label_noise: float) -> float:
        law = TokenLaw(20, 1000, TOKENS, 20.0, weak_signal=0.0, label_noise=label_noise, balanced=False)
        return delay_exponent(law)

    return crossing(lambda eta: exponent(eta) - 2 * exponent(0.0), 0.1, 0.6)


@exercise("04-heat-map/1", "The number of the two that changes, after $\\rho$ is doubled to 0.2.", 3)
def floor_with_stronger_weak_tokens() -> float:
    law = TokenLaw(20, 2000, TOKENS, 20.0, weak_signal=0.2)
    confusing = math.log1p(math.exp(-law.weak_signal * law.head_scale / math.sqrt(2)))
    return (1 - law.label_noise) * loss_floor(law) + law.label_noise * confusing


@exercise("04-heat-map/4", "The loss of uniform attention on fresh data at $|\\mu| = 4$.", 3)
def loss_of_uniform_attention() -> float:
    law = TokenLaw(20, 8000, TOKENS, 4.0)
    mean = law.head_scale / math.sqrt(2) / TOKENS
    spread = law.head_norm * law.noise_std / math.sqrt(TOKENS)
    nodes, weights = hermegauss(60)
    return float((weights * np.logaddexp(0, -(mean + spread * nodes))).sum() / weights.sum())


@exercise("05-existence/1", "The $d/n$ above which the window is open, for $\\rho = 0.2$ and eight tokens.", 3)
def smallest_ratio() -> float:
    def width(signal_norm: float) -> float:
        # In a law with n = d the ratio of the two ends is that at d/n = 1; it grows as the root of d/n.
        low, high = existence_window(TokenLaw(1000, 1000, TOKENS, signal_norm, weak_signal=0.2))
        return high / low

    return 1 / width(20.0) ** 2


@exercise("05-existence/2", "The fraction of flipped samples that are fitted with all attention on that token.", 3)
def confusing_value_is_right() -> float:
    law = TokenLaw(100, 10000, TOKENS, 20.0, weak_signal=0.02)
    value = law.weak_signal * law.signal_norm * law.head_norm / math.sqrt(2)
    return _normal_cdf(value / (law.noise_std * law.head_norm))


@exercise("05-existence/3", "The upper end of the window, $c_{\\mathrm{high}}$, at $d = 300$.", 3)
def upper_end_of_the_window() -> float:
    return existence_window(TokenLaw(100, 300, TOKENS, 20.0, weak_signal=0.2))[1]


@exercise(
    "09-a-fair-trial/1",
    "The standard deviation, over draws of 126 test pictures, of the accuracy of a network that is right with probability 0.79.",
    2,
)
def error_of_a_small_test_set() -> float:
    right = np.array([1.0])  # the law of the number of right answers, picture by picture
    for _ in range(126):
        right = np.convolve(right, [0.21, 0.79])
    accuracy = np.arange(127) / 126
    return float(np.sqrt(right @ (accuracy - right @ accuracy) ** 2))


@exercise(
    "09-a-fair-trial/2",
    "The fraction of copying of the published numbers for BreastMNIST at $n = 200$: 78.4 % without flips, 76.3 % at $\\eta = 0.2$.",
    3,
)
def published_fraction_of_two_classes() -> float:
    clean, noisy, eta = 0.784, 0.763, 0.2
    copied = (1 - eta) * clean + eta * (1 - clean)  # with two classes a wrong answer that is replaced becomes right
    return (clean - noisy) / (clean - copied)
