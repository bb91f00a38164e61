r"""Gradient descent with K classes: the readable trainer, its fast twin in Gram space, and the fates of classes.

The iterates lie in the span of signals and noise tokens, $v_c = \sum_k \lambda_{kc}\mu_k + \sum_i \theta_{ic}\xi_i$ and the same for $p$.
Signals are orthogonal to noise and to each other, so a step is one product of the $n \times n$ Gram matrix of the noise with K + 1
columns, whatever the dimension.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.open_questions.more_classes.class_flow import own_class_thresholds
from attnbook.open_questions.more_classes.classes import (
    ClassesLaw,
    ClassSample,
    class_gradients,
    class_outputs,
    one_hot,
)
from attnbook.single_head.long_run import stacked
from attnlib import checks

_BYTES_AT_ONCE = 4 << 20  # of Gram matrices, which then stay in the cache of a core


@dataclass(frozen=True)
class ClassTrajectory:
    """Training at the recorded steps S (axis 0)."""

    steps: tuple[int, ...]
    v: torch.Tensor  # (S, R, K, m)
    p: torch.Tensor  # (S, R, m)
    margins: torch.Tensor  # (S, R, n), f of the observed label minus the largest other f
    attention: torch.Tensor  # (S, R, n), weight on the signal
    members: torch.Tensor  # (R, K, n), clean samples of every class, 0 or 1

    @property
    def train_accuracy(self) -> torch.Tensor:
        """(S, R): share of samples whose observed label has the largest output."""
        return (self.margins > 0).to(torch.float64).mean(-1)

    @property
    def attention_of_classes(self) -> torch.Tensor:
        """(S, R, K): mean weight on the signal over the clean samples of a class (nan without any)."""
        return torch.einsum("srn,rkn->srk", self.attention, self.members) / self.members.sum(-1)


def class_margins(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """(R, n): f of the label minus the largest of the other outputs (R, n, K)."""
    hot = one_hot(labels, output.shape[-1])
    return (output * hot).sum(-1) - output.masked_fill(hot > 0, -torch.inf).amax(-1)


def _clean_members(sample: ClassSample) -> torch.Tensor:
    return sample.members * (~sample.noisy).unsqueeze(1)


def class_descent(
    sample: ClassSample, step_size: float, steps: int, *, record: Iterable[int] | None = None
) -> ClassTrajectory:
    """The readable trainer: simultaneous steps on v (R, K, m) and p (R, m) from zero. Raises ValueError for a bad argument.

    record: steps to keep, all when left out.
    """
    beta = checks.positive_number("step_size", step_size)
    recorded = checks.recorded_steps(record, checks.whole_number("steps", steps, at_least=0))
    runs, _, m = sample.noise.shape
    v, p = sample.noise.new_zeros(runs, sample.law.classes, m), sample.noise.new_zeros(runs, m)
    rows = []
    for step in range(steps + 1):
        if step in recorded:
            output, weight, _, _ = class_outputs(sample, v, p)
            rows.append((v, p, class_margins(output, sample.labels), weight))
        grad_v, grad_p, _ = class_gradients(sample, v, p)
        v, p = v - beta * grad_v, p - beta * grad_p
    return ClassTrajectory(recorded, *map(torch.stack, zip(*rows, strict=True)), _clean_members(sample))


def class_gram_descent(
    sample: ClassSample, step_size: float, steps: int, *, record: Iterable[int] | None = None,
    schedule: Callable[[int], float] | None = None,
) -> ClassTrajectory:  # fmt: skip
    """As `class_descent`, many times faster for many steps. schedule: step -> factor on both step sizes."""
    beta = checks.positive_number("step_size", step_size)
    recorded = checks.recorded_steps(record, checks.whole_number("steps", steps, at_least=0))
    factor = schedule or (lambda step: 1.0)
    width = max(1, _BYTES_AT_ONCE // (8 * sample.law.n**2))
    parts = [
        _advance(sample, slice(first, first + width), beta, steps, set(recorded), factor)
        for first in range(0, sample.runs, width)
    ]
    joined = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    return ClassTrajectory(recorded, *joined, _clean_members(sample))


def _advance(sample: ClassSample, runs: slice, beta, steps, recorded, factor) -> tuple[torch.Tensor, ...]:
    noise, labels = sample.noise[runs], sample.labels[runs]
    n, K = sample.law.n, sample.law.classes
    gram, members, hot = noise @ noise.mT, sample.members[runs], one_hot(labels, K).mT.contiguous()
    holders, rho2 = members.mT.contiguous(), (sample.signals[runs] ** 2).sum(-1).unsqueeze(1)  # (R, n, K), (R, 1, K)
    # Rows 0 ... K-1 belong to the value vectors, the last one to p: classes before samples, so that sums over classes are fast.
    on_signals = gram.new_zeros(len(gram), K + 1, K)
    on_noise = gram.new_zeros(len(gram), K + 1, n)
    rate = gram.new_tensor(beta) / n
    rows = []
    for step in range(steps + 1):
        at_signal, at_noise = (on_signals * rho2) @ members, on_noise @ gram
        gap = at_signal - at_noise
        weight = torch.sigmoid(gap[:, K:])
        output = torch.addcmul(at_noise, weight, gap)[:, :K]
        if step in recorded:
            vectors = on_signals @ sample.signals[runs] + on_noise @ noise
            margins = class_margins(output.mT, labels)
            rows.append((vectors[:, :K], vectors[:, K], margins, weight[:, 0].clone()))
        if step == steps:
            break
        residual = hot - torch.softmax(output, 1)
        pull = weight * (1 - weight) * (residual * gap[:, :K]).sum(1, keepdim=True)
        scale = rate * factor(step)
        on_signals += scale * (torch.cat([residual * weight, pull], 1) @ holders)
        on_noise += scale * torch.cat([residual * (1 - weight), -pull], 1)
    return tuple(map(torch.stack, zip(*rows, strict=True)))


# --- fates -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassFates:
    """Where the classes of R long runs ended. Arrays (R, K) unless noted."""

    x: np.ndarray  # rho^2 |C_k| / d with the class's own count
    flipped: np.ndarray  # its own share of flips
    threshold: np.ndarray  # x*_K of that share
    attention: np.ndarray  # mean weight of its clean samples on the signal, at the end; nan without any
    train_accuracy: np.ndarray  # (R,)

    @property
    def on_signal(self) -> np.ndarray:
        return self.attention > 0.5

    def right(self, power: float = 1.0) -> np.ndarray:
        """Over all classes with clean samples: the fate is x > x*^power; power 1: the flow's rule, 0: the maximum-margin rule."""
        judged = self.x > 0
        return ((self.x > self.threshold**power) == self.on_signal)[judged]


def class_fates(
    laws: Sequence[ClassesLaw], step_size: float, steps: int, *, draws: int = 10, seed: int = 0,
    schedule: Callable[[int], float] | None = None,
) -> tuple[ClassFates, ClassTrajectory, ClassSample]:  # fmt: skip
    """Train `draws` sets of every law (one n, d and K) and see which token each class ends on.

    Law i takes the runs i * draws, ... of the seed. A class without clean samples has no fate (nan). Raises ValueError.
    """
    checks.whole_number("draws", draws, at_least=1)
    if not laws or len({(law.n, law.d, law.classes) for law in laws}) != 1:
        raise ValueError("laws must be one or more of one n, d and number of classes; got others")
    sample = stacked([law.draw(seed, draws, first_run=i * draws) for i, law in enumerate(laws)])
    path = class_gram_descent(sample, step_size, steps, record=[], schedule=schedule)
    clean, wrong = (count.numpy() for count in sample.counts())
    noisy = wrong.sum(-1)
    norms = np.repeat([law.signal_norm for law in laws], draws)[:, None]
    fates = ClassFates(
        x=norms**2 * clean / laws[0].d,
        flipped=np.where(clean + noisy > 0, noisy / np.maximum(clean + noisy, 1), np.nan),
        threshold=own_class_thresholds(clean, noisy, laws[0].classes),
        attention=path.attention_of_classes[-1].numpy(),
        train_accuracy=path.train_accuracy[-1].numpy(),
    )
    return fates, path, sample
