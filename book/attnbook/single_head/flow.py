r"""The long run in six variables: gradient flow of one class when the noise tokens are orthogonal and of equal norm.

Classes decouple, and all clean (all flipped) samples of a class stay equal. With $V = s_k\,v\cdot\mu_k$, $t = y_i\,v\cdot\xi_i$,
$P = p\cdot\mu_k$, $q = p\cdot\xi_i$ (suffix c, n: clean, flipped), $s = \sigma(P - q)$, $m_c = s_cV + (1-s_c)t_c$,
$m_n = -s_nV + (1-s_n)t_n$, $g = \sigma(-m)$, $A_c = g_cs_c(1-s_c)(V-t_c)$, $A_n = g_ns_n(1-s_n)(V+t_n)$ and time $\tau = \beta t d/n$,

$$ V' = x(g_cs_c - \nu g_ns_n),\quad t_c' = g_c(1-s_c),\quad t_n' = g_n(1-s_n),\quad
   P' = rx(A_c - \nu A_n),\quad q_c' = -rA_c,\quad q_n' = rA_n, $$

$x = \rho^2|C_k|/d$, $\nu = |N_k|/|C_k| = \eta/(1-\eta)$, $r$ the ratio of the two step sizes. Source: derived in the chapter
*In the long run*. `flow_step` is the same system as a map, for gradient descent with any step size. The solver is SciPy's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from attnlib import checks
from attnlib.arrays import Floats

_HIGHEST = 40.0  # no boundary is looked for above this x
_TOLERANCE = {"rtol": 1e-8, "atol": 1e-10}


def _arguments(x: object, label_noise: object, attention_rate: object) -> tuple[float, float, float]:
    """x, nu and r, checked."""
    eta = checks.probability("label_noise", label_noise, high=0.5)
    rate = checks.positive_number("attention_rate", attention_rate, hint="a frozen head has no attention to follow")
    return checks.positive_number("x", x), eta / (1 - eta), rate


def sigmoids(z: Floats) -> Floats:
    """sigma of an array."""
    return 0.5 * (1 + np.tanh(z / 2))


def _sigmoid(z: float) -> float:
    tail = math.exp(-abs(z))
    return (1.0 if z >= 0 else tail) / (1.0 + tail)


def _both_sigmoids(z: float) -> tuple[float, float]:
    """sigma(z) and sigma(-z), both without cancellation, from one exponential."""
    tail = math.exp(-abs(z))
    large, small = 1.0 / (1.0 + tail), tail / (1.0 + tail)
    return (large, small) if z >= 0 else (small, large)


def flow_rates(state: Sequence[float], x: float, nu: float, attention_rate: float = 1.0) -> list[float]:
    """Right-hand side of the flow: derivatives of (V, t_c, t_n, P, q_c, q_n) in the time tau."""
    V, t_c, t_n, P, q_c, q_n = state
    # s: weights on the signal; g = sigma(-m): minus the derivative of one sample's loss with respect to its margin m; and
    # pull = r A, where A is the size of that loss's derivative with respect to the sample's logit P - q.
    (s_c, rest_c), (s_n, rest_n) = _both_sigmoids(P - q_c), _both_sigmoids(P - q_n)
    g_c = _sigmoid(-(s_c * V + (1 - s_c) * t_c))
    g_n = _sigmoid(s_n * V - (1 - s_n) * t_n)
    pull_c = attention_rate * g_c * s_c * rest_c * (V - t_c)
    pull_n = attention_rate * g_n * s_n * rest_n * (V + t_n)
    return [
        x * (g_c * s_c - nu * g_n * s_n), g_c * (1 - s_c), g_n * (1 - s_n),
        x * (pull_c - nu * pull_n), -pull_c, pull_n,
    ]  # fmt: skip


def flow_step(state: Sequence[float], step: float, x: float, nu: float, attention_rate: float = 1.0) -> list[float]:
    """One step of gradient descent in the same six variables; `step` is beta d / n, of any size > 0."""
    rates = flow_rates(state, x, nu, attention_rate)
    return [value + step * rate for value, rate in zip(state, rates, strict=True)]


def _trap_room(state: Sequence[float], x: float, nu: float) -> float:
    """At most 0 exactly in the trap: the largest of its four defining inequalities."""
    V, t_c, t_n, P, q_c, q_n = state
    return max(V - t_c, _sigmoid(P - q_c) - 1 / (1 + x), _sigmoid(P - q_n) - 1 / (1 + nu * x), -(V + t_n))


def in_trap(state: Sequence[float], x: float, label_noise: float) -> bool:
    """Whether a state lies in the set that is never left and in which the clean logit can only fall.

    $$ \\{V \\le t_c,\\; s_c \\le 1/(1+x),\\; s_n \\le 1/(1+\\nu x),\\; V + t_n \\ge 0\\}: $$

    invariant for the flow and for gradient descent of every step size. Proof in the chapter *In the long run*.
    """
    x, nu, _ = _arguments(x, label_noise, 1.0)
    return _trap_room(state, x, nu) <= 0


@dataclass(frozen=True)
class FlowPath:
    """A trajectory of the flow from zero: times (S,) and states (S, 6) in the order V, t_c, t_n, P, q_c, q_n."""

    times: Floats
    states: Floats

    @property
    def attention_clean(self) -> Floats:
        return 1 / (1 + np.exp(self.states[:, 4] - self.states[:, 3]))

    @property
    def attention_noisy(self) -> Floats:
        return 1 / (1 + np.exp(self.states[:, 5] - self.states[:, 3]))


def _on_the_clock(x: float, nu: float, rate: float) -> Callable[[float, Floats], list[float]]:
    """The right-hand side in z = log(1 + tau): the trajectory lives on a logarithmic clock."""

    def right_hand_side(z: float, state: Floats) -> list[float]:
        clock = math.exp(z)
        return [clock * value for value in flow_rates(state.tolist(), x, nu, rate)]

    return right_hand_side


@checks.checked
def flow_path(x: float, label_noise: float, times: Sequence[float], *, attention_rate: float = 1.0) -> FlowPath:
    r"""The flow from zero in six variables: long training of one class whose noise tokens are orthogonal and of equal norm.

    $$ V' = x(g_cs_c - \nu g_ns_n),\quad t_c' = g_c(1-s_c),\quad t_n' = g_n(1-s_n),\quad
       P' = rx(A_c - \nu A_n),\quad q_c' = -rA_c,\quad q_n' = rA_n, $$

    $\nu = \eta/(1-\eta)$, $g = \sigma(-m)$, $A_c = g_cs_c(1-s_c)(V-t_c)$, $A_n = g_ns_n(1-s_n)(V+t_n)$; the suffixes c and n stand for
    clean and flipped samples, $s$ is attention on the signal and $m$ the margin.

    Args:
        x: $\rho^2|C_k|/d > 0$, the strength of the signal against the noise.
        label_noise: $\eta$ in [0, 1/2].
        times: two or more increasing times $\tau = \beta t d/n > 0$.
        attention_rate: r > 0, the ratio of the step sizes of p and v.

    Returns:
        states at the given times, float64 arrays.

    Raises:
        ValueError: a number or the times are not as said above.
        RuntimeError: the solver does not converge.

    Source:
        derived in `book/single_head_long_run_theory`.

    Example:
        >>> path = flow_path(3.0, 0.1, [1.0, 10.0, 100.0])
        >>> path.states.shape, bool(path.attention_clean[-1] > 0.9)
        ((3, 6), True)
    """
    x, nu, rate = _arguments(x, label_noise, attention_rate)
    try:
        clock = np.asarray(times, dtype=float)
    except (TypeError, ValueError):
        clock = np.empty(0)
    if clock.ndim != 1 or len(clock) < 2 or not (clock[0] > 0 and (np.diff(clock) > 0).all() and clock[-1] < np.inf):
        raise ValueError("times must be two or more increasing finite numbers > 0; got others: use numpy.geomspace")
    right, clock_time = _on_the_clock(x, nu, rate), np.log1p(clock)  # math.log1p may differ from it by a rounding
    from scipy.integrate import solve_ivp  # with the first flow, not with the package: its core needs no scipy

    ends = (0.0, clock_time[-1])
    solution = solve_ivp(right, ends, np.zeros(6), method="LSODA", t_eval=clock_time, **_TOLERANCE)
    if not solution.success:
        raise RuntimeError(f"the flow's solver did not converge at x = {x:g}, nu = {nu:g}: {solution.message}")
    return FlowPath(clock, solution.y.T)


def selects_signal(x: float, label_noise: float, *, attention_rate: float = 1.0, time: float = 1e5) -> bool:
    """Whether the flow from zero ends with its clean samples on the signal.

    A trajectory that enters the trap is decided (event of the solver); otherwise the sign of the clean logit at `time` decides.
    Raises ValueError for a bad argument, RuntimeError when the solver does not converge.
    """
    x, nu, rate = _arguments(x, label_noise, attention_rate)
    time = checks.positive_number("time", time)
    if x < 1 or (x == 1 and nu > 0):
        return False  # zero itself lies in the trap: proved, nothing to integrate

    from scipy.integrate import LSODA

    solver = LSODA(_on_the_clock(x, nu, rate), 0.0, np.zeros(6), math.log1p(time), **_TOLERANCE)
    while solver.status == "running":
        message = solver.step()
        if _trap_room(solver.y.tolist(), x, nu) <= 0:
            return False  # the trap is never left, so to look at the ends of steps is enough
    if solver.status == "failed":
        raise RuntimeError(f"the flow's solver did not converge at x = {x:g}, nu = {nu:g}: {message}")
    return bool(solver.y[3] > solver.y[4])


def signal_threshold(
    label_noise: float, *, attention_rate: float = 1.0, time: float = 1e5, tolerance: float = 2e-4
) -> float:
    """x*(eta): the flow selects the signal above it and noise below; inf when no boundary lies below x = 40.

    Bisection on x to the relative `tolerance`. At eta = 0 the boundary is 1 exactly (proved) and nothing is computed.
    """
    eta = checks.probability("label_noise", label_noise, high=0.5)
    _, _, rate = _arguments(1.0, eta, attention_rate)
    time, tolerance = checks.positive_number("time", time), checks.positive_number("tolerance", tolerance)
    return _bisected(eta, rate, time, tolerance)


@functools.cache  # the studies ask for the same grid of label noise again and again
def _bisected(eta: float, rate: float, time: float, tolerance: float) -> float:
    if eta == 0:
        return 1.0
    low, high = 1.0, 2 * first_order_threshold(eta) if eta < 0.5 else _HIGHEST
    high = min(high, _HIGHEST)
    if not selects_signal(high, eta, attention_rate=rate, time=time):
        if high == _HIGHEST or not selects_signal(_HIGHEST, eta, attention_rate=rate, time=time):
            return math.inf
        low, high = high, _HIGHEST
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        if selects_signal(middle, eta, attention_rate=rate, time=time):
            high = middle
        else:
            low = middle
    return math.sqrt(low * high)


def first_order_threshold(label_noise: float) -> float:
    r"""x_1 at which the first move of the clean logit vanishes: $(\nu + \sqrt{\nu^2 + (1-\nu)^2})/(1-\nu)^2$; inf at eta = 1/2."""
    _, nu, _ = _arguments(1.0, label_noise, 1.0)
    return (nu + math.hypot(nu, 1 - nu)) / (1 - nu) ** 2 if nu < 1 else math.inf


def between_shares(shares: Floats, values: Floats, at: Floats) -> Floats:
    """Boundaries `values`, known at increasing shares of flips, at other shares: monotone cubic in log x*; inf where none is known."""
    from scipy.interpolate import PchipInterpolator

    known = np.isfinite(values)
    found = np.exp(PchipInterpolator(shares[known], np.log(values[known]), extrapolate=False)(at))
    return np.where(np.isnan(found), np.inf, found)


def own_thresholds(clean: Floats, noisy: Floats) -> Floats:
    """x* of every class from its own counts |C_k|, |N_k| (arrays of one shape): inf where more than 42.5 % are flipped.

    x* is computed on a grid of the flipped fraction with spacing 0.025 and interpolated (monotone cubic in log x*): error < 0.3 %
    up to a fraction of 0.35. Raises ValueError for a class without clean samples.
    """
    clean, noisy = np.asarray(clean, dtype=float), np.asarray(noisy, dtype=float)
    if clean.shape != noisy.shape or not ((clean > 0).all() and (noisy >= 0).all()):
        raise ValueError(
            "clean and noisy must be counts of one shape with clean >= 1; got others: leave out empty classes"
        )
    share = noisy / (clean + noisy)
    largest = min(share.max(initial=0.0), 0.425)
    grid = np.arange(0.0, largest + 0.05, 0.025)
    grid = grid[grid < 0.44]
    return between_shares(grid, np.array([signal_threshold(eta) for eta in grid]), share)
