r"""The mean-field flow of Part I with every error enclosed: five variables, a clock without stiffness, a proved Taylor step.

Let $a=P-q_c$ and $b=P-q_n$ be the logits of the clean and of the flipped samples, $s_c=\sigma(a)$, $s_n=\sigma(b)$,
$m_c=s_cV+(1-s_c)t_c$, $m_n=-s_nV+(1-s_n)t_n$. The flow of `attnbook.single_head.flow` depends on P, q_c, q_n through a and b only.
In the time T with $dT=g_c\,d\tau$, where $g_c=\sigma(-m_c)$, and with $\gamma=g_n/g_c=(1+e^{m_c})/(1+e^{m_n})$,

$$ V'=x(s_c-\nu\gamma s_n),\quad t_c'=1-s_c,\quad t_n'=\gamma(1-s_n),\quad
   a'=r[(1+x)w_c-x\nu\gamma w_n],\quad b'=r[xw_c-(1+x\nu)\gamma w_n], $$

$w_c=s_c(1-s_c)(V-t_c)$, $w_n=s_n(1-s_n)(V+t_n)$. The path in state space is that of the flow in tau.

One step of length h from a point m and a radius R (weighted maximum norm, weights `WEIGHTS`): all states within R of m end within

    R exp(mu h) + delta     of the new centre,

delta: rounding and the remainder of the Taylor polynomial of m, enclosed over a box that is *verified* to hold the path of m; mu: an
upper bound of the logarithmic norm of the Jacobian over a box that holds all paths. Proof in the chapter of certified numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING

from attnbook.certified.certificate import _flint, precision

if TYPE_CHECKING:
    from flint import arb

ORDER = 20  # of the Taylor polynomial in time
STEP = 2.0**-5  # length of a step in T; a power of two
LONGEST = 120.0  # T after which a path counts as undecided
WEIGHTS = (1.0, 1.0, 1.5, 2.0, 1.5)  # of V, t_c, t_n, a, b; any positive numbers prove, these keep mu small
_SLACK = 2.0**-20  # first width of the box around the Taylor polynomial


class NoStep(ArithmeticError):
    """The box of a step could not be verified: the radius is too large for this step's length."""


@dataclass(frozen=True)
class Model:
    """x > 0, nu in [0, 1] and the ratio r > 0 of the two step sizes, as balls."""

    x: arb
    nu: arb
    rate: arb


@dataclass(frozen=True)
class Tube:
    """Where the flow from zero is at the time T: each variable within its ball (V, t_c, t_n, a, b). growth: the integral of mu."""

    time: float
    state: tuple[arb, ...]
    growth: float


def parts(state: Sequence, model: Model):  # type: ignore[no-untyped-def,type-arg]
    """(s_c, s_n, w_c, w_n, e^m_c, e^m_n), of balls or of power series."""
    V, t_c, t_n, a, b = state
    s_c, s_n = 1 / (1 + (-a).exp()), 1 / (1 + (-b).exp())
    w_c, w_n = s_c * (1 - s_c) * (V - t_c), s_n * (1 - s_n) * (V + t_n)
    return s_c, s_n, w_c, w_n, (t_c + s_c * (V - t_c)).exp(), (t_n - s_n * (V + t_n)).exp()


def rates(state: Sequence, model: Model) -> list:  # type: ignore[type-arg]
    """Right-hand side in the clock T, of five balls or of five power series."""
    s_c, s_n, w_c, w_n, clean, noisy = parts(state, model)
    x, nu, rate = model.x, model.nu, model.rate
    gamma = (1 + clean) / (1 + noisy)
    pull = gamma * w_n
    return [
        (s_c - gamma * s_n * nu) * x,
        1 - s_c,
        gamma * (1 - s_n),
        (w_c * (1 + x) - pull * (x * nu)) * rate,
        (w_c * x - pull * (1 + x * nu)) * rate,
    ]


def jacobian(state: Sequence[arb], model: Model) -> list[list[arb]]:
    """Derivatives of the five rates (rows) by the five variables (columns), of balls."""
    V, t_c, t_n, _, _ = state
    s_c, s_n, w_c, w_n, clean, noisy = parts(state, model)
    x, nu, rate = model.x, model.nu, model.rate
    gamma, one, zero = (1 + clean) / (1 + noisy), w_c * 0 + 1, w_c * 0
    h_c, h_n = s_c * (1 - s_c), s_n * (1 - s_n)
    e_c, e_n = clean / (1 + clean), noisy / (1 + noisy)  # slopes of log(1 + e^m)
    d_gamma = [
        gamma * part for part in (e_c * s_c + e_n * s_n, e_c * (1 - s_c), -e_n * (1 - s_n), e_c * w_c, e_n * w_n)
    ]
    d_s_c, d_s_n = [zero, zero, zero, h_c, zero], [zero, zero, zero, zero, h_n]
    d_w_c = [h_c, -h_c, zero, (one - 2 * s_c) * h_c * (V - t_c), zero]
    d_w_n = [h_n, zero, h_n, zero, (one - 2 * s_n) * h_n * (V + t_n)]
    d_pull = [dg * w_n + gamma * dw for dg, dw in zip(d_gamma, d_w_n, strict=True)]
    columns = range(5)
    return [
        [x * (d_s_c[j] - nu * (d_gamma[j] * s_n + gamma * d_s_n[j])) for j in columns],
        [-d_s_c[j] for j in columns],
        [d_gamma[j] * (1 - s_n) - gamma * d_s_n[j] for j in columns],
        [rate * ((1 + x) * d_w_c[j] - x * nu * d_pull[j]) for j in columns],
        [rate * (x * d_w_c[j] - (1 + x * nu) * d_pull[j]) for j in columns],
    ]


def logarithmic_norm(matrix: Sequence[Sequence[arb]]) -> float:
    """An upper bound of the logarithmic norm of the matrix for the weighted maximum norm max |y_i| / d_i, d = `WEIGHTS`."""
    flint = _flint()
    rows = []
    for i, row in enumerate(matrix):
        others = sum((abs(row[j]) * WEIGHTS[j] for j in range(5) if j != i), flint.arb(0))
        rows.append(above(row[i] + others / WEIGHTS[i]))
    return max(rows)


def above(value: arb) -> float:
    """A float at or above all numbers of the ball. Raises NoStep for a ball that is not finite."""
    if not value.is_finite():
        raise NoStep("an enclosure is not finite")
    return float(value.upper()) * (1 + 1e-12 * (1 if value.upper() > 0 else -1)) + 1e-300


def _product(f: Sequence[arb], g: Sequence[arb]) -> arb:
    """Coefficient k of the product of two power series, each given by its coefficients 0 to k."""
    return sum(map(mul, f, reversed(g)))


def taylor(state: Sequence[arb], model: Model, order: int = ORDER) -> list[list[arb]]:
    """Coefficients 0 to order of the solution from `state`, per variable, by recurrences.

    s' = s (1 - s) a' and (e^m)' = e^m m' give the coefficients of sigmoids and exponentials from those of lower order. From a box of
    states the coefficient k encloses the k-th derivative over k! at each state of the box.
    """
    x, nu, rate = model.x, model.nu, model.rate
    path = [[value] for value in state]
    V, t_c, t_n, _, _ = path
    s_c, s_n, w_c, w_n, clean, noisy = ([value] for value in parts(state, model))
    gap_c, gap_n = [V[0] - t_c[0]], [V[0] + t_n[0]]
    h_c, h_n = [s_c[0] * (1 - s_c[0])], [s_n[0] * (1 - s_n[0])]
    lift_c, lift_n = [s_c[0] * gap_c[0]], [s_n[0] * gap_n[0]]  # m_c = t_c + lift_c, m_n = t_n - lift_n
    part = 1 / (1 + noisy[0])
    gamma = [(1 + clean[0]) * part]
    weight, pull = [gamma[0] * s_n[0]], [gamma[0] * w_n[0]]
    a_rate, b_rate, m_c_rate, m_n_rate = [], [], [], []
    for n in range(1, order + 1):
        k = n - 1
        a_rate.append(rate * ((1 + x) * w_c[k] - x * nu * pull[k]))
        b_rate.append(rate * (x * w_c[k] - (1 + x * nu) * pull[k]))
        clean_rate = -s_c[k] if k else 1 - s_c[0]
        now = (x * (s_c[k] - nu * weight[k]), clean_rate, gamma[k] - weight[k], a_rate[k], b_rate[k])
        for series, value in zip(path, now, strict=True):
            series.append(value / n)
        if n == order:
            break
        s_c.append(_product(h_c, a_rate) / n)
        s_n.append(_product(h_n, b_rate) / n)
        h_c.append(s_c[n] - _product(s_c, s_c))
        h_n.append(s_n[n] - _product(s_n, s_n))
        gap_c.append(V[n] - t_c[n])
        gap_n.append(V[n] + t_n[n])
        lift_c.append(_product(s_c, gap_c))
        lift_n.append(_product(s_n, gap_n))
        w_c.append(_product(h_c, gap_c))
        w_n.append(_product(h_n, gap_n))
        m_c_rate.append(n * (t_c[n] + lift_c[n]))
        m_n_rate.append(n * (t_n[n] - lift_n[n]))
        clean.append(_product(clean, m_c_rate) / n)
        noisy.append(_product(noisy, m_n_rate) / n)
        gamma.append((clean[n] - _product(gamma, noisy[1:])) * part)
        weight.append(_product(gamma, s_n))
        pull.append(_product(gamma, w_n))
    return path


def at(coefficients: Sequence[arb], time: arb) -> arb:
    total = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * time + coefficient
    return total


def box_around(along: Sequence[arb], time: arb, model: Model, order: int) -> tuple[list[arb], list[arb]]:
    """A box that holds the path over a step, and the remainders at its end. Raises `NoStep`.

    along: the Taylor polynomials of degree order - 1 over the step. Polynomial and remainder lie inside the box, so the path cannot leave.
    """
    arb, slack = _flint().arb, _SLACK
    for _ in range(8):
        box = [value + arb(0, slack) for value in along]
        tail = [row[order] * time**order for row in taylor(box, model, order)]
        ends = (value + arb(0, 1) * abs(rest) for value, rest in zip(along, tail, strict=True))
        if all(whole.contains_interior(end) for whole, end in zip(box, ends, strict=True)):
            return box, tail
        slack *= 8
    raise NoStep("no box holds the path over a step")


def step(centre: Sequence[arb], radius: float, model: Model, length: float) -> tuple[list[arb], float, float]:
    """(new centre, new radius, mu) after a step; the centre is exact, the radius in the weighted norm. Raises `NoStep`."""
    flint = _flint()
    arb = flint.arb
    time = arb(length)
    span = arb(length / 2, length / 2)
    coefficients = taylor(centre, model)
    polynomial = [row[:ORDER] for row in coefficients]
    along = [at(row, span) for row in polynomial]
    box, tail = box_around(along, time, model, ORDER)
    ends = [at(row, time) + rest for row, rest in zip(polynomial, tail, strict=True)]
    around = [value + arb(0, 2 * radius * weight) for value, weight in zip(box, WEIGHTS, strict=True)]
    mu = logarithmic_norm(jacobian(around, model))
    factor = above((arb(mu) * time).exp())
    if factor >= 2:
        raise NoStep(f"the radius could double within a step of {length}")
    middle = [value.mid() for value in ends]
    error = max(above(arb(value.rad()) / weight) for value, weight in zip(ends, WEIGHTS, strict=True))
    return middle, above(arb(radius) * factor + arb(error)), mu


def flow_tube(
    model: Model,
    until: Callable[[tuple[arb, ...]], str | None],
    *,
    bits: int = 128,
    length: float = STEP,
    longest: float = LONGEST,
) -> tuple[Tube, str | None]:
    """Follow the flow from zero, in steps of `length`, until `until(state)` is not None; its answer, or None at the time `longest`.

    Raises `NoStep` where a step could not be verified.
    """
    with precision(bits):
        arb = _flint().arb
        centre, radius, time, growth = [arb(0)] * 5, 0.0, 0.0, 0.0
        while True:
            state = tuple(value + arb(0, radius * weight) for value, weight in zip(centre, WEIGHTS, strict=True))
            answer = until(state)
            if answer is not None or time >= longest:
                return Tube(time, state, growth), answer
            centre, radius, mu = step(centre, radius, model, length)
            time, growth = time + length, growth + mu * length
