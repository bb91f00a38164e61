"""Small trainings of the single head for its tests."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attnlib.kernels.single_head import Recorded, advance


@dataclass(frozen=True)
class Training:
    """Arguments of `advance` in float64, made from dense vectors (R, m, d)."""

    basis: torch.Tensor
    start: torch.Tensor  # (R, m, 2)
    labels: torch.Tensor
    classes: torch.Tensor

    @property
    def n(self) -> int:
        return self.labels.shape[1]

    def run(
        self, implementation: str, dtype=torch.float64, *, device="cpu", start=None, runs=slice(None), **chosen
    ) -> tuple[torch.Tensor, Recorded]:
        """(coefficients at the end, what was recorded), on the CPU."""
        gram = (self.basis @ self.basis.mT)[runs]
        start = (self.start if start is None else start)[runs]
        gram, state, labels = (part.to(device, dtype).clone() for part in (gram, start, self.labels[runs]))
        chosen = {"value_step": 0.9, "attention_step": 0.7} | chosen
        seen = advance(gram, state, labels, self.classes[runs].to(device), implementation=implementation, **chosen)
        parts = (part.cpu() for part in (seen.steps, seen.coefficients, seen.output, seen.attention))
        return state.cpu(), Recorded(*parts)


def training(n: int, start_vectors: int = 0, runs: int = 2, seed: int = 0, size: float = 1.5) -> Training:
    """Random signals and noise of norm about `size`; start vectors of norm about one make the start, one for v, one for p."""
    draw = torch.Generator().manual_seed(seed)
    m, d = n + 2 + start_vectors, n + 7
    basis = torch.randn(runs, m, d, generator=draw, dtype=torch.float64) / d**0.5
    basis[:, : n + 2] *= size
    start = torch.zeros(runs, m, 2, dtype=torch.float64)
    if start_vectors:
        start[:, n + 2 :] = torch.randn(runs, start_vectors, 2, generator=draw, dtype=torch.float64)
    labels = torch.randint(0, 2, (runs, n), generator=draw).double() * 2 - 1
    return Training(basis, start, labels, torch.randint(0, 2, (runs, n), generator=draw))
