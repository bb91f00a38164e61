r"""Error of a trained head on fresh clean data: exact for two tokens (`log10_clean_error`), sampled for any number.

The formulas hold with $\Pi$ the projection off the directions that noise avoids (the signals' span, or none: `Sample.avoided`),
times the noise's standard deviation: $\omega = |\Pi p|$, $c_k = s_k\,\Pi v\cdot\Pi p/\omega$, $\tau^2 = |\Pi v|^2 - c_k^2$, with
$s_k = +1, -1$ for $\mu_1, \mu_2$. The clean error weighs $\mathrm{err}_k$ with the classes' probabilities; an output of exactly zero
counts as half an error. For $V_k > 0$ the integrand is log-concave; for $V_k < 0$ that of $1 - \mathrm{err}_k$ is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from attnlib import checks, limits
from attnlib.device import one_thread
from attnlib.kernels import gaussian_tail
from attnlib.randomness import stream
from attnlib.single_head.law import Sample
from attnlib.single_head.model import evaluate

_Error = TypeVar("_Error", torch.Tensor, float)
_LOG10 = math.log(10.0)
_BLOCK_BYTES = 32 << 20  # fresh tokens held at once


@dataclass(frozen=True)
class Estimate:
    """A sampled mean and its standard error, both (R,)."""

    value: torch.Tensor
    standard_error: torch.Tensor


@dataclass(frozen=True)
class FreshScores:
    """The five numbers per class that fix the law of f on fresh data: all (R, 2), noise scale included."""

    logit: torch.Tensor  # p . mu_k
    value: torch.Tensor  # V_k = s_k v . mu_k
    omega: torch.Tensor  # std of p . xi
    along: torch.Tensor  # c_k, slope of s_k v . xi on the standardised p . xi
    tau: torch.Tensor  # std of v . xi given p . xi


def _check_parameters(v: torch.Tensor, p: torch.Tensor, sample: Sample) -> None:
    checks.fitting({"tokens": sample.tokens, "v": v, "p": p}, sample.tokens, tokens="R n T m", v="R m", p="R m")


@checks.checked
def scores_of_fresh_data(v: torch.Tensor, p: torch.Tensor, sample: Sample) -> FreshScores:
    """Law of values and scores on fresh data, for v, p (R, m) trained on `sample`. Raises ValueError on bad shapes."""
    _check_parameters(v, p, sample)
    return fresh_scores(v, p, sample)


def fresh_scores(v: torch.Tensor, p: torch.Tensor, sample: Sample, most: int = 1100) -> FreshScores:
    """`scores_of_fresh_data` for arguments that have been checked; of v brought within 2^-`most` and 2^`most`, by a power of two."""
    # First divide v by a power of two: then its squares neither vanish nor overflow, and no digit changes.
    v, exponent = _to_one(v)
    exponent = exponent.clamp(-most, most)
    # Signal part: components along the two signals. Noise part: what remains after projecting off the directions that noise avoids.
    units = sample.avoided
    std = sample.law.noise_std
    v_signal, p_signal = (torch.einsum("rkm,rm->rk", sample.signals, x) for x in (v, p))
    v_noise, p_noise = (
        std * (x - torch.einsum("rk,rkm->rm", torch.einsum("rkm,rm->rk", units, x), units)) for x in (v, p)
    )
    # Divide by the largest entry first: if p is about 1e-160, its square would vanish, and with it all signs below.
    largest = p_noise.abs().amax(-1, keepdim=True)
    direction = p_noise / largest.clamp_min(torch.finfo(v.dtype).tiny)
    length = direction.norm(dim=-1, keepdim=True)
    omega, direction = largest * length, direction / length.clamp_min(0.5)  # length >= 1, or 0 where p = 0
    # v . xi splits into its part along p . xi, of slope c, and an independent rest.
    along = (v_noise * direction).sum(-1, keepdim=True)
    # The residual's norm, not sqrt(S_vv - c^2): no cancellation, never negative.
    tau = (v_noise - along * direction).norm(dim=-1, keepdim=True)
    sign = torch.tensor([1.0, -1.0], dtype=v.dtype, device=v.device)
    two = torch.ones_like(sign)
    value, along, tau = (_times_two_to(x, exponent) for x in (sign * v_signal, sign * along, tau * two))
    return FreshScores(p_signal, value, omega * two, along, tau)


def _to_one(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x (R, m) over the power of two that brings the largest entry of each row to [1/2, 1), and its exponent (R, 1)."""
    exponent = torch.frexp(x.abs().amax(-1, keepdim=True))[1].to(x.dtype)
    return _times_two_to(x, -exponent), exponent


def _times_two_to(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    half = torch.floor(exponent / 2)  # in two steps: 2^1074 is infinite, and a number of 2^-1074 is there
    return x * torch.exp2(half) * torch.exp2(exponent - half)


@checks.checked
@one_thread
def log10_clean_error(v: torch.Tensor, p: torch.Tensor, sample: Sample, *, per_class: bool = False) -> torch.Tensor:
    r"""Exact decimal logarithm of the clean error, for two tokens: the test error on fresh samples with unflipped labels.

    Given $p\cdot\xi$ the output is Gaussian, so the error of class $k$ is one integral over $z \sim N(0, 1)$:

    $$ \mathrm{err}_k = E_z\, \Phi\!\left(-\frac{e^{p\cdot\mu_k - \omega z}\,V_k + c_k z}{\tau}\right), \qquad
       V_k = s_k\, v\cdot\mu_k , $$

    $\omega$ the deviation of $p\cdot\xi$, $c_k$ the slope of $s_k\,v\cdot\xi$ on $z$, $\tau$ the deviation that is left.

    Args:
        v: values (R, m), in the coordinates of `sample`; float64 recommended.
        p: query (R, m), in the same coordinates.
        sample: the training sets that v and p come from.
        per_class: both classes apart.

    Returns:
        (R,), or (R, 2) with `per_class`. The error itself has a relative error of about 1e-10, down to 10^-16000 and beyond.

    Raises:
        ValueError: more than two tokens, or shapes that do not fit.

    Source:
        derived in `book/single_head_theory`.

    Example:
        >>> sample = SignalNoiseLaw(n=20, d=400, signal_norm=10.0).draw(seed=0)
        >>> zero = torch.zeros(1, 22).double()
        >>> log10_clean_error(zero + sample.signals[:, 0], zero, sample).shape
        torch.Size([1])
    """
    if sample.law.tokens != 2:
        raise ValueError(
            f"tokens must be 2 for the exact formula; got {sample.law.tokens}: use clean_error_conditioned (with its standard error)"
        )
    _check_parameters(v, p, sample)
    return exact_log10_error(v, p, sample, per_class=per_class)


def exact_log10_error(v: torch.Tensor, p: torch.Tensor, sample: Sample, *, per_class: bool = False) -> torch.Tensor:
    """`log10_clean_error` for arguments that have been checked: it does not depend on the size of v, whose digits are all kept."""
    return _log10_error(fresh_scores(v, p, sample, most=500), per_class, sample.law.class_probability)


@checks.checked
def log10_error_of_scores(
    scores: FreshScores, *, per_class: bool = False, class_probability: float = 0.5
) -> torch.Tensor:
    """The integral itself: log10 of the clean error (R,), or (R, 2) with `per_class`, for given laws on fresh data."""
    checks.probability("class_probability", class_probability)
    checks.fitting(vars(scores), logit="R k", value="R k", omega="R k", along="R k", tau="R k")
    return _log10_error(scores, per_class, class_probability)


def _log10_error(scores: FreshScores, per_class: bool, class_probability: float) -> torch.Tensor:
    # One natural logarithm per class; then the mean over the classes, still in logarithms.
    log_error = gaussian_tail.log_error(scores.logit, scores.value, scores.omega, scores.along, scores.tau)
    if not per_class:
        weights = log_error.new_tensor([class_probability, 1 - class_probability])
        log_error = torch.logsumexp(log_error + torch.log(2 * weights), -1) - math.log(2)
    return log_error / _LOG10


def noisy_error(clean_error: _Error, label_noise: float) -> _Error:
    """Test error on flipped labels, eta + (1 - 2 eta) err: a flipped label turns an error into a success and back."""
    checks.probability("label_noise", label_noise, high=0.5)
    return label_noise + (1 - 2 * label_noise) * clean_error


@checks.checked
@one_thread
def clean_error_sampled(
    v: torch.Tensor, p: torch.Tensor, sample: Sample, count: int, *, label_noise: float = 0.0
) -> Estimate:
    r"""The error of `log10_clean_error`, by sampling: the fraction of fresh points that the head misclassifies, for any number of tokens T.

    Runs the model on fresh tokens, independently of every formula above. The standard error is that of a proportion,
    $\sqrt{\hat e(1-\hat e)/N}$ for $N$ points.

    Args:
        v: values (R, m), in the coordinates of `sample`.
        p: query (R, m).
        sample: the training sets that v and p come from; fresh points are drawn from its law and seed, never shared with training.
        count: N >= 1, fresh points per run.
        label_noise: probability that a fresh label is flipped (with it, this estimates `noisy_error`).

    Returns:
        the fraction (a number in [0, 1]) and its standard error for each run, in the dtype of `sample`.

    Raises:
        ValueError: shapes, count or probability are not as said above.

    Source:
        definition of the clean error in arXiv 2410.07746.

    Example:
        >>> sample = SignalNoiseLaw(n=20, d=400, signal_norm=10.0).draw(seed=0, runs=3)
        >>> clean_error_sampled(sample.signals[:, 0], torch.zeros(3, 22).double(), sample, 500).value.shape
        torch.Size([3])
    """
    _check_parameters(v, p, sample)
    checks.whole_number("count", count, at_least=1)
    checks.probability("label_noise", label_noise, high=0.5)
    block = max(1, _BLOCK_BYTES // (8 * sample.law.tokens * sample.tokens.shape[-1]))
    shares = []
    for r in range(sample.runs):
        one, wrong = sample.run(r), 0.0
        points, flips = (stream(sample.seed, role, one.first_run) for role in ("test", "test flips"))
        # Fresh points in blocks, so that memory does not grow with their number.
        for first in range(0, count, block):
            size = min(block, count - first)
            tokens, labels = sample.law.fresh_block(one, size, points)
            flipped = torch.as_tensor(flips.random(size) < label_noise, device=labels.device)
            output = torch.where(flipped, -labels, labels) * evaluate(tokens, v[r : r + 1], p[r : r + 1]).output
            # An output of exactly zero counts as half an error; nan is neither right nor wrong.
            wrong += torch.where(output.isnan(), torch.nan, (output < 0) + 0.5 * (output == 0)).sum().item()
        shares.append(wrong / count)
    value = torch.tensor(shares, dtype=v.dtype, device=v.device)
    return Estimate(value, torch.sqrt(value * (1 - value) / count))


@checks.checked
def clean_error_conditioned(v: torch.Tensor, p: torch.Tensor, sample: Sample, count: int) -> Estimate:
    r"""Monte Carlo over the attention only, any T: given $p\cdot\xi_\tau = \omega t_\tau$ the error is a Gaussian tail.

    $$ \mathrm{err}_k = E\, \Phi\!\left(-\frac{e^{p\cdot\mu_k} V_k + c_k \sum_\tau e^{\omega t_\tau} t_\tau}
       {\tau \sqrt{\sum_\tau e^{2\omega t_\tau}}}\right), \qquad t_1, \dots, t_{T-1} \sim N(0,1). $$

    Derived in the theory chapter; the average of `count` draws of t per class has a smaller variance than counting errors.
    """
    checks.whole_number("count", count, at_least=2)
    _check_parameters(v, p, sample)
    one = 32 * sample.runs * (sample.law.tokens - 1)
    limits.require_memory(lambda count: one * count, count=count)
    s = fresh_scores(v, p, sample)
    # The same standard normals serve both classes; the role "test" keeps them apart from training.
    runs = range(sample.first_run, sample.first_run + sample.runs)
    drawn = np.stack([stream(sample.seed, "test", run).standard_normal((count, sample.law.tokens - 1)) for run in runs])
    fresh = torch.as_tensor(drawn, dtype=v.dtype, device=v.device)  # (R, count, T-1)
    logits = s.omega[:, :1, None] * fresh  # (R, count, T-1)
    # Softmax weights of the noise up to a factor, which cancels in the quotient below; the largest is 1, so that none of a class is
    # lost beside a signal of the other, and a signal may be infinite.
    largest = logits.amax(-1, keepdim=True)
    weight = torch.exp(logits - largest)
    signal = s.value.sign()[:, None] * torch.exp((s.logit + s.value.abs().log())[:, None] - largest)
    # Mean and deviation of f given the attention; its tail is the error.
    drift = s.along[:, None, :] * (weight * fresh).sum(-1, keepdim=True)
    spread = s.tau[:, None, :] * weight.norm(dim=-1, keepdim=True)
    tail = torch.special.ndtr(-(signal + drift) / spread.clamp_min(torch.finfo(v.dtype).tiny))
    tail = tail @ tail.new_tensor([sample.law.class_probability, 1 - sample.law.class_probability])
    return Estimate(tail.mean(-1), tail.std(-1) / math.sqrt(count))
