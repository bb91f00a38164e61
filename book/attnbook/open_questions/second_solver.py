r"""On which side of a number a class of the flow ends: a second solver for the boundaries $x^*$ that the claims of Part IV quote.

The boundaries come from solvers of their own: SciPy's LSODA (`attnbook.single_head.flow`, `out_of_the_trap`) and classical Runge-Kutta
(`map_flow`, `class_flow`), with bisection. Here the flow of one class is written down anew for any two-token weight $s(z)$
and goes by midpoint steps on the clock $\log(1+\tau)$, many settings at once. A value $x^*$ is confirmed to a width $\delta$ when the
class ends on the noise at $(1-\delta)x^*$ and on the signal at $(1+\delta)x^*$. Only the K-class flow shares its right-hand side with
its first solver.
"""

import math

import numpy as np

from bookkit.rules import Evidence
from bookkit.sharpness import Fixed

_STEP, _FINE = 0.01, 0.005  # of the clock log(1 + tau): the finer ones where a run goes beyond the time `_LATE`
_LATE = 1e8
_START = 1e-4  # time at which block-normalised flow takes over from its first-order solution


def _softmax(temperature):
    def weight(z):
        s = 0.5 * (1 + np.tanh(0.5 * z / temperature))
        return s, s * (1 - s) / temperature

    return weight


def _linearised(z):
    return 0.5 + z / 4, np.full_like(z, 0.25)


def _sparsemax(z):
    return np.clip(0.5 + z / 2, 0, 1), np.where(np.abs(z) < 1, 0.5, 0.0)


def _entmax(z):
    """Entmax-1.5 of two tokens: square roots a, b of the weights with a - b = z/2 and a^2 + b^2 = 1, until b = 0."""
    gap = np.clip(z / 2, -1, 1)
    root = np.sqrt(2 - gap**2)
    a = (gap + root) / 2
    return a**2, np.where(np.abs(z) < 2, a * (1 - gap / root) / 2, 0.0)


# z -> s(z) and its derivative
WEIGHTS = {
    "softmax": _softmax(1.0),
    "softmax at temperature 0.5": _softmax(0.5),
    "softmax at temperature 2": _softmax(2.0),
    "linearised softmax": _linearised,
    "sparsemax": _sparsemax,
    "entmax-1.5": _entmax,
}


def midpoint(speed, state, start, time):
    """The state at `time`, from `state` at `start`: dy/dz = e^z speed(y), z = log(1 + tau)."""
    first, last = math.log1p(start), math.log1p(time)
    count = math.ceil((last - first) / (_FINE if time > _LATE else _STEP))
    h = (last - first) / count
    for i in range(count):
        z = first + i * h
        half = state + h / 2 * math.exp(z) * speed(state)
        state = state + h * math.exp(z + h / 2) * speed(half)
    return state


def flow_speed(state, x, nu, rate, weigh, *, blocks=False):
    """Right-hand side of the flow for `state` (6, ...) = (V, t_c, t_n, P, q_c, q_n); times a step size, one step of gradient descent."""
    V, t_c, t_n, P, q_c, q_n = state
    (s_c, turn_c), (s_n, turn_n) = weigh(P - q_c), weigh(P - q_n)
    g_c = 0.5 * (1 - np.tanh(0.5 * (s_c * V + (1 - s_c) * t_c)))
    g_n = 0.5 * (1 - np.tanh(0.5 * ((1 - s_n) * t_n - s_n * V)))
    A_c, A_n = g_c * turn_c * (V - t_c), g_n * turn_n * (V + t_n)
    values = np.stack([x * (g_c * s_c - nu * g_n * s_n), g_c * (1 - s_c), g_n * (1 - s_n)])
    logits = np.stack([x * (A_c - nu * A_n), -A_c, A_n])
    if blocks:  # gradients of v and p have the squared lengths sum over (signal / x, clean, nu flipped)
        norms = [np.sqrt(move[0] ** 2 / x + move[1] ** 2 + nu * move[2] ** 2) for move in (values, logits)]
        logits = logits * np.divide(*norms, out=np.zeros_like(x), where=norms[1] > 0)
    return np.concatenate([values, rate * logits])


def ends_on_signal(x, label_noise, *, rate=1.0, time=100000.0, weight="softmax", blocks=False):
    """Whether clean samples of a class that starts at zero give the signal the larger logit at `time`: bools, of x's shape.

    x: rho^2 |C_k| / d; label_noise: the class's share of flips; rate: step size of p over that of v; weight: a key of `WEIGHTS`;
    blocks: v and p move at the same speed (block-normalised flow).
    """
    x, eta, rate = np.broadcast_arrays(*(np.asarray(part, dtype=float) for part in (x, label_noise, rate)))
    nu, weigh = eta / (1 - eta), WEIGHTS[weight]

    def speed(state):
        return flow_speed(state, x, nu, rate, weigh, blocks=blocks)

    state, start = np.zeros((6, *x.shape)), 0.0
    if blocks:  # p has no gradient at zero: v moves along its first gradient, then p along its own
        start = _START
        state[:3] = start / 4 * np.stack([x * (1 - nu), np.ones_like(x), np.ones_like(x)])
        state[3:] = start * speed(state)[3:]
    end = midpoint(speed, state, start, time)
    return end[3] > end[4]


def on_both_sides(values, constant, ends, *, width=0.005):
    """Every value is a boundary to `width`: at (1 - width) times it the class ends on the noise, at (1 + width) on the signal.

    ends: takes two x for every value, (2, values), and returns bools of that shape. There is no chance in it.
    """
    values = constant * np.asarray(values, dtype=float)
    found = ends(np.stack([(1 - width) * values, (1 + width) * values]))
    right = np.stack([~found[0], found[1]])
    return Evidence(
        bool(right.all()),
        ", ".join(f"{value:.4g}" for value in values),
        f"noise just below {int(right[0].sum())} of {len(values)}, signal just above {int(right[1].sum())}",
        f"numerical: a second solver, {width:.1%} to either side of the value; no chance",
        1,
        parts=(Fixed(bool(right.all()), "factor", width),),
    )
