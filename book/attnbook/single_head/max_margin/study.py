"""What page I.4 measures: exact SVMs of many draws, the threshold of each class, and one sample that mixes its two tokens.

Draws are those of `SignalNoiseLaw.draw(seed)`. Changing the signal norm keeps labels and noise: "the same draw" at another SNR.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from attnbook.single_head.margin import (
    PATTERNS,
    ThresholdOutside,
    Tokens,
    best_pattern,
    measured_threshold,
    pattern_cost,
    pattern_costs,
    pattern_selection,
    predicted_pattern,
    predicted_thresholds,
    selection_margin,
    tokens_of,
)
from attnbook.single_head.max_margin.attention_margin import attention_margin, weight_on_signal
from attnbook.single_head.max_margin.bounds_study import cost_bounds, crowded, threshold_bounds
from attnbook.single_head.max_margin.finite_threshold import exact_threshold
from attnbook.single_head.svm import NotSeparable
from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import SignalNoiseLaw

WEIGHTS = (
    0.02,
    0.1,
    0.25,
    0.5,
    0.75,
    0.9,
    0.98,
)  # signal weights of the mixed sample; M8 judges a clean one at two of them
GRID = (0.4, 0.7, 0.85, 1.0, 1.15, 1.4, 2.5)  # signal norms, in units of the balanced threshold
FLIP_DRAWS = 5
SOFT_SCALES = (0.3, 0.8, 1.5)  # spread of a random query's logits, and |p| of the SVM's query in units of |p_mm|


@dataclass(frozen=True)
class MarginStudy:
    """What a page measured: float tensors with the draws first."""

    law: SignalNoiseLaw
    numbers: dict[str, torch.Tensor]
    patterns: list[str] = field(default_factory=list)  # best of nine, per draw

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.numbers[name]


def predicted_mixing(tokens: Tokens, weight: float, *, clean: bool) -> float:
    r"""Extra |v|^2 over SS when one sample has weight s on its signal, orthogonal limit.

    Clean: $\min_{A\ge1} A^2/\rho^2 + ((1-sA)_+/(1-s))^2/d - 1/\rho^2$. Flipped: $[((1+s)/(1-s))^2 - 1]/d$.
    """
    checks.probability("weight", weight, open_ends=True)
    rho2, d, s = tokens.signal_norm**2, tokens.noise_scale, weight
    if not clean:
        return (((1 + s) / (1 - s)) ** 2 - 1) / d
    pull = s / ((1 - s) ** 2 * d)  # the quadratic's stationary point, then its interval [1, 1/s]
    level = min(max(pull / (1 / rho2 + s * pull), 1.0), 1 / s)
    return level**2 / rho2 + ((1 - s * level) / (1 - s)) ** 2 / d - 1 / rho2


def mixing_extra(tokens: Tokens, sample: int, weight: float) -> float:
    """Extra |v|^2 over SS when sample number `sample` has weight s on its signal, by two exact SVMs."""
    selection = pattern_selection(tokens, "SS")
    base = selection_margin(tokens, selection).norm_squared
    selection[sample] = weight
    return selection_margin(tokens, selection).norm_squared - base


def _selections(tokens: Tokens, law: SignalNoiseLaw) -> dict:
    """Patterns, thresholds, and the best pattern on a grid of signal norms."""
    costs = pattern_costs(tokens)
    predicted = predicted_thresholds(tokens)
    measured = []
    for k in (0, 1):
        try:
            measured.append(measured_threshold(tokens, k))
        except ThresholdOutside:
            measured.append(math.nan)  # no clean sample in the class: it has no threshold
    # On a grid of signal norms: is the best of nine the formula's? Judged where both classes are 5 % away from their threshold.
    middle = math.sqrt(tokens.noise_scale / (tokens.counts()[0].mean() or 1))
    grid = []
    for factor in GRID:
        at = tokens.with_signal_norm(factor * middle)
        away = np.abs(at.signal_norm / predicted - 1).min() > 0.05
        grid.append([at.signal_norm, *predicted, *map(_code, best_pattern(pattern_costs(at))), float(away)])
    return {
        "best": best_pattern(costs),
        "costs": [costs[p] for p in PATTERNS],
        "cost_formula": [pattern_cost(tokens, p) if math.isfinite(costs[p]) else math.inf for p in PATTERNS],
        "threshold_measured": measured,
        "threshold_predicted": predicted,
        "threshold_exact": [exact_threshold(tokens, k) if math.isfinite(predicted[k]) else math.nan for k in (0, 1)],
        "threshold_bounds": [
            threshold_bounds(tokens, k, law) if math.isfinite(predicted[k]) else (math.nan, math.nan) for k in (0, 1)
        ],
        "cost_bounds": cost_bounds(tokens, law),
        "grid": grid,
    }


def _between(tokens: Tokens) -> dict:
    """At the root of the product of both thresholds: the best of nine selections and the formula's; and how far they are apart."""
    predicted = predicted_thresholds(tokens)
    between = tokens.with_signal_norm(math.sqrt(predicted.prod())) if np.isfinite(predicted).all() else tokens
    return {
        "between_best": list(map(_code, best_pattern(pattern_costs(between)))),
        "between_predicted": list(map(_code, predicted_pattern(between))),
        "apart": abs(predicted[0] / predicted[1] - 1) if np.isfinite(predicted).all() else 0.0,
    }


def _code(letter: str) -> float:
    return {"S": 1.0, "X": -1.0, "F": 2.0}[letter]


def _ss(tokens: Tokens, seed: int, flips: bool) -> dict:
    """The SS selection: decoupling, bounds, flips, mixing, soft against hard."""
    selection = pattern_selection(tokens, "SS")
    svm = selection_margin(tokens, selection)
    signed = tokens.labels[~tokens.clean, None] * tokens.noise[~tokens.clean]
    gram = signed @ signed.T
    flipped = len(gram)
    multipliers = np.linalg.solve(gram, np.ones(flipped)) if flipped else np.zeros(0)
    used = sum(bool((tokens.clean & (tokens.classes == k)).any()) for k in (0, 1))
    first = {kind: np.flatnonzero(tokens.clean == (kind == "clean"))[:1] for kind in ("clean", "noisy")}
    mixing = {
        f"mixing_{kind}": [mixing_extra(tokens, int(i[0]), s) if len(i) else math.nan for s in WEIGHTS]
        for kind, i in first.items()
    }
    extra = math.nan
    if flips:
        costs = []
        for i in range(tokens.n):
            if not tokens.clean[i] and (tokens.clean & (tokens.classes == tokens.classes[i])).any():
                continue  # it would select the signal of clean samples with the other label: no v separates them
            other = selection.copy()
            other[i] = 1 - other[i]
            try:
                costs.append(selection_margin(tokens, other).norm_squared)
            except NotSeparable:
                costs.append(math.inf)
        extra = (min(costs) - svm.norm_squared) * tokens.noise_scale
    query, rng, ratios = attention_margin(tokens, selection), stream(seed, "search", 1), []
    for scale in SOFT_SCALES:
        noise = rng.standard_normal(len(query.weights))
        for direction in (noise / ((tokens.signal - tokens.noise) @ noise).std(), query.weights):
            soft = selection_margin(tokens, weight_on_signal(tokens, scale * direction))
            on_signal, on_noise = (tokens.labels * (x @ soft.weights) for x in (tokens.signal, tokens.noise))
            hard = selection_margin(tokens, (on_signal > on_noise).astype(float))
            ratios.append(soft.margin / hard.margin)
    return {
        "ss": svm.norm_squared, "residual": svm.residual, "ss_formula": used / tokens.signal_norm**2 + multipliers.sum(),
        "supported": float((multipliers >= 0).all()), "flipped": flipped, "flip_extra": extra, "soft_over_hard": ratios,
        "mixing_clean_formula": [predicted_mixing(tokens, s, clean=True) for s in WEIGHTS],
        "mixing_noisy_formula": [predicted_mixing(tokens, s, clean=False) for s in WEIGHTS], **mixing,
    }  # fmt: skip


def margin_study(law: SignalNoiseLaw, *, draws: int = 10, seed: int = 0) -> MarginStudy:
    """Solve everything the claims of page I.4 need.

    Args:
        law: two tokens; d - 2 >= 2 n keeps every selection that does not contradict itself separable.
        draws: training sets for the exact SVMs, >= 2; as many more between two thresholds, for only about half of the draws have
            thresholds that lie apart.

    Raises ValueError for a bad argument before any work.
    """
    check_law(law)
    checks.whole_number("draws", draws, at_least=2)
    sample, parts = law.draw(seed, draws), []
    for run in range(draws):
        tokens = tokens_of(sample, run)
        parts.append(_selections(tokens, law) | _ss(tokens, seed + run, run < FLIP_DRAWS))
    twice = law.draw(seed, 2 * draws)
    between = [_between(tokens_of(twice, run)) for run in range(2 * draws)]
    numbers = stack(parts, skip="best") | stack(between) | crowded(max(law.label_noise, 0.1), seed)
    return MarginStudy(law, numbers, [part["best"] for part in parts])


def check_law(law: SignalNoiseLaw) -> None:
    """Raises ValueError unless the law has two tokens and room for 2 n noise directions."""
    if not isinstance(law, SignalNoiseLaw) or law.tokens != 2:
        raise ValueError(f"law must be a SignalNoiseLaw with two tokens; got {law!r}")
    if law.d - 2 < 2 * law.n:
        raise ValueError(
            f"d must be at least 2 n + 2 = {2 * law.n + 2}; got {law.d}: fewer directions than samples separate nothing"
        )


def half_threshold(law: SignalNoiseLaw) -> SignalNoiseLaw:
    """The same law at half the signal norm of the threshold for balanced classes."""
    threshold = math.sqrt(2 * law.d / (law.n * (1 - law.label_noise))) * law.noise_std
    return replace(law, signal_norm=0.5 * threshold)


def smaller(law: SignalNoiseLaw, samples: int) -> SignalNoiseLaw:
    """The law of fewer samples with the same d/n and signal norm, and so the same n SNR^2."""
    return replace(law, n=samples, d=round(law.d * samples / law.n))


def stack(parts: list[dict], skip: str = "") -> dict[str, torch.Tensor]:
    """The rows of the draws, one below the other."""
    return {
        name: torch.as_tensor(np.array([np.asarray(part[name], dtype=float) for part in parts]))
        for name in parts[0]
        if name != skip
    }
