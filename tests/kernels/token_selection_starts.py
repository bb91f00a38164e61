"""Token-selection states made from dense vectors, so that dense training can be their judge."""

import torch

from attnlib.kernels import token_selection
from attnlib.kernels.token_selection import Call, Recorded


def dense(
    runs: int, n: int, tokens: int, *, passive: int = 2, d: int = 30, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows X~ (R, n T + passive, d), W (R, d, d), p (R, d), head (R, d), labels (R, n), float64."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    rows = 3 * d**-0.5 * normal(runs, n * tokens + passive, d)
    labels = torch.where(torch.rand(runs, n, generator=draw) < 0.5, 1.0, -1.0).double()
    return rows, normal(runs, d, d) * d**-0.5, normal(runs, d) * d**-0.5, normal(runs, d), labels


def state(runs: int, n: int, tokens: int, *, dtype: torch.dtype = torch.float64, **drawn: int) -> list[torch.Tensor]:
    """The six tensors of `advance`; `drawn`: passive rows and seed of `dense`."""
    rows, weight, prompt, head, labels = dense(runs, n, tokens, **drawn)
    N, known = n * tokens, rows.shape[1]
    image, probes = rows @ weight.mT, known + 2 * N + 1
    values, weighted = torch.zeros(runs, probes).double(), torch.zeros(runs, probes, N).double()
    values[:, :known], values[:, -1] = (image @ prompt.unsqueeze(-1)).squeeze(-1), 1.0
    weighted[:, :known] = image @ image[:, :N].mT
    weighted[:, known + N : known + 2 * N].diagonal(dim1=1, dim2=2).fill_(1.0)
    gamma = (rows[:, :N] @ head.unsqueeze(-1)).view(runs, n, tokens)
    return [x.to(dtype) for x in (values, weighted, (prompt**2).sum(1), rows @ rows[:, :N].mT, gamma, labels)]


def copies(tensors: list[torch.Tensor], **to: object) -> list[torch.Tensor]:
    return [x.clone().to(**to) if to else x.clone() for x in tensors]


def agree(found: list[torch.Tensor], wanted: list[torch.Tensor], tolerance: float) -> None:
    """Every tensor within `tolerance` of its largest entry."""
    for x, y in zip(found, wanted, strict=True):
        size = tolerance * (1e-30 + y.abs().max().item())
        torch.testing.assert_close(x.double(), y.double(), rtol=0, atol=size)


def advance(*state, step_sizes, threads: int | None = None, implementation: str = "auto", record=()) -> Recorded:
    """The loop on a call made of these arguments."""
    sizes = torch.as_tensor(step_sizes, dtype=torch.float64)
    return token_selection.advance(Call(*state, sizes, record), threads=threads, implementation=implementation)
