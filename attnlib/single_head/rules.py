r"""Update rules: how the gradients of v and p change them. Gradient descent is one.

| rule | step | commutes with rotations |
|---|---|---|
| gradient descent | $-\beta\nabla$ | yes |
| heavy ball, Nesterov | a buffer $b \leftarrow \mu b + \nabla$, step $-\beta b$ or $-\beta(\nabla + \mu b)$ | yes |
| normalised | $-\beta\nabla / |\nabla|$, one length for (v, p) of all heads together | yes |
| block-normalised | the same with the length of v's and of p's gradient each | yes |
| mini-batches | gradient descent on B samples, each once per epoch | yes |
| sign descent | $-\beta\,\mathrm{sign}\,\nabla$, entry by entry | **no** |
| Adam | moments of each entry | **no** |

A rule commutes with rotations when rotated data give rotated iterates: only then may it run in reduced coordinates (page
`03_rotations_are_free`). Momentum and Adam are torch.optim's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attnlib import checks
from attnlib.arrays import Ints
from attnlib.randomness import stream


@dataclass(frozen=True)
class Rule:
    """An update rule. `prepare` is done to the gradient first: nothing, "joint" or "blocks" length one, or "sign"."""

    name: str
    prepare: str = ""
    momentum: float = 0.0
    look_ahead: bool = False  # Nesterov's form of momentum
    batch: int | None = None  # samples per step; None: all
    moments: tuple[float, float, float] | None = None  # Adam's beta_1, beta_2, eps

    def __str__(self) -> str:
        return self.name

    @property
    def rotation_invariant(self) -> bool:
        """Whether the rule commutes with rotations of the coordinates."""
        return self.prepare != "sign" and self.moments is None

    @property
    def scales(self) -> bool:
        """Whether the step size may be multiplied into the gradient: all but Adam's."""
        return self.moments is None

    def optimiser(self, parameters: Sequence[torch.Tensor]) -> torch.optim.Optimizer | None:
        """torch.optim's, one parameter group each, learning rate 1; None where the step is the gradient itself."""
        groups = [{"params": [parameter]} for parameter in parameters]
        if self.moments is not None:
            return torch.optim.Adam(groups, lr=1.0, betas=self.moments[:2], eps=self.moments[2])
        if self.momentum:
            return torch.optim.SGD(groups, lr=1.0, momentum=self.momentum, nesterov=self.look_ahead)
        return None

    def check(self, n: int, coordinates: str) -> None:
        """Raises ValueError when the rule cannot run on n samples in these coordinates."""
        if not self.rotation_invariant and coordinates != "dense":
            raise ValueError(
                f"rule {self.name!r} looks at single coordinates and does not commute with rotations; the sample is in "
                f'{coordinates} coordinates: draw it with coordinates="dense"'
            )
        if self.batch is not None and n % self.batch:
            raise ValueError(f"rule: batches of {self.batch} must divide the number of samples; got n = {n}")


GRADIENT_DESCENT = Rule("gradient descent")
NORMALISED = Rule("normalised", prepare="joint")
BLOCK_NORMALISED = Rule("block-normalised", prepare="blocks")
SIGN_DESCENT = Rule("sign descent", prepare="sign")


def _momentum(value: float) -> float:
    value = checks.probability("momentum", value)
    if not 0 < value < 1:
        raise ValueError(f"momentum must be in (0, 1); got {value!r}: without momentum use GRADIENT_DESCENT")
    return value


def heavy_ball(momentum: float = 0.9) -> Rule:
    """Polyak's momentum, torch.optim.SGD's form. Raises ValueError unless 0 < momentum < 1."""
    return Rule("heavy ball", momentum=_momentum(momentum))


def nesterov(momentum: float = 0.9) -> Rule:
    """Nesterov's momentum, torch.optim.SGD's form. Raises ValueError unless 0 < momentum < 1."""
    return Rule("Nesterov", momentum=_momentum(momentum), look_ahead=True)


def stochastic(batch: int) -> Rule:
    """Mini-batches of `batch` samples without replacement; one step is one batch. Raises ValueError for batch < 1."""
    return Rule(f"batches of {batch}", batch=checks.whole_number("batch", batch, at_least=1))


def adam(betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> Rule:
    """Adam, torch.optim's. Raises ValueError for moments outside [0, 1) or eps <= 0."""
    return Rule("Adam", moments=(*checks.decay_rates(betas), checks.positive_number("eps", eps)))


def batch_orders(rule: Rule, n: int, steps: int, seed: int, runs: Sequence[int]) -> Ints | None:
    """The samples of each batch: (R, steps, B) sample numbers, a new permutation each epoch; None for full batches.

    Run r uses the stream (seed, "batches", r), so that runs can be cut anywhere.
    """
    if rule.batch is None:
        return None
    epochs = -(-steps * rule.batch // n)
    orders = np.empty((len(runs), epochs, n), dtype=np.int64)
    for row, run in enumerate(runs):
        rng = stream(seed, "batches", run)
        for epoch in range(epochs):
            orders[row, epoch] = rng.permutation(n)
    return np.ascontiguousarray(orders.reshape(len(runs), -1, rule.batch)[:, :steps])
