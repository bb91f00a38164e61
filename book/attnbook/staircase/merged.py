"""Merged key and query: heads with one full matrix each, trained by gradient flow on the exact loss."""

import numpy as np

from attnbook.staircase import Path, SpectrumLaw
from attnbook.staircase.flow import State, follow, pull_of
from attnlib import checks
from attnlib.arrays import Floats
from attnlib.randomness import stream


def train_merged(
    law: SpectrumLaw, seed: int, time: float, *, heads: int, size: float, runs: int, every: float, step: float = 0.1
) -> Path:
    r"""Heads $v_hU_h$ with $\dot v_h=\langle U_h,G\rangle$, $\dot U_h=v_hG$ and $A=\sum_hv_hU_h$, from entries $N(0,\epsilon^2)$."""
    checks.whole_number("heads", heads, at_least=1)
    checks.positive_number("size", size)
    D, pull = law.dimension, pull_of(law)
    drawn = size * np.stack([stream(seed, "start", run).standard_normal((heads, 1 + D * D)) for run in range(runs)])

    def product(state: State) -> Floats:
        return np.asarray(np.matmul(state[0][:, None], state[1])).reshape(-1, D, D)

    def velocity(state: State) -> State:
        G = pull(product(state)).reshape(-1, D * D, 1)
        return np.matmul(state[1], G)[..., 0], state[0][..., None] * G.swapaxes(1, 2)

    return follow(law, velocity, product, (drawn[..., 0].copy(), drawn[..., 1:].copy()), time, every, step)[0]
