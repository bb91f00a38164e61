"""What page I.12 measures: the query of a hard selection, the candidate's errors on fresh data, four tokens, two heads."""

import math
from dataclasses import dataclass, replace

import numpy as np

from attnbook.single_head.margin import (
    Tokens,
    best_pattern,
    measured_threshold,
    pattern_costs,
    pattern_selection,
    predicted_thresholds,
    selection_margin,
    tokens_of,
)
from attnbook.single_head.max_margin.attention_margin import (
    attention_margin,
    attention_margin_of_all_tokens,
    closed_form,
    limit_error,
    log10_error,
)
from attnbook.single_head.max_margin.bounds_study import CHANCE
from attnbook.single_head.max_margin.finite_threshold import noise_cost_bounds
from attnbook.single_head.max_margin.study import MarginStudy, check_law, half_threshold, smaller, stack
from attnbook.single_head.svm import hard_margin
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw

RATIOS = (0.5, 1.0, 3.0, 10.0, 100.0)  # |p| / |p_mm| at which the candidate's error is measured


@dataclass(frozen=True, kw_only=True)
class FreshStudy(MarginStudy):
    """The numbers of `fresh_study`."""

    below: SignalNoiseLaw  # half the threshold's signal norm
    small_law: SignalNoiseLaw  # of the sets with two heads


def _above(tokens: Tokens, sample: Sample, run: int) -> dict:
    """The query's SVM for SS and the candidate's exact errors."""
    selection = pattern_selection(tokens, "SS")
    v, p = selection_margin(tokens, selection), attention_margin(tokens, selection)
    form = closed_form(tokens, selection)
    limit, bound = limit_error(sample, v.weights, p.weights, run)
    return {
        "query": p.norm_squared, "query_formula": form.norm_squared, "query_signal": sample.signals[run].numpy() @ p.weights,
        "query_signal_formula": form.on_signals,
        "errors": [log10_error(sample, v.weights, r * p.weights, run) for r in RATIOS],
        "far_error": log10_error(sample, v.weights, 1e5 * p.weights, run), "limit_error": limit, "limit_bound": bound,
    }  # fmt: skip


def _below(tokens: Tokens, sample: Sample, run: int) -> dict:
    """Half the threshold: the all-noise selection and its classifier."""
    selection = np.zeros(tokens.n)
    v, p = selection_margin(tokens, selection), attention_margin(tokens, selection)
    signals = sample.signals[run].numpy()
    return {
        "below_xx": float(best_pattern(pattern_costs(tokens)) == "XX"),
        "below_v": np.abs(signals @ v.weights).max(),
        "below_p": signals @ p.weights,
        "below_p_formula": closed_form(tokens, selection).on_signals,
    }


def _many_tokens(sample: Sample, run: int) -> dict:
    """T = 4: flipped samples that average m of their noise tokens, and the threshold against the longest noise token."""
    tokens, noise = tokens_of(sample, run, noise_token="longest"), sample.noise_tokens()[run].numpy()
    selection, extra, flipped = pattern_selection(tokens, "SS"), [], int((~tokens.clean).sum())
    for m in range(1, noise.shape[1] + 1):
        averaged = replace(tokens, noise=noise[:, :m].mean(1))  # m times closer to zero, squared: W is m times as large
        used = len(np.unique(tokens.classes[tokens.clean]))
        w2 = selection_margin(averaged, selection).norm_squared - used / tokens.signal_norm**2
        extra.append(w2 * tokens.noise_scale / flipped if flipped else math.nan)
    odds = math.log(2 * noise.shape[1] / CHANCE)
    bounds = [w * sample.law.d / max(flipped, 1) for w in noise_cost_bounds(flipped, sample.law.d, odds)]
    ratios = [measured_threshold(tokens, k) / predicted_thresholds(tokens)[k] for k in (0, 1)]
    longest = (sample.noise_tokens()[run].numpy() ** 2).sum(-1).argmax(1) + 1
    query = attention_margin_of_all_tokens(sample, np.where(tokens.clean, 0, longest), run)
    return {
        "averaged": extra, "averaged_bounds": bounds, "many_flipped": flipped, "many_threshold": ratios,
        "many_residual": query.residual,
    }  # fmt: skip


def _heads(tokens: Tokens) -> dict:
    """Two heads with a selection each: |v|^2 of equal pairs over one head's, and the best split pair over the best equal one."""
    found = {}
    for first in ("SS", "SX", "XS", "XX"):
        for second in ("SS", "SX", "XS", "XX"):
            rows = np.hstack([tokens.mixed(pattern_selection(tokens, pattern)) for pattern in (first, second)])
            found[first, second] = hard_margin(rows, tokens.labels).norm_squared
    equal = {pair[0]: value for pair, value in found.items() if pair[0] == pair[1]}
    one = pattern_costs(tokens, tuple(equal))
    split = min(value for pair, value in found.items() if pair[0] != pair[1])
    return {"heads_equal": [equal[name] / one[name] for name in equal], "heads_split": split / min(equal.values())}


def fresh_study(
    law: SignalNoiseLaw, *, draws: int = 10, seed: int = 0, few_samples: int = 20, few_draws: int = 5
) -> FreshStudy:
    """Measure the limit of hard attention above the threshold and below it, and what more tokens or heads change.

    Args:
        law: as in `margin_study`. draws: training sets, >= 2, and as many with four tokens and 2 few_samples samples.
        few_samples: n of the sets with two heads (>= 6), at the same d/n and signal norm. few_draws: their number, >= 1.

    Raises ValueError for a bad argument before any work.
    """
    check_law(law)
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("few_samples", few_samples, at_least=6)
    checks.whole_number("few_draws", few_draws, at_least=1)
    below, small_law = half_threshold(law), smaller(law, few_samples)
    sample, low, few = law.draw(seed, draws), below.draw(seed, draws), small_law.draw(seed, few_draws)
    four = replace(law, n=2 * few_samples, d=2 * small_law.d, tokens=4).draw(seed, draws)
    numbers = stack([_above(tokens_of(sample, run), sample, run) for run in range(draws)])
    numbers |= stack([_below(tokens_of(low, run), low, run) for run in range(draws)])
    numbers |= stack([_many_tokens(four, run) for run in range(draws)])
    numbers |= stack([_heads(tokens_of(few, run)) for run in range(few_draws)])
    return FreshStudy(law, numbers, below=below, small_law=small_law)
