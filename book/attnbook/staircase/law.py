"""Regression prompts whose covariates have a spectrum, and rank-one heads with small random weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from attnlib import checks, limits
from attnlib.arrays import Floats
from attnlib.randomness import stream


@checks.checked
@dataclass(frozen=True)
class SpectrumLaw:
    r"""Prompts of linear regression with covariates $x\sim N(0,\Lambda)$, $\Lambda=\mathrm{diag}(\lambda_1,\dots,\lambda_D)$.

    $$ y_i = w\cdot x_i + \varepsilon_i, \qquad w\sim N(0,I_D), \qquad \varepsilon_i\sim N(0,\sigma^2), \qquad i=1,\dots,N. $$

    The query $x_q$ has the law of the covariates, and $w\cdot x_q$ is to be predicted. A covariance that is not diagonal is this law in
    other coordinates: the models of this package, and the law of their starts, commute with rotations.

    A spectrum that is empty, not decreasing (equal neighbours are allowed) or not above 0, a length below 1 and a noise below 0 raise
    ValueError.

    Source:
        authors' code (`data.py`: without label noise, eigenvalues in proportion to 1, 2, ..., D with sum 1); the noise is ours.

    Example:
        >>> law = SpectrumLaw((0.4, 0.3, 0.2, 0.1), length=31)
        >>> law.dimension, round(law.trace, 12)
        (4, 1.0)
    """

    spectrum: tuple[float, ...]  # lambda_1 >= ... >= lambda_D > 0
    length: int  # N, labelled examples of a prompt
    noise: float = 0.0  # sigma^2, variance of the labels' noise

    def __post_init__(self) -> None:
        if not isinstance(self.spectrum, Sequence) or not len(self.spectrum):
            raise ValueError(f"spectrum must be a sequence of one eigenvalue or more; got {self.spectrum!r}")
        values = tuple(checks.positive_number("each eigenvalue of spectrum", value) for value in self.spectrum)
        if any(later > earlier for earlier, later in pairwise(values)):
            raise ValueError(f"spectrum must not increase; got {self.spectrum!r}: sort it, largest first")
        object.__setattr__(self, "spectrum", values)
        checks.whole_number("length", self.length, at_least=1)
        if checks.finite_number("noise", self.noise) < 0:
            raise ValueError(f"noise must be a variance >= 0; got {self.noise!r}")

    @property
    def dimension(self) -> int:
        """D, the number of eigenvalues."""
        return len(self.spectrum)

    @property
    def trace(self) -> float:
        """The sum of the eigenvalues, which is the loss of a model that predicts 0."""
        return math.fsum(self.spectrum)

    def eigenvalues(self) -> Floats:
        """The spectrum as an array (D,)."""
        return np.array(self.spectrum)

    def second_moment(self) -> Floats:
        r"""$c_j=(1+\frac1N)\lambda_j^2+\frac{\mathrm{tr}\,\Lambda+\sigma^2}N\lambda_j$, (D,): second moments of $b=\frac1N\sum_iy_ix_i$."""
        values = self.eigenvalues()
        return np.asarray((1 + 1 / self.length) * values**2 + (self.trace + self.noise) / self.length * values)


@dataclass(frozen=True)
class Heads:
    r"""H rank-one heads for each of R runs: $\hat y=\sum_hv_h\,(k_h\cdot b)(q_h\cdot x_q)$ with $b=\frac1N\sum_iy_ix_i$.

    Shapes that do not fit together raise ValueError.

    Source:
        authors' code (`net.py`, separate key and query of rank one; entries that start at zero and stay there are left out).

    Example:
        >>> heads = small_heads(3, heads=2, dimension=4, size=0.02, runs=5)
        >>> heads.matrix().shape
        torch.Size([5, 4, 4])
    """

    value: torch.Tensor  # (R, H), v
    key: torch.Tensor  # (R, H, D), k
    query: torch.Tensor  # (R, H, D), q

    def __post_init__(self) -> None:
        checks.fitting(vars(self), self.value, value="R H", key="R H D", query="R H D")

    def matrix(self) -> torch.Tensor:
        r"""$A=\sum_hv_hk_hq_h^\top$, shape (R, D, D): a layer of linear heads depends on this alone."""
        return torch.einsum("rh,rhi,rhj->rij", self.value, self.key, self.query)

    def scaled(self, factor: float) -> Heads:
        """The same heads with all weights multiplied by `factor`."""
        factor = checks.finite_number("factor", factor)
        return Heads(self.value * factor, self.key * factor, self.query * factor)

    def arrays(self) -> tuple[Floats, Floats, Floats]:
        """Copies of v, k, q as numpy arrays."""
        return self.value.numpy().copy(), self.key.numpy().copy(), self.query.numpy().copy()

    @classmethod
    def of(cls, v: Floats, k: Floats, q: Floats) -> Heads:
        """From numpy arrays."""
        return cls(torch.as_tensor(v), torch.as_tensor(k), torch.as_tensor(q))


@checks.checked
def small_heads(seed: int, *, heads: int, dimension: int, size: float, runs: int) -> Heads:
    r"""Small random starts: all entries of $v$, $k$ and $q$ are independent $N(0,\epsilon^2)$.

    Args:
        seed: of the random streams, a whole number >= 0.
        heads: H >= 1.
        dimension: D >= 1.
        size: epsilon > 0, the standard deviation of an entry.
        runs: R >= 1.

    Returns:
        heads with arrays (R, H) and (R, H, D). The same seed with another size gives the same heads, scaled.

    Raises:
        ValueError: an argument out of its range.

    Source:
        this book; the authors' code has standard deviations of its own for values, keys and queries.

    Example:
        >>> small_heads(0, heads=5, dimension=4, size=0.01, runs=3).key.shape
        torch.Size([3, 5, 4])
    """
    checks.whole_number("heads", heads, at_least=1)
    checks.whole_number("dimension", dimension, at_least=1)
    checks.positive_number("size", size)
    checks.origin(seed, runs)
    limits.require_memory(
        lambda heads, dimension, runs: 32 * runs * heads * dimension, heads=heads, dimension=dimension, runs=runs
    )
    drawn = size * np.stack(
        [stream(seed, "start", run).standard_normal((heads, 1 + 2 * dimension)) for run in range(runs)]
    )
    return Heads.of(drawn[..., 0].copy(), drawn[..., 1 : dimension + 1].copy(), drawn[..., dimension + 1 :].copy())
