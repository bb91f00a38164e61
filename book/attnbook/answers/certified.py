"""Answers of Part VIII."""

import math

from attnbook.answers import exercise


@exercise("01-certified/1", "This fraction.", 2)
def first_term_left_out() -> float:
    return math.prod(range(1, 80, 2)) / 12.0**80
