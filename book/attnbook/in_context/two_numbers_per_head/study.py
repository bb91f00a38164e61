r"""What the claims about two numbers per head look at: one function that searches, trains and collects."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.in_context.approximate import Flow, gradient_flow
from attnbook.in_context.full_runs import experiment as full_experiment
from attnbook.in_context.full_runs import load, load_rates
from attnbook.in_context.optimum import Optimum, Valley, one_head_optimum, pair_optimum, pair_valley
from attnbook.in_context.reduced import mean_and_error, reduced_risk, reduced_risk_per_batch
from attnlib import checks
from attnlib.in_context.circuits import Circuits, predict, two_number_circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.risk import risk_per_prompt
from attnlib.in_context.training import History, train
from attnlib.randomness import stream

FLAT_TO = 0.14  # |omega| of the trained pairs at d = 5, in units of sqrt(5/d) elsewhere
_DENSE_RUNS = 1000  # streams of dense prompts begin here: the reduced prompts of batch k come from (seed, role, k)
_DENSE_PROMPTS = 1250  # per batch
_BATCHES = 40
# Heads of the first check, at d = 5: one, a pair, a pair off balance, three of different sharpness.
_SETTINGS = (
    ((0.52, 0.0, 0.0), (1.53, 0.0, 0.0)),
    ((0.14, -0.14, 0.0), (3.2, -3.2, 0.0)),
    ((0.3, -0.1, 0.0), (1.0, -1.5, 0.0)),
    ((0.07, -0.08, 1.5), (5.0, -5.0, 0.3)),
)


@dataclass(frozen=True)
class Reduction:
    """Risk of P models in two ways, once per batch of prompts."""

    omega: torch.Tensor  # (P, H)
    mu: torch.Tensor  # (P, H)
    dense: torch.Tensor  # (batches, P): squared error of the model on prompts with labels
    reduced: torch.Tensor  # (batches, P)
    wrong: torch.Tensor  # (batches, P): the reduction with the part of the orthogonal part a quarter too large


@dataclass(frozen=True)
class EndPoints:
    """R trainings of two heads at one learning rate."""

    learning_rate: float
    history: History
    opposite: torch.Tensor  # (R,) bool: heads of opposite signs at the end; the others are in the same-sign trap
    risk: torch.Tensor  # (R,): exact risk of the two numbers per head at the end
    loss: torch.Tensor  # (R,): mean training loss since the last record but one
    floor: torch.Tensor  # (R,): that loss minus the exact risk of the two numbers, averaged over the last records

    @property
    def size(self) -> torch.Tensor:
        """(R, K): mean |omega| of the heads at each record."""
        return self.history.omega.abs().mean(-1)

    @property
    def final_size(self) -> torch.Tensor:
        """(untrapped runs,): mean |omega| over the heads and the last records."""
        return self.size[self.opposite][:, -LAST:].mean(1)

    @property
    def final_step(self) -> torch.Tensor:
        """(untrapped runs,): effective step, mean over the last records."""
        return self.history.effective_step[self.opposite][:, -LAST:].mean(1)

    @property
    def jitter(self) -> torch.Tensor:
        """(untrapped runs,): how far an entry of the covariate block beside the diagonal moves between late records (rms)."""
        late = self.history.circuits[self.opposite, -LAST - 1 :].covariate_block.double()
        beside = ~torch.eye(late.shape[-1], dtype=torch.bool)
        return late[..., beside].var(1).mean((1, 2)).sqrt()

    @property
    def price(self) -> torch.Tensor:
        """(untrapped runs,): `jitter_price` of that jitter at the final |mu|."""
        mu = self.history.mu[self.opposite, -1].abs().mean(-1)
        return mu**2 * self.jitter**2 * jitter_price(self.history.experiment.law)


LAST = 3  # records that are averaged at the end: about half of the training


@dataclass(frozen=True)
class TwoNumbersStudy:
    """Everything the claims look at."""

    law: RegressionLaw
    reduction: Reduction
    one: Optimum
    one_again: tuple[Optimum, ...]  # other seeds, fewer prompts
    pair: Optimum
    valley: Valley
    gain: torch.Tensor  # (batches,): risk of debiased gradient descent minus that of the best pair
    # (batches,): (risk - risk_debiased) / omega^2 at the narrow end of the valley, step L/(L+d+s2)
    narrow: torch.Tensor
    pair_risk: torch.Tensor  # (batches,): exact risk of the best pair
    one_head: History  # R trainings of a single head
    ends: tuple[EndPoints, ...]  # by falling learning rate
    cost: torch.Tensor  # (batches,): risk of a pair at FLAT_TO, with its best mu, over that of the best pair, less 1
    jitter: torch.Tensor  # (draws,): price of noise on a pair at half of FLAT_TO, see `jitter_cost`
    flow: Flow  # of the approximate loss, from faint opposite heads


def as_text(values: torch.Tensor, digits: int = 3) -> str:
    """Mean +- standard error of (runs,); the one number there is, or n/a."""
    if len(values) < 2:
        return f"{values.mean().item():.{digits}f}" if len(values) else "n/a"
    mean, error = mean_and_error(values)
    return f"{mean.item():.{digits}f} +- {error.item():.{digits}f}"


def dense_risk_per_batch(
    omega: torch.Tensor, mu: torch.Tensor, law: RegressionLaw, *, prompts: int, batches: int = _BATCHES, seed: int = 0
) -> torch.Tensor:
    """Squared error of the model with circuits (omega I, mu e_last) on dense prompts with label noise: (batches, P)."""
    circuits = two_number_circuits(omega, mu, law.d)
    values = []
    for batch in range(batches):
        drawn = law.draw(prompts, seed, run=_DENSE_RUNS + batch)
        values.append(((predict(circuits, drawn) - drawn.clean_target) ** 2).mean(-1))
    return torch.stack(values)


def reduction_check(law: RegressionLaw, *, prompts: int = _DENSE_PROMPTS, seed: int = 0) -> Reduction:
    """Four models in two ways; omega in units of sqrt(5/d). `prompts` dense ones per batch, for each of 40 batches."""
    scale = math.sqrt(5 / law.d)
    omega, mu = (torch.tensor(part, dtype=torch.float64) for part in zip(*_SETTINGS, strict=True))
    omega, mu = omega * scale, mu / scale
    # (d - 1 + s2) times 1.25 is what a law with more noise has.
    noise = 1.25 * (law.d - 1 + law.noise_variance) - (law.d - 1)
    other = RegressionLaw(law.d, law.length, math.sqrt(noise / law.d), law.convention)
    draws = {"prompts": 10_000, "batches": _BATCHES, "seed": seed}
    return Reduction(
        omega,
        mu,
        dense_risk_per_batch(omega, mu, law, prompts=prompts, seed=seed),
        reduced_risk_per_batch(omega, mu, law, **draws),
        reduced_risk_per_batch(omega, mu, other, **draws),
    )


def jitter_price(law: RegressionLaw) -> float:
    r"""Risk that independent noise of variance tau^2 on all d^2 entries of both covariate blocks adds to a pair, over mu^2 tau^2.

    2 s^2 d^2 (L-1)(L+d+s2)/L^2 to leading order in omega and tau: the gradient of the prediction in M_jk is mu times
    x_q,k sum_i (x_i - mean x)_j y_i / L. Source: derived in the theory chapter of Part III.
    """
    d, length = law.d, law.length
    return 2 * law.beta_std**2 * d**2 * (length - 1) * (length + d + law.noise_variance) / length**2


def jitter_cost(law: RegressionLaw, omega: float, mu: float, *, size: float, seed: int = 0) -> torch.Tensor:
    r"""Measured: added risk over mu^2 tau^2 for 120 draws of such noise, tau = `size`, each on its own prompts: (120,).

    Noise and its negative act on the same prompts, so that what is linear in it cancels; and the difference of the two blocks, which is
    what a pair feels, is scaled to its mean size, $|E_1-E_2|^2=2d^2\tau^2$. Both leave the mean as it is and take most of the spread.
    """
    signs, d = torch.tensor([1.0, -1.0], dtype=torch.float64), law.d
    still = two_number_circuits(omega * signs, mu * signs, d)
    values = []
    for draw in range(120):
        noise = torch.as_tensor(stream(seed, "noise", draw).standard_normal((2, d, d)))
        noise *= size * math.sqrt(2) * d / (noise[0] - noise[1]).norm()
        moved = still.key_query.expand(3, 2, d + 1, d + 1).clone()
        moved[1, :, :d, :d] += noise
        moved[2, :, :d, :d] -= noise
        models = Circuits(moved, still.output_value.expand(3, 2, d + 1))
        risk = risk_per_prompt(models, law, law.draw(600, seed, run=2 * _DENSE_RUNS + draw)).mean(-1)
        values.append(((risk[1] + risk[2]) / 2 - risk[0]) / (mu * size) ** 2)
    return torch.stack(values)


def stored_runs(law: RegressionLaw) -> dict[int, History]:
    """The stored full-size trainings of one and two heads, if `law` is theirs; otherwise nothing."""
    return {heads: load(heads) for heads in (1, 2)} if law == full_experiment(2).law else {}


def stored_sizes(law: RegressionLaw) -> dict[float, tuple[torch.Tensor, torch.Tensor]]:
    """Per learning rate of the stored full-size trainings of two heads: steps (K,) and |omega| (untrapped runs, K).

    Empty if `law` is not theirs.
    """
    found: dict[float, tuple[torch.Tensor, torch.Tensor]] = {}
    if law != full_experiment(2).law:
        return found
    for history in (load_rates(), load(2)):
        rates = torch.as_tensor(history.experiment.learning_rate, dtype=torch.float64).expand(len(history.omega))
        opposite = history.final.cancels
        for rate in rates.unique().tolist():
            kept = opposite & (rates == rate)
            found[rate] = torch.as_tensor(history.steps), history.omega[kept].abs().mean(-1)
    return dict(sorted(found.items(), reverse=True))


def optimum_scan(
    dimensions: Sequence[int], ratios: Sequence[int], *, noise_std: float, prompts: int = 3000, seed: int = 0
) -> dict[int, list[Optimum]]:
    """Best single head at every d and length = ratio * d, by d."""
    return {
        d: [one_head_optimum(RegressionLaw(d, ratio * d, noise_std), prompts=prompts, seed=seed) for ratio in ratios]
        for d in dimensions
    }


def end_points(experiment: Experiment) -> EndPoints:
    """Train two heads and look at where they end."""
    history = train(experiment)
    omega, mu = history.omega, history.mu
    opposite = history.final.cancels
    seen, _ = reduced_risk(omega[:, -LAST:], mu[:, -LAST:], experiment.law, prompts=4000, seed=experiment.seed)
    floor = (history.loss[:, -LAST:] - seen).mean(1) - experiment.law.target_noise_std**2
    return EndPoints(float(experiment.learning_rate), history, opposite, seen[:, -1], history.loss[:, -1], floor)


def two_numbers_study(
    law: RegressionLaw,
    *,
    prompts: int = 40_000,
    learning_rates: Sequence[float] = (0.01, 0.003, 0.001),
    optimiser: str = "Adam",
    batch: int = 128,
    steps: int = 20_000,
    runs: int = 10,
    seed: int = 0,
) -> TwoNumbersStudy:
    """Search, train and collect.

    Args:
        law: isotropic, length >= 2.
        prompts: reduced prompts behind each search.
        learning_rates: of the trainings of two heads, falling; the last one is also that of the single head.
        steps, runs, batch, optimiser: of every training. Pairs start as faint opposite heads, so
            that few end in the same-sign trap; with SGD, which does not leave such a start, at random.

    Raises ValueError for a bad argument before any work.
    """
    rates = tuple(checks.positive_number("learning_rates", rate) for rate in learning_rates)
    if len(rates) < 2 or list(rates) != sorted(rates, reverse=True):
        raise ValueError(f"learning_rates must be two or more falling numbers; got {list(learning_rates)}")
    checks.whole_number("runs", runs, at_least=2)
    checks.whole_number("length", law.length, at_least=2, hint="with one example a pair always predicts zero")
    base = Experiment(
        d=law.d, length=law.length, noise_std=law.noise_std, convention=law.convention, optimiser=optimiser,
        batch=batch, steps=steps, runs=runs, records=40, seed=seed, start="random" if optimiser == "SGD" else "oppo_small_id",
    )  # fmt: skip
    reduction = reduction_check(law, seed=seed)
    one, pair = (search(law, prompts=prompts, seed=seed) for search in (one_head_optimum, pair_optimum))
    again = tuple(one_head_optimum(law, prompts=max(prompts // 5, 400), seed=seed + s) for s in range(1, 7))
    omegas = np.concatenate((np.geomspace(0.008, FLAT_TO, 16), np.geomspace(FLAT_TO, 0.6, 10)[1:]))
    valley = pair_valley(law, math.sqrt(5 / law.d) * omegas, prompts=prompts // 2, seed=seed)
    step = law.length / (law.length + law.d + law.noise_variance)
    small, place = 0.1 * pair.omega, FLAT_TO * math.sqrt(5 / law.d)
    there = int((valley.omega - place).abs().argmin())
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    models = torch.tensor([pair.omega, small]), torch.tensor([pair.mu, step / (2 * small)])
    risks = reduced_risk_per_batch(*(part[:, None] * signs for part in models), law, prompts=prompts, seed=seed)
    apart = torch.tensor([pair.omega, place]), torch.tensor([pair.mu, valley.mu[there]])
    # Few prompts carry the difference: more of them.
    ends = reduced_risk_per_batch(*(part[:, None] * signs for part in apart), law, prompts=4 * prompts, seed=seed)
    debiased = law.d * (1 - step * (law.length - 1) / law.length) * law.beta_std**2
    return TwoNumbersStudy(
        law, reduction, one, again, pair, valley,
        gain=debiased - risks[:, 0], narrow=(risks[:, 1] - debiased) / small**2, pair_risk=risks[:, 0],
        cost=(ends[:, 1] - ends[:, 0]) / ends[:, 0].mean(),
        one_head=train(base.replace(heads=1, start="random", learning_rate=rates[-1])),
        ends=tuple(end_points(base.replace(heads=2, learning_rate=rate)) for rate in rates),
        jitter=jitter_cost(law, place / 2, step / place, size=0.02 * place, seed=seed),
        flow=gradient_flow(law, 0.02 * signs[None], 0.02 * signs[None], np.geomspace(0.1, 1e6, 225), tolerance=1e-6),
    )  # fmt: skip
