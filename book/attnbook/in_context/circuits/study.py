r"""What the page on circuits measures: the stored full-size trainings, a short one of its own, and the statistics of every head.

A head is *active* if $|\mu|$ > `ACTIVE`, *strong* if $|\mu|$ > `STRONG`; the rest is called dummy. A run is *trapped*
(`Circuits.trapped`) if its heads all speak with one sign: then nothing cancels the mean of the labels, and the run is no example of what
several heads can do.
The published numbers are those that the authors' notebook prints, one run for each number of heads. Source: authors' code for the
statistics of page and notebook; label row and query column are added here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from attnbook.in_context import full_runs
from attnbook.in_context.heads_study import ACTIVE
from attnlib import checks
from attnlib.in_context.circuits import Circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.model import HeadWeights, initial_weights
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

    @property
    def active(self) -> torch.Tensor:
        return self.mu.abs() > ACTIVE

    @property
    def strong(self) -> torch.Tensor:
        return self.mu.abs() > STRONG

    def mean_over(self, name: str, mask: torch.Tensor) -> torch.Tensor:
        """(...): mean of |statistic| over the heads of the mask; nan where there is none."""
        values = getattr(self, name).abs().where(mask, 0.0)
        return values.sum(-1) / mask.sum(-1)

    def largest(self, name: str, mask: torch.Tensor) -> torch.Tensor:
        """(...): largest |statistic| over the heads of the mask; nan where there is none."""
        values = getattr(self, name).abs().where(mask, -1.0).amax(-1)
        return values.where(values >= 0, math.nan)


def head_statistics(circuits: Circuits) -> HeadStatistics:
    """Statistics of circuits (..., H, n, n)."""
    block, V = circuits.covariate_block, circuits.output_value
    squares = block.square().sum((-2, -1)).clamp_min(torch.finfo(block.dtype).tiny)
    return HeadStatistics(
        omega=circuits.omega,
        diagonal_std=circuits.diagonal_std,
        off_diagonal=circuits.off_diagonal,
        label_row=circuits.label_row.abs().amax(-1),
        query_column=circuits.query_column.abs().amax(-1),
        mu=circuits.mu,
        output_rest=circuits.output_rest.abs().amax(-1),
        diagonal_share=circuits.diagonal.square().sum(-1) / squares,
        last_share=V[..., -1].square() / V.square().sum(-1).clamp_min(torch.finfo(V.dtype).tiny),
    )


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


def query_weights(history: History) -> tuple[torch.Tensor, torch.Tensor]:
    """W_Q (R, H, n, n) at the start and at the end, in the training's dtype."""
    e, end = history.experiment, history.weights.query
    start: HeadWeights = initial_weights(e.d, e.heads, e.start, seed=e.seed, runs=e.runs, first_run=e.first_run)
    return start.query.to(end.dtype), end


@dataclass(frozen=True)
class CircuitStudy:
    """Everything page 03 shows and judges."""

    stored: Mapping[int, History]  # by number of heads: full-size trainings
    live: History  # the page's own short training, other seeds

    @property
    def heads(self) -> tuple[int, ...]:
        return tuple(sorted(self.stored))

    def statistics(self, heads: int) -> HeadStatistics:
        """Of the stored runs at their end, (R, H)."""
        return head_statistics(self.stored[heads].final)

    def start_statistics(self, heads: int) -> HeadStatistics:
        """Of the stored runs before training, (R, H)."""
        return head_statistics(self.stored[heads].circuits[:, 0])

    def trapped(self, heads: int) -> torch.Tensor:
        """(R,) bool."""
        return self.stored[heads].final.trapped

    @property
    def pair(self) -> int:
        """The first stored run of two heads that is not trapped."""
        return int((~self.trapped(2)).to(torch.int).argmax())

    def stored_near_live(self) -> Circuits:
        """Circuits of the stored trainings with as many heads, at the record nearest to the live end in log(step)."""
        history = self.stored[self.live.experiment.heads]
        distance = (torch.as_tensor(history.steps).double().log1p() - math.log1p(self.live.experiment.steps)).abs()
        return history.circuits[:, int(distance.argmin())]

    def live_omega(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean |omega| of the strong heads of runs that are not trapped, live and stored at the nearest record."""
        found = []
        for circuits in (self.live.final, self.stored_near_live()):
            numbers = head_statistics(circuits)
            size = numbers.mean_over("omega", numbers.strong)
            found.append(size[~circuits.trapped & ~size.isnan()])
        return found[0], found[1]


def circuit_study(experiment: Experiment, *, stored: Mapping[int, History] | None = None) -> CircuitStudy:
    """Train `experiment` and lay it beside the stored trainings.

    Args:
        experiment: the page's short training; 1, 2, 4 or 8 heads, whichever is stored.
        stored: by number of heads; None: the full-size trainings of the package.

    Raises ValueError for a number of heads without a stored training, before any work.
    """
    if stored is None:
        stored = {heads: full_runs.load(heads) for heads in full_runs.HEADS}
    if experiment.heads not in stored:
        names = ", ".join(map(str, sorted(stored)))
        raise ValueError(f"heads must be one of {names}, which have a stored training; got {experiment.heads}")
    checks.whole_number("steps", experiment.steps, at_least=1)
    return CircuitStudy(dict(stored), train(experiment))
