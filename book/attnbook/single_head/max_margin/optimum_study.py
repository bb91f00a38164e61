"""What page I.4 measures: the optimum at finite norms, found by a search over p on small sets, and what bounds it."""

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from attnbook.single_head.margin import (
    Tokens,
    best_pattern,
    pattern_costs,
    pattern_selection,
    selection_margin,
    tokens_of,
)
from attnbook.single_head.max_margin.attention_margin import (
    attention_margin,
    constrained_optimum,
    directional_margin,
    joint_optimum,
    joint_radius,
    log10_error,
)
from attnbook.single_head.max_margin.optimum_limit import best_hard, error_near_noise, log10_error_near_signal
from attnbook.single_head.max_margin.study import MarginStudy, check_law, half_threshold, smaller, stack
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw

FAR = (5.0, 8.0)  # |p| / |p_mm| of the far searches
JOINT = (10.0, 30.0, 100.0)  # demanded margins of the joint problem, in units of |p_mm| Gamma


@dataclass(frozen=True, kw_only=True)
class OptimumStudy(MarginStudy):
    """The numbers of `optimum_study`."""

    below: SignalNoiseLaw  # half the threshold's signal norm
    small_law: SignalNoiseLaw  # of the searched sets
    radius: float  # |p| / |p_mm| of the near search


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


def search(name: str, tokens: Tokens, sample: Sample, run: int, radius: float, seed: int) -> dict:
    """Real optimisation over p, at `radius` and at the far sizes; everything relative to the best hard selection.

    `same`, `active`, `speaks` and `best` say (1 = yes) whether the draw meets the condition of a theorem.
    """
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
        rows["same"].append(float(same))
        rows["cosine"].append(cosines[1])
        rows["rival_cosine"].append(top.v @ rival / np.linalg.norm(top.v) / np.linalg.norm(rival))
        rows["margin"].append(directional_margin(tokens, top.v, top.p))
        rows["error"].append(log10_error(sample, top.v, top.p, run))
        rows["query"].append(1 - cosines[0])
        active = (hard.p.multipliers > 0).all() and delta > 0
        rows["active"].append(float(active))
        rows["value"].append(math.log(delta) + size if active else math.nan)
        rows["level"].append(hard.level if active else math.nan)
        speaks = delta < 1 - hard.second
        rows["speaks"].append(float(speaks))
        rows["query_bound"].append(1 - hard.cosine_bound(delta, size * hard.p.norm))
        rows["query_room"].append(cosines[0] - hard.cosine_bound(delta, size * hard.p.norm) if speaks else math.nan)
        rows["slack"].append(hard.slack(top.p) * hard.gap(delta) / delta if speaks else math.nan)
        std, bound = sample.law.noise_std, math.nan
        best = hard.pattern == {"above": "SS", "low": "XX"}[name]
        if best and name == "above":
            bound = log10_error_near_signal(hard, on_signals, cosines[0], top.value, noise_std=std)
        if best and name == "low":
            bound = error_near_noise(hard, on_signals, cosines, size * hard.p.norm, noise_std=std)
        rows["best"].append(float(best))
        rows["error_bound"].append(bound)
    return {f"{name}_{key}": row for key, row in rows.items()}


def optimum_study(
    law: SignalNoiseLaw, *, seed: int = 0, radius: float = 3.0, search_samples: int = 20, search_draws: int = 5
) -> OptimumStudy:  # fmt: skip
    """Search the optimum above the threshold and below it.

    Args:
        law: as in `margin_study`. radius: |p| / |p_mm| in the search, > 0. search_draws: training sets, >= 1.
        search_samples: n of the searched sets (>= 6); d/n and the signal norm are kept, so n SNR^2 is.

    Raises ValueError for a bad argument before any work.
    """
    check_law(law)
    checks.positive_number("radius", radius, hint="with |p| = 0 attention is uniform and nothing is selected")
    checks.whole_number("search_samples", search_samples, at_least=6)
    checks.whole_number("search_draws", search_draws, at_least=1)
    below, small_law = half_threshold(law), smaller(law, search_samples)
    small = small_law.draw(seed, search_draws)
    small_low = replace(small_law, signal_norm=below.signal_norm).draw(seed, search_draws)
    searches = [
        search("above", tokens_of(small, run), small, run, radius, seed)
        | search("low", tokens_of(small_low, run), small_low, run, radius, seed)
        | _joint(tokens_of(small, run))
        for run in range(search_draws)
    ]
    return OptimumStudy(law, stack(searches), below=below, small_law=small_law, radius=float(radius))
