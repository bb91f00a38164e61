"""The data law of one token matters, reduced to two numbers per token."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnlib import checks, limits
from attnlib.randomness import stream


@dataclass(frozen=True)
class Sample:
    r"""Samples of `OneTokenLaw`: R independent sets of n samples with L tokens each.

    $$ \chi_i = k^*\!\cdot x_i, \qquad \tau_i = v^*\!\cdot x_i, \qquad y = \tau_\varepsilon . $$

    Source:
        this book.

    Example:
        >>> sample = OneTokenLaw(tokens=2, strength=6.0).draw(seed=0, runs=1, samples=3)
        >>> torch.equal(sample.labels, sample.target)  # no flips
        True
    """

    scores: torch.Tensor  # (R, n, L), the tokens' components along k*
    values: torch.Tensor  # (R, n, L), the tokens' components along v*
    target: torch.Tensor  # (R, n), the value of the hidden token
    labels: torch.Tensor  # (R, n), the target, with the wrong sign where the label is flipped


@checks.checked
@dataclass(frozen=True)
class OneTokenLaw:
    r"""Single-location regression: one token of L, at an unknown position, carries the label.

    $$ x_i = \sqrt\nu\,1[i=\varepsilon]\,k^* + z_i, \qquad y = v^*\!\cdot x_\varepsilon, \qquad z_i\sim N(0,I_d), \qquad k^*\perp v^*. $$

    The position $\varepsilon$ is uniform, and $k^*$, $v^*$ are unit vectors. Only the scores $\chi_i=k^*\!\cdot x_i$ and the values
    $\tau_i=v^*\!\cdot x_i$ matter for heads along $k^*$ and $v^*$, so the law draws these two numbers. With `label_noise` $\eta$ the
    label has the wrong sign with probability $\eta$. Fewer than two tokens, a strength that is not a finite
    number above 0, or an $\eta$ outside $[0,\frac12]$ raise ValueError.

    Source:
        the setting is that of two papers, by their abstracts and by the authors' code of the older one; flipped labels are ours.

    Example:
        >>> OneTokenLaw(tokens=8, strength=6.0).draw(seed=0, runs=3, samples=5).scores.shape
        torch.Size([3, 5, 8])
    """

    tokens: int  # L >= 2
    strength: float  # nu > 0
    label_noise: float = 0.0  # eta in [0, 1/2]

    def __post_init__(self) -> None:
        checks.whole_number("tokens", self.tokens, at_least=2, at_most=math.inf)
        checks.positive_number("strength", self.strength)
        checks.probability("label_noise", self.label_noise, high=0.5)

    def draw(self, seed: int, *, runs: int, samples: int) -> Sample:
        """R independent sets of n samples in float64. Sizes below 1 raise ValueError."""
        checks.origin(seed, runs)
        checks.whole_number("samples", samples, at_least=1)
        limits.require_memory(
            lambda samples, runs, tokens: 32 * samples * runs * tokens, samples=samples, runs=runs, tokens=self.tokens
        )
        shape = (2, samples, self.tokens)
        normal = np.stack([stream(seed, "test", run).standard_normal(shape) for run in range(runs)], axis=1)
        where = np.stack([stream(seed, "positions", run).integers(self.tokens, size=samples) for run in range(runs)])
        chance = np.stack([stream(seed, "test flips", run).random(samples) for run in range(runs)])
        scores, values = torch.as_tensor(normal)
        hidden = torch.as_tensor(where)[..., None]
        shift = torch.full(hidden.shape, math.sqrt(self.strength), dtype=scores.dtype)
        target = values.gather(-1, hidden)[..., 0]
        signs = torch.where(torch.as_tensor(chance) < self.label_noise, -1.0, 1.0)
        return Sample(scores.scatter_add(-1, hidden, shift), values, target, signs * target)
