"""The data law of certified numbers: two tokens whose scores differ by a random gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from attnlib import checks
from attnlib.randomness import stream

__all__ = ["GapLaw"]


@dataclass(frozen=True)
class GapLaw:
    r"""Two tokens: the score of the first exceeds that of the second by a gap $g$, which is uniform on $[0,a]$.

    $$ z = (g, 0), \qquad g \sim U[0, a]. $$

    An $a$ that is not a finite number above 0 raises ValueError.

    Source:
        this book.

    Example:
        >>> GapLaw(largest_gap=4.0).draw(seed=0, runs=3, samples=5).shape
        torch.Size([3, 5, 2])
    """

    largest_gap: float  # a > 0

    def __post_init__(self) -> None:
        checks.positive_number("largest_gap", self.largest_gap)

    def draw(self, seed: int, *, runs: int, samples: int) -> torch.Tensor:
        """Scores of R independent sets of n samples, (R, n, 2) in float64. Sizes below 1 raise ValueError."""
        checks.whole_number("runs", runs, at_least=1)
        checks.whole_number("samples", samples, at_least=1)
        gaps = np.stack([stream(seed, "test", run).uniform(0, self.largest_gap, samples) for run in range(runs)])
        return torch.as_tensor(np.stack([gaps, np.zeros_like(gaps)], axis=-1))
