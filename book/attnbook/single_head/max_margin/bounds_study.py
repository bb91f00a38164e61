"""What the theorems on finite d are judged by: proved intervals per draw."""

import math

import torch

from attnbook.single_head.margin import PATTERNS, Tokens, pattern_cost, tokens_of
from attnbook.single_head.max_margin.finite_threshold import expected_gain, gain, gain_bounds, noise_cost_bounds
from attnlib.single_head.law import SignalNoiseLaw

CROWDED = (60, 1200, 60)  # n, d and draws of the noise-only study: at d = 20 n the limit is off by several per cent
CHANCE = 0.05  # with which the proved intervals of all of one draw's thresholds (costs, gains) may be false


def cost_bounds(tokens: Tokens, law: SignalNoiseLaw) -> list[tuple[float, float]]:
    """Proved bounds of every pattern's |v|^2 over the orthogonal limit's, all nine true with probability 1 - CHANCE."""
    odds, (clean, flipped), rows = math.log(2 * len(PATTERNS) / CHANCE), tokens.counts(), []
    for pattern in PATTERNS:
        formula = pattern_cost(tokens, pattern)
        size = sum({"S": f, "X": c + f, "F": c}[letter] for letter, c, f in zip(pattern, clean, flipped, strict=True))
        limit = size / tokens.noise_scale
        rows.append([1 + (w / law.noise_std**2 - limit) / formula for w in noise_cost_bounds(int(size), law.d, odds)])
    return rows


def threshold_bounds(tokens: Tokens, k: int, law: SignalNoiseLaw) -> tuple[float, float]:
    """Proved bounds of class k's threshold over the orthogonal limit's, whichever of S and X the other class takes."""
    clean, flipped = (counts.astype(int) for counts in tokens.counts())
    c, both = int(clean[k]), []
    for rest in (flipped.sum(), flipped.sum() + clean[1 - k]):
        both.append([b * law.d / c for b in gain_bounds(c, int(rest), law.d, CHANCE / 4)])  # two classes, two cases
    low, high = min(low for low, _ in both), max(high for _, high in both)
    return high**-0.5, low**-0.5 if low > 0 else math.inf


def crowded(label_noise: float, seed: int) -> dict[str, torch.Tensor]:
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
