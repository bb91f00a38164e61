r"""Two steps with T tokens: their exact law, their orthogonal-noise limit, and bounds of fit and error at finite d.

Letters and proofs: chapter *More tokens, and the error in the trap* (`book/single_head_tokens_theory`). m = T - 1 noise tokens a sample,
N = n m in all, $a = \beta d/2nT$, $h = a\,\mathrm{SNR}^2$, $\zeta = \pm1$ on clean and flipped samples.
"""

import math
from dataclasses import dataclass

import numpy as np

from attnlib.arrays import Floats, Ints


@dataclass(frozen=True)
class Weights:
    """Weights of the second step: v_2 = a/d sum y phi x, p_2 = a/d sum (psi_0 u + psi xi)."""

    phi: Floats  # (n,)
    signal: Floats  # (n,), psi_0
    noise: Floats  # (n, m), psi


def weights(b: Floats, one_plus_eps: Floats, zeta: Floats, a: float) -> Weights:
    r"""From $\zeta_i b_{k(i)} = $ zeta * b (n,) and $1 + \varepsilon_{i\tau}$ (n, m)."""
    from scipy.special import expit

    T = one_plus_eps.shape[1] + 1
    margin = (zeta * b + a * one_plus_eps.sum(1)) / T
    g = expit(-margin)
    return Weights(1 + 2 * g, 2 * g * (zeta * b - margin), 2 * g[:, None] * (a * one_plus_eps - margin[:, None]))


# --- the limit of orthogonal noise, and theorem thm-tokens-strong around it ---------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """One class in the limit d -> infinity at fixed n; t and q of a noise token of a flipped sample."""

    V: float
    P: float
    t: float
    q: float

    def room(self, T: int) -> float:
        r"""$\log((T-1)te^q) - \log(Ve^P)$, positive iff flipped labels are fitted; infinite for V <= 0."""
        return math.log((T - 1) * self.t / self.V) + self.q - self.P if self.V > 0 else math.inf


def limit(clean: int, flipped: int, snr2: float, a: float, T: int) -> Limit:
    """The limit for a class with so many clean and flipped samples."""
    h = a * snr2
    b = np.full(2, h * (clean - flipped))
    w = weights(b, np.ones((2, T - 1)), np.array([1.0, -1.0]), a)
    V = h * (clean * w.phi[0] - flipped * w.phi[1])
    P = h * (clean * w.signal[0] + flipped * w.signal[1])
    return Limit(V, P, a * w.phi[1], a * w.noise[1, 0])


@dataclass(frozen=True)
class Strong:
    """What thm-tokens-strong says about one class: None where it says nothing."""

    flipped_fitted: bool | None
    clean_fitted: bool | None
    error: float  # an upper bound; 1 where there is none


def strong(counts: Ints, snr2: float, a: float, T: int, d: float, delta: float) -> list[Strong]:
    """The theorem for counts ((|C_1|, |N_1|), (|C_2|, |N_2|)), class by class; nothing is said if its hypothesis fails."""
    n, m, c = int(np.sum(counts)), T - 1, (T - 1) / T
    N = n * m
    rho = math.sqrt(2 * N * math.log(10 * N / delta) / d)
    if rho > 1 / 32:
        return [Strong(None, None, 1.0)] * 2
    s = snr2 * int(np.sum(counts, axis=1).max())
    width = 2 * ((1 + s) / T + 4.2 * c * rho)
    K_V, K_t = 1.05 * c * a**2 * s, 1.05 * c * a + 15
    K_P = c * a**2 * s * (4.2 + 1.05 * c * a * (1 + s))
    K_q = a**2 * (c * (8.4 + 1.05 * a * (1 + s) / T) + 6.5 * width)
    reach = 1.07 * a**2 * width * math.sqrt(N / d)
    found = []
    for clean, flipped in counts:
        one = limit(int(clean), int(flipped), snr2, a, T)
        low, high = one.V - rho * K_V, one.V + rho * K_V
        noise = [m * (one.t + sign * a * rho * K_t) * math.exp(one.q + sign * rho * K_q) for sign in (-1, 1)]
        signal = [low * math.exp(one.P - rho * K_P), high * math.exp(one.P + rho * K_P)]
        fits = True if rho * K_t < 1 and noise[0] > signal[1] else False if low > 0 and noise[1] < signal[0] else None
        clean_fits = True if rho * K_t < 1 and low >= 0 else None
        S = signal[0] / (3.2 * a) * math.sqrt(d / N)
        found.append(Strong(fits, clean_fits, error_above(S, reach, m) if low > 0 else 1.0))
    return found


def weak(counts: Ints, snr2: float, a: float, T: int, d: float, delta: float) -> list[tuple[float, float]]:
    """thm-tokens-weak, class by class: every label is fitted and the errors lie between these; empty outside its hypotheses."""
    m = T - 1
    N = int(np.sum(counts)) * m
    rho = math.sqrt(2 * N * math.log(10 * N / delta) / d)
    shares = snr2 * np.sum(counts, axis=1)
    if max(rho, a**2 * rho) > 1 / 16 or shares.max() > 1 / 6:
        return []
    omega = 1.11 * a**2 * math.sqrt(N / d) * (1.3 + 4.2 * (T - 2) * rho) / T
    unit, found = snr2 * math.sqrt(d / N), []
    for (clean, flipped), share in zip(counts, shares, strict=True):
        rest = 0.75 * math.exp(-1.3 * m / T * a**2 * share) * unit * (clean - 1.23 * flipped)
        low = error_between(1.33 * unit * clean, omega, m)[0]
        found.append((low, error_between(rest, omega, m)[1] if rest > 0 else 1.0))
    return found


# --- the error with m noise tokens (lem-tokens-error) ------------------------------------------------------------------------


def negative_part(S: float | Floats, m: int) -> Floats:
    r"""$G_m(S) = 2^{-m}\sum_{j=1}^m\binom mj\Pr(\chi^2_j \ge S^2/j)$; $\Phi(-S)$ for m = 1."""
    from scipy import stats

    j = np.arange(1, m + 1)
    return np.asarray(stats.chi2.sf(np.square(S)[..., None] / j, j) @ stats.binom.pmf(j, m, 0.5))


def error_above(S: float, omega: float, m: int) -> float:
    r"""Least value over 100 cuts x of $m\Phi(-x/\omega) + G_m(e^{-x}S)$, for S > 0."""
    from scipy import stats

    cuts = np.geomspace(0.1, 40, 100)
    return float((m * stats.norm.sf(cuts) + negative_part(S * np.exp(-cuts * omega), m)).min())


def error_between(S: float, omega: float, m: int) -> tuple[float, float]:
    r"""Best values over 80 numbers xi of $\Phi(-(S\pm\Delta)/\sqrt m) \mp 2e^{-\xi^2/2}$, $\Delta = \omega\ell^2e^{\omega\ell}$.

    $\ell = \sqrt m + \xi$.
    """
    from scipy import stats

    xi = np.linspace(0.5, 12, 80)
    length = math.sqrt(m) + xi
    shift, rest = omega * length**2 * np.exp(omega * length), 2 * np.exp(-(xi**2) / 2)
    low = stats.norm.sf((S + shift) / math.sqrt(m)) - rest
    high = stats.norm.sf((S - shift) / math.sqrt(m)) + rest
    return float(low.max()), float(high.min())
