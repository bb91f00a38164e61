r"""The train/test leak of the authors' public code, made again on purpose.

That code makes the training set and the test set from two numpy generators with the *same* seed, noise first. Test sample i < n
therefore carries exactly the noise of training sample i, under a clean label and the signals of its own class. A head that
memorised training noise is tested on it. Source: authors' code (public repository, configuration of the synthetic experiment).

This module is the only place of the package that shares draws between training and test; everything else uses
`attnlib.randomness`, whose roles cannot collide.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from attnlib import checks
from attnlib.token_selection.gram import gram_of
from attnlib.token_selection.law import CODE_START, Labels, Sample, Start, TokenLaw
from attnlib.token_selection.population import population_along
from attnlib.token_selection.training import Recursion, Trajectory

LARGEST_D = 12_000  # of W_0 as a matrix: 1.2 GB
_CHUNK = 50  # test samples held at once


@dataclass(frozen=True)
class LeakedTest:
    """One run, tested on the authors' test set and on points that share nothing with training."""

    flipped: tuple[int, ...]  # training samples with a flipped label
    wrong: tuple[int, ...]  # misclassified samples of the leaked test set
    wrong_fresh: int  # misclassified among as many fresh points
    test_size: int
    fresh_error: float  # over the whole law, from the scores
    train_accuracy: float
    margins: torch.Tensor  # (test_size,): Y* f on the leaked test set
    trajectory: Trajectory  # of the training, at the recorded steps

    @property
    def reported_accuracy(self) -> float:
        """What the authors' evaluation reports."""
        return 1 - len(self.wrong) / self.test_size

    @property
    def fresh_accuracy(self) -> float:
        return 1 - self.wrong_fresh / self.test_size


def _noise(law: TokenLaw, seed: int, count: int) -> Iterator[torch.Tensor]:
    """The first `count` samples' noise of the generator with this seed, in chunks (m, T, d), in the order of roles of `TokenLaw`.

    The code stores its confusing token behind the same-class one; here it comes before.
    """
    rng = np.random.default_rng(seed)
    order = [
        0,
        1 + law.same_class_tokens,
        *range(1, 1 + law.same_class_tokens),
        *range(2 + law.same_class_tokens, law.tokens),
    ]
    for first in range(0, count, _CHUNK):
        chunk = rng.standard_normal((min(_CHUNK, count - first), law.tokens, law.d))
        yield law.noise_std * torch.as_tensor(chunk)[:, order]


def leaked_sample(law: TokenLaw, seed: int) -> Sample:
    """The authors' training set of a seed, in float64 (theirs is rounded to float32): one run, balanced labels.

    Raises ValueError unless labels are balanced and n is even, as in their code.
    """
    if not law.balanced or law.n % 2:
        raise ValueError(
            f"law must have balanced labels and an even n, as in the authors' code; got n = {law.n}, balanced = {law.balanced}"
        )
    checks.whole_number("seed", seed, at_least=0)
    labels = law.draw_labels(seed)
    tokens = torch.cat(list(_noise(law, seed, law.n))).unsqueeze(0)
    tokens[..., :2] += law.means(labels.true)
    return Sample(law, seed, 0, tokens, labels)


def leaked_test(
    law: TokenLaw,
    seed: int,
    step_size: float,
    steps: int,
    *,
    test_size: int = 1000,
    start: Start = CODE_START,
    record: Iterable[int] = (),
) -> LeakedTest:
    """Train on `leaked_sample`, test as the authors do and as one should.

    Args:
        law: balanced, n even; d^2 numbers are held for W_0, so d <= `LARGEST_D`.
        seed: of both sets, as theirs.
        step_size, steps: of gradient descent.
        test_size: samples of the leaked test set, an even number >= n: the first half has class +1. As many fresh points.
        start: law of W_0 and p_0, from the stream of the seed (theirs is not seeded).
        record: steps of the trajectory to keep; the last is always kept.

    Raises ValueError for a bad argument before any work.
    """
    alpha = checks.positive_number("step_size", step_size)
    checks.whole_number("steps", steps, at_least=0)
    if checks.whole_number("test_size", test_size, at_least=law.n) % 2:
        raise ValueError(f"test_size must be even, half of each class; got {test_size}: use {test_size + 1}")
    if law.d > LARGEST_D:
        raise ValueError(
            f"d must be <= {LARGEST_D}, W_0 is held whole here; got {law.d}: lower d, or leave the leak out"
        )
    sample = leaked_sample(law, seed)
    state = Recursion(gram_of(sample, start))
    kept, rows = sorted({*(step for step in record if step <= steps), steps}), []
    for step in range(steps + 1):
        if step in kept:
            rows.append(state.snapshot())
        if step < steps:
            state.advance(alpha)
    trajectory = state.trajectory(kept, rows)
    v = _direction(sample, start, state)
    true = torch.ones(test_size, dtype=torch.float64)
    true[test_size // 2 :] = -1
    outputs = []
    for first, noise in zip(range(0, test_size, _CHUNK), _noise(law, seed, test_size), strict=True):
        noise[..., :2] += law.means(true[first : first + len(noise)])
        outputs.append(_outputs(noise, v, sample.head))
    leaked = torch.cat(outputs)
    return LeakedTest(
        flipped=_where(sample.labels),
        wrong=tuple(torch.nonzero(leaked * true <= 0).flatten().tolist()),
        wrong_fresh=_wrong_fresh(law, seed, v, sample.head, test_size),
        test_size=test_size,
        fresh_error=population_along(trajectory, rows=[-1]).error.item(),
        train_accuracy=trajectory.train_accuracy()[-1].item(),
        margins=leaked * true,
        trajectory=trajectory,
    )


def _where(labels: Labels) -> tuple[int, ...]:
    return tuple(torch.nonzero(labels.noisy[0]).flatten().tolist())


def _direction(sample: Sample, start: Start, state: Recursion) -> torch.Tensor:
    """v = X^T a + M_0 X^T b + q v_0 as a vector, (d,)."""
    a, b, q = (x[0] for x in state.coordinates)
    rows = sample.tokens[0].flatten(0, 1)
    weight, prompt = start.draw(sample.law.d, sample.seed, sample.first_run)
    return rows.mT @ a + weight.mT @ (weight @ (rows.mT @ b) + q * prompt)


def _outputs(tokens: torch.Tensor, v: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    return (torch.softmax(tokens @ v, -1) * (tokens @ head)).sum(-1)


def _wrong_fresh(law: TokenLaw, seed: int, v: torch.Tensor, head: torch.Tensor, count: int) -> int:
    wrong = 0
    for run, first in enumerate(range(0, count, _CHUNK)):
        tokens, labels = law.draw_fresh(min(_CHUNK, count - first), seed, run=run)
        wrong += int((_outputs(tokens, v, head) * labels <= 0).sum())
    return wrong
