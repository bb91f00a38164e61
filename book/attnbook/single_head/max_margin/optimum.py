r"""The optimum at finite norms: the search for it, and how far it is from the hard solution.

With $v$ and $p$ of bounded norms the rule of the paper is

$$ \max_{|v|\le r,\,|p|\le R}\; \min_i y_i f(X_i; v, p) \;=\; r \max_{|p|\le R} \Gamma(s(p)), \qquad s_i(p) = \sigma(p\cdot(u_i-\xi_i)) : $$

given p, the best v is an SVM, solved exactly. So only p is left to search, with the exact gradient of that SVM's value, by SLSQP.

Let $s^\star$ be the unique best hard selection, with SVM $v_{mm} = \sum_i \alpha_iy_ir_i$, $\Gamma = 1/|v_{mm}|$ and shares
$\lambda_i = \alpha_i/\sum\alpha$; $p_{mm} = \sum_i\beta_i\epsilon_i(u_i-\xi_i)$ its query, $P = |p_{mm}|$, $b_i = \beta_i/\sum\beta$; and
$g = \Gamma_2/\Gamma$, $\Gamma_2$ the second best hard margin. For a unit v and |p| <= R with margin $\Gamma(1-\delta)$, $\delta < 1-g$,
and logits $\ell_i = \epsilon_i\,p\cdot(u_i-\xi_i)$ towards the selected tokens,

$$ \sum_i\lambda_ie^{-\ell_i} \le \frac\delta\varrho,\qquad
   \cos(p, p_{mm}) \ge \frac PR\Bigl[\log\frac\varrho\delta - \mathrm{KL}(b\,\|\,\lambda)\Bigr],\qquad \cos(v, v_{mm}) \ge 1-\delta . $$

$\varrho$: `Hard.gap`. Source: derived, chapter on the maximum margin. Needs scipy and clarabel (extra `margin`).
"""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
from scipy.optimize import minimize, minimize_scalar
from scipy.special import lambertw, log_ndtr, ndtr

from attnbook.single_head.margin import (
    PATTERNS,
    Tokens,
    attention_margin,
    best_pattern,
    pattern_costs,
    pattern_selection,
    selection_margin,
)
from attnbook.single_head.svm import MaxMargin, NotConverged, NotSeparable, hard_margin
from attnlib.arrays import Floats
from attnlib.randomness import stream

_WALL = 100.0  # log |v| where no v exists


def weight_on_signal(tokens, p):
    """s_i(p) = sigma(p.(u_i - xi_i)), (n,)."""
    return torch.sigmoid(torch.as_tensor((tokens.signal - tokens.noise) @ p)).numpy()


def directional_margin(tokens, v, p):
    """min_i y_i f(X_i; v, p) / |v|."""
    return float((tokens.labels * (tokens.mixed(weight_on_signal(tokens, p)) @ v)).min() / np.linalg.norm(v))


def _log_norm(tokens, differences, z, tolerance=1e-8):
    r"""log |v(s(p))| and its gradient with respect to z, the coordinates of p.

    The multipliers $\alpha$ of the margin problem do not move to first order (envelope theorem), so $\partial(|v|^2/2)/\partial s_i
    = -\alpha_iy_i\,v\cdot(u_i-\xi_i)$; then $\partial s_i/\partial z = s_i(1-s_i)D_i$, D_i the difference of sample i's tokens, and
    $d\log|v| = d(|v|^2/2)/|v|^2$.
    """
    s = torch.sigmoid(torch.as_tensor(differences @ z)).numpy()
    svm = hard_margin(tokens.mixed(s), tokens.labels, tolerance=tolerance)
    slope = -svm.multipliers * tokens.labels * ((tokens.signal - tokens.noise) @ svm.weights)
    return math.log(svm.norm), differences.T @ (slope * s * (1 - s)) / svm.norm_squared


def _starts(tokens, basis, patterns, random_starts, seed):
    """Unit directions: the query's SVM of class patterns, and random ones."""
    found = []
    for pattern in patterns:
        try:
            found.append(attention_margin(tokens, pattern_selection(tokens, pattern)).weights @ basis)
        except NotSeparable:
            continue
    rng = stream(seed, "search")
    found += [rng.standard_normal(basis.shape[1]) for _ in range(random_starts)]
    return [z / np.linalg.norm(z) for z in found]


def constrained_optimum(
    tokens, radius, *, patterns=("SS", "XX", "SX", "XS"), random_starts=2, seed=0, max_iterations=200
):
    """max over |p| <= radius of the margin of the best unit v, by SLSQP from several starts: p, v, value and |p| of the best end.

    v is the exact SVM of the soft selection s(p), with margin 1. Raises NotConverged when every start stopped at `max_iterations`.
    """
    # Nothing of p is ever seen but its part in the span of u_i - xi_i.
    differences = tokens.signal - tokens.noise
    basis, _ = np.linalg.qr(differences.T)
    differences = differences @ basis
    inside = {"type": "ineq", "fun": lambda z: 1 - z @ z, "jac": lambda z: -2 * z}

    def objective(z):
        # A trial step may land where attention is so hard on a bad selection that it is not separable in float64: a wall, from
        # which the line search turns back. On the way a KKT residual of 1e-3 will do; what is returned is held to 1e-8.
        try:
            value, gradient = _log_norm(tokens, differences, radius * z, 1e-3)
        except (NotSeparable, NotConverged):
            return _WALL, np.zeros_like(z)
        return value, radius * gradient

    ends, exhausted = [], 0
    for z in _starts(tokens, basis, patterns, random_starts, seed):
        done = minimize(
            objective, 0.9 * z, jac=True, method="SLSQP", constraints=[inside],
            options={"maxiter": max_iterations, "ftol": 1e-9},
        )  # fmt: skip
        end = done.x / max(1.0, np.linalg.norm(done.x))  # rounding may leave the ball
        try:
            value, _ = _log_norm(tokens, differences, radius * end)
        except (NotSeparable, NotConverged):
            continue
        exhausted += done.status == 9
        ends.append((math.exp(-value), end))
    if exhausted == len(ends):
        raise NotConverged(
            f"the search over |p| <= {radius:.3g} must converge from one start at least within {max_iterations} steps; "
            "none did: raise max_iterations or lower the radius"
        )
    value, end = max(ends, key=lambda pair: pair[0])
    p = basis @ (radius * end)
    v = selection_margin(tokens, weight_on_signal(tokens, p)).weights
    return SimpleNamespace(p=p, v=v, value=value, radius=float(np.linalg.norm(p)))


def joint_optimum(tokens, margin, *, patterns=("SS", "XX"), max_iterations=200):
    """min |v|^2 + |p|^2 subject to y_i f >= margin: min over R of margin^2 / (largest margin at |p| <= R)^2 + R^2.

    The inner problem by `constrained_optimum`, the outer one by Brent's bounded method on log R (relative accuracy 1e-2; the
    value itself is flat there). v has margin 1 (multiply by `margin`). Raises NotConverged as above or when the best R is at an end
    of the searched interval.
    """
    scale = min(attention_margin(tokens, pattern_selection(tokens, name)).norm for name in patterns)
    gamma = max(selection_margin(tokens, pattern_selection(tokens, name)).margin for name in patterns)
    guess, tried = joint_radius(margin, gamma, scale), {}

    def cost(log_radius):
        best = constrained_optimum(
            tokens, math.exp(log_radius), patterns=patterns, random_starts=0, max_iterations=max_iterations
        )
        tried[log_radius] = best
        return math.log((margin / best.value) ** 2 + math.exp(2 * log_radius))

    ends = math.log(guess / 4), math.log(3 * guess)
    done = minimize_scalar(cost, bounds=ends, method="bounded", options={"xatol": 1e-2})
    if not done.success or min(done.x - ends[0], ends[1] - done.x) < 1e-2:
        raise NotConverged(f"the search over |p| must end inside its interval; got {math.exp(done.x):.4g}")
    best = tried[min(tried, key=lambda x: abs(x - done.x))]
    best.value = math.exp(done.fun)
    return best


def joint_radius(margin, gamma, size):
    r"""$R = P\, W(2\gamma^2/(P\Gamma)^2)$: the norm of p that balances the joint problem along the candidate, to leading order.

    margin: the demanded $\gamma$; gamma: $\Gamma$ of the selection; size: $P = |p_{mm}|$. W is Lambert's function, so R grows
    like log gamma. From $\min_R (\gamma/\Gamma)^2 (1 + 4e^{-R/P}) + R^2$.
    """
    return float(size * lambertw(2 * (margin / (size * gamma)) ** 2).real)


# --- the hard solution nearby ----------------------------------------------------------------------------------------------


def second_best_cost(tokens, best, costs):
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
    def divergence(self):
        r"""KL(b || lambda) between the shares of both SVMs' multipliers; inf where the query rests on a sample that v does not."""
        own, query = (np.maximum(svm.multipliers, 0) / np.maximum(svm.multipliers, 0).sum() for svm in (self.v, self.p))
        used = query > 0
        with np.errstate(divide="ignore"):
            return float((query[used] * np.log(query[used] / own[used])).sum())

    @property
    def level(self):
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

    def gap(self, delta):
        r"""$\varrho = \max(1 - g - \delta,\ 1 - \delta - \kappa_+ - X\sqrt{2\delta})$: a unit v with margin $\Gamma(1-\delta)$ gives each
        token that is not selected at least $\varrho\Gamma$ less than that margin."""
        return max(1 - self.second - delta, 1 - delta - max(self.rival, 0.0) - self.reach * math.sqrt(2 * delta))

    def logits(self, p):
        """l_i, (n,): the logit of the selected token over the other."""
        return np.asarray((2 * self.selection - 1) * ((self.tokens.signal - self.tokens.noise) @ p))

    def slack(self, p):
        r"""$\sum_i\lambda_ie^{-\ell_i}$."""
        share = self.v.multipliers / self.v.multipliers.sum()
        return float(share @ np.exp(-self.logits(p)))

    def cosine_bound(self, delta, radius):
        """Lower bound of cos(p, p_mm); -1 where the theorem says nothing (delta >= 1 - g, or an infinite divergence)."""
        if delta >= 1 - self.second:
            return -1.0
        return max(-1.0, self.p.norm / radius * (math.log(self.gap(delta) / delta) - self.divergence))


def best_hard(tokens):
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


def _spread(hard, on_signals):
    r"""$\omega$ of p_mm: standard deviation of $p_{mm}\cdot\xi$ over fresh noise."""
    return math.sqrt(max(hard.p.norm_squared - float((on_signals**2).sum()) / hard.tokens.signal_norm**2, 0.0))


def log10_error_near_signal(hard, on_signals, cosine, margin, *, noise_std=1.0):
    r"""Upper bound of log10 of the clean error, mean of both classes, where SS is best; 0 where it says nothing.

    $\Phi(-(A_k-\rho P\sqrt{2h})/(\omega+P\sqrt{2h})) + \Phi(-m)$ with $h = 1-\cos(p,p_{mm})$, $A_k = p_{mm}\cdot\mu_k$ = on_signals (2,),
    m the smallest margin of the unit v; noise_std is the standard deviation of a noise coordinate.
    """
    turn = hard.p.norm * math.sqrt(2 * max(1 - cosine, 0.0))
    room = on_signals - hard.tokens.signal_norm * turn
    if not (room > 0).all():
        return 0.0
    lost = np.logaddexp(*log_ndtr(-room / (noise_std * (_spread(hard, on_signals) + turn)))) - math.log(2)
    return min(0.0, float(np.logaddexp(lost, log_ndtr(-margin / noise_std))) / math.log(10))


def error_near_noise(hard, on_signals, cosines, radius, *, noise_std=1.0):
    r"""Lower bound of the clean error, mean of both classes, where XX is best; 0 where it says nothing.

    $\frac12 - \Phi(-(\theta-A_k-\rho P\sqrt{2h})/(\omega+P\sqrt{2h})) - 2\rho\sqrt{h_v/\pi}\,e^{\theta R/P}/(1-h_v)$; $\theta = 1/4$,
    $h, h_v$ = 1 - cosines of p and v with $p_{mm}$ and $v_{mm}$.
    """
    h, h_v = (max(1 - c, 0.0) for c in cosines)
    turn = hard.p.norm * math.sqrt(2 * h)
    share = 0.25
    room = share - on_signals - hard.tokens.signal_norm * turn
    if not (room > 0).all() or h_v >= 1:
        return 0.0
    wins = float(ndtr(-room / (noise_std * (_spread(hard, on_signals) + turn))).mean())
    along = hard.tokens.signal_norm / noise_std * math.sqrt(h_v / math.pi) / (1 - h_v)
    return max(0.0, 0.5 - wins - 2 * along * math.exp(share * radius / hard.p.norm))
