r"""Studies of one head with the attention map as the argument: two steps, windows of step sizes, long courses, local attention.

From zero $p_1 = 0$, so two steps see a map only through $w(0)$ and its Jacobian at 0. Normalised maps have $w(0) = 1/T$ and
$J(0) = c\,(I - \frac1T11^\top)$: they share $v_1$ and $v_2$, and $p_2$ is c times one vector. Unnormalised maps with $\phi(0) = 1/2$ share
$v_1, v_2$ as well (T = 2), and

$$ p_2 = \frac{\beta\phi'(0)}{n}\sum_i g_iy_i\bigl[(v_1\cdot u_i)\,u_i + (v_1\cdot\xi_i)\,\xi_i\bigr], $$

without the competition $v_1\cdot(u_i - \xi_i)$. Source: derived; everything later is measured with the general trainer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.open_questions.attention_maps.error import log10_map_error, log10_map_errors, map_error_conditioned
from attnbook.single_head.long_run import Course, blocks, side_by_side, stacked
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.maps import (
    ENTMAX15,
    HALF_PLUS,
    HARDMAX,
    LINEARISED,
    SIGMOID,
    SOFTMAX,
    SPARSEMAX,
    AttentionMap,
    softmax,
    windows,
)
from attnlib.single_head.training import train_heads

NORMALISED = (softmax(0.5), SPARSEMAX, ENTMAX15, SOFTMAX, LINEARISED, softmax(2.0), HARDMAX)  # by slope at zero
UNNORMALISED = (SIGMOID, HALF_PLUS)
MAPS = (*NORMALISED, *UNNORMALISED)
MOVING = tuple(m for m in NORMALISED if m.slope(2) > 0)


# --- two steps -------------------------------------------------------------------------------------------------------------


def two_steps(
    sample: Sample, step_size: float, attention_map: AttentionMap
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(v_1, v_2, p_2), each (R, m), of one head from zero. p_1 = 0 for every map."""
    path = train_heads(sample, step_size, 2, attention_map=attention_map).single()
    return path.v[1], path.v[2], path.p[2]


def unnormalised_p2(sample: Sample, step_size: float, derivative: float) -> torch.Tensor:
    """The closed form above for a map with phi(0) = 1/2, phi'(0) = `derivative`: p_2, (R, m). Two tokens."""
    if sample.law.tokens != 2:
        raise ValueError(f"sample must have two tokens; got {sample.law.tokens}: draw it from a law with tokens=2")
    labels, n = sample.labels.unsqueeze(-1), sample.labels.shape[1]
    v1 = step_size / (4 * n) * (labels.unsqueeze(-1) * sample.tokens).sum((1, 2))
    values = (sample.tokens @ v1[:, None, :, None]).squeeze(-1)  # (R, n, 2)
    slopes = torch.sigmoid(-labels.squeeze(-1) * values.sum(-1) / 2)
    pulls = (slopes * sample.labels).unsqueeze(-1) * values
    return step_size * derivative / n * (pulls.unsqueeze(-1) * sample.tokens).sum((1, 2))


@dataclass(frozen=True)
class StepWindow:
    """Two steps over a range of step sizes, for one map."""

    units: np.ndarray  # (U,), step size in units of n / d
    interpolates: np.ndarray  # (U, draws) bool
    log10_error: np.ndarray  # (U, draws)

    @property
    def benign(self) -> np.ndarray:
        """(U,) bool: every draw interpolates and the mean clean error is below 1 %."""
        return self.interpolates.all(1) & ((10**self.log10_error).mean(1) < 0.01)

    def __str__(self) -> str:
        found = self.units[self.benign]
        return f"{found[0]:g} - {found[-1]:g}" if len(found) else "none"


def step_windows(
    law: SignalNoiseLaw, units: Sequence[float], maps: Sequence[AttentionMap] = MAPS, *, draws: int = 10, seed: int = 0
) -> dict[str, StepWindow]:
    """Two steps from zero with step sizes units x n / d, the same draws for each map and size: name of the map -> `StepWindow`."""
    sample, units = law.draw(seed, checks.whole_number("draws", draws, at_least=1)), np.asarray(units, dtype=float)
    if units.ndim != 1 or not len(units) or not (units > 0).all():
        raise ValueError(f"units must be one or more numbers > 0; got {units.tolist()}")
    batch, found = stacked([sample] * len(units)), {}
    sizes = torch.as_tensor(units * law.n / law.d).repeat_interleave(draws).to(sample.tokens)
    for attention_map in maps:
        path = train_heads(batch, sizes, 2, attention_map=attention_map, record=[]).single()
        errors = log10_map_error(path.v[-1], path.p[-1], batch, attention_map)
        parts = (part.view(len(units), draws).numpy() for part in (path.interpolates[-1], errors))
        found[attention_map.name] = StepWindow(units, *parts)
    return found


# --- long training ---------------------------------------------------------------------------------------------------------


def one_head_start(sample: Sample, size: float) -> tuple[torch.Tensor, torch.Tensor]:
    """v_0, p_0 (R, 1, m) of expected norm `size`, from a sample drawn with two start vectors."""
    scale = checks.positive_number("start_size", size) / sample.law.d**0.5
    return scale * sample.start_directions[:, :1], scale * sample.start_directions[:, 1:]


def map_courses(
    laws: Sequence[SignalNoiseLaw], attention_map: AttentionMap, step_size: float, steps: int, *, record: Sequence[int],
    draws: int = 10, seed: int = 0, start_size: float = 0.0,
) -> list[Course]:  # fmt: skip
    """Gradient descent on several laws of one n and d, the same draws of labels and noise for each, as one batch.

    Of a course, `attention_clean` and `attention_noisy` are mean weights of the signal token.
    start_size: norm of Gaussian v_0 and p_0 (zero: from zero). Raises ValueError for a bad argument.
    """
    samples, batch = side_by_side(laws, draws, seed, same=True, start_vectors=2 if start_size else 0)
    start = one_head_start(batch, start_size) if start_size else None
    heads = train_heads(batch, step_size, steps, attention_map=attention_map, record=record, start=start)
    path, courses = heads.single(), []
    for sample, block in zip(samples, blocks(samples), strict=True):
        errors = log10_map_errors(path.v[:, block], path.p[:, block], sample, attention_map)
        kept = (path.train_accuracy, path.attention_clean, path.attention_noisy)
        kept = (part[:, block].numpy() for part in kept)
        courses.append(Course(np.array(path.steps), errors.numpy(), *kept, sample.noisy.sum(1).numpy()))
    return courses


# --- windows ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalAttention:
    """Softmax in windows of W tokens, T = 8: arrays (widths, draws)."""

    widths: tuple[int, ...]
    signal_in_p2: np.ndarray  # coefficient of mu_k in p_2, mean over k, high SNR
    late_error: np.ndarray  # log10, low SNR, after the last step
    early_error: np.ndarray  # the same after step 2
    train_accuracy: np.ndarray  # low SNR, after the last step


def local_attention(
    widths: Sequence[int] = (1, 2, 4, 8), *, n: int = 60, d: int = 12_000, high: float = 30.0, low: float = 16.0,
    steps: int = 100, draws: int = 5, seed: int = 0, count: int = 4000,
) -> LocalAttention:  # fmt: skip
    """Train with step size 5 n / d on eight tokens above (two steps) and below the threshold (`steps` steps).

    Errors below it by averaging `count` draws of the fresh logits: good to a few percent above 1e-6 and not to be trusted below.
    """
    rows = []
    size = 5 * n / d
    samples = [
        SignalNoiseLaw(n, d, norm, 0.05, tokens=8).draw(seed, checks.whole_number("draws", draws, at_least=1))
        for norm in (high, low)
    ]
    for width in widths:
        attention_map = windows(SOFTMAX, width)
        path = train_heads(samples[0], size, 2, attention_map=attention_map, record=[]).single()
        along = torch.einsum("rkm,rm->rk", samples[0].signals, path.p[-1]) / high**2
        late = train_heads(samples[1], size, steps, attention_map=attention_map, record=[2]).single()
        errors = [
            map_error_conditioned(late.v[at], late.p[at], samples[1], attention_map, count).value.log10()
            for at in (-1, 0)
        ]
        rows.append([part.numpy() for part in (along.mean(1), *errors, late.train_accuracy[-1])])
    return LocalAttention(tuple(widths), *(np.stack(part) for part in zip(*rows, strict=True)))
