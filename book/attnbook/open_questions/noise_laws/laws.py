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

from attnbook.halving import halved
from attnbook.open_questions.noise_laws.covariance import Covariance
from attnbook.open_questions.noise_laws.parts import Entries, RadialT
from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.population import FreshScores, log10_error_of_scores


@checks.checked
@dataclass(frozen=True)
class NoiseLaw(SignalNoiseLaw):
    """A `SignalNoiseLaw` with noise of another law. Raises ValueError for parts that do not fit.

    `draw(..., coordinates="reduced")` is exact for Gaussian entries with Sigma = I, with or without a scale per token; every other
    law has no reduced form and asks for `coordinates="dense"`.

    `population.log10_clean_error` takes any sample's noise for white and Gaussian; the error of these laws is `log10_error`.
    """

    entries: Entries = field(default_factory=Entries)
    scale: RadialT | None = None
    covariance: Covariance = field(default_factory=Covariance)
    noise_avoids_signals: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.covariance.check(self.d)

    @property
    def rotation_invariant(self) -> bool:
        """Whether turned noise has the same law: what reduced coordinates need."""
        return self.entries.gaussian and self.covariance.isotropic

    def _scales(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Scales R from a stream beside `rng`'s: laws that differ in the scale only share their directions."""
        if self.scale is None:
            return np.ones(shape)
        return self.scale.draw(np.random.Generator(rng.bit_generator.jumped()), shape)

    def _noise_vectors(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Noise of shape `shape` + (d,), before the projection off the signals."""
        scales = self._scales(rng, shape)
        vectors = self.covariance.times(self.entries.draw(rng, (*shape, self.d)))
        vectors *= (self.noise_std * scales)[..., None]
        return vectors

    def _draw_reduced(self, seed: int, run: int, start_vectors: int):
        if not self.rotation_invariant:
            raise ValueError(
                f"coordinates must be 'dense' for noise that is not rotation invariant; got 'reduced' with {self.entries!r} "
                f"and {self.covariance!r}"
            )
        drawn = super()._draw_reduced(seed, run, start_vectors)
        drawn[0][:, 1:] *= self._scales(stream(seed, "noise", run), (self.n, self.tokens - 1))[..., None]
        return drawn

    def fresh_block(self, one: Sample, count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """`count` fresh points of this law, whole vectors: tokens (1, count, T, m) and true labels (1, count)."""
        T, m, like = self.tokens, one.tokens.shape[-1], one.tokens
        if m != self.d and not self.rotation_invariant:
            raise ValueError(f"sample must be dense, d = {self.d} columns; got {m}: this noise has no reduced form")
        classes = torch.as_tensor(self._classes(rng, count), device=like.device)
        shape = (count, T - 1)
        if self.rotation_invariant:
            scales = self._scales(rng, shape)
            noise = (self.noise_std * scales)[..., None] * rng.standard_normal((*shape, m))
        else:
            noise = self._noise_vectors(rng, shape)
        noise = torch.as_tensor(noise, dtype=like.dtype, device=like.device)
        units = one.avoided[0]
        noise = noise - (noise @ units.mT) @ units
        tokens = torch.cat([one.signals[0][classes].unsqueeze(1), noise], dim=1)
        return tokens.unsqueeze(0), 1.0 - 2.0 * classes.to(like.dtype).unsqueeze(0)


def seen_by_noise(vectors: torch.Tensor, sample: Sample) -> torch.Tensor:
    r"""$A^\top\Pi x$, (R, m), for parameters x (R, m): what multiplies the entries z of a fresh vector with scale 1."""
    units = sample.avoided
    inside = torch.einsum("rkm,rm->rk", units, vectors)
    outside = vectors - torch.einsum("rk,rkm->rm", inside, units)
    law = sample.law
    if isinstance(law, NoiseLaw) and not law.covariance.isotropic:
        law.covariance.check(vectors.shape[-1])
        outside = torch.as_tensor(law.covariance.adjoint(outside.numpy()), dtype=vectors.dtype)
    return law.noise_std * outside


def scores_at_scale_one(v: torch.Tensor, p: torch.Tensor, sample: Sample) -> FreshScores:
    """As `population.scores_of_fresh_data`, with the law's own covariance and R = 1."""
    shape = (sample.runs, sample.tokens.shape[-1])
    checks.tensor("v", v, shape, like=sample.tokens)
    checks.tensor("p", p, shape, like=sample.tokens)
    v_signal, p_signal = (torch.einsum("rkm,rm->rk", sample.signals, x) for x in (v, p))
    v_noise, p_noise = seen_by_noise(v, sample), seen_by_noise(p, sample)
    sign = v.new_tensor([1.0, -1.0])
    return scores_from(p_signal, sign * v_signal, v_noise, p_noise)


def scores_from(logit: torch.Tensor, value: torch.Tensor, v_noise: torch.Tensor, p_noise: torch.Tensor) -> FreshScores:
    """The five numbers from logit, V (R, 2) and the vectors (R, m) that multiply standard normals."""
    omega = p_noise.norm(dim=-1, keepdim=True)
    unit = p_noise / omega.clamp_min(torch.finfo(v_noise.dtype).tiny)
    along = (v_noise * unit).sum(-1, keepdim=True)
    tau = (v_noise - along * unit).norm(dim=-1, keepdim=True)
    sign = value.new_tensor([1.0, -1.0])
    return FreshScores(logit, value, omega.expand_as(value), sign * along, tau.expand_as(value))


def log10_error(v: torch.Tensor, p: torch.Tensor, sample: Sample, *, per_class: bool = False) -> torch.Tensor:
    r"""log10 of $E_R[\mathrm{err}(R^2S)]$: (R,), or (R, 2) with `per_class`. Exact for Gaussian entries, two tokens.

    Raises ValueError for more than two tokens.
    """
    if sample.law.tokens != 2:
        raise ValueError(f"tokens must be 2 for the exact formula; got {sample.law.tokens}: use clean_error_sampled")
    scores = scores_at_scale_one(v, p, sample)
    scale = getattr(sample.law, "scale", None)
    if scale is None:
        error = log10_error_of_scores(scores, per_class=True)
    else:
        error = averaged_over_scale(scores, *scale.nodes())
    if per_class:
        return error
    return (torch.logsumexp(error * math.log(10), -1) - math.log(2)) / math.log(10)


def averaged_over_scale(scores: FreshScores, scales: np.ndarray, weights: np.ndarray) -> torch.Tensor:
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


def effective_trace(covariance: Covariance, d: int, n: int) -> float:
    r"""The number $D$ with $D = \sum_j \lambda_j/(1 + n\lambda_j/D)$: the squared length that n noise tokens of this covariance lend to
    memorising, $y^\top G^{-1}y \approx n/D$ (deterministic equivalent of the inverse Gram matrix).

    $D = d - n$ for $\Sigma = I$; eigenvalues far above $D/n$ add only $D/n$ each. Raises ValueError unless d > n.

    >>> round(effective_trace(Covariance(), 1000, 100), 6)
    900.0
    """
    checks.whole_number("n", n, at_least=1)
    if d <= n:
        raise ValueError(f"d must exceed n; got d = {d}, n = {n}: the Gram matrix is singular")
    values = covariance.eigenvalues(d)
    # f(D) = sum lambda / (D + n lambda) falls from d/n > 1 at D = 0 to 0: one root of f = 1, by bisection.
    return sum(halved(lambda D: (values / (D + n * values)).sum() > 1, 0.0, float(values.sum()), 200)) / 2
