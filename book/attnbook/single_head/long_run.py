r"""Long training: trajectories on a logarithmic clock, which token each class ends on, and baselines beside the full head.

A class ends *on the signal* when the mean attention of its clean samples on the signal token exceeds one half. Its own coordinates are
$x = \rho^2|C_k|/d$ and the fraction of flipped samples among its own. Gradient descent is exact (`gram_descent`), errors are the exact
integral, the maximum-margin answer is the exact SVM on the same draws. Everything is seeded; runs of different signal norms train as
one batch.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from attnbook.single_head.flow import own_thresholds
from attnbook.single_head.margin import best_pattern, pattern_costs, selection_margin, tokens_of
from attnbook.single_head.margin import pattern_selection as _selection
from attnlib import checks
from attnlib.arrays import Bools, Floats, Ints
from attnlib.single_head.errors import log10_clean_error
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.training import Trajectory, gaussian_start, gram_descent

Schedule = Sequence[tuple[float, int]]


def law_at(x: float, n: int, d: int, label_noise: float) -> SignalNoiseLaw:
    """The law whose expected x = rho^2 E|C_k| / d, E|C_k| = n (1 - eta) / 2, is the one given."""
    checks.probability("label_noise", label_noise, high=0.5)
    norm = math.sqrt(checks.positive_number("x", x) * d / (n * (1 - label_noise) / 2))
    return SignalNoiseLaw(n, d, norm, label_noise)


def small_then_long(n: int, d: int) -> Schedule:
    """400 steps of n/4d, close to gradient flow while the outcome is decided, then 500 steps of 4n/d: tau = 2100 in all."""
    return ((0.25 * n / d, 400), (4 * n / d, 500))


def log_steps(steps: int, per_decade: int = 8) -> list[int]:
    """Steps to record for a logarithmic axis: 1, 2, 3, ..., about `per_decade` per factor of ten, up to `steps`."""
    checks.whole_number("steps", steps, at_least=1)
    checks.whole_number("per_decade", per_decade, at_least=1)
    # Less a little: log10 of a power of ten may be a whole number and a last bit.
    grid = np.geomspace(1, steps, math.ceil(per_decade * math.log10(steps) - 1e-9) + 1)
    return sorted({round(step) for step in grid} | {min(2, steps), min(3, steps)})


def train(sample: Sample, schedule: Schedule, trainer: Callable[..., Any] = gram_descent, **options: Any) -> Any:
    """Training from zero through (step size, steps) pairs; only the end is kept. Raises ValueError without a pair.

    options: of the trainer, `gram_descent` or another with its arguments, whose trajectory is returned.
    """
    if not schedule:
        raise ValueError("schedule must hold at least one (step_size, steps) pair; got none")
    start = None
    for step_size, steps in schedule:
        path = trainer(sample, step_size, steps, start=start, record=[], **options)
        start = path.v[-1], path.p[-1]
    return path


def stacked(samples: Sequence[Any]) -> Any:
    """Samples of one kind and size, side by side on the run axis, for training only: signal norms may differ, tokens carry them."""
    names = [name for name, value in vars(samples[0]).items() if isinstance(value, torch.Tensor)]
    joined: dict[str, Any] = {name: torch.cat([getattr(s, name) for s in samples]) for name in names}
    return replace(samples[0], **joined)


def side_by_side(
    laws: Sequence[SignalNoiseLaw], draws: int, seed: int, *, same: bool = False, start_vectors: int = 0
) -> tuple[list[Sample], Sample]:
    """`draws` training sets of every law, and all of them stacked; law i takes the runs i*draws, ... of the seed, or all the `same`.

    Raises ValueError unless there are two-token laws of one kind, n and d.
    """
    checks.whole_number("draws", draws, at_least=1)
    if not laws or len({(type(law), law.n, law.d, law.tokens) for law in laws}) != 1 or laws[0].tokens != 2:
        raise ValueError("laws must be one or more two-token laws of one kind, n and d; got others")
    first = 0 if same else draws
    samples = [law.draw(seed, draws, first_run=i * first, start_vectors=start_vectors) for i, law in enumerate(laws)]
    return samples, stacked(samples)


def blocks(samples: Sequence[Sample]) -> list[slice]:
    """The runs of each sample among all in turn."""
    ends = np.cumsum([sample.runs for sample in samples])
    return [slice(int(end) - sample.runs, int(end)) for sample, end in zip(samples, ends, strict=True)]


def class_attention(sample: Sample, attention_on_signal: torch.Tensor) -> torch.Tensor:
    """Mean attention (R, 2) of the clean samples of each class on the signal, from weights (R, n); nan for an empty class."""
    held = torch.stack([sample.signal_class == k for k in (0, 1)], 1) & ~sample.noisy.unsqueeze(1)
    return (attention_on_signal.unsqueeze(1) * held).sum(-1) / held.sum(-1)


# --- outcomes of classes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fates:
    """Where R runs with two classes each ended, and what three rules say. Arrays (R, 2) unless noted."""

    x: Floats  # rho^2 |C_k| / d with the class's own count
    flipped: Floats  # its own fraction of flips, |N_k| / (|C_k| + |N_k|)
    threshold: Floats  # x* of the class's own fraction of flips
    attention: Floats  # mean attention of its clean samples on the signal, at the end
    log10_error: Floats  # (R,)
    train_accuracy: Floats  # (R,)
    svm: Bools | None = None  # whether the exact SVM on the same draw selects the signal

    @property
    def on_signal(self) -> Bools:
        return self.attention > 0.5

    @property
    def predicted_by_flow(self) -> float:
        """Fraction of classes whose outcome is x > x*."""
        share: np.float64 = ((self.x > self.threshold) == self.on_signal).mean()
        return share

    @property
    def predicted_by_margin(self) -> float:
        """Fraction of classes whose outcome is the maximum-margin rule x > 1."""
        share: np.float64 = ((self.x > 1) == self.on_signal).mean()
        return share


def _svm_fates(sample: Sample) -> Bools:
    """(R, 2): the exact SVM over the class-level selections puts the clean samples of class k on their signal."""
    return np.array([[letter == "S" for letter in _best(sample, r)] for r in range(sample.runs)])


def _best(sample: Sample, run: int) -> str:
    return best_pattern(pattern_costs(tokens_of(sample, run), ("XX", "XS", "SX", "SS")))


@checks.checked
def class_fates(
    laws: Sequence[SignalNoiseLaw], schedule: Schedule, *, draws: int = 10, seed: int = 0, svm: bool = False
) -> Fates:
    """Train `draws` training sets of every law (one n and d) through a schedule; law i takes the runs i*draws, ... of the seed.

    svm: also solve the maximum-margin problem of every draw exactly. Raises ValueError for a bad argument or a class without clean
    samples.
    """
    samples, whole = side_by_side(laws, draws, seed)
    clean, noisy = (count.numpy() for count in whole.counts())
    threshold = own_thresholds(clean, noisy)
    path = train(whole, schedule)
    found = fates_of(samples, whole, path, threshold)
    return replace(found, svm=np.concatenate([_svm_fates(sample) for sample in samples])) if svm else found


def strengths(samples: Sequence[Sample], whole: Sample) -> tuple[Floats, Floats]:
    """x and the fraction of flips of every class, (R, 2) each, of samples and of all of them stacked."""
    clean, noisy = (count.numpy() for count in whole.counts())
    norms = np.repeat([sample.law.signal_norm for sample in samples], [sample.runs for sample in samples])[:, None]
    return norms**2 * clean / whole.law.d, noisy / (clean + noisy)


def fates_of(samples: Sequence[Sample], whole: Sample, path: Trajectory, threshold: Floats) -> Fates:
    """Of the last step of a training of the stacked samples, and the thresholds of its classes."""
    errors = [
        log10_clean_error(path.v[-1, block], path.p[-1, block], sample)
        for sample, block in zip(samples, blocks(samples), strict=True)
    ]
    return Fates(
        *strengths(samples, whole),
        threshold=threshold,
        attention=class_attention(whole, path.attention_on_signal[-1]).numpy(),
        log10_error=torch.cat(errors).numpy(),
        train_accuracy=path.train_accuracy[-1].numpy(),
    )


# --- trajectories ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """One law's training over recorded steps S: arrays (S, draws)."""

    steps: Ints  # (S,)
    log10_error: Floats
    train_accuracy: Floats
    attention_clean: Floats
    attention_noisy: Floats  # nan in a draw without flipped samples
    flipped: Ints  # (draws,), the number of flipped samples

    def at(self, step: int) -> int:
        """Row of a recorded step. Raises ValueError when it was not recorded."""
        if step not in self.steps:
            raise ValueError(f"step must be a recorded one; got {step!r}: pass it in record")
        return int(np.flatnonzero(self.steps == step)[0])


def _course(path: Trajectory, sample: Sample, block: slice) -> Course:
    errors = [log10_clean_error(v[block], p[block], sample) for v, p in zip(path.v, path.p, strict=True)]
    kept = (path.train_accuracy, path.attention_clean, path.attention_noisy)
    flipped = sample.noisy.sum(1).numpy()
    return Course(
        np.array(path.steps), torch.stack(errors).numpy(), *(part[:, block].numpy() for part in kept), flipped
    )


def course_of_training(
    laws: Sequence[SignalNoiseLaw],
    step_size: float,
    steps: int,
    *,
    draws: int = 5,
    seed: int = 0,
    attention_step_size: float | None = None,
    record: Sequence[int] | None = None,
) -> list[Course]:
    """Trajectories of several laws of one n and d, the same draws of labels and noise for each, trained as one batch.

    attention_step_size: as in `gram_descent`; 0 freezes attention (logistic regression on token means).
    record: steps to keep; `log_steps(steps)` when left out. Raises ValueError for a bad argument.
    """
    samples, whole = side_by_side(laws, draws, seed, same=True)
    record = log_steps(steps) if record is None else record
    path = gram_descent(whole, step_size, steps, attention_step_size=attention_step_size, record=record)
    return [_course(path, sample, block) for sample, block in zip(samples, blocks(samples), strict=True)]


def margin_course(
    law: SignalNoiseLaw, step_size: float, steps: int, *, draws: int = 5, seed: int = 0
) -> tuple[Ints, Floats, list[str]]:
    """The normalised margin min_i y_i f_i / |v| over the best one, 1/|v_mm| of the exact SVM over class-level selections.

    Returns recorded steps (S,), ratios (S, draws) and the best selection of each draw. At most 1 for every (v, p).
    """
    sample = law.draw(seed, checks.whole_number("draws", draws, at_least=1))
    best = [_best(sample, r) for r in range(draws)]
    tokens = [tokens_of(sample, r) for r in range(draws)]
    margins = [selection_margin(t, _selection(t, pattern)).margin for t, pattern in zip(tokens, best, strict=True)]
    path = gram_descent(sample, step_size, steps, record=log_steps(steps))
    ratio = path.margins.amin(-1) / path.v.norm(dim=-1) / torch.tensor(margins, dtype=torch.float64)
    return np.array(path.steps), ratio.numpy(), best


def started_at_random(
    law: SignalNoiseLaw, sizes: Sequence[float], step_size: float, steps: int, *, draws: int = 5, seed: int = 0,
    record: Sequence[int] | None = None,
) -> list[Course]:  # fmt: skip
    """Trajectories from v_0, p_0 Gaussian of expected norm `size` (0: from zero), the same draws and directions for every size."""
    sample = law.draw(seed, checks.whole_number("draws", draws, at_least=1), start_vectors=2)
    record = log_steps(steps) if record is None else record
    courses = []
    for size in sizes:
        start = None if size == 0 else gaussian_start(sample, size / math.sqrt(law.d))
        path = gram_descent(sample, step_size, steps, start=start, record=record)
        courses.append(_course(path, sample, slice(0, draws)))
    return courses


Moves = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def collected_moves(trainings: Iterable[tuple[torch.Tensor, float, torch.Tensor]]) -> Moves:
    """Of trainings (x of the classes (R, K) spread over samples (R, n), a step size, weights (S + 1, R, n)): x of every sample of every run
    of each training (N,), the moves of its weight in each step (N, S), and its step size (N,)."""
    own, sizes, weights = zip(*trainings, strict=True)
    steps = torch.cat([torch.full((x.numel(),), size, dtype=torch.float64) for x, size in zip(own, sizes, strict=True)])
    moves = [weight.diff(dim=0).permute(1, 2, 0).flatten(0, 1) for weight in weights]
    return torch.cat([x.flatten() for x in own]), torch.cat(moves), steps


def without_flips(xs: Sequence[float], seed: int) -> Iterator[tuple[Sample, torch.Tensor]]:
    """For every x two draws of twenty samples with orthogonal noise and no flips, and each sample's own x, (2, 20)."""
    for i, x in enumerate(xs):
        law = law_at(x, 20, 4000, 0.0)
        sample = orthogonal_sample(law, seed + i, 2)
        yield sample, (law.signal_norm**2 * sample.counts()[0] / law.d).gather(1, sample.signal_class)


def orthogonal_sample(law: SignalNoiseLaw, seed: int = 0, runs: int = 1) -> Sample:
    """Draws whose noise tokens are exactly orthogonal with squared norm d: the mean-field data, for checks of exact statements.

    Raises ValueError unless d >= n + 2 and T = 2.
    """
    if law.tokens != 2 or law.d < law.n + 2:
        raise ValueError(f"law must have two tokens and d >= n + 2; got {law.tokens} tokens, n = {law.n}, d = {law.d}")
    sample = law.draw(seed, runs)
    tokens = sample.tokens.clone()
    tokens[:, :, 1, 2:] = math.sqrt(law.d) * torch.eye(law.n, dtype=tokens.dtype)
    return replace(sample, tokens=tokens)
