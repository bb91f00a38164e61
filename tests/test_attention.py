"""The attention primitive: sums, shifts, permutations and autograd, with different sizes on each axis."""

import numpy as np
import pytest
import torch

from attnlib.attention import attention_logits, attention_output, attention_weights

R, N, T, M = 2, 3, 5, 7


@pytest.fixture
def tokens():
    return torch.as_tensor(np.random.default_rng(0).standard_normal((R, N, T, M)))


@pytest.fixture
def query():
    return torch.as_tensor(np.random.default_rng(1).standard_normal((R, M)))


def test_logits_are_inner_products(tokens, query):
    logits = attention_logits(tokens, query)
    by_hand = [[[float(tokens[r, i, t] @ query[r]) for t in range(T)] for i in range(N)] for r in range(R)]
    assert logits.shape == (R, N, T)
    np.testing.assert_allclose(logits, by_hand, rtol=1e-13, atol=1e-14)


def test_weights_sum_to_one_and_ignore_a_shift(tokens, query):
    logits = attention_logits(tokens, query)
    weights = attention_weights(logits)
    by_hand = np.exp(logits.numpy())
    by_hand /= by_hand.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, by_hand, rtol=1e-13)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-14)
    torch.testing.assert_close(attention_weights(logits + 1e3), weights, rtol=1e-11, atol=0)


def test_output_is_the_weighted_mean_and_ignores_token_order(tokens, query):
    weights = attention_weights(attention_logits(tokens, query))
    out = attention_output(weights, tokens)
    assert out.shape == (R, N, M)
    np.testing.assert_allclose(out[1, 2], sum(weights[1, 2, t] * tokens[1, 2, t] for t in range(T)), rtol=1e-13)
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = tokens[:, :, order]
    again = attention_output(attention_weights(attention_logits(shuffled, query)), shuffled)
    torch.testing.assert_close(again, out, rtol=1e-13, atol=1e-15)


def test_gradients_pass_gradcheck(tokens, query):
    def head(x, q):
        return attention_output(attention_weights(attention_logits(x, q)), x)

    assert torch.autograd.gradcheck(head, (tokens.requires_grad_(), query.requires_grad_()))
