"""Reach on layers small enough to know the answer; held heads change nothing that was theirs."""

import pytest
import torch

from attnbook.token_selection.real_data.frozen import FrozenLastLayer
from attnbook.token_selection.real_data.reach import free_heads, reachable, reachable_by_one_token, wrong_labels
from tests.token_selection.test_real_frozen import random_layer, some_weights


def known_layer(rows, samples, heads=1, mask=None):
    """Every sample has the same values; logits are the sum over heads of the attended values."""
    values = torch.tensor(rows).expand(samples, -1, -1).repeat(1, 1, heads)
    classes = values.shape[-1] // heads
    zeros = torch.zeros(samples, len(rows), 2)
    return FrozenLastLayer(
        zeros, values, zeros[:, 0], mask, heads, lambda a, r: a.unflatten(-1, (heads, classes)).sum(-2)
    )


# Class 0 and 1 are the largest at one token each; 2 only at a mixture of the two; 3 nowhere.
ROWS = [[1.0, 0.0, 0.6, 0.4], [0.0, 1.0, 0.6, 0.4]]


@pytest.mark.parametrize("heads", [1, 2])
def test_mixtures_reach_more_than_single_tokens(heads):
    layer, targets = known_layer(ROWS, 4, heads), torch.arange(4)
    assert reachable(layer, targets).tolist() == [True, True, True, False]
    assert reachable_by_one_token(layer, targets).tolist() == [True, True, False, False]


def test_a_masked_token_cannot_be_used():
    mask = torch.tensor([[True, True], [True, False], [True, False], [True, True]])
    layer, targets = known_layer(ROWS, 4, mask=mask), torch.tensor([1, 1, 0, 2])
    assert reachable(layer, targets).tolist() == [True, False, True, True]
    assert reachable_by_one_token(layer, targets).tolist() == [True, False, True, False]


def test_samples_are_searched_independently():
    layer = random_layer(N=30, L=4, seed=2)
    targets = torch.arange(30) % 4
    whole = reachable(layer, targets)
    assert 0.1 < whole.float().mean() < 1
    one_by_one = [bool(reachable(layer.subset(torch.tensor([i])), targets[i : i + 1])) for i in range(30)]
    assert whole.tolist() == one_by_one


def test_whatever_query_and_key_produce_is_reached():
    # The bound itself: labels that some attention of this form gives are found by free attention.
    layer = random_layer(N=60, L=5, masked=False, seed=4)
    for r, produced in enumerate(layer.logits(some_weights(layer, runs=4)).argmax(-1)):
        assert reachable(layer, produced).float().mean() >= 0.97, r


def test_wrong_labels_are_wrong_and_uniform():
    labels = torch.arange(6000) % 3
    wrong = wrong_labels(labels, 3, seed=1)
    assert not (wrong == labels).any()
    assert ((wrong - labels) % 3 == 1).float().mean().item() == pytest.approx(0.5, abs=0.025)
    assert torch.equal(wrong, wrong_labels(labels, 3, seed=1))
    assert not torch.equal(wrong, wrong_labels(labels, 3, seed=2))


@pytest.mark.parametrize("free", [1, 2, 3])
def test_holding_heads_at_their_own_attention_changes_nothing(free):
    layer = random_layer(N=5, heads=3, width=2, masked=True)
    attention = layer.attention(some_weights(layer))
    held = free_heads(layer, attention[0], free)
    torch.testing.assert_close(held.logits_of(attention[0][:, :free]), layer.logits_of(attention[0]))
    # Held heads keep the given attention; the free ones follow another.
    mixed = torch.cat([attention[1][:, :free], attention[0][:, free:]], 1)
    torch.testing.assert_close(held.logits_of(attention[1][:, :free]), layer.logits_of(mixed))
    # With a run axis, and after taking a part of the samples.
    runs = attention[:, :, :free]
    torch.testing.assert_close(held.logits_of(runs)[1], layer.logits_of(mixed))
    part = torch.tensor([4, 2])
    torch.testing.assert_close(held.subset(part).logits_of(runs[:, part])[1], layer.logits_of(mixed)[part])
    assert held.heads == free
    assert held.head_width == 2


def test_bad_arguments():
    layer = random_layer()
    attention = layer.attention(layer.start())[0]
    with pytest.raises(ValueError, match="free must be at most the number of heads, 2; got 3"):
        free_heads(layer, attention, 3)
    with pytest.raises(ValueError, match="free must be a whole number >= 1"):
        free_heads(layer, attention, 0)
    with pytest.raises(ValueError, match="attention must have shape"):
        free_heads(layer, attention[:, :1], 1)
    with pytest.raises(ValueError, match="steps must be"):
        reachable(layer, torch.zeros(4, dtype=torch.int64), steps=0)
    with pytest.raises(ValueError, match="labels must lie in"):
        wrong_labels(torch.tensor([3]), 3)
