"""What every training loop of in-context regression is given and gives back, checked once for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from attnlib import checks
from attnlib.kernels.prompt_stream import check_origin

__all__ = ["OPTIMISERS", "Call", "Recorded", "check", "circuits", "factors"]

OPTIMISERS = ("SGD", "Adam", "AdamW")


@dataclass(frozen=True)
class Recorded:
    """What a training loop saw.

    Args:
        losses: (R, steps), the loss of every step's batch before that step's update.
        steps: (K,) absolute numbers of the recorded steps, increasing.
        key_query: (R, K, H, n, n), W_K^T W_Q / sqrt(n) before the update of each recorded step, key index first.
        output_value: (R, K, H, n), W_O W_V at the same times.
    """

    losses: np.ndarray
    steps: np.ndarray
    key_query: np.ndarray
    output_value: np.ndarray


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
    return np.array([_not_negative("learning_rate", rate) for rate in rates])


def _array(name: str, value: object, shape: tuple[int, ...], dtypes: Sequence[type]) -> None:
    names = " or ".join(np.dtype(t).name for t in dtypes)
    if not isinstance(value, np.ndarray) or value.dtype not in [np.dtype(t) for t in dtypes]:
        got = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        raise ValueError(
            f"{name} must be a {names} numpy array; got {got}: it is changed in place, so it is not converted"
        )
    if value.shape != shape:
        raise ValueError(
            f"{name} must have shape {shape} = (replicas, heads, 3 n^2 + n) with n = d + 1; got {value.shape}: "
            "per head W_Q, W_K, W_V row by row, then W_O"
        )
    if not value.flags.c_contiguous or not value.flags.writeable:
        raise ValueError(
            f"{name} must be C-contiguous and writeable: it is changed in place; use numpy.ascontiguousarray"
        )


def check(
    weights: np.ndarray,
    first_moment: np.ndarray,
    second_moment: np.ndarray,
    *,
    dtypes: Sequence[type],
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
    arrays = {"weights": weights, "first_moment": first_moment, "second_moment": second_moment}
    for name, array in arrays.items():
        _array(name, array, shape, dtypes)
        if array.dtype != weights.dtype:
            raise ValueError(f"{name} must have the dtype of weights, {weights.dtype}; got {array.dtype}")
    if any(
        np.shares_memory(a, b)
        for a, b in ((weights, first_moment), (weights, second_moment), (first_moment, second_moment))
    ):
        raise ValueError("weights, first_moment and second_moment must be three arrays; two of them share memory")
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
        eps=_not_negative("eps", eps),
        weight_decay=_not_negative("weight_decay", weight_decay),
        record=np.array(marks, dtype=np.int64),
    )


def factors(weights: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Views (W_Q, W_K, W_V, W_O) of shapes (..., n, n) three times and (..., n) into weights (..., 3 n^2 + n)."""
    square = n * n
    parts = (weights[..., i * square : (i + 1) * square].reshape(*weights.shape[:-1], n, n) for i in range(3))
    return (*parts, weights[..., 3 * square :])


def circuits(weights: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(W_K^T W_Q / sqrt(n), W_O W_V) of weights (..., 3 n^2 + n): shapes (..., n, n), key index first, and (..., n)."""
    query, key, value, output = factors(weights, n)
    return key.swapaxes(-1, -2) @ query / math.sqrt(n), (output[..., None, :] @ value)[..., 0, :]
