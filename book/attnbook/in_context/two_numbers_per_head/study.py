r"""What III.5 measures: the reduction of the risk, its optima and valley, trainings of two heads, and the price of jitter."""

import math
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.in_context import approximate
from attnbook.in_context.closed_form import debiased_gd_optimal_step, gd_optimal_step
from attnbook.in_context.full_runs import experiment as full_experiment
from attnbook.in_context.full_runs import load, load_rates
from attnbook.in_context.optimum import Optimum, one_head_optimum, pair_optimum, pair_valley
from attnbook.in_context.reduced import mean_and_error, reduced_risk, reduced_risk_per_batch
from attnlib.in_context.circuits import Circuits, predict, two_number_circuits
from attnlib.in_context.errors import risk_per_prompt
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.training import History, train
from attnlib.randomness import stream

LAST = 3  # records that are averaged at the end: about half of the training
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


def as_text(values, digits=3) -> str:
    """Mean +- standard error of (runs,); the one number there is, or n/a."""
    if len(values) < 2:
        return f"{values.mean().item():.{digits}f}" if len(values) else "n/a"
    mean, error = mean_and_error(values)
    return f"{mean.item():.{digits}f} +- {error.item():.{digits}f}"


def dense_risk_per_batch(omega, mu, law: RegressionLaw, *, prompts, batches=_BATCHES, seed=0) -> torch.Tensor:
    """Squared error of the model with circuits (omega I, mu e_last) on dense prompts with label noise: (batches, P)."""
    circuits = two_number_circuits(omega, mu, law.d)
    values = []
    for batch in range(batches):
        drawn = law.draw(prompts, seed, run=_DENSE_RUNS + batch)
        values.append(((predict(circuits, drawn) - drawn.clean_target) ** 2).mean(-1))
    return torch.stack(values)


def reduction_check(law: RegressionLaw, *, prompts=_DENSE_PROMPTS, seed=0) -> SimpleNamespace:
    """Risk of P models with `omega` and `mu` (P, H) in two ways, once per batch of prompts, (batches, P) each.

    dense: squared error of the model on prompts with labels, `prompts` of them in each of 40 batches; reduced; wrong: the reduction with
    the part that is orthogonal to the query twice as large. omega is in units of sqrt(5/d).
    """
    scale = math.sqrt(5 / law.d)
    omega, mu = (torch.tensor(part, dtype=torch.float64) for part in zip(*_SETTINGS, strict=True))
    omega, mu = omega * scale, mu / scale
    # (d - 1 + s2) times 2 is what a law with more noise has.
    noise = 2 * (law.d - 1 + law.noise_variance) - (law.d - 1)
    other = RegressionLaw(law.d, law.length, math.sqrt(noise / law.d), law.convention)
    draws = {"prompts": 10_000, "batches": _BATCHES, "seed": seed}
    return SimpleNamespace(
        omega=omega,
        mu=mu,
        dense=dense_risk_per_batch(omega, mu, law, prompts=prompts, seed=seed),
        reduced=reduced_risk_per_batch(omega, mu, law, **draws),
        wrong=reduced_risk_per_batch(omega, mu, other, **draws),
    )


def jitter_price(law: RegressionLaw) -> float:
    r"""Risk that independent noise of variance tau^2 on all d^2 entries of both covariate blocks adds to a pair, over mu^2 tau^2.

    2 s^2 d^2 (L-1)(L+d+s2)/L^2 to leading order in omega and tau: the gradient of the prediction in M_jk is mu times
    x_q,k sum_i (x_i - mean x)_j y_i / L. Source: derived in the theory chapter of Part III.
    """
    d, length = law.d, law.length
    return 2 * law.beta_std**2 * d**2 * (length - 1) * (length + d + law.noise_variance) / length**2


def jitter_cost(law: RegressionLaw, omega, mu, *, size, seed=0) -> torch.Tensor:
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
    found = {}
    if law != full_experiment(2).law:
        return found
    for history in (load_rates(), load(2)):
        rates = torch.as_tensor(history.experiment.learning_rate, dtype=torch.float64).expand(len(history.omega))
        opposite = history.final.cancels
        for rate in rates.unique().tolist():
            kept = opposite & (rates == rate)
            found[rate] = torch.as_tensor(history.steps), history.omega[kept].abs().mean(-1)
    return dict(sorted(found.items(), reverse=True))


def optimum_scan(dimensions, ratios, *, noise_std, prompts=3000, seed=0) -> dict[int, list[Optimum]]:
    """Best single head at every d and length = ratio * d, by d."""
    return {
        d: [one_head_optimum(RegressionLaw(d, ratio * d, noise_std), prompts=prompts, seed=seed) for ratio in ratios]
        for d in dimensions
    }


def end_points(experiment: Experiment) -> SimpleNamespace:
    """Train R times two heads and look at where they end; U of the runs are untrapped.

    opposite: (R,) bool, heads of opposite signs at the end, the others are in the same-sign trap; size: (R, K), mean |omega| of the heads
    at each record; floor: (R,), mean loss minus the exact risk of the two numbers, averaged over the last records. Of the untrapped runs:
    final_size and final_step, mean |omega| and effective step over the last records; jitter, how far an entry of the covariate block
    beside the diagonal moves between late records (rms); price, `jitter_price` of that jitter at the final |mu|. (U,) each.
    """
    s = SimpleNamespace(learning_rate=float(experiment.learning_rate), history=train(experiment))
    history, law = s.history, experiment.law
    s.opposite, s.size = history.final.cancels, history.omega.abs().mean(-1)
    late = history.omega[:, -LAST:], history.mu[:, -LAST:]
    seen, _ = reduced_risk(*late, law, prompts=4000, seed=experiment.seed)
    s.floor = (history.loss[:, -LAST:] - seen).mean(1) - law.target_noise_std**2
    s.final_size = s.size[s.opposite][:, -LAST:].mean(1)
    s.final_step = history.effective_step[s.opposite][:, -LAST:].mean(1)
    blocks = history.circuits[s.opposite, -LAST - 1 :].covariate_block.double()
    beside = ~torch.eye(law.d, dtype=torch.bool)
    s.jitter = blocks[..., beside].var(1).mean((1, 2)).sqrt()
    s.price = history.mu[s.opposite, -1].abs().mean(-1) ** 2 * s.jitter**2 * jitter_price(law)
    return s


def two_numbers_study(
    law: RegressionLaw,
    *,
    prompts=40_000,
    learning_rates=(0.01, 0.003, 0.001),
    optimiser="Adam",
    batch=128,
    steps=20_000,
    runs=10,
    seed=0,
) -> SimpleNamespace:
    """Search, train and collect.

    Args:
        law: isotropic, length >= 2.
        prompts: reduced prompts behind each search.
        learning_rates: of the trainings of two heads, two or more, falling; the last one is also that of the single head.
        steps, runs, batch, optimiser: of every training. Pairs start as faint opposite heads, so
            that few end in the same-sign trap; with SGD, which does not leave such a start, at random.
    """
    base = Experiment(
        d=law.d, length=law.length, noise_std=law.noise_std, convention=law.convention, optimiser=optimiser,
        batch=batch, steps=steps, runs=runs, records=40, seed=seed, start="random" if optimiser == "SGD" else "oppo_small_id",
    )  # fmt: skip
    s = SimpleNamespace(law=law, stored=stored_runs(law), stored_sizes=stored_sizes(law))
    s.reduction = reduction_check(law, seed=seed)
    s.one, s.pair = (search(law, prompts=prompts, seed=seed) for search in (one_head_optimum, pair_optimum))
    # The single head again, with other seeds and fewer prompts, and that of the approximate loss.
    s.one_again = [one_head_optimum(law, prompts=max(prompts // 5, 400), seed=seed + k) for k in range(1, 7)]
    s.approximate_one = approximate.one_head_optimum(law)
    omegas = np.concatenate((np.geomspace(0.008, FLAT_TO, 16), np.geomspace(FLAT_TO, 0.6, 10)[1:]))
    s.valley = pair_valley(law, math.sqrt(5 / law.d) * omegas, prompts=prompts // 2, seed=seed)
    # Risks per batch, (batches,): of the best pair, and of one at the narrow end of the valley with the step L/(L+d+s2).
    step = law.length / (law.length + law.d + law.noise_variance)
    small, place = 0.1 * s.pair.omega, FLAT_TO * math.sqrt(5 / law.d)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)

    def risks(omega, mu, prompts):
        models = torch.tensor(omega)[:, None] * signs, torch.tensor(mu)[:, None] * signs
        return reduced_risk_per_batch(*models, law, prompts=prompts, seed=seed).T

    s.pair_risk, narrow = risks([s.pair.omega, small], [s.pair.mu, step / (2 * small)], prompts)
    debiased = law.d * (1 - step * (law.length - 1) / law.length) * law.beta_std**2
    s.gain = debiased - s.pair_risk  # over debiased gradient descent
    s.narrow = (narrow - debiased) / small**2
    # Risk of a pair at FLAT_TO, with its best mu, over that of the best pair, less 1. Few prompts carry the difference: more of them.
    there = int((s.valley.omega - place).abs().argmin())
    best, apart = risks([s.pair.omega, place], [s.pair.mu, s.valley.mu[there]], 4 * prompts)
    s.cost = (apart - best) / best.mean()
    pair = [s.pair.omega, -s.pair.omega], [s.pair.mu, -s.pair.mu]
    s.level = SimpleNamespace(  # of the approximate loss, and the best steps
        risk=approximate.approximate_risk(law, *pair),
        share=(law.d + law.noise_variance) / (law.d + 1 + law.noise_variance),
        step=float(debiased_gd_optimal_step(law)),
        plain_step=float(gd_optimal_step(law)),
    )
    s.one_head = train(base.replace(heads=1, start="random", learning_rate=learning_rates[-1]))
    s.ends = [end_points(base.replace(heads=2, learning_rate=rate)) for rate in learning_rates]
    s.jitter = jitter_cost(law, place / 2, step / place, size=0.02 * place, seed=seed)
    # The flow on the approximate loss, from faint opposite heads.
    faint = 0.02 * signs[None]
    s.flow = approximate.gradient_flow(law, faint, faint, np.geomspace(0.1, 1e6, 225), tolerance=1e-6)
    return s
