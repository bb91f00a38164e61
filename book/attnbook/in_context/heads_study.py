r"""What the page on the number of heads measures: risks of 1, 2, 4 and 8 heads, the same-sign trap, dummy heads, a sharp third head.

A risk is measured in two parts: that of the same heads reduced to two numbers each, which is known to four digits (`reduced`), and the
rest, the difference of the two models on the same prompts (`risk`). Both are unbiased; together they are some ten times sharper
than prompts alone. Source: measured here, with formulas derived in the theory chapter of Part III.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

from attnbook.in_context import full_runs
from attnbook.in_context.optimum import best_mu, free_optimum, one_head_optimum, pair_optimum
from attnbook.in_context.reduced import reduced_moments, reduced_risk, reduced_risk_per_batch
from attnbook.in_context.trap_study import TrapRuns, TrapTable, stored_table, trap_runs
from attnlib.in_context.circuits import Circuits, two_number_circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.risk import risk_per_prompt
from attnlib.in_context.training import History

ACTIVE = 0.05  # a head with |mu| below this is a dummy
SHARP = 0.5  # a head with |omega| above this is sharp
_REDUCED_PROMPTS = 8000
_LATE = 5  # records over which the end is averaged


def untrapped(history: History) -> torch.Tensor:
    """(R,) bool: the heads cancel at the end. A single head cannot: all True."""
    return ~history.final.trapped


def average_circuits(history: History, records: int = _LATE) -> Circuits:
    """Circuits (R, ...) averaged over the last records: the end without most of the optimiser's jitter."""
    late = history.circuits[:, -records:]
    return Circuits(late.key_query.mean(1), late.output_value.mean(1))


def sharp_risk(
    circuits: Circuits, law: RegressionLaw, *, prompts: int = 2000, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Risk (...) and standard error of circuits (..., H, n, n): two-number heads exactly, the rest on shared held-out `prompts`.

    Raises ValueError for a law that is not isotropic with zero mean or circuits of another dimension.
    """
    plain = reduced_risk(circuits.omega, circuits.mu, law, prompts=_REDUCED_PROMPTS, seed=seed)
    return _with_the_rest(plain, circuits, law, prompts, seed)


def _with_the_rest(
    plain: tuple[torch.Tensor, torch.Tensor], circuits: Circuits, law: RegressionLaw, prompts: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Risk and error of the two-number heads `plain`, and what the circuits' other entries add."""
    drawn, lead = law.draw(prompts, seed), circuits.omega.shape[:-1]
    means, spreads = [], []
    flat = Circuits(circuits.key_query.flatten(0, -4), circuits.output_value.flatten(0, -3)) if lead else circuits[None]
    for model in range(math.prod(lead)):  # one by one: little memory
        one = flat[model]
        rest = risk_per_prompt(one, law, drawn)
        rest = rest - risk_per_prompt(two_number_circuits(one.omega, one.mu, law.d), law, drawn)
        means.append(rest.mean())
        spreads.append(rest.var() / prompts)
    rest, spread = (torch.stack(values).reshape(lead) for values in (means, spreads))
    return plain[0] + rest, (plain[1].square() + spread).sqrt()


def merged_pair(omega: torch.Tensor, mu: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    r"""The two heads that heads (..., H) act as: those of positive and of negative $\mu_h$ put together, each (..., 2).

    $\mu_\pm=\sum_\pm\mu_h$, $\omega_\pm=\sum_\pm\mu_h\omega_h/\mu_\pm$: $\sum\mu_h$ and $\sum\omega_h\mu_h$ do not change. A side
    without heads gets zeros.
    """
    sides = [torch.where(mu > 0, mu, 0.0), torch.where(mu < 0, mu, 0.0)]
    total = torch.stack([side.sum(-1) for side in sides], -1)
    weighted = torch.stack([(side * omega).sum(-1) for side in sides], -1)
    return torch.where(total == 0, 0.0, weighted / torch.where(total == 0, 1.0, total)), total


# --- the ends of the stored trainings ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ends:
    """The ends of R runs with H heads, averaged over their last records."""

    heads: int
    omega: torch.Tensor  # (R, H)
    mu: torch.Tensor  # (R, H)
    risk: torch.Tensor  # (R,)
    risk_se: torch.Tensor  # (R,), of the draws
    plain_risk: torch.Tensor  # (R,): of the heads themselves, two numbers each
    merged_risk: torch.Tensor  # (R,): of their `merged_pair`, on the same draws
    merged_off: torch.Tensor  # (R,): of that with omega 10 % larger
    kept: torch.Tensor  # (R,) bool: not trapped

    @property
    def active(self) -> torch.Tensor:
        """(R,): number of heads that are not dummies."""
        return (self.mu.abs() >= ACTIVE).sum(-1)

    @property
    def sharp(self) -> torch.Tensor:
        """(R,) bool: some head has |omega| > 1/2 and writes at all."""
        return self.sharper_than(SHARP)

    def sharper_than(self, scale: float) -> torch.Tensor:
        """(R,) bool: some head has |omega| > `scale` and writes at all, |mu| > 0.02."""
        return ((self.omega.abs() > scale) & (self.mu.abs() > 0.02)).any(-1)

    @property
    def mean_risk(self) -> tuple[float, float]:
        """Mean risk of the runs that are not trapped, and its standard error over runs and draws."""
        values, draws = self.risk[self.kept], self.risk_se[self.kept]
        # All runs share their prompts: the error of the draws does not shrink with their number.
        runs = values.var().item() / len(values) if len(values) > 1 else 0.0
        return values.mean().item(), math.sqrt(runs + draws.mean().item() ** 2)


def ends_of(history: History, *, prompts: int = 2000, seed: int = 0) -> Ends:
    """Judge the averaged ends of a training."""
    circuits, law = average_circuits(history), history.experiment.law
    omega, mu = circuits.omega, circuits.mu
    draws: dict[str, Any] = {"prompts": _REDUCED_PROMPTS, "seed": seed}
    plain = reduced_risk(omega, mu, law, **draws)
    risk, error = _with_the_rest(plain, circuits, law, prompts, seed)
    two_omega, two_mu = merged_pair(omega, mu)
    merged, off = (reduced_risk(factor * two_omega, two_mu, law, **draws)[0] for factor in (1.0, 1.1))
    return Ends(history.experiment.heads, omega, mu, risk, error, plain[0], merged, off, untrapped(history))


# --- heads free to choose ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FreeHeads:
    """The best of one head, a pair, and three free heads, two numbers each; risks per batch of shared draws."""

    one: tuple[tuple[float, ...], tuple[float, ...]]  # omega, mu
    pair: tuple[tuple[float, ...], tuple[float, ...]]
    three: tuple[tuple[float, ...], tuple[float, ...]]
    risk_one: torch.Tensor  # (batches,)
    risk_pair: torch.Tensor
    risk_three: torch.Tensor

    @property
    def gain_of_third(self) -> torch.Tensor:
        """(batches,): by what fraction of the pair's risk the third head lowers it."""
        return (self.risk_pair - self.risk_three) / self.risk_pair.mean()


def compare_free_heads(law: RegressionLaw, *, prompts: int = 16_000, seed: int = 0) -> FreeHeads:
    """Search the best omega_h, mu_h (draws of the role "search"), then compare them on draws of the role "test".

    The three omegas are rounded to two digits after the point before their mu is chosen: a search that stops a hair elsewhere on
    another machine gives the same heads.
    """
    one, pair = (find(law, prompts=prompts, seed=seed) for find in (one_head_optimum, pair_optimum))
    found = free_optimum(law, 3, seed=seed).omega
    omega = tuple(round(w, 2) for w in found)
    mu = tuple(best_mu(reduced_moments(omega, law, prompts=prompts, seed=seed, role="search")).tolist())
    heads = ((one.omega,), (one.mu,)), ((pair.omega, -pair.omega), (pair.mu, -pair.mu)), (omega, mu)
    return FreeHeads(*heads, *(reduced_risk_per_batch(*each, law, prompts=prompts, seed=seed) for each in heads))


# --- everything the page and its claims look at --------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadsStudy:
    """Everything the page on the number of heads and its claims look at."""

    ends: dict[int, Ends]  # stored trainings
    table: TrapTable  # hundreds of starts
    live: TrapRuns  # fresh starts, trained on the page
    free: FreeHeads
    law: RegressionLaw  # of the fresh starts
    stored_law: RegressionLaw  # of the stored trainings
    one_head_loss: float  # mean training loss of one head in the last window of the stored trainings


def heads_study(experiment: Experiment) -> HeadsStudy:
    """Train fresh starts of two heads or more and collect. Raises ValueError for another experiment before any work."""
    if not isinstance(experiment, Experiment):
        raise ValueError(f"experiment must be an Experiment; got {type(experiment).__name__}")
    if experiment.heads < 2:
        raise ValueError(f"heads must be 2 or more; got {experiment.heads}: one head cannot be trapped")
    full, live = {heads: full_runs.load(heads) for heads in full_runs.HEADS}, trap_runs(experiment)
    ends = {heads: ends_of(history, seed=experiment.seed) for heads, history in full.items()}
    stored_law = full[1].experiment.law
    free = compare_free_heads(stored_law, seed=experiment.seed)
    return HeadsStudy(ends, stored_table(), live, free, experiment.law, stored_law, full[1].loss[:, -1].mean().item())
