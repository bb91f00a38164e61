"""III.2: what the page measures, each part by a second way."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from attnbook.in_context.published import PUBLISHED, PUBLISHED_LOSS, PUBLISHED_STEPS
from attnbook.in_context.training import study as training_study_module
from attnbook.in_context.training.study import (
    cost_of_jitter,
    everything,
    first_below,
    late,
    linear_start,
    mean_late_loss,
    resume_study,
    sign_agreement,
    thinned,
)
from attnlib.in_context.circuits import Circuits, circuits_of
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.model import HeadWeights, attend
from attnlib.in_context.training import History, train

SMALL = Experiment(
    heads=3, d=2, length=7, noise_std=0.1, batch=8, steps=40, records=8, runs=2, seed=3, learning_rate=0.01
)


@pytest.fixture(scope="module")
def short() -> History:
    return train(SMALL, dtype="float64", implementation="reference")


def test_thinned_keeps_the_ends(short: History) -> None:
    steps, circuits = thinned(short, 3)
    assert steps.tolist() == [short.steps[k] for k in (0, 3, 6, len(short.steps) - 1)]
    torch.testing.assert_close(circuits.mu[:, 1], short.mu[:, 3])


def with_circuits(history: History, circuits: Circuits) -> History:
    return dataclasses.replace(history, circuits=circuits)


def test_sign_agreement_counts_heads(short: History) -> None:
    expected = [
        [sum(w * m > 0 for w, m in zip(*pair, strict=True)) / 3 for pair in zip(*run, strict=True)]
        for run in zip(short.omega.tolist(), short.mu.tolist(), strict=True)
    ]
    torch.testing.assert_close(sign_agreement(short), torch.tensor(expected, dtype=torch.float64))


def test_first_below_interpolates_in_log_time() -> None:
    steps = np.array([0, 10, 1000, 2000])
    values = torch.tensor([[5.0, 2.0, 1.0, 0.5], [5.0, 4.0, 3.0, 2.0], [0.1, 2.0, 1.0, 0.5], [5.0, 1.0, 0.5, 0.5]])
    found = first_below(steps, values, 1.5)
    assert found[0].item() == pytest.approx(100.0)  # half way between 10 and 1000
    assert math.isnan(found[1])
    assert found[2].item() == 0.0
    assert found[3].item() == 10.0  # there is no logarithm of step 0


def test_late_loss_is_the_mean_over_steps() -> None:
    e = SMALL.replace(steps=60, records=12)
    history = train(e, dtype="float64", implementation="reference")
    mean = mean_late_loss(history, 4)
    start = int(history.steps[-5])
    losses = []
    for run in range(e.runs):
        each = train(e.replace(runs=1, first_run=run, records=2000), dtype="float64", implementation="reference")
        assert each.steps.tolist() == list(range(61))
        losses.append(each.loss[0, start + 1 :])
    losses = torch.stack(losses)
    torch.testing.assert_close(mean, losses.mean(1))


# --- the start


def test_linear_start_is_the_tangent_of_the_population_gradient(monkeypatch) -> None:
    """Its velocity at the start against autograd through the four matrices on many prompts, for small weights of the pattern.

    Head 0 looks at labels (one entry of W_Q), so that the brake is there; head 1 does not.
    """
    e = Experiment(heads=2, d=3, length=120, noise_std=0.2, optimiser="SGD", learning_rate=0.7, runs=1)
    n = e.width
    key = 0.3 * torch.eye(n).double().repeat(1, 2, 1, 1)
    query = torch.tensor([0.2, -0.3]).double()[:, None, None] * torch.eye(n).double()
    query[0, -1, 0] = 0.6
    value = 0.4 * torch.eye(n).double().repeat(1, 2, 1, 1)
    # Columns 0 and n-1 of W_V stay orthogonal, so that mu does not couple to other entries; its last row is not its last column.
    value[0, :, 0, 0], value[0, :, 0, -1], value[0, :, -1, 0] = 0.8, 0.3, -0.6
    output = torch.zeros(1, 2, n).double()
    output[0, :, -1] = torch.tensor([0.3, 0.25])
    tensors = [w.requires_grad_() for w in (query[None].clone(), key, value, output)]
    prompts = e.law.draw(12_000, 0)
    risk = (attend(HeadWeights(*tensors), prompts)[0] - prompts.target).square().mean()
    gradients = torch.autograd.grad(risk, tensors)
    weights = HeadWeights(*(w.detach() for w in tensors))
    moved = HeadWeights(*(w - 1e-4 * g for w, g in zip(weights_of(weights), gradients, strict=True)))
    before, after = circuits_of(weights), circuits_of(moved)
    velocity = torch.cat([after.omega - before.omega, after.mu - before.mu], -1)[0] / 1e-4
    monkeypatch.setattr(training_study_module, "initial_weights", lambda *_, **__: weights)
    path = linear_start(e, np.array([0.0, 1e-4]))
    found = torch.cat([path.omega[0, 1] - path.omega[0, 0], path.mu[0, 1] - path.mu[0, 0]]) / (1e-4 * e.learning_rate)
    torch.testing.assert_close(found, velocity, rtol=0.06, atol=5e-4)
    assert velocity.abs().min() > 0.006  # nothing is equal because it is zero


def weights_of(heads: HeadWeights) -> tuple[torch.Tensor, ...]:
    return heads.query, heads.key, heads.value, heads.output


# --- interrupting


def test_a_training_that_forgets_is_seen_and_so_is_a_changed_bit() -> None:
    found = resume_study(SMALL.replace(runs=1, steps=5), 2)
    assert found.differing["resumed"] == 0
    assert found.differing["forgetful"] > 0
    before, moment = everything(found.whole), found.whole.state["second_moment"]
    moment[0, 0, 0] = np.nextafter(moment[0, 0, 0], np.float32(1))
    assert (everything(found.whole) != before).sum() == 1


# --- watching


def test_jitter_is_what_an_average_of_k_lacks() -> None:
    """A quadratic risk and independent jitter of the records: mean risk = floor + J, risk of the average = floor + J / K."""
    floor, J, K = torch.tensor([0.6, 0.7]), 0.02, 4
    torch.testing.assert_close(cost_of_jitter(floor + J, floor + J / K, K), torch.full((2,), J))


def test_late_leaves_out_trapped_runs(short: History) -> None:
    circuits = Circuits(short.circuits.key_query.clone(), short.circuits.output_value.clone())
    circuits.output_value[0, -1, :, -1] = torch.tensor([1.0, 2.0, 0.5])  # one sign
    circuits.output_value[1, -1, :, -1] = torch.tensor([1.0, -2.0, 0.9])
    found = late(with_circuits(short, circuits), prompts=100, records=3)
    assert found.loss.shape == found.jitter.shape == (1,)
    torch.testing.assert_close(found.loss, mean_late_loss(short, 3)[1:])


# --- published numbers


def test_published_numbers_fit_each_other() -> None:
    """What the notebook prints of the same run by other routes: sums of mu, effective steps, ends of the loss lists."""
    sums, steps = {2: 0.0149, 4: -0.0657, 8: -0.0542}, {1: 0.8036, 2: 0.8945, 4: 0.8924, 8: 0.8894}
    for heads, (omega, mu) in ((heads, one.numbers) for heads, one in PUBLISHED.items()):
        assert len(omega) == len(mu) == heads
        assert sum(w * m for w, m in zip(omega, mu, strict=True)) == pytest.approx(steps[heads], abs=4e-4)
        if heads > 1:
            assert sum(mu) == pytest.approx(sums[heads], abs=3e-4)
    assert len(PUBLISHED_STEPS) == 11
    assert all(len(values) == 11 for both in PUBLISHED_LOSS.values() for values in both)
