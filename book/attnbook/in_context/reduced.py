r"""Exact risk of heads with two numbers each, from length + 1 normal numbers per prompt instead of length (d+1) + 2 d.

If every head is M_h = omega_h I and V_h = mu_h e_last, the prediction is sum_i c_i y_i with c_i = sum_h mu_h softmax_i(omega_h <x_i, x_q>).
The scores depend on the context through g_i = <x_i, x_q> / r alone, r = |x_q|; what is orthogonal to the query, the task vector and the
label noise can be integrated by hand, which leaves (derived in the theory chapter of Part III)

    risk(omega, mu) = s^2 E[(r - sum_i c_i g_i)^2 + (d - 1 + s2) sum_i c_i^2],     g_i iid N(0, 1),  r^2 ~ chi^2 with d degrees of freedom,

with s the standard deviation of an entry of the task vector and s2 = label noise variance / s^2. It is quadratic in mu:
risk = s^2 d - 2 mu.b + mu' A mu. Three devices make the estimates sharp: r is stratified, every g is used with both signs, and polynomials
of (r, g) whose means are known are regressed out. Means over independent batches give the standard errors.

The same (seed, role, prompts, batches) means the same draws whatever omega is: differences between two settings are far more precise
than either (`mean_and_error` of the difference of two per-batch arrays). Role "search" is for optimisers, "test" for reported values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnlib.in_context.law import RegressionLaw
from attnlib.randomness import stream

PROMPTS = 40_000
BATCHES = 40
_CHUNK_NUMBERS = 1_000_000  # float64 numbers in the largest array of a chunk: 8 MB
_CONTROLS = 9


def mean_and_error(per_batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean over the leading axis (batches >= 2) and its standard error. (batches, ...) -> (...), (...)."""
    return per_batch.mean(0), per_batch.std(0) / math.sqrt(per_batch.shape[0])


@dataclass(frozen=True)
class ReducedMoments:
    """The quadratic form of the risk in mu at K given omegas, once per batch of prompts. All tensors float64, in the law's units.

    Any heads whose omegas are among the K share these moments: `at` picks them. Exact moments are the means over batches.
    """

    omega: torch.Tensor  # (K,)
    gain: torch.Tensor  # (batches, K): b_h = s^2 E[r sum_i p_i g_i], p = softmax(omega_h r g)
    overlap: torch.Tensor  # (batches, K, K): A_hk
    zero_risk: float  # s^2 d, the risk of predicting zero

    def at(self, heads) -> ReducedMoments:
        """The moments of some of the K omegas: whole numbers, in the order wanted."""
        index = torch.as_tensor(heads, dtype=torch.long)
        return ReducedMoments(
            self.omega[index], self.gain[:, index], self.overlap[:, index][:, :, index], self.zero_risk
        )

    def risk_per_batch(self, mu) -> torch.Tensor:
        """risk = s^2 d - 2 mu.b + mu' A mu for mu (..., K). Returns (batches, ...)."""
        mu = torch.as_tensor(mu, dtype=torch.float64)
        linear = torch.einsum("bk,...k->b...", self.gain, mu)
        return self.zero_risk - 2 * linear + torch.einsum("...j,bjk,...k->b...", mu, self.overlap, mu)

    def risk(self, mu) -> tuple[torch.Tensor, torch.Tensor]:
        """Risk at mu (..., K) and its standard error: (...), (...)."""
        return mean_and_error(self.risk_per_batch(mu))


def reduced_moments(
    omega, law: RegressionLaw, *, prompts=PROMPTS, batches=BATCHES, seed=0, role="test"
) -> ReducedMoments:
    """Moments of the risk at K values of omega, of all heads with all: one call serves every combination of them.

    Args:
        omega: (K,) finite numbers.
        prompts: draws of (r, g), each used with both signs of g; split evenly over the batches, rounded up.
        batches: independent groups of prompts behind the standard error, >= 2.
        role: "test" for values that are reported, "search" for draws an optimiser may see.

    The law is isotropic with zero mean: the reduction needs it.
    """
    omega = torch.as_tensor(omega, dtype=torch.float64)
    unsigned, place = torch.unique(omega.abs(), return_inverse=True)
    kinds = len(unsigned)
    place = torch.where(omega < 0, place + kinds, place)
    mirror = (place + kinds) % (2 * kinds)
    both_signs = torch.cat((unsigned, -unsigned))
    share = law.d - 1 + law.noise_variance

    def integrand(radius, scores):
        weights = _softmax(both_signs, radius, scores)  # (m, 2 kinds, L)
        seen = torch.einsum("mkl,ml->mk", weights, scores)
        overlap = seen[:, :, None] * seen[:, None, :] + share * (weights @ weights.mT)
        # -g at omega is g at -omega: the other sign of g is already there.
        gain = radius[:, None] * (seen[:, place] - seen[:, mirror]) / 2
        overlap = (overlap[:, place[:, None], place] + overlap[:, mirror[:, None], mirror]) / 2
        return torch.cat((gain, overlap.flatten(1)), 1)

    columns = len(omega) * (len(omega) + 1)
    width = max(columns, 2 * kinds * max(law.length, 2 * kinds))
    means = _batch_means(integrand, law, prompts, batches, seed, role, columns, width)
    means = means * law.beta_std**2
    gain, overlap = means[:, : len(omega)], means[:, len(omega) :].reshape(batches, len(omega), len(omega))
    return ReducedMoments(omega, gain, overlap, law.d * law.beta_std**2)


def line_moments(omega, law: RegressionLaw, *, pair, prompts, seed, role="test") -> tuple[torch.Tensor, torch.Tensor]:
    """gain and overlap (batches, P) of P models apart from each other: one head of each omega, or omega and -omega with opposite mu.

    They are quadratic forms in one number: risk = s^2 d - 2 mu gain + mu^2 overlap.
    """
    omega, count = torch.as_tensor(omega, dtype=torch.float64), len(omega)

    def form(weights, scores):
        seen = (weights @ scores[:, :, None])[..., 0]
        return seen, seen**2 + (law.d - 1 + law.noise_variance) * (weights**2).sum(-1)

    def integrand(radius, scores):
        weights, others = _softmax(omega, radius, scores), _softmax(-omega, radius, scores)  # (m, P, L)
        if pair:  # the same for both signs of g
            seen, overlap = form(weights - others, scores)
        else:
            (seen, overlap), (back, again) = form(weights, scores), form(others, scores)
            seen, overlap = (seen - back) / 2, (overlap + again) / 2
        return torch.cat((radius[:, None] * seen, overlap), 1)

    means = (
        _batch_means(integrand, law, prompts, BATCHES, seed, role, 2 * count, 4 * count * law.length) * law.beta_std**2
    )
    return means[:, :count], means[:, count:]


def reduced_risk(omega, mu, law: RegressionLaw, **draws) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact risk of H heads with two numbers each, by Monte Carlo over the reduced prompt: value and standard error.

    Args:
        omega, mu: (..., H), leading axes are separate models, all judged on the same draws.
        draws: `prompts`, `batches`, `seed`, `role` as in `reduced_moments`.

    Returns two tensors (...), float64, in the law's units.
    """
    return mean_and_error(reduced_risk_per_batch(omega, mu, law, **draws))


def reduced_risk_per_batch(
    omega, mu, law: RegressionLaw, *, prompts=PROMPTS, batches=BATCHES, seed=0, role="test"
) -> torch.Tensor:
    """As `reduced_risk`, one value per batch: (batches, ...). Subtract two of them for a paired difference."""
    omega, mu = (torch.as_tensor(part, dtype=torch.float64) for part in (omega, mu))
    lead, heads = omega.shape[:-1], omega.shape[-1]
    flat = omega.reshape(-1, heads), mu.reshape(-1, heads)
    step = max(1, _CHUNK_NUMBERS // (200 * heads * law.length))
    parts = []
    for first in range(0, flat[0].shape[0], step):
        w, m = (part[first : first + step] for part in flat)

        def integrand(radius, scores, w=w, m=m):
            value = torch.zeros(len(radius), len(w), dtype=torch.float64)
            for sign in (1, -1):
                weight = torch.einsum("mphl,ph->mpl", _softmax(sign * w, radius, scores), m)
                seen = sign * torch.einsum("mpl,ml->mp", weight, scores)
                value += (radius[:, None] - seen) ** 2 + (law.d - 1 + law.noise_variance) * (weight**2).sum(-1)
            return value / 2

        width = 2 * len(w) * heads * law.length
        parts.append(_batch_means(integrand, law, prompts, batches, seed, role, len(w), width))
    return (torch.cat(parts, 1) * law.beta_std**2).reshape(batches, *lead)


def batch_means(
    integrand, law: RegressionLaw, *, columns, width, prompts=PROMPTS, batches=BATCHES, seed=0
) -> torch.Tensor:
    """Means over (r, g) of any integrand (B,), (B, L) -> (B, columns), per batch: (batches, columns), float64.

    `width`: float64 numbers per prompt in its largest array. The integrand has to use both signs of g itself.
    """
    return _batch_means(integrand, law, prompts, batches, seed, "test", columns, width)


def _softmax(omega, radius, scores):
    """softmax_i(omega r g_i) for omega (...) and prompts (m,), (m, L): (m, ..., L)."""
    shape = (-1, *[1] * omega.ndim)
    slope = radius.reshape(shape) * omega
    low, high = (slope * ends.reshape(shape) for ends in torch.aminmax(scores, dim=-1))
    weights = slope[..., None] * scores.reshape(*shape, scores.shape[-1])
    weights.sub_(torch.maximum(low, high)[..., None]).exp_()
    return weights.div_(weights.sum(-1, keepdim=True))


def _reduced_prompts(law, size, batch, seed, role, rows):
    """(r, g) of one batch, `rows` at a time: r from `size` equally likely strata of the chi law, g (rows, L)."""
    from scipy.special import gammaincinv

    generator = stream(seed, role, batch)
    rank = (np.arange(size) + generator.random(size)) / size
    radius = np.sqrt(2 * gammaincinv(law.d / 2, rank))
    for first in range(0, size, rows):
        part = torch.as_tensor(radius[first : first + rows])
        yield part, torch.as_tensor(generator.standard_normal((len(part), law.length)))


def _controls(radius, scores, law):
    """Even polynomials of a prompt minus their exact means, over their sizes: (m, controls).

    They are the terms of the expansion of the risk in omega: g-bar is normal and independent of the centred g, whose sum of squares S is
    chi^2 with n = L - 1 degrees of freedom and independent of sum_i (g_i - g-bar)^4 / S^2.
    """
    d, length, n = law.d, law.length, law.length - 1
    mean = scores.mean(1)
    centred = scores - mean[:, None]
    squares = (centred**2).sum(1)
    cubes, fourths = (centred**3).sum(1), (centred**4).sum(1)
    r2, r4 = d, d * (d + 2)
    s1, s2, s3 = n, n * (n + 2), n * (n + 2) * (n + 4)
    q = 3 * n * n / length  # mean of the sum of fourth powers
    radius2 = radius**2
    pairs = (
        (radius2, r2),
        (mean**2, 1 / length),
        (radius2 * squares, r2 * s1),
        (radius2 * squares**2, r2 * s2),
        (radius2 * mean * cubes, 0.0),
        (radius2**2 * squares**2, r4 * s2),
        (radius2**2 * fourths, r4 * q),
        (radius2**2 * squares**3, r4 * s3),
        (radius2**2 * squares * fourths, r4 * q * (n + 4)),
    )
    return torch.stack([(value - exact) / max(exact, 1.0) for value, exact in pairs], 1)


def _batch_means(integrand, law, prompts, batches, seed, role, columns, width):
    """Means of the integrand's columns per batch after regression on the controls: (batches, columns).

    The slopes used for a batch are fitted on all other batches, so every batch's mean is unbiased. They are linear in the integrand:
    a combination of columns is treated as if it had been integrated itself.
    """
    size = -(-prompts // batches)  # in each batch
    rows = max(1, min(size, _CHUNK_NUMBERS // width))
    values = torch.zeros(batches, columns, dtype=torch.float64)
    controls = torch.zeros(batches, _CONTROLS, dtype=torch.float64)
    square = torch.zeros(batches, _CONTROLS, _CONTROLS, dtype=torch.float64)
    cross = torch.zeros(batches, _CONTROLS, columns, dtype=torch.float64)
    for batch in range(batches):
        for radius, scores in _reduced_prompts(law, size, batch, seed, role, rows):
            value, control = integrand(radius, scores), _controls(radius, scores, law)
            values[batch] += value.sum(0) / size
            controls[batch] += control.sum(0) / size
            square[batch] += control.mT @ control / size
            cross[batch] += control.mT @ value / size
    average, middle, product, joint = (
        (part.sum(0) - part) / (batches - 1) for part in (controls, values, square, cross)
    )
    spread = product - average[:, :, None] * average[:, None, :]
    joint = joint - average[:, :, None] * middle[:, None, :]
    scale = spread.diagonal(dim1=1, dim2=2).clamp_min(1e-300).sqrt()
    correlation = spread / (scale[:, :, None] * scale[:, None, :])
    # Controls may be collinear (length 1 or 2): the pseudo-inverse leaves those directions out.
    slopes = torch.linalg.pinv(correlation, rtol=1e-10, hermitian=True) @ (joint / scale[:, :, None])
    adjusted: torch.Tensor = values - ((controls / scale)[:, None, :] @ slopes)[:, 0]
    return adjusted
