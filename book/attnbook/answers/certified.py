"""Answers of Part VIII."""

import math

from attnbook.answers import exercise
from attnbook.certified.boundary import BRACKETS
from attnbook.certified.constants import first_move
from attnbook.certified.risk import Regression, debiased_risk

PER_X = 40_000 / 80  # rho^2 over x, of a class with 80 clean samples in 40 000 dimensions


@exercise("01-certified/1", "This fraction.", 2)
def first_term_left_out() -> float:
    return math.prod(range(1, 80, 2)) / 12.0**80


@exercise("02-winning-selection/1", "The lower bound.", 3)
def lower_bound() -> float:
    (a, b), weights = (3.0, 4.0), (2.0, 1.0)
    return sum(weights) ** 2 / ((weights[0] * a) ** 2 + (weights[1] * b) ** 2)


@exercise("03-best-scale/1", "The least risk of a debiased step.", 3)
def debiased() -> float:
    return float(debiased_risk(Regression(4, 2, "0")))


@exercise("04-printed-constants/1", r"$x_1$.", 3)
def first_move_at_thirty_per_cent() -> float:
    return float(first_move("0.3").mid())


@exercise("05-boundary/1", r"The norm $\rho$.", 4)
def norm_at_the_boundary() -> float:
    return math.sqrt(float(BRACKETS["0.2"][0]) * PER_X)


@exercise("06-whole-ranges/1", r"This norm $\rho$.", 4)
def norm_of_the_first_move() -> float:
    return math.sqrt(float(first_move("0.2").mid()) * PER_X)
