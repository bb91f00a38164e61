r"""The flow's boundaries on the head itself: full gradient descent on orthogonal noise, small steps, exact fractions of flipped samples.

Nothing is shared with the solver of the six equations: the head is trained on n samples, and its own attention is read. Also the runs on
Gaussian noise by which the theorem on the trap at finite d is judged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.single_head.beyond_two_steps.finite_trap import TrapRecord, class_scores, trap_record
from attnbook.single_head.flow import first_order_threshold, signal_threshold
from attnbook.single_head.long_run import law_at, orthogonal_sample, stacked, train
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.training import gram_descent

_SIZE, _D = 20, 4000  # samples per class, dimension
SHARES = (0.05, 0.1, 0.2, 0.3)  # of flips, whole numbers of 20
_BETWEEN = (0.1, 0.2, 0.3, 0.4)
_SCHEDULE = (
    (0.01, 400),
    (0.02, 300),
    (0.05, 200),
    (0.2, 200),
    (1.0, 300),
    (4.0, 400),
)  # h and steps: tau = 2000 in all
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


@dataclass(frozen=True)
class TrapStudy:
    """What the claims on boundaries and on the trap at finite d look at."""

    fates: dict[str, np.ndarray]  # "x*" or "x1" -> (2, 4) bool: 1 % below it and 1 % above, at SHARES
    moves: dict[str, np.ndarray]  # the same for the first move, 2 % below and above
    between: dict[
        str, tuple[np.ndarray, np.ndarray]
    ]  # "between" x* and x_1, or "mirrored" at x*: first move, end on signal (4,)
    trapped: dict[int, list[list[TrapRecord]]]  # d -> per draw, its classes, x near 1.25, eta = 0.2
    free: list[list[TrapRecord]]  # x near 4, d = 10^8


def _records(x: float, d: int, seed: int) -> list[list[TrapRecord]]:
    sample = law_at(x, _N, d, 0.2).draw(seed, _DRAWS)
    return [
        [trap_record(scores, _CANDIDATES) for scores in class_scores(sample.run(run), _STEP, _STEPS)]
        for run in range(_DRAWS)
    ]


def trap_study(seed: int = 0) -> TrapStudy:
    """Train and collect; some seconds. The orthogonal part does not depend on the seed."""
    lines = {"x*": signal_threshold, "x1": first_order_threshold}
    at = {name: np.array([line(share) for share in SHARES]) for name, line in lines.items()}
    star, first = (np.array([line(share) for share in _BETWEEN]) for line in lines.values())
    places = {"between": np.sqrt(star * first), "mirrored": star * np.sqrt(star / first)}
    return TrapStudy(
        fates={name: np.stack([ends_on_signal(f * x, SHARES) for f in (0.99, 1.01)]) for name, x in at.items()},
        moves={name: np.stack([first_move(f * x, SHARES) for f in (0.98, 1.02)]) for name, x in at.items()},
        between={name: (first_move(x, _BETWEEN), ends_on_signal(x, _BETWEEN)) for name, x in places.items()},
        trapped={d: _records(_X, d, seed) for d in DIMENSIONS},
        free=_records(4.0, 10**8, seed),
    )
