r"""Part III, exact risk: two examples in four dimensions, where the risk of a head and of a pair is a one-dimensional integral.

For d = 4, L = 2, with $T=\tanh(az)$, $a=\omega/\sqrt2$ and $\nu=3+s_2$,

$$ B(a)=\tfrac1{\sqrt2}\int_0^\infty T\,z(z+1)e^{-z}dz,\qquad A(a)=\int_0^\infty T^2\,[z^2+\nu(z+1)]e^{-z}dz, $$

the pair $(\omega,m),(-\omega,-m)$ has the risk $4-2mB+m^2A$, a single head $(\omega,\mu)$ has $4-\mu B+\frac{\mu^2}4[2(1+\nu)+A]$; at the
best output the *gain* over 4 is $B^2/(A+c)$, $c=0$ or $2(1+\nu)$. Source: derived in the chapter "How a number is proved".

Also here: $\kappa$ of a pair, the best debiased step, and the bounds on the Bayes risk, which are algebraic.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from attnbook.certified.certificate import ball, precision
from attnbook.certified.printed import fraction

if TYPE_CHECKING:
    from flint import arb

_END = 60  # of the integrals; the rest is at most a polynomial times e^-60, and is added to the ball


@dataclass(frozen=True)
class Regression:
    """d, L and the standard deviation of the noise, a decimal; notebook's convention, isotropic."""

    d: int = 5
    length: int = 40
    noise: str = "0.01"

    @property
    def s2(self) -> Fraction:
        return self.d * Fraction(self.noise) ** 2

    def bayes(self, length: int) -> arb:
        r"""$B(\ell)=\frac12[\sqrt{(\ell-d+s_2)^2+4ds_2}-(\ell-d+s_2)]$; the Bayes risk lies between B(L+1) and B(L-1)."""
        middle = length - self.d + self.s2
        return (fraction(middle**2 + 4 * self.d * self.s2).sqrt() - fraction(middle)) / 2


def debiased_risk(law: Regression) -> Fraction:
    r"""$d(d+1+s_2)/(L+d+s_2)$: no debiased step has less."""
    return law.d * (law.d + 1 + law.s2) / (law.length + law.d + law.s2)


def kappa(law: Regression) -> Fraction:
    r"""$-4\eta^*d(d+2)(L-1)/(L^2(L+d+s_2))$, $\eta^*=L/(L+d+s_2)$: the risk of a pair falls like $\kappa\omega^2$ below the best step's."""
    d, L, total = law.d, law.length, law.length + law.d + law.s2
    return -4 * (L / total) * d * (d + 2) * (L - 1) / (L**2 * total)


class TwoExamples:
    """The gain of a pair (heads = 2) or of one head (heads = 1) at d = 4, L = 2, as balls at one precision; values are kept."""

    def __init__(self, noise: str = "0.01", heads: int = 2, bits: int = 53) -> None:
        if heads not in (1, 2) or isinstance(heads, bool):
            raise ValueError(f"heads must be 1 or 2; got {heads!r}")
        self.law, self.heads, self.bits, self._kept = Regression(4, 2, noise), heads, bits, {}

    @cached_property
    def nu(self) -> arb:
        return fraction(3 + self.law.s2)

    def _integral(self, kind: str, a: arb, b: arb | None = None) -> arb:
        """One of B, A, their derivatives dB and dA; dA may take $T$ at a and $1-T^2$ at b. All integrands are meromorphic."""
        from flint import acb, arb

        key = (kind, *(None if x is None else (x.mid().man_exp(), x.rad().man_exp()) for x in (a, b)))
        if key in self._kept:
            return self._kept[key]
        first, second, nu = acb(a), acb(a if b is None else b), acb(self.nu)

        def integrand(z: acb, analytic: bool) -> acb:
            decay = (-z).exp()
            own, both = z * (z + 1) * decay, (z * z + nu * (z + 1)) * decay
            if kind == "B":
                return (first * z).tanh() * own
            if kind == "A":
                return (first * z).tanh() ** 2 * both
            if kind == "dB":
                return z * (first * z).sech() ** 2 * own
            return 2 * z * (first * z).tanh() * (second * z).sech() ** 2 * both

        # |tanh| <= 1 and sech^2 <= 1, so beyond the end an integrand is at most 2 z (z^2 + nu (z + 1)) e^-z <= 2 (1 + nu) (z + 1)^3 e^-z.
        z = ball(_END) + 1
        rest = 2 * (1 + self.nu) * (z**3 + 3 * z**2 + 6 * z + 6) * (-ball(_END)).exp()
        tolerance = arb(2) ** (6 - self.bits)
        value = acb.integral(integrand, 0, _END, abs_tol=tolerance, rel_tol=tolerance).real + rest * arb(0).union(
            arb(1)
        )
        if kind in ("B", "dB"):
            value /= arb(2).sqrt()
        self._kept[key] = value
        return value

    @cached_property
    def extra(self) -> arb:
        return ball(0) if self.heads == 2 else 2 * (1 + self.nu)

    def gain(self, a: arb) -> arb:
        """$B^2/(A+c)$."""
        return self._integral("B", a) ** 2 / (self._integral("A", a) + self.extra)

    def risk(self, omega: str) -> arb:
        """At the best output for this scale, a decimal."""
        with precision(self.bits):
            return 4 - self.gain(ball(omega) / ball(2).sqrt())

    def least_risk(self, low: str, high: str) -> arb:
        """The least risk over scales between two decimals: the gain's derivative is `slope` times $B/(A+c)^2$, and is bounded there."""
        with precision(self.bits):
            a, b = (ball(x) / ball(2).sqrt() for x in (low, high))
            steepest = self._slope_bounds(a, b)[1] * self._integral("B", b) / (self._integral("A", a) + self.extra) ** 2
            return 4 - self.gain(a) - ((b - a) * steepest).max(ball(0)).union(ball(0))

    def slope(self, a: arb) -> arb:
        """A positive multiple of the derivative of the gain: $2B'(A+c)-BA'$."""
        return 2 * self._integral("dB", a) * (self._integral("A", a) + self.extra) - self._integral(
            "B", a
        ) * self._integral("dA", a)

    def _slope_bounds(self, p: arb, q: arb) -> tuple[arb, arb]:
        r"""Below and above `slope` on [p, q]: A and B increase in a, B' falls, and so does $1-T^2$."""
        low = 2 * self._integral("dB", q) * (self._integral("A", p) + self.extra)
        high = 2 * self._integral("dB", p) * (self._integral("A", q) + self.extra)
        return low - self._integral("B", q) * self._integral("dA", q, p), high - self._integral(
            "B", p
        ) * self._integral("dA", p, q)

    def slope_sign(self, p: arb, q: arb) -> int:
        """1 or -1 where `slope` has this sign on all of [p, q], else 0."""
        low, high = self._slope_bounds(p, q)
        return 1 if low > 0 else -1 if high < 0 else 0

    def best_between(self, low: str, high: str) -> bool | None:
        """Is every best scale |omega| strictly between two decimals, and is there one? False: the gain rises, or falls, on all of it.

        Up to low the gain rises and from high on it falls; below 0.05 and beyond 40 it is smaller than at low.
        """
        with precision(self.bits):
            a, b = (ball(x) / ball(2).sqrt() for x in (low, high))
            if (self.slope(a) < 0 and self._all(a, b, -1)) or (self.slope(b) > 0 and self._all(a, b, 1)):
                return False
            first, last, best = ball(0.05), ball(40.0), self.gain(a)
            # B/a falls and A/a^2 falls: B(a) <= a B'(0) with B'(0) = 8/sqrt 2, A(a) >= a^2 A(b)/b^2, for a <= b = 0.05.
            near = 32 / (self._integral("A", first) / first**2 + self.extra / first**2)
            far = ball(9) / 2 / (self._integral("A", last) + self.extra)  # B <= 3/sqrt 2
            if not (near < best and far < best):
                return None
            rises, falls = self._all(first, a, 1), self._all(b, last, -1)
            return True if rises and falls else None

    def _all(self, p: arb, q: arb, sign: int, depth: int = 24) -> bool:
        found = self.slope_sign(p, q)
        if found or depth == 0:
            return found == sign
        middle = ((p + q) / 2).mid()
        return self._all(p, middle, sign, depth - 1) and self._all(middle, q, sign, depth - 1)
