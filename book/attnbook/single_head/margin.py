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

from attnbook.single_head.svm import MaxMargin, NotSeparable, hard_margin
from attnlib import checks
from attnlib.arrays import Bools, Floats, Ints
from attnlib.single_head.law import Sample

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
        checks.positive_number("signal_norm", signal_norm)
        return replace(self, signal=self.signal * (signal_norm / self.signal_norm), signal_norm=float(signal_norm))

    def mixed(self, selection: Floats) -> Floats:
        """r_i = s_i u_i + (1 - s_i) xi_i, (n, m). Raises ValueError unless s is (n,) with entries in [0, 1]."""
        s = np.asarray(selection, dtype=float)
        if s.shape != (self.n,) or not ((s >= 0) & (s <= 1)).all():
            raise ValueError(
                f"selection must be {self.n} weights in [0, 1]; got shape {s.shape}, values {np.unique(s)[:3]}"
            )
        return s[:, None] * self.signal + (1 - s)[:, None] * self.noise


def tokens_of(sample: Sample, run: int = 0, *, noise_token: int | str = 0) -> Tokens:
    """Signal token and one noise token of every sample of one run.

    noise_token: index of the noise token, or "longest" (what an optimal hard selection takes for T > 2).
    """
    checks.whole_number("run", run, at_least=0)
    one = sample.run(run)
    if one.runs == 0:
        raise ValueError(f"run must be below {sample.runs}; got {run}")
    noise = one.noise_tokens()[0].numpy()  # (n, T-1, m)
    if noise_token == "longest":
        index = (noise**2).sum(-1).argmax(1)
    else:
        index = np.full(noise.shape[0], checks.whole_number("noise_token", noise_token, at_least=0))
        if index[0] >= noise.shape[1]:
            raise ValueError(f"noise_token must be below {noise.shape[1]}; got {noise_token}")
    classes, law = one.signal_class[0].numpy(), sample.law
    return Tokens(
        signal=one.signals[0].numpy()[classes],
        noise=noise[np.arange(len(index)), index],
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
    """The hard selection s (n,) of a class-level pattern such as "SX". Raises ValueError for anything else."""
    checks.one_of("pattern", pattern, PATTERNS)
    letter = np.array(list(pattern))[tokens.classes]
    return np.where(letter == "S", tokens.clean, np.where(letter == "F", ~tokens.clean, False)).astype(float)


def pattern_cost(tokens: Tokens, pattern: str) -> float:
    r"""|v|^2 in the orthogonal limit: per class 1/rho^2 + |N_k|/d (S), n_k/d (X), 1/rho^2 + |C_k|/d (F).

    The signal costs nothing where no sample of the class selects it.
    """
    checks.one_of("pattern", pattern, PATTERNS)
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
    if k not in (0, 1) or isinstance(k, bool):
        raise ValueError(f"k must be 0 or 1; got {k!r}")
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
