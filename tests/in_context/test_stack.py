"""Stacks: one layer is the query-only model, tying is repetition, circuits are nested by layer and head."""

import pytest
import torch

from attnbook.in_context.causal import LayerWeights, causal_layer, layer_of_heads, prompt_tokens
from attnbook.in_context.deeper_and_wider.stack import initial_stack, predict_stack, stack_circuits
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import STARTS, attend, initial_weights
from tests.bad_input import refusing

LAW = RegressionLaw(d=3, length=7, noise_std=0.4)


@pytest.fixture(scope="module")
def prompts():
    return LAW.draw(11, 5)


@pytest.mark.parametrize("start", STARTS)
def test_one_layer_is_the_query_only_model(prompts, start):
    weights = initial_weights(3, 4, start, seed=1, runs=2)
    stack = initial_stack(3, 4, start=start, seed=1, runs=2)
    for mine, theirs in zip(stack.layers[0].tensors, layer_of_heads(weights).tensors, strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(stack.final, torch.ones(2, 1, 1, dtype=torch.float64))
    assert (predict_stack(stack, prompts)[..., 0] - attend(weights, prompts)).abs().max() <= 1e-12


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


def test_circuits_are_nested_by_layer_and_head():
    stack = initial_stack(3, 2, 3, seed=6, runs=2)
    found = stack_circuits(stack)
    assert len(found) == 3
    for k, layer in enumerate(found):
        for run in range(2):
            for h in range(2):
                own = stack.layers[k]
                M = own.key[run, h].T @ own.query[run, h] / 2  # sqrt(n) = 2
                V = own.output[run, h] @ own.value[run, h]
                torch.testing.assert_close(layer.key_query[run, h], M)
                torch.testing.assert_close(layer.output_value[run, h], V)
                torch.testing.assert_close(layer.read_out[run, h], stack.final[run] @ V)
        pair = layer.circuits()
        assert pair.omega.shape == pair.mu.shape == (2, 2)
        torch.testing.assert_close(pair.mu, layer.read_out[:, :, 0, 3])
        torch.testing.assert_close(pair.omega, layer.key_query[:, :, range(3), range(3)].mean(-1))


test_bad_input = refusing(
    (initial_stack, (3, 2, 2), {"layers": 0, "start": "zero", "mask": "both", "outputs": 0}),
    (lambda: initial_stack(3, 3, start="oppo_small_id"), "heads must be even for start='oppo_small_id'; got 3"),
    (lambda: initial_stack(3, 2, 1, weight_tying=True), "layers must be >= 2 with weight_tying=True; got 1"),
)


def test_a_layer_out_of_range():
    with pytest.raises(ValueError, match=r"number must be in 0 \.\.\. 1; got 2"):
        initial_stack(3, 2, 2).layer(2)
    assert isinstance(initial_stack(3, 2, 2).layer(1), LayerWeights)
