r"""The certificate for two steps at the size of page I.2, in balls: at that size benign overfitting after two steps is a theorem.

Every condition of the theorem "A certificate for two steps" is one ball, for every set of label counts that C4 allows at $\delta/2$; so is
the bound on the clean error. What one class contributes depends on its own counts $(|C_k|,|N_k|)$ only, and is computed once; the two cross
terms join the classes. Letters as in the chapter "Two steps in finite dimension".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, NamedTuple

from attnbook.certified.certificate import ball
from attnbook.halving import halved

if TYPE_CHECKING:
    from flint import arb

Counts = tuple[int, int]


class _Kind(NamedTuple):
    """Clean or flipped samples of a class."""

    count: int
    phi: arb
    psi: arb
    steep_phi: arb
    steep_psi: arb
    top_phi: arb
    top_psi: arb


class _Class(NamedTuple):
    kinds: tuple[_Kind, _Kind]
    value: arb  # bar V
    query: arb  # bar P
    value_room: arb
    query_room: arb
    squares: tuple[arb, arb]  # sum of W^2, of phi and of psi


@dataclass(frozen=True)
class TwoSteps:
    """The law of page I.2, by default: rho = 30 and beta = 0.025. Balls at the precision at which they are first asked for."""

    n: int = 200
    d: int = 40_000
    level: str = "4.5"  # n SNR^2
    pull: str = "1.25"  # a = beta d / 4n
    flipped: str = "0.05"
    delta: str = "0.01"

    @cached_property
    def a(self) -> arb:
        return ball(self.pull)

    @cached_property
    def h(self) -> arb:
        return self.a * ball(self.level) / self.n

    @cached_property
    def u(self) -> arb:
        return (14 * self.n / ball(self.delta)).log()

    @cached_property
    def row(self) -> arb:
        return ball(self.n).sqrt() + (2 * self.u).sqrt()

    @cached_property
    def norm(self) -> arb:
        return 2 * (self.u / self.d).sqrt() + 2 * self.u / self.d + ball(2) / self.d

    @cached_property
    def score(self) -> arb:
        return self.norm + (2 * (self.n - 1) * (1 + self.norm) * self.u / self.d).sqrt()

    @cached_property
    def rms(self) -> arb:
        return (self.norm**2 + (1 + self.norm) * self.row**2 / self.d).sqrt()

    @cached_property
    def counts(self) -> list[tuple[Counts, Counts]]:
        """Every ((|C_1|, |N_1|), (|C_2|, |N_2|)) that C4 at delta/2 does not exclude for certain; of two mirror images one."""
        eta, x = ball(self.flipped), (16 / ball(self.delta)).log()
        clean_width = (self.n * x / 2).sqrt()
        noisy_width = (self.n * eta * (1 - eta / 2) * x).sqrt() + x / 3
        clean, noisy = (
            [count for count in range(self.n + 1) if not abs(count - centre) > width]
            for centre, width in ((self.n * (1 - eta) / 2, clean_width), (self.n * eta / 2, noisy_width))
        )
        allowed, found = set(clean), []
        for c1 in clean:
            for n1 in noisy:
                for n2 in noisy:
                    first, second = (c1, n1), (self.n - c1 - n1 - n2, n2)
                    if second[0] in allowed and first <= second:
                        found.append((first, second))
        return found

    def _class(self, counts: Counts) -> _Class:
        b = self.h * (counts[0] - counts[1])
        kinds = tuple(self._kind(count, sign, b) for count, sign in zip(counts, (1, -1), strict=True))
        clean, noisy = kinds
        value = self.h * (clean.count * clean.phi - noisy.count * noisy.phi)
        query = self.h * (clean.count * clean.psi + noisy.count * noisy.psi)
        reach = self.h * ball(self.n).sqrt() * self.rms
        rooms = (reach * sum((k.count * steep**2 for k, steep in pairs), ball(0)).sqrt() for pairs in (
            [(k, k.steep_phi) for k in kinds], [(k, k.steep_psi) for k in kinds]))  # fmt: skip
        squares = (
            sum((k.count * k.top_phi**2 for k in kinds), ball(0)),
            sum((k.count * k.top_psi**2 for k in kinds), ball(0)),
        )
        return _Class((clean, noisy), value, query, *rooms, squares)

    def _kind(self, count: int, sign: int, b: arb) -> _Kind:
        a, e = self.a, self.score

        def slope(x: arb) -> arb:
            return 1 / (1 + ((sign * b + a * (1 + x)) / 2).exp())

        high, low, middle = slope(-e), slope(e), slope(ball(0))
        leads = [sign * b - a * (1 + x) for x in (-e, e)]
        turn = _largest([abs(1 + (1 - g) * lead / 2) for g in (high, low) for lead in leads])
        phi, psi = 1 + 2 * middle, middle * (sign * b - a)
        steep_phi, steep_psi = a * _least([ball("0.25"), high * (1 - low)]), a * high * turn
        return _Kind(
            count, phi, psi, steep_phi, steep_psi, phi + steep_phi * e, high * _largest([abs(x) for x in leads])
        )

    @cached_property
    def _joined(self) -> list[tuple[_Class, arb, arb, arb, arb]]:
        """Every class of every set of counts, with both cross terms and the upper bounds on both norms."""
        classes = {counts: self._class(counts) for pair in self.counts for counts in pair}
        spectral = ball(self.d).sqrt() + self.row
        scale, rest = spectral * (2 * self.u).sqrt() / self.d, (1 + self.norm) * self.row**2 / self.d
        found = []
        for pair in self.counts:
            both = [classes[counts] for counts in pair]
            present = [kind for one in both for kind in one.kinds if kind.count]
            sizes = [(both[0].squares[i] + both[1].squares[i]).sqrt() for i in (0, 1)]
            cross_v = sizes[0] * scale + _largest([kind.steep_phi for kind in present]) * rest
            cross_p = sizes[1] * scale + _largest([kind.steep_psi for kind in present]) * rest
            v_norm, p_norm = (self.a / self.d * spectral * size for size in sizes)
            found += [(one, cross_v, cross_p, v_norm, p_norm) for one in both]
        return found

    def _room(self, one: _Class, cross_v: arb, cross_p: arb) -> arb:
        lows = [
            self.a * ((kind.phi - kind.steep_phi * self.score) * (1 - self.norm) - cross_v)
            for kind in one.kinds if kind.count
        ]  # fmt: skip
        rooms, flipped = [one.value - one.value_room, *lows], one.kinds[1]
        if flipped.count:
            logit = one.query + self.a * flipped.psi + one.query_room
            logit += self.a * (flipped.steep_psi * self.score + flipped.top_psi * self.norm + cross_p)
            rooms.append((lows[-1] / (one.value + one.value_room)).log() - logit)
        return _least(rooms)

    @cached_property
    def room(self) -> arb:
        """The conditions of the theorem hold for all counts if this is above zero."""
        return _least([self._room(one, cross_v, cross_p) for one, cross_v, cross_p, _, _ in self._joined])

    @cached_property
    def log10_error(self) -> arb:
        """log10 of the bound max exp(-E_k) on the clean error."""
        exponents = [
            _exponent(one.query - one.query_room, one.value - one.value_room, v_norm, p_norm)
            for one, _, _, v_norm, p_norm in self._joined
        ]
        return -_least(exponents) / ball(10).log()

    @property
    def sets(self) -> int:
        """How many sets of counts C4 leaves possible, mirror images included."""
        return sum(1 if first == second else 2 for first, second in self.counts)


def _exponent(query: arb, value: arb, v_norm: arb, p_norm: arb) -> arb:
    """E of C15 at the cut T where both exponents agree, from two cuts on whose sides the sign is proved."""
    from flint import arb

    if not value > 0:
        return arb.nan()
    ratio = float(query.mid()) + math.log(float(value.mid()) / float(v_norm.mid()))
    omega = float(p_norm.mid())
    low, high = halved(lambda cut: math.log(cut / omega) < ratio - cut, 0.0, 1e3, 60)  # a guess
    left, right = arb(low) * (1 - arb("1e-9")), arb(high) * (1 + arb("1e-9"))
    short, beyond = (cut / p_norm - (query - cut).exp() * value / v_norm for cut in (left, right))
    if not (short < 0 < beyond):
        return arb.nan()
    return (left.union(right) / p_norm) ** 2 / 2


def _largest(values: list[arb]) -> arb:
    return reduce(lambda a, b: a.max(b), values)


def _least(values: list[arb]) -> arb:
    return reduce(lambda a, b: a.min(b), values)
