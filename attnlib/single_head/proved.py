r"""What two steps of gradient descent do, as a theorem: one outcome for a setting, with probability at least $1-\delta$.

Rests on one equality in law. Given the labels put $w = n^{-1/2}\sum_j y_j\xi_j$ and $r^2 = |w|^2/d$. Then
$y_i\xi_i = \alpha_i w/|w| + \zeta_i$ with $\alpha_i = |w|/\sqrt n + z_i$, where $|w|^2\sim\chi^2_{d-2}$, $z\sim N(0, I - 11^\top/n)$, the
rows $\zeta_i\perp w$ are Gaussian, and $(|w|, z, \zeta)$ are independent. The scores after one step,
$1 + \varepsilon_i = r^2 + r\sqrt{n/d}\,z_i$, and with them all weights of the second step, are functions of $(r, z)$ alone. So given
$(r, z)$ each cross term is Gaussian: nothing has to be left out, and no sum is bounded by its absolute values.

Label counts are bounded by boxes, whose probabilities are sums of binomial ones; a box that decides nothing is cut.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from attnlib import checks
from attnlib.intervals import Interval
from attnlib.single_head.law import SignalNoiseLaw

__all__ = ["ProvedOutcome", "proved_outcome", "proved_outcomes"]

BENIGN, HARMFUL = "fits every label and errs less", "fits every label and errs more"
MISSES_FLIPPED, MISSES_CLEAN = "does not fit a flipped label", "does not fit a clean label"
OUTCOMES = (BENIGN, HARMFUL, MISSES_FLIPPED, MISSES_CLEAN)
UNDECIDED = "not decided"

_PIECES = (6, 8, 8, 10, 12, 12, 12, 12)  # of the range of one sample's z, by how often the boxes were cut; even numbers
_TAILS = 25  # one-sided events that all samples share
_SHARED, _WIDE, _FLIPPED, _CLEAN = 0.25, 0.05, 0.3, 0.4  # shares of the failure probability
_PARTS = (
    (0.2, 0.2, 0.6),
    (0.6, 0.2, 0.2),
)  # of one clean, one flipped sample: pieces, range of z, z and N together (twice a tail)
_CUTS = np.concatenate(
    [np.geomspace(0.3, 6.0, 14), np.geomspace(8.0, 400.0, 12)]
)  # cuts T of the error's bounds, over |Pi p|
_LEVELS = 7  # how often boxes of label counts are cut
_MOST = 500  # boxes of one setting that are cut, at most
_NORMAL = NormalDist()
_SLACK = 1 + 1e-12  # what exp, log and erfc of the machine may be off by
_STEP = 1 / 512  # of the table of normal tails
_TABLE = np.array([0.5 * math.erfc(k * _STEP / math.sqrt(2)) for k in range(round(12 / _STEP))])


@dataclass(frozen=True)
class ProvedOutcome:
    """What is proved of two steps from zero, for one law, step size and delta."""

    outcome: str  # one of `OUTCOMES`, or "not decided"
    probability: float  # at least this, for the outcome named; for the nearest one where none is decided
    log10_error: (
        float  # with that probability the clean error is at most (benign) or at least (harmful) 10 to this; else nan
    )
    failed: (
        str  # "", or the inequality that failed in the most likely counts that nothing was proved for, and by how much
    )


# --- tails -------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=100_000)
def _normal_quantile(tail: float) -> float:
    """x with Pr(N > x) <= tail."""
    if tail >= 1:
        return -math.inf
    x, step = -_NORMAL.inv_cdf(max(tail, 1e-300)), 1e-12
    while 0.5 * math.erfc(x / math.sqrt(2)) * _SLACK > tail:
        x, step = x + step, 2 * step
    return x


@lru_cache(maxsize=10_000)
def _chi_square(k: int, tail: float) -> tuple[float, float]:
    """Bounds that a chi-square of k degrees leaves with probability at most `tail` on each side, by Chernoff: t - 1 - log t = 2u/k."""
    if k <= 0:
        return 0.0, 0.0
    need = -2 * math.log(tail) / k

    def crossing(inside: float, outside: float) -> float:
        for _ in range(80):
            middle = (inside + outside) / 2
            x = middle - 1
            inside, outside = (middle, outside) if x - math.log1p(x) < need else (inside, middle)
        return outside

    slack = 1e-12 + 1e-13 * math.sqrt(k)  # relative to the width, which is of order k^-1/2
    return max(0.0, k * (crossing(1.0, math.exp(-need - 1)) - slack)), k * (crossing(1.0, 2 * need + 4) + slack)


def _tail_at_most(y: np.ndarray) -> np.ndarray:
    """Pr(N > y), from above, for y >= 0; 1 for nan."""
    index = np.floor(np.nan_to_num(np.minimum(y, 11.9), nan=-1.0) / _STEP).astype(int)
    return np.where(index >= 0, _TABLE[np.maximum(index, 0)] * _SLACK, 1.0)


def _tail_at_least(y: np.ndarray) -> np.ndarray:
    """Pr(N > y), from below, also for y < 0, where 1/2 is said."""
    index = np.ceil(np.nan_to_num(np.clip(y, 0.0, 11.9), nan=11.9) / _STEP).astype(int)
    return np.where(y > 11.9, 0.0, _TABLE[index] / _SLACK)


# --- label counts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Boxes:
    """Boxes of counts: samples of class 1, and flipped ones of classes 1 and 2, least and most; all (B,) whole numbers."""

    setting: np.ndarray
    low: np.ndarray  # (3, B)
    high: np.ndarray

    def __getitem__(self, keep: np.ndarray) -> _Boxes:
        return _Boxes(self.setting[keep], self.low[:, keep], self.high[:, keep])

    def cut(self) -> _Boxes:
        """Each box in two along those of its sides that matter most; a flipped sample counts twice."""
        long = (self.high - self.low) * np.array([1, 2, 2])[:, None]
        sides = (long > 0) & (2 * long >= long.max(0))
        pieces = [(self, sides)]
        for axis in range(3):
            done = []
            for part, chosen in pieces:
                this = chosen[axis]
                middle = (part.low[axis] + part.high[axis]) // 2
                first, second = part.high.copy(), part.low.copy()
                first[axis], second[axis] = np.where(this, middle, part.high[axis]), middle + 1
                done.append((_Boxes(part.setting, part.low, first), chosen))
                done.append((_Boxes(part.setting, second, part.high)[this], chosen[:, this]))
            pieces = done
        return _joined([part for part, _ in pieces])


def _joined(parts: Sequence[_Boxes]) -> _Boxes:
    join = np.concatenate
    return _Boxes(join([p.setting for p in parts]), join([p.low for p in parts], 1), join([p.high for p in parts], 1))


@lru_cache(maxsize=64)
def _log_factorial(n: int) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, n + 1)))])


@lru_cache(maxsize=512)
def _count_law(n: int, eta: float, missing: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes of class 1 from n/2 up (with their probability, both classes' roles together), and sums of Pr(Bin(m, eta) = f) over f."""
    log_factorial = _log_factorial(n)
    exact = (
        1 - 3 * n * 2.0**-52 * float(log_factorial[-1]) - 1e-12
    )  # what rounding of sums of n logarithms may add is taken off

    def law(m: np.ndarray, k: np.ndarray, p: float) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            up = k * math.log(p) if p > 0 else np.where(k > 0, -np.inf, 0.0)
            log = (
                log_factorial[m]
                - log_factorial[k]
                - log_factorial[np.maximum(m - k, 0)]
                + up
                + (m - k) * math.log1p(-p)
            )
        return np.where(k <= m, np.exp(log), 0.0)

    sizes = np.arange((n + 1) // 2, n + 1)
    own = law(np.full(len(sizes), n), sizes, 0.5) * np.where(2 * sizes == n, 1.0, 2.0)
    sizes = sizes[np.cumsum(own[::-1])[::-1] > missing]
    own = own[: len(sizes)] * exact
    m, f = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
    sums = np.zeros((n + 1, n + 2))
    if eta > 0:
        wide = 8 * math.sqrt(n * eta) + 40  # beyond it nothing is counted
        f = f[:, : min(n + 1, round(n * eta + wide))]
    used = slice(max(0, n - int(sizes[-1])), int(sizes[-1]) + 1)
    chance = law(m[used], f, eta) * exact
    np.cumsum(chance, 1, out=sums[used, 1 : f.shape[1] + 1])
    sums[used, f.shape[1] + 1 :] = sums[used, f.shape[1], None]
    return sizes, own, sums


def _first_boxes(setting: int, n: int, eta: float, missing: float) -> _Boxes:
    sizes, _, sums = _count_law(n, eta, missing)

    def ends(size: int) -> tuple[int, int]:
        total = sums[size]
        low = int(np.searchsorted(total, missing, side="right")) - 1
        return max(low, 0), int(np.searchsorted(total, total[-1] - missing, side="left")) - 1

    low_size, high_size = int(sizes[0]), int(sizes[-1])
    one = ends(low_size)[0], max(ends(high_size)[1], 0)
    two = ends(n - high_size)[0], max(ends(n - low_size)[1], 0)
    sides = [_cut_points(low_size, high_size, 3), _cut_points(*one, 4), _cut_points(*two, 4)]
    grid = np.array([(x, y, z) for x in sides[0] for y in sides[1] for z in sides[2]])  # (B, 3, 2)
    return _Boxes(np.full(len(grid), setting), grid[:, :, 0].T.copy(), grid[:, :, 1].T.copy())


def _cut_points(low: int, high: int, parts: int) -> list[tuple[int, int]]:
    edges = np.unique(np.linspace(low, high + 1, parts + 1).round().astype(int))
    return [(int(a), int(b) - 1) for a, b in itertools.pairwise(edges)]


def _box_mass(boxes: _Boxes, n: int, eta: float, missing: float) -> np.ndarray:
    """Probability of each box of one setting, with the same box of exchanged classes."""
    sizes, own, sums = _count_law(n, eta, missing)
    m = sizes[:, None]
    one = sums[m, boxes.high[1] + 1] - sums[m, boxes.low[1]]
    two = sums[n - m, boxes.high[2] + 1] - sums[n - m, boxes.low[2]]
    inside = (m >= boxes.low[0]) & (m <= boxes.high[0])
    result: np.ndarray = (own[:, None] * one * two * inside).sum(0)
    return result


# --- the weights of the second step --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Weights:
    phi: Interval  # 1 + 2 g
    psi: Interval  # g gamma
    slope_phi: Interval  # derivatives with respect to epsilon
    slope_psi: Interval
    bend_phi: Interval
    bend_psi: Interval


def _weights(a: Interval, pull: Interval, eps: Interval) -> _Weights:
    """For the signal's pull zeta b and all deviations in `eps`."""

    def at(x: Interval) -> tuple[Interval, Interval, Interval]:
        score = a * (1.0 + x)
        half = 0.5 * (pull + score)
        return (-half).sigmoid(), half.sigmoid(), pull - score  # g, 1 - g, gamma

    g, rest, gamma = at(eps)
    steep, lean = g * rest, rest - g  # lean: 1 - 2 g
    slope_psi = -(a * g * (1.0 + 0.5 * (rest * gamma)))
    middle = Interval.of((eps.low + eps.high) / 2)
    g0, _, gamma0 = at(middle)
    psi = (g * gamma).meet(g0 * gamma0 + slope_psi * (eps - middle))
    square = a.square() * steep
    return _Weights(
        1.0 + 2.0 * g, psi, -(a * steep), slope_psi, 0.5 * (square * lean), square * (1.0 + 0.25 * (gamma * lean))
    )


@dataclass(frozen=True)
class _Common:
    """What all samples of a setting share; Intervals (S,), one entry per setting, or (B,) per box."""

    n: Interval
    a: Interval
    h: Interval
    d: Interval
    middle: Interval  # r^2 - 1
    r: Interval
    scale: Interval  # r sqrt(n/d)
    wide: Interval  # |z_i| of all samples
    gauss: Interval  # sqrt(2u) of one tail by concentration
    normal: Interval  # quantile of one Gaussian tail
    chi: Interval  # |z|^2 at most
    q: Interval  # chi-square over d

    def at(self, index: np.ndarray) -> _Common:
        return _Common(*(Interval(x.low[index], x.high[index]) for x in vars(self).values()))


def _common(laws: Sequence[SignalNoiseLaw], steps: Sequence[float], failure: float) -> _Common:
    tail = _SHARED * failure / _TAILS

    def column(values: list[float]) -> Interval:
        return Interval.of(np.array(values, dtype=np.float64))

    def pairs(values: list[tuple[float, float]]) -> Interval:
        return Interval.of(*np.array(values, dtype=np.float64).T)

    n, d = column([float(x.n) for x in laws]), column([float(x.d) for x in laws])
    unit = column(list(steps)) / (4.0 * n)
    square = pairs([_chi_square(x.d - 2, tail) for x in laws]) / d
    r = square.sqrt()
    same = np.zeros(len(laws))
    return _Common(
        n, unit * d, unit * column([x.signal_norm for x in laws]).square(), d, square - 1.0, r, r * (n / d).sqrt(),
        column([_normal_quantile(_WIDE * failure / (2 * x.n)) for x in laws]),
        Interval.of(same + math.sqrt(-2 * math.log(tail)) * _SLACK), Interval.of(same + _normal_quantile(tail)),
        pairs([(0.0, _chi_square(x.n - 1, tail)[1]) for x in laws]), pairs([_chi_square(x.d - 3, tail) for x in laws]) / d,
    )  # fmt: skip


# --- one box -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """Per box: which outcome is proved of it, and the numbers behind it."""

    proved: np.ndarray  # (4, B) bool, in the order of OUTCOMES
    room_fit: np.ndarray  # (B,), least lower bound of t + zeta V e^q over all samples
    room_miss: np.ndarray  # (2, B), least upper bound for one flipped, one clean sample
    signal: Interval  # (2, B), e^P V / |Pi v|
    omega: np.ndarray  # (B,), |Pi p| at most
    error: np.ndarray  # (2, B), mean clean error: at least, at most
    exponent: np.ndarray  # (B,), E: both classes err at most e^-E
    length: Interval  # (2, B) or (1, B), |Pi v|
    shared: _Shared


_KIND = np.array([1.0, -1.0])[:, None, None]  # zeta, axis 0 of arrays (kind, class, box)


def _two(x: Interval) -> Interval:
    """Sum over the classes: (..., 2, B) to (..., 1, B)."""
    return Interval(x.low[..., :1, :], x.high[..., :1, :]) + Interval(x.low[..., 1:, :], x.high[..., 1:, :])


def _four(x: Interval) -> Interval:
    """Sum over kinds and classes: (2, 2, B) to (1, B)."""
    return _two(_kind(x, 0) + _kind(x, 1))


def _kind(x: Interval, index: int) -> Interval:
    return Interval(x.low[index], x.high[index])


def _signed(x: Interval) -> Interval:
    """(2, 2, B) times zeta."""
    return Interval(np.where(_KIND > 0, x.low, -x.high), np.where(_KIND > 0, x.high, -x.low))


def _shift(bend: Interval, scale: Interval) -> Interval:
    """What the mean of f(z) has more than f(0), for a second derivative in `bend` on the range and 0 beyond it."""
    return 0.5 * scale.square() * bend.with_zero()


@dataclass(frozen=True)
class _Shared:
    """What the scores of all samples of a box have in common: Intervals (B,), (1, B) or, by class, (2, B)."""

    a: Interval
    d: Interval
    scale: Interval  # r sqrt(n/d)
    middle: Interval  # r^2 - 1
    q: Interval  # both chi-squares over d
    offset: Interval  # r / sqrt(nd)
    mean_phi: Interval
    along_phi: Interval  # sum of phi_j z_j
    norm_phi: Interval  # |phi - mean|
    tilt: Interval  # mean of y_j psi_j, times the label of the class
    along_psi: Interval
    norm_psi: Interval
    query: Interval  # P_k
    value: Interval  # V_k

    def at(self, keep: np.ndarray) -> _Shared:
        return _Shared(*(Interval(x.low[..., keep], x.high[..., keep]) for x in vars(self).values()))

    def scores(self, w: _Weights, z: Interval, normal: Interval, other: Interval) -> tuple[Interval, Interval]:
        """t and zeta V e^q of samples with weights w at z, and N, N' as said: the sign of their sum is that of the margin."""
        one = 1.0 + self.middle + self.scale * z
        own = one - self.q
        alpha, root = self.offset + z / self.d, (self.q / self.d).sqrt()
        t = (w.phi * self.q + self.mean_phi * own).meet((w.phi - self.mean_phi) * self.q + self.mean_phi * one)
        t = t + alpha * self.along_phi + normal * root * self.norm_phi
        q = w.psi * self.q + _signed(self.tilt * own + alpha * self.along_psi) + other * root * self.norm_psi
        logit = self.query + self.a * q
        return self.a * t, _signed(self.value * Interval(np.minimum(logit.low, 600.0), logit.high).exp())


def _boxes_found(
    c: _Common, n: np.ndarray, low: np.ndarray, high: np.ndarray, failure: float, error: float, pieces: int
) -> _Found:
    size = Interval.of(
        np.stack([low[0], n - high[0]]), np.stack([high[0], n - low[0]])
    )  # (2, B), samples of each class
    flipped = Interval.of(low[1:], high[1:])
    clean = Interval.of(np.maximum(size.low - flipped.high, 0.0), np.maximum(size.high - flipped.low, 0.0))
    count = Interval(np.stack([clean.low, flipped.low]), np.stack([clean.high, flipped.high]))  # (kind, class, B)
    b = c.h * (size - 2.0 * flipped)
    pull = _signed(Interval(np.stack([b.low] * 2), np.stack([b.high] * 2)))
    present = count.high > 0

    # One sample: z outside the range, or z in a piece and N or N' beyond `across` there. N, N' are independent of z.
    share = np.array([_CLEAN, _FLIPPED]) * failure / 2
    steps = np.linspace(-1.0, 1.0, pieces + 1)

    def cell(k: int, m: float) -> np.ndarray:
        """Reach of z, of z and N together, then `across` of each piece, for one of m samples of kind k."""
        budget = share[k] / max(m, 1.0)
        in_pieces, beyond, joint = _PARTS[k]
        reach, both = _normal_quantile(budget * beyond / 2), _normal_quantile(budget * joint / 2)
        near = reach * np.maximum(np.maximum(steps[:-1], -steps[1:]), 0.0)
        tails = [budget * in_pieces / (4 * pieces) / (0.5 * math.erfc(x / math.sqrt(2)) * _SLACK) for x in near]
        return np.array([reach, both, *(max(_normal_quantile(t), 0.0) for t in tails)])

    def cells(k: int) -> np.ndarray:
        values, back = np.unique(count.high[k], return_inverse=True)
        return np.stack([cell(k, m) for m in values])[back].reshape(*count.high[k].shape, pieces + 2)

    table = np.stack([cells(0), cells(1)])  # (kind, class, B, 2 + pieces)
    reach, together, across = table[..., 0], table[..., 1], np.moveaxis(table[..., 2:], -1, 0)
    wide = c.wide.high + np.zeros_like(reach)
    inner = steps[:, None, None, None] * reach
    edges = np.concatenate([np.minimum(-wide, -reach)[None], inner, np.maximum(wide, reach)[None]])
    z = Interval(edges[:-1], edges[1:])
    split = _weights(c.a, pull, c.middle + c.scale * z)
    at = _weights(c.a, pull, c.middle)
    slope_phi, slope_psi, bend_phi, bend_psi = (
        x.over(0) for x in (split.slope_phi, split.slope_psi, split.bend_phi, split.bend_psi)
    )
    shift_phi, shift_psi = _shift(bend_phi, c.scale), _shift(bend_psi, c.scale)
    phi, psi = at.phi + shift_phi, at.psi + shift_psi  # means over z
    lip_phi, lip_psi = (Interval.of(np.where(present, x.magnitude(), 0.0)) for x in (slope_phi, slope_psi))

    # Sums over a class: with c = size - f nothing is counted twice.
    (phi_c, phi_n), (psi_c, psi_n) = ((_kind(x, 0), _kind(x, 1)) for x in (phi, psi))
    energy_phi, energy_psi = count * lip_phi.square(), count * lip_psi.square()

    def noise(energy: Interval) -> Interval:
        return (c.scale * energy.sqrt() * c.gauss).spread()

    def over_kinds(x: Interval) -> Interval:
        return _kind(x, 0) + _kind(x, 1)

    value = c.h * (size * phi_c - flipped * (phi_c + phi_n) + noise(over_kinds(energy_phi)))
    query = c.h * (size * psi_c + flipped * (psi_n - psi_c) + noise(over_kinds(energy_psi)))
    total = _two(size * phi_c + flipped * (phi_n - phi_c)) + noise(_four(energy_phi))
    tilted = size * psi_c - flipped * (psi_c + psi_n)
    tilt = (
        Interval(tilted.low[:1], tilted.high[:1]) - Interval(tilted.low[1:], tilted.high[1:]) + noise(_four(energy_psi))
    )
    mean_phi, tilt = total / c.n, tilt / c.n
    tilt = Interval(
        np.concatenate([tilt.low, -tilt.high]), np.concatenate([tilt.high, -tilt.low])
    )  # times the class's label

    def norms(w: Interval, shift: Interval, lip: Interval, energy: Interval) -> tuple[Interval, Interval]:
        """|w - mean| at most, and sum w_j z_j; w: weights in the middle of the range, less any constant."""
        start = _four(count * w.square()).sqrt()
        steepest = Interval.of(lip.high.max((0, 1))[None])
        spread = c.scale.square() * _four(energy)
        most = ((start + _four(count * shift.square()).sqrt()).square() + spread).sqrt() + c.scale * steepest * c.gauss
        along = Interval.of(start.high) * c.normal + c.scale * steepest * c.chi
        return most, along.spread()

    centre = Interval.of(((at.phi.low[0] + at.phi.high[0]) / 2).mean(0))
    norm_phi, along_phi = norms(at.phi - centre, shift_phi, lip_phi, energy_phi)
    norm_psi, along_psi = norms(at.psi, shift_psi, lip_psi, energy_psi)

    root_n, root_d = c.n.sqrt(), c.d.sqrt()
    main_phi = root_n * c.r * mean_phi + along_phi / root_d
    main_psi = root_n * c.r * tilt + along_psi / root_d
    across_phi, across_psi = (norm.square().with_zero() * c.q for norm in (norm_phi, norm_psi))
    length = c.a * (main_phi.square() + across_phi).sqrt() / root_d
    omega = (c.a * (main_psi.square() + across_psi).sqrt() / root_d).high.max(0)
    shared = _Shared(
        c.a, c.d, c.scale, c.middle, c.q, c.r / (root_n * root_d),
        mean_phi, along_phi, norm_phi, tilt, along_psi, norm_psi, query, value,
    )  # fmt: skip
    inside = _Weights(*(Interval(x.low[1:-1], x.high[1:-1]) for x in vars(split).values()))
    z_inside = Interval(z.low[1:-1], z.high[1:-1])
    sides = Interval(-across, across)
    own_score, other_score = shared.scores(inside, z_inside, sides, sides)
    room = (own_score + other_score).low.min(0)
    # phi_bar s z + |phi| N together are nearly Gaussian: sharper where phi hardly depends on z.
    flat, q = inside.phi.over(0), c.q
    still = (flat * q + mean_phi * (1.0 + c.middle - q)).meet((flat - mean_phi) * q + mean_phi * (1.0 + c.middle))
    fixed = Interval.of((mean_phi.low + mean_phi.high) / 2)
    swing = ((c.scale * fixed).square() + norm_phi.square() * q / c.d).sqrt() * Interval.of(together)
    swing = swing + c.scale * (mean_phi - fixed).spread() * Interval(-reach, reach)
    alpha = shared.offset + Interval(-reach, reach) / c.d
    room = np.fmax(room, (c.a * (still - Interval.of(swing.high) + alpha * along_phi) + other_score.over(0)).low)
    room_fit = np.where(present, room, np.inf).min((0, 1))

    # One sample that is not fitted: that with the least z of its kind in one class, or in both if both classes would do.
    tails = share / 2 / 8
    beyond = np.array([_normal_quantile(t) for t in tails])[:, None, None]
    steps = np.linspace(0.0, 1.0, pieces + 1)[:, None, None, None]

    hard = ~(room_fit > 0)  # the others need no second look
    few = count.low[..., hard]

    def rooms(counts: np.ndarray) -> np.ndarray:
        """(kind, class, boxes): upper bound of t + zeta V e^q for the least z of so many samples."""
        top = []
        for k in (0, 1):
            values, back = np.unique(counts[k], return_inverse=True)
            least = np.array([_normal_quantile(tails[k] ** (1 / max(m, 1.0))) for m in values])
            top.append(least[back].reshape(counts[k].shape))
        reach = wide[..., hard]
        edges = -reach + steps * (np.stack(top) + beyond / np.sqrt(n[hard]) + reach)
        z = Interval(edges[:-1], edges[1:])
        a, eps, scale, own_pull = (
            Interval(x.low[..., hard], x.high[..., hard]) for x in (c.a, c.middle, c.scale, pull)
        )
        sides = Interval(-beyond, beyond)
        t, rest = shared.at(hard).scores(_weights(a, own_pull, eps + scale * z), z, sides, sides)
        result: np.ndarray = (t + rest).high.max(0)
        return result

    room_miss = np.full((2, len(n)), np.inf)
    if hard.any():
        alone = np.where(few > 0, rooms(few), np.inf).min(1)
        most = np.where(few > 0, rooms(few.sum(1, keepdims=True) + np.zeros_like(few)), np.inf).max(1)
        room_miss[:, hard] = np.minimum(alone, most)[::-1]

    signal = query.exp() * value / length
    least_error, most_error, exponent = _errors(signal, value, omega)
    mean_low, mean_high = least_error.mean(0) * (1 - 1e-15), most_error.mean(0) * (1 + 1e-15)
    fits = room_fit > 0
    proved = np.stack([fits & (mean_high <= error), fits & (mean_low >= error), room_miss[0] < 0, room_miss[1] < 0])
    return _Found(proved, room_fit, room_miss, signal, omega, np.stack([mean_low, mean_high]), exponent, length, shared)


def _errors(signal: Interval, value: Interval, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Of each class: the error at least, at most, (2, B), and E with both errors <= e^-E, (B,).

    $\Phi(-e^{P+T}V/|\Pi v|) - \Phi(-T/|\Pi p|) \le err \le \Phi(-T/|\Pi p|) + \Phi(-e^{P-T}V/|\Pi v|)$ for V > 0 and each cut T.
    """
    low, high = np.where(value.high <= 0, 0.5, 0.0), np.ones_like(signal.low)
    exponent = np.zeros_like(omega)
    positive = value.low > 0
    for cut in _CUTS:
        beyond = 0.5 * math.erfc(cut / math.sqrt(2)) * _SLACK
        down = np.where(positive, signal.low * np.exp(-cut * omega * _SLACK) / _SLACK, np.nan)
        if cut < 8:
            high = np.minimum(high, _tail_at_most(down) + beyond)
            up = signal.high * np.exp(np.minimum(cut * omega * _SLACK, 700.0)) * _SLACK
            low = np.maximum(low, _tail_at_least(np.where(cut * omega < 690, up, np.inf)) - beyond)
        exponent = np.maximum(exponent, np.nan_to_num(np.minimum(cut, down.min(0)) ** 2 / 2) / _SLACK)
    return low, high, exponent


# --- all together --------------------------------------------------------------------------------------------------------------


@checks.checked
def proved_outcome(law: SignalNoiseLaw, step_size: float, delta: float = 0.01, *, error: float = 0.1) -> ProvedOutcome:
    r"""The outcome of two steps from zero that is proved, with probability at least $1-\delta$ over the training set.

    Args:
        law: two tokens, the paper's signals, noise of variance 1.
        step_size: beta > 0.
        delta: in (0, 1).
        error: in (0, 1/2), separates "errs less" from "errs more": mean clean error of the two classes.

    Returns:
        `outcome`, one of `OUTCOMES` or "not decided"; `probability`, at least $1-\delta$ where it is decided; `log10_error`, a bound
        of the clean error; `failed`, for an undecided setting the inequality that failed, and by how much. Numbers are
        bounded in interval arithmetic; exp, log and erfc of the machine are trusted to 10^-12.

    Raises:
        ValueError: another law, or an argument out of range.

    Source:
        derived in `book/single_head_proved_theory`.

    Example:
        >>> proved_outcome(SignalNoiseLaw(200, 40_000, 30.0, 0.05), 0.025).outcome
        'fits every label and errs less'
    """
    return proved_outcomes([law], [step_size], delta, error=error)[0]


def proved_outcomes(
    laws: Sequence[SignalNoiseLaw], step_sizes: Sequence[float], delta: float = 0.01, *, error: float = 0.1
) -> list[ProvedOutcome]:
    """`proved_outcome` of many settings, computed together."""
    for law, step in zip(laws, step_sizes, strict=True):
        checks.positive_number("step_size", step)
        if type(law) is not SignalNoiseLaw or law.tokens != 2 or law.normalised_noise:  # a subclass is another law
            raise ValueError(f"law must be a SignalNoiseLaw of two tokens and noise of variance 1; got {law!r}")
    checks.probability("delta", delta, open_ends=True)
    checks.probability("error", error, high=0.5, open_ends=True)
    answers: list[ProvedOutcome | None] = [None] * len(laws)
    open_settings = []
    for k, law in enumerate(laws):
        if law.n < 2 or law.d < 5:
            why = f"n must be at least 2 and d at least 5; got {law.n} and {law.d}"
            answers[k] = ProvedOutcome(UNDECIDED, 0.0, math.nan, why)
        else:
            open_settings.append(k)
    failure, missing = 0.3 * delta, delta / 2000  # label counts may use the rest
    with np.errstate(all="ignore"):
        if open_settings:
            _search(laws, step_sizes, delta, failure, missing, error, open_settings, answers)
    return [x for x in answers if x is not None]


def _search(
    laws: Sequence[SignalNoiseLaw],
    step_sizes: Sequence[float],
    delta: float,
    failure: float,
    missing: float,
    error: float,
    active: list[int],
    answers: list[ProvedOutcome | None],
) -> None:
    common = _common(laws, step_sizes, failure)
    sizes = np.array([float(x.n) for x in laws])
    needed = (1 - delta) / (1 - failure)
    chance = np.zeros((len(laws), len(OUTCOMES)))  # proved so far
    spent = np.zeros(len(laws))  # mass of boxes that are settled
    slow = np.zeros(len(laws), int)  # levels that settled little
    lost = np.zeros(len(laws))  # mass of boxes that nothing was proved of
    kept: list[list[tuple[float, float]]] = [[] for _ in laws]  # (exponent, mass) of benign boxes
    worst: list[str] = [""] * len(laws)
    boxes = _joined([_first_boxes(k, laws[k].n, laws[k].label_noise, missing) for k in active])
    for level in range(_LEVELS + 1):
        found = _boxes_found(
            common.at(boxes.setting),
            sizes[boxes.setting],
            boxes.low.astype(float),
            boxes.high.astype(float),
            failure,
            error,
            _PIECES[level],
        )
        again = []
        for k in active:
            own = np.flatnonzero(boxes.setting == k)
            mass = _box_mass(boxes[own], laws[k].n, laws[k].label_noise, missing)
            proved = found.proved[:, own]
            chance[k] += (proved * mass).sum(1)
            kept[k] += list(zip(found.exponent[own][proved[0]], mass[proved[0]], strict=True))
            settled = proved.any(0)
            spent[k] += mass[settled].sum()
            probability = float(chance[k].max() * (1 - failure) * (1 - 1e-9))
            winner = int(chance[k].argmax())
            if probability >= 1 - delta:
                value = math.nan
                if winner == 0:
                    value = min(math.log10(error), _least_error(kept[k], needed))
                elif winner == 1:
                    value = math.log10(error)
                answers[k] = ProvedOutcome(OUTCOMES[winner], probability, value, "")
                continue
            left = own[~settled]
            hopeless = spent[k] - chance[k].max() > delta
            open_mass = mass[~settled]
            order = left[np.argsort(-open_mass, kind="stable")]
            splittable = order[(boxes.low[:, order] < boxes.high[:, order]).any(0)][:_MOST]
            if len(left):
                worst[k] = _why(found, boxes, int(left[open_mass.argmax()]), laws[k].n, error)
            lost[k] += open_mass[~np.isin(left, splittable)].sum()
            slow[k] += level > 1 and mass[settled].sum() < 0.1 * mass.sum()
            if hopeless:
                worst[k] = "label counts of probability " + " and ".join(
                    f"{p:.3g} are proved to have the outcome {name!r}" for p, name in zip(chance[k], OUTCOMES, strict=True) if p > 0
                ) + f"; one outcome of probability {1 - delta:g} is wanted"  # fmt: skip
            if hopeless or slow[k] > 1 or not len(splittable) or level == _LEVELS or lost[k] > delta:
                answers[k] = ProvedOutcome(UNDECIDED, probability, math.nan, worst[k])
                continue
            again.append(splittable)
        active = [k for k in active if answers[k] is None]
        if not active:
            return
        boxes = boxes[np.concatenate(again)].cut()
        boxes = boxes[(boxes.low[1] <= boxes.high[0]) & (boxes.low[2] <= sizes[boxes.setting] - boxes.low[0])]


def _least_error(kept: list[tuple[float, float]], needed: float) -> float:
    total = 0.0
    for exponent, mass in sorted(kept, reverse=True):
        total += mass
        if total * (1 - 1e-9) >= needed:
            return -float(exponent) / math.log(10)
    return 0.0


def _why(x: _Found, boxes: _Boxes, box: int, n: int, error: float) -> str:
    low, high = boxes.low[:, box], boxes.high[:, box]
    parts = []
    if not x.room_fit[box] > 0:
        parts.append(f"t + zeta V e^q of all samples is at least {x.room_fit[box]:.3g}, wanted above 0")
        parts.append(f"that of one flipped sample is at most {x.room_miss[0, box]:.3g}, wanted below 0")
    parts.append(
        f"the mean clean error is between {x.error[0, box]:.3g} and {x.error[1, box]:.3g}, wanted on one side of {error:g}"
    )
    return (
        f"with {low[0]} to {high[0]} of {n} samples in one class, {low[1]} to {high[1]} and {low[2]} to {high[2]} flipped: "
        + "; ".join(parts)
    )
