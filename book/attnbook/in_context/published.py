"""What the authors' notebook prints, one run for each number of heads: circuits at the end, and losses of single batches."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

# Losses of single batches at these steps, (training, validation), by number of heads.
PUBLISHED_STEPS = np.arange(0, 500_001, 50_000)
PUBLISHED_LOSS = {
    1: ((3.93, 2.43, 1.49, 1.72, 1.46, 1.65, 1.19, 1.20, 1.66, 1.45, 1.27),
        (6.22, 1.10, 1.04, 1.28, 1.35, 1.49, 0.97, 1.85, 1.46, 1.18, 1.25)),
    2: ((4.72, 0.956, 0.752, 0.810, 0.631, 0.680, 0.432, 0.796, 0.644, 0.738, 0.902),
        (5.24, 0.766, 0.860, 0.775, 0.550, 0.547, 0.668, 0.923, 0.540, 0.673, 0.528)),
}  # fmt: skip


@dataclass(frozen=True)
class Published:
    """What the authors' notebook prints of one run."""

    omega: tuple[float, ...]
    mu: tuple[float, ...]
    off_diagonal: float  # largest over the heads
    output_rest: float  # largest over the heads

    @property
    def numbers(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(omega, mu) of the heads."""
        return self.omega, self.mu


PUBLISHED: Mapping[int, Published] = {
    1: Published((-0.5177,), (-1.5523,), 0.0122, 0.0330),
    2: Published((-0.1393, 0.1420), (-3.1719, 3.1868), 0.0060, 0.0447),
    4: Published((-0.1372, -0.1388, 0.1422, 0.1343), (-1.1908, -2.0372, 2.7210, 0.4412), 0.0239, 0.0351),
    8: Published(
        (-0.1396, 0.1393, -0.1417, 0.1296, -0.0013, -0.1396, -0.1350, 0.0092),
        (-0.7766, 2.9165, -1.2395, 0.2509, 0.0, -0.8720, -0.3324, -0.0010),
        0.132,
        0.0485,
    ),
}
