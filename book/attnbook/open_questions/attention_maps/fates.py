r"""On which token a class ends under each attention map, and the boundaries that predict it.

Coordinates of a class: $x = \rho^2|C_k|/d$ and its share of flips. It ends on the signal when its clean samples give the signal more weight
than their noise (normalised maps), or take more of their margin from it (linear attention, $w = p\cdot x$).

Linear attention does not move from zero. From a small random start a token's product $(p\cdot x)(v\cdot x)$ grows like $e^{\lambda\tau}$,
$\lambda = \frac12$ for a noise token and $\frac12\rho^2(|C_k|-|N_k|)/d$ for a signal: who is first wins, and the smaller the start the
more clearly. Source: derived for orthogonal noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.open_questions.attention_maps.courses import one_head_start
from attnbook.open_questions.attention_maps.flow import map_threshold
from attnbook.open_questions.second_solver import WEIGHTS, flow_speed
from attnbook.single_head.flow import between_shares
from attnbook.single_head.long_run import (
    Moves,
    Schedule,
    class_attention,
    collected_moves,
    side_by_side,
    train,
    without_flips,
)
from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.maps import LINEAR, SOFTMAX, AttentionMap, softmax
from attnlib.single_head.training import train_heads

DRAWS = 5  # of each law
SHARES = np.linspace(0.0, 0.45, 10)  # of flips, where boundaries are computed


@dataclass(frozen=True)
class MapFates:
    """Where R runs with two classes each ended: arrays (R, 2)."""

    x: np.ndarray  # rho^2 |C_k| / d with the class's own count
    net: np.ndarray  # rho^2 (|C_k| - |N_k|) / d
    flipped: np.ndarray  # its own share of flips
    on_signal: np.ndarray  # bool
    train_accuracy: np.ndarray  # (R,)


def _collect(laws: Sequence[SignalNoiseLaw], sample: Sample, draws: int, on_signal, accuracy) -> MapFates:
    clean, noisy = (count.numpy() for count in sample.counts())
    strength = np.repeat([law.signal_norm**2 / law.d for law in laws], draws)[:, None]
    return MapFates(
        strength * clean, strength * (clean - noisy), noisy / (clean + noisy), on_signal.numpy(), accuracy.numpy()
    )


def map_fates(
    laws: Sequence[SignalNoiseLaw],
    attention_map: AttentionMap,
    schedule: Schedule,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> MapFates:
    """Train from zero through (step size, steps) pairs and see where classes end. Normalised maps only; else ValueError."""
    if not attention_map.normalised:
        raise ValueError(f"attention_map must be normalised; got {attention_map.name!r}, whose tokens do not compete")
    _, sample = side_by_side(laws, draws, seed)
    path = train(sample, schedule, train_heads, attention_map=attention_map)
    weight = class_attention(sample, path.attention_on_signal[-1, :, 0])
    return _collect(laws, sample, draws, weight > 0.5, path.train_accuracy[-1])


def linear_fates(
    laws: Sequence[SignalNoiseLaw], start_size: float, step_size: float, steps: int, *, seed: int = 0
) -> MapFates:
    """Linear attention from Gaussian v_0, p_0 of norm `start_size`: does the signal or the noise token carry the clean margins?"""
    _, sample = side_by_side(laws, DRAWS, seed, start_vectors=2)
    start = one_head_start(sample, start_size)
    path = train_heads(sample, step_size, steps, attention_map=LINEAR, start=start, record=[])
    pair = torch.stack([path.single().v[-1], path.single().p[-1]], -1)  # (R, m, 2)
    signal = torch.matmul(sample.signals, pair).prod(-1) * pair.new_tensor([1.0, -1.0])  # (R, 2)
    noise = torch.matmul(sample.noise_tokens()[:, :, 0], pair).prod(-1) * sample.labels
    noise = class_attention(sample, noise)  # their mean over the clean samples of each class
    return _collect(laws, sample, DRAWS, signal > noise, path.train_accuracy[-1])


def boundary_curve(attention_map: AttentionMap, *, step: float = 0.04) -> np.ndarray:
    """x* of a map at the flip shares `SHARES` = 0, 0.05, ..., 0.45; inf where no boundary lies below x = 16. To 0.3 %, at time 10^7.

    Slow attention needs so long: at 10^5 the boundary of temperature 2 is still up to 2 % higher.
    """
    return map_threshold(attention_map, torch.as_tensor(SHARES), highest=16.0, step=step, time=1e7).numpy()


def thresholds_of_shares(curve: np.ndarray, flipped: np.ndarray) -> np.ndarray:
    """x* of every class from its own share of flips and a `boundary_curve`; interpolation error below 1 % up to a share of 0.4."""
    return between_shares(SHARES, curve, np.asarray(flipped, dtype=float))


# --- exact statements ------------------------------------------------------------------------------------------------------


def logit_moves(attention_map: AttentionMap, xs: Sequence[float], units: Sequence[float], *, seed: int = 0) -> Moves:
    """eta = 0, orthogonal noise: x of every sample's class (K,), the changes (K, steps) of its weight on the signal, and its unit (K,).

    One training of two draws for every x and step size unit x n / d.
    """
    return collected_moves(
        (own, unit, train_heads(sample, unit * 20 / 4000, 40, attention_map=attention_map).attention_on_signal[:, :, 0])
        for sample, own in without_flips(xs, seed)
        for unit in units
    )


def equal_to_slower_attention(
    sample: Sample, step_size: float, steps: int, temperature: float, *, power: float = 2.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Margins (S, R, n) of softmax at a temperature, and of softmax whose attention step is divided by temperature^power.

    With power 2 they are equal: p / temperature makes the same logits, and its gradient carries the factor once more.
    """
    checks.positive_number("temperature", temperature)
    slow = {"attention_step_size": step_size / temperature**power}
    return (
        train_heads(sample, step_size, steps, attention_map=softmax(temperature)).margins,
        train_heads(sample, step_size, steps, attention_map=SOFTMAX, **slow).margins,
    )


def trap_exits(weight: str, seed: int, count: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    r"""One step of gradient descent from random states in the trap: whether it leaves the set, and the clean logit's rise; (states,) each.

    The set is $\{V \le t_c, s_c \le 1/(1+x), s_n \le 1/(1+\nu x), V + t_n \ge 0\}$. weight: a key of `second_solver.WEIGHTS`; states,
    x, nu, step sizes and their ratio are drawn at random.
    """
    rng, weigh = stream(seed, "start"), WEIGHTS[weight]
    x, nu = np.exp(rng.uniform(-1.5, 1.5, count)), rng.uniform(0, 1, count)
    step, rate = np.exp(rng.uniform(-2, 2.5, count)), np.exp(rng.uniform(-1.4, 1.4, count))
    V, z_c, z_n = rng.normal(0, 2, count), rng.normal(-1.5, 2, count), rng.normal(-1.5, 2, count)
    state = np.stack([V, V + rng.exponential(1, count), rng.exponential(1, count) - V, np.zeros(count), -z_c, -z_n])

    def inside(state: np.ndarray) -> np.ndarray:
        V, t_c, t_n, P, q_c, q_n = state
        low = (weigh(P - q_c)[0] <= 1 / (1 + x) + 1e-12) & (weigh(P - q_n)[0] <= 1 / (1 + nu * x) + 1e-12)
        return low & (V <= t_c + 1e-12) & (V + t_n >= -1e-12)

    move = step * flow_speed(state, x, nu, rate, weigh)
    started = inside(state)
    return (started & ~inside(state + move))[started], (move[3] - move[4])[started]
