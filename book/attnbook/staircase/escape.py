r"""When do small heads escape? While all weights are small the loss pulls with $G=\mathrm{diag}(g)$, and heads do not see one another.

With $r=(k+q)/\sqrt2$, $s=(k-q)/\sqrt2$ and the clock $d\tau=v\,dt$ the flow of a head is solved: $r_i\propto e^{g_i\tau}$,
$s_i\propto e^{-g_i\tau}$, and $v^2=F(\tau)$ follows from the conserved quantity $v^2-\tfrac12(|k|^2+|q|^2)$. So time is one integral over
$\tau$ of $1/\sqrt F$. A head whose value falls to zero first turns there and comes back with the other sign.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.staircase.law import Heads, SpectrumLaw
from attnlib import checks
from attnlib.arrays import Bools, Floats

_PANELS = 2.0 ** (-0.5 * np.arange(97)[::-1])  # ends of panels in z = sqrt(x / length); the first one begins at 0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_EDGES = np.concatenate([[0.0], _PANELS])
_Z = (_EDGES[:-1, None] + np.diff(_EDGES)[:, None] * (1 + _NODES) / 2).ravel()
_W = (np.diff(_EDGES)[:, None] * _WEIGHTS / 2).ravel()
_MID_DROP = 1.2533912  # 1/x - the integral of t/(1 - t^3) from 0 to x, at (1 - x^3)^2 = 1/2


def _time(base: Floats, grows: Floats, decays: Floats, g: Floats, length: Floats) -> Floats:
    """Time in which tau moves by `length` from a point with v^2 = base; grows and decays (..., D): squares of r and s, or of s and r."""
    x = length[..., None] * _Z**2
    square = base[..., None] * np.ones_like(x)
    for i, rate in enumerate(g):
        if rate:
            more = np.expm1(np.minimum(2 * rate * x, 600.0))  # beyond it the integrand is zero
            less = -more / (1 + more)  # the same of minus the exponent
            square += 0.5 * (grows[..., i, None] * more + decays[..., i, None] * less)
    # At x near 0 rounding may give a square below 0; those nodes have no weight to speak of.
    return np.asarray((2 * length[..., None] * _Z * _W / np.sqrt(np.maximum(square, 1e-300))).sum(-1))


def _bisect(low: Floats, high: Floats, above: Callable[[Floats], Bools], halvings: int = 70) -> Floats:
    """Where a condition that is first false and then true begins to be true."""
    for _ in range(halvings):
        middle = (low + high) / 2
        right = above(middle)
        low, high = np.where(right, low, middle), np.where(right, middle, high)
    return (low + high) / 2


@dataclass(frozen=True)
class _Clock:
    """The path of each head in tau: along it to `turn`, the lowest point of F or its root, and on, forwards or back."""

    sign: Floats  # of the value at the start
    value: Floats
    r: Floats
    s: Floats
    g: Floats
    turn: Floats  # tau of the lowest point on the way, 0 where F increases from the start
    bounces: Bools  # F has a root there
    base: Floats  # F at the turn
    length: Floats  # of tau after the turn, until the rest of the time is negligible

    @functools.cached_property
    def _back(self) -> tuple[Floats, Floats]:
        """Squares of s and r at the turn: what grows and what decays on the way back from it."""
        growth = np.exp(2 * self.g * self.turn[..., None])
        return self.s**2 / growth, self.r**2 * growth

    def escape(self) -> Floats:
        """Time until the head is infinite; infinity for one that comes to rest, or that has no part that grows."""
        s2, r2 = self._back
        rests = ~self.bounces & (self.base == 0) & ((self.g * (r2 - s2)).sum(-1) == 0)
        growing = np.where(self.bounces[..., None], s2, r2)[..., self.g > 0].any(-1)
        return np.where(rests | ~growing, np.inf, self.time(self.turn + self.length))

    @functools.cached_property
    def _to_turn(self) -> Floats:
        """Time from the start to the turn."""
        return _time(self.base, *self._back, self.g, self.turn)

    def time(self, way: Floats) -> Floats:
        """At a distance `way` from the start, along the path."""
        s2, r2 = self._back
        after = way > self.turn
        reverse = (self.bounces | ~after)[..., None]
        rest = _time(self.base, np.where(reverse, s2, r2), np.where(reverse, r2, s2), self.g, np.abs(way - self.turn))
        return self._to_turn + np.where(after, rest, -rest)

    def state(self, way: Floats) -> tuple[Floats, Floats, Floats]:
        """v, k, q there."""
        tau = np.where(self.bounces & (way > self.turn), 2 * self.turn - way, way)
        growth = np.exp(self.g * tau[..., None])
        r, s = self.r * growth, self.s / growth
        square = self.value**2 + 0.5 * (r**2 + s**2 - self.r**2 - self.s**2).sum(-1)
        v = np.sqrt(np.maximum(square, 0)) * np.where(self.bounces & (way > self.turn), -1, 1)
        return self.sign * v, self.sign[..., None] * (r + s) / math.sqrt(2), (r - s) / math.sqrt(2)


def _clock(v: Floats, k: Floats, q: Floats, g: Floats) -> _Clock:
    sign = np.where(v < 0, -1.0, 1.0)
    k = sign[..., None] * k
    value, r, s = np.abs(v), (k + q) / math.sqrt(2), (k - q) / math.sqrt(2)
    active = g > 0
    ga, r2, s2 = g[active], r[..., active] ** 2, s[..., active] ** 2

    def slope(tau: Floats) -> Floats:
        return np.asarray((ga * (r2 * np.exp(2 * ga * tau[..., None]) - s2 * np.exp(-2 * ga * tau[..., None]))).sum(-1))

    def square(tau: Floats) -> Floats:
        t = 2 * ga * tau[..., None]
        return np.asarray(value**2 + 0.5 * (r2 * np.expm1(t) + s2 * np.expm1(-t)).sum(-1))

    zero, far = np.zeros_like(value), np.full_like(value, 300 / ga.max())
    lowest = np.where(slope(zero) >= 0, 0.0, _bisect(zero, far, lambda tau: slope(tau) >= 0))
    bounces = (square(lowest) <= 0) & (lowest > 0)
    root = _bisect(zero, lowest, lambda tau: square(tau) <= 0)
    turn = np.where(bounces, root, lowest)
    base = np.where(bounces, 0.0, square(turn))
    growing = np.where(
        bounces[..., None], s2 * np.exp(-2 * ga * turn[..., None]), r2 * np.exp(2 * ga * turn[..., None])
    )
    size = value**2 + (r2 + s2).sum(-1)
    length = ((40 + 0.5 * np.log1p(size[..., None] / np.maximum(growing, 1e-300))) / ga).min(-1)
    return _Clock(sign, value, r, s, g, turn, bounces, base, length)


def _rates(rates: object, D: int) -> Floats:
    try:
        g = np.asarray(rates, dtype=np.float64)
    except (TypeError, ValueError):
        g = np.empty(0)
    if g.shape != (D,) or not np.isfinite(g).all() or (g < 0).any() or not (g > 0).any():
        raise ValueError(f"rates must be {D} finite numbers >= 0, one of them above 0; got {rates!r}")
    return g


@checks.checked
def escape_time(start: Heads, rates: object) -> torch.Tensor:
    r"""Time in which a small head becomes infinite under the flow of small weights, $G=\mathrm{diag}(g)$.

    $$ t=\int_0^\infty\frac{d\tau}{\sqrt{F(\tau)}},\qquad
       F(\tau)=v^2+\tfrac12\sum_i\bigl[r_i^2(e^{2g_i\tau}-1)+s_i^2(e^{-2g_i\tau}-1)\bigr], $$

    for $v>0$, $r=(k+q)/\sqrt2$ and $s=(k-q)/\sqrt2$, if $F$ has no root; if it has one, the time to the root and from there to
    $\tau=-\infty$. For $v=0$ the root is at 0: the integral runs to $+\infty$ or to $-\infty$, on the side where $F>0$; if that is on
    both sides, the head is at rest. A start that is $c$ times as large needs $1/c$ of the time.

    Args:
        start: R runs of H heads in D dimensions.
        rates: g, D numbers >= 0, one of them above 0; $g_i=\lambda_i^2$ on the first plateau.

    Returns:
        times (R, H); infinity for a head at rest, and for one without a part that grows.

    Raises:
        ValueError: rates that are no such numbers.

    Source:
        derived in the chapter "Proofs for Part VI".

    Example:
        >>> one = torch.full((1, 1), 0.01, dtype=torch.float64)
        >>> round(escape_time(Heads(one, one[..., None], one[..., None]), [0.25]).item(), 6)
        400.0
    """
    v, k, q = start.arrays()
    clock = _clock(v, k, q, _rates(rates, k.shape[-1]))
    return torch.as_tensor(clock.escape())


def _at(clock: _Clock, time: Floats) -> tuple[Floats, Floats, Floats]:
    """The heads at a time before their escape."""
    low, high = np.zeros_like(clock.value), clock.turn + clock.length
    way = np.where(time > 0, high / 2, 0)
    for _ in range(60):
        late = clock.time(way) - time
        low, high = np.where(late > 0, low, way), np.where(late > 0, way, high)
        # The speed of the clock is |v|: a step of Newton's method, or half of what is left where it leads outside.
        newton = way - late * np.abs(clock.state(way)[0])
        before, way = way, np.where((low <= newton) & (newton <= high), newton, (low + high) / 2)
        if (np.abs(way - before) <= 1e-10 * high).all():
            break
    return clock.state(way)


@checks.checked
def predicted_drops(law: SpectrumLaw, start: Heads, drops: int | None = None) -> torch.Tensor:
    r"""Times at which the loss has done half of its first, second, ... step, from the start alone.

    On plateau $m$ the small heads follow the flow of small weights with the rates $\lambda_i^2$ of the directions that are not yet
    learned. The head with the least escape time is the next to escape; it takes its direction of the largest remaining rate. The drop
    itself is that of a balanced head, and half of it is done $1.253\,\lambda_i^{-2}a_i^{-1/3}$ before the escape time.

    Args:
        law: of the prompts, in D dimensions.
        start: R runs of H heads in D dimensions.
        drops: how many, at most min(D, H), which is the default.

    Returns:
        times (R, drops), to leading order for small starts.

    Raises:
        ValueError: sizes that do not fit.

    Source:
        derived in the chapter "Proofs for Part VI".

    Example:
        >>> law = SpectrumLaw((0.6, 0.4), length=10)
        >>> predicted_drops(law, small_heads(0, heads=3, dimension=2, size=0.01, runs=4)).shape
        torch.Size([4, 2])
    """
    runs, heads, D = checks.tensor("start.key", start.key, ("R", "H", law.dimension)).shape
    most = min(D, heads)
    if checks.whole_number("drops", most if drops is None else drops, at_least=1) > most:
        raise ValueError(f"drops must be at most min(D, H) = {most}; got {drops}")
    eigenvalues, scale = law.eigenvalues(), (law.eigenvalues() / law.second_moment()) ** (1 / 3)
    v, k, q = start.arrays()
    learned, total, found, row = np.zeros((runs, heads), dtype=bool), np.zeros(runs), [], np.arange(runs)
    for m in range(most if drops is None else drops):
        g = np.where(np.arange(D) >= m, eigenvalues**2, 0.0)
        clock = _clock(v, k, q, g)
        times = np.where(learned, np.inf, clock.escape())
        first = times.argmin(1)
        wait = times[row, first]
        total = total + wait
        found.append(total - _MID_DROP / (eigenvalues[m] ** 2 * scale[m]))
        learned[row, first] = True
        v, k, q = _at(clock, np.where(learned, 0.0, wait[:, None]))
        v[learned], k[learned], q[learned] = 1.0, 1.0, 1.0  # they play no role any more
        equal = np.flatnonzero(eigenvalues == eigenvalues[m])
        equal = equal[equal >= m]
        if len(equal) > 1:  # the head takes one direction among equal ones: make it the first of them
            grows = np.where(clock.bounces[..., None], clock.s, clock.r)[row, first][:, equal]
            mirror = _mirror(grows)
            k[..., equal], q[..., equal] = np.matmul(k[..., equal], mirror), np.matmul(q[..., equal], mirror)
    return torch.as_tensor(np.stack(found, axis=1))


def _mirror(direction: Floats) -> Floats:
    """Reflections (R, E, E) that exchange the directions (R, E) with the first axis."""
    unit = direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    normal = unit - np.eye(unit.shape[-1])[0]
    square = np.maximum((normal**2).sum(-1), 1e-300)[:, None, None]
    return np.asarray(np.eye(unit.shape[-1]) - 2 * normal[:, :, None] * normal[:, None, :] / square)
