r"""Maximum margin when tokens do not compete: weights in $[0, 1]$ for each token, unnormalised.

A normalised map makes a class choose between its signal, $1/\rho^2$, and its noise, $|C_k|/d$: hence a threshold. Unnormalised weights
may be 1 for both. Three problems $\min|v|^2$, $y_i\,v\cdot r_i \ge 1$, in the limit of orthogonal noise, per class:

| weights | $r_i$ of clean, flipped samples | cost of class k |
|---|---|---|
| free for every sample | $u + \xi$, $\xi$ | $1/(\rho^2 + d/|C_k|) + |N_k|/d$ |
| what attention can do | $u + \xi$, $u + \xi$ | $n_k/d - \frac{((|C_k|-|N_k|)/d)^2}{1/\rho^2 + n_k/d}$ |
| noise only | $\xi$, $\xi$ | $n_k/d$ |

A token's weight is $\phi(p\cdot x)$ and the token $\mu_k$ is the same vector in clean and in flipped samples, so the first row is a
bound that no p attains; the second is attained. Both are below the third at every SNR (for $|C_k| > |N_k|$): no threshold. Weights
without a bound are another matter: with $w = p\cdot x$ the least $|v|^2 + |p|^2$ is a linear programme, `product_costs`, whose
threshold is $\rho^2(|C_k| - |N_k|) = d$. Exact SVMs by `single_head.svm`. Source: derived.
"""

import itertools

import numpy as np

from attnbook.single_head.margin import Tokens
from attnbook.single_head.svm import NotSeparable, hard_margin

SELECTIONS = ("free", "shared", "noise")


def _check(selection: str) -> None:
    if selection not in SELECTIONS:
        raise ValueError(f"selection must be one of {', '.join(SELECTIONS)}; got {selection!r}")


def selected(tokens: Tokens, selection: str) -> np.ndarray:
    """r_i, (n, m): "free" (clean: both tokens, flipped: noise), "shared" (both for all) or "noise"."""
    _check(selection)
    signal = {"free": tokens.clean, "shared": np.ones(tokens.n), "noise": np.zeros(tokens.n)}[selection]
    return signal[:, None] * tokens.signal + tokens.noise


def unnormalised_svm(tokens: Tokens, selection: str) -> float:
    """|v|^2 of the exact SVM on the selected sums. Raises as `hard_margin`."""
    return hard_margin(selected(tokens, selection), tokens.labels).norm_squared


def unnormalised_cost(tokens: Tokens, selection: str) -> float:
    """The table's cost, both classes together."""
    _check(selection)
    per_signal, per_noise, total = 1 / tokens.signal_norm**2, 1 / tokens.noise_scale, 0.0
    for clean, flipped in zip(*tokens.counts(), strict=True):
        count = clean + flipped
        if selection == "noise":
            total += count * per_noise
        elif selection == "shared":
            total += count * per_noise - ((clean - flipped) * per_noise) ** 2 / (per_signal + count * per_noise)
        else:
            total += flipped * per_noise + (1 / (1 / per_signal + 1 / (per_noise * clean)) if clean else 0.0)
    return float(total)


def best_of_all(tokens: Tokens) -> tuple[float, np.ndarray]:
    """Least |v|^2 over all selections in {0, 1}^2 of every sample, (0, 0) left out: 3^n exact SVMs, n <= 8.

    Returns the cost and the weights (n, 2) of signal and noise.
    """
    if tokens.n > 8:
        raise ValueError(f"tokens must hold at most 8 samples; got {tokens.n}: 3^n problems are solved")
    best, chosen = np.inf, None
    kinds = tokens.classes + 2 * tokens.clean
    for pattern in itertools.product(((1, 1), (0, 1), (1, 0)), repeat=tokens.n):
        weights = np.array(pattern, dtype=float)
        alone = set(kinds[weights[:, 1] == 0].tolist())
        if {0, 2} <= alone or {1, 3} <= alone:
            continue  # a clean and a flipped sample of one class, both on the signal alone: contradictory
        rows = weights[:, :1] * tokens.signal + weights[:, 1:] * tokens.noise
        try:
            cost = hard_margin(rows, tokens.labels).norm_squared
        except NotSeparable:
            continue
        if cost < best:
            best, chosen = cost, weights
    if chosen is None:
        raise NotSeparable("not separable: no selection separates these samples")
    return best, chosen


def product_costs(tokens: Tokens) -> np.ndarray:
    r"""(2, 2), per class: least $\frac12(|v|^2 + |p|^2)$ of linear attention with margin 1, with the signal and without it.

    In the orthogonal limit a token's product $m = (p\cdot x)(v\cdot x)y$ costs $|m|/|x|^2$. Without the signal every sample pays
    $1/d$. With it, all of the clean margin on the signal: $1/\rho^2$, and $2/d$ for every flipped sample. Linear in between.
    """
    clean, flipped = tokens.counts()
    per_signal, per_noise = 1 / tokens.signal_norm**2, 1 / tokens.noise_scale
    return np.stack([per_signal + 2 * flipped * per_noise, (clean + flipped) * per_noise], axis=1)
