r"""What page `15_error_from_both_sides` measures: errors from below and errors near one half, with bounds for any head, and what these
say after two steps.

Letters of the theory chapter "Two steps in finite dimension". $\omega = |\Pi p|$, $S = |\Pi v|$, and $\varrho_k$ is the correlation of
$p\cdot\xi$ with $-\bar y_k\,v\cdot\xi$.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import torch

from attnbook.single_head.deviations import at_dimension, drawn
from attnbook.single_head.error_bound import log10_error_bound

WEAK, LARGE = 0.1, 10.0  # SNR in units of (nd)^(-1/4); step size in units of the page's
BOTH_SIDES = (0.5, 1.0, 2.0)  # SNR in the same units
BELOW_ONE = (0.3, 0.6, 0.9)  # largest kappa_k of the draws
_LOG10 = math.log(10.0)
_ROOT = math.sqrt(2 * math.pi)


def correlation(scores):
    """rho_k of p . xi and minus the scaled v . xi, (R, 2): its two columns are opposite numbers."""
    return -scores.along / torch.hypot(scores.along, scores.tau)


def log10_floor_of_exponent(exponent, correlated):
    r"""$\log_{10}\Phi\big(-(2\sqrt E + \sqrt{2(1-\varrho)/\pi})/\sqrt{1+\varrho}\big)$, where C15 says $e^{-E}$."""
    rho = torch.as_tensor(correlated, dtype=exponent.dtype)
    argument = (2 * exponent.sqrt() + torch.sqrt(2 * (1 - rho) / math.pi)) / torch.sqrt(1 + rho)
    return torch.special.log_ndtr(-argument) / _LOG10


def log10_error_floor(scores):
    """The floor for a given head, (R, 2): its error is at least this; nan where V_k <= 0."""
    return log10_floor_of_exponent(-log10_error_bound(scores) * _LOG10, correlation(scores))


def distance_from_half(scores):
    r"""$|\mathrm{err}_k - \tfrac12|$ itself, (R, 2), where $1/2 - \mathrm{err}_k$ is too small for a difference of errors.

    $$ \Big|\int\varphi(z)\,\Big[\Phi\Big(\frac{c_kz + e^{P_k-\omega z}V_k}{\tau}\Big) - \Phi\Big(\frac{c_kz}\tau\Big)\Big]\,dz\Big| $$

    by the trapezoidal rule on [-20, 20]: relative error about $(40\,\omega/33335)^2$ and 1e-9, down to 1e-70. A step s
    of the argument below 1e-5 adds $s\,\varphi(x)(1 - xs/2)$: there a difference of two values of $\Phi$ is mostly rounding.
    """
    points = 33335
    z = torch.linspace(-20, 20, points, dtype=scores.value.dtype).reshape(-1, 1, 1)
    along = scores.along * z / scores.tau
    # Beyond 1e6 the normal law is 1: no overflow on the way there.
    signal = torch.exp((scores.logit - scores.omega * z).clamp_max(300)) * scores.value / scores.tau
    signal = signal.clamp(-1e6, 1e6)
    small = torch.exp(-(along**2) / 2) / _ROOT * signal * (1 - along * signal / 2)
    inside = torch.where(signal.abs() < 1e-5, small, torch.special.ndtr(along + signal) - torch.special.ndtr(along))
    return (torch.exp(-(z**2) / 2) * inside).sum(0).abs() * 40 / (points - 1) / _ROOT


def furthest_from_half(scores):
    r"""What $|\mathrm{err}_k - \tfrac12|$ is at most, (R, 2): $e^{P_k + \omega^2/2}|V_k|/(\sqrt{2\pi}\,\tau)$."""
    return torch.exp(scores.logit + scores.omega**2 / 2) * scores.value.abs() / (_ROOT * scores.tau)


def _spread(law, log_term):
    """sqrt d + sqrt n + sqrt(2u) and sqrt(d - 2) - sqrt n - sqrt(2u): most and least singular value of the noise."""
    row = math.sqrt(law.n) + math.sqrt(2 * log_term)
    return math.sqrt(law.d) + row, math.sqrt(law.d - 2) - row


def weak_signal_distance(law, bounds, log_term):
    r"""Weak signal, two steps: if $\mathrm{SNR}^2\,||C_k| - |N_k|| \le 1-\varepsilon$, $|\mathrm{err}_k - \tfrac12|$ is at most (R, 2)

    $$ \Phi(-x/\hat\omega) + e^x\,\frac{2}{\sqrt{2\pi}}\,\frac{n_k\,\mathrm{SNR}^2\,d}{\sqrt n\,\sigma_{\min}}, \qquad
       \hat\omega = a^2\sqrt n\,\sigma_{\max}/d, $$

    at the best $x > 0$ of a grid; inf where the condition fails. $\sigma_{\min}, \sigma_{\max}$: the bounds on the noise's singular values.
    """
    most, least = _spread(law, log_term)
    a, size = bounds.field.a, bounds.clean + bounds.noisy
    omega = a**2 * math.sqrt(law.n) * most / law.d
    slope = 2 * size * law.snr**2 * law.d / (math.sqrt(law.n) * least * _ROOT)
    grid = [omega * 10**k for k in torch.linspace(-1, 1.5, 60).tolist()]
    best = torch.stack([_normal(-x / omega) + math.exp(min(x, 700)) * slope for x in grid]).amin(0)
    weak = law.snr**2 * (bounds.clean - bounds.noisy).abs() <= 1 - bounds.score
    return torch.where(weak.all(1, keepdim=True) & torch.tensor(least > 0), best, torch.inf)


def weak_signal_ends(law, step_size, clean, noisy, *, strength=1.0):
    r"""log10 of what $\mathrm{err}_k$ is at least and at most after two steps, (R, 2), by `thm-weak-both-sides` at $T = 0.1$.

    `strength` multiplies the arguments of $\Phi$; 0 (an error of 1) where the theorem has no upper bound, -inf where no lower one.
    """
    cut, a, pull = 0.1, step_size * law.d / (4 * law.n), strength * law.snr**2 * math.sqrt(law.d / law.n)
    beyond = _normal(-cut / (0.8 * a**2 * math.sqrt(law.n / law.d)))
    low = (_normal(-1.33 * math.exp(cut) * pull * clean) - beyond).clamp_min(0.0)
    fall = torch.exp(-cut - 0.65 * a**2 * (clean + noisy) * law.snr**2)
    high = torch.where(clean > 1.23 * noisy, _normal(-0.75 * fall * pull * (clean - 1.23 * noisy)) + beyond, 1.0)
    return torch.log10(low), torch.log10(high)


def weak_signal_most(law, step_size, clean, noisy, *, size, strength=1.0):
    r"""log10 of what $\mathrm{err}_k$ is at most after two steps, (R, 2), by `thm-weak-all-kappa` at the best $T$ of a grid.

    size: $\varrho$; kappa is the larger $\kappa_k$ of a draw. inf where a hypothesis of the theorem fails.
    `strength` multiplies the first argument of $\Phi$; 0 (an error of 1) where the theorem has no upper bound.
    """
    a, room, power = step_size * law.d / (4 * law.n), 2.1 * size, law.snr**2
    cuts = torch.linspace(0.02, 4.0, 200, dtype=clean.dtype).reshape(-1, 1, 1)
    own = power * (clean - noisy)
    kappa = own.amax(1, keepdim=True)
    weight = 1 + 2 * (kappa + room) / (1 + kappa + room)  # lambda
    holds = (power * (weight * noisy - clean)).amax(1, keepdim=True) <= kappa
    holds &= (kappa < 1) & (max(1, a**2) * size <= (1 - kappa) / 16 * (1 + 1e-12))
    logit = a**2 * power * (
        clean * torch.sigmoid(-a / 2 * (1 + own - room)) * (1 - own + room)
        + noisy * torch.sigmoid(-a / 2 * (1 - own - room)) * (1 + own + room)
    )  # fmt: skip
    votes = clean - (2 - torch.tanh(a / 4 * (1 - own - room))) / (2 - torch.tanh(a / 4 * (1 + own + room))) * noisy
    pull = strength * 0.93 / weight * torch.exp(-cuts - logit) * power * math.sqrt(law.d / law.n) * votes
    beyond = torch.special.log_ndtr(-cuts / (1.11 * a**2 * math.sqrt(law.n / law.d)))
    high = torch.logaddexp(torch.special.log_ndtr(-pull), beyond).amin(0) / _LOG10
    return torch.where(holds, torch.where(votes > 0, high, 0.0), torch.inf)


def large_step_distance(law, bounds, log_term):
    r"""After two steps with $b_k \ge a(1+\varepsilon)$ for both classes, $|\mathrm{err}_k - \tfrac12|$ is at most (R, 2)

    $$ \Phi(-\vartheta\hat p_k/\hat\omega) + e^{-(1-\vartheta)\hat p_k}\,
       \frac{3}{\sqrt{2\pi}}\,\frac{n_k\,\mathrm{SNR}^2\,d}{\sqrt n\,\sigma_{\min}}, $$
    $$ \hat p_k = h\big[g_k|N_k|(b_k + a(1-\varepsilon)) - c_a|C_k|\big], \quad g_k = \sigma\big(\tfrac{b_k-a(1+\varepsilon)}2\big), \quad
       c_a = \tfrac2e e^{-a(1-\varepsilon)/2}, $$
    $$ \hat\omega = \tfrac ad\,\sigma_{\max}\Big(\sum_k |N_k|(b_k + a(1+\varepsilon))^2 + |C_k|c_a^2\Big)^{1/2}, $$

    at the best $\vartheta$ of 0.05, 0.10, ..., 0.95; inf where a condition fails or $\hat p_k \le 0$: a class needs flipped samples.
    """
    most, least = _spread(law, log_term)
    a, b, eps = bounds.field.a, bounds.field.b, bounds.score
    c = 2 / math.e * math.exp(-a * (1 - eps) / 2)
    slope = torch.sigmoid((b - a * (1 + eps)) / 2)
    pull = a * law.snr**2 * (slope * bounds.noisy * (b + a * (1 - eps)) - c * bounds.clean)
    weights = bounds.noisy * (b + a * (1 + eps)) ** 2 + bounds.clean * c**2
    omega = a / law.d * most * weights.sum(1, keepdim=True).sqrt()
    start = 3 * (bounds.clean + bounds.noisy) * law.snr**2 * law.d / (math.sqrt(law.n) * least * _ROOT)
    shares = [k / 20 for k in range(1, 20)]
    best = torch.stack([_normal(-x * pull / omega) + torch.exp(-(1 - x) * pull) * start for x in shares]).amin(0)
    strong = (b >= a * (1 + eps)).all(1, keepdim=True) & torch.tensor(least > 0 and eps < 1)
    return torch.where(strong & (pull > 0), best, torch.inf)


def _normal(x):
    return torch.special.ndtr(torch.as_tensor(x, dtype=torch.float64))


# --- what is measured ----------------------------------------------------------------------------------------------------------


def error_study(law, step_size, *, draws=40, seed=0, delta=0.01):
    """The page's draws with both floors of their error; weak signals in 100 times the dimensions, and a large step size."""
    s, more = SimpleNamespace(delta=delta), 3 * draws // 2
    s.page = drawn(law, step_size, draws, seed, delta)
    scores = s.page.scores
    alone = replace(scores, along=torch.zeros_like(scores.along), tau=torch.hypot(scores.along, scores.tau))
    s.floor, s.floor_without_correlation = log10_error_floor(scores), log10_error_floor(alone)

    # SNR = strength (nd)^(-1/4)
    wide, s.wide_step = at_dimension(law, step_size, 100 * law.d)

    def weak_law(strength):
        return replace(wide, signal_norm=strength * (wide.n * wide.d) ** -0.25 * math.sqrt(wide.d))

    laws = [weak_law(strength) for strength in BOTH_SIDES]
    s.strongest = laws[-1]
    s.both_sides = [drawn(own, s.wide_step, more, seed, delta) for own in laws]
    weak = drawn(weak_law(WEAK), s.wide_step, draws, seed, delta)
    s.weak = SimpleNamespace(
        distance=distance_from_half(weak.scores),
        furthest=furthest_from_half(weak.scores),
        proved=weak_signal_distance(weak.sample.law, weak.bounds, weak.log_term),
    )

    # Per kappa of BELOW_ONE the theorem's rho and draws, SNR by their largest |C_k| - |N_k|, in its least dimension
    clean, noisy = law.draw(seed, more).counts()
    most, a, s.below_one = (clean - noisy).max().item(), step_size * law.d / (4 * law.n), []
    for kappa in BELOW_ONE:
        size = (1 - kappa) / 16 / max(1, a**2)
        own, step = at_dimension(law, step_size, 2 * law.n * math.log(10 * law.n / delta) / size**2)
        own = replace(own, signal_norm=math.sqrt(kappa / most * own.d))
        s.below_one.append((size, drawn(own, step, more, seed, delta)))

    large = drawn(law, LARGE * step_size, draws, seed, delta)
    s.large = SimpleNamespace(
        distance=distance_from_half(large.scores),
        proved=large_step_distance(law, large.bounds, large.log_term),
    )
    return s
