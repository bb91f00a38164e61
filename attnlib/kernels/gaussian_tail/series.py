r"""Constants of the fast forms: a series for the scaled complementary error function, and the panels of the quadrature.

$$ e^{z^2} \mathrm{erfc}(z) = \frac{\sum_j a_j y^j}{1 + 2z}, \qquad y = \frac{z - b}{z + b} \in [-1, 1), \qquad z \ge 0, $$

the form of Shepherd and Laframboise (Math. Comp. 36, 1981) with their b = 15/4. Fitted at import: the projection of torch's
erfcx on Chebyshev polynomials, over so many nodes that the rounding of single values averages out. Relative error 2e-15.
"""

from __future__ import annotations

import numpy as np
import torch

from attnlib.quadrature import lobatto

__all__ = [
    "CENTRE",
    "ERFCX",
    "FIRST_LENGTH",
    "LONGER",
    "LONGEST",
    "NODES",
    "OUT_OF_SIGHT",
    "PANEL",
    "PANELS",
    "SHORTER",
    "TAILS",
    "TOLERANCE",
    "WEIGHTS",
]

CENTRE = 3.75
_DEGREE = 22  # the next coefficients are below 1e-16
_FIT_NODES = 400

PANEL = 16  # Gauss-Lobatto nodes of a panel: both ends are among them, so that a wall just inside an end is seen
# A panel is fine when the integrand's last two Legendre coefficients there, times its length, are below this share of the integral:
# what a polynomial of degree 15 misses, while the rule is exact to degree 29.
TOLERANCE = 1e-11
# A smooth function's last coefficients change as the panel's length to the power 14 or more; the next length aims at the tolerance.
SHORTER, LONGER = (
    (0.1, 0.7),
    (0.7, 4.0),
)  # factors for a panel that is refused, and for the one after a panel that is fine
FIRST_LENGTH = 1.0  # of the first panel, in units of 1/sqrt(-h'') at the mode
OUT_OF_SIGHT = 1e-16  # where a log-concave integrand has fallen to this share of its peak, less than that remains
LONGEST = 9.0  # exp(-9^2/2) < 1e-16: at this distance from the mode the normal density alone has fallen by so much
PANELS = (
    1000  # after so many everything is taken as it is: a bound on the work, never reached by numbers that are resolved
)


def _erfcx_series() -> tuple[float, ...]:
    angle = np.pi * (np.arange(_FIT_NODES) + 0.5) / _FIT_NODES
    y = np.cos(angle)
    z = CENTRE * (1 + y) / (1 - y)
    values = torch.special.erfcx(torch.from_numpy(z)).numpy() * (1 + 2 * z)
    chebyshev = 2 / _FIT_NODES * np.cos(np.outer(np.arange(_DEGREE + 1), angle)) @ values
    chebyshev[0] /= 2
    return tuple(np.polynomial.chebyshev.cheb2poly(chebyshev).tolist())


ERFCX = _erfcx_series()
NODES, WEIGHTS, TAILS = lobatto(PANEL)
