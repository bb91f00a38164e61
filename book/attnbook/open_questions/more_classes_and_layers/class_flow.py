r"""The long run with K classes: gradient flow of one class when noise tokens are orthogonal and flips spread evenly.

The samples of a class are of two kinds, and by symmetry a class is eight numbers: the gap $V$ between its own value vector and the
others on $\mu_k$, the gap $t$ on the noise of a clean sample, three levels $T_y, T_k, T_o$ of the value vectors of the (wrong)
label, of the true class and of the others on the noise of a flipped sample, and the logits $P, q_c, q_n$. With $\nu = |N_k|/|C_k|$,
$x = \rho^2|C_k|/d$, $r = \beta_p/\beta_v$, time $\tau = \beta_v t\,d/n$, $\pi$ the softmax probabilities of a flipped sample and
$g_c$ one minus that of a clean label,

$$ V' = \tfrac{K}{K-1}x(g_cs_c - \nu s_n\pi_k),\; t' = \tfrac{K}{K-1}g_c(1-s_c),\;
   (T_y', T_k', T_o') = (1-s_n)(1-\pi_y, -\pi_k, -\pi_o), $$
$$ P' = rx(A_c + \nu A_n),\; q_c' = -rA_c,\; q_n' = -rA_n,\; A_c = s_c(1-s_c)g_c(V-t),\;
   A_n = -s_n(1-s_n)\left[\pi_k(V+T_y-T_k) + (K-2)\pi_o(T_y-T_o)\right]. $$

K = 2 is the two-class flow at twice the value step. Derived on page 05; a step of gradient descent is the same system as a map.
"""

import functools
import math

import numpy as np

from attnbook.open_questions.second_solver import midpoint
from attnbook.single_head.flow import sigmoids as _sigmoid

_HIGHEST = 40.0  # no boundary is looked for above this x
_LAST_TIME = 1e5
_STEPS = 250  # Runge-Kutta steps on the clock log(1 + tau)
_SECTIONS, _ROUNDS = 24, 3  # an interval is cut in 24 parts, three times


def class_flow_rates(state, x, nu, classes, rate=1.0):
    """Right-hand side: `state` (8, ...) holds V, t, T_y, T_k, T_o, P, q_c, q_n; the other arguments broadcast against (...)."""
    V, t, T_y, T_k, T_o, P, q_c, q_n = state
    K = np.asarray(classes, dtype=float)
    s_c, s_n = _sigmoid(P - q_c), _sigmoid(P - q_n)
    g_c = _sigmoid(np.log(K - 1) - (s_c * V + (1 - s_c) * t))
    # Outputs of a flipped sample relative to that of its label.
    to_class = s_n * V + (1 - s_n) * (T_k - T_y)
    to_others = (1 - s_n) * (T_o - T_y)
    top = np.maximum(np.maximum(to_class, to_others), 0)
    e_y, e_k, e_o = np.exp(-top), np.exp(to_class - top), np.exp(to_others - top)
    total = e_y + e_k + (K - 2) * e_o
    pi_k, pi_o = e_k / total, e_o / total
    miss = pi_k + (K - 2) * pi_o  # 1 - pi_y without cancellation
    # Derivatives of log pi_y with respect to the logit P - q of a clean and of a flipped sample.
    A_c = s_c * (1 - s_c) * g_c * (V - t)
    A_n = -s_n * (1 - s_n) * (pi_k * (V + T_y - T_k) + (K - 2) * pi_o * (T_y - T_o))
    up = K / (K - 1)
    return np.stack([
        up * x * (g_c * s_c - nu * s_n * pi_k), up * g_c * (1 - s_c),
        (1 - s_n) * miss, -(1 - s_n) * pi_k, -(1 - s_n) * pi_o,
        rate * x * (A_c + nu * A_n), -rate * A_c, -rate * A_n,
    ])  # fmt: skip


def in_class_trap(state, x, nu, classes, widening=1.0):
    r"""Whether a state is in the trap $V \le t$, $s_c \le \frac1{1+x}$, $s_n \le \frac1{1+c\nu x}$, $V + T_y - T_k \ge 0$, $T_y \ge T_o$.

    $c = K/(2K-2)$. No step of gradient descent leaves it, whatever its size. Proof. In the trap $A_c \le 0$ and $A_n \le 0$, so both
    logits $P - q$ fall. $V' \le \frac{K}{K-1}xg_cs_c \le \frac{K}{K-1}g_c(1-s_c) = t'$. $(T_y-T_o)' \ge 0$. Finally
    $(V+T_y-T_k)' \ge \pi_k\left[2(1-s_n) - \frac{K}{K-1}\nu xs_n\right] \ge 0$, because $1-\pi_y \ge \pi_k$. All of it is linear in
    the step.

    widening: a factor on the bound of s_c, for checks that a larger set is left.
    """
    V, t, T_y, T_k, T_o, P, q_c, q_n = state
    K = np.asarray(classes, dtype=float)
    share = K / (2 * K - 2)
    low = (_sigmoid(P - q_c) <= widening / (1 + x)) & (_sigmoid(P - q_n) <= 1 / (1 + share * nu * x))
    return (V <= t) & low & (V + T_y - T_k >= 0) & (T_y >= T_o)


def _ends_on_signal(x, nu, classes):
    """Sign of the clean logit at the last time, by classical Runge-Kutta steps on the clock log(1 + tau), all settings at once."""
    state = np.zeros((8, *x.shape))
    h = math.log1p(_LAST_TIME) / _STEPS

    def speed(z, y):
        return math.exp(z) * class_flow_rates(y, x, nu, classes)

    for step in range(_STEPS):
        z = step * h
        k1 = speed(z, state)
        k2 = speed(z + h / 2, state + h / 2 * k1)
        k3 = speed(z + h / 2, state + h / 2 * k2)
        k4 = speed(z + h, state + h * k3)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return state[5] > state[6]


def class_ends_on_signal(x, label_noise, classes):
    """Whether the flow from zero with equal step sizes ends on the signal, by the second solver; arrays of one shape."""
    x, eta, K = np.broadcast_arrays(*(np.asarray(part, dtype=float) for part in (x, label_noise, classes)))
    nu = eta / (1 - eta)
    end = midpoint(lambda state: class_flow_rates(state, x, nu, K), np.zeros((8, *x.shape)), 0.0, _LAST_TIME)
    return end[5] > end[6]


def class_thresholds(label_noise, classes):
    """x*_K(eta) for many settings at once, to 0.1 %: sections between 1 and 40; inf where no boundary lies below 40.

    label_noise: shares of flips in [0, (K-1)/K); classes: K >= 2, same shape.
    """
    eta, K = np.broadcast_arrays(np.asarray(label_noise, dtype=float), np.asarray(classes, dtype=float))
    nu = (eta / (1 - eta))[..., None]
    low, width = np.zeros(eta.shape), math.log(_HIGHEST)
    never = np.zeros(eta.shape, dtype=bool)
    for _ in range(_ROUNDS):
        inner = low[..., None] + width * np.arange(1, _SECTIONS + 1) / _SECTIONS
        above = _ends_on_signal(np.exp(inner), np.broadcast_to(nu, inner.shape), K[..., None])
        never |= ~above.any(-1)
        width = width / _SECTIONS
        low = low + width * np.where(above.any(-1), above.argmax(-1), 0)
    found = np.where(never, np.inf, np.exp(low + width / 2))
    return np.where(eta == 0, 1.0, found)  # without flips the boundary is 1 exactly (proved)


def class_threshold(label_noise, classes):
    """x*_K(eta) of one setting; see `class_thresholds`."""
    return float(class_thresholds(np.array([label_noise]), np.array([classes]))[0])


def first_order_class_threshold(label_noise, classes):
    r"""x_1 at which the first move of the clean logit vanishes, the positive root of $(1-\mu)^2x^2 - K\mu x - 1$.

    $\mu = \eta/((1-\eta)(K-1))$: the share of one given flipped label. K = 2 is the two-class formula; as K grows
    $x_1 \to (\nu + \sqrt{\nu^2+4})/2$, which is above 1 for every $\eta > 0$.
    """
    K, mu = classes, label_noise / ((1 - label_noise) * (classes - 1))
    return (K * mu + math.hypot(K * mu, 2 * (1 - mu))) / (2 * (1 - mu) ** 2) if mu < 1 else math.inf


def own_class_thresholds(clean, noisy, classes):
    """x*_K of every class from its own counts (arrays of one shape): interpolated in log x* on a grid of shares of spacing 0.05.

    nan for a class without clean samples, inf where no boundary is known.
    """
    clean, noisy = np.asarray(clean, dtype=float), np.asarray(noisy, dtype=float)
    with np.errstate(invalid="ignore"):
        share = np.where(clean > 0, noisy / (clean + noisy), np.nan)
    grid, values = _on_a_grid(classes)
    found = np.exp(np.interp(share, grid, values))
    return np.where(share > grid[-1] + 1e-12, np.inf, found)


@functools.cache
def _on_a_grid(classes):
    """Shares of flips at which a boundary is known, and log x*_K there."""
    limit = 1 - 1 / classes - 0.01
    grid = np.arange(0.0, limit, 0.05)
    grid = np.append(grid, min(grid[-1] + 0.05, limit))
    values = np.log(class_thresholds(grid, np.full(grid.shape, classes)))
    known = np.isfinite(values)
    return grid[known], values[known]
