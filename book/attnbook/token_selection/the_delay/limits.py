r"""Where late times lead: the gaps of training p alone and its distance from the orthogonal-noise prediction, and when the delay is finite.

*Late gaps.* Sample i has selected token $u_i$. Gap $j=(i,t)$, $t\ne u_i$, is $X_j=z_{iu_i}-z_{it}=d_j\cdot p$ with
$d_j=W_0(x_{iu_i}-x_{it})$. The attention-SVM is $\min|p|^2$ subject to $d_j\cdot p\ge1$ for all j. Where $\beta=B^{-1}\mathbf 1>0$,
$B_{jk}=d_j\cdot d_k$, its solution is $\sum_j\beta_jd_j$ with all margins equal, and the flow has
$X_j=\log\theta+\log(f_j/\beta_j)+o(1)$, $\theta=\alpha\tau$, $f_j=\tfrac1n\sigma(-Y_i\gamma_{iu_i})\,Y_i(\gamma_{iu_i}-\gamma_{it})$.

*Delay.* With $r=n\,\mathrm{SNR}^2$ and $q=n\,d\,\mathrm{SNR}^4=r|\mu|^2/\sigma_\varepsilon^2$: $\log\tau_{\rm sel}\simeq b(q)/r$ as
$r\to0$ at fixed q, and $\tau_{\rm sel}=\infty$ where hard attention selects $x_1$ with probability below one half.

Source: derived in the theory chapter of Part II (`ts-late-gaps`, `ts-rate`, `ts-delay-finite`).
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import torch

from attnbook.halving import crossing_above, halved
from attnbook.token_selection.fresh_selection import fresh_attention, fresh_threshold, hard_selection
from attnbook.token_selection.mean_field import flipped_share, mean_field
from attnbook.token_selection.theory import late_discrimination
from attnlib.kernels.token_selection.reference import forces
from attnlib.token_selection.gram import draw_gram

# --- training p alone ----------------------------------------------------------------------------------------------------------


def svm_weights(kernel, chosen):
    """Differences (n (T - 1), n T) of every sample's selected token and its others, and beta = B^{-1} 1 for B = differences kernel.

    kernel: (n T, n T), positive definite on differences. chosen: (n,), the selected tokens.
    """
    n, T = len(chosen), kernel.shape[0] // len(chosen)
    eye = torch.eye(n * T, dtype=kernel.dtype).view(n, T, n * T)
    rows = torch.stack([eye[i, chosen[i]] - eye[i, t] for i in range(n) for t in range(T) if t != chosen[i]])
    products = rows @ kernel @ rows.mT
    return rows, torch.linalg.solve(products, torch.ones(len(rows), dtype=kernel.dtype))


def late_gaps(law, log_time, *, runs, seed, largest_move=0.05):
    """Train p alone from p_0 = 0 by the flow, Heun steps in which no score moves further than `largest_move`, to theta = e^log_time.

    Of R training sets: gaps (R, n (T - 1)) of sample i in the order of its tokens, without u_i; predicted, log theta + log(f / beta);
    equal, their mean; kkt (R,), whether every sample has selected its best token and every dual variable beta is positive.
    """
    gram = draw_gram(law, seed, runs)
    N = law.n * law.tokens
    kernel = gram.weighted[:, :N, :N]
    scores, log_theta = _follow(gram, kernel, log_time, largest_move)
    chosen, weights, gaps, pulls = scores.argmax(-1), [], [], []
    for r in range(runs):
        rows, beta = svm_weights(kernel[r], chosen[r])
        values = gram.head_scores[r] * gram.labels.observed[r, :, None]
        best = values.gather(1, chosen[r][:, None])
        lead = (rows @ values.flatten()).where(rows @ values.flatten() > 0, torch.nan)
        weights.append(beta)
        gaps.append(rows @ scores[r].flatten())
        pulls.append(torch.sigmoid(-best).repeat(1, law.tokens - 1).flatten() * lead / law.n)
    gaps, beta, f = (torch.stack(parts) for parts in (gaps, weights, pulls))
    return SimpleNamespace(
        gaps=gaps,
        predicted=log_theta[:, None] + (f / beta).log(),
        equal=gaps.mean(1, keepdim=True),
        kkt=~f.isnan().any(1) & (beta > 0).all(1),
    )


def mean_field_distance(law, theta, *, runs, seed):
    r"""(R,): largest $|z-z_\infty|$ over all scores of a training set at time `theta`, of training p alone with $W^\top W=mI$, $p_0=0$,

    $$ \frac{dz}{d\theta}=\frac nh\frac K{\sigma_\varepsilon^2d}c . $$
    """
    gram = draw_gram(law, seed, runs)
    own, h, N = law.noise_std**2 * law.d, law.head_norm * law.signal_norm, law.n * law.tokens
    scores, _ = _follow(gram, law.n / h / own * gram.kernel[:, :N, :N], math.log(theta), 0.02)
    unit = law.n / (own * h)  # steps of size 1 with sigma_w^2 d = 1 that make theta = 1
    limit = mean_field(law, 1.0, weight_scale=1.0, horizon=theta * unit, finite_size=False, largest_move=0.02)
    kinds = torch.as_tensor(limit.scores[-1])[gram.labels.noisy.long()]  # (R, n, T)
    return (scores - kinds).abs().amax((1, 2))


def _follow(gram, kernel, end, move):
    """Flow dz/dtheta = `kernel` c from zero scores: scores (R, n, T) and log theta (R,) at theta = e^end."""
    scores = torch.zeros(gram.runs, gram.law.n, gram.law.tokens, dtype=kernel.dtype)
    time = torch.zeros(gram.runs, dtype=kernel.dtype)

    def speed(at):
        c = forces(at, gram.head_scores, gram.labels.observed)
        return (kernel @ c.flatten(1).unsqueeze(-1)).view_as(at)

    horizon = torch.tensor(end, dtype=kernel.dtype).exp()
    while bool((time < horizon).any()):
        first = speed(scores)
        step = torch.minimum(move / first.abs().amax((1, 2)), horizon - time)
        second = speed(scores + step.view(-1, 1, 1) * first)
        scores = scores + step.view(-1, 1, 1) / 2 * (first + second)
        time = time + step
    return scores, time.log()


# --- when the delay is finite, and its exponent --------------------------------------------------------------------------------


def laws_at(law, strengths, q):
    """`law` with the signal norms and dimensions that make 1/(n SNR^2) each of `strengths` (d rounded) and n d SNR^4 = q."""
    norms = [law.noise_std * math.sqrt(q * s) for s in strengths]
    return [replace(law, signal_norm=x, d=round(law.n * q * s**2)) for x, s in zip(norms, strengths, strict=True)]


def advantage(law):
    r"""$\bar a-A_1/T$: mean signal coefficient of the token that training samples select, less that of a token."""
    eta, rho = flipped_share(law), law.weak_signal
    return 1 - eta + eta * rho - (1 + (1 + law.same_class_tokens) * rho) / law.tokens


def gap_differences(law):
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


def discrimination_at(law, q):
    r"""$D=\tfrac12(\bar a-A_1/T)\sqrt{q\,T/(T-1)}$, the limit of `late_discrimination` as $r\to0$ at $n\,d\,\mathrm{SNR}^4=q$."""
    return advantage(law) / 2 * math.sqrt(q * law.tokens / (law.tokens - 1))


def critical_discrimination(law):
    """D at which hard attention selects the relevant token of a fresh sample with probability one half."""
    return crossing_above(lambda D: hard_selection(D, law)[0] < 0.5)


def exponent_at(law, q):
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


def last_strength(law):
    """1/(n SNR^2) at which the delay becomes infinite when d grows at the law's signal norm: `late_discrimination` is critical there."""
    critical, strength = critical_discrimination(law), 1.0

    def selects(at):
        d = law.n * (law.signal_norm / law.noise_std) ** 2 * at
        return late_discrimination(replace(law, d=max(3, round(d)))) > critical

    if not selects(strength):
        return math.nan
    while selects(2 * strength):
        strength *= 2
    return halved(selects, strength, 2 * strength, 40)[0]
