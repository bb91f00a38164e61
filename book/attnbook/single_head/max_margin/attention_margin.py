r"""The attention side of the maximum margin: the query's SVM, finite norms, and the joint problem.

For a hard selection the query's SVM is $p = \arg\min |p|^2$ such that every sample's selected token beats its other tokens by 1.
With $v$ and $p$ of bounded norms the rule of the paper is

$$ \max_{|v|\le r,\,|p|\le R}\; \min_i y_i f(X_i; v, p) \;=\; r \max_{|p|\le R} \Gamma(s(p)), \qquad s_i(p) = \sigma(p\cdot(u_i-\xi_i)) : $$

given p, the best v is an SVM, solved exactly. So only p is left to search, with the exact gradient of that SVM's value, by SLSQP.
Source: derived, chapter on the maximum margin. Needs scipy and clarabel (extra `margin`).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.single_head.margin import Tokens, pattern_selection, selection_margin
from attnbook.single_head.svm import MaxMargin, NotConverged, NotSeparable, hard_margin
from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import Sample
from attnlib.single_head.population import FreshScores, log10_clean_error, scores_of_fresh_data


def attention_margin(tokens: Tokens, selection: np.ndarray) -> MaxMargin:
    """The query's SVM of a hard selection (n,): p.(selected - other) >= 1 for every sample. Raises as `hard_margin`."""
    s = np.asarray(selection, dtype=float)
    tokens.mixed(s)  # checks the shape
    if not np.isin(s, (0.0, 1.0)).all():
        raise ValueError("selection must be hard (0 or 1) for the query's SVM; got weights in between")
    return hard_margin(tokens.signal - tokens.noise, 2 * s - 1)


def attention_margin_of_all_tokens(sample: Sample, selected: np.ndarray, run: int = 0) -> MaxMargin:
    """The query's SVM for T tokens: the selected one (n,) beats each of the T-1 others by 1: n(T-1) constraints."""
    all_tokens = sample.run(run).tokens[0].numpy()  # (n, T, m)
    n, T, m = all_tokens.shape
    chosen = np.asarray(selected)
    if chosen.shape != (n,) or not np.isin(chosen, np.arange(T)).all():
        raise ValueError(f"selected must be {n} token indices below {T}; got shape {chosen.shape}")
    others = np.arange(T)[None, :] != chosen[:, None]
    rows = (all_tokens[np.arange(n), chosen][:, None, :] - all_tokens)[others]
    return hard_margin(rows.reshape(-1, m), np.ones(n * (T - 1)))


@dataclass(frozen=True)
class ClosedForm:
    """The query's SVM in the orthogonal limit."""

    on_signals: np.ndarray  # (2,), p.mu_k
    on_noise: np.ndarray  # (n,), p.xi_i
    norm_squared: float  # |p|^2


def closed_form(tokens: Tokens, selection: np.ndarray) -> ClosedForm:
    r"""Orthogonal limit: with $\epsilon_i = +1$ where the signal is selected, else $-1$, and $S_k = \sum_{I_k}\epsilon_i$,

    $$ p\cdot\mu_k = A_k = \frac{\rho^2 S_k}{d + \rho^2 n_k}, \qquad p\cdot\xi_i = A_k - \epsilon_i, \qquad
       |p|^2 = \sum_k \frac{n_k}{d} - \frac{(S_k/d)^2}{1/\rho^2 + n_k/d}. $$
    """
    sign = 2 * np.asarray(selection, dtype=float) - 1
    rho2, d = tokens.signal_norm**2, tokens.noise_scale
    held = np.stack([tokens.classes == 0, tokens.classes == 1])
    size, total = held.sum(1), (held * sign).sum(1)
    on_signals = rho2 * total / (d + rho2 * size)
    norm_squared = (size / d - (total / d) ** 2 / (1 / rho2 + size / d)).sum()
    return ClosedForm(on_signals, on_signals[tokens.classes] - sign, float(norm_squared))


def weight_on_signal(tokens: Tokens, p: np.ndarray) -> np.ndarray:
    """s_i(p) = sigma(p.(u_i - xi_i)), (n,)."""
    return torch.sigmoid(torch.as_tensor((tokens.signal - tokens.noise) @ p)).numpy()


def directional_margin(tokens: Tokens, v: np.ndarray, p: np.ndarray) -> float:
    """min_i y_i f(X_i; v, p) / |v|."""
    return float((tokens.labels * (tokens.mixed(weight_on_signal(tokens, p)) @ v)).min() / np.linalg.norm(v))


_WALL = 100.0  # log |v| where no v exists

# --- the constrained optimum -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Optimum:
    """Best of several starts of a search over p; v is the exact SVM of the soft selection s(p)."""

    p: np.ndarray  # (m,)
    v: np.ndarray  # (m,), minimum norm with margin 1
    value: float  # constrained: largest margin of a unit v; joint: |v|^2 gamma^2 + |p|^2
    start: str  # which start won
    values: dict[str, float]  # what each start reached
    radius: float  # |p|


def _search_space(tokens: Tokens) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal basis (m, k) of the span of u_i - xi_i (nothing else of p is ever seen) and the differences in it (n, k)."""
    differences = tokens.signal - tokens.noise
    basis, _ = np.linalg.qr(differences.T)
    return basis, differences @ basis


def _log_norm(
    tokens: Tokens, differences: np.ndarray, z: np.ndarray, tolerance: float = 1e-8
) -> tuple[float, np.ndarray]:
    r"""log |v(s(p))| and its gradient with respect to z, the coordinates of p.

    The multipliers $\alpha$ of the margin problem do not move to first order (envelope theorem), so $\partial(|v|^2/2)/\partial s_i
    = -\alpha_iy_i\,v\cdot(u_i-\xi_i)$; then $\partial s_i/\partial z = s_i(1-s_i)D_i$, D_i the difference of sample i's tokens, and
    $d\log|v| = d(|v|^2/2)/|v|^2$.
    """
    s = torch.sigmoid(torch.as_tensor(differences @ z)).numpy()
    svm = hard_margin(tokens.mixed(s), tokens.labels, tolerance=tolerance)
    slope = -svm.multipliers * tokens.labels * ((tokens.signal - tokens.noise) @ svm.weights)
    return math.log(svm.norm), differences.T @ (slope * s * (1 - s)) / svm.norm_squared


def _starts(
    tokens: Tokens, basis: np.ndarray, patterns: tuple[str, ...], random_starts: int, seed: int
) -> dict[str, np.ndarray]:
    """Unit directions: the query's SVM of class patterns, and random ones."""
    found = {}
    for pattern in patterns:
        try:
            found[pattern] = attention_margin(tokens, pattern_selection(tokens, pattern)).weights @ basis
        except NotSeparable:
            continue
    rng = stream(seed, "search")
    for i in range(random_starts):
        found[f"random {i + 1}"] = rng.standard_normal(basis.shape[1])
    return {name: z / np.linalg.norm(z) for name, z in found.items()}


def constrained_optimum(
    tokens: Tokens, radius: float, *, patterns: tuple[str, ...] = ("SS", "XX", "SX", "XS"), random_starts: int = 2,
    seed: int = 0, max_iterations: int = 200,
) -> Optimum:  # fmt: skip
    """max over |p| <= radius of the margin of the best unit v, by SLSQP from several starts.

    Raises ValueError for radius <= 0 (with |p| = 0 attention is uniform and there is nothing to choose), NotConverged when every
    start stopped at `max_iterations`.
    """
    checks.positive_number("radius", radius, hint="with |p| = 0 attention is uniform and nothing is selected")
    checks.whole_number("random_starts", random_starts, at_least=0)
    checks.whole_number("max_iterations", max_iterations, at_least=1)
    from scipy.optimize import minimize

    basis, differences = _search_space(tokens)
    inside = {"type": "ineq", "fun": lambda z: 1 - z @ z, "jac": lambda z: -2 * z}

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        # A trial step may land where attention is so hard on a bad selection that it is not separable in float64: a wall, from
        # which the line search turns back. On the way a KKT residual of 1e-3 will do; what is returned is held to 1e-8.
        try:
            value, gradient = _log_norm(tokens, differences, radius * z, 1e-3)
        except (NotSeparable, NotConverged):
            return _WALL, np.zeros_like(z)
        return value, radius * gradient

    found, exhausted = {}, 0
    for name, z in _starts(tokens, basis, patterns, random_starts, seed).items():
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
        found[name] = (math.exp(-value), end)
    if exhausted == len(found):
        raise NotConverged(
            f"the search over |p| <= {radius:.3g} must converge from one start at least within {max_iterations} steps; "
            "none did: raise max_iterations or lower the radius"
        )
    name = max(found, key=lambda key: found[key][0])
    p = basis @ (radius * found[name][1])
    svm = selection_margin(tokens, weight_on_signal(tokens, p))
    values = {key: value for key, (value, _) in found.items()}
    return Optimum(p, svm.weights, found[name][0], name, values, float(np.linalg.norm(p)))


def joint_optimum(
    tokens: Tokens, margin: float, *, patterns: tuple[str, ...] = ("SS", "XX"), max_iterations: int = 200
) -> Optimum:
    """min |v|^2 + |p|^2 subject to y_i f >= margin: min over R of margin^2 / (largest margin at |p| <= R)^2 + R^2.

    The inner problem by `constrained_optimum`, the outer one by Brent's bounded method on log R (relative accuracy 1e-2; the
    value itself is flat there). v has margin 1 (multiply by `margin`). Raises ValueError for margin <= 0, NotConverged as above
    or when the best R is at an end of the searched interval.
    """
    checks.positive_number("margin", margin)
    from scipy.optimize import minimize_scalar

    scale = min(attention_margin(tokens, pattern_selection(tokens, name)).norm for name in patterns)
    gamma = max(selection_margin(tokens, pattern_selection(tokens, name)).margin for name in patterns)
    guess = joint_radius(margin, gamma, scale)
    tried: dict[float, Optimum] = {}

    def cost(log_radius: float) -> float:
        radius = math.exp(log_radius)
        best = constrained_optimum(tokens, radius, patterns=patterns, random_starts=0, max_iterations=max_iterations)
        tried[log_radius] = best
        return math.log((margin / best.value) ** 2 + math.exp(2 * log_radius))

    ends = math.log(guess / 4), math.log(3 * guess)
    done = minimize_scalar(cost, bounds=ends, method="bounded", options={"xatol": 1e-2})
    if not done.success or min(done.x - ends[0], ends[1] - done.x) < 1e-2:
        raise NotConverged(f"the search over |p| must end inside its interval; got {math.exp(done.x):.4g}")
    best = tried[min(tried, key=lambda x: abs(x - done.x))]
    return Optimum(best.p, best.v, math.exp(done.fun), best.start, best.values, best.radius)


def joint_radius(margin: float, gamma: float, size: float) -> float:
    r"""$R = P\, W(2\gamma^2/(P\Gamma)^2)$: the norm of p that balances the joint problem along the candidate, to leading order.

    margin: the demanded $\gamma$; gamma: $\Gamma$ of the selection; size: $P = |p_{mm}|$. W is Lambert's function, so R grows
    like log gamma. From $\min_R (\gamma/\Gamma)^2 (1 + 4e^{-R/P}) + R^2$.
    """
    from scipy.special import lambertw

    return float(size * lambertw(2 * (checks.positive_number("margin", margin) / (size * gamma)) ** 2).real)


# --- error on fresh data ---------------------------------------------------------------------------------------------------


def log10_error(sample: Sample, v: np.ndarray, p: np.ndarray, run: int = 0) -> float:
    """Exact log10 clean error of (v, p), both (m,), on the law of `sample`, in the coordinates of its run."""
    as_tensor = {"dtype": sample.tokens.dtype, "device": sample.tokens.device}
    v, p = (torch.as_tensor(x, **as_tensor).unsqueeze(0) for x in (v, p))
    return log10_clean_error(v, p, sample.run(run)).item()


def _scores(sample: Sample, v: np.ndarray, p: np.ndarray, run: int) -> FreshScores:
    v, p = (torch.as_tensor(x, dtype=sample.tokens.dtype).unsqueeze(0) for x in (v, p))
    return scores_of_fresh_data(v, p, sample.run(run))


def limit_error(sample: Sample, v: np.ndarray, p: np.ndarray, run: int = 0) -> tuple[float, float]:
    r"""log10 of the clean error of (v, R p) as R goes to infinity, and of its bound; for v.mu of the right sign.

    A fresh sample of class k is then lost exactly if its noise beats the signal, $t = p\cdot\xi > A_k = p\cdot\mu_k$, and
    $v\cdot\xi$ has the wrong sign. So $\mathrm{err}_k = \int_{A_k}^\infty N(t; 0, \omega^2)\,\Phi(-c_k t/(\omega\tau))\,dt
    \le \Phi(-A_k/\omega)$, with $\omega, c_k, \tau$ of `population`.
    """
    s = _scores(sample, v, p, run)
    if not (s.value > 0).all():
        raise ValueError("v must have the right sign on both signals; got the wrong one")
    errors, bounds = [], []
    for k in (0, 1):
        cut = (s.logit / s.omega)[0, k]
        # Beyond the cut the density falls at least like exp(-t^2/2): 40 standard deviations past it nothing is left.
        t = torch.linspace(0, 1, 400_001, dtype=s.tau.dtype) * 40 + cut
        log_density = torch.special.log_ndtr(-(s.along / s.tau)[0, k] * t) - t**2 / 2 - 0.5 * math.log(2 * math.pi)
        weights = torch.ones_like(t)
        weights[[0, -1]] = 0.5
        errors.append(torch.logsumexp(log_density + weights.log(), 0) + math.log(40 / 400_000))
        bounds.append(torch.special.log_ndtr(-cut))
    mean = [torch.logsumexp(torch.stack(x), 0).item() - math.log(2) for x in (errors, bounds)]
    return mean[0] / math.log(10), mean[1] / math.log(10)
