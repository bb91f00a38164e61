r"""What the page on the pattern measures: the risk outside two numbers per head, and the stored runs that ended with another pattern.

A run of two heads is *trapped* (`Circuits.trapped`) if both speak with one sign. Source: derived in the theory chapter of Part III.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from attnbook.in_context import full_runs
from attnbook.in_context.closed_form import debiased_gd_optimal_step
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
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.risk import risk_per_prompt
from attnlib.in_context.training import History

_PIECE = 500  # prompts at a time: what keeps a page's memory small


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


@dataclass(frozen=True)
class BesideStudy:
    """What the risk does outside the pattern of two numbers per head."""

    # "symmetric prompts", "permuted prompts": (draws,) part of the gradient outside the pattern
    kept: dict[str, torch.Tensor]
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


def _added(law: RegressionLaw, omega: float, mu: float, form: OffPatternHessian, seed: int) -> torch.Tensor:
    """Full model on prompts with labels: the second difference of its risk in a random direction over its quadratic form, (12,)."""
    d, signs = law.d, torch.tensor([1.0, -1.0], dtype=torch.float64)
    still = two_number_circuits(omega * signs, mu * signs, d)
    symmetric, antisymmetric, vectors = (form.per_batch[kind].mean(0) for kind in KINDS)
    ratios = []
    for draw in range(12):
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
        drawn = law.draw(3000, seed, run=7000 + draw)
        up, down, middle = (risk_per_prompt(model, law, drawn).mean() for model in models)
        ratios.append(((up + down) / 2 - middle) / predicted)
    return torch.stack(ratios)


@dataclass(frozen=True)
class PatternStudy:
    """Everything page 08 shows and judges."""

    law: RegressionLaw
    seed: int
    stored: Mapping[int, History]  # by number of heads: full-size trainings

    @cached_property
    def beside(self) -> BesideStudy | None:
        """For the page's law and seed; None for one covariate."""
        return beside_study(self.law, seed=self.seed)

    def trapped(self, heads: int) -> torch.Tensor:
        """(R,) bool: of the stored runs at their end."""
        return self.stored[heads].final.trapped


def pattern_study(law: RegressionLaw, *, seed: int = 0) -> PatternStudy:
    """The law's risk outside the pattern, beside the stored trainings of one and two heads."""
    return PatternStudy(law, seed, {heads: full_runs.load(heads) for heads in (1, 2)})
