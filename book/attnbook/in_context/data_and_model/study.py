r"""What III.1 measures: prompts by number, two conventions, merged circuits, what a prediction does not see.

Everything here is either exact algebra, judged to rounding, or a mean over independent draws with its standard error. Source:
derived in the theory chapter of Part III; sizes and settings are the authors'.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from attnlib.in_context.circuits import attention, predict, two_number_circuits
from attnlib.in_context.errors import conditional_risk
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import Prompts, RegressionLaw
from attnlib.in_context.model import STARTS, initial_weights
from attnlib.in_context.training import train
from attnlib.kernels import prompt_stream
from attnlib.randomness import stream

LOUD = 1.0  # noise_std of the checks that look at the noise: at 0.01 nobody could see a wrong constant
_OMEGAS = (0.4, 0.2, 0.1, 0.05, 0.025, 0.0125)
_SHARP = (0.5, -0.25), (2.0, -1.0)  # omega, mu of the heads whose conditional mean is measured: uneven weights
_BATCHES = 10
_STREAM_STEPS = 40  # steps whose normal numbers are looked at


# --- prompts ---------------------------------------------------------------------------------------------------------------


def training_batch(experiment: Experiment, step, run=0) -> Prompts:
    """The B prompts that run `run` is trained on at step `step` (updates already made), float64."""
    count = experiment.law.normals_per_prompt
    source = [int(experiment.streams[run])]
    return experiment.law.from_normals(
        prompt_stream.normals(experiment.seed, source, step, 1, experiment.batch, count)[0, 0]
    )


def training_prompt(experiment: Experiment, step, number, run=0) -> Prompts:
    """Prompt `number` of that batch made alone, (1, ...), from its counter and nothing else."""
    seed = experiment.seed
    counter = [np.array([n], dtype=np.uint64) for n in (number, step, int(experiment.streams[run]), 0)]
    state = prompt_stream.philox((seed & 0xFFFFFFFF, seed >> 32), counter)
    words = prompt_stream.xoshiro(state, experiment.law.normals_per_prompt)
    return experiment.law.from_normals(prompt_stream.normals_of(words))


def ask_about(prompts: Prompts, index: int) -> Prompts:
    """Example `index` becomes the question: its label is hidden and becomes the target, the other L - 1 examples stay.

    Replaces the position whose label the authors' data class can set to zero.
    """
    others = [i for i in range(prompts.length) if i != index]
    return Prompts(
        prompts.x[..., others, :], prompts.y[..., others], prompts.x[..., index, :], prompts.y[..., index], prompts.beta
    )


# --- what a prediction is worth, given the covariates ----------------------------------------------------------------------


def redraw_labels(weights: torch.Tensor, prompts: Prompts, law: RegressionLaw, count, seed) -> torch.Tensor:
    """`conditional_risk` by sampling: beta and label noise drawn `count` times for each of the B prompts, mean squared error (B,)."""
    errors = []
    for number, (c, x, query) in enumerate(zip(weights, prompts.x, prompts.query, strict=True)):
        normals = torch.as_tensor(stream(seed, "resampling", number).standard_normal((count, law.d + len(c))))
        beta, noise = law.beta_std * normals[:, : law.d], law.label_noise_std * normals[:, law.d :]
        labels = beta @ x.T + noise
        errors.append((labels @ c - beta @ query).square().mean())
    return torch.stack(errors)


# --- the limit of small omega ----------------------------------------------------------------------------------------------


def small_omega(law: RegressionLaw, count, seed, omegas=_OMEGAS) -> SimpleNamespace:
    r"""Distances $\|\hat y-\mathrm{step}\|/\|\mathrm{step}\|$ of two-number heads with $\sum\omega_h\mu_h=1$ from one gradient step.

    Over `count` prompts in each of ten batches, (batches, omegas): `pair_to_centred`, heads $(\omega,\mu)$, $(-\omega,-\mu)$ against the
    centred step; `pair_to_plain`, the same heads against the plain step; `one_to_centred`, one head against the centred step. And
    (batches,): `third_order`, what the pair's distance is divided by $\omega^2$, and `mean_label`, what the one head's distance is times
    $\omega$, both to leading order.

    centred step: $\frac1L\sum_iy_ig_i$ with $g_i=\langle x_i-\bar x,x_q\rangle$, plain step: $\frac1L\sum_iy_i\langle x_i,x_q\rangle$.
    With $m_k$ the mean of $g_i^k$, the pair is the centred step plus
    $\frac{\omega^2}L\sum_iy_i(g_i^3-3m_2g_i-m_3)/6+O(\omega^4)$, one head is $\bar y/\omega$ plus the centred step $+O(\omega)$.
    """
    omega = torch.tensor([float(w) for w in omegas], dtype=torch.float64)
    pair = two_number_circuits(torch.stack([omega, -omega], -1), torch.stack([0.5 / omega, -0.5 / omega], -1), law.d)
    one = two_number_circuits(omega[:, None], 1 / omega[:, None], law.d)
    rows = []
    for batch in range(_BATCHES):
        prompts = law.draw(count, seed, run=batch)
        scores = torch.einsum("bld,bd->bl", prompts.x, prompts.query)
        plain = (prompts.y * scores).mean(-1)
        g = scores - scores.mean(-1, keepdim=True)
        centred = (prompts.y * g).mean(-1)
        m2, m3 = ((g**k).mean(-1, keepdim=True) for k in (2, 3))
        third = (prompts.y * (g**3 - 3 * m2 * g - m3)).mean(-1) / 6
        cases = ((pair, centred), (pair, plain), (one, centred))
        distances = [_size(predict(heads, prompts) - step) / _size(step) for heads, step in cases]
        rows.append((*distances, *(_size(term) / _size(centred) for term in (third, prompts.y.mean(-1)))))
    names = ("pair_to_centred", "pair_to_plain", "one_to_centred", "third_order", "mean_label")
    found = map(torch.stack, zip(*rows, strict=True))
    return SimpleNamespace(omega=omega, **dict(zip(names, found, strict=True)))


def gain_of_halving(distance: torch.Tensor) -> torch.Tensor:
    """(batches,): by what factor a distance (batches, omegas) falls when the smallest omega but one is halved."""
    return distance[:, -2] / distance[:, -1]


def _size(values):
    return values.square().mean(-1).sqrt()


# --- the whole page --------------------------------------------------------------------------------------------------------


def data_study(experiment: Experiment, *, count=4000, redraws=20_000, asked=20) -> SimpleNamespace:
    """Measure all of the page.

    Args:
        experiment: the training; its `steps` are run in float64 by the readable reference.
        count: held-out prompts in each of ten batches, >= 2; five times as many where examples are not needed, a tenth to a quarter
            where whole prompts are compared.
        redraws: of beta and noise behind a conditional mean, >= 2.
        asked: prompts whose conditional mean is measured, 2 ... batch.
    """
    e, law, seed = experiment, experiment.law, experiment.seed
    s = SimpleNamespace(experiment=e, law=law)
    s.prompts = training_batch(e, 0)  # the batch of step 0 of run 0, (B, ...)
    names = [name for name in STARTS if name != "oppo_small_id" or e.heads % 2 == 0]
    s.starts = {name: initial_weights(law.d, e.heads, name, seed=seed, runs=e.runs) for name in names}
    # The experiment's own start, and its end.
    s.before = initial_weights(law.d, e.heads, e.start, seed=seed, runs=e.runs, first_run=e.first_run)
    s.after = train(e, dtype="float64", implementation="reference").weights
    s.moments = _moments(e)  # (steps, 4): means of n, n^2, n^3, n^4 over the normal numbers of a step
    s.identity = _identity(law, asked, redraws, seed)
    s.zero_risk = {
        name: _zero_risk(replace(law, convention=name), count, seed) for name in ("notebook", "repository")
    }  # (batches,)
    s.limit = small_omega(law, max(2, count // 10), seed)
    return s


def _moments(experiment):
    count = experiment.law.normals_per_prompt
    source = [int(experiment.streams[0])]
    normals = prompt_stream.normals(experiment.seed, source, 0, _STREAM_STEPS, experiment.batch, count)[0]
    return torch.as_tensor(np.stack([(normals**k).mean((1, 2)) for k in (1, 2, 3, 4)], -1))


def _identity(law, asked, redraws, seed):
    """The conditional mean of B' prompts, (B',) each: sampled, by the formula, by the formula with sigma^2 for s_2."""
    omega, mu = (torch.tensor(values, dtype=torch.float64) for values in _SHARP)
    heads = two_number_circuits(omega, mu, law.d)
    loud = replace(law, noise_std=LOUD)
    prompts = loud.draw(asked, seed)
    weights = torch.einsum("h,hbl->bl", heads.mu, attention(heads, prompts))
    quiet = replace(loud, noise_std=LOUD / math.sqrt(law.d))  # its s_2 is LOUD^2 instead of d LOUD^2
    return {
        "sampled": redraw_labels(weights, prompts, loud, redraws, seed),
        "formula": conditional_risk(weights, prompts, loud),
        "without d": conditional_risk(weights, prompts, quiet),
    }


def _zero_risk(law, count, seed):
    short = law.with_length(1)  # the examples are not looked at
    draws = [short.draw(5 * count, seed, run=batch).clean_target for batch in range(_BATCHES)]
    return torch.stack([target.square().mean() for target in draws])
