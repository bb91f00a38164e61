r"""The support vector machine of a token selection, and which selection has the largest margin.

A selection replaces each sample by one vector $r_i = s_i u_i + (1-s_i)\xi_i$, $s_i \in [0,1]$ ($s_i \in \{0,1\}$: hard). Its margin is

$$ \Gamma(s) = \max_{|v|\le1} \min_i y_i\, v\cdot r_i = \frac1{|v(s)|}, \qquad
   v(s) = \arg\min |v|^2 \;\text{ s.t. }\; y_i\, v\cdot r_i \ge 1 . $$

Solved exactly by `attnbook.single_head.svm`; needs scipy and clarabel (extra `margin`).

Class-level patterns, one letter per class: `S` clean samples select the signal and flipped ones their noise; `X` all select
noise; `F` the flipped choice (clean: noise, flipped: signal). Source of all formulas: derived, chapter on the maximum margin.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.single_head.svm import MaxMargin, NotSeparable, hard_margin
from attnlib.arrays import Bools, Floats, Ints
from attnlib.single_head.errors import log10_clean_error

PATTERNS = tuple("".join(pair) for pair in itertools.product("XSF", repeat=2))


class ThresholdOutside(ValueError):
    """The searched interval does not hold the threshold."""


@dataclass(frozen=True)
class Tokens:
    """One training set of two tokens per sample, as numpy arrays."""

    signal: Floats  # (n, m), u_i
    noise: Floats  # (n, m), xi_i
    labels: Floats  # (n,), +-1, observed
    classes: Ints  # (n,), 0 or 1
    clean: Bools  # (n,), bool
    signal_norm: float  # rho
    noise_scale: float  # E |xi|^2, which is d (or 1 for normalised noise) up to the two missing directions

    @property
    def n(self) -> int:
        return len(self.labels)

    def counts(self) -> tuple[Ints, Ints]:
        """(|C_1|, |C_2|) and (|N_1|, |N_2|)."""
        held = np.stack([self.classes == 0, self.classes == 1])
        return (held & self.clean).sum(1), (held & ~self.clean).sum(1)

    def with_signal_norm(self, signal_norm: float) -> Tokens:
        """The same draw with signals of another norm."""
        return replace(self, signal=self.signal * (signal_norm / self.signal_norm), signal_norm=float(signal_norm))

    def mixed(self, selection: Floats) -> Floats:
        """r_i = s_i u_i + (1 - s_i) xi_i, (n, m), for weights s (n,) in [0, 1]."""
        s = selection[:, None]
        return s * self.signal + (1 - s) * self.noise


def tokens_of(sample, run=0, *, noise_token=0):
    """Signal token and one noise token of every sample of one run.

    noise_token: index of the noise token, or "longest" (what an optimal hard selection takes for T > 2).
    """
    one = sample.run(run)
    noise = one.noise_tokens()[0].numpy()  # (n, T-1, m)
    if noise_token == "longest":
        noise_token = (noise**2).sum(-1).argmax(1)
    classes, law = one.signal_class[0].numpy(), sample.law
    return Tokens(
        signal=one.signals[0].numpy()[classes],
        noise=noise[np.arange(len(noise)), noise_token],
        labels=one.labels[0].numpy(),
        classes=classes,
        clean=~one.noisy[0].numpy(),
        signal_norm=law.signal_norm,
        noise_scale=law.d * law.noise_std**2,
    )


# --- selections ------------------------------------------------------------------------------------------------------------


def selection_margin(tokens: Tokens, selection: Floats) -> MaxMargin:
    """The SVM of a selection s (n,), hard or soft. Raises as `hard_margin`."""
    return hard_margin(tokens.mixed(selection), tokens.labels)


def pattern_selection(tokens: Tokens, pattern: str) -> Floats:
    """The hard selection s (n,) of a class-level pattern such as "SX"."""
    letter = np.array(list(pattern))[tokens.classes]
    return np.where(letter == "S", tokens.clean, np.where(letter == "F", ~tokens.clean, False)).astype(float)


def pattern_cost(tokens: Tokens, pattern: str) -> float:
    r"""|v|^2 in the orthogonal limit: per class 1/rho^2 + |N_k|/d (S), n_k/d (X), 1/rho^2 + |C_k|/d (F).

    The signal costs nothing where no sample of the class selects it.
    """
    per_noise, per_signal = 1 / tokens.noise_scale, 1 / tokens.signal_norm**2
    total = 0.0
    for letter, clean, flipped in zip(pattern, *tokens.counts(), strict=True):
        on_signal, on_noise = {"S": (clean, flipped), "X": (0, clean + flipped), "F": (flipped, clean)}[letter]
        total += per_signal * (on_signal > 0) + per_noise * on_noise
    return float(total)


def pattern_costs(tokens: Tokens, patterns: tuple[str, ...] = PATTERNS) -> dict[str, float]:
    """|v|^2 of each pattern by the exact SVM; inf where it is not separable."""
    return {pattern: _cost(tokens, pattern) for pattern in patterns}


def _cost(tokens: Tokens, pattern: str) -> float:
    try:
        return selection_margin(tokens, pattern_selection(tokens, pattern)).norm_squared
    except NotSeparable:
        return math.inf


def best_pattern(costs: dict[str, float]) -> str:
    """The pattern of least |v|^2, ties (classes without such samples) broken by the order of `PATTERNS`.

    Raises NotSeparable when no pattern is.
    """
    least = min(costs.values())
    if not math.isfinite(least):
        raise NotSeparable("not separable: no class-level pattern separates these samples")
    return next(pattern for pattern in PATTERNS if costs.get(pattern, math.inf) <= least * (1 + 1e-9))


def predicted_thresholds(tokens: Tokens) -> Floats:
    r"""(2,): $\rho_k = \sqrt{d/|C_k|}$, above which class k selects its signal; inf for a class without clean samples."""
    with np.errstate(divide="ignore"):
        return np.sqrt(tokens.noise_scale / tokens.counts()[0])


def predicted_pattern(tokens: Tokens) -> str:
    """The formula's best selection: S for each class whose signal is above its threshold, X otherwise."""
    return "".join("S" if tokens.signal_norm > threshold else "X" for threshold in predicted_thresholds(tokens))


def measured_threshold(tokens: Tokens, k: int) -> float:
    """The signal norm at which the best selection of class k changes, by bisection with exact SVMs on this draw.

    Compared are the best selection with S for class k and the best with X for it; the other class takes the better of S and X.

    Searched is (1/8, 8) sqrt(d/n), to a relative 1e-6. Raises ThresholdOutside when the sign does not change on it.
    """
    from scipy.optimize import bisect

    unit = math.sqrt(tokens.noise_scale / tokens.n)
    low, high = unit / 8, 8 * unit

    def advantage(log_norm: float) -> float:
        at = tokens.with_signal_norm(math.exp(log_norm))
        best = {own: min(_cost(at, own + other if k == 0 else other + own) for other in "SX") for own in "SX"}
        return best["X"] - best["S"]

    ends = math.log(low), math.log(high)
    signs = [advantage(end) for end in ends]
    if not all(map(math.isfinite, signs)) or not signs[0] < 0 < signs[1]:
        raise ThresholdOutside(
            f"the threshold of class {k + 1} must lie between low = {low:.4g} and high = {high:.4g}; "
            "the best selection is the same at both ends"
        )
    return math.exp(bisect(advantage, *ends, xtol=1e-6))


# --- what pages I.4 and I.12 share -------------------------------------------------------------------------------------------

CHANCE = 0.05  # with which the proved intervals of all of one draw's thresholds (costs, gains) may be false


def attention_margin(tokens, selection):
    """The query's SVM of a hard selection (n,): p.(selected - other) >= 1 for every sample. Raises as `hard_margin`."""
    return hard_margin(tokens.signal - tokens.noise, 2 * np.asarray(selection) - 1)


def log10_error(sample, v, p, run=0):
    """Exact log10 clean error of (v, p), both (m,), on the law of `sample`, in the coordinates of its run."""
    v, p = (torch.as_tensor(x, dtype=sample.tokens.dtype).unsqueeze(0) for x in (v, p))
    return log10_clean_error(v, p, sample.run(run)).item()


def chi_square_bounds(freedom, log_odds):
    r"""$m - 2\sqrt{mL}$ and $m + 2\sqrt{mL} + 2L$: a chi-square variable with m degrees of freedom is below the first, or above the
    second, with probability at most $e^{-L}$ each (Laurent and Massart)."""
    root = 2 * math.sqrt(freedom * log_odds)
    return freedom - root, freedom + root + 2 * log_odds


def over_chi_square(value, freedom, log_odds):
    """value over the lower bound of a chi-square variable; inf where that is not positive."""
    smallest = chi_square_bounds(freedom, log_odds)[0] if freedom > 0 else 0.0
    return value / smallest if smallest > 0 else math.inf


def noise_cost_bounds(size, d, log_odds):
    r"""Bounds of W(A), |A| = size, for noise tokens N(0, I) in d - 2 dimensions, each false with probability $e^{-L}$ at most.

    $|A|/\chi^2_{d-2} \le W(A) \le |A|/\chi^2_{d-1-|A|}$. The upper bound is inf where d is too small for it.
    """
    if size == 0:
        return 0.0, 0.0
    return size / chi_square_bounds(d - 2, log_odds)[1], over_chi_square(size, d - 1 - size, log_odds)


def check_law(law):
    """Raises ValueError unless there is room for 2 n noise directions: no range of one parameter of a page says so."""
    if law.d - 2 < 2 * law.n:
        raise ValueError(
            f"d must be at least 2 n + 2 = {2 * law.n + 2}; got {law.d}: fewer directions than samples separate nothing"
        )


def half_threshold(law):
    """The same law at half the signal norm of the threshold for balanced classes."""
    threshold = math.sqrt(2 * law.d / (law.n * (1 - law.label_noise))) * law.noise_std
    return replace(law, signal_norm=0.5 * threshold)


def smaller(law, samples):
    """The law of fewer samples with the same d/n and signal norm, and so the same n SNR^2."""
    return replace(law, n=samples, d=round(law.d * samples / law.n))


def by_name(rows):
    """Of one dictionary a draw: float tensors by name, the draws first."""
    return {name: torch.as_tensor(np.array([np.asarray(row[name], float) for row in rows])) for name in rows[0]}
