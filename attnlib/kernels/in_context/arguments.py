"""What every training loop of in-context regression is given and gives back, checked once for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attnlib import checks
from attnlib.kernels.prompt_stream import check_origin

__all__ = ["OPTIMISERS", "Call", "Recorded", "check", "circuits", "empty_record", "factors"]

OPTIMISERS = ("SGD", "Adam", "AdamW")


@dataclass(frozen=True)
class Recorded:
    """What a training loop saw, in the dtype and on the device of the weights.

    Args:
        losses: (R, steps), the loss of every step's batch before that step's update.
        steps: (K,) absolute numbers of the recorded steps, increasing, int64 on the CPU.
        key_query: (R, K, H, n, n), W_K^T W_Q / sqrt(n) before the update of each recorded step, key index first.
        output_value: (R, K, H, n), W_O W_V at the same times.
    """

    losses: torch.Tensor
    steps: torch.Tensor
    key_query: torch.Tensor
    output_value: torch.Tensor


@dataclass(frozen=True)
class Call:
    """Checked arguments of `advance`, as plain numbers; `streams` uint32 (R,), `learning_rate` float64 (R,), `record` sorted."""

    d: int
    heads: int
    length: int
    batch: int
    seed: int
    streams: np.ndarray
    first_step: int
    steps: int
    beta_std: float
    noise_std: float
    target_noise_std: float
    optimiser: str
    learning_rate: np.ndarray
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    record: np.ndarray

    @property
    def width(self) -> int:
        """n = d + 1, width of a token and of every head."""
        return self.d + 1

    @property
    def shared(self) -> bool:
        """Whether all replicas take their prompts from one stream."""
        return bool((self.streams == self.streams[0]).all())


def _not_negative(name: str, value: object) -> float:
    number = checks.finite_number(name, value)
    if number < 0:
        raise ValueError(f"{name} must be >= 0; got {value!r}")
    return number


def _rates(value: float | Sequence[float], replicas: int) -> np.ndarray:
    """One learning rate per replica, float64."""
    rates = list(value) if np.ndim(value) == 1 else [value] * replicas
    if len(rates) != replicas:
        raise ValueError(f"learning_rate must be one number or {replicas}, one per replica; got {len(rates)}")
    return np.array([checks.positive_number("learning_rate", rate) for rate in rates])


def _tensor(name: str, value: object, shape: tuple[int, ...], like: torch.Tensor) -> None:
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float32, torch.float64):
        got = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise ValueError(
            f"{name} must be a float32 or float64 torch tensor; got {got}: it is changed in place, so it is not converted"
        )
    if tuple(value.shape) != shape:
        raise ValueError(
            f"{name} must have shape {shape} = (replicas, heads, 3 n^2 + n) with n = d + 1; got {tuple(value.shape)}: "
            "per head W_Q, W_K, W_V row by row, then W_O"
        )
    if value.dtype != like.dtype or value.device != like.device:
        raise ValueError(
            f"{name} must have dtype and device of weights, {like.dtype} on {like.device}; got {value.dtype} on {value.device}"
        )
    if not value.is_contiguous():
        raise ValueError(f"{name} must be contiguous: it is changed in place; use .contiguous()")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} must be finite; got nan or inf: go back to the last state whose losses were finite")


def check(
    weights: torch.Tensor,
    first_moment: torch.Tensor,
    second_moment: torch.Tensor,
    *,
    d: int,
    heads: int,
    length: int,
    batch: int,
    seed: int,
    streams: Sequence[int],
    first_step: int,
    steps: int,
    beta_std: float,
    noise_std: float,
    target_noise_std: float,
    optimiser: str,
    learning_rate: float | Sequence[float],
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    record: Iterable[int],
) -> Call:
    """The arguments of `advance` as a `Call`. Raises ValueError that says which one is wrong, before any work."""
    for name, size in (("d", d), ("heads", heads), ("length", length), ("batch", batch)):
        checks.whole_number(name, size, at_least=1)
    seed, ids = check_origin(seed, streams, first_step, steps, batch)
    n = d + 1
    shape = (len(ids), heads, 3 * n * n + n)
    tensors = {"weights": weights, "first_moment": first_moment, "second_moment": second_moment}
    for name, value in tensors.items():
        _tensor(name, value, shape, weights)
    if len({value.data_ptr() for value in tensors.values()}) < 3:
        raise ValueError("weights, first_moment and second_moment must be three tensors; two of them share memory")
    checks.one_of("optimiser", optimiser, OPTIMISERS)
    if np.shape(betas) != (2,) or not all(0 <= checks.finite_number("betas", beta) < 1 for beta in betas):
        raise ValueError(f"betas must be two numbers in [0, 1); got {betas!r}")
    marks = sorted({checks.whole_number("record", step, at_least=0) for step in record})
    if marks and not (first_step <= marks[0] and marks[-1] <= first_step + steps):
        raise ValueError(
            f"record must lie in [{first_step}, {first_step + steps}], the steps of this call; got {marks[0]} to {marks[-1]}"
        )
    return Call(
        d=int(d),
        heads=int(heads),
        length=int(length),
        batch=int(batch),
        seed=seed,
        streams=ids,
        first_step=int(first_step),
        steps=int(steps),
        beta_std=_not_negative("beta_std", beta_std),
        noise_std=_not_negative("noise_std", noise_std),
        target_noise_std=_not_negative("target_noise_std", target_noise_std),
        optimiser=optimiser,
        learning_rate=_rates(learning_rate, len(ids)),
        betas=(float(betas[0]), float(betas[1])),
        eps=checks.positive_number("eps", eps),
        weight_decay=_not_negative("weight_decay", weight_decay),
        record=np.array(marks, dtype=np.int64),
    )


def empty_record(call: Call, like: torch.Tensor) -> Recorded:
    """A record to be filled, in the dtype and on the device of `like`."""
    lead, n = (len(call.streams), len(call.record), call.heads), call.width
    new = like.new_empty
    return Recorded(
        new(len(call.streams), call.steps), torch.from_numpy(call.record.copy()), new(*lead, n, n), new(*lead, n)
    )


def factors(weights: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
    """Views (W_Q, W_K, W_V, W_O) of shapes (..., n, n) three times and (..., n) into weights (..., 3 n^2 + n)."""
    square = n * n
    parts = (weights[..., i * square : (i + 1) * square].unflatten(-1, (n, n)) for i in range(3))
    return (*parts, weights[..., 3 * square :])


def circuits(weights: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(W_K^T W_Q / sqrt(n), W_O W_V) of weights (..., 3 n^2 + n): shapes (..., n, n), key index first, and (..., n)."""
    query, key, value, output = factors(weights, n)
    return key.mT @ query / math.sqrt(n), (output.unsqueeze(-2) @ value).squeeze(-2)
