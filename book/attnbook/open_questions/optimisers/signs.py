r"""Sign descent and Adam look at single coordinates, so the basis matters: the same data in three bases, and what they do there.

*Axis*: each signal on a coordinate axis. *Flat*: all entries of a signal of one size. *Random*: directions of the signals uniform.
All three are rotations of one another: a sample in reduced coordinates is carried into $R^d$ by a random frame, so the Gram matrix,
and with it everything gradient descent does, is the same number for number.

One step of sign descent from zero is $v_1 = \beta\,\mathrm{sign}(S)$, $S = \sum_i y_i\sum_t x_{it}$, and $p_1 = 0$. Derived here, two
tokens, $c_k = |C_k| - |N_k|$:

$$ \text{axis: } V_k = \beta\rho,\; |\Pi v_1| = \beta\sqrt{d-2} \;\Rightarrow\; \mathrm{err} = \Phi(-\rho/\sqrt{d-2})
   \text{ exactly, if } c_1, c_2 > 0; \qquad E\, y_i v_1\cdot\xi_i = \beta (d-2)\sqrt{2/\pi n} . $$

$$ \text{random: } \mathrm{sign}(S) = |w|_1 w + r,\; w = S/|S|,\; r \perp w \text{ in a uniform direction};\quad
   E|w|_1 = \frac{d\,\Gamma(d/2)}{\sqrt\pi\,\Gamma((d+1)/2)},\; E|w|_1^2 = 1 + \tfrac2\pi(d-1) . $$
"""

import functools
import math
from dataclasses import replace

import numpy as np
import torch

from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import Sample

BASES = ("axis", "flat", "random")


@functools.lru_cache(maxsize=40)  # studies that differ in the signal norm only ask for the same frames
def _frame(seed: int, run: int, rows: int, d: int, signals: str) -> np.ndarray:
    """(rows, d) orthonormal: two directions for the signals, then uniformly random ones orthogonal to them."""
    rng = stream(seed, "signals", run)
    gaussian = rng.standard_normal((rows, d))
    if signals == "axis":
        gaussian[:2] = np.eye(2, d)
    elif signals == "flat":
        gaussian[0], gaussian[1] = 1.0, np.where(np.arange(d) % 2, -1.0, 1.0)
    q, triangle = np.linalg.qr(gaussian.T)
    return q.T * np.sign(np.diag(triangle))[:, None]


def dense_copy(sample: Sample, signals: str = "random") -> Sample:
    """The same training sets as vectors of R^d, the signals in the directions named: "axis", "flat" or "random".

    sample: in reduced coordinates, drawn without start vectors. Every run has a frame of its own, from the stream
    (the sample's seed, "signals", run). Noise stays Gaussian in the complement of the signals.
    Raises ValueError for another kind of sample, for a basis not known, and for flat signals in an odd dimension.
    """
    checks.one_of("signals", signals, BASES)
    law, m = sample.law, sample.tokens.shape[-1]
    if sample.coordinates != "reduced" or sample.start_directions.shape[1]:
        raise ValueError(
            "sample must be in reduced coordinates and without start vectors; got another: draw it with the defaults"
        )
    if not law.noise_avoids_signals or law.cosine != 0:
        raise ValueError("sample must have orthogonal signals that noise avoids; got another law")
    if signals == "flat" and law.d % 2:
        raise ValueError(
            f"d must be even for two orthogonal flat signals; got {law.d}: choose an even d or another basis"
        )
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


def axis_error(signal_norm: float, d: int) -> float:
    r"""log10 of $\Phi(-\rho/\sqrt{d-2})$: clean error after one step with axis signals, whatever n, if $c_1, c_2 > 0$; T = 2."""
    checks.whole_number("d", d, at_least=3)
    z = checks.positive_number("signal_norm", signal_norm) / math.sqrt(d - 2)
    return torch.special.log_ndtr(torch.tensor(-z, dtype=torch.float64)).item() / math.log(10)


def axis_memory_ratio(signal_norm: float, n: int, d: int) -> float:
    r"""Signal score over memorisation after one step, axis signals: $V_k / E\,y_i v_1\cdot\xi_i = \rho\sqrt{\pi n/2}/(d-2)$."""
    checks.whole_number("n", n, at_least=1)
    checks.whole_number("d", d, at_least=3)
    return checks.positive_number("signal_norm", signal_norm) * math.sqrt(math.pi * n / 2) / (d - 2)


def mean_one_norm(d: int) -> float:
    r"""$E|w|_1$ for w uniform on the unit sphere of R^d; $\sqrt{2d/\pi}$ for large d."""
    checks.whole_number("d", d, at_least=1)
    return d * math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)


def mean_square_one_norm(d: int) -> float:
    r"""$E|w|_1^2 = 1 + \tfrac2\pi(d-1)$, exactly."""
    return 1 + 2 / math.pi * (checks.whole_number("d", d, at_least=1) - 1)


def exponent(v: torch.Tensor, sample: Sample) -> torch.Tensor:
    r"""$\sum_k V_k^2 / |\Pi v|^2$ (R,): with p = 0 the clean error is $\Phi(-V_k/|\Pi v|)$, so this is its exponent, four times."""
    scores = torch.einsum("rkm,rm->rk", sample.signals, v)
    in_plane = scores.square().sum(-1) / sample.law.signal_norm**2
    return scores.square().sum(-1) / (v.square().sum(-1) - in_plane)


def exponent_ratio_random(exponent_of_gd: torch.Tensor, signal_norm: float, d: int) -> torch.Tensor:
    r"""Exponent of sign descent over gradient descent's, after one step, signals in random directions.

    With $q = \rho^2(c_1^2 + c_2^2)/|\sum_i y_i\xi_i|^2$, gradient descent's exponent over $\rho^2$, and $a = E|w|_1^2$: the squared
    component of sign(S) in the plane of the signals is $\Sigma = (a\,q + (d-a)(2+q)/(d-1))/(1+q)$ in the mean, and the ratio is
    $\Sigma / ((d - \Sigma)\,q) \to \frac{2/\pi}{1 + (1-2/\pi)q}$ for large d.
    """
    rho2 = checks.positive_number("signal_norm", signal_norm) ** 2
    a, q = mean_square_one_norm(d), exponent_of_gd / rho2
    plane = (a * q + (d - a) * (2 + q) / (d - 1)) / (1 + q)
    return plane / ((d - plane) * q)


def exponent_ratio_flat(differences: torch.Tensor, signal_norm: float, n: int, d: int) -> torch.Tensor:
    r"""The same for flat signals, large d: entries of S have means $\pm\rho(c_1 \pm c_2)/\sqrt d$ and variance n.

    differences: (R, 2), the $c_k$. With $e_\pm = \mathrm{erf}(\rho(c_1 \pm c_2)/\sqrt{2nd})$ the components of sign(S) along the
    signals are $\tfrac12\sqrt d(e_+ \pm e_-)$.
    """
    rho = checks.positive_number("signal_norm", signal_norm)
    plus = torch.special.erf(rho * differences.sum(-1) / math.sqrt(2 * n * d))
    minus = torch.special.erf(rho * (differences[..., 0] - differences[..., 1]) / math.sqrt(2 * n * d))
    share = (plus**2 + minus**2) / 2  # of |sign(S)|^2 = d in the plane of the signals
    return share / (1 - share) * n * d / (rho**2 * differences.square().sum(-1))


def adam_second_step(betas: tuple[float, float] = (0.9, 0.999)) -> float:
    r"""Size of every entry of Adam's second step in p, in units of its step size: $\sqrt{1+\beta_2}/(1+\beta_1)$, whatever the gradient.

    The first gradient of p vanishes at zero values, so both moments hold the second one alone; eps is neglected.
    """
    first, second = (checks.probability("betas", beta) for beta in betas)
    return math.sqrt(1 + second) / (1 + first)
