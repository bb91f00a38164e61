"""Everything that the claims of the page *Margin and descent* look at, measured once. Sizes are fixed; numpy arrays, draws first.

Full enumerations of one class (4 clean samples, 1 flipped, d = 1200) and class-level patterns of whole training sets (n = 40, d = 8000);
then where gradient descent ends instead.
"""

import math
from types import SimpleNamespace

import numpy as np

from attnbook.open_questions.equal_heads import LONG_CLOCK, heads_fates
from attnbook.open_questions.margin_and_descent.margin import (
    attention_norm,
    best_of_all,
    best_of_patterns,
    best_split,
    class_cost,
    division_threshold,
    head_norms,
    joint_cost,
    one_class,
    saddle_excess,
    selection_gram,
    soft_ascent,
    tie_norm,
)
from attnbook.open_questions.outcomes import UNIT, rule_fates
from attnbook.single_head.long_run import class_attention, law_at
from attnbook.single_head.margin import predicted_thresholds, tokens_of
from attnlib.randomness import stream
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.rules import GRADIENT_DESCENT
from attnlib.single_head.training import train_heads

CLEAN, FLIPPED, DIMENSION = 4, 1, 1200
LOW_NORMS = (12.0, 15.0, 20.0, 25.0, 32.0, 40.0)  # x from 0.48 to 5.33
HIGH_NORMS = (45.0, 50.0, 70.0, 120.0)  # u = x/4 = 1.69, 2.08, 4.08, 12
CLASS_NORMS = (12.0, 14.0, 16.0, 18.0, 20.0, 21.0, 24.0, 28.0, 34.0, 40.0)
HEADS = (2, 3)

# Factors on the step size.
SCHEDULES = {
    "constant": lambda t: 1.0,
    "warm-up over 100 steps": lambda t: min(1.0, (t + 1) / 100),
    "n/5d for 500 steps, then full": lambda t: 0.04 if t < 500 else 1.0,
    "decay 1/sqrt(1 + t)": lambda t: 1 / math.sqrt(1 + t),
    "full for 5 steps, then n/5d": lambda t: 1.0 if t < 5 else 0.04,
}


def _table(rows, *names):
    """The columns of rows (draws, ..., columns) by name."""
    return SimpleNamespace(**dict(zip(names, np.moveaxis(np.array(rows, dtype=float), -1, 0), strict=True)))


# --- the largest margin ----------------------------------------------------------------------------------------------------


def predicted_division(heads, factor=1.0):
    """Whether heads divide at each of `LOW_NORMS` and `HIGH_NORMS`: x above the threshold, or above `factor` times it."""
    x = np.array(LOW_NORMS + HIGH_NORMS) ** 2 * CLEAN / DIMENSION
    return x > factor * division_threshold(FLIPPED / CLEAN, heads)


def _enumeration(norm, heads, gram):
    one, best = best_of_all(gram, 1), best_of_all(gram, heads)
    on_clean, on_flipped = best_split(CLEAN, FLIPPED, norm, DIMENSION, heads)
    pattern = np.zeros((heads, gram.n))
    pattern[:on_clean, :CLEAN] = 1
    pattern[heads - on_flipped :, CLEAN:] = 1
    as_said = (np.sort(best.selections, 0) == np.sort(pattern, 0)).all()
    cost = class_cost(CLEAN, FLIPPED, norm, DIMENSION, heads, on_clean, on_flipped)
    formula = cost / class_cost(CLEAN, FLIPPED, norm, DIMENSION, 1, *best_split(CLEAN, FLIPPED, norm, DIMENSION, 1))
    half = np.zeros((1, heads, gram.n))
    half[0, 0, :CLEAN] = 1  # one head gives the signal to the clean samples, the others their noise
    split = head_norms(gram, half)[0] / one.norm_squared
    return best.splits, as_said, best.norm_squared / one.norm_squared, saddle_excess(gram, one.one), formula, split


def _enumerations(norms, heads, draws, seed):
    """Arrays (draws, norms): whether the best heads split, and are those of the formula; |v|^2 over one head's, by enumeration and by
    formula; the excess over a saddle point; and |v|^2 over one head's if one head has the signal and the others noise."""
    rows = [
        [_enumeration(norm, heads, one_class(CLEAN, FLIPPED, DIMENSION, norm, seed=seed, run=run)) for norm in norms]
        for run in range(draws)
    ]
    return _table(rows, "splits", "as_said", "ratio", "excess", "formula", "split")


def _class_pattern(norm, heads, tokens):
    one, best = best_of_patterns(tokens, 1), best_of_patterns(tokens, heads)
    thresholds = predicted_thresholds(tokens)
    on_signal = (norm > thresholds)[tokens.classes] & tokens.clean
    near = np.abs(norm / thresholds - 1).min() < 0.05
    return (best.selections == on_signal).all(), best.norm_squared / one.norm_squared, near


def _classes(heads, draws, seed):
    """Arrays (draws, norms): whether the best patterns are those of the formula, |v|^2 over one head's, within 5 % of a threshold."""
    sample = SignalNoiseLaw(40, 8000, 30.0, 0.1).draw(seed, draws)
    rows = [
        [_class_pattern(norm, heads, tokens_of(sample, run).with_signal_norm(norm)) for norm in CLASS_NORMS]
        for run in range(draws)
    ]
    return _table(rows, "as_said", "ratio", "near")


def _high_classes(draws, seed):
    """n = 40, eta = 0.2, rho = 100, two heads, (draws,): the classes that divide, those predicted, and the cost over the formula's."""
    law = SignalNoiseLaw(40, 8000, 100.0, 0.2)
    sample, rows = law.draw(seed, draws), []
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
        rows.append((divided, above, best.norm_squared / cost))
    return _table(rows, "divided", "predicted", "ratio")


def _split_ratios(draws, seed):
    """Three heads, j = 1 or 2 on the signal for the clean samples of every class, n = 40: over the better of j = 0 and 3.

    Arrays (draws, settings): exact SVM and formula.
    """
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
    return _table(rows, "exact", "formula")


def _tie(orthogonal, run, seed):
    gram = one_class(CLEAN, FLIPPED, DIMENSION, 17.0, seed=seed, run=run, orthogonal=orthogonal)
    best = best_of_all(gram.with_signal_scaled(tie_norm(gram, CLEAN)), 2)
    return best.norm_squared / best.equal - 1


def _ties(draws, seed):
    """Best split over best agreement at the tie, minus 1, (draws,)."""
    return _table([[_tie(kind, run, seed) for kind in (False, True)] for run in range(draws)], "gaussian", "orthogonal")


def _soft(draws, seed):
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


def _joint(seed):
    """Two heads against one at half the margin, rho = 25, a demanded margin of 3 |p_mm| Gamma, five draws.

    J_2(gamma) / (2 J_1(gamma/2)), and the smallest |p_h| over the largest.
    """
    rows, labels = [], np.r_[np.ones(CLEAN), -np.ones(FLIPPED)]
    for run in range(5):
        gram = one_class(CLEAN, FLIPPED, DIMENSION, 25.0, seed=seed, run=run)
        one = best_of_all(gram, 1)
        margin = 3 * attention_norm(gram, labels, one.one) / math.sqrt(one.equal)
        two, norms = joint_cost(gram, labels, 2, margin, one.one, seed=seed)
        single, _ = joint_cost(gram, labels, 1, margin / 2, one.one, seed=seed)
        rows.append((two / (2 * single), norms.min() / norms.max()))
    return _table(np.round(rows, 2), "ratio", "used")  # further digits depend on the version of the optimiser


# --- gradient descent ------------------------------------------------------------------------------------------------------


def schedule_fates(x, n, d, label_noise, *, steps=1000, draws=10, seed=0):
    """Of gradient descent with beta = 5n/d times each of `SCHEDULES`, the same draws: classes on the signal (R, 2), log10 error (R,)."""
    sample, found = law_at(x, n, d, label_noise).draw(seed, draws), {}
    for name, factor in SCHEDULES.items():
        path = train_heads(sample, UNIT * n / d, steps, schedule=factor, record=[])
        error = log10_clean_error(path.v[-1, :, 0], path.p[-1, :, 0], sample)
        on_signal = class_attention(sample, path.attention_on_signal[-1, :, 0]) > 0.5
        found[name] = SimpleNamespace(on_signal=on_signal.numpy(), log10_error=error)
    return found


def margin_study(*, draws=10, seed=0):
    """Measure and train; `draws` of the margins, twice as many of the schedules."""
    flips = [law_at(x, 100, 10**6, 0.2) for x in np.geomspace(0.9, 2.5, 9)]
    strong = law_at(400.0, 200, 40_000, 0.05)
    return SimpleNamespace(
        # By the number of heads.
        low={heads: _enumerations(LOW_NORMS, heads, draws, seed) for heads in HEADS},
        high={heads: _enumerations(HIGH_NORMS, heads, draws, seed) for heads in HEADS},
        division={heads: predicted_division(heads) for heads in HEADS},
        classes={heads: _classes(heads, draws, seed) for heads in HEADS},
        high_classes=_high_classes(draws, seed),
        split_ratio=_split_ratios(draws, seed),
        ties=_ties(draws, seed),
        joint=_joint(seed),
        soft=_soft(draws, seed),
        one_head=heads_fates(flips, (1,), LONG_CLOCK, seed=seed)[1],  # by gradient descent, eta = 0.2
        schedules=schedule_fates(4.0, 200, 40_000, 0.2, draws=2 * draws, seed=seed),  # eta = 0.2, x = 4
        # eta = 0.05, x = 400, by beta d / n.
        strong={size: rule_fates([strong], GRADIENT_DESCENT, size, 1000, draws=30, seed=seed) for size in (0.05, 0.2)},
    )
