r"""Which end a class is driven to, by update rule, and why mini-batches leave the trap between x = 1 and x*: mean field and real draws.

*Block-normalised flow.* v and p move at the same speed, so p follows its gradient $r = |\nabla_v|/|\nabla_p|$ times as fast as in
gradient flow; with orthogonal noise, one class and $x = \rho^2|C_k|/d$, in the variables of `attnbook.single_head.flow`,

$$ |\nabla_v|^2 \propto x(g_cs_c - \nu g_ns_n)^2 + g_c^2(1-s_c)^2 + \nu g_n^2(1-s_n)^2, \qquad
   |\nabla_p|^2 \propto x(A_c - \nu A_n)^2 + A_c^2 + \nu A_n^2 . $$

*First pass in m batches.* A sample that has not been seen has $\xi_i$-scores zero: $s = \sigma(P)$, margin $\pm sV$, so attention can
only go to the signal, at any x; the later training inherits it. With $\theta = \beta d/B$, the time of an epoch, batch after batch

$$ V \mathrel{+}= \tfrac{x\theta}{m}\,s\,(g_c - \nu g_n), \quad P \mathrel{+}= \tfrac{x\theta}{m}\,s(1-s)V\,(g_c - \nu g_n), \quad
   t = \theta g(1-s), \quad q_c = -\theta g_c s(1-s)V, \quad q_n = \theta g_n s(1-s) V . $$

*Two ends.* Without flips both $\{V \ge t, s \ge \frac1{1+x}\}$ and $\{V \le t, s \le \frac1{1+x}\}$ are invariant for every x, under
gradient descent of any step size, and under every rule whose steps are non-negative combinations of past and present descent
directions if all of these were taken in the set. Derived (leading order in n/d).
"""

import functools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch
from scipy.integrate import solve_ivp

from attnbook.open_questions.outcomes import finished, outcome_of, rule_fates
from attnbook.single_head.flow import between_shares, first_order_threshold, flow_rates, in_trap, own_thresholds
from attnbook.single_head.flow import sigmoids as sigma
from attnbook.single_head.long_run import class_attention, class_fates, law_at, stacked
from attnlib.randomness import stream
from attnlib.single_head.rules import BLOCK_NORMALISED, GRADIENT_DESCENT, NORMALISED, heavy_ball, nesterov, stochastic
from attnlib.single_head.training import train_heads

MAP_XS = tuple(np.geomspace(0.1, 2.0, 14).tolist())
MAP_THETAS = tuple(np.geomspace(1.25, 80.0, 13).tolist())
SWEEP_THETAS = (5.0, 25.0, 50.0, 100.0)
SWEEP_BATCHES = (100, 50, 20, 5, 1)

# Rules with steps so small that they follow their flow, and one large step; (rule, size, steps), tau = 250 and more.
CANDIDATES = {
    "gradient descent": (GRADIENT_DESCENT, 0.25, 1000),
    "heavy ball 0.9": (heavy_ball(0.9), 0.025, 1000),
    "heavy ball 0.99": (heavy_ball(0.99), 0.0025, 1000),
    "Nesterov 0.9": (nesterov(0.9), 0.025, 1000),
    "normalised": (NORMALISED, 0.25, 600),
    "block-normalised": (BLOCK_NORMALISED, 0.25, 600),
    "full batch, 25 n/d": (GRADIENT_DESCENT, 25.0, 100),
    "batches of 20, n/4d": (stochastic(20), 0.25, 1000),
    "batches of 20, 5 n/d": (stochastic(20), 5.0, 500),
}


# --- block-normalised flow -------------------------------------------------------------------------------------------------


def block_rates(state, x, nu):
    """Right-hand side of block-normalised flow, in the time of gradient flow for v."""
    rates = flow_rates(state, x, nu)
    value, logit = (math.sqrt(a**2 / x + b**2 + nu * c**2) for a, b, c in (rates[:3], rates[3:]))
    ratio = value / logit if logit > 0 else 0.0
    return [*rates[:3], *(ratio * rate for rate in rates[3:])]


def _block_selects_signal(x, nu, start=1e-4, last=1e5):
    """Whether the flow from zero ends on the signal; it stops where it is in the trap."""
    # From zero p has no gradient yet; its direction for small times is that of (A_c, A_n) at V = x (1 - nu) tau/4, t = tau/4.
    values = [start * x * (1 - nu) / 4, start / 4, start / 4]
    state = [*values, *(start * move for move in block_rates([*values, 0.0, 0.0, 0.0], x, nu)[3:])]
    share = nu / (1 + nu)
    if in_trap(state, x, share):
        return False

    def speed(z, y):
        return [math.exp(z) * rate for rate in block_rates(y.tolist(), x, nu)]

    def trap(_, y):
        return -1.0 if in_trap(list(y), x, share) else 1.0

    trap.terminal = True
    span = (math.log1p(start), math.log1p(last))
    end = solve_ivp(speed, span, state, method="LSODA", rtol=1e-7, atol=1e-9, events=trap)
    if not end.success:
        raise RuntimeError(f"the solver did not converge at x = {x:g}, nu = {nu:g}: {end.message}")
    return end.status == 0 and bool(end.y[3, -1] > end.y[4, -1])


@functools.cache  # the same twelve shares serve every claim
def block_threshold(eta):
    """x* of block-normalised flow, by bisection to a relative 5e-4; inf when there is none below x = 40. At eta = 0 it is 1 (proved)."""
    if eta == 0:
        return 1.0
    nu = eta / (1 - eta)
    low, high = 1.0, min(1.2 * first_order_threshold(eta), 40.0)
    if not _block_selects_signal(high, nu):
        return math.inf
    while high > low * (1 + 5e-4):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _block_selects_signal(middle, nu) else (middle, high)
    return math.sqrt(low * high)


def own_block_thresholds(share):
    """Boundary of block-normalised flow for every share of flips, interpolated in log x* between 12 shares up to 0.45; inf above."""
    grid = np.array([0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.34, 0.37, 0.4, 0.425, 0.45])
    grid = grid[grid <= share.max(initial=0.05) + 0.05]
    return between_shares(grid, np.array([block_threshold(eta) for eta in grid]), share)


# --- the two ends ----------------------------------------------------------------------------------------------------------


def runs_from_anywhere(seed, count=400):
    """Mean-field descent without flips from random states with V >= t; every second run has momentum 0.9.

    x is log-uniform in [0.05, 3], the step of every run log-uniform. Returns x (K,), attention s and lead V - t, both (K, 201).
    """
    rng = stream(seed, "start")
    x, size = np.exp(rng.uniform(np.log(0.05), np.log(3), count)), np.exp(rng.uniform(-2, 2.5, count))
    momentum = np.where(np.arange(count) % 2, 0.9, 0.0)
    lead, t, weight = rng.exponential(0.2, count), rng.normal(0, 2, count), rng.uniform(0.02, 0.98, count)
    state = np.stack([t + lead, t, np.log(weight / (1 - weight)), np.zeros(count)])  # V, t, P, q
    velocity, attention, ahead = np.zeros_like(state), [weight], [lead]
    for _ in range(200):
        V, t, P, q = state
        s = sigma(P - q)
        g = sigma(-(s * V + (1 - s) * t))
        pull = g * s * (1 - s) * (V - t)
        velocity = momentum * velocity + np.stack([x * g * s, g * (1 - s), x * pull, -pull])
        state = state + size * velocity
        attention.append(sigma(state[2] - state[3]))
        ahead.append(state[0] - state[1])
    return x, np.stack(attention, 1), np.stack(ahead, 1)


# --- the first pass of mini-batches, mean field ----------------------------------------------------------------------------


def first_pass(x, eta, theta, batches):
    """K mean-field classes after one pass from zero in `batches` batches of equal make-up; theta = beta d / B, the time of an epoch.

    x and theta: numbers or arrays (K,). V = s_k v . mu_k and P = p . mu_k are (K,); the scores t_clean, t_noisy (y_i v . xi_i) and
    q_clean, q_noisy (p . xi_i) are (K, batches).
    """
    x, theta = np.broadcast_arrays(np.atleast_1d(np.asarray(x, float)), np.asarray(theta, float))
    nu, V, P, seen = eta / (1 - eta), np.zeros_like(x), np.zeros_like(x), []
    for _ in range(batches):
        s = sigma(P)
        g_c, g_n = sigma(-s * V), sigma(s * V)
        seen.append(
            (
                theta * g_c * (1 - s),
                theta * g_n * (1 - s),
                -theta * g_c * s * (1 - s) * V,
                theta * g_n * s * (1 - s) * V,
            )
        )
        push = x * theta / batches * s * (g_c - nu * g_n)
        V, P = V + push, P + push * (1 - s) * V
    t_c, t_n, q_c, q_n = (np.stack(scores, axis=1) for scores in zip(*seen, strict=True))
    return SimpleNamespace(V=V, P=P, t_clean=t_c, t_noisy=t_n, q_clean=q_c, q_noisy=q_n)


def pass_then_descent(x, eta, theta, batches, schedule=((0.25, 400), (4.0, 500))):
    """Mean attention of clean samples on the signal (K,) after one pass in batches and descent from there by (beta d / n, steps)."""
    now, nu = first_pass(x, eta, theta, batches), eta / (1 - eta)
    V, P, t_c, t_n, q_c, q_n = now.V[:, None], now.P[:, None], now.t_clean, now.t_noisy, now.q_clean, now.q_noisy
    x = np.broadcast_to(x, now.V.shape)[:, None]
    for size in (size for size, steps in schedule for _ in range(steps)):
        s_c, s_n = sigma(P - q_c), sigma(P - q_n)
        g_c, g_n = sigma(-(s_c * V + (1 - s_c) * t_c)), sigma(s_n * V - (1 - s_n) * t_n)
        a_c, a_n = g_c * s_c * (1 - s_c) * (V - t_c), g_n * s_n * (1 - s_n) * (V + t_n)
        V = V + size * x * (g_c * s_c - nu * g_n * s_n).mean(1, keepdims=True)
        t_c, t_n = t_c + size * g_c * (1 - s_c), t_n + size * g_n * (1 - s_n)
        P = P + size * x * (a_c - nu * a_n).mean(1, keepdims=True)
        q_c, q_n = q_c - size * a_c, q_n + size * a_n
    return sigma(P - q_c).mean(1)


def pass_threshold(eta, thetas, batches):
    """The x (K,) above which one pass in batches and full-batch descent end on the signal, for every theta: ten halvings of log x."""
    below, above = np.full(len(thetas), 0.02), np.full(len(thetas), 5.0)
    for _ in range(10):
        middle = np.sqrt(below * above)
        signal = pass_then_descent(middle, eta, thetas, batches) > 0.5
        below, above = np.where(signal, below, middle), np.where(signal, middle, above)
    return np.sqrt(below * above)


# --- real draws ------------------------------------------------------------------------------------------------------------


def escape_map(xs, thetas, eta, *, n=100, d=200_000, batch=5, epochs=40, draws=3, seed=0):
    """Share of classes on the signal (len(xs), len(thetas)) after `epochs` epochs of mini-batches with beta d / B = theta.

    One batch of runs: every cell has draws of its own.
    """
    cells = [(x, theta) for x in xs for theta in thetas]
    sample = stacked([law_at(x, n, d, eta).draw(seed, draws, first_run=i * draws) for i, (x, _) in enumerate(cells)])
    sizes = torch.tensor([theta for _, theta in cells], dtype=torch.float64).repeat_interleave(draws) * batch / d
    path = train_heads(sample, sizes, epochs * (n // batch), rule=stochastic(batch), record=[])
    found = class_attention(sample, path.attention_on_signal[-1, :, 0]) > 0.5
    return found.double().view(len(xs), len(thetas), -1).mean(-1).numpy()


def batch_sweep(law, thetas, batches, *, epochs=100, draws=10, seed=0):
    """Training with batches of B for the same number of epochs, each of the same length theta = beta d / B; by B, in order of theta.

    B = n is gradient descent with beta d / n = theta. The same draws everywhere.
    """
    sample, found = law.draw(seed, draws), {}
    for batch in batches:
        sizes = torch.tensor(thetas, dtype=torch.float64).repeat_interleave(draws) * batch / law.d
        rule = GRADIENT_DESCENT if batch == law.n else stochastic(batch)
        path = train_heads(stacked([sample] * len(thetas)), sizes, epochs * (law.n // batch), rule=rule, record=[])
        ends = path.v[-1, :, 0], path.p[-1, :, 0], path.margins[-1], path.attention_on_signal[-1, :, 0]
        found[batch] = [outcome_of([sample], *rows) for rows in zip(*(end.split(draws) for end in ends), strict=True)]
    return found


def after_first_pass(law, batch, size, *, size_after=5.0, epochs=100, descent_steps=1000, draws=10, seed=0):
    """One epoch in batches with beta = size n/d, and four ways on: batches or gradient descent (size_after n/d), p kept or p = 0.

    Returns the outcomes by name, "first pass" itself and gradient descent from zero among them.
    """
    sample, unit, rule, per_epoch = law.draw(seed, draws), law.n / law.d, stochastic(batch), law.n // batch
    again = replace(sample, seed=seed + 1)  # other batches than those of the first pass
    first = train_heads(sample, size * unit, per_epoch, rule=rule, record=[])
    kept, lost = (first.v[-1], first.p[-1]), (first.v[-1], torch.zeros_like(first.p[-1]))

    def batches(start):
        return train_heads(again, size * unit, (epochs - 1) * per_epoch, rule=rule, start=start, record=[])

    def descent(start):
        return train_heads(sample, size_after * unit, descent_steps, start=start, record=[])

    paths = {
        "first pass": first,
        "batches on": batches(kept),
        "then gradient descent": descent(kept),
        "p set to 0, batches on": batches(lost),
        "p set to 0, then gradient descent": descent(lost),
        "gradient descent from zero": descent(None),
        "one full step": train_heads(sample, size * unit, 1, record=[]),
        "full batch, the same epoch": train_heads(sample, size * per_epoch * unit, epochs, record=[]),
    }
    return {name: finished([sample], path) for name, path in paths.items()}


def trap_study(*, draws=10, seed=0):
    """Train and collect; `draws` training sets where no other number is named."""
    few = {"draws": draws, "seed": seed}
    trap, weak = law_at(1.3, 100, 200_000, 0.2), law_at(0.27, 100, 20_000, 0.1)
    wide = replace(weak, n=200, d=10**9, signal_norm=law_at(0.27, 200, 10**9, 0.1).signal_norm)
    window = [law_at(x, 200, 10**6, 0.3) for x in np.geomspace(1.3, 3.6, 12)]
    small_then_long = ((0.25 * 100 / 200_000, 400), (4 * 100 / 200_000, 20_000))
    long = class_fates([trap], small_then_long, svm=True, draws=8 * draws, seed=seed)
    block = rule_fates(window, BLOCK_NORMALISED, 0.25, 800, draws=5, seed=seed)
    own, flow = own_block_thresholds(block.flipped), own_thresholds(1 - block.flipped, block.flipped)
    theta, batches = 50.0, 10
    pass_ = rule_fates([wide], stochastic(20), theta * 20 / 200, batches, **few)
    classes = zip(pass_.x.ravel(), pass_.flipped.ravel(), strict=True)
    recursion = [first_pass(x, share, theta, batches).P[0] for x, share in classes]
    return SimpleNamespace(
        ends=runs_from_anywhere(seed),
        candidates={name: rule_fates([trap], *each, **few) for name, each in CANDIDATES.items()},
        batches={name: rule_fates([trap], *CANDIDATES[name], draws=40, seed=seed) for name in list(CANDIDATES)[-2:]},
        # Gradient descent for long and the exact SVM, the same draws.
        descent=long.on_signal,
        svm=long.svm,
        flow_fates=rule_fates(window, GRADIENT_DESCENT, 0.25, 1600, draws=5, seed=seed),
        # Block-normalised descent: the boundary that it follows, and the classes between that boundary and gradient flow's.
        block=SimpleNamespace(
            x=block.x, on_signal=block.on_signal, boundary=own, gradient_flow=flow,
            between=(block.x > np.minimum(own, flow)) & (block.x < np.maximum(own, flow)),
        ),
        passes=after_first_pass(weak, 20, 10.0, draws=4 * draws, seed=seed),
        wide_pass=SimpleNamespace(p_signal=pass_.p_signal, predicted=np.array(recursion).reshape(-1, 2)),
        sweep=batch_sweep(weak, SWEEP_THETAS, SWEEP_BATCHES, **few),
        boundaries={eta: pass_threshold(eta, MAP_THETAS, 20) for eta in (0.0, 0.2)},
        maps={eta: escape_map(MAP_XS, MAP_THETAS, eta, draws=5, seed=seed) for eta in (0.0, 0.2)},
    )  # fmt: skip
