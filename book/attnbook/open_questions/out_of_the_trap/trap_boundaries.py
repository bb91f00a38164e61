r"""Which end a class is driven to, by update rule: mean-field systems in the variables of `attnbook.single_head.flow`.

*Block-normalised flow.* v and p move at the same speed, so p follows its gradient $r = |\nabla_v|/|\nabla_p|$ times as fast as in
gradient flow; with orthogonal noise, one class and $x = \rho^2|C_k|/d$,

$$ |\nabla_v|^2 \propto x(g_cs_c - \nu g_ns_n)^2 + g_c^2(1-s_c)^2 + \nu g_n^2(1-s_n)^2, \qquad
   |\nabla_p|^2 \propto x(A_c - \nu A_n)^2 + A_c^2 + \nu A_n^2 . $$

*First pass in m batches.* A sample that has not been seen has $\xi_i$-scores zero: $s = \sigma(P)$, margin $\pm sV$. With
$\theta = \beta d/B$, the time of an epoch, batch after batch

$$ V \mathrel{+}= \tfrac{x\theta}{m}\,s\,(g_c - \nu g_n), \quad P \mathrel{+}= \tfrac{x\theta}{m}\,s(1-s)V\,(g_c - \nu g_n), \quad
   t = \theta g(1-s), \quad q_c = -\theta g_c s(1-s)V, \quad q_n = \theta g_n s(1-s) V . $$

*Two ends.* Without flips both $\{V \ge t, s \ge \frac1{1+x}\}$ and $\{V \le t, s \le \frac1{1+x}\}$ are invariant for every x, under
gradient descent of any step size, and under every rule whose steps are non-negative combinations of past and present descent
directions if all of these were taken in the set. Derived (leading order in n/d).
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from attnbook.single_head.flow import between_shares, first_order_threshold, flow_rates, in_trap
from attnbook.single_head.flow import sigmoids as _sigmoid
from attnlib import checks
from attnlib.randomness import stream

_START = 1e-4  # time at which the first-order solution hands over to the solver
_HIGHEST = 40.0
_LAST_TIME = 1e5


def block_rates(state: list[float], x: float, nu: float) -> list[float]:
    """Right-hand side of block-normalised flow, in the time of gradient flow for v."""
    rates = flow_rates(state, x, nu)
    value, logit = (_length(rates[i : i + 3], x, nu) for i in (0, 3))
    ratio = value / logit if logit > 0 else 0.0
    return [*rates[:3], *(ratio * rate for rate in rates[3:])]


def _length(rates: list[float], x: float, nu: float) -> float:
    """Length of a gradient from the rates of its scores on the signal, a clean and a flipped noise token."""
    signal, clean, noisy = rates
    return math.sqrt(signal**2 / x + clean**2 + nu * noisy**2)


def _block_selects_signal(x: float, nu: float) -> bool:
    from scipy.integrate import solve_ivp

    # From zero p has no gradient yet; its direction for small times is that of (A_c, A_n) at V = x (1 - nu) tau/4, t = tau/4.
    values = [_START * x * (1 - nu) / 4, _START / 4, _START / 4]
    moves = block_rates([*values, 0.0, 0.0, 0.0], x, nu)
    state = [*values, *(_START * move for move in moves[3:])]
    share = nu / (1 + nu)
    if in_trap(state, x, share):
        return False

    def right_hand_side(z: float, y: np.ndarray) -> list[float]:
        return [math.exp(z) * rate for rate in block_rates(y.tolist(), x, nu)]

    def trap(_: float, y: np.ndarray) -> float:
        return -1.0 if in_trap(list(y), x, share) else 1.0

    trap.terminal = True
    span = (math.log1p(_START), math.log1p(_LAST_TIME))
    solution = solve_ivp(right_hand_side, span, state, method="LSODA", rtol=1e-7, atol=1e-9, events=trap)
    if not solution.success:
        raise RuntimeError(f"the solver did not converge at x = {x:g}, nu = {nu:g}: {solution.message}")
    return solution.status == 0 and bool(solution.y[3, -1] > solution.y[4, -1])


def block_threshold(label_noise: float) -> float:
    """x* of block-normalised flow, by bisection to a relative 5e-4; inf when there is none below x = 40.

    At eta = 0 it is 1 exactly (proved). Raises ValueError for a bad argument. Needs scipy.
    """
    return _bisected(checks.probability("label_noise", label_noise, high=0.5))


@functools.cache  # the same twelve shares serve every claim
def _bisected(eta: float) -> float:
    if eta == 0:
        return 1.0
    nu = eta / (1 - eta)
    low, high = 1.0, min(1.2 * first_order_threshold(eta), _HIGHEST)
    if not _block_selects_signal(high, nu):
        return math.inf
    while high > low * (1 + 5e-4):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _block_selects_signal(middle, nu) else (middle, high)
    return math.sqrt(low * high)


def own_block_thresholds(share: np.ndarray) -> np.ndarray:
    """Boundary of block-normalised flow for every share of flips, interpolated in log x* between 12 shares up to 0.45; inf above."""
    share = np.asarray(share, dtype=float)
    grid = np.array([0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.34, 0.37, 0.4, 0.425, 0.45])
    grid = grid[grid <= share.max(initial=0.05) + 0.05]
    return between_shares(grid, np.array([block_threshold(eta) for eta in grid]), share)


def runs_from_anywhere(seed: int, count: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean-field descent without flips from random states with V >= t; every second run has momentum 0.9.

    x is log-uniform in [0.05, 3], the step of every run log-uniform. Returns x (K,), attention s and lead V - t, both (K, 201).
    """
    rng = stream(seed, "start")
    x, size = np.exp(rng.uniform(np.log(0.05), np.log(3), count)), np.exp(rng.uniform(-2, 2.5, count))
    momentum = np.where(np.arange(count) % 2, 0.9, 0.0)
    lead = rng.exponential(0.2, count)
    t = rng.normal(0, 2, count)
    weight = rng.uniform(0.02, 0.98, count)
    state = np.stack([t + lead, t, np.log(weight / (1 - weight)), np.zeros(count)])  # V, t, P, q
    velocity = np.zeros_like(state)
    attention, ahead = [weight], [lead]
    for _ in range(200):
        V, t, P, q = state
        s = _sigmoid(P - q)
        g = _sigmoid(-(s * V + (1 - s) * t))
        pull = g * s * (1 - s) * (V - t)
        velocity = momentum * velocity + np.stack([x * g * s, g * (1 - s), x * pull, -pull])
        state = state + size * velocity
        attention.append(_sigmoid(state[2] - state[3]))
        ahead.append(state[0] - state[1])
    return x, np.stack(attention, 1), np.stack(ahead, 1)


# --- mini-batches ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstPass:
    """State of K mean-field classes after one pass in m batches. V, P are (K,), the others (K, m), by batch."""

    V: np.ndarray  # s_k v . mu_k
    P: np.ndarray  # p . mu_k
    t_clean: np.ndarray  # y_i v . xi_i
    t_noisy: np.ndarray
    q_clean: np.ndarray  # p . xi_i
    q_noisy: np.ndarray


def _arguments(
    x: object, label_noise: object, theta: object, batches: object
) -> tuple[np.ndarray, np.ndarray, float, int]:
    x, theta = np.broadcast_arrays(np.atleast_1d(np.asarray(x, float)), np.asarray(theta, float))
    for name, values in (("x", x), ("theta", theta)):
        if x.ndim != 1 or not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError(f"{name} must be finite numbers > 0, x and theta of one length; got {values!r}")
    eta = checks.probability("label_noise", label_noise, high=0.5)
    return x, theta, eta / (1 - eta), checks.whole_number("batches", batches, at_least=1)


def first_pass(x: object, label_noise: float, theta: object, batches: int) -> FirstPass:
    """One pass from zero in `batches` batches of equal make-up; theta = beta d / B, the time of an epoch.

    x and theta: numbers or arrays (K,). Raises ValueError for a bad argument.
    """
    x, theta, nu, batches = _arguments(x, label_noise, theta, batches)
    V, P = np.zeros_like(x), np.zeros_like(x)
    columns = []
    for _ in range(batches):
        s = _sigmoid(P)
        g_clean, g_noisy = _sigmoid(-s * V), _sigmoid(s * V)
        columns.append((theta * g_clean * (1 - s), theta * g_noisy * (1 - s),
                        -theta * g_clean * s * (1 - s) * V, theta * g_noisy * s * (1 - s) * V))  # fmt: skip
        push = x * theta / batches * s * (g_clean - nu * g_noisy)
        V, P = V + push, P + push * (1 - s) * V
    return FirstPass(V, P, *(np.stack(column, axis=1) for column in zip(*columns, strict=True)))


def pass_then_descent(
    x: object,
    label_noise: float,
    theta: object,
    batches: int,
    schedule: tuple[tuple[float, int], ...] = ((0.25, 400), (4.0, 500)),
) -> np.ndarray:
    """Mean attention of clean samples on the signal (K,) after one pass in batches and full-batch descent from there.

    schedule: (beta d / n, steps) pairs of the descent; empty for the state after the pass. Raises ValueError for a bad argument.
    """
    x, theta, nu, batches = _arguments(x, label_noise, theta, batches)
    now = first_pass(x, label_noise, theta, batches)
    V, P, t_c, t_n, q_c, q_n = now.V[:, None], now.P[:, None], now.t_clean, now.t_noisy, now.q_clean, now.q_noisy
    x = x[:, None]
    for size, steps in schedule:
        checks.positive_number("schedule", size)
        for _ in range(checks.whole_number("schedule", steps, at_least=0)):
            s_c, s_n = _sigmoid(P - q_c), _sigmoid(P - q_n)
            g_c = _sigmoid(-(s_c * V + (1 - s_c) * t_c))
            g_n = _sigmoid(s_n * V - (1 - s_n) * t_n)
            a_c, a_n = g_c * s_c * (1 - s_c) * (V - t_c), g_n * s_n * (1 - s_n) * (V + t_n)
            V = V + size * x * (g_c * s_c - nu * g_n * s_n).mean(1, keepdims=True)
            t_c, t_n = t_c + size * g_c * (1 - s_c), t_n + size * g_n * (1 - s_n)
            P = P + size * x * (a_c - nu * a_n).mean(1, keepdims=True)
            q_c, q_n = q_c - size * a_c, q_n + size * a_n
    return _sigmoid(P - q_c).mean(1)


def pass_threshold(label_noise: float, theta: object, batches: int) -> np.ndarray:
    """The x (K,) above which one pass in batches and full-batch descent end on the signal, for every theta (K,).

    Ten halvings of log x between 0.02 and 5, all theta at once. Raises ValueError for a bad argument.
    """
    theta = np.atleast_1d(np.asarray(theta, float))
    below, above = np.full(theta.shape, 0.02), np.full(theta.shape, 5.0)
    for _ in range(10):
        middle = np.sqrt(below * above)
        signal = pass_then_descent(middle, label_noise, theta, batches) > 0.5
        below, above = np.where(signal, below, middle), np.where(signal, middle, above)
    return np.sqrt(below * above)
