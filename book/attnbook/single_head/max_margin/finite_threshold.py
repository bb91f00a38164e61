r"""The threshold of the maximum margin at finite d: exact by the noise alone, and two-sided bounds for Gaussian noise.

The signals are orthogonal to all noise, so a hard selection that uses u signals and leaves the samples A on their noise costs

$$ |v|^2 = \frac u{\rho^2} + W(A), \qquad W(A) = \min\{|w|^2 : y_i\,w\cdot\xi_i \ge 1,\ i \in A\}. $$

With B the other class's samples on noise, class k takes its signal iff $1/\rho^2 < \Delta_k(B) = W(I_k\cup B) - W(N_k\cup B)$.
Source: derived, chapter on the maximum margin. Needs scipy and clarabel (extra `margin`).
"""

import math

from attnbook.single_head.margin import Tokens
from attnbook.single_head.svm import hard_margin
from attnlib import checks
from attnlib.arrays import Bools


def noise_cost(tokens: Tokens, samples: Bools) -> float:
    """W(A), the squared norm of the noise SVM of the marked samples (n,); 0 for none. Raises as `hard_margin`."""
    return hard_margin(tokens.noise[samples], tokens.labels[samples]).norm_squared if samples.any() else 0.0


def _sets(tokens: Tokens, k: int) -> tuple[Bools, Bools, Bools]:
    """I_k, N_k and the other class, as masks (n,)."""
    own = tokens.classes == k
    return own, own & ~tokens.clean, ~own


def gain(tokens: Tokens, k: int, *, other_on_noise: bool) -> float:
    r"""$\Delta_k(B)$: what class k saves by its signal; B all of the other class (`other_on_noise`) or its flipped samples."""
    own, flipped, other = _sets(tokens, k)
    base = other if other_on_noise else other & ~tokens.clean
    return noise_cost(tokens, own | base) - noise_cost(tokens, flipped | base)


def exact_threshold(tokens: Tokens, k: int) -> float:
    r"""The signal norm at which the best selection of class k changes, from four noise SVMs; the other class takes the better of S, X.

    With $z = 1/\rho^2$ the best selections with X and with S for class k cost $\min(W_{II}, z + W_{IN})$ and
    $z + \min(W_{NI}, z + W_{NN})$ (first letter: class k): where these two lines cross.
    """
    if k not in (0, 1) or isinstance(k, bool):
        raise ValueError(f"k must be 0 or 1; got {k!r}")
    own, flipped, other = _sets(tokens, k)
    few = other & ~tokens.clean
    w = {name: noise_cost(tokens, a | b) for name, a, b in (
        ("II", own, other), ("IN", own, few), ("NI", flipped, other), ("NN", flipped, few))}  # fmt: skip

    def difference(z: float) -> float:
        return min(w["II"], z + w["IN"]) - z - min(w["NI"], z + w["NN"])

    crossings = (w["II"] - w["NI"], w["IN"] - w["NN"], (w["II"] - w["NN"]) / 2)
    return 1 / math.sqrt(min(crossings, key=lambda z: abs(difference(z))))


def chi_square_bounds(freedom: float, log_odds: float) -> tuple[float, float]:
    r"""$m - 2\sqrt{mL}$ and $m + 2\sqrt{mL} + 2L$: a chi-square variable with m degrees of freedom is below the first, or above the
    second, with probability at most $e^{-L}$ each (Laurent and Massart)."""
    root = 2 * math.sqrt(freedom * log_odds)
    return freedom - root, freedom + root + 2 * log_odds


def noise_cost_bounds(size: int, d: int, log_odds: float) -> tuple[float, float]:
    r"""Bounds of W(A), |A| = size, for noise tokens N(0, I) in d - 2 dimensions, each false with probability $e^{-L}$ at most.

    $|A|/\chi^2_{d-2} \le W(A) \le |A|/\chi^2_{d-1-|A|}$. The upper bound is inf where d is too small for it.
    """
    if size == 0:
        return 0.0, 0.0
    return size / chi_square_bounds(d - 2, log_odds)[1], _over(size, d - 1 - size, log_odds)


def _over(value: float, freedom: float, log_odds: float) -> float:
    """value over the lower bound of a chi-square variable; inf where that is not positive."""
    smallest = chi_square_bounds(freedom, log_odds)[0] if freedom > 0 else 0.0
    return value / smallest if smallest > 0 else math.inf


def gain_bounds(clean: int, rest: int, d: int, delta: float) -> tuple[float, float]:
    r"""Two numbers between which $\Delta_k(B)$ lies with probability $1-\delta$ or more; $|C_k|$ = clean, $|N_k\cup B|$ = rest.

    With $L = \log(6/\delta)$, $m = d-2$, $m' = m - a - c + 1$ and $\bar W$ the upper bound of W for a samples:
    $(\sqrt c - \sqrt{2L\bar W})_+^2/(m + 2\sqrt{mL} + 2L)$ and
    $(c + 2\sqrt{2cL\bar W} + \bar W(\sqrt c + \sqrt{2L})^2)/(m' - 2\sqrt{m'L})$.
    """
    checks.probability("delta", delta, open_ends=True)
    odds, c = math.log(6 / delta), clean
    w = noise_cost_bounds(rest, d, odds)[1]
    if math.isinf(w):
        return 0.0, math.inf
    low = max(0.0, math.sqrt(c) - math.sqrt(2 * odds * w)) ** 2 / chi_square_bounds(d - 2, odds)[1]
    high = c + 2 * math.sqrt(2 * c * odds * w) + w * (math.sqrt(c) + math.sqrt(2 * odds)) ** 2
    return low, _over(high, d - 1 - rest - c, odds)


def expected_gain(clean: int, rest: int, d: int) -> float:
    r"""$E\,\Delta = |C_k|\,(d-3)/((d-3-a)(d-3-a-|C_k|))$, a = rest, for the interpolators (all multipliers of both sets positive)."""
    room = d - 3 - rest
    return clean * (d - 3) / (room * (room - clean))
