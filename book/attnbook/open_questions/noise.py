r"""The single head's data law with noise that is not white and Gaussian, and its exact error where there is one.

$$ \xi = \Pi\,R\,\Sigma^{1/2} z, $$

$z$ independent entries of unit variance (Gaussian, Rademacher, uniform, Student t, sparse), $R$ one scale per token, $\Sigma$ any
positive definite matrix, $\Pi$ the projection off the signals (or the identity). Signals point in random directions, flips and classes are
those of `SignalNoiseLaw`. With the defaults the draws are that law's own, number by number.

**Error.** Trained parameters see a fresh vector through two numbers, $v\cdot\xi$ and $p\cdot\xi$. For Gaussian $z$ and given $R$ they are a
Gaussian pair with covariances $R^2 S$, $S_{vv} = \Pi v\cdot\Sigma\,\Pi v$ and so on, hence

$$ \mathrm{err} = E_R\!\left[\mathrm{err}(R^2 S)\right], $$

the book's one-dimensional integral averaged over the scale. Source: derived. For other entries the same formula is an approximation, whose
truth page `04_noise_laws` measures.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from attnlib.randomness import stream
from attnlib.single_head.errors import FreshScores, log10_error_of_scores
from attnlib.single_head.law import SignalNoiseLaw

# --- entries ---------------------------------------------------------------------------------------------------------------


class Entries:
    r"""Independent standard normal entries; subclasses draw others. Mean 0 and variance 1 always.

    Several are scale mixtures, $z_j = \sqrt{w_j}\,g_j$ with $g_j$ normal and $E w_j = 1$ (`mixing` draws the $w_j$): given the $w_j$ every
    projection of such a vector is exactly Gaussian, which makes precise measurements cheap.
    """

    excess_kurtosis = 0.0  # E z^4 - 3
    gaussian = True

    def draw(self, rng, shape):
        """Entries of the given shape."""
        return rng.standard_normal(shape)


@dataclass(frozen=True)
class Rademacher(Entries):
    """+1 or -1, each with probability one half."""

    excess_kurtosis = -2.0
    gaussian = False

    def draw(self, rng, shape):
        return 2.0 * rng.integers(0, 2, shape, dtype=np.int8) - 1.0


@dataclass(frozen=True)
class Uniform(Entries):
    """Uniform on (-sqrt 3, sqrt 3)."""

    excess_kurtosis = -1.2
    gaussian = False

    def draw(self, rng, shape):
        return math.sqrt(3) * (2 * rng.random(shape) - 1)


@dataclass(frozen=True)
class StudentT(Entries):
    """Student t with `freedom` > 2 degrees of freedom, divided by its standard deviation. w = (nu - 2) / chi^2_nu."""

    freedom: float
    gaussian = False

    @property
    def excess_kurtosis(self):
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

    @property
    def excess_kurtosis(self):
        return 3 / self.share - 3

    def draw(self, rng, shape):
        entries = np.zeros(math.prod(shape))
        filled = np.flatnonzero(rng.random(entries.size) < self.share)
        entries[filled] = rng.standard_normal(filled.size) / math.sqrt(self.share)
        return entries.reshape(shape)

    def mixing(self, rng, shape):
        return (rng.random(shape) < self.share) / self.share


# --- scale of a token ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RadialT:
    r"""One scale per token, $R^2 = (\nu-2)/\chi^2_\nu$: with normal entries the token is a multivariate Student t, $E R^2 = 1$."""

    freedom: float  # > 2

    def draw(self, rng, shape):
        return np.sqrt((self.freedom - 2) / rng.chisquare(self.freedom, shape))

    @property
    def harmonic(self):
        r"""$E\,R^{-2} = \nu/(\nu-2)$."""
        return self.freedom / (self.freedom - 2)

    def nodes(self, spacing=0.2):
        r"""Scales and weights with $E\,h(R) = \sum_k w_k h(R_k)$ for smooth h: the trapezoid rule in $x = \log \chi^2_\nu$.

        The density $\propto e^{\nu x/2 - e^x/2}$ is entire and falls off on both sides, so the rule converges exponentially.
        """
        half = self.freedom / 2
        x = np.arange(math.log(self.freedom) - 34 / half, math.log(self.freedom + 90), spacing)
        weight = spacing * np.exp(half * x - np.exp(x) / 2 - half * math.log(2) - math.lgamma(half))
        kept = weight > 1e-18
        return np.sqrt((self.freedom - 2) * np.exp(-x[kept])), weight[kept]


# --- covariance ------------------------------------------------------------------------------------------------------------


class Covariance:
    """The identity; subclasses are other covariances of d-vectors, through a square root A, A A' = Sigma. Vectors: an array's last axis."""

    isotropic = True

    def times(self, z):
        """A z."""
        return z

    def adjoint(self, v):
        """A' v, so that v . (A z) = (A' v) . z and v' Sigma v = |A' v|^2."""
        return v

    def eigenvalues(self, d):
        """(d,) eigenvalues of Sigma, in no particular order."""
        return np.ones(d)

    def traces(self, d):
        """tr Sigma and tr Sigma^2."""
        values = self.eigenvalues(d)
        return float(values.sum()), float((values**2).sum())


@dataclass(frozen=True)
class AutoRegressive(Covariance):
    r"""AR(1): $\Sigma_{jk} = \varphi^{|j-k|}$, unit variance per entry, $|\varphi| < 1$.

    By the recursion $x_j = \varphi x_{j-1} + \sqrt{1-\varphi^2}\,z_j$, $x_1 = z_1$.
    """

    correlation: float
    isotropic = False

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

    def along(self, v):
        """w . v."""
        return v.sum(-1) / math.sqrt(v.shape[-1])

    def times(self, z):
        return z + ((math.sqrt(1 + self.strength) - 1) * self.along(z) / math.sqrt(z.shape[-1]))[..., None]

    adjoint = times  # A is symmetric

    def eigenvalues(self, d):
        return np.concatenate([[1.0 + self.strength], np.ones(d - 1)])


@dataclass(frozen=True, eq=False)
class Diagonal(Covariance):
    """Independent entries of given variances > 0: a spectrum, in axes that mean nothing to signals in random directions."""

    variances: np.ndarray  # (d,)
    isotropic = False

    def times(self, z):
        return np.sqrt(self.variances) * z

    adjoint = times

    def eigenvalues(self, d):
        return self.variances


def two_level(d, trace, trace_square):
    r"""Eigenvalues $\lambda$ on a share f of the axes and 1/100 on the others, with the given traces divided by d."""
    low = 0.01
    # f lambda + (1-f) low = t and f lambda^2 + (1-f) low^2 = q  =>  f (lambda - low) = t - low, lambda + low = (q - low^2)/(t - low).
    high = (trace_square - low**2) / (trace - low) - low
    count = round((trace - low) / (high - low) * d)
    return Diagonal(np.r_[np.full(count, high), np.full(d - count, low)])


# --- the law ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoiseLaw(SignalNoiseLaw):
    """A `SignalNoiseLaw` with noise of another law.

    `draw(..., coordinates="reduced")` is exact for `rotation_invariant` laws; every other law has no reduced form and needs
    `coordinates="dense"`. `population.log10_clean_error` takes any sample's noise for white and Gaussian; the error of these laws is
    `log10_error`.
    """

    entries: Entries = field(default_factory=Entries)
    scale: RadialT | None = None
    covariance: Covariance = field(default_factory=Covariance)
    noise_avoids_signals: bool = True

    @property
    def rotation_invariant(self):
        """Whether turned noise has the same law: Gaussian entries with Sigma = I, with or without a scale per token."""
        return self.entries.gaussian and self.covariance.isotropic

    def _scales(self, rng, shape):
        """Scales R from a stream beside `rng`'s: laws that differ in the scale only share their directions."""
        if self.scale is None:
            return np.ones(shape)
        return self.scale.draw(np.random.Generator(rng.bit_generator.jumped()), shape)

    def _noise_vectors(self, rng, shape):
        """Noise of shape `shape` + (d,), before the projection off the signals."""
        scales = self._scales(rng, shape)
        vectors = self.covariance.times(self.entries.draw(rng, (*shape, self.d)))
        vectors *= (self.noise_std * scales)[..., None]
        return vectors

    def _draw_reduced(self, seed, run, start_vectors):
        drawn = super()._draw_reduced(seed, run, start_vectors)
        drawn[0][:, 1:] *= self._scales(stream(seed, "noise", run), (self.n, self.tokens - 1))[..., None]
        return drawn

    def fresh_block(self, one, count, rng):
        """`count` fresh points of this law, whole vectors: tokens (1, count, T, m) and true labels (1, count)."""
        like = one.tokens
        classes = torch.as_tensor(self._classes(rng, count), device=like.device)
        shape = (count, self.tokens - 1)
        if self.rotation_invariant:
            scales = self._scales(rng, shape)
            noise = (self.noise_std * scales)[..., None] * rng.standard_normal((*shape, like.shape[-1]))
        else:
            noise = self._noise_vectors(rng, shape)
        noise = torch.as_tensor(noise, dtype=like.dtype, device=like.device)
        units = one.avoided[0]
        noise = noise - (noise @ units.mT) @ units
        tokens = torch.cat([one.signals[0][classes].unsqueeze(1), noise], dim=1)
        return tokens.unsqueeze(0), 1.0 - 2.0 * classes.to(like.dtype).unsqueeze(0)


def strength_to_norm(strength, n, d):
    """The signal norm at which n SNR^2 has the given value."""
    return math.sqrt(strength * d / n)


# --- its error -------------------------------------------------------------------------------------------------------------


def seen_by_noise(vectors, sample):
    r"""$A^\top\Pi x$, (R, m), for parameters x (R, m): what multiplies the entries z of a fresh vector with scale 1."""
    units, law = sample.avoided, sample.law
    inside = torch.einsum("rkm,rm->rk", units, vectors)
    outside = vectors - torch.einsum("rk,rkm->rm", inside, units)
    if not law.covariance.isotropic:
        outside = torch.as_tensor(law.covariance.adjoint(outside.numpy()), dtype=vectors.dtype)
    return law.noise_std * outside


def scores_at_scale_one(v, p, sample):
    """As `population.scores_of_fresh_data`, with the law's own covariance and R = 1."""
    v_signal, p_signal = (torch.einsum("rkm,rm->rk", sample.signals, x) for x in (v, p))
    sign = v.new_tensor([1.0, -1.0])
    return scores_from(p_signal, sign * v_signal, seen_by_noise(v, sample), seen_by_noise(p, sample))


def scores_from(logit, value, v_noise, p_noise):
    """The five numbers from logit, V (R, 2) and the vectors (R, m) that multiply standard normals."""
    omega = p_noise.norm(dim=-1, keepdim=True)
    unit = p_noise / omega.clamp_min(torch.finfo(v_noise.dtype).tiny)
    along = (v_noise * unit).sum(-1, keepdim=True)
    tau = (v_noise - along * unit).norm(dim=-1, keepdim=True)
    sign = value.new_tensor([1.0, -1.0])
    return FreshScores(logit, value, omega.expand_as(value), sign * along, tau.expand_as(value))


def log10_error(v, p, sample, *, per_class=False):
    r"""log10 of $E_R[\mathrm{err}(R^2S)]$: (R,), or (R, 2) with `per_class`. Exact for Gaussian entries, two tokens."""
    scores, scale = scores_at_scale_one(v, p, sample), sample.law.scale
    if scale is None:
        error = log10_error_of_scores(scores, per_class=True)
    else:
        error = _averaged_over_scale(scores, *scale.nodes())
    return error if per_class else (torch.logsumexp(error * math.log(10), -1) - math.log(2)) / math.log(10)


def _averaged_over_scale(scores, scales, weights):
    """log10 of the error averaged over scales with the given weights, (R, 2)."""
    factor = torch.as_tensor(scales, dtype=scores.value.dtype)[:, None, None]
    runs = len(scores.value)
    every = [
        part.expand(len(scales), runs, 2).reshape(-1, 2)
        for part in (scores.logit, scores.value, factor * scores.omega, factor * scores.along, factor * scores.tau)
    ]
    error = log10_error_of_scores(FreshScores(*every), per_class=True).view(len(scales), runs, 2)
    log_weight = torch.as_tensor(np.log(weights), dtype=error.dtype)[:, None, None]
    return torch.logsumexp(error * math.log(10) + log_weight, 0) / math.log(10)
