"""Answers of Part VI."""

import numpy as np

from attnbook.answers import exercise
from attnbook.staircase import SpectrumLaw, plateau_levels


@exercise("01-staircase/1", "The height of the first plateau for these eigenvalues and $N=10$.", 3)
def first_plateau() -> float:
    return float(plateau_levels(SpectrumLaw((2 / 3, 1 / 3), 10))[1])


@exercise("01-staircase/2", "The time at which half of the step is done, from $u=0.02$.", 3)
def half_a_step() -> float:
    law = SpectrumLaw((0.4, 0.3, 0.2, 0.1), 31)
    last = law.spectrum[0] / law.second_moment()[0]
    end = (last * (1 - 0.5**0.5)) ** (1 / 3)
    # With z = 1/u the time is the integral of 1 / (1 - 1/(last z^3)) over z, divided by the square of the eigenvalue.
    points, weights = np.polynomial.legendre.leggauss(400)
    z = 1 / end + (1 / 0.02 - 1 / end) * (points + 1) / 2
    return float((weights / (1 - 1 / (last * z**3))).sum() * (1 / 0.02 - 1 / end) / 2 / law.spectrum[0] ** 2)


@exercise(
    "01-staircase/3", "By what factor the plateau before the last drop is longer than that before the first, $D=8$.", 2
)
def last_over_first() -> float:
    return (8 / 1) ** 2
