"""The data law of a single head: one signal token, T-1 noise tokens, some labels flipped.

Two ways to draw it. *Dense*: vectors in $R^d$, signals in random directions, the signal token at a random position.
*Reduced*: the same law in the m = 2 + min(n(T-1), d-2) coordinates spanned by the signals and the training noise, exact for
every training rule that commutes with rotations (page `03_rotations_are_free`).

A law may leave some of these assumptions (`variants.StressedLaw`). It then says so in three attributes, and everything here and
in `errors` reads them: how often a class occurs, how long the signals are and at what angle, whether noise avoids them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch

from attnlib import checks, limits
from attnlib.arrays import Bools, Floats, Ints
from attnlib.device import resolve
from attnlib.gaussian import bartlett_rows
from attnlib.randomness import stream

_Drawn = tuple[Floats, Floats, Ints, Ints, Bools, Floats]  # tokens, signals, positions, classes, flips, start


@dataclass(frozen=True)
class Sample:
    """R training sets. The first axis of each array is that of the runs; labels are +1 or -1 in the tokens' dtype.

    Source:
        this book; the m coordinates of vectors are those of `single_head/03_rotations_are_free`.

    Example:
        >>> sample = SignalNoiseLaw(n=6, d=100, signal_norm=3.0).draw(seed=0, runs=2)
        >>> sample.tokens.shape, sample.labels.shape
        (torch.Size([2, 6, 2, 8]), torch.Size([2, 6]))
    """

    law: SignalNoiseLaw  # what it was drawn from
    seed: int  # of the random streams
    first_run: int  # number of the first of the R runs
    tokens: torch.Tensor  # (R, n, T, m)
    signals: torch.Tensor  # (R, 2, m), mu_1 and mu_2
    signal_class: torch.Tensor  # (R, n), 0 holds mu_1, 1 holds mu_2
    signal_position: torch.Tensor  # (R, n), index of the signal token
    true_labels: torch.Tensor  # (R, n), before flipping
    labels: torch.Tensor  # (R, n), observed
    start_directions: torch.Tensor  # (R, r, m), standard Gaussian vectors of R^d in these coordinates
    coordinates: str = "reduced"  # or "dense": the axes are those of R^d, which rules that look at single entries need

    def __post_init__(self) -> None:
        checks.fitting(vars(self), tokens="R n T m", signals="R k m", labels="R n", true_labels="R n")
        for name in ("true_labels", "labels"):
            checks.signs(name, getattr(self, name), tuple(self.labels.shape), like=self.tokens)
        for name, count in (("signal_class", self.signals.shape[1]), ("signal_position", self.tokens.shape[2])):
            found = checks.tensor(name, getattr(self, name), tuple(self.labels.shape), like=self.tokens, whole=True)
            if not ((found >= 0) & (found < count)).all():
                raise ValueError(f"{name} must be in 0 ... {count - 1}; got something else: it is an index")

    @property
    def runs(self) -> int:
        """R, the number of training sets."""
        return self.tokens.shape[0]

    @property
    def noisy(self) -> torch.Tensor:
        """(R, n) bool: whose label was flipped."""
        return self.labels != self.true_labels

    @property
    def avoided(self) -> torch.Tensor:
        """(R, q, m): orthonormal directions in which noise has no component, q = 2 (the signals' span) or 0."""
        if not self.law.noise_avoids_signals:
            return self.signals[:, :0]
        if self.law.cosine == 0 and self.law.norm_ratio == 1:
            return self.signals / self.law.signal_norm
        basis: torch.Tensor = torch.linalg.qr(self.signals.mT)[0]
        return basis.mT

    def run(self, r: int) -> Sample:
        """Run r alone, as a sample of one run."""
        own: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        cut: dict[str, Any] = {name: x[r : r + 1] if isinstance(x, torch.Tensor) else x for name, x in own.items()}
        return Sample(**cut | {"first_run": self.first_run + r})

    def at_signal(self, per_token: torch.Tensor) -> torch.Tensor:
        """Pick the signal token's entry: (..., R, n, T) -> (..., R, n)."""
        index = self.signal_position.expand(per_token.shape[:-1]).unsqueeze(-1)
        return per_token.gather(-1, index).squeeze(-1)

    def noise_tokens(self) -> torch.Tensor:
        """(R, n, T-1, m): the tokens that are not the signal, in their order."""
        runs, n, T, m = self.tokens.shape
        keep = torch.arange(T, device=self.tokens.device) != self.signal_position.unsqueeze(-1)
        return self.tokens[keep].view(runs, n, T - 1, m)

    def counts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(|C_1|, |C_2|) and (|N_1|, |N_2|): clean and flipped samples of each class, both (R, 2)."""
        of_class = torch.stack([self.signal_class == 0, self.signal_class == 1], dim=1)  # (R, 2, n)
        flipped = self.noisy.unsqueeze(1)
        dtype = self.tokens.dtype
        return (of_class & ~flipped).sum(-1).to(dtype), (of_class & flipped).sum(-1).to(dtype)


@checks.checked
@dataclass(frozen=True)
class SignalNoiseLaw:
    r"""The data law: a signal token that depends on the true label, noise tokens orthogonal to both signals, and flipped labels.

    $$ \tilde y = \pm 1 \text{ with probability } \tfrac12, \quad u = \mu_1 \text{ or } \mu_2 \text{ by } \tilde y, $$
    $$ \xi_\tau \sim N\!\left(0,\; I_d - \tfrac{\mu_1\mu_1^\top + \mu_2\mu_2^\top}{\rho^2}\right), \quad
       y = -\tilde y \text{ with probability } \eta, $$

    $\mu_1 \perp \mu_2$, $|\mu_k| = \rho$. Arguments outside their range raise ValueError.

    Source:
        the setting of arXiv 2410.07746; T > 2 tokens as in its later version.

    Example:
        >>> law = SignalNoiseLaw(n=200, d=40_000, signal_norm=30.0, label_noise=0.05)
        >>> print(f"SNR = {law.snr}")
        SNR = 0.15
    """

    n: int  # training samples
    d: int  # ambient dimension
    signal_norm: float  # rho
    label_noise: float = 0.0  # eta in [0, 1/2]
    tokens: int = 2  # T
    normalised_noise: bool = False  # noise covariance divided by d (then the SNR is rho itself)

    # Assumptions of the paper, which `variants.StressedLaw` drops one by one.
    class_probability: ClassVar[float] = 0.5  # of class +1
    norm_ratio: ClassVar[float] = 1.0  # |mu_2| / |mu_1|
    cosine: ClassVar[float] = 0.0  # of the angle between the signals
    noise_avoids_signals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.whole_number("n", self.n, at_least=1)
        checks.whole_number(
            "d", self.d, at_least=3, hint="two orthogonal signals and one direction of noise need d >= 3"
        )
        checks.positive_number("signal_norm", self.signal_norm)
        checks.probability("label_noise", self.label_noise, high=0.5)
        checks.whole_number("tokens", self.tokens, at_least=2, hint="one signal token and at least one noise token")

    @property
    def noise_std(self) -> float:
        """Standard deviation of a noise coordinate: 1, or 1/sqrt(d) for normalised noise."""
        return 1 / math.sqrt(self.d) if self.normalised_noise else 1.0

    @property
    def snr(self) -> float:
        """Signal-to-noise ratio rho / sqrt(d): norm of the signal over the typical norm of a noise token."""
        return self.signal_norm / (self.noise_std * math.sqrt(self.d))

    @property
    def signal_norms(self) -> tuple[float, float]:
        """Norms of mu_1 and mu_2."""
        return self.signal_norm, self.signal_norm * self.norm_ratio

    @property
    def signal_factor(self) -> Floats:
        """Both signals in an orthonormal basis of their plane, first vector along mu_1: (2, 2)."""
        first, second = self.signal_norms
        return np.array([[first, 0.0], [second * self.cosine, second * math.sqrt(1 - self.cosine**2)]])

    def __str__(self) -> str:
        return (
            f"{self.n} samples of {self.tokens} tokens in d = {self.d}, labels flipped with probability {self.label_noise:g}\n"
            f"signal norm {self.signal_norm:g}: SNR = {self.snr:.3g}, n SNR^2 = {self.n * self.snr * self.snr:.3g}"
        )

    @checks.checked
    def draw(
        self,
        seed: int,
        runs: int = 1,
        *,
        first_run: int = 0,
        coordinates: str = "reduced",
        start_vectors: int = 0,
        device: str | torch.device = "cpu",
    ) -> Sample:
        """Draw training sets number `first_run` ... `first_run + runs - 1` of an experiment.

        Args:
            seed: the experiment's seed; run r uses the streams (seed, role, r), so batches can be cut anywhere.
            runs: R >= 1.
            coordinates: "reduced" (m = 2 + min(n(T-1) + start_vectors, d-2) columns) or "dense" (m = d).
            start_vectors: how many standard Gaussian vectors of R^d to draw for random starts (2 for v_0 and p_0).

        Returns a `Sample` of float64 tensors on `device`. Raises ValueError for a bad argument.
        """
        checks.origin(seed, runs, first_run)
        checks.whole_number("start_vectors", start_vectors, at_least=0)
        checks.one_of("coordinates", coordinates, ("reduced", "dense"))
        where = resolve(device)
        self.require_room(coordinates, runs, start_vectors)
        return self.drawn(seed, runs, first_run, coordinates, start_vectors, where)

    def drawn(
        self, seed: int, runs: int, first_run: int, coordinates: str, start_vectors: int, device: torch.device
    ) -> Sample:
        """What `draw` returns, for arguments that have been checked."""
        one = self._draw_reduced if coordinates == "reduced" else self._draw_dense
        drawn = [one(seed, run, start_vectors) for run in range(first_run, first_run + runs)]
        tokens, signals, positions, classes, flips, start = (np.stack(part) for part in zip(*drawn, strict=True))
        true_labels = 1.0 - 2.0 * classes

        def as_float(values: Floats) -> torch.Tensor:
            return torch.as_tensor(values, device=device)

        return Sample(
            law=self,
            seed=seed,
            first_run=first_run,
            tokens=as_float(tokens),
            signals=as_float(signals),
            signal_class=torch.as_tensor(classes, device=device),
            signal_position=torch.as_tensor(positions, device=device),
            true_labels=as_float(true_labels),
            labels=as_float(np.where(flips, -true_labels, true_labels)),
            start_directions=as_float(start),
            coordinates=coordinates,
        )

    def require_room(self, coordinates: str, runs: int, start_vectors: int) -> None:
        """Raises ValueError unless the tokens fit in memory twice: as they are drawn, and as one tensor."""

        def needed(n: int, runs: int, tokens: int, d: int, start_vectors: int) -> int:
            columns = d if coordinates == "dense" else 2 + min(n * (tokens - 1) + start_vectors, d - 2)
            return 16 * runs * (n * tokens + start_vectors) * columns

        n, tokens, d = self.n, self.tokens, self.d
        limits.require_memory(needed, n=n, runs=runs, tokens=tokens, d=d, start_vectors=start_vectors)

    def _labels(self, seed: int, run: int) -> tuple[Ints, Bools]:
        classes = self._classes(stream(seed, "labels", run), self.n)
        flips = stream(seed, "flips", run).random(self.n) < self.label_noise
        return classes, flips

    def _classes(self, rng: np.random.Generator, count: int) -> Ints:
        """0 (holds mu_1) or 1 (holds mu_2) for `count` samples."""
        if self.class_probability == 0.5:
            return rng.integers(0, 2, count)
        return (rng.random(count) >= self.class_probability).astype(np.int64)

    def _noise_vectors(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Noise in R^d before it is made to avoid the signals: (*shape, d). The hook of other noise laws."""
        return self.noise_std * rng.standard_normal((*shape, self.d))

    def _draw_reduced(self, seed: int, run: int, start_vectors: int) -> _Drawn:
        classes, flips = self._labels(seed, run)
        n, T, rows, dimension = self.n, self.tokens, self.n * (self.tokens - 1), self.d - 2
        columns = min(rows + start_vectors, dimension)
        # The signals span the first two coordinates, the noise the others; its coordinates are Bartlett's rows.
        signals = np.zeros((2, 2 + columns))
        signals[:, :2] = self.signal_factor
        tokens = np.zeros((n, T, 2 + columns))
        tokens[:, 0] = signals[classes]
        rng = stream(seed, "noise", run)
        noise = bartlett_rows(rng, rows, dimension, columns=columns)
        tokens[:, 1:, 2:] = self.noise_std * noise.reshape(n, T - 1, columns)
        if not self.noise_avoids_signals:  # drawn last, so that all other numbers are those of the law with projection
            tokens[:, 1:, :2] = self.noise_std * rng.standard_normal((n, T - 1, 2))
        # Start vectors have Gaussian entries in all these coordinates, and in the directions that the noise tokens do not span.
        start = np.zeros((start_vectors, 2 + columns))
        if start_vectors:
            rng = stream(seed, "start", run)
            start[:, :2] = rng.standard_normal((start_vectors, 2))
            start[:, 2:] = bartlett_rows(rng, start_vectors, dimension, first=rows, columns=columns)
        return tokens, signals, np.zeros(n, dtype=np.int64), classes, flips, start

    def _draw_dense(self, seed: int, run: int, start_vectors: int) -> _Drawn:
        classes, flips = self._labels(seed, run)
        n, T, d = self.n, self.tokens, self.d
        directions, _ = np.linalg.qr(stream(seed, "signals", run).standard_normal((d, 2)))
        signals = (directions @ self.signal_factor.T).T
        tokens = self._noise_vectors(stream(seed, "noise", run), (n, T))
        if self.noise_avoids_signals:
            tokens -= (tokens @ directions) @ directions.T  # project off the signals: O(nTd), never a d x d matrix
        positions = stream(seed, "positions", run).integers(0, T, n)
        tokens[np.arange(n), positions] = signals[classes]
        start = stream(seed, "start", run).standard_normal((start_vectors, d))
        return tokens, signals, positions, classes, flips, start

    @checks.checked
    def draw_fresh(self, sample: Sample, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Fresh test points for every run of `sample`, in the sample's own coordinates.

        Noise is standard normal in the coordinates orthogonal to `sample.avoided`: in reduced coordinates that is all that a
        model trained on the sample can see of a fresh vector. The stream is the role "test", never shared with training.

        Returns tokens (R, count, T, m), signal first, and true labels (R, count).
        """
        checks.whole_number("count", count, at_least=1)
        one = 16 * sample.tokens[0, 0].numel() * sample.runs
        limits.require_memory(lambda count: one * count, count=count)
        parts = [
            self.fresh_block(sample.run(r), count, stream(sample.seed, "test", sample.first_run + r))
            for r in range(sample.runs)
        ]
        return torch.cat([tokens for tokens, _ in parts]), torch.cat([labels for _, labels in parts])

    def fresh_block(self, one: Sample, count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """`count` fresh points for a sample of one run: tokens (1, count, T, m) and true labels (1, count)."""
        T, m, like = self.tokens, one.tokens.shape[-1], one.tokens
        classes = torch.as_tensor(self._classes(rng, count), device=like.device)
        noise = torch.as_tensor(rng.standard_normal((count * (T - 1), m)), dtype=like.dtype, device=like.device)
        signals, units = one.signals[0], one.avoided[0]
        noise = self.noise_std * (noise - (noise @ units.mT) @ units)
        tokens = torch.cat([signals[classes].unsqueeze(1), noise.view(count, T - 1, m)], dim=1)
        return tokens.unsqueeze(0), 1.0 - 2.0 * classes.to(like.dtype).unsqueeze(0)
