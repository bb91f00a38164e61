"""The autograd trainer: step by step the reference loop where both can go, and right where only it can go."""

import numpy as np
import pytest
import torch

from attnbook.in_context.causal import prompt_tokens
from attnbook.in_context.deeper_and_wider.multi_task import MultiTaskLaw
from attnbook.in_context.deeper_and_wider.stack import predict_stack, run_stack
from attnbook.in_context.deeper_and_wider.training import starting_stack, train_deep, training_prompts
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from attnlib.in_context.training import TrainingDiverged, train
from tests.bad_input import refusing

SMALL = Experiment(d=3, length=7, heads=2, batch=5, steps=50, records=6, runs=3, learning_rate=0.02, noise_std=0.3)


@pytest.mark.parametrize("optimiser", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("shared_data", [False, True])
def test_one_layer_is_the_reference_trainer(optimiser, shared_data):
    """Autograd through the layer against the gradient written by hand, and torch.optim against the updates written by hand."""
    own = {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}  # nothing at torch's defaults
    experiment = SMALL.replace(optimiser=optimiser, shared_data=shared_data, convention="repository", **own)
    mine = train_deep(experiment, dtype="float64")
    theirs = train(experiment, dtype="float64", implementation="reference")
    assert np.array_equal(mine.steps, theirs.steps)
    torch.testing.assert_close(mine.layers[0].key_query, theirs.circuits.key_query, rtol=0, atol=1e-10)
    torch.testing.assert_close(mine.layers[0].read_out[..., 0, :], theirs.circuits.output_value, rtol=0, atol=1e-10)
    torch.testing.assert_close(mine.loss, theirs.loss, rtol=1e-10, atol=0, equal_nan=True)
    assert (mine.layers[0].key_query[:, -1] - mine.layers[0].key_query[:, 0]).abs().max() > 1e-3


def _slope(stack, tokens, targets, index, direction, size=1e-6):
    """Derivative of the runs' summed losses along one direction in one tensor, by differences."""
    values = []
    for sign in (1, -1):
        moved = list(stack.trained)
        moved[index] = moved[index] + sign * size * direction
        values.append((run_stack(stack.rebuilt(tuple(moved)), tokens) - targets).square().mean((1, 2)).sum())
    return ((values[0] - values[1]) / (2 * size)).item()


@pytest.mark.parametrize("weight_tying", [False, True])
@pytest.mark.parametrize("mask", ["strict", "inclusive"])
def test_a_step_of_a_stack_follows_the_gradient(weight_tying, mask):
    experiment = SMALL.replace(
        layers=3, weight_tying=weight_tying, steps=1, records=2, optimiser="SGD", learning_rate=1.0, runs=2
    )
    before = starting_stack(experiment, mask)
    after = train_deep(experiment, mask=mask, dtype="float64").stack
    prompts = training_prompts(experiment, experiment.law, 0, 1, "float64")
    tokens, targets = prompt_tokens(prompts)[0], prompts.targets.squeeze(-2)[0]
    generator = torch.Generator().manual_seed(0)
    for index, (old, new) in enumerate(zip(before.trained, after.trained, strict=True)):
        direction = torch.randn(old.shape, generator=generator, dtype=torch.float64)
        slope = _slope(before, tokens, targets, index, direction)
        assert ((old - new) * direction).sum().item() == pytest.approx(slope, rel=2e-5, abs=1e-9)


def test_losses_are_means_over_the_window():
    """Records at 0, 1, 2, 4: the losses come from the weights before each update, on the stream's prompts."""
    experiment = SMALL.replace(steps=4, records=4, optimiser="SGD", learning_rate=1e-12)
    history = train_deep(experiment, dtype="float64")
    prompts = training_prompts(experiment, experiment.law, 0, 4, "float64")
    losses = torch.stack([
        (predict_stack(starting_stack(experiment), prompts.map(lambda field, i=i: field[i]))
         - prompts.targets.squeeze(-2)[i]).square().mean((1, 2))
        for i in range(4)
    ], 1)  # fmt: skip
    last = losses[:, int(history.steps[-2]) :]
    torch.testing.assert_close(history.loss[:, -1], last.mean(1), rtol=1e-9, atol=0)
    torch.testing.assert_close(history.loss_se[:, -1], last.std(1) / last.shape[1] ** 0.5, rtol=1e-8, atol=0)
    assert history.loss[:, 0].isnan().all()


def test_other_covariates_reach_the_model():
    law = RegressionLaw(3, 7, 0.3, covariance=toeplitz_covariance(3, 0.6), mean=(2.0, 0.0, -1.0))
    prompts = training_prompts(SMALL.replace(batch=4000), law, 0, 1, "float64")
    torch.testing.assert_close(prompts.x[0, 0].mean((0, 1)), law.mean_vector, atol=0.05, rtol=0)
    experiment = SMALL.replace(steps=1, records=2)
    first = training_prompts(experiment, law, 0, 1, "float64").map(lambda field: field[0])
    predictions = predict_stack(starting_stack(experiment), first)[..., 0]
    by_hand = (predictions - first.target).square().mean(1)
    torch.testing.assert_close(train_deep(experiment, law, dtype="float64").loss[:, 1], by_hand)


def test_cooldown_ends_with_small_steps():
    experiment = SMALL.replace(steps=64, records=7, optimiser="SGD")
    constant, cooled = (train_deep(experiment, dtype="float64", cooldown=share) for share in (0.0, 0.5))
    assert torch.equal(constant.layers[0].key_query[:, :5], cooled.layers[0].key_query[:, :5])  # up to step 16
    moves = [(h.layers[0].key_query[:, -1] - h.layers[0].key_query[:, -2]).norm() for h in (constant, cooled)]
    assert moves[1] < 0.75 * moves[0]


def test_a_diverging_training_names_its_step():
    experiment = SMALL.replace(optimiser="SGD", learning_rate=1e4, steps=2000, layers=2)
    with pytest.raises(TrainingDiverged, match=r"the loss of run \d at step \d+ is not a finite number") as found:
        train_deep(experiment)
    assert 0 < found.value.step < 2000
    assert found.value.last_good <= found.value.step


test_bad_input = refusing(
    (train_deep, (SMALL,), {"experiment": 3, "dtype": "half", "cooldown": 1.5, "mask": "none"}),
    (
        lambda: train_deep(SMALL.replace(learning_rate=(0.1, 0.2, 0.3))),
        "learning_rate must be one number for all runs here",
    ),
    (
        lambda: train_deep(SMALL, RegressionLaw(d=4, length=7)),
        "law must have the experiment's d = 3 and outputs = 1; got d = 4 and 1",
    ),
    (lambda: train_deep(SMALL, MultiTaskLaw(3, ((0,), (1,)))), "outputs = 1; got d = 3 and 2"),
)
