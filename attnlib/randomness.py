"""Random streams: one numpy Generator per role and run, so that train and test can never share draws.

A stream is named by (seed, role, run). Run r of a batch draws from the same streams as run r alone, so a batched study
equals the one-by-one study number by number, whatever the batch size, and the digits do not depend on the device.
"""

from __future__ import annotations

import numpy as np

from attnlib import checks

__all__ = ["ROLES", "stream"]

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

    Raises ValueError on anything else.
    """
    checks.whole_number("seed", seed, at_least=0)
    checks.whole_number("run", run, at_least=0)
    checks.one_of("role", role, ROLES)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(ROLES.index(role), run))))
