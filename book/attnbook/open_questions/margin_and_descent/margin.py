r"""The largest margin of H heads: every head selects one token of every sample, freely.

With selections $s_h \in [0,1]^n$ (1: the signal) and $r_{hi} = s_{hi}u_i + (1-s_{hi})\xi_i$ the margin is the distance of a convex hull,

$$ \Gamma^2(s_1,\dots,s_H) = \min_{\alpha\in\Delta} \sum_h q(\alpha, s_h), \qquad
   q(\alpha, s) = \Bigl|\sum_i \alpha_i y_i r_i(s)\Bigr|^2 = \alpha^\top K(s)\,\alpha, $$

so H heads are a zero-sum game: the heads mix selections, the opponent mixes samples. If one selection $s^*$ and weights $\alpha^*$ are a
saddle point, $q(\alpha^*, s) \le q(\alpha^*, s^*)$ for the $2^n$ hard $s$, then all heads select $s^*$, for every H, soft selections
included, and $|v|^2$ is 1/H of one head's. Gram matrices and exact norms: `head_gram`. Source: derived; proofs in the theory chapter
of Part IV.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from attnbook.open_questions.margin_and_descent.gram import (
    SelectionGram,
    head_norms,
    minimum_norms,
    multipliers,
    selection_gram,
)
from attnbook.single_head.margin import PATTERNS, Tokens, pattern_selection
from attnbook.single_head.svm import NotConverged, NotSeparable
from attnlib import checks

# --- searching selections --------------------------------------------------------------------------------------------------


def every_selection(n: int) -> np.ndarray:
    """The 2^n hard selections of n samples, (2^n, n); n <= 12."""
    if checks.whole_number("n", n, at_least=1) > 12:
        raise ValueError(f"n must be at most 12 for a full enumeration; got {n}: search class-level patterns instead")
    return np.array(list(itertools.product((0.0, 1.0), repeat=n)))


@dataclass(frozen=True)
class Best:
    """The least |v|^2 over sets of selections, and among those in which all heads agree."""

    norm_squared: float
    equal: float
    selections: np.ndarray  # (H, n), of the least
    one: np.ndarray  # (n,), of the best agreeing set

    @property
    def splits(self) -> bool:
        """Heads that disagree are better, by more than rounding."""
        return self.norm_squared < self.equal * (1 - 1e-9)


def best_of(gram: SelectionGram, candidates: np.ndarray, heads: int) -> Best:
    """Best set of `heads` selections out of `candidates` (c, n), heads in any order: c + heads - 1 choose heads exact SVMs."""
    checks.whole_number("heads", heads, at_least=1)
    sets = np.array(list(itertools.combinations_with_replacement(range(len(candidates)), heads)))
    block = max(1, 2_000_000 // gram.n**2)
    norms = np.concatenate([head_norms(gram, candidates[sets[i : i + block]]) for i in range(0, len(sets), block)])
    agree = (sets == sets[:, :1]).all(1)
    if not np.isfinite(norms[agree]).any():
        raise NotSeparable("not separable: no candidate selection separates these samples")
    least, equal = norms.argmin(), np.where(agree, norms, np.inf).argmin()
    if norms[least] > norms[equal] * (1 - 1e-9):
        least = equal  # a tie up to rounding goes to the heads that agree
    return Best(float(norms[least]), float(norms[equal]), candidates[sets[least]], candidates[sets[equal, 0]])


def best_of_all(gram: SelectionGram, heads: int) -> Best:
    """Best of all 2^(n heads) hard selections."""
    return best_of(gram, every_selection(gram.n), heads)


def best_of_patterns(tokens: Tokens, heads: int) -> Best:
    """Best of the class-level patterns of `single_head.margin`, nine per head."""
    candidates = np.unique([pattern_selection(tokens, pattern) for pattern in PATTERNS], axis=0)
    return best_of(selection_gram(tokens), candidates, heads)


def saddle_excess(gram: SelectionGram, selection: np.ndarray) -> float:
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


def soft_ascent(gram: SelectionGram, start: np.ndarray, *, steps: int = 60) -> tuple[np.ndarray, np.ndarray]:
    r"""Projected gradient descent on log |v|^2 over soft selections, from `start` (B, H, n); the end and its norms (B,).

    $\partial |v|^2/\partial s_{hi} = -2\alpha_i\left[(S(s_h\circ\alpha))_i - (N((1-s_h)\circ\alpha))_i\right]$ with the
    SVM's multipliers. A step that does not improve is halved away: the norm never rises.
    """
    checks.whole_number("steps", steps, at_least=1)
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


def norm_gradient(gram: SelectionGram, selections: np.ndarray, alpha: np.ndarray | None = None) -> np.ndarray:
    r"""Derivative of $|v|^2$ with respect to soft selections s (B, H, n): the formula of `soft_ascent`; 0 where there is no v.

    Only the Gram matrix moves with s, the multipliers at the optimum do not to first order (envelope theorem). alpha: the
    multipliers, if known.
    """
    alpha = multipliers(gram.of(selections)) if alpha is None else alpha
    alpha = np.where(np.isfinite(alpha), alpha, 0.0)[:, None, :]
    on_signal, on_noise = selections * alpha, (1 - selections) * alpha
    return -2 * alpha * (on_signal @ gram.signal - on_noise @ gram.noise)


# --- orthogonal noise: closed forms ----------------------------------------------------------------------------------------


def class_cost(
    clean: float, flipped: float, signal_norm: float, d: float, heads: int, on_clean: int, on_flipped: int = 0
) -> float:
    r"""$|v|^2$ of one class with orthogonal noise, j heads giving the signal to the clean and k others to the flipped samples:

    $$ \frac1{j\rho^2 + (H-j)\,d/|C|} + \frac1{k\rho^2 + (H-k)\,d/|N|}. $$
    """
    checks.whole_number("heads", heads, at_least=1)
    checks.whole_number("on_clean", on_clean, at_least=0)
    checks.whole_number("on_flipped", on_flipped, at_least=0)
    if on_clean + on_flipped > heads:
        raise ValueError(f"on_clean + on_flipped must be at most heads = {heads}; got {on_clean} + {on_flipped}")
    square = checks.positive_number("signal_norm", signal_norm) ** 2

    def part(samples: float, j: int) -> float:
        return samples / (j * square * samples + (heads - j) * d) if samples else 0.0

    return part(clean, on_clean) + part(flipped, on_flipped)


def best_split(clean: float, flipped: float, signal_norm: float, d: float, heads: int) -> tuple[int, int]:
    """(heads on the signal for clean samples, for flipped ones) of least `class_cost`; ties go to fewer divisions."""
    pairs = [(j, k) for k in range(heads + 1) for j in range(heads, -1, -1) if j + k <= heads]
    return min(pairs, key=lambda pair: class_cost(clean, flipped, signal_norm, d, heads, *pair))


def limit_cost(x: float, u: float) -> float:
    r"""$\lim_{H\to\infty} H\rho^2|v|^2$ of one class, $x = \rho^2|C|/d \ge u = \rho^2|N|/d$: the inverse value of the game.

    $x$ + $u$ for $x \le 1$; $1 + u$ while $u^2 - u \le 1 - 1/x$; then $(a + b)^2/(a^2 + b^2/u)$ with $a^2 = 1 - 1/u$, $b^2 = 1 - 1/x$.
    """
    checks.positive_number("x", x)
    if not 0 <= u <= x:
        raise ValueError(
            f"u must be in [0, x]; got {u} with x = {x}: there are at least as many clean as flipped samples"
        )
    if x <= 1:
        return x + u
    if u * u - u <= 1 - 1 / x:
        return 1 + u
    a, b = math.sqrt(1 - 1 / u), math.sqrt(1 - 1 / x)
    return (a + b) ** 2 / (a * a + b * b / u)


def division_threshold(flipped_share: float, heads: int | None = None) -> float:
    r"""The x above which some head gives the signal to the flipped samples; $\nu = |N|/|C|$, u = $\nu x$, None: $H\to\infty$.

    For H heads where (H-1, 1) costs as much as (H, 0); for $H\to\infty$ where $u^2 - u = 1 - 1/x$. inf without flipped samples.
    """
    nu = checks.probability("flipped_share", flipped_share)
    if heads is not None:
        checks.whole_number("heads", heads, at_least=2, hint="one head cannot divide")
    if nu == 0:
        return math.inf
    from scipy.optimize import brentq

    def gain(log_x: float) -> float:
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


def tie_norm(gram: SelectionGram, clean: int) -> float:
    """The factor on the signals at which one head is indifferent between SS and XX: one class, clean samples first."""
    rho2 = gram.signal[0, 0]
    none, flipped = np.zeros((1, gram.n)), gram.noise[clean:, clean:]
    extra = head_norms(gram, none[None])[0] - (minimum_norms(flipped[None])[0] if len(flipped) else 0.0)
    if not extra > 0:
        raise NotConverged("the clean samples' noise must cost something; got no positive cost")
    return math.sqrt(1 / (extra * rho2))
