r"""Error, loss and attention on fresh data, from three numbers of the model: $v\cdot\mu_\pm/|\mu|$ and $|v|$.

The score $z_t = x_t^\top v$ and the head's reading $\gamma_t = x_t^\top\nu$ of a fresh token are jointly Gaussian, independent over
tokens. So draw only the scores, $z_t = m_t\cdot v + \sigma_\varepsilon|v|g_t$; given them, $f = \sum_t s_t\gamma_t$ is Gaussian with

$$ \text{mean } m = \sum_t s_t\Big(\nu\cdot m_t + \sigma_\varepsilon\tfrac{v\cdot\nu}{|v|}g_t\Big), \qquad
   \text{variance } \tau^2 = \sigma_\varepsilon^2\Big(|\nu|^2 - \tfrac{(v\cdot\nu)^2}{|v|^2}\Big)\sum_t s_t^2, $$

and the error is $E\,\Phi(-Y^*m/\tau)$: no count of rare events, so errors far below 1 / `count` have a standard error too.
Source: derived in the theory chapter of Part II (Rao-Blackwell).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from reprlib import repr as shortened

import numpy as np
import torch

from attnlib import checks, limits
from attnlib.device import one_thread
from attnlib.randomness import stream
from attnlib.token_selection.law import TokenLaw
from attnlib.token_selection.training import Trajectory


@dataclass(frozen=True)
class Population:
    """Averages over fresh data with clean labels, one per model (leading axes as the models'), and their standard errors."""

    error: torch.Tensor  # (...,)
    error_se: torch.Tensor
    loss: torch.Tensor
    loss_se: torch.Tensor
    attention: torch.Tensor  # (..., T), mean weight on each token
    attention_se: torch.Tensor

    @property
    def accuracy(self) -> torch.Tensor:
        return 1 - self.error


@checks.checked
def population(
    law: TokenLaw,
    direction_on_signals: torch.Tensor,
    direction_norm_squared: torch.Tensor,
    *,
    count: int,
    rng: np.random.Generator,
) -> Population:
    """Averages for any number of models; all see the same fresh draws, half of each class.

    Args:
        law: where the fresh points come from.
        direction_on_signals: v along the unit signals, (..., 2).
        direction_norm_squared: |v|^2, (...,), at least the sum of squares of the former.
        count: fresh points, an even number >= 4.
        rng: where the normals come from: count (T + 1) of them.

    Raises ValueError for a bad argument.
    """
    _check_count(count, law)
    shape = tuple(direction_norm_squared.shape)
    if direction_on_signals.shape != (*shape, 2) or direction_on_signals.numel() == 0:
        raise ValueError(
            "direction_on_signals and direction_norm_squared must have shapes (..., 2) and (...) of at least one model; got "
            f"{tuple(direction_on_signals.shape)} and {shape}"
        )
    checks.tensor("direction_norm_squared", direction_norm_squared, shape, finite=True)
    checks.tensor("direction_on_signals", direction_on_signals, (*shape, 2), like=direction_norm_squared, finite=True)
    on_signals = direction_on_signals.reshape(-1, 2)
    norms = direction_norm_squared.reshape(-1)
    inside = on_signals.square().sum(-1)
    if bool((inside > norms * (1 + 1e-9)).any()):
        raise ValueError(
            f"direction_norm_squared must be |v|^2 of the same models, >= {inside.max().item():.3g}; "
            f"got {tuple(direction_norm_squared.shape)} values from {norms.min().item():.3g}"
        )
    return averages(law, direction_on_signals, direction_norm_squared, count, rng)


def _check_count(count: int, law: TokenLaw) -> None:
    if checks.whole_number("count", count, at_least=4) % 2:
        raise ValueError(f"count must be even, half of each class; got {count}: use {count + 1}")
    limits.require_memory(lambda count: 24 * count * law.tokens, count=count)


def averages(
    law: TokenLaw, direction_on_signals: torch.Tensor, norms: torch.Tensor, count: int, rng: np.random.Generator
) -> Population:
    """`population` for arguments that have been checked."""
    shape, on_signals = tuple(norms.shape), direction_on_signals.reshape(-1, 2)
    normals = torch.as_tensor(rng.standard_normal((count, law.tokens + 1)), device=on_signals.device)
    rows = [_one_model(law, v, n2, normals) for v, n2 in zip(on_signals, norms.reshape(-1), strict=True)]
    return Population(*(torch.stack(column).reshape((*shape, *column[0].shape)) for column in zip(*rows, strict=True)))


def _one_model(
    law: TokenLaw, v: torch.Tensor, norm_squared: torch.Tensor, normals: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    count = normals.shape[0]
    # Given the scores, f is Gaussian, and the error is its tail. The last normal draws f itself, for the loss.
    s, mean, spread, true = _given_scores(law, v, norm_squared, normals[:, :-1])
    log_error = torch.special.log_ndtr(-true * mean / spread)
    losses = torch.nn.functional.softplus(-true * (mean + spread * normals[:, -1]))
    # Average the two classes of each pair first: the difference between classes is not a sampling error.
    pairs = (x.unflatten(0, (count // 2, 2)).mean(1) for x in (log_error.exp(), losses, s))
    (error, error_se), (loss, loss_se), (attention, attention_se) = (_mean_and_se(x) for x in pairs)
    return error, error_se, loss, loss_se, attention, attention_se


def _given_scores(
    law: TokenLaw, v: torch.Tensor, norm_squared: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Attention (count, T), mean and standard deviation of f given the scores, and true labels, for normals g (count, T)."""
    count, sigma = g.shape[0], law.noise_std
    true = 1.0 - 2.0 * (torch.arange(count, device=v.device) % 2).double()
    # What each token adds to its score and to its value on average.
    means = law.means(true[:2])  # (2, T, 2), the two classes alternate
    nu = law.head_coordinates().to(v.device)
    norm = norm_squared.sqrt()
    # Noise along v moves the scores, and through the component of nu along v also the output; the rest of nu sees independent noise.
    along = (v @ nu) / norm if norm > 0 else torch.zeros_like(norm)  # component of nu along v
    rest = (law.head_norm**2 - along**2).clamp(min=0).sqrt()
    # Attention, then mean and deviation of f = sum s_t (nu . x_t) given the scores.
    s = torch.softmax((means @ v).repeat(count // 2, 1) + sigma * norm * g, -1)
    mean = (s * ((means @ nu).repeat(count // 2, 1) + sigma * along * g)).sum(-1)
    return s, mean, sigma * rest * s.square().sum(-1).sqrt(), true


def _mean_and_se(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return values.mean(0), values.std(0) / math.sqrt(values.shape[0])


@checks.checked
@one_thread
def population_along(
    trajectory: Trajectory, *, count: int = 20_000, rows: slice | list[int] | None = None
) -> Population:
    r"""Error, loss and attention on fresh data with clean labels, for the recorded moments of a training.

    The scores $z_t = x_t^\top v$ are drawn; given them, $f$ is Gaussian with mean $m$ and deviation $\tau$ in closed form, and the error is
    $E\,\Phi(-Y^*m/\tau)$: no count of rare events.

    Args:
        trajectory: what `train` returned.
        count: fresh points of each run, an even number >= 4; all moments of a run see the same, which no training shares.
        rows: which recorded moments; all when left out.

    Returns:
        averages and their standard errors, leading axes (S, R), float64.

    Raises:
        ValueError: a bad argument.

    Source:
        derived in `book/token_selection_theory` (Rao-Blackwell).

    Example:
        >>> path = train(draw_gram(TokenLaw(n=10, d=500, tokens=4, signal_norm=10.0), seed=0), step_size=0.01, steps=5)
        >>> population_along(path, rows=[0, -1], count=1000).attention.shape
        torch.Size([2, 1, 4])
    """
    _check_count(count, trajectory.law)
    moments = range(len(trajectory.steps))
    if isinstance(rows, slice) or rows is None:
        rows = list(moments[rows or slice(None)])
    known = range(-len(moments), len(moments))
    if not isinstance(rows, list) or not rows or not all(type(row) in (int, np.int64) and row in known for row in rows):
        raise ValueError(f"rows must choose some of the {len(moments)} recorded moments; got {shortened(rows)}")
    on_signals, norms = trajectory.direction_on_signals[rows], trajectory.direction_norm_squared[rows]
    each = []
    for r in range(trajectory.runs):
        rng = stream(trajectory.seed, "test", trajectory.first_run + r)
        each.append(averages(trajectory.law, on_signals[:, r], norms[:, r], count, rng))
    return Population(*(torch.stack(column, dim=1) for column in zip(*(vars(p).values() for p in each), strict=True)))
