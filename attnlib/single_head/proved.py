r"""What two steps of gradient descent do, as a theorem: one outcome for a setting, with probability at least $1-\delta$.

Rests on one equality in law. Given the labels put $w = n^{-1/2}\sum_j y_j\xi_j$ and $r^2 = |w|^2/d$. Then
$y_i\xi_i = \alpha_i w/|w| + \zeta_i$ with $\alpha_i = |w|/\sqrt n + z_i$, where $|w|^2\sim\chi^2_{d-2}$, $z\sim N(0, I - 11^\top/n)$ and the
rows $\zeta_i$ are independent of each other's past: $(|w|, z, \zeta)$ are independent. The scores after one step,
$1 + \varepsilon_i = r^2 + r\sqrt{n/d}\,z_i$, and with them all weights of the second step, are functions of $(r, z)$ alone. So given
$(r, z)$ each cross term is Gaussian: nothing has to be left out, and no sum is bounded by its absolute values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from attnlib import checks
from attnlib.intervals import Interval, hull
from attnlib.single_head.law import SignalNoiseLaw

__all__ = ["ProvedOutcome", "proved_outcome"]

FITS_BENIGN, FITS_HARMFUL = "fits every label and errs less", "fits every label and errs more"
MISSES_FLIPPED, MISSES_CLEAN = "does not fit a flipped label", "does not fit a clean label"
UNDECIDED = "not decided"

_PIECES = 6  # of the range of one sample's z
_TAILS = 25  # one-sided events that all samples share
_SHARED, _WIDE, _FLIPPED, _CLEAN = 0.25, 0.05, 0.4, 0.3  # shares of the failure probability
_CUTS = np.geomspace(0.25, 200.0, 36)  # cuts T of the error's bounds, in units of |Pi p|
_NORMAL = NormalDist()


@dataclass(frozen=True)
class ProvedOutcome:
    """What is proved of two steps from zero, for one law, step size and delta."""

    outcome: str  # one of the four, or "not decided"
    probability: float  # at least this, for the outcome named; of the most likely one where none is decided
    log10_error: float  # with that probability the clean error is at most (benign) or at least (harmful) 10 to this; else nan
    failed: str  # "" or the inequality that failed at expected label counts, and by how much


# --- tails -------------------------------------------------------------------------------------------------------------------


def _normal_quantile(tail: float) -> float:
    """x with Pr(N > x) <= tail."""
    if tail >= 1:
        return -math.inf
    x = -_NORMAL.inv_cdf(max(tail, 1e-300))
    step = 1e-12
    while 0.5 * math.erfc(x / math.sqrt(2)) * (1 + 1e-12) > tail:
        x, step = x + step, 2 * step
    return x


def _chi_square(k: int, tail: float) -> tuple[float, float]:
    """Bounds that a chi-square of k degrees leaves with probability at most `tail` on each side: Chernoff, t - 1 - log t >= 2u/k."""
    if k <= 0:
        return 0.0, 0.0
    need = -2 * math.log(tail) / k

    def end(low: float, high: float) -> tuple[float, float]:
        for _ in range(200):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            inside = middle - 1 - math.log(middle) < need if high > 1 else middle - 1 - math.log(middle) >= need
            low, high = (middle, high) if inside else (low, middle)
        return low, high

    lower = end(math.exp(-need - 1), 1.0)[0]
    upper = end(1.0, 2 * need + 4)[1]
    return k * lower * (1 - 1e-12 - 1e-14 * math.sqrt(k)), k * upper * (1 + 1e-12 + 1e-14 * math.sqrt(k))


def _binomial(m: np.ndarray, k: np.ndarray, p: float, log_factorial: np.ndarray) -> np.ndarray:
    """Pr(Bin(m, p) = k), from below: what rounding may add is taken off."""
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.where(k > 0, k * np.log(p), 0.0) if p > 0 else np.where(k > 0, -np.inf, 0.0)
        log = log_factorial[m] - log_factorial[k] - log_factorial[m - k] + up + (m - k) * math.log1p(-p)
    return np.exp(log) * (1 - 1e-10)


# --- the weights of the second step --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Weights:
    phi: Interval  # 1 + 2 g
    psi: Interval  # g gamma
    slope_phi: Interval  # derivatives with respect to epsilon
    slope_psi: Interval
    bend_phi: Interval
    bend_psi: Interval


def _weights(a: Interval, b: Interval, kind: float, eps: Interval) -> _Weights:
    """For the signal's pull `kind` b and all deviations in `eps`."""
    pull = kind * b

    def at(x: Interval) -> tuple[Interval, Interval, Interval]:
        score = a * (1.0 + x)
        half = 0.5 * (pull + score)
        return (-half).sigmoid(), half.sigmoid(), pull - score  # g, 1 - g, gamma

    g, rest, gamma = at(eps)
    turn = 1.0 + 0.5 * rest * gamma
    steep = g * rest
    slope_psi = -(a * g * turn)
    lean = rest - g  # 1 - 2 g
    middle = Interval.of((eps.low + eps.high) / 2)
    g0, _, gamma0 = at(middle)
    psi = (g * gamma).meet(g0 * gamma0 + slope_psi * (eps - middle))
    return _Weights(
        1.0 + 2.0 * g, psi, -(a * steep), slope_psi, 0.5 * (a.square() * steep * lean), a.square() * steep * (1.0 + 0.25 * gamma * lean)
    )  # fmt: skip


def _range(first: Interval, *more: Interval) -> Interval:
    for other in more:
        first = hull(first, other)
    return first


@dataclass(frozen=True)
class _Group:
    """One kind of sample in one class: how many, weights at the middle and their variation over all samples."""

    count: Interval
    at: _Weights
    mean_phi: Interval  # E of a weight, linear continuation beyond the range
    mean_psi: Interval
    lip_phi: np.ndarray  # largest slope of the range
    lip_psi: np.ndarray
    inside: _Weights | None = None  # pieces of the range of a single sample, axis 0
    pieces: Interval | None = None  # z of these pieces


def _group(a: Interval, b: Interval, kind: float, count: Interval, common: _Common, reach: np.ndarray | None) -> _Group:
    at = _weights(a, b, kind, common.middle)
    lanes = np.zeros_like(b.low)
    wide = common.wide + lanes
    if reach is None:
        edges = np.linspace(-1.0, 1.0, _PIECES + 1)[:, None] * wide
    else:
        inner = np.linspace(-1.0, 1.0, _PIECES + 1)[:, None] * np.minimum(reach, wide)
        edges = np.concatenate([-wide[None], inner, wide[None]])
    z = Interval(edges[:-1], edges[1:])
    pieces = _weights(a, b, kind, common.middle + common.scale * z)
    ranges = [x.over(0) for x in (pieces.slope_phi, pieces.slope_psi, pieces.bend_phi, pieces.bend_psi)]
    bend = 0.5 * common.scale.square()
    inside = z_inside = None
    if reach is not None:
        cut = slice(1, -1)
        inside = _Weights(*(Interval(x.low[cut], x.high[cut]) for x in vars(pieces).values()))
        z_inside = Interval(z.low[cut], z.high[cut])
    return _Group(
        count, at, at.phi + bend * ranges[2].with_zero(), at.psi + bend * ranges[3].with_zero(),
        ranges[0].magnitude(), ranges[1].magnitude(), inside, z_inside,
    )  # fmt: skip


@dataclass(frozen=True)
class _Common:
    """What all samples share."""

    n: int
    d: int
    r: Interval
    middle: Interval  # r^2 - 1
    scale: Interval  # r sqrt(n/d)
    wide: float  # |z_i| of all samples
    gauss: float  # sqrt(2u) of one Gaussian tail, also by concentration
    normal: float  # quantile of one Gaussian tail
    chi: Interval  # |z|^2 at most
    q: Interval  # chi-square over d


def _common(n: int, d: int, failure: float) -> _Common:
    tail = _SHARED * failure / _TAILS
    square = Interval.of(*_chi_square(d - 2, tail)) / float(d)
    r = square.sqrt()
    ratio = (Interval.of(float(n)) / float(d)).sqrt()
    wide = _normal_quantile(_WIDE * failure / (2 * n))
    return _Common(
        n, d, r, square - 1.0, r * ratio, wide, math.sqrt(-2 * math.log(tail)) * (1 + 1e-12), _normal_quantile(tail),
        Interval.of(0.0, _chi_square(n - 1, tail)[1]), Interval.of(*_chi_square(d - 3, tail)) / float(d),
    )  # fmt: skip


# --- one class -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Classes:
    """Per lane (counts of one class): certificates, and the intervals that they rest on."""

    clean: np.ndarray
    flipped: np.ndarray
    room_fit: np.ndarray  # least lower bound of t + zeta V e^q over the samples of the class
    room_miss_flipped: np.ndarray  # upper bound for one flipped sample
    room_miss_clean: np.ndarray
    signal: Interval  # e^P V / |Pi v|
    value: Interval
    query: Interval
    length: Interval  # |Pi v|
    omega: np.ndarray  # |Pi p| at most


def _classes(
    law: SignalNoiseLaw, step_size: float, failure: float, clean: np.ndarray, flipped: np.ndarray, others: np.ndarray
) -> _Classes:
    """others: (n + 1, 2), least and most flipped samples in a class of so many."""
    n, d = law.n, law.d
    common = _common(n, d, failure)
    beta = Interval.of(step_size)
    unit = beta / (4.0 * n)
    a, h = unit * float(d), unit * Interval.of(law.signal_norm).square()
    root = common.gauss

    def reach(count: np.ndarray, share: float) -> np.ndarray:
        """Of z, N and N' of all samples of a group, both sides."""
        table = {int(m): _normal_quantile(share * failure / 2 / 6 / max(int(m), 1)) for m in np.unique(count)}
        return np.array([table[int(m)] for m in count])

    far_clean, far_flipped = reach(clean, _CLEAN), reach(flipped, _FLIPPED)
    b = h * Interval.of(clean - flipped)
    own_clean = _group(a, b, 1.0, Interval.of(clean), common, far_clean)
    own_flipped = _group(a, b, -1.0, Interval.of(flipped), common, far_flipped)
    sizes, back = np.unique(n - (clean + flipped).astype(int), return_inverse=True)
    few, many = others[sizes].T.astype(float)
    b_other = h * (Interval.of(sizes.astype(float)) - 2.0 * Interval.of(few, many))
    other_flipped = _take(_group(a, b_other, -1.0, Interval.of(few, many), common, None), back)
    other_clean = _take(_group(a, b_other, 1.0, Interval.of(sizes - many, sizes - few), common, None), back)
    own, other = (own_clean, own_flipped), (other_clean, other_flipped)

    def noise(groups: tuple[_Group, ...], name: str) -> Interval:
        """Gaussian concentration of a signed sum over groups."""
        total = sum((g.count * Interval.of(getattr(g, name)).square() for g in groups), Interval.of(0.0))
        most = (common.scale * total.sqrt()).high * root
        return Interval(-most, most)

    c, f = own_clean.count, own_flipped.count
    value = h * (c * own_clean.mean_phi - f * own_flipped.mean_phi + noise(own, "lip_phi"))
    query = h * (c * own_clean.mean_psi + f * own_flipped.mean_psi + noise(own, "lip_psi"))
    total = sum((g.count * g.mean_phi for g in (*own, *other)), Interval.of(0.0)) + noise(own + other, "lip_phi")
    mean_phi = total / float(n)  # of all samples
    tilt = (
        c * own_clean.mean_psi - f * own_flipped.mean_psi
        - (other_clean.count * other_clean.mean_psi - other_flipped.count * other_flipped.mean_psi)
        + noise(own + other, "lip_psi")
    ) / float(n)  # fmt: skip

    centre = Interval.of((own_clean.at.phi.low + own_clean.at.phi.high) / 2)
    norm_phi, start_phi, lip_phi = _norm([(g, g.at.phi - centre, g.mean_phi - g.at.phi, g.lip_phi) for g in own + other], common)
    norm_psi, start_psi, lip_psi = _norm([(g, g.at.psi, g.mean_psi - g.at.psi, g.lip_psi) for g in own + other], common)
    # Sum of w_j z_j: a Gaussian part, and what the variation of w adds.
    along_phi = Interval(-start_phi, start_phi) * common.normal + Interval(-lip_phi, lip_phi) * common.scale * common.chi
    along_psi = Interval(-start_psi, start_psi) * common.normal + Interval(-lip_psi, lip_psi) * common.scale * common.chi
    along_phi, along_psi = along_phi.spread(), along_psi.spread()

    root_n, root_d = Interval.of(float(n)).sqrt(), Interval.of(float(d)).sqrt()
    main_phi = root_n * common.r * mean_phi + along_phi / root_d
    main_psi = root_n * common.r * tilt + along_psi / root_d
    across_phi = Interval(np.zeros_like(norm_phi), norm_phi).square() * common.q
    across_psi = Interval(np.zeros_like(norm_psi), norm_psi).square() * common.q
    length = a * (main_phi.square() + across_phi).sqrt() / root_d
    omega = (a * (main_psi.square() + across_psi).sqrt() / root_d).high

    root_q = common.q.sqrt() / root_d

    def margin(w: _Weights, z: Interval, kind: float, across: np.ndarray) -> Interval:
        """t + zeta V e^q over a, for samples with weights w at z and |N|, |N'| <= across: its sign is that of the margin."""
        one = 1.0 + common.middle + common.scale * z
        alpha = common.r / (root_n * root_d) + z / float(d)
        side = Interval(-across, across) * root_q
        t = w.phi * common.q + mean_phi * (one - common.q) + alpha * along_phi + side * Interval.of(norm_phi)
        q = w.psi * common.q + kind * tilt * (one - common.q) + alpha * along_psi + side * Interval.of(norm_psi)
        logit = query + a * q
        capped = Interval(np.minimum(logit.low, 600.0), logit.high)
        return a * t + kind * value * capped.exp()

    fits = []
    for g, kind, across in ((own_clean, 1.0, far_clean), (own_flipped, -1.0, far_flipped)):
        assert g.inside is not None and g.pieces is not None
        room = margin(g.inside, g.pieces, kind, across).low.min(0)
        fits.append(np.where(g.count.high > 0, room, np.inf))
    misses = []
    for kind, count, share in ((-1.0, flipped, _FLIPPED), (1.0, clean, _CLEAN)):
        part = share * failure / 2 / 6
        table = {int(m): _normal_quantile(part ** (1 / max(int(m), 1))) for m in np.unique(count)}
        low = np.array([table[int(m)] for m in count]) + _normal_quantile(part) / math.sqrt(n)
        edges = -common.wide + np.linspace(0.0, 1.0, _PIECES + 1)[:, None] * (low + common.wide)
        z = Interval(edges[:-1], edges[1:])
        w = _weights(a, b, kind, common.middle + common.scale * z)
        room = margin(w, z, kind, np.full_like(count, _normal_quantile(part))).high.max(0)
        misses.append(np.where(count > 0, room, np.inf))
    signal = query.exp() * value / length
    return _Classes(clean, flipped, np.minimum(*fits), misses[0], misses[1], signal, value, query, length, omega)


def _take(g: _Group, index: np.ndarray) -> _Group:
    def pick(x: Interval) -> Interval:
        return Interval(np.broadcast_to(x.low, x.high.shape)[index], x.high[index])

    return _Group(
        pick(g.count), _Weights(*(pick(x) for x in vars(g.at).values())), pick(g.mean_phi), pick(g.mean_psi),
        g.lip_phi[index], g.lip_psi[index],
    )  # fmt: skip


def _norm(parts: list, common: _Common) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For weights w_j = f_j(z_j): upper bounds of |w| (minus a constant), of |w| at the middle, and of the largest |slope|."""
    zero = Interval.of(0.0)
    start = sum((g.count * at.square() for g, at, _, _ in parts), zero).sqrt()
    shift = sum((g.count * bend.square() for g, _, bend, _ in parts), zero).sqrt()
    spread = sum((g.count * Interval.of(lip).square() for g, _, _, lip in parts), zero)
    lip = np.maximum.reduce([np.where(g.count.high > 0, lip, 0.0) for g, _, _, lip in parts])
    most = ((start + shift).square() + common.scale.square() * spread).sqrt() + common.scale * Interval.of(lip) * common.gauss
    return most.high, start.high, lip


# --- the error -----------------------------------------------------------------------------------------------------------------


def _at_most(x: _Classes, error: float) -> np.ndarray:
    """Lanes in which the class errs at most `error`: some cut T has Phi(-T/omega) + Phi(-e^(P-T) V/S) <= error."""
    proved = np.zeros(len(x.clean), bool)
    for cut in _CUTS:
        left = error - 0.5 * math.erfc(cut / math.sqrt(2)) * (1 + 1e-12)
        if left > 0:
            need = _normal_quantile(left * (1 - 1e-12)) if left < 0.5 else 0.0
            with np.errstate(over="ignore"):
                proved |= x.signal.low * np.exp(-cut * x.omega * (1 + 1e-12)) * (1 - 1e-12) >= need
    return proved & (x.value.low > 0)


def _at_least(x: _Classes, error: float) -> np.ndarray:
    """Lanes in which the class errs at least `error`: Phi(-e^(P+T) V/S) - Phi(-T/omega) >= error, or V <= 0."""
    proved = x.value.high <= 0
    for cut in _CUTS:
        level = error + 0.5 * math.erfc(cut / math.sqrt(2)) * (1 + 1e-12)
        if level < 0.5:
            need = -_NORMAL.inv_cdf(level) * (1 - 1e-9)
            with np.errstate(over="ignore", invalid="ignore"):
                proved |= x.signal.high * np.exp(cut * x.omega * (1 + 1e-12)) * (1 + 1e-12) <= need
    return proved if error <= 0.5 else np.zeros_like(proved)


def _exponent(x: _Classes) -> np.ndarray:
    """E with err_k <= e^-E, (lanes,); 0 where nothing is known."""
    with np.errstate(over="ignore"):
        y = x.signal.low[None] * np.exp(-_CUTS[:, None] * x.omega * (1 + 1e-12)) * (1 - 1e-12)
    y = np.where(x.value.low > 0, y, 0.0)
    return (np.minimum(_CUTS[:, None], y) ** 2 / 2).max(0) * (1 - 1e-12)


# --- all counts ----------------------------------------------------------------------------------------------------------------


class _Counts:
    """Likely label counts: lanes (clean, flipped) of one class, and sums over the counts of both."""

    def __init__(self, n: int, eta: float, missing: float):
        log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, n + 1)))])
        sizes = np.arange(n + 1)
        own = _binomial(np.full(n + 1, n), sizes, 0.5, log_factorial)
        keep = own > missing / (4 * n)
        self.sizes, self.weights = sizes[keep & keep[::-1]], own[keep & keep[::-1]]
        m, f = (x.ravel() for x in np.meshgrid(self.sizes, sizes, indexing="ij"))
        m, f = m[f <= m], f[f <= m]
        chance = _binomial(m, f, eta, log_factorial)
        keep = chance > missing / (4 * n)
        self.size, self.flipped, self.chance = m[keep], f[keep], chance[keep]
        self.others = np.zeros((n + 1, 2), dtype=int)
        for size in self.sizes:
            own_flipped = self.flipped[self.size == size]
            self.others[size] = own_flipped.min(), own_flipped.max()

    def mass(self, lanes: np.ndarray) -> np.ndarray:
        """(2, sizes): probability of the lanes given the class's size, for class 1 and, reversed, for class 2."""
        each = np.bincount(self.size, self.chance * lanes, minlength=self.sizes[-1] + 1)[self.sizes]
        return np.stack([each, each[::-1]])

    def both(self, lanes: np.ndarray) -> float:
        one, two = self.mass(lanes)
        return float((self.weights * one * two).sum())

    def either(self, lanes: np.ndarray, rest: np.ndarray | None = None) -> float:
        """One class in `lanes`, the other in `rest` (all likely counts)."""
        (p1, p2), (q1, q2) = self.mass(lanes), self.mass(np.ones_like(lanes) if rest is None else rest)
        return float((self.weights * (p1 * q2 + q1 * p2 - p1 * p2)).sum())


@checks.checked
def proved_outcome(
    law: SignalNoiseLaw, step_size: float, delta: float = 0.01, *, error: float = 0.1, bound: bool = True
) -> ProvedOutcome:
    r"""The outcome of two steps from zero that is proved, with probability at least $1-\delta$ over the training set.

    Args:
        law: two tokens, the paper's signals, noise of variance 1.
        step_size: beta > 0.
        delta: in (0, 1).
        error: in (0, 1/2), separates "errs less" from "errs more": mean clean error of the two classes.
        bound: also look for the least error that is proved.

    Returns:
        a `ProvedOutcome`. All numbers are bounded in interval arithmetic; exp, log and erfc of the machine are trusted to 10^-12.

    Raises:
        ValueError: another law, or an argument out of range.

    Source:
        derived in `book/single_head_proved_theory`.

    Example:
        >>> proved_outcome(SignalNoiseLaw(200, 40_000, 30.0, 0.05), 0.025).outcome
        'fits every label and errs less'
    """
    checks.positive_number("step_size", step_size)
    checks.probability("delta", delta, open_ends=True)
    checks.probability("error", error, high=0.5, open_ends=True)
    if not isinstance(law, SignalNoiseLaw) or law.tokens != 2 or law.norm_ratio != 1 or law.cosine or law.normalised_noise:
        raise ValueError(f"law must be a SignalNoiseLaw of two tokens, orthogonal signals of one norm, noise of variance 1; got {law!r}")
    if law.n < 2 or law.d < 5:
        return ProvedOutcome(UNDECIDED, 0.0, math.nan, f"n must be at least 2 and d at least 5; got {law.n} and {law.d}")
    failure = delta / 2
    with np.errstate(all="ignore"):
        counts = _Counts(law.n, law.label_noise, delta / 100)
        x = _classes(law, step_size, failure, (counts.size - counts.flipped).astype(float), counts.flipped.astype(float), counts.others)
        return _decide(x, counts, delta, failure, error, bound)


def _decide(x: _Classes, counts: _Counts, delta: float, failure: float, error: float, bound: bool) -> ProvedOutcome:
    fits = x.room_fit > 0
    low, mid, high = _at_most(x, error), _at_least(x, error), _at_least(x, 2 * error)
    one, two = counts.mass(fits & high)
    (m1, m2), (f1, f2) = counts.mass(fits & (mid | high)), counts.mass(fits)
    harmful = one * f2 + f1 * two - one * two + (m1 - one) * (m2 - two)
    chances = {
        FITS_BENIGN: counts.both(fits & low),
        FITS_HARMFUL: float((counts.weights * harmful).sum()),
        MISSES_FLIPPED: counts.either(x.room_miss_flipped < 0),
        MISSES_CLEAN: counts.either(x.room_miss_clean < 0),
    }
    outcome, chance = max(chances.items(), key=lambda item: item[1])
    probability = chance * (1 - failure) * (1 - 1e-9)
    if probability < 1 - delta:
        return ProvedOutcome(UNDECIDED, probability, math.nan, _why(x, counts, fits, error))
    value = math.nan
    if outcome == FITS_BENIGN and bound:
        value = _least_error(x, counts, fits, (1 - delta) / ((1 - failure) * (1 - 1e-9)))
    elif outcome == FITS_HARMFUL:
        value = math.log10(error)
    return ProvedOutcome(outcome, probability, value, "")


def _least_error(x: _Classes, counts: _Counts, fits: np.ndarray, needed: float) -> float:
    exponent = _exponent(x)
    low, high = 0, len(exponent) - 1
    levels = np.sort(exponent)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if counts.both(fits & (exponent >= levels[middle])) >= needed else (low, middle - 1)
    return -float(levels[low]) / math.log(10)


def _why(x: _Classes, counts: _Counts, fits: np.ndarray, error: float) -> str:
    """At the most likely counts: what is missing."""
    middle = counts.sizes[len(counts.sizes) // 2]
    lane = np.flatnonzero(counts.size == middle)
    lane = lane[counts.chance[lane].argmax()]
    parts = []
    if not fits[lane]:
        parts.append(f"least margin (t + zeta V e^q) is at least {x.room_fit[lane]:.3g}, wanted above 0")
        parts.append(f"that of one flipped sample is at most {x.room_miss_flipped[lane]:.3g}, wanted below 0")
    s = x.signal
    parts.append(f"e^P V/|Pi v| lies in [{s.low[lane]:.3g}, {s.high[lane]:.3g}] and |Pi p| is at most {x.omega[lane]:.3g}, wanted on one side of an error of {error:g}")
    return f"at {int(x.clean[lane])} clean and {int(x.flipped[lane])} flipped samples: " + "; ".join(parts)
