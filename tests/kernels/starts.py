"""Starting points of small trainings."""

import numpy as np
import torch

from attnlib.kernels import in_context
from attnlib.kernels.in_context import Call


def start(runs: int, heads: int, d: int, *, run: int = 0, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Weights uniform on +-1/sqrt(n), rounded to float32 so that both precisions start at one point, and zero moments."""
    n = d + 1
    weights = np.random.default_rng(1000 + run).uniform(-1, 1, (runs, heads, 3 * n * n + n)) / n**0.5
    weights = torch.from_numpy(weights.astype(np.float32)).to(dtype)
    return [weights, torch.zeros_like(weights), torch.zeros_like(weights)]


def setting(**changes) -> dict:
    """Arguments of `call_of` with every noise different from 0 and from the others."""
    chosen = {
        "d": 5, "heads": 2, "length": 7, "batch": 16, "seed": 3 + 2**40, "streams": [4, 9], "first_step": 0, "steps": 50,
        "beta_std": 0.8, "noise_std": 0.3, "target_noise_std": 0.1, "optimiser": "Adam", "learning_rate": 1e-3,
    }  # fmt: skip
    return chosen | changes


def call_of(*, streams, learning_rate, **chosen) -> Call:
    """A call of these arguments, with streams and rates as arrays."""
    streams = np.array(streams, dtype=np.uint32)
    rates = np.broadcast_to(np.array(learning_rate, dtype=np.float64), streams.shape).copy()
    return Call(streams=streams, learning_rate=rates, **chosen)


def advance(*state: torch.Tensor, threads: int | None = None, implementation: str = "auto", **chosen) -> torch.Tensor:
    """The loop on a call made of keyword arguments."""
    return in_context.advance(call_of(**chosen), *state, threads=threads, implementation=implementation)
