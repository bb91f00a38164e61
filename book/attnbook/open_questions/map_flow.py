r"""Gradient flow of one class for any attention map, when the noise tokens are orthogonal and of equal norm.

The state is $(V, t_c, t_n, P, q_c, q_n)$ as in `single_head.flow`, the time $\tau = \beta td/n$. A clean sample has the token values
$(V, t_c)$ and logits $(P, q_c)$, a flipped one $(-V, t_n)$ and $(P, q_n)$; with weights w, margins $m = w\cdot\mathrm{values}$, slopes
$g = \sigma(-m)$ and the map's Jacobian J,

$$ V' = x(g_cw^c_u - \nu g_nw^n_u), \quad t' = g\,w_\xi, \quad (P', q') = r\,(x, 1)\cdot g\,J^\top(\mathrm{values}), $$

P collecting $x$ times the clean and $x\nu$ times the flipped part. For softmax these are the equations of `single_head.flow`. Classic
Runge-Kutta in $\log(1+\tau)$, many systems at once. Source: derived.
"""

import math

import torch

from attnbook.open_questions.maps import log10_map_error_of_scores
from attnlib.single_head.errors import FreshScores
from attnlib.single_head.maps import SOFTMAX


def map_rates(state, x, nu, attention_map, attention_rate):
    """Right-hand side of the flow, (K, 6), for states (K, 6) in the order V, t_c, t_n, P, q_c, q_n; x, nu, rate (K,)."""
    V, t_c, t_n, P, q_c, q_n = state.unbind(-1)
    logits = torch.stack([torch.stack([P, q_c], -1), torch.stack([P, q_n], -1)])  # (clean | flipped, K, token)
    values = torch.stack([torch.stack([V, t_c], -1), torch.stack([-V, t_n], -1)])
    weights = attention_map.weights(logits)
    slope = torch.sigmoid(-(weights * values).sum(-1, keepdim=True))
    pull = slope * weights
    turn = attention_rate.unsqueeze(-1) * slope * attention_map.pullback(logits, weights, values)
    return torch.stack(
        [
            x * (pull[0, :, 0] - nu * pull[1, :, 0]), pull[0, :, 1], pull[1, :, 1],
            x * (turn[0, :, 0] + nu * turn[1, :, 0]), turn[0, :, 1], turn[1, :, 1],
        ], -1,
    )  # fmt: skip


def _systems(x, label_noise, attention_rate):
    """x, nu and r, each (K,)."""
    parts = (torch.as_tensor(part, dtype=torch.float64) for part in (x, label_noise, attention_rate))
    x, eta, rate = torch.broadcast_tensors(*torch.atleast_1d(*parts))
    return x, eta / (1 - eta), rate


def map_flow(x, label_noise, attention_map=SOFTMAX, *, times, attention_rate=1.0, start=None, step=0.01):
    """States (S, K, 6) of the flow at increasing times (S,), for K systems at once.

    Args:
        x, label_noise, attention_rate: numbers or (K,), x > 0, eta in [0, 1) (a class's own share of flips), r >= 0.
        start: state (6,) or (K, 6) at time zero; zero when left out.
        step: in log(1 + tau), at most.
    """
    x, nu, rate = _systems(x, label_noise, attention_rate)
    state = torch.zeros(len(x), 6, dtype=torch.float64) if start is None else start.expand(len(x), 6).clone()
    clock, states = 0.0, []

    def rates(z, y):
        return math.exp(z) * map_rates(y, x, nu, attention_map, rate)

    for goal in torch.log1p(torch.as_tensor(times, dtype=torch.float64)).tolist():
        count = max(1, math.ceil((goal - clock) / step))
        h = (goal - clock) / count
        for i in range(count):
            z = clock + i * h
            k1 = rates(z, state)
            k2 = rates(z + h / 2, state + h / 2 * k1)
            k3 = rates(z + h / 2, state + h / 2 * k2)
            state = state + h / 6 * (k1 + 2 * (k2 + k3) + rates(z + h, state + h * k3))
        clock = goal
        states.append(state)
    return torch.stack(states)


def map_descent(x, label_noise, attention_map, unit, *, record):
    """Gradient descent in the same six variables, step size unit x n / d, from zero: states (S, K, 6) at the recorded steps, increasing.

    The first 200 steps are made one by one; later ones, small against the state, are followed by the flow (errors differ by less
    than 0.1 % for unit <= 5, a test).
    """
    x, nu, rate = _systems(x, label_noise, 1.0)
    exact, state, states = 200, torch.zeros(len(x), 6, dtype=torch.float64), []
    for step in range(min(exact, record[-1]) + 1):
        if step in record:
            states.append(state)
        last, state = state, state + unit * map_rates(state, x, nu, attention_map, rate)
    if late := [step for step in record if step > exact]:
        times = unit * (torch.tensor(late, dtype=torch.float64) - exact)
        states += map_flow(x, label_noise, attention_map, times=times, start=last, step=0.05)
    return torch.stack(states)


def mean_field_error(states, attention_map, clean, noisy, d):
    r"""log10 clean error (S, R) of the mean-field head of R runs with the counts |C_k|, |N_k|, both (R, 2), to leading order in n / d.

    states: (S, 2R, 6), both classes of the first run first. Fresh noise has $\mathrm{var}(p\cdot\xi) = \sum q_i^2/d$,
    $\mathrm{var}(v\cdot\xi) = \sum t_i^2/d$ and covariance $\sum y_it_iq_i/d$.
    """
    V, t_c, t_n, P, q_c, q_n = (part.view(-1, *clean.shape) for part in states.unbind(-1))
    sign = clean.new_tensor([1.0, -1.0])
    pp, vv, vp = (
        part.sum(-1, keepdim=True) / d
        for part in (
            clean * q_c**2 + noisy * q_n**2,
            clean * t_c**2 + noisy * t_n**2,
            sign * (clean * t_c * q_c - noisy * t_n * q_n),
        )
    )
    omega = pp.sqrt()
    along = torch.where(omega > 0, vp / omega, 0.0)
    tau = (vv - along**2).clamp_min(0).sqrt()
    rows = (part.expand_as(V).flatten(0, 1) for part in (P, V, omega, sign * along, tau))
    return log10_map_error_of_scores(FreshScores(*rows), attention_map).view(V.shape[:2])


def map_threshold(attention_map, label_noise, *, attention_rate=1.0, highest=8.0, step=0.02, time=1e5):
    """x*(eta) of a normalised map, one per entry of `label_noise`: above it the flow from zero selects the signal, at `time`, below noise.

    inf above `highest`. Three nested searches on 17 values of x, relative accuracy 1e-3 or better; 1 at eta = 0, which is proved.
    """
    eta = torch.atleast_1d(torch.as_tensor(label_noise, dtype=torch.float64))
    share = torch.linspace(0, 1, 17, dtype=torch.float64)
    low, high = torch.zeros_like(eta), torch.full_like(eta, math.log(highest))
    beyond = torch.zeros_like(eta, dtype=torch.bool)
    for _ in range(3):
        grid = low.unsqueeze(1) + (high - low).unsqueeze(1) * share
        states = map_flow(
            grid.exp().flatten(),
            eta.repeat_interleave(17),
            attention_map,
            attention_rate=attention_rate,
            step=step,
            times=[time],
        )
        weights = attention_map.weights(states[-1][:, [3, 4]])  # of the signal and of the noise in clean samples
        chosen = (weights[:, 0] > weights[:, 1]).view(-1, 17)
        beyond |= ~chosen[:, -1]
        first = 17 - chosen.flip(1).long().cumprod(1).sum(1)  # from there on all of them select the signal
        first = first.clamp(1, 16).unsqueeze(1)
        low, high = grid.gather(1, first - 1).squeeze(1), grid.gather(1, first).squeeze(1)
    found = ((low + high) / 2).exp()
    return torch.where(eta == 0, 1.0, torch.where(beyond, torch.inf, found))
