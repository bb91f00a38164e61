"""What is read off the loss curve of a training: when each step is half done, and how high the loss is between two steps."""

import torch

from attnbook.staircase import Heads, Path


def crossing_times(path: Path, levels: torch.Tensor) -> torch.Tensor:
    """When the loss passes the middle between levels m - 1 and m, (R, M) for M + 1 levels; nan where it never does.

    Times between records are interpolated linearly.
    """
    found = []
    for middle in (levels[1:] + levels[:-1]) / 2:
        below = path.loss < middle
        last = below.int().argmax(1).clamp(min=1)
        row = torch.arange(len(last))
        high, low = path.loss[row, last - 1], path.loss[row, last]
        time = path.times[last - 1] + (high - middle) / (high - low) * (path.times[last] - path.times[last - 1])
        found.append(torch.where(below.any(1), time, torch.nan))
    return torch.stack(found, dim=1)


def plateau_heights(path: Path, crossings: torch.Tensor) -> torch.Tensor:
    """Loss where it falls most slowly between two crossings, or after the last one that there is, (R, M - 1); nan where there is none."""
    fall = -(path.loss[:, 2:] - path.loss[:, :-2]) / (path.times[2:] - path.times[:-2])
    between = _between(path, crossings)
    slowest = torch.where(between, fall[:, None], torch.inf).argmin(-1)
    return torch.where(between.any(-1), path.loss.gather(1, slowest + 1), torch.nan)


def without_plateau(path: Path, crossings: torch.Tensor) -> torch.Tensor:
    """Plateaus that a training does not have, (R, M - 1): it ends before the drop, or no record lies between that and the next one."""
    return ~_between(path, crossings).any(-1) & path.loss.isfinite().all(1, keepdim=True)


def _between(path: Path, crossings: torch.Tensor) -> torch.Tensor:
    """(R, M - 1, S - 2): the inner records after a drop that come before the next one, or where there is none."""
    times = path.times[1:-1]
    return (times > crossings[:, :-1, None]) & ~(times >= crossings[:, 1:, None])


def alignment(path: Path, times: torch.Tensor) -> torch.Tensor:
    r"""Fractions $A_{ii}^2/\sum_{jk}A_{jk}^2$ of the learned matrix at one time for each run, (R, D); `times` is (R,)."""
    at = torch.searchsorted(path.times, times.nan_to_num(0.0)).clamp(max=len(path.times) - 1)
    square = path.matrix[torch.arange(len(at)), at] ** 2
    return torch.diagonal(square, dim1=-2, dim2=-1) / square.sum((-2, -1))[:, None]


def _terms(heads: Heads, directions: int) -> torch.Tensor:
    """|v_h k_hi q_hi|, (R, H, directions)."""
    return (heads.value[..., None] * heads.key * heads.query)[..., :directions].abs()


def largest_part(heads: Heads, directions: int) -> torch.Tensor:
    r"""Of the terms $v_hk_{hi}q_{hi}$ that make up $A_{ii}$, the fraction of their absolute sum in the largest one, (R, directions)."""
    terms = _terms(heads, directions)
    return terms.max(1).values / terms.sum(1)


def different_heads(heads: Heads, directions: int) -> torch.Tensor:
    """Whether these largest terms belong to as many heads as there are directions, (R,)."""
    return (_terms(heads, directions).argmax(1).sort(1).values.diff(dim=1) > 0).all(1)
