r"""The data law: prompts of linear regression from a few fixed tasks, and the summary $h$ that linear attention sees of them.

Given the task, $h$ needs $d+2$ random numbers whatever the length (derived in the chapter), so it is drawn directly, or from whole prompts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnlib import checks, limits
from attnlib.arrays import Floats
from attnlib.randomness import stream


@dataclass(frozen=True)
class PretrainingSet:
    r"""R pretraining sets of n prompts each, as linear attention sees them.

    $$ h=\Big(\frac dl\sum_{i\le l}y_ix_i,\ \frac1l\sum_{i\le l}y_i^2\Big),\qquad H_Z=x\,h^\top $$

    Source: the features are the authors' code for arXiv 2405.11751; made by `TaskLaw.draw`.
    """

    task_vectors: torch.Tensor  # (R, k, d): the tasks w, each of norm sqrt(d)
    query: torch.Tensor  # (R, n, d): x, the covariate asked for
    summary: torch.Tensor  # (R, n, d+1): h
    target: torch.Tensor  # (R, n): the label of the query, with its noise


@dataclass(frozen=True)
class TaskPrompts:
    """R sets of n whole prompts, made by `TaskLaw.draw_prompts`."""

    x: torch.Tensor  # (R, n, l, d): covariates of the examples
    y: torch.Tensor  # (R, n, l): their labels
    query: torch.Tensor  # (R, n, d)
    target: torch.Tensor  # (R, n): the label of the query, with its noise
    task: torch.Tensor  # (R, n, d): the task of each prompt


@checks.checked
@dataclass(frozen=True)
class TaskLaw:
    r"""Prompts of linear regression from k fixed tasks.

    $$ x\sim N(0,I_d/d),\qquad y_i=\langle w,x_i\rangle+\varepsilon_i,\qquad \varepsilon_i\sim N(0,\rho), $$

    with $l$ examples and one query in a prompt. The k tasks are drawn once, uniformly on the sphere of radius $\sqrt d$; each prompt picks
    one of them with equal probability. A `tasks` of None means a new task in each prompt. Arguments out of range raise ValueError.

    Source:
        the authors' code for arXiv 2405.11751 (`kapparuns/helperfunctions.py` of Pehlevan-Group/icl-asymptotic).

    Example:
        >>> law = TaskLaw(d=16, length=16, tasks=32, noise=0.1)
        >>> law.alpha, law.kappa, round(law.label_variance, 2)
        (1.0, 2.0, 1.1)
    """

    d: int  # dimension of a covariate, >= 1
    length: int  # labelled examples in a prompt, l >= 1
    tasks: int | None  # number of distinct tasks, k >= 1; None: a new task in each prompt
    noise: float  # rho >= 0, the variance of the label noise

    def __post_init__(self) -> None:
        checks.whole_number("d", self.d, at_least=1)
        checks.whole_number("length", self.length, at_least=1, hint="a prompt needs an example to learn from")
        if self.tasks is not None:
            checks.whole_number("tasks", self.tasks, at_least=1)
        if checks.finite_number("noise", self.noise) < 0:
            raise ValueError(f"noise must be >= 0; got {self.noise!r}: it is a variance")

    @property
    def alpha(self) -> float:
        """l/d, the length of a prompt in units of the dimension."""
        return self.length / self.d

    @property
    def kappa(self) -> float:
        """k/d, the number of tasks in units of the dimension; infinite for a new task in each prompt."""
        return math.inf if self.tasks is None else self.tasks / self.d

    @property
    def label_variance(self) -> float:
        """1 + rho, the variance of a label: the error of predicting zero."""
        return 1 + self.noise

    @property
    def features(self) -> int:
        """d (d + 1), the number of entries of Gamma."""
        return self.d * (self.d + 1)

    def draw_tasks(self, seed: int, *, runs: int, first_run: int = 0) -> torch.Tensor:
        """The tasks of R runs, (R, k, d), from the streams (seed, "signals", run). A law without a number of tasks raises ValueError."""
        if self.tasks is None:
            raise ValueError("tasks must be a whole number >= 1 to draw them; got None: a new task in each prompt")
        return torch.as_tensor(np.stack([
            _sphere(stream(seed, "signals", run), (self.tasks, self.d)) for run in _runs(seed, runs, first_run)
        ]))  # fmt: skip

    def draw(self, prompts: int, seed: int, *, runs: int, first_run: int = 0) -> PretrainingSet:
        """R pretraining sets of n prompts, drawn by their summaries. ValueError for a number out of range, or more tasks than prompts."""
        checks.whole_number("prompts", prompts, at_least=1)
        if prompts < (self.tasks or 1):
            raise ValueError(
                f"prompts must be at least the number of tasks, {self.tasks}; got {prompts}: some would have none"
            )
        numbers, d = _runs(seed, runs, first_run), self.d
        limits.require_memory(lambda prompts, runs: 32 * prompts * runs * d, prompts=prompts, runs=runs)
        sets = [self._summaries(prompts, seed, run) for run in numbers]
        return PretrainingSet(*(torch.as_tensor(np.stack(parts)) for parts in zip(*sets, strict=True)))

    def draw_prompts(
        self, prompts: int, seed: int, *, runs: int, first_run: int = 0, task_vectors: torch.Tensor | None = None
    ) -> TaskPrompts:
        """R sets of n whole prompts, from the streams (seed, "test", run); their tasks are picked among `task_vectors` (R, k, d), or new.

        ValueError for a number out of range or tasks of another shape.
        """
        checks.whole_number("prompts", prompts, at_least=1)
        numbers, L, d = _runs(seed, runs, first_run), self.length, self.d
        limits.require_memory(lambda prompts, runs: 16 * prompts * runs * (L + 1) * d, prompts=prompts, runs=runs)
        if task_vectors is not None:
            checks.tensor("task_vectors", task_vectors, (runs, "k", self.d))
        sets = []
        for place, run in enumerate(numbers):
            random = stream(seed, "test", run)
            if task_vectors is None:
                task = _sphere(random, (prompts, self.d))
            else:
                known = task_vectors[place].numpy()
                task = known[random.integers(0, len(known), prompts)]
            x = random.standard_normal((prompts, self.length + 1, self.d)) / math.sqrt(self.d)
            noise = random.standard_normal((prompts, self.length + 1)) * math.sqrt(self.noise)
            y = np.einsum("nld,nd->nl", x, task) + noise
            sets.append((x[:, :-1], y[:, :-1], x[:, -1], y[:, -1], task))
        return TaskPrompts(*(torch.as_tensor(np.stack(parts)) for parts in zip(*sets, strict=True)))

    def _summaries(self, n: int, seed: int, run: int) -> tuple[Floats, Floats, Floats, Floats]:
        random, d, variance = stream(seed, "noise", run), self.d, self.label_variance
        if self.tasks is None:
            known = _sphere(stream(seed, "signals", run), (n, d))
            task = known
        else:
            known = _sphere(stream(seed, "signals", run), (self.tasks, d))
            task = known[stream(seed, "positions", run).integers(0, self.tasks, n)]
        query = random.standard_normal((n, d)) / math.sqrt(d)
        squares = variance * random.chisquare(self.length, (n, 1))  # sum of y_i^2
        normal = random.standard_normal((n, d))
        along = (normal * task).sum(-1, keepdims=True) / d * task
        rest = normal - (1 - math.sqrt(self.noise / variance)) * along
        products = squares / (d * variance) * task + np.sqrt(squares / d) * rest  # sum of y_i x_i
        summary = np.concatenate([d / self.length * products, squares / self.length], axis=-1)
        target = (query * task).sum(-1) + math.sqrt(self.noise) * random.standard_normal(n)
        return known, query, summary, target


def summary_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    r"""What linear attention sees of examples x (..., l, d), y (..., l): $h=(\frac dl\sum y_ix_i,\frac1l\sum y_i^2)$, (..., d+1)."""
    length, d = x.shape[-2:]
    products = torch.einsum("...ld,...l->...d", x, y)
    return torch.cat([d / length * products, y.square().mean(-1, keepdim=True)], dim=-1)


def _runs(seed: int, runs: int, first_run: int) -> range:
    checks.origin(seed, runs, first_run)
    return range(first_run, first_run + runs)


def _sphere(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Rows uniform on the sphere of radius sqrt(d)."""
    rows: Floats = random.standard_normal(shape)
    rows *= math.sqrt(shape[1]) / np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows
