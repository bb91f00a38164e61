"""What training did, at the recorded steps: of one head, and of several heads with one output."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["HeadsTrajectory", "Trajectory"]


@dataclass(frozen=True)
class Trajectory:
    """What training did at the recorded steps S (axis 0). `v[-1]`, `p[-1]` belong to the last step."""

    steps: tuple[int, ...]
    v: torch.Tensor  # (S, R, m)
    p: torch.Tensor  # (S, R, m)
    loss: torch.Tensor  # (S, R)
    margins: torch.Tensor  # (S, R, n), y_i f_i with the observed labels
    attention_on_signal: torch.Tensor  # (S, R, n)
    noisy: torch.Tensor  # (R, n) bool

    def at(self, step: int) -> int:
        """Row of a recorded step. Raises ValueError when it was not recorded."""
        if step not in self.steps:
            raise ValueError(f"step must be one of the recorded steps; got {step!r}: pass record=[..., {step!r}]")
        return self.steps.index(step)

    @property
    def train_accuracy(self) -> torch.Tensor:
        """(S, R): fraction of samples with a positive margin (a zero margin is an error)."""
        return (self.margins > 0).to(self.loss.dtype).mean(-1)

    @property
    def interpolates(self) -> torch.Tensor:
        """(S, R) bool: every observed label is fitted."""
        return (self.margins > 0).all(-1)

    @property
    def attention_clean(self) -> torch.Tensor:
        """(S, R): mean attention on the signal over samples with their true label (nan without any)."""
        return self._mean_where(~self.noisy)

    @property
    def attention_noisy(self) -> torch.Tensor:
        """(S, R): mean attention on the signal over samples with a flipped label (nan without any)."""
        return self._mean_where(self.noisy)

    def _mean_where(self, mask: torch.Tensor) -> torch.Tensor:
        return (self.attention_on_signal * mask).sum(-1) / mask.sum(-1)


@dataclass(frozen=True)
class HeadsTrajectory(Trajectory):
    """The same for H heads: `v` (S, R, Hv, m) with Hv = H or 1 (shared), `p` (S, R, H, m), `attention_on_signal` (S, R, H, n).

    `attention_clean` and `attention_noisy` are (S, R, H).
    """

    def _mean_where(self, mask: torch.Tensor) -> torch.Tensor:
        mask = mask.unsqueeze(-2)
        return (self.attention_on_signal * mask).sum(-1) / mask.sum(-1)

    def single(self) -> Trajectory:
        """The trajectory of the only head. Raises ValueError when there are more."""
        heads = self.p.shape[2]
        if heads != 1:
            raise ValueError(f"heads must be 1 for a single trajectory; got {heads}: read v, p and attention by head")
        return Trajectory(
            self.steps,
            self.v[:, :, 0],
            self.p[:, :, 0],
            self.loss,
            self.margins,
            self.attention_on_signal[:, :, 0],
            self.noisy,
        )
