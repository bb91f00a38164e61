"""Answers of Part V."""

from attnbook.answers import crossing, exercise
from attnbook.finite_data.limits import limit_error, many_prompts_error, pattern_error, ridge_error


@exercise("01-finite-data/1", "This $\\tau$.", 3)
def prompts_for_an_error() -> float:
    return crossing(lambda tau: limit_error(tau, 1.0, 2.0, 0.1) - 0.8, 1.1, 100.0)


@exercise("01-finite-data/2", "This error.", 2)
def error_of_few_tasks() -> float:
    return round(many_prompts_error(1e9, 0.25, 0.2), 6)


@exercise("01-finite-data/3", "This gap.", 3)
def gap_to_ridge() -> float:
    return pattern_error(2.0, 0.1) - ridge_error(2.0, 0.1)
