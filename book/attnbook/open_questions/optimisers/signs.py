r"""Sign descent and Adam look at single coordinates, so the basis matters: the same data in three bases, and what they do there.

*Axis*: each signal on a coordinate axis. *Flat*: all entries of a signal of one size. *Random*: directions of the signals uniform.
All three are rotations of one another: a sample in reduced coordinates is carried into $R^d$ by a random frame, so the Gram matrix,
and with it everything gradient descent does, is the same number for number.

**One step** of sign descent from zero is $v_1 = \beta\,\mathrm{sign}(S)$, $S = \sum_i y_i\sum_t x_{it}$, and $p_1 = 0$. Derived here, two
tokens, $c_k = |C_k| - |N_k|$:

$$ \text{axis: } V_k = \beta\rho,\; |\Pi v_1| = \beta\sqrt{d-2} \;\Rightarrow\; \mathrm{err} = \Phi(-\rho/\sqrt{d-2})
   \text{ exactly, if } c_1, c_2 > 0; \qquad E\, y_i v_1\cdot\xi_i = \beta (d-2)\sqrt{2/\pi n} . $$

$$ \text{random: } \mathrm{sign}(S) = |w|_1 w + r,\; w = S/|S|,\; r \perp w \text{ in a uniform direction};\quad
   E|w|_1 = \frac{d\,\Gamma(d/2)}{\sqrt\pi\,\Gamma((d+1)/2)},\; E|w|_1^2 = 1 + \tfrac2\pi(d-1) . $$

**Along training**, signals in random directions, in reduced coordinates after all. The coordinates of all training vectors,
$z_j \in R^{n+2}$, $j = 1 \dots d$, are independent Gaussian vectors for large d, with the Gram matrix over d as covariance. A gradient has
entries $c_t\cdot z_j$. For jointly Gaussian (a, b) of unit variance

$$ E[a\,\mathrm{sign}\,b] = \sqrt{2/\pi}\; E[ab], \qquad E[\mathrm{sign}\,a\,\mathrm{sign}\,b] = \tfrac2\pi\arcsin E[ab], $$

so (i) the scores of all *training* vectors move exactly as under block-normalised descent with steps of length
$\beta\,E|w|_1 \approx \beta\sqrt{2d/\pi}$, and (ii) the inner products of v and p in $R^d$ are sums of the arcsine kernel over pairs
of past gradients. Fresh noise sees them without the signals' plane, which holds $\sum_k(v\cdot\mu_k)(p\cdot\mu_k)/\rho^2$ of
$v\cdot p$: sign descent is block-normalised descent with a more noisy test score. Derived; leading order in
n/d. Stein's lemma extends (i) to any rule that acts entry by entry: its scores move along a linear
combination of past gradients.
"""

import functools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from attnlib.randomness import stream
from attnlib.single_head.errors import FreshScores, log10_error_of_scores
from attnlib.single_head.rules import BLOCK_NORMALISED
from attnlib.single_head.training import train_heads


@functools.lru_cache(maxsize=40)  # studies that differ in the signal norm only ask for the same frames
def _frame(seed, run, rows, d, signals):
    """(rows, d) orthonormal: two directions for the signals, then uniformly random ones orthogonal to them."""
    rng = stream(seed, "signals", run)
    gaussian = rng.standard_normal((rows, d))
    if signals == "axis":
        gaussian[:2] = np.eye(2, d)
    elif signals == "flat":
        gaussian[0], gaussian[1] = 1.0, np.where(np.arange(d) % 2, -1.0, 1.0)
    q, triangle = np.linalg.qr(gaussian.T)
    return q.T * np.sign(np.diag(triangle))[:, None]


def dense_copy(sample, signals="random"):
    """The same training sets as vectors of R^d, the signals in the directions named: "axis", "flat" (d even) or "random".

    sample: in reduced coordinates, drawn without start vectors. Every run has a frame of its own, from the stream
    (the sample's seed, "signals", run). Noise stays Gaussian in the complement of the signals.
    """
    law, m = sample.law, sample.tokens.shape[-1]
    frames = [_frame(sample.seed, sample.first_run + r, m, law.d, signals) for r in range(sample.runs)]
    frame = torch.as_tensor(np.stack(frames), dtype=sample.tokens.dtype, device=sample.tokens.device)
    return replace(
        sample,
        tokens=torch.matmul(sample.tokens.flatten(1, 2), frame).unflatten(1, sample.tokens.shape[1:3]),
        signals=torch.matmul(sample.signals, frame),
        start_directions=frame.new_zeros(sample.runs, 0, law.d),
        coordinates="dense",
    )


# --- the first step --------------------------------------------------------------------------------------------------------


def axis_error(signal_norm, d):
    r"""log10 of $\Phi(-\rho/\sqrt{d-2})$: clean error after one step with axis signals, whatever n, if $c_1, c_2 > 0$; T = 2."""
    z = torch.tensor(-signal_norm / math.sqrt(d - 2), dtype=torch.float64)
    return torch.special.log_ndtr(z).item() / math.log(10)


def axis_memory_ratio(signal_norm, n, d):
    r"""Signal score over memorisation after one step, axis signals: $V_k / E\,y_i v_1\cdot\xi_i = \rho\sqrt{\pi n/2}/(d-2)$."""
    return signal_norm * math.sqrt(math.pi * n / 2) / (d - 2)


def mean_one_norm(d):
    r"""$E|w|_1$ for w uniform on the unit sphere of R^d; $\sqrt{2d/\pi}$ for large d."""
    return d * math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)


def mean_square_one_norm(d):
    r"""$E|w|_1^2 = 1 + \tfrac2\pi(d-1)$, exactly."""
    return 1 + 2 / math.pi * (d - 1)


def exponent(v, sample):
    r"""$\sum_k V_k^2 / |\Pi v|^2$ (R,): with p = 0 the clean error is $\Phi(-V_k/|\Pi v|)$, so this is its exponent, four times."""
    scores = torch.einsum("rkm,rm->rk", sample.signals, v)
    in_plane = scores.square().sum(-1) / sample.law.signal_norm**2
    return scores.square().sum(-1) / (v.square().sum(-1) - in_plane)


def exponent_ratio_random(exponent_of_gd, signal_norm, d):
    r"""Exponent of sign descent over gradient descent's, after one step, signals in random directions.

    With $q = \rho^2(c_1^2 + c_2^2)/|\sum_i y_i\xi_i|^2$, gradient descent's exponent over $\rho^2$, and $a = E|w|_1^2$: the squared
    component of sign(S) in the plane of the signals is $\Sigma = (a\,q + (d-a)(2+q)/(d-1))/(1+q)$ in the mean, and the ratio is
    $\Sigma / ((d - \Sigma)\,q) \to \frac{2/\pi}{1 + (1-2/\pi)q}$ for large d.
    """
    a, q = mean_square_one_norm(d), exponent_of_gd / signal_norm**2
    plane = (a * q + (d - a) * (2 + q) / (d - 1)) / (1 + q)
    return plane / ((d - plane) * q)


def exponent_ratio_flat(differences, signal_norm, n, d):
    r"""The same for flat signals, large d: entries of S have means $\pm\rho(c_1 \pm c_2)/\sqrt d$ and variance n.

    differences: (R, 2), the $c_k$. With $e_\pm = \mathrm{erf}(\rho(c_1 \pm c_2)/\sqrt{2nd})$ the components of sign(S) along the
    signals are $\tfrac12\sqrt d(e_+ \pm e_-)$.
    """
    plus = torch.special.erf(signal_norm * differences.sum(-1) / math.sqrt(2 * n * d))
    minus = torch.special.erf(signal_norm * (differences[..., 0] - differences[..., 1]) / math.sqrt(2 * n * d))
    share = (plus**2 + minus**2) / 2  # of |sign(S)|^2 = d in the plane of the signals
    return share / (1 - share) * n * d / (signal_norm**2 * differences.square().sum(-1))


def adam_second_step(betas=(0.9, 0.999)):
    r"""Size of every entry of Adam's second step in p, in units of its step size: $\sqrt{1+\beta_2}/(1+\beta_1)$, whatever the gradient.

    The first gradient of p vanishes at zero values, so both moments hold the second one alone; eps is neglected.
    """
    return math.sqrt(1 + betas[1]) / (1 + betas[0])


# --- along training: the arcsine law ---------------------------------------------------------------------------------------


def arcsine_kernel(directions):
    """(2/pi) arcsin of the cosines between directions (R, K, m): (R, K, K); a direction of length zero has the kernel 0."""
    length = directions.norm(dim=-1, keepdim=True)
    unit = directions / torch.where(length > 0, length, 1.0)
    return 2 / math.pi * torch.asin((unit @ unit.mT).clamp(-1, 1))


def predicted_sign_descent(sample, step_size, steps):
    """Sign descent of one head from zero on `sample` (reduced coordinates), as it runs in a random basis of R^d.

    steps: those to keep, increasing. Returns the block-normalised trajectory `path`, and at `steps` the clean error (S, R) and the inner
    products (S, R, 2, 2) of v and p in R^d, `products`, and of Pi v and Pi p, which fresh noise sees, `noise_products`.
    """
    law, last = sample.law, steps[-1]
    path = train_heads(sample, step_size * mean_one_norm(law.d), last, rule=BLOCK_NORMALISED).single()
    moves = torch.stack([path.v.diff(dim=0), path.p.diff(dim=0)], dim=2).movedim(0, 1)  # (R, steps, 2, m)
    kernel = law.d * step_size**2 * arcsine_kernel(moves.flatten(1, 2)).unflatten(2, (last, 2)).unflatten(1, (last, 2))
    # (R, 2, 2, steps): inner products of v and p after each step
    held = kernel.cumsum(1).cumsum(3).diagonal(dim1=1, dim2=3)
    products = torch.stack([held[..., t - 1] for t in steps])
    noise = torch.stack([off_the_signals(sample, path.v[t], path.p[t], products[i]) for i, t in enumerate(steps)])
    errors = torch.stack([_error(sample, path.v[t], path.p[t], noise[i]) for i, t in enumerate(steps)])
    return SimpleNamespace(log10_error=errors, products=products, noise_products=noise, path=path)


def off_the_signals(sample, v, p, products):
    """Inner products (R, 2, 2) of Pi v and Pi p from those of v and p: minus sum_k (v . mu_k)(p . mu_k) / rho^2, orthogonal signals."""
    scores = torch.stack([torch.einsum("rkm,rm->rk", sample.signals, x) for x in (v, p)], dim=1)  # (R, 2, k)
    return products - scores @ scores.mT / sample.law.signal_norm**2


def _error(sample, v, p, noise):
    """log10 clean error (R,) for scores of v, p on the signals and given inner products (R, 2, 2) of Pi v and Pi p."""
    value, logit = (torch.einsum("rkm,rm->rk", sample.signals, x) for x in (v, p))
    omega = noise[:, 1, 1].clamp_min(1e-300).sqrt()
    along = noise[:, 0, 1] / omega
    tau = (noise[:, 0, 0] - along**2).clamp_min(1e-300).sqrt()
    sign = torch.tensor([1.0, -1.0], dtype=v.dtype, device=v.device)
    both = torch.ones_like(sign)
    scores = FreshScores(logit, sign * value, omega[:, None] * both, sign * along[:, None], tau[:, None] * both)
    return log10_error_of_scores(scores)
