"""The causal layer: one softmax, no leak, and its last token is the query-only model."""

import math

import pytest
import torch

from attnbook.in_context.causal import LayerWeights, causal_attention, causal_layer, layer_of_heads, prompt_tokens
from attnlib.in_context.circuits import circuits_of
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import STARTS, attend, initial_weights

LAW = RegressionLaw(d=3, length=7, noise_std=0.4)


@pytest.fixture(scope="module")
def prompts():
    return LAW.draw(11, 5)


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


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("heads", [2, 4])
def test_the_last_token_is_the_query_only_model(prompts, start, heads):
    weights = initial_weights(3, heads, start, seed=1, runs=2)
    last = causal_layer(layer_of_heads(weights), prompt_tokens(prompts))[:, :, -1, 0]
    torch.testing.assert_close(last, attend(weights, prompts), rtol=0, atol=1e-12)
    assert last.abs().max() > 1e-9


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
    tokens = torch.stack([prompt_tokens(LAW.draw(5, 0, run=run)) for run in range(3)])
    together = causal_layer(layer, tokens)
    alone = causal_layer(layer, tokens[1])
    torch.testing.assert_close(together[1], alone[1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda layer: causal_layer(layer, torch.zeros(2, 5, 3)), r"tokens must have shape .* \(2, 5, 3\)"),
        (lambda layer: causal_layer(layer, torch.zeros(2, 5, 4), "none"), "mask must be one of 'strict', 'inclusive'"),
        (lambda layer: causal_attention(torch.zeros(3, 4)), r"scores must have shape .* \(3, 4\)"),
    ],
)
def test_bad_input(layer, call, words):
    with pytest.raises(ValueError, match=words):
        call(layer)
