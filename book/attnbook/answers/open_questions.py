"""Answers of Part IV."""

import math

import numpy as np

from attnbook.answers import crossing, exercise
from attnbook.open_questions.margin_and_descent.margin import class_cost
from attnbook.open_questions.more_classes_and_layers.class_flow import first_order_class_threshold
from attnbook.open_questions.noise import Spiked
from attnbook.open_questions.optimisers.signs import axis_error, mean_square_one_norm
from attnbook.open_questions.second_layer.layers import ARCHITECTURES, noise_phase_error
from attnbook.single_head.long_run import law_at
from attnlib.single_head.maps import ENTMAX15, softmax


@exercise("01-many-heads/1", "This $x$.", 3)
def x_of_a_head_that_stays_at_one_half() -> float:
    # V and t_c from the two conditions, labels fitted: t_n = 2 V + t_c in V = x (t_c - nu t_n), t_c = 1.
    nu = 0.1 / 0.9
    return crossing(lambda x: float(np.linalg.solve([[1, x * nu], [-2, 1]], [x, 1])[0]) - 1, 1.0, 10.0)


@exercise("02-optimisers/1", "This mean for $d = 5000$.", 3)
def square_of_the_one_norm() -> float:
    return mean_square_one_norm(5000)


@exercise("02-optimisers/2", "This $\\rho$ for $d = 5000$.", 3)
def norm_for_one_in_a_thousand() -> float:
    return crossing(lambda rho: axis_error(rho, 5000) + 3, 1.0, 1e4)


@exercise("03-attention-maps/1", "This temperature.", 3)
def temperature_of_entmax() -> float:
    return crossing(lambda temperature: softmax(temperature).slope(2) - ENTMAX15.slope(2), 0.1, 10.0)


@exercise("04-noise-laws/1", "The factor by which it should shrink.", 2)
def shrinking_gap() -> float:
    excess = 1 / 0.01 * 3 - 3  # E z^4 - 3 of a normal that is there with probability 1 %, at unit variance

    def gap(n: int, d: int) -> float:
        return (3 + excess / n) / d

    return gap(100, 2000) / gap(400, 8000)


@exercise("10-noise-in-the-long-run/1", "The threshold $\\rho^2|C_k|/d$ for $\\nu = 5$.", 2)
def harmonic_threshold() -> float:
    # R^2 = (nu - 2) / chi^2_nu has mean one; noise tokens enter by the mean of 1 / R^2 = E chi^2_nu / (nu - 2).
    nu = 5
    grid = np.linspace(1e-6, 200, 400_001)
    density = grid ** (nu / 2 - 1) * np.exp(-grid / 2)
    mean_chi_square = float((grid * density).sum() / density.sum())
    return 1 / (mean_chi_square / (nu - 2))


@exercise("10-noise-in-the-long-run/2", "$D$ in this limit for $d = 2000$ and $n = 100$.", 3)
def effective_dimension_with_a_spike() -> float:
    n, d = 100, 2000
    spectrum = Spiked(1e12).eigenvalues(d)
    return crossing(lambda D: float((spectrum / (1 + n * spectrum / D)).sum()) - D, 10.0, 10.0 * d)


@exercise("05-more-classes-and-layers/1", "$x_1$ for three classes and $\\eta = 0.2$.", 3)
def first_move_threshold_of_three_classes() -> float:
    return first_order_class_threshold(0.2, 3)


@exercise("05-more-classes-and-layers/2", "The bound on $\\eta$ for eight classes.", 3)
def largest_noise_of_eight_classes() -> float:
    return crossing(lambda eta: (1 - eta) - eta / 7, 0.0, 1.0)


@exercise("09-thresholds/2", "$V$ at $P = 3$ for $\\phi(z) = e^z$.", 3)
def value_on_the_curve_of_the_exponential() -> float:
    points, weights = np.polynomial.legendre.leggauss(40)
    return math.sqrt(2 * float((weights * np.ones_like(points)).sum() * 1.5))


@exercise(
    "09-thresholds/3",
    "The signal norm at that threshold, $n = 100$, $d = 20000$, $\\eta = 0.05$, equal classes and expected counts.",
    3,
)
def threshold_of_linear_attention() -> float:
    clean, flipped, d = 47.5, 2.5, 20000

    def slope(rho: float) -> float:
        def cost(m: float) -> float:
            return m / rho**2 + (clean * (1 - m) + flipped * (1 + m)) / d

        return cost(1.0) - cost(0.0)

    return crossing(slope, 1.0, 1000.0)


@exercise("11-second-layer/1", "This dimension.", 3)
def dimension_of_a_small_noise_phase() -> float:
    def error(d: float) -> float:
        return noise_phase_error(ARCHITECTURES["residual"], 60, int(d), math.sqrt(int(d) / 60), 0.1)

    return crossing(lambda d: error(d) - 0.01, 1e3, 1e7)


@exercise("06-random-starts/2", "$x$ at this signal norm (expected counts).", 3)
def x_at_twenty_one() -> float:
    return crossing(lambda x: law_at(x, 80, 16000, 0.05).signal_norm - 21.0, 1e-3, 10.0)


@exercise("07-margin-and-descent/1", "This cost of the two heads.", 3)
def cost_of_two_heads() -> float:
    return class_cost(38, 0, 32.0, 16000, 2, 1)


@exercise("08-out-of-the-trap/1", "$V$ at $P = 2$ for softmax attention over two tokens.", 3)
def value_on_the_curve() -> float:
    # dV/dP = 1 / ((1 - s) V): the square of V is twice an integral.
    points, weights = np.polynomial.legendre.leggauss(40)
    return math.sqrt(2 * float((weights * (1 + np.exp(points + 1))).sum()))
