r"""Gradient descent without vectors: the same steps as `descent`, at a cost per step of $O((nT)^2)$ in any dimension.

Let a *probe* be any vector $y$, and keep for every probe its score $u = y^\top v$ with $v=W^\top p$ and its row
$S = y^\top W^\top W X^\top$; let $\kappa = y^\top G$ with $G = X^\top c$. Then, with $k = Kc$ on the training rows and
$\beta = v^\top G = c^\top z$,

$$ u \leftarrow u + \alpha\,Sc + \alpha(\pi+\alpha\beta)\,\kappa, \qquad
   S \leftarrow S + \alpha\,u\,k^\top + \alpha\,\kappa\,(z+\alpha\pi k)^\top, \qquad
   \pi \leftarrow \pi + 2\alpha\beta + \alpha^2 c^\top H c, $$

all from the old values: exactly gradient descent, for any step sizes. Probing with the training tokens gives the scores $z$ and
$H$; with the unit signals, what fresh data see; and the coordinates of $v = X^\top a + M_0X^\top b + q v_0$ obey the same rule as
three more groups of probes with start $S = 0, I, 0$ and $\kappa = c, 0, 0$. So one matrix of $2 + 3N + 1$ rows carries everything,
and $|v|^2$ is a quadratic form in $(a, b, q)$. Source: derived in the theory chapter of Part II; equality with the dense trainer
to $10^{-10}$ is a test.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import torch

from attnlib.kernels import token_selection
from attnlib.kernels.batches import in_batches
from attnlib.kernels.token_selection import reference
from attnlib.token_selection.gram import Gram, check_gram
from attnlib.token_selection.plan import TrainingPlan, plan_of
from attnlib.token_selection.trajectory import Trajectory, join_runs

__all__ = ["Pull", "Recursion", "Snapshot", "train"]

Pull = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # c, Kc, Sc
Snapshot = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # as `Recursion.snapshot` says

_CHUNK = 16  # runs at once on the CPU: beyond that the matrices leave the caches and a batched step costs more
_MOMENTS = 256  # recorded moments of one call of the loop
_COPIES = 3  # of a run's state: itself, the packed one of a GPU program, temporary ones


class Recursion:
    """R trainings in lockstep, advanced one step at a time. Holds (2 + 3 N + 1) N numbers per run."""

    def __init__(self, gram: Gram, *, trains_weight: bool = True, trains_prompt: bool = True) -> None:
        self.gram = check_gram(gram)
        self.trained = {(True, True): "both", (False, True): "p", (True, False): "W"}[trains_weight, trains_prompt]
        runs, rows, N = gram.kernel.shape
        self._N, self._rows = N, rows
        new = gram.kernel.new_zeros
        self._u = new(runs, rows + 2 * N + 1)
        self._u[:, :rows], self._u[:, -1] = gram.scores, 1.0
        self._S = new(runs, rows + 2 * N + 1, N)
        self._S[:, :rows] = gram.weighted
        self._S[:, rows + N : rows + 2 * N].diagonal(dim1=1, dim2=2).fill_(1.0)
        self.prompt_norm_squared = gram.prompt_norm_squared.clone()
        self.time = new(runs)

    @property
    def scores(self) -> torch.Tensor:
        """(R, n, T): z of the training tokens (a view)."""
        scores: torch.Tensor = self._u[:, : self._N].unflatten(1, (self.gram.law.n, self.gram.law.tokens))
        return scores

    @property
    def direction_on_signals(self) -> torch.Tensor:
        """(R, 2): v along the two unit signals (a view)."""
        return self._u[:, self._N : self._rows]

    @property
    def weighted(self) -> torch.Tensor:
        """(R, N + 2, N): H = X~ W^T W X^T (a view). Stays at H_0 when only p is trained; not kept when only W is."""
        return self._S[:, : self._rows]

    @property
    def coordinates(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(a, b, q), (R, N), (R, N), (R,): v = X^T a + M_0 X^T b + q v_0."""
        u, N, rows = self._u, self._N, self._rows
        return u[:, rows : rows + N], u[:, rows + N : rows + 2 * N], u[:, -1]

    @property
    def direction_norm_squared(self) -> torch.Tensor:
        """(R,): |v|^2."""
        return self._norm_squared(self._u.unsqueeze(1)).squeeze(1)

    def _norm_squared(self, u: torch.Tensor) -> torch.Tensor:
        """(R, M): |v|^2 at M moments, from the probes' values (R, M, P)."""
        g, N = self.gram, self._N
        a, b, q = u[..., self._rows : self._rows + N], u[..., -N - 1 : -1], u[..., -1]
        along = torch.einsum("rmi,ri->rm", a, g.scores[:, :N]) + torch.einsum("rmi,ri->rm", b, g.scores_weighted)
        return (
            (a @ g.kernel[:, :N] * a).sum(-1)
            + (b @ g.weighted_twice * b).sum(-1)
            + 2 * (a @ g.weighted[:, :N] * b).sum(-1)
            + q**2 * g.direction_norm_squared.unsqueeze(1)
            + 2 * q * along
        )

    def pull(self) -> Pull:
        """c, Kc and Sc at the current point: (R, N), (R, N + 2), (R, 2 + 3 N + 1)."""
        g = self.gram
        return reference.pull(self._u, self._S, g.kernel, g.head_scores, g.labels.observed)

    def advance(self, step_size: torch.Tensor | float, pull: Pull | None = None) -> None:
        """One step of gradient descent; `step_size` may differ from run to run, (R,)."""
        state = self._u, self._S, self.prompt_norm_squared
        reference.step(*state, self.pull() if pull is None else pull, step_size, self.trained)
        self.time = self.time + step_size

    def run(self, plan: TrainingPlan) -> list[Snapshot]:
        """All steps of a plan in the fastest way here; a row like `snapshot` for every recorded step.

        One call of the loop for every so many rows: all coordinates of a moment are kept until its |v|^2 is known.
        """
        g, state = self.gram, (self._u, self._S, self.prompt_norm_squared)
        call = token_selection.Call(
            *state, g.kernel, g.head_scores, g.labels.observed, plan.step_sizes, plan.steps, trained=self.trained,
            record=plan.recorded,
        )  # fmt: skip
        times = list(itertools.accumulate(plan.step_sizes, lambda time, size: time + size, initial=self.time))
        rows: list[Snapshot] = []
        done = 0
        for first in range(0, len(plan.recorded), _MOMENTS):
            marks = plan.recorded[first : first + _MOMENTS]
            seen = token_selection.advance(call.piece(done, marks))
            done = marks[-1]
            norms = self._norm_squared(seen.values.movedim(0, 1)).mT
            for mark, u, norm, pi in zip(marks, seen.values, norms, seen.prompt_norm_squared, strict=True):
                scores = u[:, : self._N].reshape(g.head_scores.shape)
                rows.append((times[mark], scores, u[:, self._N : self._rows], norm, pi))
        self.time = times[-1]
        return rows

    def snapshot(self) -> Snapshot:
        """A row of a `Trajectory`: time, scores, v on the signals, |v|^2, |p|^2, as copies."""
        return (
            self.time.clone(),
            self.scores.clone(),
            self.direction_on_signals.clone(),
            self.direction_norm_squared,
            self.prompt_norm_squared.clone(),
        )

    def trajectory(self, steps: Sequence[int], rows: Sequence[Snapshot]) -> Trajectory:
        """The kept snapshots, taken after `steps` steps, as a `Trajectory`."""
        g = self.gram
        columns = [torch.stack(column) for column in zip(*rows, strict=True)]
        return Trajectory(g.law, g.seed, g.first_run, g.labels, g.head_scores, tuple(steps), *columns)


def train(
    gram: Gram,
    step_size: float | Sequence[float],
    steps: int,
    *,
    record: Iterable[int] | None = None,
    trained: str = "both",
) -> Trajectory:
    r"""Train W and p of every run by full-batch gradient descent, in inner products: exact, at a cost independent of the dimension.

    With the forces $c$, $k = Kc$, $\beta = c^\top z$ and any probe's score $u$ and row $S$ ($\kappa$ its row of $K$ times $c$):

    $$ u \leftarrow u + \alpha\,Sc + \alpha(\pi+\alpha\beta)\,\kappa, \qquad
       S \leftarrow S + \alpha\,u\,k^\top + \alpha\,\kappa\,(z+\alpha\pi k)^\top, \qquad
       \pi \leftarrow \pi + 2\alpha\beta + \alpha^2 c^\top H c $$

    Args:
        gram: inner products of R training sets with their starts.
        step_size: alpha > 0, or one per step.
        steps: >= 0.
        record: steps to keep, default all; the last is always kept.
        trained: "both", "p" (W stays) or "W" (p stays).

    Returns:
        a `Trajectory`, float64, on the Gram's device.

    Raises:
        ValueError: a bad argument, before any work.

    Source:
        derived in `book/token_selection_theory`; the loss and the full batch are those of arXiv 2409.17625.

    Example:
        >>> gram = draw_gram(TokenLaw(n=10, d=500, tokens=4, signal_norm=10.0), seed=0, runs=2)
        >>> train(gram, step_size=0.01, steps=100, record=[10]).steps
        (10, 100)
    """
    plan = plan_of(step_size, steps, record, trained)
    gram = check_gram(gram)
    numbers = gram.kernel.shape[2] * (gram.kernel.shape[1] + 2 * gram.kernel.shape[2] + 1)
    parts: list[Trajectory] = []
    in_batches(
        lambda runs: parts.append(_train(gram.part(runs.start, runs.stop), plan)),
        gram.runs,
        bytes_per_run=_COPIES * numbers * gram.kernel.element_size(),
        device=gram.kernel.device,
        largest=_CHUNK if gram.kernel.device.type == "cpu" else None,
    )
    return join_runs(parts)


def _train(gram: Gram, plan: TrainingPlan) -> Trajectory:
    state = Recursion(gram, trains_weight=plan.trains_weight, trains_prompt=plan.trains_prompt)
    return state.trajectory(plan.recorded, state.run(plan))
