r"""What III.6 measures: risks of 1, 2, 4 and 8 heads, the same-sign trap, dummy heads, a sharp third head.

Source: measured here, with formulas derived in the theory chapter of Part III.
"""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.in_context import full_runs
from attnbook.in_context.ends import ACTIVE, REDUCED_PROMPTS, average_circuits, sharp_risk, untrapped
from attnbook.in_context.optimum import best_mu, free_optimum, one_head_optimum, pair_optimum
from attnbook.in_context.reduced import reduced_moments, reduced_risk, reduced_risk_per_batch
from attnbook.in_context.trap_study import imbalance, stored_table, trap_runs
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.training import History

SHARP = 0.5  # a head with |omega| above this is sharp
DECIDED = 110  # step at which the signs of mu are looked at


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


def ends_of(history: History, *, prompts=2000, seed=0) -> Ends:
    """Judge the averaged ends of a training."""
    circuits, law = average_circuits(history), history.experiment.law
    omega, mu = circuits.omega, circuits.mu
    draws = {"prompts": REDUCED_PROMPTS, "seed": seed}
    plain = reduced_risk(omega, mu, law, **draws)
    risk, error = sharp_risk(circuits, law, prompts=prompts, seed=seed, plain=plain)
    two_omega, two_mu = merged_pair(omega, mu)
    merged, off = (reduced_risk(factor * two_omega, two_mu, law, **draws)[0] for factor in (1.0, 1.1))
    return Ends(omega, mu, risk, error, plain[0], merged, off, untrapped(history))


# --- heads free to choose ----------------------------------------------------------------------------------------------------


def compare_free_heads(law: RegressionLaw, *, prompts=16_000, seed=0) -> SimpleNamespace:
    """Search the best omega_h, mu_h (draws of the role "search"), then compare them on draws of the role "test".

    one, pair, three: omega and mu, two numbers each head; risk_one, risk_pair, risk_three: (batches,), on shared draws; gain_of_third:
    (batches,), by what fraction of the pair's risk the third head lowers it. The three omegas are rounded to two digits after the point
    before their mu is chosen: a search that stops a hair elsewhere on another machine gives the same heads.
    """
    one, pair = (find(law, prompts=prompts, seed=seed) for find in (one_head_optimum, pair_optimum))
    omega = tuple(round(w, 2) for w in free_optimum(law, 3, seed=seed).omega)
    mu = tuple(best_mu(reduced_moments(omega, law, prompts=prompts, seed=seed, role="search")).tolist())
    s = SimpleNamespace(
        one=((one.omega,), (one.mu,)), pair=((pair.omega, -pair.omega), (pair.mu, -pair.mu)), three=(omega, mu)
    )
    s.risk_one, s.risk_pair, s.risk_three = (
        reduced_risk_per_batch(*heads, law, prompts=prompts, seed=seed) for heads in (s.one, s.pair, s.three)
    )
    s.gain_of_third = (s.risk_pair - s.risk_three) / s.risk_pair.mean()
    by_size = sorted(zip(*s.three, strict=True), key=lambda head: abs(head[0]))
    s.flattest, s.sharpest = by_size[0], by_size[-1]  # (omega, mu) of the three heads' flattest and sharpest
    return s


# --- everything the page and its claims look at --------------------------------------------------------------------------------


def heads_study(experiment: Experiment) -> SimpleNamespace:
    """Train fresh starts of two heads or more and collect."""
    full = {heads: full_runs.load(heads) for heads in full_runs.HEADS}
    s = SimpleNamespace(law=experiment.law, stored_law=full[1].experiment.law)
    s.table = stored_table()  # hundreds of starts
    s.live = trap_runs(experiment)  # fresh starts, trained on the page
    s.ends = {heads: ends_of(history, seed=experiment.seed) for heads, history in full.items()}
    s.free = compare_free_heads(s.stored_law, seed=experiment.seed)
    s.one_head_loss = full[1].loss[:, -1].mean().item()  # mean training loss of one head in the last window
    s.trapped = {heads: runs.trapped for heads, runs in s.table.by_heads.items()}  # (R,) bool each
    # Who ends trapped of the stored starts of two heads whose mu have one sign at a step, and of the others.
    two = s.table.by_heads[2]
    same = {name: imbalance(two.mu[:, two.at(step)]) == 1 for name, step in (("start", 0), ("decided", DECIDED))}
    s.fates = {name: {"same": two.trapped[now], "opposite": two.trapped[~now]} for name, now in same.items()}
    long = s.table.long  # trapped runs that went on
    ratio = torch.from_numpy(np.asarray(long.loss, dtype=np.float64)) / s.one_head_loss
    s.long = SimpleNamespace(imbalance=torch.from_numpy(long.imbalance[:, -1]), loss_ratio=ratio)
    return s
