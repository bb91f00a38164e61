r"""On which token a class ends under each attention map, the boundaries that predict it, and maximum margin without competition.

**Fates.** Coordinates of a class: $x = \rho^2|C_k|/d$ and its share of flips. It ends on the signal when its clean samples give the signal
more weight than their noise (normalised maps), or take more of their margin from it (linear attention, $w = p\cdot x$).

Linear attention does not move from zero. From a small random start a token's product $(p\cdot x)(v\cdot x)$ grows like $e^{\lambda\tau}$,
$\lambda = \frac12$ for a noise token and $\frac12\rho^2(|C_k|-|N_k|)/d$ for a signal: who is first wins, and the smaller the start the
more clearly. Source: derived for orthogonal noise.

**Maximum margin** with weights in $[0, 1]$ for each token, unnormalised. A normalised map makes a class choose between its signal,
$1/\rho^2$, and its noise, $|C_k|/d$: hence a threshold. Unnormalised weights may be 1 for both. Three problems $\min|v|^2$,
$y_i\,v\cdot r_i \ge 1$, in the limit of orthogonal noise, per class:

| weights | $r_i$ of clean, flipped samples | cost of class k |
|---|---|---|
| free for every sample | $u + \xi$, $\xi$ | $1/(\rho^2 + d/|C_k|) + |N_k|/d$ |
| shared, what attention can do | $u + \xi$, $u + \xi$ | $n_k/d - \frac{((|C_k|-|N_k|)/d)^2}{1/\rho^2 + n_k/d}$ |
| noise only | $\xi$, $\xi$ | $n_k/d$ |

A token's weight is $\phi(p\cdot x)$ and the token $\mu_k$ is the same vector in clean and in flipped samples, so the first row is a
bound that no p attains; the second is attained. Both are below the third at every SNR (for $|C_k| > |N_k|$): no threshold. Weights
without a bound are another matter: with $w = p\cdot x$ the least $|v|^2 + |p|^2$ is a linear programme, whose threshold is
$\rho^2(|C_k| - |N_k|) = d$. Exact SVMs by `single_head.svm`. Source: derived.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.open_questions.map_flow import map_flow, map_threshold
from attnbook.open_questions.maps import MOVING, UNNORMALISED, map_courses, one_head_start
from attnbook.open_questions.second_solver import WEIGHTS, flow_speed
from attnbook.single_head.flow import between_shares
from attnbook.single_head.long_run import (
    class_attention,
    collected_moves,
    law_at,
    side_by_side,
    small_then_long,
    train,
    without_flips,
)
from attnbook.single_head.margin import tokens_of
from attnbook.single_head.svm import hard_margin
from attnlib.randomness import stream
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.maps import ENTMAX15, LINEAR, LINEARISED, SOFTMAX, SPARSEMAX, relu, softmax
from attnlib.single_head.training import train_heads

SHARES = np.linspace(0.0, 0.45, 10)  # of flips, where boundaries are computed
MARGIN_NORMS = (5.0, 10.0, 16.0, 24.0)
SELECTIONS = ("free", "shared", "noise")
_COMPARED = (SPARSEMAX, ENTMAX15, softmax(0.5))  # maps whose boundary lies well below softmax's


# --- fates and boundaries --------------------------------------------------------------------------------------------------


def _collected(laws, sample, draws, on_signal, accuracy):
    """Where R runs with two classes each ended: arrays (R, 2) of rho^2 |C_k| / d with the class's own count, rho^2 (|C_k| - |N_k|) / d,
    its own share of flips, and bools; train accuracy (R,)."""
    clean, noisy = (count.numpy() for count in sample.counts())
    strength = np.repeat([law.signal_norm**2 / law.d for law in laws], draws)[:, None]
    return SimpleNamespace(
        x=strength * clean,
        net=strength * (clean - noisy),
        flipped=noisy / (clean + noisy),
        on_signal=on_signal.numpy(),
        train_accuracy=accuracy.numpy(),
    )


def map_fates(laws, attention_map, schedule, *, draws=5, seed=0):
    """Train a normalised map from zero through (step size, steps) pairs and see where classes end."""
    _, sample = side_by_side(laws, draws, seed)
    path = train(sample, schedule, train_heads, attention_map=attention_map)
    weight = class_attention(sample, path.attention_on_signal[-1, :, 0])
    return _collected(laws, sample, draws, weight > 0.5, path.train_accuracy[-1])


def linear_fates(laws, start_size, step_size, steps, *, draws=5, seed=0):
    """Linear attention from Gaussian v_0, p_0 of norm `start_size`: does the signal or the noise token carry the clean margins?

    `far`: classes further than 20 % from the threshold net = 1; `disputed`: those of them for which the rule x > 1 says the contrary.
    """
    _, sample = side_by_side(laws, draws, seed, start_vectors=2)
    start = one_head_start(sample, start_size)
    path = train_heads(sample, step_size, steps, attention_map=LINEAR, start=start, record=[])
    pair = torch.stack([path.single().v[-1], path.single().p[-1]], -1)  # (R, m, 2)
    signal = torch.matmul(sample.signals, pair).prod(-1) * pair.new_tensor([1.0, -1.0])  # (R, 2)
    noise = torch.matmul(sample.noise_tokens()[:, :, 0], pair).prod(-1) * sample.labels
    noise = class_attention(sample, noise)  # their mean over the clean samples of each class
    found = _collected(laws, sample, draws, signal > noise, path.train_accuracy[-1])
    found.far = np.abs(np.log(found.net)) > math.log(1.2)
    found.disputed = found.far & ((found.net > 1) != (found.x > 1))
    return found


def boundary_curve(attention_map, *, step=0.04):
    """x* of a map at the flip shares `SHARES` = 0, 0.05, ..., 0.45; inf where no boundary lies below x = 16. To 0.3 %, at time 10^7.

    Slow attention needs so long: at 10^5 the boundary of temperature 2 is still up to 2 % higher.
    """
    return map_threshold(attention_map, torch.as_tensor(SHARES), highest=16.0, step=step, time=1e7).numpy()


def thresholds_of_shares(curve, flipped):
    """x* of every class from its own share of flips and a `boundary_curve`; interpolation error below 1 % up to a share of 0.4."""
    return between_shares(SHARES, curve, np.asarray(flipped, dtype=float))


# --- exact statements ------------------------------------------------------------------------------------------------------


def logit_moves(attention_map, xs, units, *, seed=0):
    """eta = 0, orthogonal noise: x of every sample's class (K,), the changes (K, steps) of its weight on the signal, and its unit (K,).

    One training of two draws for every x and step size unit x n / d.
    """
    return collected_moves(
        (own, unit, train_heads(sample, unit * 20 / 4000, 40, attention_map=attention_map).attention_on_signal[:, :, 0])
        for sample, own in without_flips(xs, seed)
        for unit in units
    )


def equal_to_slower_attention(sample, step_size, steps, temperature, *, power=2.0):
    """Margins (S, R, n) of softmax at a temperature, and of softmax whose attention step is divided by temperature^power.

    With power 2 they are equal: p / temperature makes the same logits, and its gradient carries the factor once more.
    """
    slow = {"attention_step_size": step_size / temperature**power}
    return (
        train_heads(sample, step_size, steps, attention_map=softmax(temperature)).margins,
        train_heads(sample, step_size, steps, attention_map=SOFTMAX, **slow).margins,
    )


def trap_exits(weight, seed, count=20_000):
    r"""One step of gradient descent from random states in the trap: whether it leaves the set, and the clean logit's rise; (states,) each.

    The set is $\{V \le t_c, s_c \le 1/(1+x), s_n \le 1/(1+\nu x), V + t_n \ge 0\}$. weight: a key of `second_solver.WEIGHTS`; states,
    x, nu, step sizes and their ratio are drawn at random.
    """
    rng, weigh = stream(seed, "start"), WEIGHTS[weight]
    x, nu = np.exp(rng.uniform(-1.5, 1.5, count)), rng.uniform(0, 1, count)
    step, rate = np.exp(rng.uniform(-2, 2.5, count)), np.exp(rng.uniform(-1.4, 1.4, count))
    V, z_c, z_n = rng.normal(0, 2, count), rng.normal(-1.5, 2, count), rng.normal(-1.5, 2, count)
    state = np.stack([V, V + rng.exponential(1, count), rng.exponential(1, count) - V, np.zeros(count), -z_c, -z_n])

    def inside(state):
        V, t_c, t_n, P, q_c, q_n = state
        low = (weigh(P - q_c)[0] <= 1 / (1 + x) + 1e-12) & (weigh(P - q_n)[0] <= 1 / (1 + nu * x) + 1e-12)
        return low & (V <= t_c + 1e-12) & (V + t_n >= -1e-12)

    move = step * flow_speed(state, x, nu, rate, weigh)
    started = inside(state)
    return (started & ~inside(state + move))[started], (move[3] - move[4])[started]


def unnormalised_flows():
    """V and P (8 times, 12 systems) of the unnormalised maps along gradient flow from zero, by name: four x, three eta."""
    x, eta = (torch.tensor(part, dtype=torch.float64) for part in ([0.05, 0.24, 1.0, 4.0], [0.05, 0.2, 0.4]))
    x, eta = torch.meshgrid(x, eta, indexing="ij")
    times, flows = torch.logspace(-1, 6, 8, dtype=torch.float64), {}
    for attention_map in UNNORMALISED:
        states = map_flow(x.flatten(), eta.flatten(), attention_map, times=times, step=0.02)
        flows[attention_map.name] = SimpleNamespace(V=states[..., 0], P=states[..., 3])
    return flows


# --- maximum margin --------------------------------------------------------------------------------------------------------


def selected(tokens, selection):
    """r_i, (n, m): "free" (clean: both tokens, flipped: noise), "shared" (both for all) or "noise"."""
    signal = {"free": tokens.clean, "shared": np.ones(tokens.n), "noise": np.zeros(tokens.n)}[selection]
    return signal[:, None] * tokens.signal + tokens.noise


def unnormalised_svm(tokens, selection):
    """|v|^2 of the exact SVM on the selected sums."""
    return hard_margin(selected(tokens, selection), tokens.labels).norm_squared


def unnormalised_cost(tokens, selection):
    """The table's cost, both classes together."""
    per_signal, per_noise, total = 1 / tokens.signal_norm**2, 1 / tokens.noise_scale, 0.0
    for clean, flipped in zip(*tokens.counts(), strict=True):
        count = clean + flipped
        if selection == "noise":
            total += count * per_noise
        elif selection == "shared":
            total += count * per_noise - ((clean - flipped) * per_noise) ** 2 / (per_signal + count * per_noise)
        else:
            total += flipped * per_noise + (1 / (1 / per_signal + 1 / (per_noise * clean)) if clean else 0.0)
    return float(total)


def _margins(draws, seed):
    """Exact SVMs and formulas, (draws, norms) by selection, n = 100, d = 20000, eta = 0.1."""
    drawn = SignalNoiseLaw(100, 20_000, 1.0, 0.1).draw(seed, draws)
    tokens = [[tokens_of(drawn, r).with_signal_norm(norm) for norm in MARGIN_NORMS] for r in range(draws)]
    return tuple(
        {
            kind: torch.tensor([[f(one, kind) for one in row] for row in tokens], dtype=torch.float64)
            for kind in SELECTIONS
        }
        for f in (unnormalised_svm, unnormalised_cost)
    )


# --- everything, measured once ---------------------------------------------------------------------------------------------


def thresholds_study(law, weak_norm, step_size, *, draws=10, seed=0):
    """Train and collect, by the maps' names. Linear attention is trained at `weak_norm` and at the signal norm of `law`."""
    n, d, slow = 100, 10**6, small_then_long(100, 10**6)
    quiet = [law_at(x, n, d, 0.0) for x in np.geomspace(0.6, 1.6, 10)]
    loud = [law_at(x, n, d, 0.3) for x in np.geomspace(1.8, 3.2, 10)]
    fates = {m.name: map_fates(loud, m, slow, seed=seed) for m in _COMPARED}
    # Sparsemax has a kink where a weight becomes zero, and needs shorter steps.
    curves = {m.name: boundary_curve(m, step=0.04 if m is SPARSEMAX else 0.08) for m in MOVING}
    for (
        name,
        found,
    ) in fates.items():  # the boundaries of the map and of softmax, and the classes between them, 1 % from either
        found.boundary, found.softmax = (thresholds_of_shares(curves[of], found.flipped) for of in (name, "softmax"))
        low, high = np.minimum(found.boundary, found.softmax), np.maximum(found.boundary, found.softmax)
        found.between = (found.x > 1.01 * low) & (found.x < high / 1.01)
    ends = [replace(law, signal_norm=weak_norm), law]
    small = {"draws": draws, "seed": seed, "record": [20, 200, 1000], "start_size": 1e-3}
    svm, cost = _margins(draws, seed)
    weak = [law_at(x, n, d, 0.2) for x in np.geomspace(0.7, 2.6, 12)]
    sides, sizes = (0.3, 0.7, 0.9, 1.12, 1.5, 4.0), (0.25, 5.0, 50.0)
    return SimpleNamespace(
        step_size=step_size,
        sample=law.draw(seed, draws),
        # From a start of norm 1e-3, weak and strong signal.
        linear=map_courses(ends, LINEAR, step_size / 10, 1000, **small),
        relu=map_courses(ends, relu(0.0), step_size / 10, 1000, **small),
        moves={
            m.name: logit_moves(m, sides, sizes, seed=seed) for m in (*_COMPARED, LINEARISED)
        },  # eta = 0, orthogonal noise
        exits={name: trap_exits(name, seed) for name in WEIGHTS},
        flows=unnormalised_flows(),
        fates_without_noise={m.name: map_fates(quiet, m, slow, seed=seed) for m in _COMPARED},
        fates=fates,  # eta = 0.3
        linear_fates=linear_fates(weak, 1e-8, 0.25 * n / d, 1500, seed=seed),  # eta = 0.2
        curves=curves,
        svm=svm,
        cost=cost,
    )
