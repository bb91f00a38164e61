"""Every number the claims M1-M28 look at: exact SVMs of many draws, and a search over p on smaller sets of the same shape.

Draws are those of `SignalNoiseLaw.draw(seed)`. Changing the signal norm keeps labels and noise: "the same draw" at another SNR.
"""

import math
from dataclasses import dataclass, replace

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
from attnbook.single_head.max_margin.attention_margin import (
    attention_margin,
    attention_margin_of_all_tokens,
    closed_form,
    directional_margin,
    joint_optimum,
    joint_radius,
    limit_error,
    log10_error,
    weight_on_signal,
)
from attnbook.single_head.max_margin.bounds_study import (
    CHANCE,
    cost_bounds,
    crowded,
    search,
    threshold_bounds,
)
from attnbook.single_head.max_margin.finite_threshold import exact_threshold, noise_cost_bounds
from attnbook.single_head.svm import NotSeparable, hard_margin
from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import Sample, SignalNoiseLaw

RATIOS = (0.5, 1.0, 3.0, 10.0, 100.0)  # |p| / |p_mm| at which the candidate is measured
WEIGHTS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)  # signal weights of the mixed sample
GRID = (0.4, 0.7, 0.85, 1.0, 1.15, 1.4, 2.5)  # signal norms, in units of the balanced threshold
JOINT = (10.0, 30.0, 100.0)  # demanded margins of the joint problem, in units of |p_mm| Gamma
FLIP_DRAWS = 5
SOFT_SCALES = (0.3, 0.8, 1.5)  # spread of a random query's logits, and |p| of the SVM's query in units of |p_mm|


@dataclass(frozen=True)
class MarginStudy:
    """What `margin_study` measured: float tensors with the draws first; nan where a draw has nothing to say."""

    law: SignalNoiseLaw
    below: SignalNoiseLaw  # the same law with half the threshold's signal norm
    search_law: SignalNoiseLaw
    radius: float  # |p| / |p_mm| of the search
    patterns: list[str]  # best of nine, per draw
    numbers: dict[str, torch.Tensor]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.numbers[name]

    @property
    def draws(self) -> int:
        return len(self.patterns)


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
    spectrum = np.linalg.eigvalsh(gram) if flipped else np.full(2, math.nan)
    used = sum(bool((tokens.clean & (tokens.classes == k)).any()) for k in (0, 1))
    w2 = svm.norm_squared - used / tokens.signal_norm**2
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
        "ss": svm.norm_squared, "residual": svm.residual, "w2": w2,
        "ss_formula": used / tokens.signal_norm**2 + multipliers.sum() if (multipliers >= 0).all() else math.nan,
        "w2_low": flipped / spectrum[-1], "w2_high": flipped / spectrum[0], "flip_extra": extra, "soft_over_hard": ratios,
        "mixing_clean_formula": [predicted_mixing(tokens, s, clean=True) for s in WEIGHTS],
        "mixing_noisy_formula": [predicted_mixing(tokens, s, clean=False) for s in WEIGHTS], **mixing,
    }  # fmt: skip


def _attention(tokens: Tokens, sample: Sample, run: int) -> dict:
    """The query's SVM for SS, the candidate's margins and its exact errors."""
    selection = pattern_selection(tokens, "SS")
    v, p = selection_margin(tokens, selection), attention_margin(tokens, selection)
    form = closed_form(tokens, selection)
    on_signals = sample.signals[run].numpy() @ p.weights
    reached = ((tokens.labels * (tokens.noise @ v.weights))[tokens.clean] >= -1).all()  # condition of the tanh bound
    limit, bound = limit_error(sample, v.weights, p.weights, run)
    noisy = bool((~tokens.clean).any())
    tanh = [directional_margin(tokens, v.weights, r * p.weights) * v.norm for r in RATIOS]
    return {
        "query": p.norm_squared, "query_formula": form.norm_squared, "query_signal": on_signals,
        "query_signal_formula": form.on_signals, "candidate": tanh if reached and noisy else [math.nan] * len(RATIOS),
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


def _joint(tokens: Tokens) -> dict:
    """The joint problem at growing margins: minimum, |p| and its formula, in units of the hard selection's."""
    best = best_pattern(pattern_costs(tokens, ("SS", "XX", "SX", "XS")))
    selection = pattern_selection(tokens, best)
    v, p = selection_margin(tokens, selection), attention_margin(tokens, selection)
    rows = []
    for multiple in JOINT:
        margin = multiple * p.norm * v.margin
        found = joint_optimum(tokens, margin, patterns=(best,), max_iterations=1000)
        radii = np.linspace(0.3, 15, 3000)
        upper = ((margin * v.norm / np.tanh(radii / 2)) ** 2 + (radii * p.norm) ** 2).min()
        # The value on a scale where 0 is (gamma/Gamma)^2 and 1 is the best candidate.
        base = (margin * v.norm) ** 2
        formula = joint_radius(margin, v.margin, p.norm) / p.norm
        # The search fixes |p| to a per cent; further digits depend on the version of the optimiser.
        rows.append([round((found.value - base) / (upper - base), 3), round(found.radius / p.norm, 3), formula])
    return {"joint": rows}


def _many_tokens(sample: Sample, run: int) -> dict:
    """T = 4: flipped samples that average m of their noise tokens, and the threshold against the longest noise token."""
    tokens, noise = tokens_of(sample, run, noise_token="longest"), sample.noise_tokens()[run].numpy()
    selection, extra = pattern_selection(tokens, "SS"), []
    for m in range(1, noise.shape[1] + 1):
        averaged = replace(tokens, noise=noise[:, :m].mean(1))  # m times closer to zero, squared: W is m times as large
        used = len(np.unique(tokens.classes[tokens.clean]))
        w2 = selection_margin(averaged, selection).norm_squared - used / tokens.signal_norm**2
        extra.append(w2 * tokens.noise_scale / max((~tokens.clean).sum(), 1) if (~tokens.clean).any() else math.nan)
    size, odds = int((~tokens.clean).sum()), math.log(2 * noise.shape[1] / CHANCE)
    bounds = [w * sample.law.d / max(size, 1) for w in noise_cost_bounds(size, sample.law.d, odds)]
    ratios = [measured_threshold(tokens, k) / predicted_thresholds(tokens)[k] for k in (0, 1)]
    longest = (sample.noise_tokens()[run].numpy() ** 2).sum(-1).argmax(1) + 1
    query = attention_margin_of_all_tokens(sample, np.where(tokens.clean, 0, longest), run)
    return {"averaged": extra, "averaged_bounds": bounds, "many_threshold": ratios, "many_residual": query.residual}


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
    return {
        "heads_equal": [equal[name] / one[name] for name in equal],
        "heads_split": split / min(equal.values()),
    }


def margin_study(
    law: SignalNoiseLaw, *, draws: int = 10, seed: int = 0, radius: float = 3.0, search_samples: int = 20,
    search_draws: int = 5,
) -> MarginStudy:  # fmt: skip
    """Solve everything the claims need.

    Args:
        law: two tokens; d - 2 >= 2 n keeps every selection that does not contradict itself separable.
        draws: training sets for the exact SVMs and for four tokens, >= 2; as many more between two thresholds, for only about half of the
            draws have thresholds that lie apart. search_draws: for the optimisation over p, >= 1.
        radius: |p| / |p_mm| in the search, > 0.
        search_samples: n of the searched sets (>= 6); d/n and the signal norm are kept, so n SNR^2 is.

    Raises ValueError for a bad argument before any work.
    """
    if not isinstance(law, SignalNoiseLaw) or law.tokens != 2:
        raise ValueError(f"law must be a SignalNoiseLaw with two tokens; got {law!r}")
    if law.d - 2 < 2 * law.n:
        raise ValueError(
            f"d must be at least 2 n + 2 = {2 * law.n + 2}; got {law.d}: fewer directions than samples separate nothing"
        )
    checks.whole_number("draws", draws, at_least=2)
    checks.positive_number("radius", radius, hint="with |p| = 0 attention is uniform and nothing is selected")
    checks.whole_number("search_samples", search_samples, at_least=6)
    checks.whole_number("search_draws", search_draws, at_least=1)
    threshold = math.sqrt(2 * law.d / (law.n * (1 - law.label_noise))) * law.noise_std
    below = replace(law, signal_norm=0.5 * threshold)
    small_d = round(law.d * search_samples / law.n)
    search_law = replace(law, n=search_samples, d=small_d)
    sample, low = law.draw(seed, draws), below.draw(seed, draws)
    parts: list[dict] = []
    for run in range(draws):
        tokens = tokens_of(sample, run)
        part = _selections(tokens, law) | _ss(tokens, seed + run, run < FLIP_DRAWS) | _attention(tokens, sample, run)
        parts.append(part | _below(tokens_of(low, run), low, run))
    twice = law.draw(seed, 2 * draws)
    between = [_between(tokens_of(twice, run)) for run in range(2 * draws)]
    small, small_low = search_law.draw(seed, search_draws), replace(search_law, signal_norm=below.signal_norm)
    small_low = small_low.draw(seed, search_draws)
    searches = [
        search("above", tokens_of(small, run), small, run, radius, seed)
        | search("low", tokens_of(small_low, run), small_low, run, radius, seed)
        for run in range(search_draws)
    ]
    four = replace(law, n=2 * search_samples, d=2 * small_d, tokens=4).draw(seed, draws)
    many = [_many_tokens(four, run) for run in range(draws)]
    for run, found in enumerate(searches):
        one = tokens_of(small, run)
        found |= _heads(one) | _joint(one)
    numbers = _stack(parts, skip="best") | _stack(between) | _stack(many) | _stack(searches)
    numbers |= crowded(max(law.label_noise, 0.1), seed)
    return MarginStudy(law, below, search_law, float(radius), [part["best"] for part in parts], numbers)


def _stack(parts: list[dict], skip: str = "") -> dict[str, torch.Tensor]:
    return {
        name: torch.as_tensor(np.array([np.asarray(part[name], dtype=float) for part in parts]))
        for name in parts[0]
        if name != skip
    }
