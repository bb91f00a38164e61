"""Random streams: one numpy Generator per role and run, so that train and test can never share draws.

A stream is named by (seed, role, run). Run r of a batch draws from the same streams as run r alone, so a batched study
equals the one-by-one study number by number, whatever the batch size, and the digits do not depend on the device.

With ATTNLIB_SHAKE=3 the last bit of each continuous draw is shaken, by perturbation number 3 of as many as one likes: digits of a
result that then change are not determined by the data. (Generators made from a stream's bits are not
shaken.) `python -m attnlib stability` measures pages with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np

VARIABLE = "ATTNLIB_SHAKE"

# The position of a role is part of the stream's key: append, never reorder.
ROLES = (
    "labels",
    "flips",
    "noise",
    "signals",
    "positions",
    "start",
    "test",
    "test flips",
    "search",
    "resampling",
    "batches",
)


def stream(seed: int, role: str, run: int = 0) -> np.random.Generator:
    """Generator of one role in one run.

    Args:
        seed: whole number >= 0, the experiment's seed.
        role: one of `ROLES`.
        run: whole number >= 0, index on the run axis.

    Nothing is checked here: who offers a seed to readers checks it (`checks.origin`).
    """
    key = (ROLES.index(role), run)
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key))
    if shake := os.environ.get(VARIABLE):
        number, size = _shake(shake)
        return _Shaken(bits, np.random.PCG64(np.random.SeedSequence([number, seed], spawn_key=key)), size)
    return np.random.Generator(bits)


def _shake(text: str) -> tuple[int, float]:
    """Number and relative size of a perturbation: "3" is the third, in the last bit; "3@40" the third, of size 2^-40."""
    found = re.fullmatch(r"([0-9]+)(?:@([0-9]+))?", text)
    if not found or not 1 <= int(found[2] or 52) <= 52:
        raise ValueError(f"{VARIABLE} must be a whole number, or NUMBER@BITS with 1 <= BITS <= 52; got {text!r}")
    return int(found[1]), 2.0 ** -int(found[2] or 52)


class _Shaken(np.random.Generator):
    """A generator whose continuous draws are a little off, as another machine's might be.

    x becomes x (1 + k s), k = -1, 0 or 1 with probability 1/3 each, from a second generator; s = 2^-52 is one unit in the
    last place. Whole numbers stay.
    """

    def __init__(self, bits: np.random.BitGenerator, noise: np.random.BitGenerator, size: float) -> None:
        super().__init__(bits)
        self._noise, self._size = np.random.Generator(noise), size


def _shaken(name: str) -> Callable[..., Any]:
    def draw(self: _Shaken, *arguments: Any, **options: Any) -> Any:
        drawn = getattr(np.random.Generator, name)(self, *arguments, **options)
        return drawn * (1.0 + self._size * self._noise.integers(-1, 2, size=np.shape(drawn) or None))

    return draw


for _name in ("random", "uniform", "normal", "standard_normal", "standard_t", "exponential", "chisquare"):
    setattr(_Shaken, _name, _shaken(_name))
