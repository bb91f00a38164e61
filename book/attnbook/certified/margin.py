r"""Which selection of tokens has the largest margin, proved for the very draw in whole numbers.

The tokens of a draw are floats, and a float is a whole number times a power of two: so the Gram matrix of the $y_ir_i$ is known exactly.
For any weights $\alpha\ge0$, not all zero, with $w=\sum\alpha_iy_ir_i$ and $\mu=\min_iy_ir_i\cdot w>0$,

$$ \frac{(\sum\alpha_i)^2}{|w|^2}\ \le\ \min\{|v|^2:\ y_iv\cdot r_i\ge1\}\ \le\ \frac{|w|^2}{\mu^2} . $$

(Left: $\sum\alpha_i\le\sum\alpha_iy_iv\cdot r_i=v\cdot w\le|v||w|$. Right: $w/\mu$ is admissible.) Multipliers of the float solver make
both ends agree to 13 digits or so; that they are right is not assumed. No ball is needed: all numbers are fractions.
"""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from attnbook.single_head.finite_threshold import exact_threshold
from attnbook.single_head.margin import PATTERNS, Tokens, pattern_selection, predicted_thresholds, tokens_of
from attnbook.single_head.svm import hard_margin
from attnlib import checks
from attnlib.arrays import Bools, Floats
from attnlib.single_head.law import SignalNoiseLaw

Bracket = tuple[Fraction, Fraction]
SIZES = ((10, 100, 0.1), (20, 400, 0.2), (40, 800, 0.3))  # n, d, eta of the thresholds


def _whole(numbers: Floats) -> tuple[list[list[int]], int]:
    """Whole numbers and a shift e: number = whole / 2^e, exactly."""
    mantissa, exponent = np.frexp(numbers)
    shift = 53 - int(exponent[numbers != 0].min(initial=0))
    whole = [
        [int(m) << int(e) for m, e in zip(*row, strict=True)]
        for row in zip((mantissa * 2.0**53).astype(object), exponent + shift - 53, strict=True)
    ]
    return whole, shift


def cost_bounds(rows: Floats, labels: Floats) -> Bracket:
    """Two fractions between which the least |v|^2 with y_i v.r_i >= 1 lies. Raises as `hard_margin`."""
    from flint import fmpz_mat

    solution = hard_margin(rows, labels)
    signed, shift = _whole(labels[:, None] * rows)
    matrix = fmpz_mat(signed)
    weights, place = _whole(np.maximum(solution.multipliers, 0.0)[:, None])
    vector = fmpz_mat(weights)
    scores = matrix * (matrix.transpose() * vector)  # y_i r_i . w, in units of 2^-(2 shift + place)
    unit, total = Fraction(1, 2 ** (2 * shift + place)), Fraction(sum(row[0] for row in weights), 2**place)
    square = Fraction(int((vector.transpose() * scores)[0, 0])) * unit / 2**place
    least = min(int(scores[i, 0]) for i in range(len(weights))) * unit
    if least <= 0:
        raise ArithmeticError("the solver's vector does not separate the samples: no upper bound")
    return total**2 / square, square / least**2


def _winner(brackets: dict[Any, Bracket]) -> Any:
    """The selection whose cost is proved below all others', or None."""
    first = min(brackets, key=lambda key: brackets[key][1])
    return first if all(brackets[first][1] < low for key, (low, _) in brackets.items() if key != first) else None


@dataclass(frozen=True)
class Nine:
    """What is proved of the class-level patterns of one draw; a pattern that selects the same tokens as an earlier one is left out."""

    brackets: dict[str, Bracket]
    float_costs: dict[str, float]  # the solver's |v|^2

    @property
    def best(self) -> str | None:
        """The pattern that is proved best; None if it is not decided."""
        return _winner(self.brackets)

    @property
    def lead(self) -> Bracket:
        """By how much, relative, the second best costs more than the best: at least, at most."""
        first, second = sorted(self.brackets.values())[:2]
        return second[0] / first[1] - 1, second[1] / first[0] - 1


def nine(tokens: Tokens) -> Nine:
    """Bounds for all class-level patterns."""
    names: dict[tuple[float, ...], str] = {}
    for pattern in PATTERNS:
        names.setdefault(tuple(pattern_selection(tokens, pattern)), pattern)
    rows = {name: tokens.mixed(np.array(key)) for key, name in names.items()}
    return Nine(
        {name: cost_bounds(selected, tokens.labels) for name, selected in rows.items()},
        {name: hard_margin(selected, tokens.labels).norm_squared for name, selected in rows.items()},
    )


def best_of_all(tokens: Tokens) -> tuple[float, ...] | None:
    """The best of all 2^n hard selections, each by its own bounds; those with y_i r_i = -y_j r_j for some i, j have no v at all."""
    brackets = {}
    for key in itertools.product((0.0, 1.0), repeat=tokens.n):
        rows = tokens.mixed(np.array(key))
        signed = {tuple(row) for row in tokens.labels[:, None] * rows + 0.0}
        if not any(tuple(-x + 0.0 for x in row) in signed for row in signed):
            brackets[key] = cost_bounds(rows, tokens.labels)
    return _winner(brackets)


# The threshold at finite d, from the noise alone


def _noise_bounds(tokens: Tokens, samples: Bools) -> Bracket:
    if not samples.any():
        return Fraction(0), Fraction(0)
    return cost_bounds(tokens.noise[samples], tokens.labels[samples])


def _four_sets(tokens: Tokens, k: int) -> dict[str, Bracket]:
    signal, noise = ((x != 0).any(0) for x in (tokens.signal, tokens.noise))
    if (signal & noise).any():
        raise ValueError("tokens must have no coordinate in which both a signal and a noise token are not zero")
    own = tokens.classes == k
    few = {"own": own & ~tokens.clean, "other": ~own & ~tokens.clean}
    sets = {"II": own | ~own, "IN": own | few["other"], "NI": few["own"] | ~own, "NN": few["own"] | few["other"]}
    return {name: _noise_bounds(tokens, mask) for name, mask in sets.items()}


def signal_wins(sets: dict[str, Bracket], z: Fraction) -> bool | None:
    r"""At $1/\rho^2=z$, does the best selection with S for this class cost less than the best with X? The other class takes S or X."""

    def cost(letters: str, signals: int, end: int) -> Fraction:
        return signals * z + sets[letters][end]

    noise = [min(cost("II", 0, end), cost("IN", 1, end)) for end in (0, 1)]
    signal = [min(cost("NI", 1, end), cost("NN", 2, end)) for end in (0, 1)]
    return True if signal[1] < noise[0] else False if noise[1] < signal[0] else None


def threshold_proved(tokens: Tokens, k: int, norm: float) -> bool | None:
    """Does class k change from its noise to its signal within a relative 1e-9 of the norm?"""
    sets = _four_sets(tokens, k)
    below, above = (signal_wins(sets, 1 / Fraction(norm * (1 + side * 1e-9)) ** 2) for side in (-1, 1))
    if below is None or above is None:
        return None
    return above and not below


# A study


@dataclass(frozen=True)
class MarginStudy:
    """Draws, and what is proved of each."""

    law: SignalNoiseLaw
    above: tuple[Nine, ...]  # signal norm 10 % above both thresholds of the formula rho_k = sqrt(d / |C_k|)
    below: tuple[Nine, ...]  # 10 % below both
    thresholds: tuple[tuple[Tokens, int, float], ...]  # draw, class, exact threshold in floats
    # the pattern that the thresholds predict, and the best of all 2^n selections as a pattern
    small: tuple[tuple[str, str], ...]


def make_margin_study(
    *, seed: int = 0, n: int = 40, d: int = 8000, label_noise: float = 0.2, draws: int = 16, small_n: int = 7
) -> MarginStudy:
    """Draw, and prove who wins. ValueError for an argument out of its range.

    Args:
        n, d, label_noise: of the law; `draws` training sets on each side of the thresholds, of those with twice as many clean samples
            as flipped ones in each class.
        small_n: size of four further sets, of which all 2^n selections are compared.
    """
    checks.whole_number("draws", draws, at_least=1)
    checks.whole_number("small_n", small_n, at_least=2)
    law = SignalNoiseLaw(n, d, 1.0, label_noise)
    above, below = [], []
    for run, tokens in enumerate(_usable(law, seed, 2 * draws)):
        limits = predicted_thresholds(tokens)
        if run % 2 == 0:
            above.append(nine(tokens.with_signal_norm(1.1 * limits.max())))
        else:
            below.append(nine(tokens.with_signal_norm(0.9 * limits.min())))
    return MarginStudy(law, tuple(above), tuple(below), _thresholds(seed), _small(seed, small_n))


def _usable(law: SignalNoiseLaw, seed: int, wanted: int) -> list[Tokens]:
    """The first training sets with at least one flipped sample, and in each class twice as many clean samples as flipped ones."""
    sample = law.draw(seed, 8 * wanted)
    found = []
    for run in range(8 * wanted):
        tokens = tokens_of(sample, run)
        clean, flipped = tokens.counts()
        if flipped.any() and (clean > 0).all() and (clean >= 2 * flipped).all():
            found.append(tokens)
    if len(found) < wanted:
        raise ValueError(
            f"n and label_noise must leave twice as many clean as flipped samples in each class; got {law.n} and {law.label_noise}"
        )
    return found[:wanted]


def _thresholds(seed: int) -> tuple[tuple[Tokens, int, float], ...]:
    found = []
    for n, d, eta in SIZES:
        sample = SignalNoiseLaw(n, d, math.sqrt(d / n), eta).draw(seed, 32)
        usable = [tokens for tokens in (tokens_of(sample, run) for run in range(32)) if tokens.counts()[0].min() > 0]
        found += [(tokens, k, exact_threshold(tokens, k)) for tokens in usable[:4] for k in (0, 1)]
    return tuple(found)


def _small(seed: int, n: int) -> tuple[tuple[str, str], ...]:
    found = []
    for run, tokens in enumerate(_usable(SignalNoiseLaw(n, 40 * n, 1.0, 0.2), seed, 4)):
        thresholds = [exact_threshold(tokens, k) for k in (0, 1)]
        above = run % 2 == 0
        at = tokens.with_signal_norm(1.1 * max(thresholds) if above else 0.9 * min(thresholds))
        best = best_of_all(at)
        names = [pattern for pattern in PATTERNS if tuple(pattern_selection(at, pattern)) == best]
        found.append(("SS" if above else "XX", names[0] if names else "none of nine"))
    return tuple(found)
