r"""The largest margin of H heads: every head selects one token of every sample, freely.

With selections $s_h \in [0,1]^n$ (1: the signal) and $r_{hi} = s_{hi}u_i + (1-s_{hi})\xi_i$ the margin is the distance of a convex hull,

$$ \Gamma^2(s_1,\dots,s_H) = \min_{\alpha\in\Delta} \sum_h q(\alpha, s_h), \qquad
   q(\alpha, s) = \Bigl|\sum_i \alpha_i y_i r_i(s)\Bigr|^2 = \alpha^\top K(s)\,\alpha, $$

so H heads are a zero-sum game: the heads mix selections, the opponent mixes samples. If one selection $s^*$ and weights $\alpha^*$ are a
saddle point, $q(\alpha^*, s) \le q(\alpha^*, s^*)$ for the $2^n$ hard $s$, then all heads select $s^*$, for every H, soft selections
included, and $|v|^2$ is 1/H of one head's. Source: derived; proofs in the theory chapter of Part IV.

**Gram matrices.** Noise is orthogonal to the signals, so a selection has $K(s) = ss^\top\!\circ S + (1-s)(1-s)^\top\!\circ N$, with
$S_{ij} = y_iy_j\,u_i\cdot u_j$ and $N_{ij} = y_iy_j\,\xi_i\cdot\xi_j$, and H heads have the sum of theirs: a sample poses one constraint on
the stacked vectors.

**The joint problem**: min $\sum_h |v_h|^2 + |p_h|^2$ subject to $y_i f(X_i) \ge \gamma$. Only the logits
$z_{hi} = p_h\cdot(u_i - \xi_i)$ matter, and the shortest $p_h$ with given logits has $|p_h|^2 = z_h^\top M^{-1} z_h$, M the
Gram matrix of $u_i - \xi_i$. With the exact SVM of the soft selections $\sigma(z_h)$ inside,

$$ J_H(\gamma) = \min_z\; \gamma^2 |v(\sigma(z))|^2 + \sum_h z_h^\top M^{-1} z_h . $$

Equal heads give $J_H(\gamma) \le H J_1(\gamma/H)$ (derived); that nothing is much better is a conjecture.
"""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq, minimize

from attnbook.single_head.margin import PATTERNS, pattern_selection
from attnbook.single_head.svm import NotConverged, NotSeparable, hard_margin
from attnlib.gaussian import bartlett_rows
from attnlib.randomness import stream

_WALL = 1e12  # value of the joint problem where attention is so hard on a bad selection that no v exists in float64

# --- the Gram matrix of a selection ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectionGram:
    """Signed Gram matrices of the signal tokens, S_ij = y_i y_j u_i.u_j, and of the noise tokens, N_ij, both (n, n)."""

    signal: np.ndarray
    noise: np.ndarray

    @property
    def n(self):
        return len(self.signal)

    def of(self, selections):
        """K of H heads, the sum over heads of K(s_h): selections (..., H, n) in [0, 1] -> (..., n, n)."""
        s = np.asarray(selections, dtype=float)
        on_signal, on_noise = np.swapaxes(s, -1, -2) @ s, np.swapaxes(1 - s, -1, -2) @ (1 - s)
        return on_signal * self.signal + on_noise * self.noise

    def with_signal_scaled(self, factor):
        """The same draw with signals `factor` times as long."""
        return replace(self, signal=self.signal * factor**2)


def selection_gram(tokens):
    """The two Gram matrices of a training set."""
    sign = np.outer(tokens.labels, tokens.labels)
    same = tokens.classes[:, None] == tokens.classes[None, :]
    # Exact entries rho^2: equal rows are then equal to the last bit, which is how `minimum_norms` knows them.
    noise = tokens.noise @ tokens.noise.T
    return SelectionGram(sign * same * tokens.signal_norm**2, sign * (noise + noise.T) / 2)


def one_class(clean, flipped, d, signal_norm, *, seed=0, run=0, orthogonal=False):
    """One class: `clean` samples, then `flipped` ones, with Gaussian noise in d - 2 dimensions, or orthogonal noise of length sqrt(d)."""
    n = clean + flipped
    labels = np.r_[np.ones(clean), -np.ones(flipped)]
    sign = np.outer(labels, labels)
    if orthogonal:
        return SelectionGram(sign * signal_norm**2, d * np.eye(n))
    rows = bartlett_rows(stream(seed, "noise", run), n, d - 2)
    return SelectionGram(sign * signal_norm**2, sign * (rows @ rows.T))


# --- exact minimum norms, many at once -------------------------------------------------------------------------------------


def multipliers(grams):
    r"""Solutions of $\max_{\alpha\ge0} 2\cdot 1^\top\alpha - \alpha^\top K\alpha$, (B, n, n) -> (B, n); $|v|^2 = 1^\top\alpha$.

    inf where two samples contradict each other. Equal rows are one constraint and share its weight evenly. Where the system of all
    constraints has a solution without a negative multiplier it is optimal (all KKT conditions hold); otherwise smaller active sets
    are tried (n <= 8), and `hard_margin` solves what is left.
    """
    n, index = grams.shape[1], np.arange(grams.shape[1])
    size = grams[:, index, index]
    alike = (size[:, :, None] == size[:, None, :]) & (np.abs(grams) == size[:, :, None])
    contradicts = (alike & (grams < 0)).any((1, 2))
    same = alike & (grams > 0)
    kept = ~np.tril(same, -1).any(2)  # no earlier sample poses the same constraint
    system = np.where(kept[:, :, None] & kept[:, None, :], grams, 0.0)
    system[:, index, index] = np.where(kept, size, 1.0)
    system[contradicts] = np.eye(n)
    alpha = _solved(system, kept)
    alpha[~(alpha >= 0).all(1)] = np.nan
    _smaller_active_sets(grams, kept, alpha)
    for b in np.flatnonzero(np.isnan(alpha).any(1)):
        values, vectors = np.linalg.eigh(grams[b])
        try:
            alpha[b] = hard_margin(vectors * np.sqrt(values.clip(0)), np.ones(n)).multipliers
        except NotSeparable:
            contradicts[b], alpha[b] = True, 0.0
    shared = (same @ alpha[:, :, None])[:, :, 0] / same.sum(2)
    return np.where(contradicts[:, None], np.inf, shared)


def _solved(system, right):
    """Solutions (B, n) of B linear systems with 0/1 right sides; nan where one is singular to rounding."""
    try:
        return np.linalg.solve(system, right[:, :, None].astype(float))[:, :, 0]
    except np.linalg.LinAlgError:
        if len(system) == 1:
            return np.full(right.shape, np.nan)
        return np.concatenate([_solved(system[b : b + 1], right[b : b + 1]) for b in range(len(system))])


def _smaller_active_sets(grams, kept, alpha):
    """Fill the rows of `alpha` that are nan by trying every set of active constraints, largest first: n <= 8 only."""
    n = grams.shape[1]
    if n > 8:
        return
    for active in sorted(itertools.product((False, True), repeat=n), key=sum, reverse=True)[1:-1]:
        open_rows = np.flatnonzero(np.isnan(alpha).any(1))
        if not len(open_rows):
            return
        used = kept[open_rows] & np.array(active)
        gram = grams[open_rows]
        system = np.where(used[:, :, None] & used[:, None, :], gram, np.eye(n))
        trial = _solved(system, used)
        optimal = (trial >= 0).all(1) & ((gram @ trial[:, :, None])[:, :, 0] >= 1 - 1e-9).all(1)
        alpha[open_rows[optimal]] = trial[optimal]


def minimum_norms(grams):
    """|v|^2 of every signed Gram matrix, (B, n, n) -> (B,): exact; inf where it is not separable."""
    return multipliers(grams).sum(1)


def head_norms(gram, selections):
    """|v|^2 = sum_h |v_h|^2 of every set of selections: (B, H, n) -> (B,)."""
    return minimum_norms(gram.of(selections))


# --- searching selections --------------------------------------------------------------------------------------------------


def every_selection(n):
    """The 2^n hard selections of n samples, (2^n, n); n <= 12."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=n)))


@dataclass(frozen=True)
class Best:
    """The least |v|^2 over sets of selections, and among those in which all heads agree."""

    norm_squared: float
    equal: float
    selections: np.ndarray  # (H, n), of the least
    one: np.ndarray  # (n,), of the best agreeing set

    @property
    def splits(self):
        """Heads that disagree are better, by more than rounding."""
        return self.norm_squared < self.equal * (1 - 1e-9)


def best_of(gram, candidates, heads):
    """Best set of `heads` selections out of `candidates` (c, n), heads in any order: c + heads - 1 choose heads exact SVMs."""
    sets = np.array(list(itertools.combinations_with_replacement(range(len(candidates)), heads)))
    block = max(1, 2_000_000 // gram.n**2)
    norms = np.concatenate([head_norms(gram, candidates[sets[i : i + block]]) for i in range(0, len(sets), block)])
    agree = (sets == sets[:, :1]).all(1)
    least, equal = norms.argmin(), np.where(agree, norms, np.inf).argmin()
    if norms[least] > norms[equal] * (1 - 1e-9):
        least = equal  # a tie up to rounding goes to the heads that agree
    return Best(float(norms[least]), float(norms[equal]), candidates[sets[least]], candidates[sets[equal, 0]])


def best_of_all(gram, heads):
    """Best of all 2^(n heads) hard selections."""
    return best_of(gram, every_selection(gram.n), heads)


def best_of_patterns(tokens, heads):
    """Best of the class-level patterns of `single_head.margin`, nine per head."""
    candidates = np.unique([pattern_selection(tokens, pattern) for pattern in PATTERNS], axis=0)
    return best_of(selection_gram(tokens), candidates, heads)


def saddle_excess(gram, selection):
    r"""$\max_s q(\alpha^*, s) / q(\alpha^*, s^*) - 1$ over all hard s, with the SVM weights $\alpha^*$ of one head that selects $s^*$.

    Zero: no number of heads, and no soft selection, beats heads that all select $s^*$ (weak duality). In any case
    $|v|^2 \ge$ one head's / (H (1 + excess)).
    """
    kernel = gram.of(np.asarray(selection, dtype=float)[None])
    alpha = multipliers(kernel[None])[0]
    every = every_selection(gram.n)
    weighted, rest = every * alpha, (1 - every) * alpha
    q = ((weighted @ gram.signal) * weighted).sum(1) + ((rest @ gram.noise) * rest).sum(1)
    return float(q.max() / (alpha @ kernel @ alpha) - 1)


def soft_ascent(gram, start, *, steps=60):
    r"""Projected gradient descent on log |v|^2 over soft selections, from `start` (B, H, n); the end and its norms (B,).

    $\partial |v|^2/\partial s_{hi} = -2\alpha_i\left[(S(s_h\circ\alpha))_i - (N((1-s_h)\circ\alpha))_i\right]$ with the
    SVM's multipliers. A step that does not improve is halved away: the norm never rises.
    """
    s, size = np.array(start, dtype=float), np.full(len(start), 0.5)
    norms = head_norms(gram, s)
    for _ in range(steps):
        slope = norm_gradient(gram, s)
        largest = np.abs(slope).max((1, 2), keepdims=True)
        trial = np.clip(s - size[:, None, None] * slope / np.maximum(largest, 1e-300), 0.0, 1.0)
        reached = head_norms(gram, trial)
        better = reached < norms
        s, norms = np.where(better[:, None, None], trial, s), np.where(better, reached, norms)
        size = np.where(better, np.minimum(1.5 * size, 1.0), size / 2)
    return s, norms


def norm_gradient(gram, selections, alpha=None):
    r"""Derivative of $|v|^2$ with respect to soft selections s (B, H, n): the formula of `soft_ascent`; 0 where there is no v.

    Only the Gram matrix moves with s, the multipliers at the optimum do not to first order (envelope theorem). alpha: the
    multipliers, if known.
    """
    alpha = multipliers(gram.of(selections)) if alpha is None else alpha
    alpha = np.where(np.isfinite(alpha), alpha, 0.0)[:, None, :]
    on_signal, on_noise = selections * alpha, (1 - selections) * alpha
    return -2 * alpha * (on_signal @ gram.signal - on_noise @ gram.noise)


# --- orthogonal noise: closed forms ----------------------------------------------------------------------------------------


def class_cost(clean, flipped, signal_norm, d, heads, on_clean, on_flipped=0):
    r"""$|v|^2$ of one class with orthogonal noise, j heads giving the signal to the clean and k others to the flipped samples:

    $$ \frac1{j\rho^2 + (H-j)\,d/|C|} + \frac1{k\rho^2 + (H-k)\,d/|N|}. $$
    """

    def part(samples, j):
        return samples / (j * signal_norm**2 * samples + (heads - j) * d) if samples else 0.0

    return part(clean, on_clean) + part(flipped, on_flipped)


def best_split(clean, flipped, signal_norm, d, heads):
    """(heads on the signal for clean samples, for flipped ones) of least `class_cost`; ties go to fewer divisions."""
    pairs = [(j, k) for k in range(heads + 1) for j in range(heads, -1, -1) if j + k <= heads]
    return min(pairs, key=lambda pair: class_cost(clean, flipped, signal_norm, d, heads, *pair))


def limit_cost(x, u):
    r"""$\lim_{H\to\infty} H\rho^2|v|^2$ of one class, $x = \rho^2|C|/d \ge u = \rho^2|N|/d$: the inverse value of the game.

    $x$ + $u$ for $x \le 1$; $1 + u$ while $u^2 - u \le 1 - 1/x$; then $(a + b)^2/(a^2 + b^2/u)$ with $a^2 = 1 - 1/u$, $b^2 = 1 - 1/x$.
    """
    if x <= 1:
        return x + u
    if u * u - u <= 1 - 1 / x:
        return 1 + u
    a, b = math.sqrt(1 - 1 / u), math.sqrt(1 - 1 / x)
    return (a + b) ** 2 / (a * a + b * b / u)


def division_threshold(flipped_share, heads=None):
    r"""The x above which some head gives the signal to the flipped samples; $\nu = |N|/|C|$, u = $\nu x$, None: $H\to\infty$.

    For H heads where (H-1, 1) costs as much as (H, 0); for $H\to\infty$ where $u^2 - u = 1 - 1/x$. inf without flipped samples.
    """
    nu = flipped_share
    if nu == 0:
        return math.inf

    def gain(log_x):
        x = math.exp(log_x)
        if heads is None:
            return (nu * x) ** 2 - nu * x - 1 + 1 / x
        agreed, divided = (class_cost(x, nu * x, 1.0, 1.0, heads, heads - k, k) for k in (0, 1))
        return agreed - divided

    # At the lower end u = 1 or x = 1, where agreeing is better; u = 10 lies beyond every threshold.
    low = max(math.log(1 / nu), 0.0)
    if gain(low) >= 0:  # nu = 1: both groups are alike
        return math.exp(low)
    return math.exp(brentq(gain, low, math.log(10 / nu)))


def tie_norm(gram, clean):
    """The factor on the signals at which one head is indifferent between SS and XX: one class, clean samples first."""
    rho2 = gram.signal[0, 0]
    none, flipped = np.zeros((1, gram.n)), gram.noise[clean:, clean:]
    extra = head_norms(gram, none[None])[0] - (minimum_norms(flipped[None])[0] if len(flipped) else 0.0)
    return math.sqrt(1 / (extra * rho2))


# --- a norm on both vectors ------------------------------------------------------------------------------------------------


def _difference_gram(gram, labels):
    """M_ij = (u_i - xi_i).(u_j - xi_j), (n, n): the signs of the labels undone."""
    return (gram.signal + gram.noise) * np.outer(labels, labels)


def attention_norm(gram, labels, selection):
    """|p| of the query's SVM: the shortest p whose logits favour the selected tokens of `selection` (n,) by 1."""
    sign = 2 * np.asarray(selection, dtype=float) - 1
    values, vectors = np.linalg.eigh(_difference_gram(gram, labels))
    return hard_margin(vectors * np.sqrt(values.clip(0)), sign).norm


def joint_value(gram, inverse, margin, logits):
    r"""The objective at logits (H, n) and its gradient (H, n); `inverse` is $M^{-1}$."""
    s = 1 / (1 + np.exp(-np.clip(logits, -40, 40)))[None]
    try:
        alpha = multipliers(gram.of(s))
    except (NotConverged, NotSeparable):
        alpha = np.full((1, gram.n), np.inf)
    if not np.isfinite(alpha).all():
        return _WALL, np.zeros_like(logits)
    # With respect to the logits z_h: ds/dz = s (1 - s) for the first term, and d(z'M^-1 z)/dz = 2 M^-1 z for the second.
    slope = margin**2 * norm_gradient(gram, s, alpha)[0] * (s * (1 - s))[0] + 2 * logits @ inverse
    return float(margin**2 * alpha.sum() + (logits @ inverse * logits).sum()), slope


def joint_cost(gram, labels, heads, margin, selection, *, seed=0):
    """J_H(margin) as found by L-BFGS from several starts, and the norms |p_h| (H,).

    Starts: no attention; one head or all heads towards `selection`; random logits.
    """
    inverse = np.linalg.inv(_difference_gram(gram, labels))
    sign = 2 * np.asarray(selection, dtype=float) - 1
    starts = [np.zeros((heads, gram.n))]
    starts += [np.outer(np.arange(heads) < k, sign) for k in sorted({1, heads})]
    starts.append(stream(seed, "search").standard_normal((heads, gram.n)))
    shape = (heads, gram.n)

    def objective(z):
        value, slope = joint_value(gram, inverse, margin, z.reshape(shape))
        return value, slope.ravel()

    done = [
        minimize(objective, z.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300, "ftol": 1e-12})
        for z in starts
    ]
    best = min(done, key=lambda end: end.fun)
    logits = best.x.reshape(shape)
    return float(best.fun), np.sqrt((logits @ inverse * logits).sum(1))
