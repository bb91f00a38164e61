"""III.7: causal layers and stacks, their autograd trainer against the reference loop, several tasks: exact risks, N + 1 heads."""

import math

import numpy as np
import pytest
import torch

from attnbook.in_context.closed_form import debiased_gd_optimal_risk
from attnbook.in_context.deeper_and_wider.multi_task import (
    MultiTaskLaw,
    best_linear_maps,
    centred_linear_answers,
    linear_risks,
    paired_heads,
    separate_maps,
    superposed_heads,
)
from attnbook.in_context.deeper_and_wider.stack import (
    LayerWeights,
    causal_layer,
    initial_stack,
    predict_stack,
    prompt_tokens,
    run_stack,
    stack_of_circuits,
)
from attnbook.in_context.deeper_and_wider.training import starting_stack, train_deep, training_prompts
from attnlib.in_context.circuits import circuits_of
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from attnlib.in_context.model import STARTS, attend, initial_weights
from attnlib.in_context.training import TrainingDiverged, train

STACK_LAW = RegressionLaw(d=3, length=7, noise_std=0.4)


@pytest.fixture(scope="module")
def prompts():
    return STACK_LAW.draw(11, 5)


def layer_of_heads(heads):
    """The query-only model's weights as a layer that writes one number."""
    return LayerWeights(heads.query, heads.key, heads.value, heads.output.unsqueeze(-2))


@pytest.fixture
def layer():
    """A layer that writes tokens, H = 2, n = 4, R = 3."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 2, 4, 4)] * 4
    return LayerWeights(*(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes))


def by_hand(layer, tokens, run, prompt, t, mask):
    """Output of one token with loops and the four matrices as written."""
    n = tokens.shape[-1]
    allowed = range(t if mask == "strict" else t + 1)
    total = torch.zeros(layer.output.shape[-2], dtype=torch.float64)
    for h in range(layer.query.shape[1]):
        q = layer.query[run, h] @ tokens[prompt, t]
        exps = [math.exp(float(q @ (layer.key[run, h] @ tokens[prompt, s])) / math.sqrt(n)) for s in allowed]
        for s, e in zip(allowed, exps, strict=True):
            total += e / sum(exps) * (layer.output[run, h] @ (layer.value[run, h] @ tokens[prompt, s]))
    return total


@pytest.mark.parametrize("mask", ["strict", "inclusive"])
def test_every_output_by_hand(layer, prompts, mask):
    tokens = prompt_tokens(prompts)
    outputs = causal_layer(layer, tokens, mask)
    assert outputs.shape == (3, 11, 8, 4)
    for run, prompt, t in [(0, 0, 0), (2, 10, 1), (1, 4, 5), (2, 7, 7)]:
        torch.testing.assert_close(
            outputs[run, prompt, t], by_hand(layer, tokens, run, prompt, t, mask), rtol=1e-12, atol=1e-13
        )


@pytest.mark.parametrize("mask", ["strict", "inclusive"])
def test_the_future_changes_nothing(layer, prompts, mask):
    tokens = prompt_tokens(prompts)
    before = causal_layer(layer, tokens, mask)
    for j in range(8):
        changed = tokens.clone()
        changed[:, j] += 3.0
        after = causal_layer(layer, changed, mask)
        assert torch.equal(before[:, :, :j], after[:, :, :j])
        # With the strict mask token 0 looks at nobody, and token 1 at token 0 with weight 1, whatever it is itself.
        assert torch.equal(before[:, :, j], after[:, :, j]) == (mask == "strict" and j <= 1)
        if j < 7:
            assert not torch.equal(before[:, :, j + 1 :], after[:, :, j + 1 :])


@pytest.mark.parametrize("mask", ["strict", "inclusive"])
def test_last_only_is_the_last_row(layer, prompts, mask):
    tokens = prompt_tokens(prompts)
    alone = causal_layer(layer, tokens, mask, last_only=True)
    torch.testing.assert_close(alone, causal_layer(layer, tokens, mask)[:, :, -1:], rtol=1e-13, atol=1e-13)


def test_merged_circuits_of_a_layer_are_those_of_the_heads():
    weights = initial_weights(4, 3, seed=4, runs=2)
    layer, merged = layer_of_heads(weights), circuits_of(weights)
    torch.testing.assert_close(layer.key_query, merged.key_query)
    torch.testing.assert_close(layer.output_value[:, :, 0], merged.output_value)


def test_runs_may_have_their_own_prompts(layer):
    tokens = torch.stack([prompt_tokens(STACK_LAW.draw(5, 0, run=run)) for run in range(3)])
    together = causal_layer(layer, tokens)
    alone = causal_layer(layer, tokens[1])
    torch.testing.assert_close(together[1], alone[1])


@pytest.mark.parametrize("start", STARTS)
def test_one_layer_is_the_query_only_model(prompts, start):
    weights = initial_weights(3, 4, start, seed=1, runs=2)
    stack = initial_stack(3, 4, start=start, seed=1, runs=2)
    for mine, theirs in zip(stack.layers[0].tensors, layer_of_heads(weights).tensors, strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(stack.final, torch.ones(2, 1, 1, dtype=torch.float64))
    torch.testing.assert_close(predict_stack(stack, prompts)[..., 0], attend(weights, prompts), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mask", ["strict", "inclusive"])
@pytest.mark.parametrize("weight_tying", [False, True])
def test_three_layers_one_after_the_other(prompts, mask, weight_tying):
    stack = initial_stack(3, 2, 3, weight_tying=weight_tying, mask=mask, seed=2, runs=2)
    tokens = prompt_tokens(prompts)
    for k in range(3):
        tokens = causal_layer(stack.layers[0 if weight_tying else k], tokens, mask)
    by_hand = torch.einsum("rw,rbw->rb", stack.final[:, 0], tokens[:, :, -1])
    predictions = predict_stack(stack, prompts)
    assert predictions.shape == (2, 11, 1)
    torch.testing.assert_close(predictions[..., 0], by_hand, rtol=1e-12, atol=1e-13)


def test_layers_start_differently_and_runs_do_not_depend_on_their_number():
    many, alone = initial_stack(3, 2, 2, seed=5, runs=3), initial_stack(3, 2, 2, seed=5, first_run=2)
    assert not torch.equal(many.layer(0).query, many.layer(1).query)
    for first, second in zip(many.trained, alone.trained, strict=True):
        assert torch.equal(first[2:], second)


def test_circuits_are_listed_by_layer_and_head():
    stack = initial_stack(3, 2, 3, seed=6, runs=2)
    key_query, output_value = stack.circuits
    for k, own in enumerate(stack.layers):
        for run in range(2):
            for h in range(2):
                M = own.key[run, h].T @ own.query[run, h] / 2  # sqrt(n) = 2
                torch.testing.assert_close(key_query[run, k, h], M)
                torch.testing.assert_close(output_value[run, k, h], own.output[run, h] @ own.value[run, h])


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
    torch.testing.assert_close(mine.key_query[:, :, 0], theirs.circuits.key_query, rtol=0, atol=1e-10)
    torch.testing.assert_close(mine.output_value[:, :, 0, :, 0], theirs.circuits.output_value, rtol=0, atol=1e-10)
    torch.testing.assert_close(mine.loss, theirs.loss, rtol=1e-10, atol=0, equal_nan=True)
    assert (mine.key_query[:, -1] - mine.key_query[:, 0]).abs().max() > 1e-3


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
    assert torch.equal(constant.key_query[:, :5], cooled.key_query[:, :5])  # up to step 16
    moves = [(h.key_query[:, -1] - h.key_query[:, -2]).norm() for h in (constant, cooled)]
    assert moves[1] < 0.75 * moves[0]


def test_a_diverging_training_names_its_step():
    experiment = SMALL.replace(optimiser="SGD", learning_rate=1e4, steps=2000, layers=2)
    with pytest.raises(TrainingDiverged, match=r"the loss of run \d at step \d+ is not a finite number") as found:
        train_deep(experiment)
    assert 0 < found.value.step < 2000
    assert found.value.last_good <= found.value.step


TASKS = MultiTaskLaw(5, ((0, 1, 3), (3, 4), (1,)), length=11, noise_std=0.5)


def test_every_number_of_a_prompt_is_its_own_standard_normal():
    """Feed unit vectors: each normal moves one entry, and no two entries share one."""
    noiseless = MultiTaskLaw(5, ((0, 1, 3), (3, 4), (1,)), length=2, noise_std=0.0)
    count = noiseless.normals_per_prompt
    prompts = noiseless.from_normals(torch.eye(count, dtype=torch.float64).unsqueeze(-2))
    moved = torch.cat([prompts.x.flatten(1), prompts.query.flatten(1), prompts.beta.flatten(1)], 1)
    assert moved.sum() == moved.count_nonzero() == 2 * 5 + 5 + 6
    assert moved.sum(0).max() == moved.sum(1).max() == 1


def test_moments_of_the_law():
    prompts = TASKS.draw(15_000, 1)
    noise = prompts.y - prompts.x @ prompts.beta.mT
    for k, variance in enumerate((0.75, 0.5, 0.25)):  # d_k sigma^2
        assert abs(noise[..., k].var() / variance - 1) < 0.03
    np.testing.assert_allclose(prompts.beta.square().mean(0), TASKS.projections, atol=0.08)
    assert abs(torch.corrcoef(noise.flatten(0, 1).T) - torch.eye(3)).max() < 0.03
    assert not torch.equal(TASKS.draw(3, 1).x, TASKS.draw(3, 2).x)


def test_linear_risks_against_sampling():
    """Maps that are neither diagonal nor symmetric; one in a hundred at four standard errors."""
    maps = 0.5 * np.random.default_rng(0).standard_normal((3, 5, 5)) + 0.5 * separate_maps(TASKS)
    prompts = TASKS.draw(20_000, 2)
    errors = (centred_linear_answers(maps, prompts) - prompts.target).square()
    exact = linear_risks(TASKS, maps)
    gap = (errors.mean(0).numpy() - exact) / (errors.std(0).numpy() / 20_000**0.5)
    assert np.abs(gap).max() < 4
    assert (errors.std(0).numpy() / 20_000**0.5 < 0.04 * exact).all()


@pytest.mark.parametrize("law", [TASKS, MultiTaskLaw()])
def test_a_task_alone_is_the_single_task_problem(law):
    """d_k (d_k + 1 + s_k) / (L + d_k + s_k), by the single-task closed form and by moving away from the optimum."""
    best = linear_risks(law, separate_maps(law))
    for k, size in enumerate(law.sizes):
        single = RegressionLaw(int(size), law.length, law.noise_std)
        assert best[k] == pytest.approx(float(debiased_gd_optimal_risk(single)), rel=1e-12)
    for factor in (0.98, 1.02):
        assert (linear_risks(law, factor * separate_maps(law)) > best).all()


def test_authors_sizes_by_hand():
    law = MultiTaskLaw()
    assert linear_risks(law, separate_maps(law)) == pytest.approx([4 * 5.0004 / 52.0004] * 2, rel=1e-12)
    # Two heads: one matrix for both tasks, entry g on the covariates of one task and h on those of both.
    a, b = 47 * 48 / 48**2, 47 / 48**2 * 2 * 4.0004
    g, h = (47 / 48) / (a + b), 2 * (47 / 48) / (2 * a + b)
    mean = (8 - (47 / 48) * (4 * g + 2 * 2 * h)) / 2
    assert best_linear_maps(law, 2)[1] == pytest.approx([mean, mean], rel=1e-9)
    assert round(mean, 5) == 0.51377


def test_more_heads_never_hurt_and_n_plus_one_are_enough():
    sums = [best_linear_maps(TASKS, heads)[1].sum() for heads in (1, 2, 3, 4, 6)]
    assert sums[0] == TASKS.sizes.sum()
    assert sums[3] == sums[4] == linear_risks(TASKS, separate_maps(TASKS)).sum()
    assert sums[0] > sums[1] + 0.1
    assert sums[1] > sums[2] + 0.1
    assert sums[2] > sums[3] + 0.01


@pytest.mark.parametrize("heads", [paired_heads, superposed_heads])
def test_heads_of_small_scale_are_the_linear_maps(heads):
    prompts = TASKS.draw(50, 5)
    wanted = centred_linear_answers(separate_maps(TASKS), prompts)
    gaps = []
    for scale in (1e-3, 1e-4):
        M, V = heads(TASKS, scale)
        np.testing.assert_allclose(V[..., 5:].sum(1), 0, atol=1e-9 / scale)
        gaps.append((predict_stack(stack_of_circuits(M, V), prompts)[0] - wanted).abs().max().item())
    # Opposite heads cancel the second order: an error of scale^2 instead of scale.
    order = np.log10(gaps[0] / gaps[1])
    assert order == pytest.approx(2 if heads is paired_heads else 1, abs=0.1)
    assert M.shape[1] == (6 if heads is paired_heads else 4)
