"""Every number the claims on the margin of many heads look at. Sizes are fixed; numpy arrays, draws first.

Full enumerations of one class (4 clean samples, 1 flipped, d = 1200) and class-level patterns of whole training sets (n = 40, d = 8000).
"""

import math
from dataclasses import dataclass

import numpy as np

from attnbook.open_questions.margin_and_descent.gram import head_norms, one_class, selection_gram
from attnbook.open_questions.margin_and_descent.joint_norm import attention_norm, joint_cost
from attnbook.open_questions.margin_and_descent.margin import (
    best_of_all,
    best_of_patterns,
    best_split,
    class_cost,
    saddle_excess,
    soft_ascent,
    tie_norm,
)
from attnbook.single_head.margin import predicted_thresholds, tokens_of
from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import SignalNoiseLaw

CLEAN, FLIPPED, DIMENSION = 4, 1, 1200
LOW_NORMS = (12.0, 15.0, 20.0, 25.0, 32.0, 40.0)  # x from 0.48 to 5.33
HIGH_NORMS = (45.0, 50.0, 70.0, 120.0)  # u = x/4 = 1.69, 2.08, 4.08, 12
CLASS_NORMS = (12.0, 14.0, 16.0, 18.0, 20.0, 21.0, 24.0, 28.0, 34.0, 40.0)
HEADS = (2, 3)


@dataclass(frozen=True)
class HeadMarginStudy:
    """What `head_margin_study` measured."""

    # heads -> (draws, norms, 4): splits, best is the formula's, |v|^2 over one head's, excess
    low: dict[int, np.ndarray]
    high: dict[int, np.ndarray]  # the same for HIGH_NORMS, with the formula's |v|^2 over one head's as 4th
    # heads -> (draws, norms, 4): splits, formula, |v|^2 over one head's, within 5 % of a threshold
    classes: dict[int, np.ndarray]
    high_classes: np.ndarray  # (draws, 3): divided classes, those predicted, measured cost over the formula's
    split_ratio: np.ndarray  # (draws, settings, 2): cost of a split over the better agreement, exact SVM and formula
    ties: np.ndarray  # (draws, 2): best split over best agreement at the tie minus 1, Gaussian and orthogonal noise
    joint: np.ndarray  # (5, 2): J_2(gamma) / (2 J_1(gamma/2)), smallest |p_h| over the largest
    soft: np.ndarray  # (draws, searches): least |v|^2 of soft selections over the best hard one


def _enumerations(norms: tuple[float, ...], heads: int, draws: int, seed: int) -> np.ndarray:
    rows = np.zeros((draws, len(norms), 5))
    for run in range(draws):
        for i, norm in enumerate(norms):
            gram = one_class(CLEAN, FLIPPED, DIMENSION, norm, seed=seed, run=run)
            one, best = best_of_all(gram, 1), best_of_all(gram, heads)
            on_clean, on_flipped = best_split(CLEAN, FLIPPED, norm, DIMENSION, heads)
            pattern = np.zeros((heads, gram.n))
            pattern[:on_clean, :CLEAN] = 1
            pattern[heads - on_flipped :, CLEAN:] = 1
            as_said = (np.sort(best.selections, 0) == np.sort(pattern, 0)).all()
            costs = [
                class_cost(CLEAN, FLIPPED, norm, DIMENSION, h, *split)
                for h, split in ((heads, (on_clean, on_flipped)), (1, best_split(CLEAN, FLIPPED, norm, DIMENSION, 1)))
            ]
            excess = saddle_excess(gram, one.one) if norms is LOW_NORMS else costs[0] / costs[1]
            half = np.zeros((1, heads, gram.n))
            half[0, 0, :CLEAN] = 1  # one head gives the signal to the clean samples, the others their noise
            split = head_norms(gram, half)[0] / one.norm_squared
            rows[run, i] = best.splits, as_said, best.norm_squared / one.norm_squared, excess, split
    return rows


def _classes(heads: int, draws: int, seed: int) -> np.ndarray:
    sample, rows = SignalNoiseLaw(40, 8000, 30.0, 0.1).draw(seed, draws), np.zeros((draws, len(CLASS_NORMS), 4))
    for run in range(draws):
        for i, norm in enumerate(CLASS_NORMS):
            tokens = tokens_of(sample, run).with_signal_norm(norm)
            one, best = best_of_patterns(tokens, 1), best_of_patterns(tokens, heads)
            thresholds = predicted_thresholds(tokens)
            on_signal = (norm > thresholds)[tokens.classes] & tokens.clean
            near = np.abs(norm / thresholds - 1).min() < 0.05
            rows[run, i] = best.splits, (best.selections == on_signal).all(), best.norm_squared / one.norm_squared, near
    return rows


def _high_classes(draws: int, seed: int) -> np.ndarray:
    """n = 40, eta = 0.2, rho = 100, two heads: which classes divide, and the cost."""
    law = SignalNoiseLaw(40, 8000, 100.0, 0.2)
    sample, rows = law.draw(seed, draws), np.zeros((draws, 3))
    for run in range(draws):
        tokens, cost, above, divided = tokens_of(sample, run), 0.0, 0, 0
        best = best_of_patterns(tokens, 2)
        for k, (clean, flipped) in enumerate(zip(*tokens.counts(), strict=True)):
            split = best_split(clean, flipped, law.signal_norm, law.d, 2)
            cost += class_cost(clean, flipped, law.signal_norm, law.d, 2, *split)
            above += min(split) > 0
            held = tokens.classes == k
            for_clean, for_flipped = (best.selections[:, held & (tokens.clean == c)] for c in (True, False))
            divided += bool(for_clean.any() and for_flipped.any())
        rows[run] = divided, above, best.norm_squared / cost
    return rows


def _split_ratios(draws: int, seed: int) -> np.ndarray:
    """Three heads, j = 1 or 2 on the signal for the clean samples of every class, n = 40: over the better of j = 0 and 3."""
    sample, rows = SignalNoiseLaw(40, 8000, 30.0, 0.1).draw(seed, draws), []
    for run in range(draws):
        rows.append([])
        for norm in (14.0, 21.0, 30.0, 40.0):
            tokens = tokens_of(sample, run).with_signal_norm(norm)
            on_signal = np.stack([np.arange(3) < j for j in range(4)])[:, :, None] & tokens.clean
            exact = head_norms(selection_gram(tokens), on_signal)
            pairs = list(zip(*tokens.counts(), strict=True))
            formula = [sum(class_cost(c, f, norm, 8000, 3, j) for c, f in pairs) for j in range(4)]
            rows[-1] += [[exact[j] / exact[[0, 3]].min(), formula[j] / min(formula[0], formula[3])] for j in (1, 2)]
    return np.array(rows)


def _ties(draws: int, seed: int) -> np.ndarray:
    rows = np.zeros((draws, 2))
    for run in range(draws):
        for i, orthogonal in enumerate((False, True)):
            gram = one_class(CLEAN, FLIPPED, DIMENSION, 17.0, seed=seed, run=run, orthogonal=orthogonal)
            best = best_of_all(gram.with_signal_scaled(tie_norm(gram, CLEAN)), 2)
            rows[run, i] = best.norm_squared / best.equal - 1
    return rows


def _soft(draws: int, seed: int) -> np.ndarray:
    """Least |v|^2 found from 20 random soft selections by descent, times H, over the best hard one's: for H = 2, 3 and x on both sides."""
    rows = []
    for run in range(draws):
        rng = stream(seed, "search", run)
        rows.append([])
        for norm in (15.0, 25.0):
            gram = one_class(CLEAN, FLIPPED, DIMENSION, norm, seed=seed, run=run)
            for heads in HEADS:
                _, reached = soft_ascent(gram, rng.random((20, heads, gram.n)), steps=40)
                rows[-1].append(heads * reached.min() / best_of_all(gram, 1).norm_squared)
    return np.array(rows)


def _joint(seed: int) -> np.ndarray:
    """Two heads against one at half the margin, rho = 25, a demanded margin of 3 |p_mm| Gamma."""
    rows, labels = np.zeros((5, 2)), np.r_[np.ones(CLEAN), -np.ones(FLIPPED)]
    for run in range(len(rows)):
        gram = one_class(CLEAN, FLIPPED, DIMENSION, 25.0, seed=seed, run=run)
        one = best_of_all(gram, 1)
        margin = 3 * attention_norm(gram, labels, one.one) / math.sqrt(one.equal)
        two, norms = joint_cost(gram, labels, 2, margin, one.one, seed=seed)
        single, _ = joint_cost(gram, labels, 1, margin / 2, one.one, seed=seed)
        rows[run] = two / (2 * single), norms.min() / norms.max()
    return np.round(rows, 2)  # further digits depend on the version of the optimiser


def head_margin_study(*, draws: int = 10, seed: int = 0) -> HeadMarginStudy:
    """Measure all of it, in `draws` draws. Raises ValueError for a bad argument before any work."""
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("seed", seed, at_least=0)
    return HeadMarginStudy(
        low={heads: _enumerations(LOW_NORMS, heads, draws, seed) for heads in HEADS},
        high={heads: _enumerations(HIGH_NORMS, heads, draws, seed) for heads in HEADS},
        classes={heads: _classes(heads, draws, seed) for heads in HEADS},
        high_classes=_high_classes(draws, seed),
        split_ratio=_split_ratios(draws, seed),
        ties=_ties(draws, seed),
        joint=_joint(seed),
        soft=_soft(draws, seed),
    )
