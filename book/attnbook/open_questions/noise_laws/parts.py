r"""Entries and scale of a noise vector $\xi = R\,\Sigma^{1/2} z$: the law of the $z_j$, and of one scale $R$ per token.

*Entries* $z_j$ are independent with mean 0 and variance 1. Several are scale mixtures, $z_j = \sqrt{w_j}\,g_j$ with $g_j$ normal and
$E w_j = 1$: given the $w_j$ every projection of such a vector is exactly Gaussian, which makes precise measurements cheap.
*Scale*: one factor $R$ per token, $E R^2 = 1$.
"""

import math
from dataclasses import dataclass

import numpy as np

from attnlib import checks

# --- entries ---------------------------------------------------------------------------------------------------------------


class Entries:
    """Independent standard normal entries; subclasses draw others. Mean 0 and variance 1 always."""

    excess_kurtosis: float = 0.0  # E z^4 - 3
    gaussian: bool = True

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Entries of the given shape."""
        return rng.standard_normal(shape)

    def mixing(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Variances w of a scale mixture. Raises ValueError for entries that are none."""
        return np.ones(shape)


@dataclass(frozen=True)
class Rademacher(Entries):
    """+1 or -1, each with probability one half."""

    excess_kurtosis = -2.0
    gaussian = False

    def draw(self, rng, shape):
        return 2.0 * rng.integers(0, 2, shape, dtype=np.int8) - 1.0

    def mixing(self, rng, shape):
        raise ValueError(f"entries must be a scale mixture of normals; got {self!r}: use Monte Carlo on vectors")


@dataclass(frozen=True)
class Uniform(Entries):
    """Uniform on (-sqrt 3, sqrt 3)."""

    excess_kurtosis = -1.2
    gaussian = False

    def draw(self, rng, shape):
        return math.sqrt(3) * (2 * rng.random(shape) - 1)

    def mixing(self, rng, shape):
        raise ValueError(f"entries must be a scale mixture of normals; got {self!r}: use Monte Carlo on vectors")


@dataclass(frozen=True)
class StudentT(Entries):
    """Student t with `freedom` > 2 degrees of freedom, divided by its standard deviation. w = (nu - 2) / chi^2_nu."""

    freedom: float
    gaussian = False

    def __post_init__(self) -> None:
        _more_than_two(self.freedom)

    @property
    def excess_kurtosis(self) -> float:
        return 6 / (self.freedom - 4) if self.freedom > 4 else math.inf

    def draw(self, rng, shape):
        return rng.standard_t(self.freedom, shape) * math.sqrt((self.freedom - 2) / self.freedom)

    def mixing(self, rng, shape):
        return (self.freedom - 2) / rng.chisquare(self.freedom, shape)


@dataclass(frozen=True)
class Sparse(Entries):
    """Bernoulli-Gaussian: zero but for a share q of the entries, which are N(0, 1/q)."""

    share: float
    gaussian = False

    def __post_init__(self) -> None:
        if checks.probability("share", self.share) == 0:
            raise ValueError("share must be in (0, 1]; got 0: there would be no noise")

    @property
    def excess_kurtosis(self) -> float:
        return 3 / self.share - 3

    def draw(self, rng, shape):
        entries = np.zeros(math.prod(shape))
        filled = np.flatnonzero(rng.random(entries.size) < self.share)
        entries[filled] = rng.standard_normal(filled.size) / math.sqrt(self.share)
        return entries.reshape(shape)

    def mixing(self, rng, shape):
        return (rng.random(shape) < self.share) / self.share


def _more_than_two(freedom: float) -> None:
    if not checks.finite_number("freedom", freedom) > 2:
        raise ValueError(f"freedom must be > 2; got {freedom!r}: Student t has no variance at 2 or below")


# --- scale of a token ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RadialT:
    r"""One scale per token, $R^2 = (\nu-2)/\chi^2_\nu$: with normal entries the token is a multivariate Student t, $E R^2 = 1$."""

    freedom: float

    def __post_init__(self) -> None:
        _more_than_two(self.freedom)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return np.sqrt((self.freedom - 2) / rng.chisquare(self.freedom, shape))

    @property
    def harmonic(self) -> float:
        r"""$E\,R^{-2} = \nu/(\nu-2)$."""
        return self.freedom / (self.freedom - 2)

    def nodes(self, spacing: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
        r"""Scales and weights with $E\,h(R) = \sum_k w_k h(R_k)$ for smooth h: the trapezoid rule in $x = \log \chi^2_\nu$.

        The density $\propto e^{\nu x/2 - e^x/2}$ is entire and falls off on both sides, so the rule converges exponentially.
        """
        checks.positive_number("spacing", spacing)
        half = self.freedom / 2
        x = np.arange(math.log(self.freedom) - 34 / half, math.log(self.freedom + 90), spacing)
        weight = spacing * np.exp(half * x - np.exp(x) / 2 - half * math.log(2) - math.lgamma(half))
        kept = weight > 1e-18
        return np.sqrt((self.freedom - 2) * np.exp(-x[kept])), weight[kept]
