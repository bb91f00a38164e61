r"""What III.3 measures: the stored full-size trainings, a short one of its own, and the statistics of every head.

A head is *active* if $|\mu|$ > `ACTIVE`, *strong* if $|\mu|$ > `STRONG`; the rest is called dummy. A run is *trapped*
(`Circuits.trapped`) if its heads all speak with one sign: then nothing cancels the mean of the labels, and the run is no example of what
several heads can do.
The published numbers are those that the authors' notebook prints, one run for each number of heads. Source: authors' code for the
statistics of page and notebook; label row and query column are added here.
"""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch

from attnbook.in_context import full_runs
from attnbook.in_context.ends import ACTIVE
from attnlib.in_context.circuits import Circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.model import initial_weights
from attnlib.in_context.training import History, train

STRONG = 0.5  # |mu| above which a head carries weight
# printed in the authors' repository: block's fraction on the diagonal, V's in its last entry
PATTERN_SHARES = (0.99926, 0.99994)


@dataclass(frozen=True)
class HeadStatistics:
    """The numbers of every head, all (..., H). Sizes are largest absolute values."""

    omega: torch.Tensor  # mean of the diagonal of the covariate block
    diagonal_std: torch.Tensor  # standard deviation of that diagonal
    off_diagonal: torch.Tensor  # the rest of the block
    label_row: torch.Tensor  # M[d, :d]: key is a label
    query_column: torch.Tensor  # M[:, d]: meets the zero of the query token
    mu: torch.Tensor  # last entry of V
    output_rest: torch.Tensor  # V[:d]
    diagonal_share: torch.Tensor  # of the block's squared norm, what lies on the diagonal
    last_share: torch.Tensor  # of V's squared norm, what lies in the last entry
    active: torch.Tensor  # bool: heads that are judged as active, and as strong
    strong: torch.Tensor

    def mean_over(self, name, mask) -> torch.Tensor:
        """(...): mean of |statistic| over the heads of the mask; nan where there is none."""
        values = getattr(self, name).abs().where(mask, 0.0)
        return values.sum(-1) / mask.sum(-1)

    def largest(self, name, mask) -> torch.Tensor:
        """(...): largest |statistic| over the heads of the mask; nan where there is none."""
        values = getattr(self, name).abs().where(mask, -1.0).amax(-1)
        return values.where(values >= 0, math.nan)


def head_statistics(circuits: Circuits) -> HeadStatistics:
    """Statistics of circuits (..., H, n, n)."""
    block, V, mu = circuits.covariate_block, circuits.output_value, circuits.mu
    squares = block.square().sum((-2, -1)).clamp_min(torch.finfo(block.dtype).tiny)
    return HeadStatistics(
        omega=circuits.omega,
        diagonal_std=circuits.diagonal_std,
        off_diagonal=circuits.off_diagonal,
        label_row=circuits.label_row.abs().amax(-1),
        query_column=circuits.query_column.abs().amax(-1),
        mu=mu,
        output_rest=circuits.output_rest.abs().amax(-1),
        diagonal_share=circuits.diagonal.square().sum(-1) / squares,
        last_share=V[..., -1].square() / V.square().sum(-1).clamp_min(torch.finfo(V.dtype).tiny),
        active=mu.abs() > ACTIVE,
        strong=mu.abs() > STRONG,
    )


def everyone(numbers: HeadStatistics) -> HeadStatistics:
    """The same, with all heads counted as strong."""
    every = torch.ones_like(numbers.strong)
    return replace(numbers, active=every, strong=every)


def off_diagonal_memory(history: History) -> float:
    """Correlation of the entries off the diagonal between the last two records, strong heads of runs that are not trapped.

    nan where there is no such head.
    """
    final, eye = history.final, torch.eye(history.experiment.d, dtype=torch.bool)
    heads = head_statistics(final).strong & ~final.trapped[:, None]
    if not heads.any():
        return math.nan
    last, before = (history.circuits[:, k].covariate_block[heads][:, ~eye].flatten() for k in (-1, -2))
    return torch.corrcoef(torch.stack([last, before]))[0, 1].item()


def moved_columns(history: History) -> torch.Tensor:
    """(R, n) bool: the column of some head's W_Q differs between the start and the end, in the training's dtype."""
    e, end = history.experiment, history.weights.query
    start = initial_weights(e.d, e.heads, e.start, seed=e.seed, runs=e.runs, first_run=e.first_run).query
    return (start.to(end.dtype) != end).any(2).any(1)


def circuit_study(experiment: Experiment, *, stored: dict[int, History] | None = None) -> SimpleNamespace:
    """Train `experiment` and lay it beside the stored trainings, by number of heads; None: the full-size trainings of the package."""
    stored = stored or {heads: full_runs.load(heads) for heads in full_runs.HEADS}
    s = SimpleNamespace(stored=stored, heads=tuple(sorted(stored)), live=train(experiment))
    s.ends = {heads: head_statistics(stored[heads].final) for heads in s.heads}  # (R, H)
    # Before training every head counts.
    s.starts = {heads: everyone(head_statistics(stored[heads].circuits[:, 0])) for heads in s.heads}
    s.free = {heads: ~stored[heads].final.trapped for heads in s.heads}  # (R,) bool: not trapped
    s.moved = {heads: moved_columns(stored[heads]) for heads in s.heads}
    s.pair = int(s.free[2].to(torch.int).argmax())  # the first stored run of two heads that is not trapped
    # Circuits of the stored trainings with as many heads, at the record nearest to the live end in log(step).
    history = stored[experiment.heads]
    distance = (torch.as_tensor(history.steps).double().log1p() - math.log1p(experiment.steps)).abs()
    s.stored_near_live = history.circuits[:, int(distance.argmin())]
    # Mean |omega| of the strong heads of runs that are not trapped, live and stored at that record.
    s.live_omega = [_mean_omega(circuits) for circuits in (s.live.final, s.stored_near_live)]
    return s


def _mean_omega(circuits):
    numbers = head_statistics(circuits)
    size = numbers.mean_over("omega", numbers.strong)
    return size[~circuits.trapped & ~size.isnan()]
