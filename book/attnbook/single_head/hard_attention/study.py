"""What page `12_hard_attention` measures: the query of a hard selection, the candidate's errors on fresh data, four tokens, two heads."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.single_head.margin import (
    CHANCE,
    attention_margin,
    best_pattern,
    by_name,
    check_law,
    half_threshold,
    log10_error,
    measured_threshold,
    noise_cost_bounds,
    pattern_costs,
    pattern_selection,
    predicted_thresholds,
    selection_margin,
    smaller,
    tokens_of,
)
from attnbook.single_head.svm import hard_margin
from attnlib.single_head.errors import scores_of_fresh_data

RATIOS = (0.5, 1.0, 3.0, 10.0, 100.0)  # |p| / |p_mm| at which the candidate's error is measured


def closed_form(tokens, selection):
    r"""The query's SVM in the orthogonal limit: $p\cdot\mu_k = A_k$ (2,) and $|p|^2$.

    With $\epsilon_i = +1$ where the signal is selected, else $-1$, and $S_k = \sum_{I_k}\epsilon_i$,

    $$ A_k = \frac{\rho^2 S_k}{d + \rho^2 n_k}, \qquad p\cdot\xi_i = A_k - \epsilon_i, \qquad
       |p|^2 = \sum_k \frac{n_k}{d} - \frac{(S_k/d)^2}{1/\rho^2 + n_k/d}. $$
    """
    rho2, d = tokens.signal_norm**2, tokens.noise_scale
    held = np.stack([tokens.classes == 0, tokens.classes == 1])
    size, total = held.sum(1), (held * (2 * selection - 1)).sum(1)
    return rho2 * total / (d + rho2 * size), (size / d - (total / d) ** 2 / (1 / rho2 + size / d)).sum()


def attention_margin_of_all_tokens(sample, selected, run=0):
    """The query's SVM for T tokens: the selected one (n,) beats each of the T-1 others by 1: n(T-1) constraints."""
    tokens = sample.run(run).tokens[0].numpy()  # (n, T, m)
    n, T, m = tokens.shape
    others = np.arange(T) != selected[:, None]
    rows = (tokens[np.arange(n), selected][:, None, :] - tokens)[others]
    return hard_margin(rows.reshape(-1, m), np.ones(n * (T - 1)))


def limit_error(sample, v, p, run=0):
    r"""log10 of the clean error of (v, R p) as R goes to infinity, and of its bound; for v.mu of the right sign.

    A fresh sample of class k is then lost exactly if its noise beats the signal, $t = p\cdot\xi > A_k = p\cdot\mu_k$, and
    $v\cdot\xi$ has the wrong sign. So $\mathrm{err}_k = \int_{A_k}^\infty N(t; 0, \omega^2)\,\Phi(-c_k t/(\omega\tau))\,dt
    \le \Phi(-A_k/\omega)$, with $\omega, c_k, \tau$ of `population`.
    """
    vectors = (torch.as_tensor(x, dtype=sample.tokens.dtype).unsqueeze(0) for x in (v, p))
    s, errors, bounds = scores_of_fresh_data(*vectors, sample.run(run)), [], []
    for k in (0, 1):
        cut = (s.logit / s.omega)[0, k]
        # Beyond the cut the density falls at least like exp(-t^2/2): 40 standard deviations past it nothing is left.
        t = torch.linspace(0, 1, 400_001, dtype=s.tau.dtype) * 40 + cut
        log_density = torch.special.log_ndtr(-(s.along / s.tau)[0, k] * t) - t**2 / 2 - 0.5 * math.log(2 * math.pi)
        weights = torch.ones_like(t)
        weights[[0, -1]] = 0.5
        errors.append(torch.logsumexp(log_density + weights.log(), 0) + math.log(40 / 400_000))
        bounds.append(torch.special.log_ndtr(-cut))
    mean = [torch.logsumexp(torch.stack(x), 0).item() - math.log(2) for x in (errors, bounds)]
    return mean[0] / math.log(10), mean[1] / math.log(10)


def _candidate(sample, pattern, run):
    """The two SVMs of a selection by class, (v, p), and what is said of them."""
    tokens, signals = tokens_of(sample, run), sample.signals[run].numpy()
    selection = pattern_selection(tokens, pattern)
    v, p = selection_margin(tokens, selection), attention_margin(tokens, selection)
    signal_formula, query_formula = closed_form(tokens, selection)
    return (v.weights, p.weights), {
        "query": p.norm_squared, "query_formula": query_formula,  # |p|^2
        "signal": signals @ p.weights, "signal_formula": signal_formula,  # p.mu_k
        "value": np.abs(signals @ v.weights).max(),  # |v.mu_k|
        "xx_best": float(best_pattern(pattern_costs(tokens)) == "XX"),
    }  # fmt: skip


def _errors(sample, v, p, run):
    """The candidate's exact errors, as the query grows."""
    limit, bound = limit_error(sample, v, p, run)
    return {
        "errors": [log10_error(sample, v, ratio * p, run) for ratio in RATIOS],
        "far_error": log10_error(sample, v, 1e5 * p, run), "limit_error": limit, "limit_bound": bound,
    }  # fmt: skip


def _many_tokens(sample, run):
    """T = 4: flipped samples that average m of their noise tokens, and the threshold against the longest noise token."""
    tokens, noise = tokens_of(sample, run, noise_token="longest"), sample.noise_tokens()[run].numpy()
    selection, extra, flipped = pattern_selection(tokens, "SS"), [], int((~tokens.clean).sum())
    for m in range(1, noise.shape[1] + 1):
        averaged = replace(tokens, noise=noise[:, :m].mean(1))  # m times closer to zero, squared: W is m times as large
        used = len(np.unique(tokens.classes[tokens.clean]))
        w2 = selection_margin(averaged, selection).norm_squared - used / tokens.signal_norm**2
        extra.append(w2 * tokens.noise_scale / flipped if flipped else math.nan)
    odds = math.log(2 * noise.shape[1] / CHANCE)
    longest = (noise**2).sum(-1).argmax(1) + 1
    return {
        "averaged": extra,
        "averaged_bounds": [w * sample.law.d / max(flipped, 1) for w in noise_cost_bounds(flipped, sample.law.d, odds)],
        "flipped": flipped,
        "threshold": [measured_threshold(tokens, k) / predicted_thresholds(tokens)[k] for k in (0, 1)],
        "residual": attention_margin_of_all_tokens(sample, np.where(tokens.clean, 0, longest), run).residual,
    }


def _heads(tokens):
    """Two heads with a selection each: |v|^2 of equal pairs over one head's, and the best split pair over the best equal one."""
    patterns, found = ("SS", "SX", "XS", "XX"), {}
    for first in patterns:
        for second in patterns:
            rows = np.hstack([tokens.mixed(pattern_selection(tokens, pattern)) for pattern in (first, second)])
            found[first, second] = hard_margin(rows, tokens.labels).norm_squared
    equal, one = [found[name, name] for name in patterns], pattern_costs(tokens, patterns)
    split = min(value for (first, second), value in found.items() if first != second)
    return {
        "equal": [value / one[name] for name, value in zip(patterns, equal, strict=True)],
        "split": split / min(equal),
    }


def fresh_study(law, *, draws=10, seed=0, few_samples=20, few_draws=5):
    """Above the threshold, at half of it, with four tokens, with two heads: a namespace of tensors each, the draws first.

    `draws` training sets, as many with four tokens and 2 few_samples samples; `few_draws` with two heads and few_samples.
    """
    check_law(law)
    s = SimpleNamespace(law=law, small_law=smaller(law, few_samples))
    sample, low, few = law.draw(seed, draws), half_threshold(law).draw(seed, draws), s.small_law.draw(seed, few_draws)
    four = replace(law, n=2 * few_samples, d=2 * s.small_law.d, tokens=4).draw(seed, draws)
    above = [_candidate(sample, "SS", run) for run in range(draws)]
    errors = [_errors(sample, *head, run) for run, (head, _) in enumerate(above)]
    s.above = SimpleNamespace(**by_name([row for _, row in above]), **by_name(errors))
    s.below = SimpleNamespace(**by_name([_candidate(low, "XX", run)[1] for run in range(draws)]))
    s.many = SimpleNamespace(**by_name([_many_tokens(four, run) for run in range(draws)]))
    s.heads = SimpleNamespace(**by_name([_heads(tokens_of(few, run)) for run in range(few_draws)]))
    return s
