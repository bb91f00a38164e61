"""What a training left behind: scores of all training tokens at the recorded steps, and what fresh data can see of the model."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from attnlib import checks
from attnlib.token_selection.law import Labels, TokenLaw
from attnlib.token_selection.model import loss, outputs

__all__ = ["Trajectory", "join_runs"]


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
