r"""When the delay is finite, and how its exponent depends on $n\,d\,\mathrm{SNR}^4$: what the score noise of fresh data does to it.

With $r=n\,\mathrm{SNR}^2$ and $q=n\,d\,\mathrm{SNR}^4=r|\mu|^2/\sigma_\varepsilon^2$: $\log\tau_{\rm sel}\simeq b(q)/r$ as $r\to0$ at
fixed q, and $\tau_{\rm sel}=\infty$ where hard attention selects $x_1$ with probability below one half.
Source: derived in the theory chapter of Part II (`ts-delay-finite`).
"""

import math
from dataclasses import replace

import numpy as np

from attnbook.halving import crossing_above, halved
from attnbook.token_selection.fresh_selection import fresh_attention, fresh_threshold, hard_selection
from attnbook.token_selection.mean_field import flipped_share
from attnbook.token_selection.theory import late_discrimination
from attnbook.token_selection.time_laws.delay import Delays
from attnlib import checks
from attnlib.token_selection.law import TokenLaw

SHARP = (2.0, 4.0, 8.0)  # 1 / (n SNR^2) between which slopes are taken


def laws_at(law: TokenLaw, strengths: tuple[float, ...], q: float) -> list[TokenLaw]:
    """`law` with the signal norms and dimensions that make 1/(n SNR^2) each of `strengths` (d rounded) and n d SNR^4 = q."""
    checks.positive_number("q", q)
    wanted = [checks.positive_number("strengths", s) for s in strengths]
    norms = [law.noise_std * math.sqrt(q * s) for s in wanted]
    return [replace(law, signal_norm=norm, d=round(law.n * q * s**2)) for norm, s in zip(norms, wanted, strict=True)]


def local_slopes(delays: Delays) -> np.ndarray:
    """(R, 2): slope of log t_sel in 1/(n SNR^2), from 2 to 4 and from 4 to 8; these must be among the strengths."""
    rows = [int(np.argmin(np.abs(delays.strength - s))) for s in SHARP]
    logs = np.log(delays.select[rows])
    slopes: np.ndarray = (np.diff(logs, axis=0) / np.diff(delays.strength[rows])[:, None]).T
    return slopes


def advantage(law: TokenLaw) -> float:
    r"""$\bar a-A_1/T$: mean signal coefficient of the token that training samples select, less that of a token."""
    eta, rho = flipped_share(law), law.weak_signal
    return 1 - eta + eta * rho - (1 + (1 + law.same_class_tokens) * rho) / law.tokens


def gap_differences(law: TokenLaw) -> float:
    r"""$\Delta=(\bar a-\frac{A_1}T)^{-1}\sum_{\rm kinds}w\sum_{t\ne u}(a_t-\frac{A_1}T)\log\frac{F_t\kappa_0}{F_0\kappa_t}$: how much
    later, in nats, the delay is than with all late gaps equal to that of an irrelevant token of a clean sample (force $F_0$, weight
    $\kappa_0$)."""
    eta, h, T = flipped_share(law), law.head_norm * law.signal_norm, law.tokens
    own, other = law.signal_share().T.tolist()
    share = [a + b for a, b in zip(own, other, strict=True)]
    total, half = sum(share), law.n * law.snr**2 / 2
    per_gap = half * advantage(law) / (1 + half * (sum(a * a for a in share) - total**2 / T))
    weight = [(1 - total * per_gap) / T + a * per_gap for a in share]
    late = 0.0
    for selected, sign, kind in ((0, 1, 1 - eta), (1, -1, eta)):
        value = [sign * (a - b) / math.sqrt(2) for a, b in zip(own, other, strict=True)]
        doubts = (1 + math.exp(h / math.sqrt(2))) / (1 + math.exp(h * value[selected]))
        for t in range(T):
            if t != selected:
                lead = doubts * (value[selected] - value[t]) * math.sqrt(2) * (1 - total * per_gap) / T / weight[t]
                late += kind * (share[t] - total / T) * math.log(lead)
    return late / advantage(law)


def discrimination_at(law: TokenLaw, q: float) -> float:
    r"""$D=\tfrac12(\bar a-A_1/T)\sqrt{q\,T/(T-1)}$, the limit of `late_discrimination` as $r\to0$ at $n\,d\,\mathrm{SNR}^4=q$."""
    return advantage(law) / 2 * math.sqrt(checks.positive_number("q", q) * law.tokens / (law.tokens - 1))


def critical_discrimination(law: TokenLaw) -> float:
    """D at which hard attention selects the relevant token of a fresh sample with probability one half."""
    return crossing_above(lambda D: hard_selection(D, law)[0] < 0.5)


def exponent_at(law: TokenLaw, q: float) -> float:
    r"""b(q) in $\log\tau_{\rm sel}\simeq b(q)/r$ as $r\to0$ at $n\,d\,\mathrm{SNR}^4=q$; inf where one half is never reached.

    $b(q)=2S^*(q)/(\bar a-A_1/T)$, $S^*(q)$ the smallest signal score S at which mean fresh attention on $x_1$ is one half, when fresh
    scores have the variance $\sigma_\varepsilon^2(m+\lambda)\pi$ with $\lambda\pi=S^2/(\sigma_\varepsilon D)^2$, $\lambda=m+\pi$.
    """
    scale, discrimination = 1 / 3, discrimination_at(law, q)  # the scale of W
    if discrimination <= critical_discrimination(law):
        return math.inf
    score = fresh_threshold(law)
    while True:
        in_span = (score / (law.noise_std * discrimination)) ** 2
        prompt = (math.sqrt(scale**2 + 4 * in_span) - scale) / 2
        missing = 0.5 - fresh_attention(law, score, score, law.noise_std**2 * (in_span + scale * prompt))[0]
        if missing < 1e-9:
            return 2 * score / advantage(law)
        score += 2 * missing  # attention cannot rise by more than 1/4 per unit of score


def last_strength(law: TokenLaw) -> float:
    """1/(n SNR^2) at which the delay becomes infinite when d grows at the law's signal norm: `late_discrimination` is critical there."""
    critical, strength = critical_discrimination(law), 1.0

    def selects(at: float) -> bool:
        d = law.n * (law.signal_norm / law.noise_std) ** 2 * at
        return late_discrimination(replace(law, d=max(3, round(d)))) > critical

    if not selects(strength):
        return math.nan
    while selects(2 * strength):
        strength *= 2
    return halved(selects, strength, 2 * strength, 40)[0]
