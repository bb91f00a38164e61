"""What the theorems on finite d and finite norms are judged by: proved intervals per draw, and the search over p far out."""

import math
from collections import defaultdict

import numpy as np
import torch

from attnbook.single_head.margin import (
    PATTERNS,
    Tokens,
    pattern_cost,
    pattern_selection,
    selection_margin,
    tokens_of,
)
from attnbook.single_head.max_margin.attention_margin import constrained_optimum, directional_margin, log10_error
from attnbook.single_head.max_margin.finite_threshold import expected_gain, gain, gain_bounds, noise_cost_bounds
from attnbook.single_head.max_margin.optimum_limit import best_hard, error_near_noise, log10_error_near_signal
from attnlib.single_head.law import Sample, SignalNoiseLaw

FAR = (5.0, 8.0)  # |p| / |p_mm| of the far searches
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


def search(name: str, tokens: Tokens, sample: Sample, run: int, radius: float, seed: int) -> dict:
    """Real optimisation over p, at `radius` and at the far sizes; everything relative to the best hard selection."""
    hard = best_hard(tokens)
    on_signals = sample.signals[run].numpy() @ hard.p.weights
    rows: dict[str, list] = defaultdict(list)
    rival = selection_margin(tokens, pattern_selection(tokens, "SS" if hard.pattern == "XX" else "XX")).weights
    for size in (radius, *FAR):
        # The near search has six starts; far out only those of the two patterns that can be best end well.
        starts = (
            {"seed": seed}
            if size == radius
            else {"patterns": tuple(dict.fromkeys(("SS", "XX", hard.pattern))), "random_starts": 0}
        )
        top = constrained_optimum(tokens, size * hard.p.norm, **starts)
        value_signal, value_noise = (tokens.labels * (x @ top.v) for x in (tokens.signal, tokens.noise))
        same = ((value_signal > value_noise) == (hard.selection > 0.5)).all()  # the direction theorem's condition
        cosines = tuple(
            float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
            for a, b in ((top.p, hard.p.weights), (top.v, hard.v.weights))
        )
        delta = 1 - top.value * hard.v.norm
        rows["ratio"].append(top.value * hard.v.norm)
        rows["cosine"].append(cosines[1] if same else math.nan)
        rows["rival_cosine"].append(top.v @ rival / np.linalg.norm(top.v) / np.linalg.norm(rival) if same else math.nan)
        rows["margin"].append(directional_margin(tokens, top.v, top.p))
        rows["error"].append(log10_error(sample, top.v, top.p, run))
        rows["query"].append(1 - cosines[0])
        active = (hard.p.multipliers > 0).all() and delta > 0
        rows["value"].append(math.log(delta) + size if active else math.nan)
        rows["level"].append(hard.level if active else math.nan)
        speaks = delta < 1 - hard.second
        rows["query_bound"].append(1 - hard.cosine_bound(delta, size * hard.p.norm))
        rows["query_room"].append(cosines[0] - hard.cosine_bound(delta, size * hard.p.norm) if speaks else math.nan)
        rows["slack"].append(hard.slack(top.p) * hard.gap(delta) / delta if speaks else math.nan)
        std, bound = sample.law.noise_std, math.nan
        if name == "above" and hard.pattern == "SS":
            bound = log10_error_near_signal(hard, on_signals, cosines[0], top.value, noise_std=std)
        if name == "low" and hard.pattern == "XX":
            bound = error_near_noise(hard, on_signals, cosines, size * hard.p.norm, noise_std=std)
        rows["error_bound"].append(bound)
    return {f"{name}_{key}": row for key, row in rows.items()}
