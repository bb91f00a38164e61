r"""Closed forms of Part II: time scales, thresholds and predictions, with their constants where these could be derived.

Notation: $r = n\,\mathrm{SNR}^2$, $\mathrm{SNR} = |\mu|/(\sigma_\varepsilon\sqrt d)$; token t carries the total signal coefficient $a_t$
(1 for the relevant token, rho for a weak one, 0 otherwise), $A_1=\sum_ta_t$, $A_2=\sum_ta_t^2$, and $\bar a = 1-\eta+\eta\rho$ is the
mean coefficient of the token that a training sample ends up selecting (clean: relevant, flipped: confusing). `weight_scale` is
$\sigma_w^2d$, `prompt_scale` $\sigma_p^2d$. Derivations: the theory chapter of Part II. Every function takes a `TokenLaw`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnbook.halving import halved
from attnbook.token_selection.fresh_selection import fresh_attention, fresh_threshold, selection_accuracy
from attnbook.token_selection.mean_field import CLEAN, MeanField, flipped_share, mean_field
from attnlib import checks
from attnlib.arrays import Floats
from attnlib.token_selection.law import TokenLaw

_LARGEST_VARIANCE = 9.0  # of a fresh score; beyond, selection of a fresh sample is decided by its noise


# The two numbers that sort the regimes, and two facts that need no training


def n_snr_squared(law: TokenLaw) -> float:
    r"""$n\,\mathrm{SNR}^2 = n|\mu|^2/(\sigma_\varepsilon^2d)$: the shared signal's push over that of own noise. Source: paper (poster)."""
    return law.n * law.snr**2


def n_d_snr_fourth(law: TokenLaw) -> float:
    r"""$n\,d\,\mathrm{SNR}^4$: up to constants, the squared ratio of signal score to noise score of a fresh sample. Source: derived."""
    return law.n * law.d * law.snr**4


def laws_of_strength(law: TokenLaw, strengths: Sequence[float]) -> list[TokenLaw]:
    """`law` in the dimensions that make 1 / (n SNR^2) each of `strengths` (rounded to a whole d)."""
    return [replace(law, d=round(s * law.n * (law.signal_norm / law.noise_std) ** 2)) for s in strengths]


def exponents(values: Sequence[float], tau: Floats) -> Floats:
    """(R,): slope of log tau (K, R) on log value (K,) in every run, by least squares; a run with a nan gets a nan."""
    x, y = np.log(np.asarray(values, dtype=np.float64)), np.log(tau)
    centred = x - x.mean()
    return centred @ y / (centred @ centred)


def loss_floor(law: TokenLaw) -> float:
    r"""$\log(1+e^{-|\nu||\mu|/\sqrt2})$: loss of a sample whose relevant token has all attention, noise on its value aside.

    Source: derived for the authors' code, where $|\nu||\mu|=1$ and it is 0.4008.
    """
    return math.log1p(math.exp(-law.head_norm * law.signal_norm / math.sqrt(2)))


def uniform_attention_accuracy(law: TokenLaw) -> float:
    r"""Accuracy on fresh data with uniform attention, exactly: $\Phi\bigl(|\mu|(1+(k-1)\rho)/(\sigma_\varepsilon\sqrt{2T})\bigr)$.

    k = `law.same_class_tokens`; for k = 1 the two weak tokens cancel. Source: derived.
    """
    strength = law.signal_norm * (1 + (law.same_class_tokens - 1) * law.weak_signal)
    return 0.5 * math.erfc(-strength / (law.noise_std * math.sqrt(2 * law.tokens)) / math.sqrt(2))


# The clocks of the theorem: denominators without the constant that Theta hides


def not_overfitting_clock(law, step_size, *, weight_scale=1 / 3, prompt_scale=0.0) -> float:
    r"""Steps $1/\bigl(\alpha|\nu||\mu|^3d\max\{\sigma_w^2,\sigma_p^2\}\bigr)$. Source: paper (poster), part 1 of the theorem."""
    return 1 / (step_size * law.head_norm * law.signal_norm**3 * max(weight_scale, prompt_scale))


def overfitting_clock(law, step_size, *, weight_scale=1 / 3) -> float:
    r"""Steps $1/\bigl(\alpha n^{-1}\sigma_\varepsilon^2|\nu||\mu|d^2\sigma_w^2\bigr)$ from $p_0=0$, no exponential.

    Source: paper (poster), denominator in part 2 of the theorem. That it is the time of overfitting is derived.
    """
    return law.n / (step_size * law.noise_std**2 * law.head_norm * law.signal_norm * law.d * weight_scale)


def benign_clock(law: TokenLaw, step_size: float, *, weight_scale: float = 1 / 3) -> float:
    r"""`overfitting_clock` times $e^{1/(n\,\mathrm{SNR}^2)}$; inf where float64 overflows. Source: paper (poster), part 2 of the theorem.

    The paper's Theta and o hide the factor in the exponent; `delay_exponent` derives it.
    """
    log_clock = 1 / n_snr_squared(law) + math.log(overfitting_clock(law, step_size, weight_scale=weight_scale))
    return math.exp(log_clock) if log_clock < 709 else math.inf


# Clean samples: when half of the attention is on the relevant token


def first_half_constant(law: TokenLaw) -> float:
    r"""Time in units of `not_overfitting_clock` at which clean attention reaches 1/2, in the limit $r\to\infty$.

    Own noise then plays no part, all scores are $z_t = a_tS$, and S alone moves ($h=|\nu||\mu|$, $y_t$ values, $s=S(aS)$):

    $$ \int_0^{S^*}\frac{2\,dS}{F\,\sum_ta_ts_t(y_t-\bar y)},\qquad \bar y=\sum_us_uy_u,\qquad
       F = (1-\eta)\,\sigma(-h\bar y)-\eta\,\sigma(h\bar y). $$

    inf if the drag of the flipped samples stops S first. For $\rho,h\to0$: $\tfrac{4\sqrt2}{1-2\eta}\,[g(\log(T-1))-g(0)]$ with g the
    growth function. Source: derived, leading order.
    """
    eta, both, h = flipped_share(law), law.signal_share().numpy(), law.head_norm * law.signal_norm
    share, value = both.sum(-1), (both[:, 0] - both[:, 1]) / math.sqrt(2)
    nodes, weights = np.polynomial.legendre.leggauss(64)
    end = fresh_threshold(law)
    attention = np.exp(np.outer(end * (1 + nodes) / 2, share))
    attention /= attention.sum(-1, keepdims=True)
    mean = attention @ value
    pull = (1 - eta) / (1 + np.exp(h * mean)) - eta / (1 + np.exp(-h * mean))
    if pull.min() <= 0:
        return math.inf
    spread = (attention * (value - mean[:, None])) @ share
    return float((weights / (pull * spread)).sum() * end)


def first_half_time(law: TokenLaw, step_size: float, *, weight_scale: float = 1 / 3) -> float:
    """Steps until the mean attention of clean samples on their relevant token is 1/2, for orthogonal noise and every n SNR^2.

    Start p_0 = 0. RuntimeError where it never happens. Source: derived, leading order in d; compared with training in the tests.
    """
    path = mean_field(law, step_size, weight_scale=weight_scale, until=lambda now: now.attention[CLEAN, 0] >= 0.5)
    return path.crossing(path.attention[:, CLEAN, 0], 0.5)


# Flipped samples


def noisy_drag_threshold(law: TokenLaw) -> float:
    r"""$r$ above which the *first* move of a flipped sample is towards its relevant token, dragged along by the clean ones.

    $$ r_0 = \frac{2\,(y_1-\bar y)}{\bigl[(1-\eta)e^{-h\bar y}-\eta\bigr](1-A_1/T)\sum_ta_t(y_t-\bar y)}
       \;\to\; \frac{2T}{(1-2\eta)(T-1)} \quad(\rho,h\to0), $$

    $y_t$: values $(1,-\rho,\rho,\dots,0)/\sqrt2$, $\bar y$ their mean; inf where the bracket is not positive. Source: derived,
    leading order.
    """
    eta, share = flipped_share(law), law.signal_share().numpy()
    total, value = share.sum(-1), (share[:, 0] - share[:, 1]) / math.sqrt(2)
    pull = value - value.mean()
    lead = (1 - eta) * math.exp(-law.head_norm * law.signal_norm * value.mean()) - eta
    return math.inf if lead <= 0 else float(2 * pull[0] / (lead * (1 - total.mean()) * (total @ pull)))


def memorisation_exponent(law: TokenLaw) -> float:
    r"""$\kappa$ in: flipped samples stay unfitted for about $e^{\kappa\,n\,\mathrm{SNR}^2}$, then are fitted after all ($p_0=0$, flow).

    $$ \kappa = \tfrac{T-1}{2T}\,\mathrm{KL}\bigl((1-\eta,\eta)\,\|\,(\sigma(h/\sqrt2),\sigma(-h/\sqrt2))\bigr), \qquad h=|\nu||\mu|, $$

    and 0 when $\eta\ge\sigma(-h/\sqrt2)$. Source: derived, leading order for large r, $\rho=0$ and $n|\mu|\ll\sigma_\varepsilon d$.
    """
    eta = flipped_share(law)
    doubt = 1 / (1 + math.exp(law.head_norm * law.signal_norm / math.sqrt(2)))
    if eta >= doubt:
        return 0.0
    entropy = (1 - eta) * math.log((1 - eta) / (1 - doubt)) + (eta * math.log(eta / doubt) if eta else 0.0)
    return (law.tokens - 1) / (2 * law.tokens) * entropy


# Fresh samples: the delay of selection


def _late_shares(law: TokenLaw) -> tuple[float, float, float]:
    """A_1 = sum a_t, and S / X once every training sample has selected, and the mean coefficient of the selected token."""
    weak, rho = 1 + law.same_class_tokens, law.weak_signal
    first, second = 1 + weak * rho, 1 + weak * rho**2
    eta = flipped_share(law)
    selected = 1 - eta + eta * rho
    half = n_snr_squared(law) / 2
    per_gap = half * (selected - first / law.tokens) / (1 + half * (second - first**2 / law.tokens))
    return first, per_gap, selected


def _late_leads(law: TokenLaw) -> Floats:
    """(2, T): by how much a late gap (of a clean, a flipped sample; 0 on the token it selected) exceeds the first kind's, which is
    that of an irrelevant token of a clean sample: log of (force / KKT weight), the same of that token subtracted."""
    first, per_gap, _ = _late_shares(law)
    both, h = law.signal_share().numpy(), law.head_norm * law.signal_norm
    share, value = both.sum(-1), (both[:, 0] - both[:, 1]) / math.sqrt(2)
    weight = (1 - first * per_gap) / law.tokens + share * per_gap
    values = np.stack([value, -value])
    best = values[[0, 1], [0, 1]][:, None]
    force = (best - values) / (1 + np.exp(h * best))
    irrelevant = math.sqrt(0.5) / (1 + math.exp(h / math.sqrt(2))) * law.tokens / (1 - first * per_gap)
    lead: Floats = np.log(np.where(np.eye(2, law.tokens) > 0, 1.0, force / (weight * irrelevant)))
    return lead


def _late_scores(law: TokenLaw, gap: float, leads: Floats | float) -> tuple[float, float]:
    """Signal score S, and (m + |p|^2) |p|^2 on the span of the data, when late gaps are `gap` + `leads`."""
    first, per_gap, selected = _late_shares(law)
    eta, share = flipped_share(law), law.signal_share().sum(-1).numpy()
    kinds, gaps = np.array([1 - eta, eta]), (gap + leads) * (1 - np.eye(2, law.tokens))
    score = per_gap / (selected - first / law.tokens) * float(kinds @ (gaps @ (first / law.tokens - share)))
    own = (gaps.sum(-1, keepdims=True) + first * score) / law.tokens - gaps - share * score
    squares = law.n * float(kinds @ (own**2).sum(-1)) / (law.noise_std**2 * law.d)
    return score, squares + 2 * (score / law.signal_norm) ** 2


def delay_exponent(law: TokenLaw) -> float:
    r"""b in $\log\tau_{\mathrm{sel}} \simeq b/(n\,\mathrm{SNR}^2)$, $\tau_{\mathrm{sel}}$: mean fresh attention on the relevant token 1/2.

    $$ b = \frac{2S^*}{\bar a-A_1/T} \;\to\; \frac{2T\log(T-1)}{T-1-\eta T}\quad(\rho\to0), \qquad e^{S^*}=T-2-k+(1+k)e^{\rho S^*}. $$

    For $n\,d\,\mathrm{SNR}^4\to\infty$ (a fresh sample's noise scores negligible). Source: derived, leading order.
    """
    first, _, selected = _late_shares(law)
    advantage = selected - first / law.tokens
    return 2 * fresh_threshold(law) / advantage if advantage > 0 else math.inf


def late_discrimination(law: TokenLaw) -> float:
    r"""$D = v\cdot\mu/(\sigma_\varepsilon|v|)$ of a fresh sample long after everything is memorised, when $|p|^2\gg\sigma_w^2d$.

    Before, while $|p|^2\ll\sigma_w^2d$, it is smaller by $\sqrt2$: half of $|v|^2$ lies off the span of the data.
    For small r, $D\approx\tfrac12(\bar a-A_1/T)\sqrt{n\,d\,\mathrm{SNR}^4\;T/(T-1)}$. Source: derived, leading order.
    """
    score, in_span = _late_scores(law, 1.0, 0.0)
    return score / (law.noise_std * math.sqrt(in_span))


@checks.checked
def selection_time(law: TokenLaw, step_size: float, *, weight_scale: float = 1 / 3) -> tuple[float, float]:
    r"""The delay in closed form: when mean attention of fresh samples on the relevant token reaches one half.

    $$ \log\tau_{\mathrm{sel}} = X-\log\frac{T\,\sigma(-h/\sqrt2)}{\sqrt2\,(1-A_1\varsigma)}
       -\log\frac{\alpha\,(\sigma_w^2d+2|p|^2)\,\sigma_\varepsilon^2d\,h}{n},\qquad \varsigma(X-\Delta) = S^*, $$

    X the gap of a clean sample over an irrelevant token, $\varsigma=S/X$ at late times, $\Delta$ what the other gaps, which differ by
    constants, take of the signal score, $S^*$ the `fresh_threshold` for the variance of fresh scores at that time, $|p|^2$ of that time.

    Args:
        law: of the data, 0 < `weak_signal` < 1.
        step_size: $\alpha$ > 0.
        weight_scale: $\sigma_w^2d$ > 0.

    Returns:
        natural logarithm of $\tau_{\mathrm{sel}}$ in steps, and the memorised gap X at that time; (inf, inf) where one half is not
        reached before fresh scores have a variance of 9: never, or because noise nearly outweighs the signal.

    Raises:
        ValueError: a number outside its range, weak tokens without signal (flipped samples then have no best token) or as strong as the
            relevant one, or so large an $n\,\mathrm{SNR}^2$ that late gaps are not all of one size ($A_1\varsigma\ge1$).

    Source:
        derived in `book/token_selection_theory`, for $p_0=0$: exact for orthogonal noise as $n\,\mathrm{SNR}^2\to0$ at fixed
        $|p|^2/\sigma_w^2d\to0$; the factor of $|p|^2$ is leading order in 1/X.

    Example:
        >>> law = TokenLaw(n=20, d=2000, tokens=8, signal_norm=10.0)
        >>> print(f"{selection_time(law, 5e-3)[0]:.1f}")
        9.6
    """
    alpha, scale = checks.positive_number("step_size", step_size), checks.positive_number("weight_scale", weight_scale)
    checks.positive_number(
        "weak_signal", law.weak_signal, hint="without signal in x_2 flipped samples have no best token"
    )
    first, per_gap, _ = _late_shares(law)
    if per_gap <= 0:
        return math.inf, math.inf
    if first * per_gap >= 1:
        raise ValueError(
            f"n SNR^2 must leave A_1 S / X < 1; got {first * per_gap:.3g} at n SNR^2 = {n_snr_squared(law):.3g}"
        )
    leads = _late_leads(law)

    def at(gap: float) -> tuple[float, float, float]:  # S, |p|^2, variance of fresh scores
        score, in_span = _late_scores(law, gap, leads)
        prompt = (math.sqrt(scale**2 + 4 * in_span) - scale) / 2
        return score, prompt, law.noise_std**2 * (in_span + scale * prompt)

    def short(gap: float) -> bool:
        score, _, variance = at(gap)
        return bool(fresh_attention(law, score, score, variance)[0] < 0.5)

    low = (fresh_threshold(law) - _late_scores(law, 0.0, leads)[0]) / per_gap
    high = low
    while short(high):  # the first crossing: mean attention may fall again later
        low, high = high, high + 0.1 / per_gap
        if at(high)[2] > _LARGEST_VARIANCE:
            return math.inf, math.inf
    _, high = halved(short, low, high, 40)
    h = law.head_norm * law.signal_norm
    lead = law.tokens / (math.sqrt(2) * (1 + math.exp(h / math.sqrt(2))) * (1 - first * per_gap))
    speed = alpha * (scale + 2 * at(high)[1]) * law.noise_std**2 * law.d * h / law.n
    return high - math.log(lead * speed), high


def selection_path(law: TokenLaw, step_size: float) -> MeanField:
    """Orthogonal noise, from zero until a fresh sample gives half of its attention to the relevant token; its last time is tau_sel.

    Start p_0 = 0. Includes the growth of |p| that `selection_time` leaves out. RuntimeError where it never happens.
    """

    look_again = fresh_threshold(law)

    def selected(now):
        nonlocal look_again
        score = now.signal_score
        if score < look_again:
            return False
        missing = 0.5 - fresh_attention(law, score, score, now.score_variance)[0]
        look_again = score + 2 * missing  # attention cannot rise by more than 1/4 per unit of score
        return bool(missing <= 0)

    return mean_field(law, step_size, until=selected)


# The constructed direction of the first version


@checks.checked
def existence_window(law: TokenLaw) -> tuple[float, float]:
    r"""The window of strengths c of the noise tokens in which a constructed direction generalises.

    $$ p=\mu_++\mu_-+c\,\Big(\sum_{\text{clean}}\varepsilon_1+\sum_{\text{flipped}}\varepsilon_2\Big) $$
    $$ \frac{(1-\rho)|\mu|^2}{\sigma_\varepsilon^2d} \;<\; c \;\lesssim\; \frac{|\mu|^2}{\sigma_\varepsilon^2\sqrt{nd}\sqrt{2\log T}} $$

    Above the lower end flipped samples are memorised; below the upper one fresh samples still select the relevant token.

    Args:
        law: of the data.

    Returns:
        (lower, upper), two numbers; the window is empty if lower >= upper.

    Raises:
        AttributeError: law is no `TokenLaw`.

    Source:
        derived in `book/token_selection_versions`, for the construction in the author's notebook (first version of arXiv 2409.17625).

    Example:
        >>> lower, upper = existence_window(TokenLaw(n=20, d=2000, tokens=8, signal_norm=20.0))
        >>> print(f"{lower:.2f} < c < {upper:.2f}")
        0.18 < c < 0.98
    """
    shared = law.signal_norm**2 / law.noise_std**2
    return (1 - law.weak_signal) * shared / law.d, shared / (
        math.sqrt(law.n * law.d) * math.sqrt(2 * math.log(law.tokens))
    )


def constructed_direction_accuracy(law: TokenLaw, strength: float) -> float:
    r"""Fresh accuracy of that direction with c = `strength` and hard attention, from $D=|\mu|^2/(\sigma_\varepsilon|p|)$,
    $|p|^2=2|\mu|^2+c^2n\sigma_\varepsilon^2d$. Source: derived, leading order."""
    norm = math.sqrt(2 * law.signal_norm**2 + strength**2 * law.n * law.noise_std**2 * law.d)
    return selection_accuracy(law.signal_norm**2 / (law.noise_std * norm), law)
