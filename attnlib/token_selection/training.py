r"""Gradient descent in inner products instead of vectors: exact, at a cost per step of $O((nT)^2)$ in any dimension.

Let a *probe* be any vector $y$; its score $u = y^\top v$ with $v=W^\top p$ and its row $S = y^\top W^\top W X^\top$ obey the rule
that `train` shows, all from the old values, with $\kappa = y^\top X^\top c$: exactly gradient descent, for any step sizes.
Probing with the training tokens gives the scores $z$ and $H$; with the unit signals, what fresh data see; and the coordinates of
$v = X^\top a + M_0X^\top b + q v_0$ obey the same rule as three more groups of probes with start $S = 0, I, 0$ and $\kappa = c,
0, 0$. So one matrix of $2 + 3N + 1$ rows carries everything, and $|v|^2$ is a quadratic form in $(a, b, q)$. Source: derived in
the theory chapter of Part II; equality with the dense trainer to $10^{-10}$ is a test.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import torch

from attnlib import checks, limits
from attnlib.device import one_thread
from attnlib.divergence import require_finite
from attnlib.kernels import token_selection
from attnlib.kernels.batches import in_batches
from attnlib.kernels.token_selection import reference
from attnlib.token_selection.gram import Gram
from attnlib.token_selection.law import Labels, TokenLaw
from attnlib.token_selection.model import loss, outputs

Pull = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # c, Kc, Sc
Snapshot = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # as `Recursion.snapshot` says

_CHUNK = 16  # runs at once on the CPU: beyond that the matrices leave the caches and a batched step costs more
_MOMENTS = 256  # recorded moments of one call of the loop
_COPIES = 3  # of a run's state: itself, the packed one of a GPU program, temporary ones


@dataclass(frozen=True)
class Trajectory:
    """S recorded moments of R trainings of n samples with T tokens; all tensors float64.

    On fresh data the output depends on v = W^T p only through its components along the two unit signals and its norm.

    Source:
        this book; made by `train`.

    Example:
        >>> gram = draw_gram(TokenLaw(n=10, d=500, tokens=4, signal_norm=10.0), seed=0, runs=2)
        >>> train(gram, step_size=0.01, steps=5).attention_of("noisy").shape
        torch.Size([6, 2, 4])
    """

    law: TokenLaw  # of the training data
    seed: int  # of the random streams
    first_run: int  # number of the first of the R runs
    labels: Labels  # (R, n)
    head_scores: torch.Tensor  # (R, n, T), gamma
    steps: tuple[int, ...]  # (S,)
    time: torch.Tensor  # (S, R), sum of the step sizes so far
    scores: torch.Tensor  # (S, R, n, T), z
    direction_on_signals: torch.Tensor  # (S, R, 2), v . mu_+ / |mu| and v . mu_- / |mu|
    direction_norm_squared: torch.Tensor  # (S, R), |v|^2
    prompt_norm_squared: torch.Tensor  # (S, R), |p|^2

    @property
    def runs(self) -> int:
        """R, the number of trainings."""
        return self.scores.shape[1]

    def at(self, step: int) -> int:
        """Row of a recorded step. Raises ValueError when it was not recorded."""
        if step not in self.steps:
            raise ValueError(f"step must be one of the recorded steps; got {step!r}: pass record=[..., {step!r}]")
        return self.steps.index(step)

    @property
    def attention(self) -> torch.Tensor:
        """(S, R, n, T): softmax weights of every training token."""
        return torch.softmax(self.scores, -1)

    @property
    def outputs(self) -> torch.Tensor:
        """(S, R, n): f of every training sample."""
        return outputs(self.scores, self.head_scores)

    @property
    def loss(self) -> torch.Tensor:
        """(S, R): training loss, mean of log(1 + exp(-Y f))."""
        return loss(self.outputs, self.labels.observed)

    def attention_of(self, kind: str) -> torch.Tensor:
        """(S, R, T): mean attention of the "clean" or "noisy" training samples on each token; nan without any."""
        return self.labels.mean_over(kind, self.attention.movedim(-1, 0)).movedim(0, -1)

    def train_accuracy(self, kind: str = "all") -> torch.Tensor:
        """(S, R): fraction of "all", "clean" or "noisy" samples with Y f > 0, Y the observed label; nan without any."""
        checks.one_of("kind", kind, ("all", "clean", "noisy"))
        fitted = (self.outputs * self.labels.observed > 0).double()
        return fitted.mean(-1) if kind == "all" else self.labels.mean_over(kind, fitted)


_PER_RUN = {"time": 1, "scores": 1, "direction_on_signals": 1, "direction_norm_squared": 1, "prompt_norm_squared": 1,
            "head_scores": 0}  # fmt: skip


def join_runs(parts: list[Trajectory]) -> Trajectory:
    """Trajectories of one law and the same recorded steps, as one with all their runs."""
    own = {f.name: getattr(parts[0], f.name) for f in fields(Trajectory)}
    joined = {name: torch.cat([getattr(p, name) for p in parts], dim=axis) for name, axis in _PER_RUN.items()}
    labels = Labels(*(torch.cat([getattr(p.labels, k) for p in parts]) for k in ("true", "observed")))
    return Trajectory(**own | joined | {"labels": labels})


class Recursion:
    """R trainings in lockstep, advanced one step at a time. Holds (2 + 3 N + 1) N numbers per run.

    `trained`: "both", or "p" (W stays) for steps by `advance`.
    """

    def __init__(self, gram: Gram, *, trained: str = "both") -> None:
        self.gram, self.trained = gram, trained
        runs, rows, N = gram.kernel.shape
        self._N, self._rows = N, rows
        new = gram.kernel.new_zeros
        # Probes: N training tokens, 2 unit signals, then the coordinates a (N), b (N) and q of v. u holds their scores ...
        self._u = new(runs, rows + 2 * N + 1)
        self._u[:, :rows], self._u[:, -1] = gram.scores, 1.0
        # ... and S their rows of W^T W X^T: H_0 for tokens and signals, 0 for a, the unit matrix for b, 0 for q.
        self._S = new(runs, rows + 2 * N + 1, N)
        self._S[:, :rows] = gram.weighted
        self._S[:, rows + N : rows + 2 * N].diagonal(dim1=1, dim2=2).fill_(1.0)
        self.prompt_norm_squared = gram.prompt_norm_squared.clone()
        self.time = new(runs)

    @property
    def state(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What steps change in place: u (R, 2 + 3 N + 1), S (R, 2 + 3 N + 1, N) and |p|^2 (R,)."""
        return self._u, self._S, self.prompt_norm_squared

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
        """(R, N + 2, N): H = X~ W^T W X^T (a view). Stays at H_0 when only p is trained."""
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
        return reference.pull(self._u, self._S, g.kernel, g.head_scores, g.labels.observed, self.trained)

    def advance(self, step_size: torch.Tensor | float, pull: Pull | None = None) -> None:
        """One step of gradient descent; `step_size` may differ from run to run, (R,)."""
        reference.step(*self.state, self.pull() if pull is None else pull, step_size, self.trained)
        self.time = self.time + step_size

    def run(self, step_sizes: Sequence[float], recorded: tuple[int, ...]) -> list[Snapshot]:
        """Make all steps by the fastest implementation; returns a row like `snapshot` for each recorded step.

        One call of the loop for every so many rows: all coordinates of a moment are kept until its |v|^2 is known.
        """
        if self.trained != "both":
            raise ValueError(f'trained must be "both" here; got {self.trained!r}: make the steps with advance')
        g = self.gram
        sizes = torch.tensor(step_sizes, dtype=torch.float64, device="cpu")
        call = token_selection.Call(*self.state, g.kernel, g.head_scores, g.labels.observed, sizes, recorded)
        times = list(itertools.accumulate(step_sizes, lambda time, size: time + size, initial=self.time))
        rows: list[Snapshot] = []
        done = 0
        # From record to record. Each moment keeps the scores of all probes; |v|^2 is computed from its coordinates.
        for first in range(0, len(recorded), _MOMENTS):
            marks = recorded[first : first + _MOMENTS]
            seen = token_selection.advance(call.piece(done, marks))
            done = marks[-1]
            rows += self.rows([times[mark] for mark in marks], seen.values, seen.prompt_norm_squared)
        self.time = times[-1]
        return rows

    def snapshot(self) -> Snapshot:
        """A row of a `Trajectory`: time, scores, v on the signals, |v|^2, |p|^2, as copies."""
        return self.rows([self.time.clone()], self._u[None].clone(), self.prompt_norm_squared[None].clone())[0]

    def rows(self, times: Iterable[torch.Tensor], values: torch.Tensor, norms: torch.Tensor) -> list[Snapshot]:
        """A row like `snapshot` for each of M moments, from their times, the probes' values (M, R, P) and |p|^2 (M, R)."""
        shape, directions = self.gram.head_scores.shape, self._norm_squared(values.movedim(0, 1)).mT
        return [
            (time, u[:, : self._N].reshape(shape), u[:, self._N : self._rows], norm, pi)
            for time, u, norm, pi in zip(times, values, directions, norms, strict=True)
        ]

    def trajectory(self, steps: Sequence[int], rows: Sequence[Snapshot]) -> Trajectory:
        """The kept snapshots, taken after `steps` steps, as a `Trajectory`."""
        g = self.gram
        columns = [torch.stack(column) for column in zip(*rows, strict=True)]
        return Trajectory(g.law, g.seed, g.first_run, g.labels, g.head_scores, tuple(steps), *columns)


@checks.checked
@one_thread
def train(
    gram: Gram, step_size: float | Sequence[float], steps: int, *, record: Iterable[int] | None = None
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

    Returns:
        a `Trajectory`, float64, on the Gram's device.

    Raises:
        ValueError: a bad argument, before any work.
        TrainingDiverged: a recorded number is not finite (`attnlib.divergence`).

    Source:
        derived in `book/token_selection_theory`; the loss and the full batch are those of arXiv 2409.17625.

    Example:
        >>> gram = draw_gram(TokenLaw(n=10, d=500, tokens=4, signal_norm=10.0), seed=0, runs=2)
        >>> train(gram, step_size=0.01, steps=100, record=[10]).steps
        (10, 100)
    """
    sizes, recorded = checked_steps(step_size, steps, record, products=2 * gram.kernel.shape[2])
    device, N, kept = gram.kernel.device, gram.kernel.shape[2], len(recorded) if record is not None else 0
    one = 8 * gram.runs * N
    limits.require_memory(lambda steps: one * max(kept, steps if record is None else 0), steps=steps, device=device)
    state_bytes = gram.kernel.element_size() * N * (gram.kernel.shape[1] + 2 * N + 1)
    parts: list[Trajectory] = []

    def work(runs: slice) -> None:
        state = Recursion(gram.part(runs.start, runs.stop))
        parts.append(state.trajectory(recorded, state.run(sizes, recorded)))

    largest = _CHUNK if device.type == "cpu" else None
    in_batches(work, gram.runs, bytes_per_run=_COPIES * state_bytes, device=device, largest=largest)
    path = join_runs(parts)
    seen = path.scores, path.direction_on_signals, path.direction_norm_squared[..., None]
    require_finite(path.steps, path.first_run, *seen)
    return path


def checked_steps(
    step_size: float | Sequence[float], steps: int, record: Iterable[int] | None = None, *, products: int = 1
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Size of each step, which is divided among so many products, and the steps to keep. Raises ValueError for a bad argument."""
    steps = checks.whole_number("steps", steps, at_least=0)
    limits.require_memory(lambda steps: 8 * steps, steps=steps)
    if isinstance(step_size, Sequence) and not isinstance(step_size, str):
        sizes = tuple(checks.step_size("step_size", size, among=products) for size in step_size)
        if len(sizes) != steps:
            raise ValueError(f"step_size must be a number or one per step ({steps}); got {len(sizes)} of them")
    else:
        sizes = (checks.step_size("step_size", step_size, among=products),) * steps
    return sizes, checks.recorded_steps(record, steps)
