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
from functools import cached_property

import torch

from attnbook.in_context import full_runs
from attnbook.in_context.closed_form import debiased_gd_optimal_step
from attnbook.in_context.heads_study import ACTIVE
from attnbook.in_context.off_pattern import (
    KINDS,
    OffPatternHessian,
    SmallStart,
    off_pattern_hessian,
    off_pattern_size,
    orbit,
    pattern_size,
    risk_gradient,
    small_starts,
)
from attnbook.in_context.optimum import one_head_optimum
from attnlib import checks
from attnlib.in_context.circuits import Circuits, two_number_circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import HeadWeights, initial_weights
from attnlib.in_context.risk import risk_per_prompt
from attnlib.in_context.training import History, train

STRONG = 0.5  # |mu| above which a head carries weight
_PIECE = 500  # prompts at a time: what keeps a page's memory small
PATTERN_SHARES = (
    0.99926,
    0.99994,
)  # printed in the authors' repository: block's fraction on the diagonal, V's in its last entry


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


def antisymmetric_share(circuits: Circuits) -> torch.Tensor:
    r"""(..., H): of the squared norm of the block without its mean diagonal, $B-\omega I$, the part in $\frac12(B-B^\top)$: a rotation.

    0 for a symmetric block, 1/2 on average for independent entries, 1 for an antisymmetric rest; nan if there is no rest.
    """
    block = circuits.covariate_block
    rest = block - circuits.omega[..., None, None] * torch.eye(circuits.d, dtype=block.dtype, device=block.device)
    return ((block - block.mT) / 2).square().sum((-2, -1)) / rest.square().sum((-2, -1))


def without_turning(circuits: Circuits) -> Circuits:
    """The same circuits with the covariate blocks replaced by their symmetric parts."""
    key_query = circuits.key_query.clone()
    d = circuits.d
    key_query[..., :d, :d] = (circuits.covariate_block + circuits.covariate_block.mT) / 2
    return Circuits(key_query, circuits.output_value)


def gain_of_turning(
    circuits: Circuits, law: RegressionLaw, *, prompts: int = 8000, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Risk of `without_turning(circuits)` minus that of the circuits (...), on the same fresh prompts, and its standard error.

    `prompts` >= 2, rounded up to a multiple of 500 if larger.
    """
    checks.whole_number("prompts", prompts, at_least=2)
    piece = min(prompts, _PIECE)
    straight, found = without_turning(circuits), []
    for run in range(-(-prompts // piece)):
        fresh = law.draw(piece, seed, run=run)
        found.append(risk_per_prompt(straight, law, fresh) - risk_per_prompt(circuits, law, fresh))
    change = torch.cat(found, -1)
    return change.mean(-1), change.std(-1) / math.sqrt(change.shape[-1])


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
class BesideStudy:
    """What the risk does outside the pattern of two numbers per head."""

    kept: dict[
        str, torch.Tensor
    ]  # "symmetric prompts", "permuted prompts": (draws,) part of the gradient outside the pattern
    small: list[SmallStart]
    pair: OffPatternHessian  # of an opposite pair where training ends
    equal: OffPatternHessian  # of two equal heads at the best single head's numbers
    added: torch.Tensor  # (draws,): risk added by small entries beside the pair's pattern over the quadratic form


def beside_study(law: RegressionLaw, *, seed: int = 0) -> BesideStudy | None:
    """Invariance and small starts at d = 3, L = 12; second derivatives at the law's own size, None for d = 1."""
    if law.d < 2:
        return None
    omega = 0.14 * math.sqrt(5 / law.d)  # where Adam at the authors' rate stops
    mu = float(debiased_gd_optimal_step(law)) / (2 * omega)
    one = one_head_optimum(law, prompts=4000, seed=seed)
    pair = off_pattern_hessian(law, [omega, -omega], [mu, -mu], seed=seed)
    equal = off_pattern_hessian(law, [one.omega] * 2, [one.mu / 2] * 2, seed=seed)
    small = RegressionLaw(3, 12, 0.1)
    return BesideStudy(
        _kept(small, seed), small_starts(small, prompts=8, seed=seed), pair, equal, _added(law, omega, mu, pair, seed)
    )


def _kept(law: RegressionLaw, seed: int, draws: int = 40) -> dict[str, torch.Tensor]:
    """Norm of the gradient's entries outside the pattern over that of those inside, at random two-number heads.

    One gradient at each: along steps of descent that diverges, rounding outside the pattern would grow as well.
    """
    found: dict[str, list[float]] = {"symmetric prompts": [], "permuted prompts": []}
    for draw in range(draws):
        generator = torch.Generator().manual_seed(1000 * seed + draw)
        omega, mu = 0.5 * torch.randn(2, 2, generator=generator, dtype=torch.float64)
        here, drawn = two_number_circuits(omega, mu, law.d), law.draw(2, seed, run=draw)
        for name, flips in (("symmetric prompts", True), ("permuted prompts", False)):
            slope = risk_gradient(here, orbit(drawn, flips=flips))
            found[name].append(off_pattern_size(slope) / pattern_size(slope))
    return {name: torch.tensor(rows, dtype=torch.float64) for name, rows in found.items()}


def _added(
    law: RegressionLaw,
    omega: float,
    mu: float,
    form: OffPatternHessian,
    seed: int,
    draws: int = 12,
    prompts: int = 3000,
) -> torch.Tensor:
    """Full model on prompts with labels: the second difference of its risk in a random direction over its quadratic form, (draws,)."""
    d, signs = law.d, torch.tensor([1.0, -1.0], dtype=torch.float64)
    still = two_number_circuits(omega * signs, mu * signs, d)
    symmetric, antisymmetric, vectors = (form.per_batch[kind].mean(0) for kind in KINDS)
    ratios = []
    for draw in range(draws):
        generator = torch.Generator().manual_seed(1000 * seed + 500 + draw)
        E, m, v = (torch.randn(2, *shape, generator=generator, dtype=torch.float64) for shape in ((d, d), (d,), (d,)))
        size = 0.02 * omega
        E = size * (E - E.diagonal(dim1=1, dim2=2).mean(-1)[:, None, None] * torch.eye(d, dtype=torch.float64))
        m, v = size * m / math.sqrt(d), size * v * mu / omega
        parts = ((E + E.mT) / 2, (E - E.mT) / 2)
        predicted = sum(
            (K * torch.einsum("hij,kij->hk", part, part)).sum()
            for K, part in zip((symmetric, antisymmetric), parts, strict=True)
        )
        both = torch.cat([v, m])
        predicted = predicted + (vectors * (both @ both.mT)).sum()
        moved_M, moved_V = torch.zeros_like(still.key_query), torch.zeros_like(still.output_value)
        moved_M[:, :d, :d], moved_M[:, d, :d], moved_V[:, :d] = E, m, v
        models = [Circuits(still.key_query + t * moved_M, still.output_value + t * moved_V) for t in (1, -1, 0)]
        drawn = law.draw(prompts, seed, run=7000 + draw)
        up, down, middle = (risk_per_prompt(model, law, drawn).mean() for model in models)
        ratios.append(((up + down) / 2 - middle) / predicted)
    return torch.stack(ratios)


@dataclass(frozen=True)
class CircuitStudy:
    """Everything page 03 shows and judges."""

    stored: Mapping[int, History]  # by number of heads: full-size trainings
    live: History  # the page's own short training, other seeds

    @cached_property
    def beside(self) -> BesideStudy | None:
        """For the law and the seed of the page's own training; None for one covariate."""
        return beside_study(self.live.experiment.law, seed=self.live.experiment.seed)

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
