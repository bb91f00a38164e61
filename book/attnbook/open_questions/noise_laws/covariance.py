r"""Covariances of a noise vector, through a square root $A$, $AA^\top = \Sigma$, as two functions: $z \mapsto Az$, $v \mapsto A^\top v$.

Every one is positive definite or refused.
"""

import math
from dataclasses import dataclass

import numpy as np

from attnlib import checks


class Covariance:
    """The identity; subclasses are other covariances of d-vectors. Vectors are the last axis of an array."""

    isotropic: bool = True

    def check(self, d: int) -> None:
        """Raises ValueError unless this is a covariance in dimension d."""

    def times(self, z: np.ndarray) -> np.ndarray:
        """A z."""
        return z

    def adjoint(self, v: np.ndarray) -> np.ndarray:
        """A' v, so that v . (A z) = (A' v) . z and v' Sigma v = |A' v|^2."""
        return v

    def eigenvalues(self, d: int) -> np.ndarray:
        """(d,) eigenvalues of Sigma, in no particular order."""
        return np.ones(d)

    def traces(self, d: int) -> tuple[float, float]:
        """tr Sigma and tr Sigma^2."""
        values = self.eigenvalues(d)
        return float(values.sum()), float((values**2).sum())


@dataclass(frozen=True)
class AutoRegressive(Covariance):
    r"""AR(1): $\Sigma_{jk} = \varphi^{|j-k|}$, unit variance per entry.

    By the recursion $x_j = \varphi x_{j-1} + \sqrt{1-\varphi^2}\,z_j$, $x_1 = z_1$.
    """

    correlation: float
    isotropic = False

    def __post_init__(self) -> None:
        if not abs(checks.finite_number("correlation", self.correlation)) < 1:
            raise ValueError(
                f"correlation must be in (-1, 1); got {self.correlation!r}: beyond, the covariance is not positive definite"
            )

    def times(self, z):
        x, fresh = np.array(z, dtype=float), math.sqrt(1 - self.correlation**2)
        for j in range(1, x.shape[-1]):
            x[..., j] = self.correlation * x[..., j - 1] + fresh * z[..., j]
        return x

    def adjoint(self, v):
        x = np.array(v, dtype=float)
        for j in range(x.shape[-1] - 2, -1, -1):
            x[..., j] += self.correlation * x[..., j + 1]
        x[..., 1:] *= math.sqrt(1 - self.correlation**2)
        return x

    def eigenvalues(self, d):
        r"""The spectral density $(1-\varphi^2)/(1-2\varphi\cos\theta+\varphi^2)$ at d midpoints: sums over it err by O(1), not O(d)."""
        phi, theta = self.correlation, math.pi * (np.arange(d) + 0.5) / d
        return (1 - phi**2) / (1 - 2 * phi * np.cos(theta) + phi**2)

    def traces(self, d):
        lag = np.arange(1, d)
        return float(d), float(d + 2 * ((d - lag) * self.correlation ** (2.0 * lag)).sum())


@dataclass(frozen=True)
class Spiked(Covariance):
    r"""$\Sigma = I + s\,ww^\top$ with $w = (1,\dots,1)/\sqrt d$: one direction of variance $1+s$. $s > -1$."""

    strength: float
    isotropic = False

    def __post_init__(self) -> None:
        if not checks.finite_number("strength", self.strength) > -1:
            raise ValueError(f"strength must be > -1; got {self.strength!r}: the covariance is not positive definite")

    def along(self, v: np.ndarray) -> np.ndarray:
        """w . v."""
        return v.sum(-1) / math.sqrt(v.shape[-1])

    def times(self, z):
        return z + ((math.sqrt(1 + self.strength) - 1) * self.along(z) / math.sqrt(z.shape[-1]))[..., None]

    adjoint = times  # A is symmetric

    def eigenvalues(self, d):
        return np.concatenate([[1.0 + self.strength], np.ones(d - 1)])


@dataclass(frozen=True, eq=False)
class Diagonal(Covariance):
    """Independent entries of given variances: a spectrum, in axes that mean nothing to signals in random directions."""

    variances: np.ndarray  # (d,)
    isotropic = False

    def __post_init__(self) -> None:
        values = np.asarray(self.variances, dtype=float)
        if values.ndim != 1 or not np.isfinite(values).all() or not (values > 0).all():
            low = values.min() if values.size else math.nan
            raise ValueError(
                f"variances must be d finite numbers > 0; got shape {values.shape}, smallest {low:.3g}: "
                "the covariance must be positive definite"
            )
        object.__setattr__(self, "variances", values)

    def check(self, d):
        if len(self.variances) != d:
            raise ValueError(f"variances must hold d = {d} numbers; got {len(self.variances)}")

    def times(self, z):
        return np.sqrt(self.variances) * z

    adjoint = times

    def eigenvalues(self, d):
        self.check(d)
        return self.variances
