r"""The threshold of the maximum margin at finite d: exact by the noise alone, and two-sided bounds for Gaussian noise.

The signals are orthogonal to all noise, so a hard selection that uses u signals and leaves the samples A on their noise costs

$$ |v|^2 = \frac u{\rho^2} + W(A), \qquad W(A) = \min\{|w|^2 : y_i\,w\cdot\xi_i \ge 1,\ i \in A\}. $$

With B the other class's samples on noise, class k takes its signal iff $1/\rho^2 < \Delta_k(B) = W(I_k\cup B) - W(N_k\cup B)$.
Source: derived, chapter on the maximum margin. Needs scipy and clarabel (extra `margin`).
"""

import math

import torch

from attnbook.single_head.margin import (
    CHANCE,
    PATTERNS,
    chi_square_bounds,
    noise_cost_bounds,
    over_chi_square,
    pattern_cost,
    tokens_of,
)
from attnbook.single_head.svm import hard_margin
from attnlib.single_head.law import SignalNoiseLaw

CROWDED = (60, 1200, 60)  # n, d and draws of the noise-only study: at d = 20 n the limit is off by several per cent


def noise_cost(tokens, samples):
    """W(A), the squared norm of the noise SVM of the marked samples (n,); 0 for none. Raises as `hard_margin`."""
    return hard_margin(tokens.noise[samples], tokens.labels[samples]).norm_squared if samples.any() else 0.0


def _sets(tokens, k):
    """I_k, N_k and the other class, as masks (n,)."""
    own = tokens.classes == k
    return own, own & ~tokens.clean, ~own


def gain(tokens, k, *, other_on_noise):
    r"""$\Delta_k(B)$: what class k saves by its signal; B all of the other class (`other_on_noise`) or its flipped samples."""
    own, flipped, other = _sets(tokens, k)
    base = other if other_on_noise else other & ~tokens.clean
    return noise_cost(tokens, own | base) - noise_cost(tokens, flipped | base)


def exact_threshold(tokens, k):
    r"""The signal norm at which the best selection of class k changes, from four noise SVMs; the other class takes the better of S, X.

    With $z = 1/\rho^2$ the best selections with X and with S for class k cost $\min(W_{II}, z + W_{IN})$ and
    $z + \min(W_{NI}, z + W_{NN})$ (first letter: class k): where these two lines cross.
    """
    own, flipped, other = _sets(tokens, k)
    few = other & ~tokens.clean
    w = {name: noise_cost(tokens, a | b) for name, a, b in (
        ("II", own, other), ("IN", own, few), ("NI", flipped, other), ("NN", flipped, few))}  # fmt: skip

    def difference(z):
        return min(w["II"], z + w["IN"]) - z - min(w["NI"], z + w["NN"])

    crossings = (w["II"] - w["NI"], w["IN"] - w["NN"], (w["II"] - w["NN"]) / 2)
    return 1 / math.sqrt(min(crossings, key=lambda z: abs(difference(z))))


def gain_bounds(clean, rest, d, delta):
    r"""Two numbers between which $\Delta_k(B)$ lies with probability $1-\delta$ or more; $|C_k|$ = clean, $|N_k\cup B|$ = rest.

    With $L = \log(6/\delta)$, $m = d-2$, $m' = m - a - c + 1$ and $\bar W$ the upper bound of W for a samples:
    $(\sqrt c - \sqrt{2L\bar W})_+^2/(m + 2\sqrt{mL} + 2L)$ and
    $(c + 2\sqrt{2cL\bar W} + \bar W(\sqrt c + \sqrt{2L})^2)/(m' - 2\sqrt{m'L})$.
    """
    odds, c = math.log(6 / delta), clean
    w = noise_cost_bounds(rest, d, odds)[1]
    if math.isinf(w):
        return 0.0, math.inf
    low = max(0.0, math.sqrt(c) - math.sqrt(2 * odds * w)) ** 2 / chi_square_bounds(d - 2, odds)[1]
    high = c + 2 * math.sqrt(2 * c * odds * w) + w * (math.sqrt(c) + math.sqrt(2 * odds)) ** 2
    return low, over_chi_square(high, d - 1 - rest - c, odds)


def expected_gain(clean, rest, d):
    r"""$E\,\Delta = |C_k|\,(d-3)/((d-3-a)(d-3-a-|C_k|))$, a = rest, for the interpolators (all multipliers of both sets positive)."""
    room = d - 3 - rest
    return clean * (d - 3) / (room * (room - clean))


# --- proved intervals of one draw ----------------------------------------------------------------------------------------------


def cost_bounds(tokens, law):
    """Proved bounds of every pattern's |v|^2 over the orthogonal limit's, all nine true with probability 1 - CHANCE."""
    odds, (clean, flipped), rows = math.log(2 * len(PATTERNS) / CHANCE), tokens.counts(), []
    for pattern in PATTERNS:
        formula = pattern_cost(tokens, pattern)
        size = sum({"S": f, "X": c + f, "F": c}[letter] for letter, c, f in zip(pattern, clean, flipped, strict=True))
        limit = size / tokens.noise_scale
        rows.append([1 + (w / law.noise_std**2 - limit) / formula for w in noise_cost_bounds(int(size), law.d, odds)])
    return rows


def threshold_bounds(tokens, k, law):
    """Proved bounds of class k's threshold over the orthogonal limit's, whichever of S and X the other class takes."""
    clean, flipped = (counts.astype(int) for counts in tokens.counts())
    c, both = int(clean[k]), []
    for rest in (flipped.sum(), flipped.sum() + clean[1 - k]):
        both.append([b * law.d / c for b in gain_bounds(c, int(rest), law.d, CHANCE / 4)])  # two classes, two cases
    low, high = min(low for low, _ in both), max(high for _, high in both)
    return high**-0.5, low**-0.5 if low > 0 else math.inf


def crowded(label_noise, seed):
    """d = 20 n, noise SVMs only: what a class saves by its signal, in units of |C_k|/d, with its expectation and its bounds.

    Rows: draws; columns: both classes, each with the other class wholly on noise and with its flipped samples on noise.
    """
    n, d, draws = CROWDED
    sample = SignalNoiseLaw(n, d, 1.0, label_noise).draw(seed, draws)
    found = []
    for run in range(draws):
        tokens = tokens_of(sample, run)
        clean, flipped = tokens.counts()
        row = []
        for k in (0, 1):
            for whole in (True, False):
                c, rest = int(clean[k]), int(flipped.sum() + (clean[1 - k] if whole else 0))
                bounds = gain_bounds(c, rest, d, CHANCE / 4)
                numbers = (gain(tokens, k, other_on_noise=whole), expected_gain(c, rest, d), *bounds)
                row.append([number * d / c for number in numbers])
        found.append(row)
    gains, means, low, high = torch.tensor(found, dtype=torch.float64).unbind(-1)
    return {"gain": gains, "gain_mean": means, "gain_low": low, "gain_high": high}
