r"""The flow's boundaries on the head itself: full gradient descent on orthogonal noise, small steps, exact fractions of flipped samples.

Nothing is shared with the solver of the six equations: the head is trained on n samples, and its own attention is read. Also the runs on
Gaussian noise by which the theorem on the trap at finite d is judged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from attnbook.single_head.beyond_two_steps.finite_trap import TrapRecord, class_scores, trap_record
from attnbook.single_head.flow import first_order_threshold, flow_step, signal_threshold
from attnbook.single_head.long_run import (
    Fates,
    class_fates,
    collected_moves,
    law_at,
    orthogonal_sample,
    stacked,
    train,
    without_flips,
)
from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.training import gram_descent

_SIZE, _D = 20, 4000  # samples per class, dimension
SHARES = (0.05, 0.1, 0.2, 0.3)  # of flips, whole numbers of 20
_BETWEEN = (0.1, 0.2, 0.3, 0.4)
# h and steps: tau = 2000 in all
_SCHEDULE = ((0.01, 400), (0.02, 300), (0.05, 200), (0.2, 200), (1.0, 300), (4.0, 400))
_N, _X, _STEP, _STEPS, _DRAWS = 40, 1.25, 0.25, 1000, 12  # the runs on Gaussian noise: tau = 250
_CANDIDATES = sorted({round(t) for t in np.geomspace(1, 120, 16)})  # steps at which the theorem may begin to speak
DIMENSIONS = (10**3, 10**5, 10**8)


def balanced_sample(x: float, share: float) -> Sample:
    r"""One run of two equal classes of 20 samples on orthogonal noise, the same fraction of each flipped, with $\rho^2|C_k|/d = x$ exactly.

    Raises ValueError unless 20 times the share is a whole number.
    """
    flips = round(checks.probability("share", share, high=0.5) * _SIZE)
    if abs(flips - share * _SIZE) > 1e-9:
        raise ValueError(f"share must be a multiple of 1/{_SIZE}; got {share}")
    law = SignalNoiseLaw(2 * _SIZE, _D, math.sqrt(x * _D / (_SIZE - flips)), share)
    sample, place = orthogonal_sample(law), torch.arange(2 * _SIZE)
    classes = place // _SIZE
    truth = 1.0 - 2.0 * classes.to(sample.labels.dtype)
    tokens = sample.tokens.clone()
    tokens[0, :, 0] = sample.signals[0][classes]
    labels = torch.where(place % _SIZE < flips, -truth, truth)
    return replace(sample, tokens=tokens, signal_class=classes[None], true_labels=truth[None], labels=labels[None])


def _stack(xs: Sequence[float], shares: Sequence[float]) -> Sample:
    return stacked([balanced_sample(x, share) for x, share in zip(xs, shares, strict=True)])


def ends_on_signal(xs: Sequence[float], shares: Sequence[float]) -> np.ndarray:
    """(K,) bool: whether mean attention of the clean samples is above one half after tau = 2000."""
    sample = _stack(xs, shares)
    unit = sample.law.n / sample.law.d
    path = train(sample, [(step * unit, steps) for step, steps in _SCHEDULE])
    return (path.attention_clean[-1] > 0.5).numpy()


def first_move(xs: Sequence[float], shares: Sequence[float]) -> np.ndarray:
    """(K,): how far clean attention is from one half after two steps with h = 1/1000, the first that move it."""
    sample = _stack(xs, shares)
    path = gram_descent(sample, 1e-3 * sample.law.n / sample.law.d, 2, record=[2])
    return (path.attention_clean[-1] - 0.5).numpy()


def _zero_moves(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    return collected_moves(
        (own, step, gram_descent(sample, step * 20 / 4000, 40).attention_on_signal)
        for sample, own in without_flips((0.3, 0.7, 0.9, 1.12, 1.5, 4.0), seed)
        for step in (0.25, 5.0, 50.0)
    )[:2]


def _flow_runs(seed: int) -> tuple[torch.Tensor, ...]:
    rng, count, steps = stream(seed, "start"), 60, 300
    x, eta = np.exp(rng.uniform(-1.5, 1.5, count)), rng.uniform(0, 0.45, count)
    step, rate = np.exp(rng.uniform(-2, 2.5, count)), np.exp(rng.uniform(-1.4, 1.4, count))
    nu, states = eta / (1 - eta), np.zeros((count, steps + 1, 6))
    for k in range(count):
        for t in range(steps):
            states[k, t + 1] = flow_step(states[k, t].tolist(), step[k], x[k], nu[k], rate[k])
    return torch.as_tensor(x), torch.as_tensor(nu), torch.as_tensor(states)


@dataclass(frozen=True)
class TrapStudy:
    """What the claims on the flow, its boundaries and its trap look at. Each part is computed when it is first asked for."""

    seed: int

    @cached_property
    def fates(self) -> dict[str, np.ndarray]:
        """By line, x* or x1: does the class end on the signal 1 % below it and 1 % above, (2, 4) bool, at SHARES?"""
        return {name: np.stack([ends_on_signal(f * x, SHARES) for f in (0.99, 1.01)]) for name, x in _lines(SHARES)}

    @cached_property
    def moves(self) -> dict[str, np.ndarray]:
        """The same for the first move, 0.2 % below and above."""
        return {name: np.stack([first_move(f * x, SHARES) for f in (0.998, 1.002)]) for name, x in _lines(SHARES)}

    @cached_property
    def between(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """First move and end on signal, (4,) each: between x* and x_1, or mirrored at x*."""
        (_, star), (_, first) = _lines(_BETWEEN)
        places = {"between": np.sqrt(star * first), "mirrored": star * np.sqrt(star / first)}
        return {name: (first_move(x, _BETWEEN), ends_on_signal(x, _BETWEEN)) for name, x in places.items()}

    @cached_property
    def trapped(self) -> dict[int, list[list[TrapRecord]]]:
        """d -> per draw, its classes, x near 1.25, eta = 0.2."""
        return {d: _records(_X, d, self.seed) for d in DIMENSIONS}

    @cached_property
    def free(self) -> list[list[TrapRecord]]:
        """x near 4, d = 10^8."""
        return _records(4.0, 10**8, self.seed)

    @cached_property
    def zero_moves(self) -> tuple[torch.Tensor, torch.Tensor]:
        """x (K,) and moves of the clean logit (K, steps), orthogonal noise, eta = 0."""
        return _zero_moves(self.seed)

    @cached_property
    def flow_runs(self) -> tuple[torch.Tensor, ...]:
        """x (K,), nu (K,), states (K, steps + 1, 6) of the flow as a map."""
        return _flow_runs(self.seed)

    @cached_property
    def plain(self) -> Fates:
        """eta = 0.2, x = 4, steps of 5n/d from the start."""
        return self._fates(4.0, 200, 0.2, (5.0, 500))

    @cached_property
    def warm(self) -> Fates:
        """The same draws, 500 steps of n/5d first."""
        return self._fates(4.0, 200, 0.2, (0.2, 500), (5.0, 300))

    @cached_property
    def strong_small(self) -> Fates:
        """eta = 0.05, x = 400, steps of 2n/(x d)."""
        return self._fates(400.0, 100, 0.05, (2 / 400, 1500))

    @cached_property
    def strong_large(self) -> Fates:
        """The same draws, steps of n/5d."""
        return self._fates(400.0, 100, 0.05, (0.2, 500))

    def _fates(self, x: float, n: int, eta: float, *schedule: tuple[float, int]) -> Fates:
        steps = [(step * n / 40_000, count) for step, count in schedule]
        return class_fates([law_at(x, n, 40_000, eta)], steps, draws=10, seed=self.seed)


def _lines(shares: Sequence[float]) -> list[tuple[str, np.ndarray]]:
    """x* and x_1 at these fractions of flips."""
    return [
        ("x*", np.array([signal_threshold(share) for share in shares])),
        ("x1", np.array([first_order_threshold(share) for share in shares])),
    ]


def _records(x: float, d: int, seed: int) -> list[list[TrapRecord]]:
    sample = law_at(x, _N, d, 0.2).draw(seed, _DRAWS)
    return [
        [trap_record(scores, _CANDIDATES) for scores in class_scores(sample.run(run), _STEP, _STEPS)]
        for run in range(_DRAWS)
    ]


def trap_study(seed: int = 0) -> TrapStudy:
    """What the claims look at; the part on orthogonal noise at the boundaries does not depend on the seed."""
    return TrapStudy(checks.whole_number("seed", seed, at_least=0))
