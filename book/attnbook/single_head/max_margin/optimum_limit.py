r"""How far the constrained optimum is from the hard solution: bounds from the slack of its dual, and what they say of fresh data.

Let $s^\star$ be the unique best hard selection, with SVM $v_{mm} = \sum_i \alpha_iy_ir_i$, $\Gamma = 1/|v_{mm}|$ and shares
$\lambda_i = \alpha_i/\sum\alpha$; $p_{mm} = \sum_i\beta_i\epsilon_i(u_i-\xi_i)$ its query, $P = |p_{mm}|$, $b_i = \beta_i/\sum\beta$; and
$g = \Gamma_2/\Gamma$, $\Gamma_2$ the second best hard margin. For a unit v and |p| <= R with margin $\Gamma(1-\delta)$, $\delta < 1-g$,
and logits $\ell_i = \epsilon_i\,p\cdot(u_i-\xi_i)$ towards the selected tokens,

$$ \sum_i\lambda_ie^{-\ell_i} \le \frac\delta\varrho,\qquad
   \cos(p, p_{mm}) \ge \frac PR\Bigl[\log\frac\varrho\delta - \mathrm{KL}(b\,\|\,\lambda)\Bigr],\qquad \cos(v, v_{mm}) \ge 1-\delta . $$

$\varrho$: `Hard.gap`. Source: derived, chapter on the maximum margin.
"""

import math
from dataclasses import dataclass

import numpy as np

from attnbook.single_head.margin import (
    PATTERNS,
    Tokens,
    best_pattern,
    pattern_costs,
    pattern_selection,
    selection_margin,
)
from attnbook.single_head.max_margin.attention_margin import attention_margin
from attnbook.single_head.svm import MaxMargin, NotSeparable
from attnlib.arrays import Floats


def second_best_cost(tokens: Tokens, best: str, costs: dict[str, float]) -> float:
    """|v|^2 of the second best of all hard selections: of the other patterns, and of the best one with one sample more on its noise.

    Enough, because a sample that leaves a signal for its noise never lowers |v|^2: any further selection costs as much as one of these.
    """
    selection = pattern_selection(tokens, best)
    # two patterns are one selection where a class has no such samples
    rivals = [costs[name] for name in PATTERNS if not np.array_equal(pattern_selection(tokens, name), selection)]
    for i in np.flatnonzero(selection):
        other = selection.copy()
        other[i] = 0.0
        try:
            rivals.append(selection_margin(tokens, other).norm_squared)
        except NotSeparable:
            continue
    return min(rivals)


@dataclass(frozen=True)
class Hard:
    """The best hard selection of one training set, its two SVMs and the numbers of the theorem."""

    tokens: Tokens
    pattern: str
    selection: Floats  # (n,)
    v: MaxMargin
    p: MaxMargin
    second: float  # g, the second best hard margin over the best
    rival: float  # the largest y_i v_mm.x on a token that is not selected
    reach: float  # |v_mm| times the longest token that is not selected

    @property
    def divergence(self) -> float:
        r"""KL(b || lambda) between the shares of both SVMs' multipliers; inf where the query rests on a sample that v does not."""
        own, query = (np.maximum(svm.multipliers, 0) / np.maximum(svm.multipliers, 0).sum() for svm in (self.v, self.p))
        used = query > 0
        with np.errstate(divide="ignore"):
            return float((query[used] * np.log(query[used] / own[used])).sum())

    @property
    def level(self) -> float:
        r"""K with $\delta(R)\,e^{R/P} \to e^{-K}$ for the optimum: $\sum_ib_i\log(B_G/(\Lambda_Gc_i))$, where samples with one signal and
        one label form a group G with shares $B_G, \Lambda_G$ of the two SVMs' multipliers, and $c_i = 1 - y_iv_{mm}\cdot o_i$.

        Proved where all constraints of the query are active and both SVMs have independent vectors.
        """
        own, query = (svm.multipliers / svm.multipliers.sum() for svm in (self.v, self.p))
        tokens = self.tokens
        group = np.where(self.selection > 0.5, tokens.classes, 2 + np.arange(tokens.n))
        shares = np.array([own[group == g].sum() for g in group])
        queries = np.array([query[group == g].sum() for g in group])
        others = np.where(self.selection[:, None] > 0.5, tokens.noise, tokens.signal)
        lead = 1 - tokens.labels * (others @ self.v.weights)
        return float((query * np.log(queries / (shares * lead))).sum())

    def gap(self, delta: float) -> float:
        r"""$\varrho = \max(1 - g - \delta,\ 1 - \delta - \kappa_+ - X\sqrt{2\delta})$: a unit v with margin $\Gamma(1-\delta)$ gives each
        token that is not selected at least $\varrho\Gamma$ less than that margin."""
        return max(1 - self.second - delta, 1 - delta - max(self.rival, 0.0) - self.reach * math.sqrt(2 * delta))

    def logits(self, p: Floats) -> Floats:
        """l_i, (n,): the logit of the selected token over the other."""
        return np.asarray((2 * self.selection - 1) * ((self.tokens.signal - self.tokens.noise) @ p))

    def slack(self, p: Floats) -> float:
        r"""$\sum_i\lambda_ie^{-\ell_i}$."""
        share = self.v.multipliers / self.v.multipliers.sum()
        return float(share @ np.exp(-self.logits(p)))

    def cosine_bound(self, delta: float, radius: float) -> float:
        """Lower bound of cos(p, p_mm); -1 where the theorem says nothing (delta >= 1 - g, or an infinite divergence)."""
        if delta >= 1 - self.second:
            return -1.0
        return max(-1.0, self.p.norm / radius * (math.log(self.gap(delta) / delta) - self.divergence))


def best_hard(tokens: Tokens) -> Hard:
    """The best of all hard selections with all that the theorem needs. Raises as `best_pattern` and `hard_margin`."""
    costs = pattern_costs(tokens)
    pattern = best_pattern(costs)
    selection = pattern_selection(tokens, pattern)
    v, p = selection_margin(tokens, selection), attention_margin(tokens, selection)
    others = np.where(selection[:, None] > 0.5, tokens.noise, tokens.signal)
    return Hard(
        tokens, pattern, selection, v, p,
        second=math.sqrt(v.norm_squared / second_best_cost(tokens, pattern, costs)),
        rival=float((tokens.labels * (others @ v.weights)).max()),
        reach=v.norm * float(np.linalg.norm(others, axis=1).max()),
    )  # fmt: skip


def _spread(hard: Hard, on_signals: Floats) -> float:
    r"""$\omega$ of p_mm: standard deviation of $p_{mm}\cdot\xi$ over fresh noise."""
    return math.sqrt(max(hard.p.norm_squared - float((on_signals**2).sum()) / hard.tokens.signal_norm**2, 0.0))


def log10_error_near_signal(
    hard: Hard, on_signals: Floats, cosine: float, margin: float, *, noise_std: float = 1.0
) -> float:
    r"""Upper bound of log10 of the clean error, mean of both classes, where SS is best; 0 where it says nothing.

    $\Phi(-(A_k-\rho P\sqrt{2h})/(\omega+P\sqrt{2h})) + \Phi(-m)$ with $h = 1-\cos(p,p_{mm})$, $A_k = p_{mm}\cdot\mu_k$ = on_signals (2,),
    m the smallest margin of the unit v; noise_std is the standard deviation of a noise coordinate.
    """
    from scipy.special import log_ndtr

    turn = hard.p.norm * math.sqrt(2 * max(1 - cosine, 0.0))
    room = on_signals - hard.tokens.signal_norm * turn
    if not (room > 0).all():
        return 0.0
    lost = np.logaddexp(*log_ndtr(-room / (noise_std * (_spread(hard, on_signals) + turn)))) - math.log(2)
    return min(0.0, float(np.logaddexp(lost, log_ndtr(-margin / noise_std))) / math.log(10))


def error_near_noise(
    hard: Hard, on_signals: Floats, cosines: tuple[float, float], radius: float, *, noise_std: float = 1.0
) -> float:
    r"""Lower bound of the clean error, mean of both classes, where XX is best; 0 where it says nothing.

    $\frac12 - \Phi(-(\theta-A_k-\rho P\sqrt{2h})/(\omega+P\sqrt{2h})) - 2\rho\sqrt{h_v/\pi}\,e^{\theta R/P}/(1-h_v)$; $\theta = 1/4$,
    $h, h_v$ = 1 - cosines of p and v with $p_{mm}$ and $v_{mm}$.
    """
    from scipy.special import ndtr

    h, h_v = (max(1 - c, 0.0) for c in cosines)
    turn = hard.p.norm * math.sqrt(2 * h)
    share = 0.25
    room = share - on_signals - hard.tokens.signal_norm * turn
    if not (room > 0).all() or h_v >= 1:
        return 0.0
    wins = float(ndtr(-room / (noise_std * (_spread(hard, on_signals) + turn))).mean())
    along = hard.tokens.signal_norm / noise_std * math.sqrt(h_v / math.pi) / (1 - h_v)
    return max(0.0, 0.5 - wins - 2 * along * math.exp(share * radius / hard.p.norm))
