r"""What the page on data and model measures: prompts by number, two conventions, merged circuits, what a prediction does not see.

Everything here is either exact algebra, judged to rounding, or a mean over independent draws with its standard error. Source:
derived in the theory chapter of Part III; sizes and settings are the authors'.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnlib import checks
from attnlib.in_context.circuits import attention, predict, two_number_circuits
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import Prompts, RegressionLaw
from attnlib.in_context.model import STARTS, HeadWeights, initial_weights
from attnlib.in_context.risk import conditional_risk
from attnlib.in_context.training import train
from attnlib.kernels import prompt_stream
from attnlib.randomness import stream

LOUD = 1.0  # noise_std of the checks that look at the noise: at 0.01 nobody could see a wrong constant
_OMEGAS = (0.4, 0.2, 0.1, 0.05, 0.025, 0.0125)
_SHARP = (0.5, -0.25), (2.0, -1.0)  # omega, mu of the heads whose conditional mean is measured: uneven weights
_BATCHES = 10
_STREAM_STEPS = 40  # steps whose normal numbers are looked at


# --- prompts ---------------------------------------------------------------------------------------------------------------


def training_batch(experiment: Experiment, step: int, run: int = 0) -> Prompts:
    """The B prompts that run `run` is trained on at step `step` (updates already made), float64."""
    count = experiment.law.normals_per_prompt
    source = [int(experiment.streams[run])]
    return experiment.law.from_normals(
        prompt_stream.normals(experiment.seed, source, step, 1, experiment.batch, count)[0, 0]
    )


def training_prompt(experiment: Experiment, step: int, number: int, run: int = 0) -> Prompts:
    """Prompt `number` of that batch made alone, (1, ...), from its counter and nothing else."""
    checks.whole_number("step", step, at_least=0)
    checks.whole_number("number", number, at_least=0)
    seed = experiment.seed
    counter = [np.array([n], dtype=np.uint64) for n in (number, step, int(experiment.streams[run]), 0)]
    state = prompt_stream.philox((seed & 0xFFFFFFFF, seed >> 32), counter)
    words = prompt_stream.xoshiro(state, experiment.law.normals_per_prompt)
    return experiment.law.from_normals(prompt_stream.normals_of(words))


def ask_about(prompts: Prompts, index: int) -> Prompts:
    """Example `index` becomes the question: its label is hidden and becomes the target, the other L - 1 examples stay.

    Replaces the position whose label the authors' data class can set to zero. Raises ValueError for an index outside 0 ... L - 1 or
    a prompt of one example.
    """
    length = prompts.length
    if checks.whole_number("index", index, at_least=0) >= length or length < 2:
        raise ValueError(f"index must be an example of a prompt with two or more: 0 ... {length - 1}; got {index}")
    others = [i for i in range(length) if i != index]
    return Prompts(
        prompts.x[..., others, :], prompts.y[..., others], prompts.x[..., index, :], prompts.y[..., index], prompts.beta
    )


# --- what a prediction is worth, given the covariates ----------------------------------------------------------------------


def redraw_labels(weights: torch.Tensor, prompts: Prompts, law: RegressionLaw, count: int, seed: int) -> torch.Tensor:
    """`conditional_risk` by sampling: beta and label noise drawn `count` times for each of the B prompts, mean squared error (B,)."""
    checks.whole_number("count", count, at_least=2)
    errors = []
    for number, (c, x, query) in enumerate(zip(weights, prompts.x, prompts.query, strict=True)):
        normals = torch.as_tensor(stream(seed, "resampling", number).standard_normal((count, law.d + len(c))))
        beta, noise = law.beta_std * normals[:, : law.d], law.label_noise_std * normals[:, law.d :]
        labels = beta @ x.T + noise
        errors.append((labels @ c - beta @ query).square().mean())
    return torch.stack(errors)


# --- the limit of small omega ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """Relative distances of two-number heads with sum of omega mu = 1 from one step of gradient descent, (batches, omegas)."""

    omega: torch.Tensor  # (K,), each half of the one before
    pair_to_centred: torch.Tensor  # heads (omega, mu), (-omega, -mu) against the centred step
    pair_to_plain: torch.Tensor  # ... against the plain step
    one_to_centred: torch.Tensor  # one head (omega, mu) against the centred step
    third_order: torch.Tensor  # (batches,): what the pair's distance is divided by omega^2, to leading order
    mean_label: torch.Tensor  # (batches,): what the one head's distance is times omega, to leading order

    def gain_of_halving(self, *, centred: bool = True) -> torch.Tensor:
        """(batches,): by what factor the pair's distance falls when the smallest but one omega is halved."""
        distance = self.pair_to_centred if centred else self.pair_to_plain
        return distance[:, -2] / distance[:, -1]


def small_omega(law: RegressionLaw, count: int, seed: int, omegas: Sequence[float] = _OMEGAS) -> Limit:
    r"""Distances $\|\hat y-\mathrm{step}\|/\|\mathrm{step}\|$ over `count` prompts in each of ten batches.

    centred step: $\frac1L\sum_iy_ig_i$ with $g_i=\langle x_i-\bar x,x_q\rangle$, plain step: $\frac1L\sum_iy_i\langle x_i,x_q\rangle$.
    With $m_k$ the mean of $g_i^k$, the pair is the centred step plus
    $\frac{\omega^2}L\sum_iy_i(g_i^3-3m_2g_i-m_3)/6+O(\omega^4)$, one head is $\bar y/\omega$ plus the centred step $+O(\omega)$.
    """
    omega = torch.tensor([float(w) for w in omegas], dtype=torch.float64)
    pair = two_number_circuits(torch.stack([omega, -omega], -1), torch.stack([0.5 / omega, -0.5 / omega], -1), law.d)
    one = two_number_circuits(omega[:, None], 1 / omega[:, None], law.d)
    rows: list[list[torch.Tensor]] = [[], [], []]
    leading: list[list[torch.Tensor]] = [[], []]
    for batch in range(_BATCHES):
        prompts = law.draw(count, seed, run=batch)
        scores = torch.einsum("bld,bd->bl", prompts.x, prompts.query)
        plain = (prompts.y * scores).mean(-1)
        g = scores - scores.mean(-1, keepdim=True)
        centred = (prompts.y * g).mean(-1)
        m2, m3 = ((g**k).mean(-1, keepdim=True) for k in (2, 3))
        third = (prompts.y * (g**3 - 3 * m2 * g - m3)).mean(-1) / 6
        for row, heads, step in zip(rows, (pair, pair, one), (centred, plain, centred), strict=True):
            row.append(_size(predict(heads, prompts) - step) / _size(step))
        for row, term in zip(leading, (third, prompts.y.mean(-1)), strict=True):
            row.append(_size(term) / _size(centred))
    return Limit(omega, *(torch.stack(row) for row in rows + leading))


def _size(values: torch.Tensor) -> torch.Tensor:
    return values.square().mean(-1).sqrt()


# --- the whole page --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataStudy:
    """Everything page 01 shows and judges."""

    experiment: Experiment
    prompts: Prompts  # the batch of step 0 of run 0, (B, ...)
    starts: dict[str, HeadWeights]  # by name; opposite heads only if their number is even
    before: HeadWeights  # (R, ...): the experiment's own start
    after: HeadWeights  # (R, ...): after its steps
    moments: torch.Tensor  # (steps, 4): means of n, n^2, n^3, n^4 over the normal numbers of a step
    # sampled, formula, formula with sigma^2 for s_2; (B',) each
    identity: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    zero_risk: dict[str, torch.Tensor]  # convention -> (batches,)
    limit: Limit

    @property
    def law(self) -> RegressionLaw:
        return self.experiment.law


def data_study(
    experiment: Experiment, *, count: int = 4000, redraws: int = 20_000, asked: int = 20, seed: int | None = None
) -> DataStudy:
    """Measure all of the page.

    Args:
        experiment: the training; its `steps` are run in float64 by the readable reference.
        count: held-out prompts in each of ten batches, >= 2; five times as many where examples are not needed, a tenth to a quarter
            where whole prompts are compared.
        redraws: of beta and noise behind a conditional mean, >= 2.
        asked: prompts whose conditional mean is measured, 2 ... batch.
        seed: of the held-out draws; None: the experiment's.

    Raises ValueError for a bad argument before any work.
    """
    checks.whole_number("count", count, at_least=2)
    checks.whole_number("redraws", redraws, at_least=2)
    if checks.whole_number("asked", asked, at_least=2) > experiment.batch:
        raise ValueError(f"asked must be at most the batch, {experiment.batch}; got {asked}")
    seed = experiment.seed if seed is None else seed
    law, heads = experiment.law, experiment.heads
    prompts = training_batch(experiment, 0)
    names = [name for name in STARTS if name != "oppo_small_id" or heads % 2 == 0]
    starts = {name: initial_weights(law.d, heads, name, seed=experiment.seed, runs=experiment.runs) for name in names}
    before = initial_weights(
        law.d, heads, experiment.start, seed=experiment.seed, runs=experiment.runs, first_run=experiment.first_run
    )
    after = train(experiment, dtype="float64", implementation="reference").weights
    return DataStudy(
        experiment=experiment,
        prompts=prompts,
        starts=starts,
        before=before,
        after=after,
        moments=_moments(experiment),
        identity=_identity(law, asked, redraws, seed),
        zero_risk={name: _zero_risk(replace(law, convention=name), count, seed) for name in ("notebook", "repository")},
        limit=small_omega(law, max(2, count // 10), seed),
    )


def _moments(experiment: Experiment) -> torch.Tensor:
    count = experiment.law.normals_per_prompt
    source = [int(experiment.streams[0])]
    normals = prompt_stream.normals(experiment.seed, source, 0, _STREAM_STEPS, experiment.batch, count)[0]
    return torch.as_tensor(np.stack([(normals**k).mean((1, 2)) for k in (1, 2, 3, 4)], -1))


def _identity(law: RegressionLaw, asked: int, redraws: int, seed: int) -> tuple[torch.Tensor, ...]:
    omega, mu = (torch.tensor(values, dtype=torch.float64) for values in _SHARP)
    heads = two_number_circuits(omega, mu, law.d)
    loud = replace(law, noise_std=LOUD)
    prompts = loud.draw(asked, seed)
    weights = torch.einsum("h,hbl->bl", heads.mu, attention(heads, prompts))
    quiet = replace(loud, noise_std=LOUD / math.sqrt(law.d))  # its s_2 is LOUD^2 instead of d LOUD^2
    formulas = (conditional_risk(weights, prompts, each) for each in (loud, quiet))
    return redraw_labels(weights, prompts, loud, redraws, seed), *formulas


def _zero_risk(law: RegressionLaw, count: int, seed: int) -> torch.Tensor:
    short = law.with_length(1)  # the examples are not looked at
    draws = [short.draw(5 * count, seed, run=batch).clean_target for batch in range(_BATCHES)]
    return torch.stack([target.square().mean() for target in draws])
