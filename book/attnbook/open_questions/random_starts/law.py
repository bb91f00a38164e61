r"""The single-head law with several signal directions per class: every sample holds one of them.

Class +1 owns the orthogonal directions $\mu_1, \dots, \mu_D$ of length $\rho$, class -1 the next D. A sample of either class
holds direction j of its class with probability `shares[j]`; noise avoids all 2D directions, labels are flipped as before:

$$ \tilde y = \pm 1, \quad j \sim \text{shares}, \quad u = \mu_{\tilde y, j}, \quad
   \xi \sim N\Big(0,\; I_d - \tfrac1{\rho^2}\sum_k \mu_k\mu_k^\top\Big), \quad y = -\tilde y \text{ with probability } \eta. $$

Reduced coordinates m = 2D + n + start vectors: exact in law for every training rule that commutes with rotations (the argument
of `coordinates`, which does not count signals). Source: own extension of the setting of arXiv 2410.07746, which has D = 1.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
import torch

from attnlib import checks
from attnlib.gaussian import bartlett_rows
from attnlib.randomness import stream
from attnlib.single_head.law import Sample, SignalNoiseLaw


@dataclass(frozen=True)
class ManyDirectionsLaw(SignalNoiseLaw):
    """D directions per class, drawn with probabilities `shares`. Two tokens. Raises ValueError for arguments outside their range."""

    shares: tuple[float, ...] = (0.5, 0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokens != 2:
            raise ValueError(f"tokens must be 2; got {self.tokens}: this law has one noise token")
        shares = tuple(checks.probability("shares", share, open_ends=len(self.shares) > 1) for share in self.shares)
        if not shares or abs(math.fsum(shares) - 1) > 1e-12:
            raise ValueError(f"shares must sum to 1; got {self.shares!r}: one probability per direction of a class")
        if self.d < 2 * len(shares) + 1:
            raise ValueError(
                f"d must be at least {2 * len(shares) + 1}; got {self.d}: the signals and one direction of noise"
            )

    @property
    def directions(self) -> int:
        """D, signal directions per class."""
        return len(self.shares)

    @property
    def direction_labels(self) -> tuple[float, ...]:
        """True label of each of the 2D directions."""
        return (1.0,) * self.directions + (-1.0,) * self.directions

    @property
    def direction_probabilities(self) -> tuple[float, ...]:
        """How often a fresh sample holds each of the 2D directions."""
        return tuple(0.5 * share for share in self.shares * 2)

    def draw(
        self, seed: int, runs: int = 1, *, first_run: int = 0, coordinates: str = "reduced", start_vectors: int = 0,
        device: str | torch.device = "cpu",
    ) -> Sample:  # fmt: skip
        """As `SignalNoiseLaw.draw`: `signals` is (R, 2D, m) and `signal_class` runs over 0 ... 2D - 1. Reduced coordinates only."""
        checks.whole_number("runs", runs, at_least=1)
        checks.whole_number("first_run", first_run, at_least=0)
        checks.whole_number("start_vectors", start_vectors, at_least=0)
        if coordinates != "reduced":
            raise ValueError(f"coordinates must be 'reduced'; got {coordinates!r}: this law is not drawn dense")
        drawn = [self._one(seed, run, start_vectors) for run in range(first_run, first_run + runs)]
        tokens, signals, held, flips, start = (np.stack(part) for part in zip(*drawn, strict=True))
        labels = torch.as_tensor(np.array(self.direction_labels)[held], device=device)
        flips = torch.as_tensor(flips, device=device)
        known = {"coordinates": "reduced"} if "coordinates" in {f.name for f in fields(Sample)} else {}
        return Sample(
            law=self,
            seed=seed,
            first_run=first_run,
            tokens=torch.as_tensor(tokens, device=device),
            signals=torch.as_tensor(signals, device=device),
            signal_class=torch.as_tensor(held, device=device),
            signal_position=torch.zeros(held.shape, dtype=torch.int64, device=device),
            true_labels=labels,
            labels=torch.where(flips, -labels, labels),
            start_directions=torch.as_tensor(start, device=device),
            **known,
        )

    def _one(self, seed: int, run: int, start_vectors: int):
        count, n = 2 * self.directions, self.n
        classes, flips = self._labels(seed, run)
        which = stream(seed, "signals", run).choice(self.directions, n, p=self.shares)
        held = classes * self.directions + which
        dimension = self.d - count
        columns = min(n + start_vectors, dimension)
        signals = self.signal_norm * np.eye(count, count + columns)
        tokens = np.zeros((n, 2, count + columns))
        tokens[:, 0] = signals[held]
        tokens[:, 1, count:] = self.noise_std * bartlett_rows(stream(seed, "noise", run), n, dimension, columns=columns)
        start = np.zeros((start_vectors, count + columns))
        if start_vectors:
            rng = stream(seed, "start", run)
            start[:, :count] = rng.standard_normal((start_vectors, count))
            start[:, count:] = bartlett_rows(rng, start_vectors, dimension, first=n, columns=columns)
        return tokens, signals, held, flips, start
