r"""What III.7 measures: stacks, several tasks, covariates that are correlated or have a mean, noise, and the distance from Bayes.

Risks of trained models on laws without a closed form for them are measured against a neighbour that has one. A linear predictor close to
the model has an exactly known risk; on common prompts the two errors nearly cancel, so

$$ \mathrm{risk}(\text{model}) = \mathrm{risk}(\text{linear}) + \mathbb E\big[(\hat y-t)^2-(\hat y_{\text{lin}}-t)^2\big] $$

has a standard error many times smaller than the plain average. `t` is the target without noise. Everything is derived in the theory
chapter of Part III, unless said.
"""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.in_context import closed_form
from attnbook.in_context.deeper_and_wider.multi_task import (
    MultiTaskLaw,
    best_linear_maps,
    centred_linear_answers,
    linear_risks,
    paired_heads,
    separate_maps,
    superposed_heads,
)
from attnbook.in_context.deeper_and_wider.stack import causal_attention, predict_stack, prompt_tokens, stack_of_circuits
from attnbook.in_context.deeper_and_wider.training import DEPTH_NAMES, TASK_NAMES, Trained, WiderSetting, obtain, specs
from attnbook.in_context.estimators import bayes_risk, kernel_weights
from attnlib.attention import attention_weights
from attnlib.in_context.circuits import circuits_of
from attnlib.in_context.errors import conditional_risk
from attnlib.in_context.law import Prompts, RegressionLaw, toeplitz_covariance
from attnlib.in_context.model import initial_weights

SCALES = (0.02, 0.05, 0.1, 0.2)
_STARTS = 20  # of layers that are read without training
_PART = 200  # prompts at a time


# --- risks of trained models -----------------------------------------------------------------------------------------------


def centred_linear_answer(gamma, prompts: Prompts, offset=0.0) -> torch.Tensor:
    """(B,): x_q' Gamma sum_i (x_i - mean) y_i / L + offset * mean of the labels."""
    G = torch.as_tensor(np.asarray(gamma, dtype=np.float64))
    centred = prompts.x - prompts.x.mean(-2, keepdim=True)
    moment = (centred * prompts.y.unsqueeze(-1)).mean(-2)
    return ((prompts.query @ G) * moment).sum(-1) + offset * prompts.y.mean(-1)


def risk_beside_linear(stack, law, maps, *, offset=0.0, prompts=20_000, seed=0):
    """Risk and its standard error, (R,) for one task and (R, N) for N, beside the centred linear predictor with `maps`.

    Args:
        stack: R runs of a model.
        law: single task, `maps` (d, d); or several, `maps` (N, d, d).
        offset: a, what the linear predictor adds of the labels' mean (single task).
        prompts: held-out prompts of the stream (seed, "test", 0), common to all runs.
    """
    several = isinstance(law, MultiTaskLaw)
    exact = (
        linear_risks(law, maps)
        if several
        else float(closed_form.preconditioned_gd_risk(law, maps, centred=True, offset=offset))
    )

    def difference(part):
        if several:
            target, linear = part.target, centred_linear_answers(maps, part)
        else:
            target, linear = part.clean_target.unsqueeze(-1), centred_linear_answer(maps, part, offset).unsqueeze(-1)
        return (predict_stack(stack, part) - target).square() - (linear - target).square()

    mean, error = _averages(difference, law, prompts, seed)
    return (torch.as_tensor(exact) + mean, error) if several else (exact + mean[:, 0], error[:, 0])


def plain_risk(stack, law: RegressionLaw, *, prompts=20_000, seed=0):
    """Risk (R,) and its standard error without a neighbour, for models that are near no linear predictor."""
    mean, error = _averages(
        lambda part: (predict_stack(stack, part) - part.clean_target.unsqueeze(-1)).square(), law, prompts, seed
    )
    return mean[:, 0], error[:, 0]


def _averages(value, law, prompts, seed):
    """Mean and standard error over prompts of value(part) (R, prompts of the part, N)."""
    drawn = law.draw(prompts, seed)
    with torch.no_grad():
        values = torch.cat([value(drawn.part(k, k + _PART)) for k in range(0, prompts, _PART)], dim=1)
    return values.mean(1), values.std(1) / math.sqrt(prompts)


# --- one causal layer ------------------------------------------------------------------------------------------------------


def authors_attention(scores: torch.Tensor) -> torch.Tensor:
    """Weights (..., T, T) as the authors' causal layer has them: a softmax over all tokens, a mask of -10^9, another softmax.

    Row 0 has every key masked, so that all its entries are equal: it looks at everything, the future included. Source: authors' code.
    """
    T = scores.shape[-1]
    allowed = torch.ones(T, T, dtype=torch.bool).tril(-1)
    return attention_weights(attention_weights(scores).masked_fill(~allowed, -1e9))


def causal_finding(law: RegressionLaw, heads, *, runs=5, seed=0) -> SimpleNamespace:
    """R models at their random start, read "once" (one softmax) and "twice", as the authors' layer reads them. By these names

    - spread: (R, 2) least and largest L p at the query;
    - leak: (R,) largest change of any weight of a token when the last three tokens of every prompt change (all but the first, if they
      are fewer);
    - unevenness: (R, 2) largest sum |p - 1/L| at the query: random start, scores 100 times as large.
    """
    circuits = circuits_of(initial_weights(law.d, heads, seed=seed, runs=runs)).key_query
    tokens = prompt_tokens(law.draw(20, seed))
    moved = tokens.clone()
    first = max(1, tokens.shape[-2] - 3)
    moved[:, first:] += 1.0
    # (R, B, H, T, T), row = the token that looks
    scores, others = (torch.einsum("bsi,rhij,btj->rbhts", z, circuits, z) for z in (tokens, moved))
    found = SimpleNamespace(spread={}, leak={}, unevenness={})
    for name, rule in (("once", causal_attention), ("twice", authors_attention)):
        before, after = rule(scores), rule(others)
        last = law.length * before[..., -1, :-1].flatten(1)
        found.spread[name] = torch.stack([last.amin(1), last.amax(1)], 1)
        # What the earlier tokens give to the later ones, and what changes among the earlier ones.
        change = (after - before)[..., :first, :first].abs().flatten(1).amax(1)
        given = before[..., :first, first:].abs().flatten(1).amax(1)
        found.leak[name] = torch.maximum(change, given)
        far = [(rule(scale * scores)[..., -1, :-1] - 1 / law.length).abs().sum(-1) for scale in (1, 100)]
        found.unevenness[name] = torch.stack([part.flatten(1).amax(1) for part in far], 1)
    return found


# --- several tasks ---------------------------------------------------------------------------------------------------------


def task_finding(trained: Trained, prompts, seed) -> SimpleNamespace:
    """R trainings of H heads on N tasks. Risks are means over tasks, as in the authors' loss; `best`: of H heads of small scale."""
    law, heads = trained.spec.law, trained.spec.experiment.heads
    maps, risks = best_linear_maps(law, heads)
    risk, error = risk_beside_linear(trained.stack(), law, maps, prompts=prompts, seed=seed)
    # The mean of the errors is a bound: tasks are correlated.
    return SimpleNamespace(
        trained=trained, heads=heads, maps=maps, best=float(risks.mean()), risk=risk.mean(1), risk_se=error.mean(1)
    )


def superposition_cost(law: MultiTaskLaw, *, prompts=6000, seed=0) -> dict[str, torch.Tensor]:
    """Mean risk over tasks of constructed heads minus that of the separate steps: (len(SCALES), 2), value and standard error.

    "pairs": 2N heads, two for each task; "superposed": N + 1 heads. The same prompts for all, each with both signs of its query, which
    cancels the first order in the scale prompt by prompt.
    """
    drawn, maps = law.draw(prompts, seed), separate_maps(law)
    both = drawn, replace(drawn, query=-drawn.query, target=-drawn.target)
    linear = [(centred_linear_answers(maps, part) - part.target).square() for part in both]
    found = {}
    for name, build in (("pairs", paired_heads), ("superposed", superposed_heads)):
        rows = []
        for scale in SCALES:
            stack = stack_of_circuits(*build(law, scale))
            errors = [(predict_stack(stack, part)[0] - part.target).square() for part in both]
            excess = sum((mine - other).mean(1) for mine, other in zip(errors, linear, strict=True)) / 2
            rows.append(torch.stack([excess.mean(), excess.std() / prompts**0.5]))
        found[name] = torch.stack(rows)
    return found


# --- other covariates ------------------------------------------------------------------------------------------------------


def map_finding(trained: Trained, prompts, seed) -> SimpleNamespace:
    """R trainings on covariates N(m, Sigma), at their end, beside the best small-scale heads and the best steps."""
    law, circuits = trained.spec.law, trained.circuits()[:, -1]
    s = SimpleNamespace(trained=trained)
    s.gamma, offset, best = closed_form.best_centred_heads(law)  # best map (d, d), best a, their risk
    s.offset, s.best = float(offset), float(best)
    s.risk, s.risk_se = risk_beside_linear(trained.stack(), law, s.gamma, offset=s.offset, prompts=prompts, seed=seed)
    plain, centred = (closed_form.best_preconditioner(law, centred=each) for each in (False, True))
    s.scalar_step = float(closed_form.gd_optimal_risk(law))  # of the best gradient step with one number for a step
    s.preconditioned = float(closed_form.preconditioned_gd_risk(law, plain))  # with a matrix, not centred
    s.centred = float(closed_form.preconditioned_gd_risk(law, centred, centred=True))  # centred, no offset
    s.mu, s.found_offset = circuits.mu, circuits.mu.sum(-1)  # (R, H), (R,)
    s.found_map = trained.maps()[:, -1, 0]  # (R, d, d): sum over heads of mu_h M_h^T
    # Along the eigenvectors of Sigma, ascending: Sigma's eigenvalues (d,), Gamma's diagonal (d,) and the trained map's (R, d).
    s.values, vectors = np.linalg.eigh(law.covariance_matrix.numpy())
    turn = torch.as_tensor(vectors)
    s.along = torch.einsum("ij,rik,kj->rj", turn, s.found_map, turn)
    s.gamma_along = np.einsum("ij,ik,kj->j", vectors, s.gamma, vectors)
    s.shape = torch.as_tensor(s.gamma_along)  # of what the map should be, up to a factor
    # (R, H): |cosine| between each head's M_h and Gamma, in the Frobenius product
    blocks, target = circuits.covariate_block, torch.as_tensor(s.gamma)
    norms = blocks.square().sum((-2, -1)).sqrt() * target.norm()
    s.cosines = (blocks * target).sum((-2, -1)).abs() / norms
    return s


def heads_over_matrix(s: WiderSetting) -> SimpleNamespace:
    """Closed forms for covariates whose mean has all entries `s.mean`, then 1: risk over that of the best plain step with a matrix, (2,).

    heads: best small heads; centred: best centred step, without an offset.
    """
    heads, centred = [], []
    for entry in (s.mean, 1.0):
        law = RegressionLaw(s.d, s.length, s.noise_std, mean=(entry,) * s.d)
        matrix = closed_form.preconditioned_gd_risk(law, closed_form.best_preconditioner(law))
        step = closed_form.best_preconditioner(law, centred=True)
        heads.append(float(closed_form.best_centred_heads(law)[2] / matrix))
        centred.append(float(closed_form.preconditioned_gd_risk(law, step, centred=True) / matrix))
    heads, centred = (torch.tensor(ratios, dtype=torch.float64) for ratios in (heads, centred))
    return SimpleNamespace(heads=heads, centred=centred)


def scale_finding(law: RegressionLaw, *, seed=0) -> SimpleNamespace:
    """What a pair of finite scale adds to the centred step that it tends to, over omega^2, covariates N(m, Sigma).

    Heads +-omega N, +-1/(2 omega): conditional risks minus those of the step with the same matrix, on the same prompts. Measured
    (batches,): `short`, the best matrix times 0.3, and `best`; kappa for both: `predicted`, and `isotropic`, for N(0, I) and the best
    step there.
    """
    plain = RegressionLaw(law.d, law.length, law.noise_std, law.convention)
    omega, s = 0.02, SimpleNamespace(predicted=[], isotropic=[])
    for name, factor in (("short", 0.3), ("best", 1.0)):
        N = factor * closed_form.best_preconditioner(law, centred=True)
        values = []
        for run in range(40):
            drawn = law.draw(2500, seed, run=run)
            scores = torch.einsum("bld,de,be->bl", drawn.x, torch.as_tensor(N), drawn.query)
            pair = (torch.softmax(omega * scores, -1) - torch.softmax(-omega * scores, -1)) / (2 * omega)
            step = (scores - scores.mean(-1, keepdim=True)) / law.length
            values.append((conditional_risk(pair, drawn, law) - conditional_risk(step, drawn, law)).mean() / omega**2)
        setattr(s, name, torch.stack(values))
        s.predicted.append(float(closed_form.opposite_pair_curvature(law, 1.0, matrix=N)))
        G = factor * closed_form.best_preconditioner(plain, centred=True)
        s.isotropic.append(float(closed_form.opposite_pair_curvature(plain, 1.0, matrix=G)))
    return s


# --- noise and the Bayes factor --------------------------------------------------------------------------------------------


def bayes_factor(law: RegressionLaw, sigma2, *, omega=0.1, prompts=4000, seed=0) -> SimpleNamespace:
    """The pair (omega, -omega) with the best effective step of the centred gradient, and ridge, at every noise: risks (K,).

    Regression vector and label noise are integrated by hand, and the pair is measured beside the centred step, whose risk is known.
    `factor`: risk of the pair over the Bayes risk. Risks are without the target's noise; covariates are N(0, I).
    """
    drawn = law.draw(prompts, seed)
    rows = []
    for value in sigma2:
        noisy = replace(law, noise_std=float(value) ** 0.5)
        eta = float(closed_form.debiased_gd_optimal_step(noisy))
        mu = eta / (2 * omega)
        pair = conditional_risk(kernel_weights(drawn, [omega, -omega], [mu, -mu]), drawn, noisy)
        # A pair of vanishing omega is the centred step; the difference has a small variance.
        faint = conditional_risk(kernel_weights(drawn, [1e-4, -1e-4], [5e3 * eta, -5e3 * eta]), drawn, noisy)
        step = float(closed_form.debiased_gd_optimal_risk(noisy))
        ideal, gap = bayes_risk(drawn.x, noisy), pair - faint
        rows.append([step + gap.mean(), gap.std() / prompts**0.5, ideal.mean(), ideal.std() / prompts**0.5])
    s = SimpleNamespace(law=law, sigma2=np.asarray(sigma2, dtype=np.float64), prompts=prompts)
    s.pair, s.pair_se, s.bayes, s.bayes_se = torch.tensor(rows, dtype=torch.float64).T
    s.factor = s.pair / s.bayes
    # the two taken as independent
    s.factor_se = s.factor * ((s.pair_se / s.pair) ** 2 + (s.bayes_se / s.bayes) ** 2).sqrt()
    return s


def load_finding(d, loads, sigma2, *, draws=400, seed=0) -> SimpleNamespace:
    """Ridge at every pair of load d / L and noise, sampled on `draws` sets of examples; the query is integrated by hand. All (C,).

    bayes: in units of s_beta^2; bounds: B(L + 1) and B(L - 1), shifted: B(L + 2) and B(L); factor: exact risk of the best centred step
    over `bayes`; limit: its limit at this load; many: its limit for many examples, 1 + 1 / sigma^2.
    """
    rows, bounds, shifted = [], [], []
    for number, (load, noise) in enumerate(itertools.product(loads, sigma2)):
        law = RegressionLaw(d, max(1, round(d / load)), noise**0.5)
        risks = torch.cat([bayes_risk(law.draw(draws // 10, seed, run=10 * number + k).x, law) for k in range(10)])
        bounds.append(closed_form.bayes_risk_bounds(law))
        shifted.append(closed_form.bayes_risk_bounds(law, length=law.length + 1))
        limit = closed_form.bayes_factor_proportional(d / law.length, noise)
        mean, error = risks.mean().item(), risks.std().item() / len(risks) ** 0.5
        factor = closed_form.debiased_gd_optimal_risk(law) / mean
        rows.append([law.length, noise, mean, error, factor, limit, 1 + 1 / noise])
    s = SimpleNamespace(d=d, draws=draws)
    s.length, s.sigma2, s.bayes, s.bayes_se, s.factor, s.limit, s.many = torch.tensor(rows, dtype=torch.float64).T
    s.bounds, s.shifted = (torch.tensor(each, dtype=torch.float64).T for each in (bounds, shifted))
    return s


# --- everything ------------------------------------------------------------------------------------------------------------


def _depth_finding(trained: Trained, prompts, seed) -> SimpleNamespace:
    """One layer is near a centred step; a stack is near nothing whose risk is known."""
    law, how = trained.spec.law, {"prompts": prompts, "seed": seed}
    if trained.spec.experiment.layers > 1:
        risk, error = plain_risk(trained.stack(), law, **how)
    else:
        gamma = closed_form.best_preconditioner(law, centred=True)
        risk, error = risk_beside_linear(trained.stack(), law, gamma, **how)
    return SimpleNamespace(trained=trained, risk=risk, risk_se=error)


def wider_study(setting: WiderSetting, *, prompts=6000, progress=False) -> SimpleNamespace:
    """Collect: trainings from the table where they are there, everything else measured now on `prompts` held-out prompts."""
    s, seed, wanted = setting, {"seed": setting.seed}, specs(setting)
    law, tasks = RegressionLaw(s.d, s.length, s.noise_std), MultiTaskLaw(noise_std=s.noise_std)
    other = RegressionLaw(s.d, 10, s.noise_std, covariance=toeplitz_covariance(s.d, s.rho), mean=(s.mean,) * s.d)

    def found(finding, *names):
        return [finding(obtain(wanted[name], progress=progress), prompts, s.seed) for name in names]

    anisotropic, mean = found(map_finding, "anisotropic", "mean")
    return SimpleNamespace(
        setting=s,
        anisotropic=anisotropic,
        mean=mean,
        over_matrix=heads_over_matrix(s),
        scale=scale_finding(other, **seed),
        noise=bayes_factor(RegressionLaw(s.d, 5 * s.d, 0.0, "repository"), np.geomspace(1e-4, 30, 12), **seed),
        # d = 100, L = 500, sigma^2 = 3: near the proportional limit
        large=bayes_factor(RegressionLaw(100, 500, 0.0, "repository"), [3.0], omega=0.02, prompts=60, **seed),
        page_noise=bayes_factor(law, [s.noise_std**2], **seed),
        small_loads=load_finding(6, (0.2, 1.0, 3.0), (0.1, 1.0), draws=20_000, **seed),
        loads=load_finding(60, (0.2, 1.0, 2.0), (0.1, 1.0), **seed),
        causal=causal_finding(law, s.heads, runs=_STARTS, **seed),
        depth=dict(zip(DEPTH_NAMES, found(_depth_finding, *DEPTH_NAMES), strict=True)),
        tasks={one.heads: one for one in found(task_finding, *TASK_NAMES)},
        task_law=tasks,
        task_separate=float(linear_risks(tasks, separate_maps(tasks)).mean()),
        superposed=superposed_heads(tasks, 0.1),  # circuits of N + 1 heads
        superposition=superposition_cost(tasks, prompts=prompts, **seed),  # at SCALES
    )
