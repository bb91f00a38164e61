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

from collections.abc import Iterable, Sequence

import torch

from attnlib.token_selection.gram import Gram, check_gram
from attnlib.token_selection.model import forces
from attnlib.token_selection.plan import TrainingPlan, plan_of
from attnlib.token_selection.trajectory import Trajectory, join_runs

__all__ = ["Recursion", "train"]

_CHUNK = 16  # runs at once: beyond that the matrices leave the caches and a step costs more


class Recursion:
    """R trainings in lockstep, advanced one step at a time. Holds (2 + 3 N + 1) N numbers per run."""

    def __init__(self, gram: Gram, *, trains_weight: bool = True, trains_prompt: bool = True) -> None:
        self.gram = check_gram(gram)
        self.trains_weight, self.trains_prompt = trains_weight, trains_prompt
        runs, rows, N = gram.kernel.shape
        self._N, self._rows = N, rows
        new = gram.kernel.new_zeros
        self._pair = new(runs, rows + 2 * N + 1, 2)  # columns: u and kappa
        self._u, self._kappa = self._pair[..., 0], self._pair[..., 1]
        self._u[:, :rows], self._u[:, -1] = gram.scores, 1.0
        self._S = new(runs, rows + 2 * N + 1, N)
        self._S[:, :rows] = gram.weighted
        self._S[:, rows + N : rows + 2 * N].diagonal(dim1=1, dim2=2).fill_(1.0)
        self.prompt_norm_squared = gram.prompt_norm_squared.clone()
        self.time = new(runs)

    @property
    def scores(self) -> torch.Tensor:
        """(R, n, T): z of the training tokens (a view)."""
        return self._u[:, : self._N].unflatten(1, (self.gram.law.n, self.gram.law.tokens))

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
        (a, b, q), g, N = self.coordinates, self.gram, self._N

        def form(left: torch.Tensor, matrix: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return torch.einsum("ri,rij,rj->r", left, matrix, right)

        along = (a * g.scores[:, :N]).sum(1) + (b * g.scores_weighted).sum(1)
        return (
            form(a, g.kernel[:, :N], a) + form(b, g.weighted_twice, b) + 2 * form(a, g.weighted[:, :N], b)
            + q**2 * g.direction_norm_squared + 2 * q * along
        )  # fmt: skip

    def pull(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """c, Kc and Sc at the current point: (R, N), (R, N + 2), (R, 2 + 3 N + 1)."""
        c = forces(self.scores, self.gram.head_scores, self.gram.labels.observed).flatten(1)
        column = c.unsqueeze(-1)
        return c, torch.bmm(self.gram.kernel, column).squeeze(-1), torch.bmm(self._S, column).squeeze(-1)

    def advance(self, step_size: torch.Tensor | float, pull: tuple[torch.Tensor, ...] | None = None) -> None:
        """One step of gradient descent; `step_size` may differ from run to run, (R,)."""
        c, k, Sc = self.pull() if pull is None else pull
        alpha = step_size.unsqueeze(-1) if isinstance(step_size, torch.Tensor) else step_size
        N, rows, z = self._N, self._rows, self._u[:, : self._N]
        pi = self.prompt_norm_squared.unsqueeze(-1)
        self._kappa[:, :rows], self._kappa[:, rows : rows + N] = k, c
        if self.trains_weight and self.trains_prompt:
            beta = torch.linalg.vecdot(c, z).unsqueeze(-1)
            on_training = alpha * k[:, :N]
            right = torch.stack([on_training, alpha * torch.addcmul(z, pi, on_training)], dim=1)
            self._S.baddbmm_(self._pair, right)
            step = torch.addcmul(alpha * Sc, alpha * (pi + alpha * beta), self._kappa)
        else:
            step = alpha * Sc if self.trains_prompt else alpha * pi * self._kappa
        if self.trains_prompt:
            growth = 2 * torch.linalg.vecdot(c, z) + step_size * torch.linalg.vecdot(c, Sc[:, :N])
            self.prompt_norm_squared = self.prompt_norm_squared + step_size * growth
        self._u += step
        self.time = self.time + step_size

    def snapshot(self) -> tuple[torch.Tensor, ...]:
        """A row of a `Trajectory`: time, scores, v on the signals, |v|^2, |p|^2, as copies."""
        return (
            self.time.clone(), self.scores.clone(), self.direction_on_signals.clone(), self.direction_norm_squared,
            self.prompt_norm_squared.clone(),
        )  # fmt: skip

    def trajectory(self, steps: Sequence[int], rows: list[tuple[torch.Tensor, ...]]) -> Trajectory:
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
    """Train every run for `steps` full-batch steps, exactly as `gradient_descent` on the dense vectors.

    Args:
        gram: inner products of R training sets with their starts.
        step_size: alpha > 0, or one per step.
        steps: >= 0.
        record: steps to keep, default all; the last is always kept.
        trained: "both", "p" (W stays) or "W" (p stays).

    Returns a `Trajectory`, float64, on the Gram's device. Raises ValueError for a bad argument before any work.
    """
    plan = plan_of(step_size, steps, record, trained)
    gram = check_gram(gram)
    cuts = range(0, gram.runs, _CHUNK)
    return join_runs([_train(gram.part(first, first + _CHUNK), plan) for first in cuts])


def _train(gram: Gram, plan: TrainingPlan) -> Trajectory:
    rows = []
    with torch.inference_mode():  # no bookkeeping for autograd: a fifth of a small step's time
        state = Recursion(gram, trains_weight=plan.trains_weight, trains_prompt=plan.trains_prompt)
        for step in range(plan.steps + 1):
            if step in plan.kept:
                rows.append(state.snapshot())
            if step < plan.steps:
                state.advance(plan.step_sizes[step])
    return state.trajectory(plan.recorded, rows)
