r"""Signed Gram matrices of token selections by several heads, and exact minimum norms for many of them at once.

Noise is orthogonal to the signals, so a selection $s \in [0,1]^n$ (1: the signal) has the Gram matrix
$K(s) = ss^\top\!\circ S + (1-s)(1-s)^\top\!\circ N$, with $S_{ij} = y_iy_j\,u_i\cdot u_j$ and $N_{ij} = y_iy_j\,\xi_i\cdot\xi_j$, and H
heads have the sum of theirs: a sample poses one constraint on the stacked vectors. Source: derived.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from attnbook.single_head.margin import Tokens
from attnbook.single_head.svm import NotSeparable, hard_margin
from attnlib import checks
from attnlib.gaussian import bartlett_rows
from attnlib.randomness import stream

# --- the Gram matrix of a selection ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectionGram:
    """Signed Gram matrices of the signal tokens, S_ij = y_i y_j u_i.u_j, and of the noise tokens, N_ij, both (n, n)."""

    signal: np.ndarray
    noise: np.ndarray

    @property
    def n(self) -> int:
        return len(self.signal)

    def of(self, selections: np.ndarray) -> np.ndarray:
        """K of H heads, the sum over heads of K(s_h): selections (..., H, n) in [0, 1] -> (..., n, n). Raises ValueError otherwise."""
        s = np.asarray(selections, dtype=float)
        if s.ndim < 2 or s.shape[-1] != self.n or not s.shape[-2]:
            raise ValueError(
                f"selections must be (..., heads, {self.n}) with one head or more; got shape {s.shape}: one row of weights per head"
            )
        if not ((s >= 0) & (s <= 1)).all():
            raise ValueError(f"selections must hold weights in [0, 1]; got values from {s.min():g} to {s.max():g}")
        on_signal, on_noise = np.swapaxes(s, -1, -2) @ s, np.swapaxes(1 - s, -1, -2) @ (1 - s)
        return on_signal * self.signal + on_noise * self.noise

    def with_signal_scaled(self, factor: float) -> SelectionGram:
        """The same draw with signals `factor` times as long."""
        return replace(self, signal=self.signal * checks.positive_number("factor", factor) ** 2)


def selection_gram(tokens: Tokens) -> SelectionGram:
    """The two Gram matrices of a training set. Raises ValueError unless noise is orthogonal to the signals."""
    overlap = np.abs(tokens.signal @ tokens.noise.T).max()
    if overlap > 1e-8 * tokens.signal_norm * math.sqrt(tokens.noise_scale):
        raise ValueError(
            f"tokens must have noise orthogonal to the signals; got overlaps up to {overlap:.2g}: use a law whose noise avoids them"
        )
    sign = np.outer(tokens.labels, tokens.labels)
    same = tokens.classes[:, None] == tokens.classes[None, :]
    # Exact entries rho^2: equal rows are then equal to the last bit, which is how `minimum_norms` knows them.
    noise = tokens.noise @ tokens.noise.T
    return SelectionGram(sign * same * tokens.signal_norm**2, sign * (noise + noise.T) / 2)


def one_class(
    clean: int, flipped: int, d: int, signal_norm: float, *, seed: int = 0, run: int = 0, orthogonal: bool = False
) -> SelectionGram:
    """One class: `clean` samples, then `flipped` ones, with Gaussian noise in d - 2 dimensions, or orthogonal noise of length sqrt(d)."""
    checks.whole_number("clean", clean, at_least=1)
    checks.whole_number("flipped", flipped, at_least=0)
    n = clean + flipped
    checks.whole_number(
        "d", d, at_least=n + 2, hint="n noise tokens must be independent of each other and of two signals"
    )
    checks.positive_number("signal_norm", signal_norm)
    labels = np.r_[np.ones(clean), -np.ones(flipped)]
    sign = np.outer(labels, labels)
    if orthogonal:
        return SelectionGram(sign * signal_norm**2, d * np.eye(n))
    rows = bartlett_rows(stream(seed, "noise", run), n, d - 2)
    return SelectionGram(sign * signal_norm**2, sign * (rows @ rows.T))


# --- exact minimum norms, many at once -------------------------------------------------------------------------------------


def multipliers(grams: np.ndarray) -> np.ndarray:
    r"""Solutions of $\max_{\alpha\ge0} 2\cdot 1^\top\alpha - \alpha^\top K\alpha$, (B, n, n) -> (B, n); $|v|^2 = 1^\top\alpha$.

    inf where two samples contradict each other. Equal rows are one constraint and share its weight evenly. Where the system of all
    constraints has a solution without a negative multiplier it is optimal (all KKT conditions hold); otherwise smaller active sets
    are tried (n <= 8), and `hard_margin` solves what is left.
    """
    grams = np.asarray(grams, dtype=float)
    if grams.ndim != 3 or grams.shape[1] != grams.shape[2] or not grams.shape[1]:
        raise ValueError(f"grams must be (B, n, n) with n >= 1; got shape {grams.shape}")
    n, index = grams.shape[1], np.arange(grams.shape[1])
    size = grams[:, index, index]
    alike = (size[:, :, None] == size[:, None, :]) & (np.abs(grams) == size[:, :, None])
    contradicts = (alike & (grams < 0)).any((1, 2))
    same = alike & (grams > 0)
    kept = ~np.tril(same, -1).any(2)  # no earlier sample poses the same constraint
    system = np.where(kept[:, :, None] & kept[:, None, :], grams, 0.0)
    system[:, index, index] = np.where(kept, size, 1.0)
    system[contradicts] = np.eye(n)
    alpha = _solved(system, kept)
    alpha[~(alpha >= 0).all(1)] = np.nan
    _smaller_active_sets(grams, kept, alpha)
    for b in np.flatnonzero(np.isnan(alpha).any(1)):
        values, vectors = np.linalg.eigh(grams[b])
        try:
            alpha[b] = hard_margin(vectors * np.sqrt(values.clip(0)), np.ones(n)).multipliers
        except NotSeparable:
            contradicts[b], alpha[b] = True, 0.0
    shared = (same @ alpha[:, :, None])[:, :, 0] / same.sum(2)
    return np.where(contradicts[:, None], np.inf, shared)


def _solved(system: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solutions (B, n) of B linear systems with 0/1 right sides; nan where one is singular to rounding."""
    try:
        return np.linalg.solve(system, right[:, :, None].astype(float))[:, :, 0]
    except np.linalg.LinAlgError:
        if len(system) == 1:
            return np.full(right.shape, np.nan)
        return np.concatenate([_solved(system[b : b + 1], right[b : b + 1]) for b in range(len(system))])


def _smaller_active_sets(grams: np.ndarray, kept: np.ndarray, alpha: np.ndarray) -> None:
    """Fill the rows of `alpha` that are nan by trying every set of active constraints, largest first: n <= 8 only."""
    n = grams.shape[1]
    if n > 8:
        return
    for active in sorted(itertools.product((False, True), repeat=n), key=sum, reverse=True)[1:-1]:
        open_rows = np.flatnonzero(np.isnan(alpha).any(1))
        if not len(open_rows):
            return
        used = kept[open_rows] & np.array(active)
        gram = grams[open_rows]
        system = np.where(used[:, :, None] & used[:, None, :], gram, np.eye(n))
        trial = _solved(system, used)
        optimal = (trial >= 0).all(1) & ((gram @ trial[:, :, None])[:, :, 0] >= 1 - 1e-9).all(1)
        alpha[open_rows[optimal]] = trial[optimal]


def minimum_norms(grams: np.ndarray) -> np.ndarray:
    """|v|^2 of every signed Gram matrix, (B, n, n) -> (B,): exact; inf where it is not separable."""
    return multipliers(grams).sum(1)


def head_norms(gram: SelectionGram, selections: np.ndarray) -> np.ndarray:
    """|v|^2 = sum_h |v_h|^2 of every set of selections: (B, H, n) -> (B,)."""
    return minimum_norms(gram.of(selections))
