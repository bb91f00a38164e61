"""The cached last layer is the last layer; nested flips, training of all runs at once; reach on layers small enough to know the answer."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from attnbook.token_selection.real_data.experiment import check_noise_levels, nested_flips, step_sizes, train_selection
from attnbook.token_selection.real_data.frozen import (
    FrozenLastLayer,
    QueryKey,
    free_heads,
    reachable,
    reachable_by_one_token,
    wrong_labels,
)
from attnbook.token_selection.real_data.vit import SmallViT, ViTShape
from tests.bad_input import refusing

SHAPE = ViTShape(image=6, patch=2, width=12, heads=3, layers=3, hidden=20, classes=5)


@pytest.fixture(scope="module")
def images():
    return torch.rand(7, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model():
    # Biases and norms away from their start, so that none of them can be forgotten.
    model = SmallViT(SHAPE, seed=3)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


def torchs_transformer(model, images):
    """The same network out of torch's TransformerEncoder: all rows of all layers, packed projections."""
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(
            SHAPE.width, SHAPE.heads, SHAPE.hidden, 0.0, "gelu", batch_first=True, norm_first=True
        ),
        SHAPE.layers,
        norm=nn.LayerNorm(SHAPE.width),
        enable_nested_tensor=False,
    )
    for own, theirs in zip(model.stack, encoder.layers, strict=True):
        parts = own.query, own.key, own.value
        state = {
            "self_attn.in_proj_weight": torch.cat([part.weight for part in parts]),
            "self_attn.in_proj_bias": torch.cat([part.bias for part in parts]),
        }
        for name, module in {
            "self_attn.out_proj": own.output, "linear1": own.up, "linear2": own.down, "norm1": own.norm1, "norm2": own.norm2
        }.items():  # fmt: skip
            state |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
        theirs.load_state_dict(state)
    encoder.norm.load_state_dict(model.norm.state_dict())
    tokens = []
    for row in range(3):
        for column in range(3):
            patch = images[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].reshape(-1, 4)
            tokens.append(model.embed(patch) + model.positions[0, 3 * row + column])
    x = torch.cat([model.cls.expand(len(images), -1, -1), torch.stack(tokens, 1)], 1)
    return model.head(encoder(x)[:, 0])


def test_model_and_cache_equal_torchs_transformer(model, images):
    with torch.no_grad():
        wanted = torchs_transformer(model, images)
        torch.testing.assert_close(model(images), wanted, rtol=1e-5, atol=1e-5)
        cached = model.freeze(images)
        own = model.own_selection()
        torch.testing.assert_close(cached.logits(own)[0], wanted, rtol=1e-5, atol=1e-5)


def test_training_steps_equal_training_the_whole_network(model, images):
    labels = torch.tensor([[1, 1, 0, 3, 4, 2, 1]])
    cached = model.freeze(images)
    start = cached.start(scale=0.3, seed=4)
    trained, _ = train_selection(cached, labels, start, steps=3, step_size=1e-3, warmup=0, final_fraction=1.0)

    last = model.stack[-1]
    last.query.weight.data, last.query.bias.data = start.query[0].T.clone(), start.query_bias[0].clone()
    last.key.weight.data, last.key.bias.data = start.key[0].T.clone(), torch.zeros(12)
    parameters = [p.requires_grad_(True) for p in (last.query.weight, last.query.bias, last.key.weight)]
    optimiser = torch.optim.Adam(parameters, lr=1e-3)
    for _ in range(3):
        optimiser.zero_grad()
        functional.cross_entropy(model(images), labels[0]).backward()
        optimiser.step()
    moved = (trained.key - start.key).abs().max()
    assert moved > 2e-3
    torch.testing.assert_close(trained.query[0], last.query.weight.T, rtol=0, atol=2e-5)
    torch.testing.assert_close(trained.query_bias[0], last.query.bias, rtol=0, atol=2e-5)
    torch.testing.assert_close(trained.key[0], last.key.weight.T, rtol=0, atol=2e-5)


def random_layer(N=4, L=6, D=5, heads=2, width=3, masked=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens, values = (
        torch.randn(N, L, D, generator=generator),
        torch.randn(N, L, heads * width, generator=generator),
    )
    residual = torch.randn(N, D, generator=generator)
    out = torch.randn(heads * width, 4, generator=generator)
    mask = None
    if masked:
        mask = torch.ones(N, L, dtype=torch.bool)
        mask[1, 4:], mask[2, 1:] = False, False
    return FrozenLastLayer(tokens, values, residual, mask, heads, lambda a, r: a @ out + r[..., :4])


def some_weights(layer, runs=3, seed=5):
    weights = layer.start(scale=0.8, runs=1, seed=seed)
    weights = QueryKey(*(torch.cat([(1 + r) * t for r in range(runs)]) for t in weights.tensors()))
    return QueryKey(weights.query, torch.arange(runs).unsqueeze(-1) * torch.ones_like(weights.query_bias), weights.key)


@pytest.mark.parametrize("class_token", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_scores_attention_and_mean_by_loops(masked, class_token):
    """With a class token, the same in all samples, logits take a way of their own."""
    layer = random_layer(masked=masked)
    if class_token:
        layer.tokens[:, 0] = layer.tokens[1, 0].clone()
    weights = some_weights(layer)
    attention, logits = layer.attention(weights), layer.logits(weights)
    assert attention.shape == (3, 4, 2, 6)
    for r in range(3):
        for i in range(4):
            mean = []
            for head in range(2):
                part = slice(3 * head, 3 * head + 3)
                q = layer.tokens[i, 0] @ weights.query[r][:, part] + weights.query_bias[r][part]
                allowed = [t for t in range(6) if layer.mask is None or layer.mask[i, t]]
                z = [float(q @ (layer.tokens[i, t] @ weights.key[r][:, part])) / math.sqrt(3) for t in allowed]
                e = [math.exp(v - max(z)) for v in z]
                wanted = torch.zeros(6)
                wanted[allowed] = torch.tensor([v / sum(e) for v in e])
                torch.testing.assert_close(attention[r, i, head], wanted, rtol=1e-4, atol=1e-6)
                mean.append(wanted @ layer.values[i, :, part])
            torch.testing.assert_close(
                logits[r, i], layer.finish(torch.cat(mean), layer.residual[i]), rtol=1e-4, atol=1e-4
            )


def test_subset_and_further_run_axes():
    layer = random_layer(masked=True)
    weights = some_weights(layer, runs=6)
    chosen = torch.tensor([3, 1])
    whole = layer.logits(weights)
    torch.testing.assert_close(layer.subset(chosen).logits(weights), whole[:, chosen])
    assert len(layer.subset(chosen)) == 2
    grid = QueryKey(*(tensor.unflatten(0, (2, 3)) for tensor in weights.tensors()))
    torch.testing.assert_close(layer.logits(grid).flatten(0, 1), whole)


def test_start_is_the_same_for_all_runs_and_set_by_the_seed():
    layer = random_layer(D=50, heads=8, width=5)
    start = layer.start(scale=0.1, runs=3, seed=2)
    assert start.query.shape == (3, 50, 40)
    assert torch.equal(start.key[0], start.key[2])
    assert not torch.equal(start.key, start.query)
    assert start.query.std().item() == pytest.approx(0.1, rel=0.05)
    assert not start.query_bias.any()
    assert torch.equal(layer.start(scale=0.1, seed=2).key[0], start.key[1])
    assert not torch.equal(layer.start(scale=0.1, seed=3).key[0], start.key[1])


LEVELS = (0.0, 0.1, 0.25, 0.6)


def test_flips_are_exact_nested_and_to_another_class():
    true = torch.arange(41) % 7
    labels, flipped = nested_flips(true, 7, LEVELS, seed=3)
    assert labels.shape == flipped.shape == (4, 41)
    assert flipped.sum(1).tolist() == [round(level * 41) for level in LEVELS] == [0, 4, 10, 25]
    assert torch.equal(labels != true, flipped)
    for fewer, more in zip(range(3), range(1, 4), strict=True):
        assert not (flipped[fewer] & ~flipped[more]).any()
        assert torch.equal(labels[more][flipped[fewer]], labels[fewer][flipped[fewer]])
    assert int(labels.min()) >= 0
    assert int(labels.max()) <= 6


def test_a_flipped_label_is_uniform_over_the_other_classes_and_flips_are_over_samples():
    true = torch.full((60,), 2)
    counts, places = torch.zeros(5), torch.zeros(60)
    for seed in range(400):
        labels, flipped = nested_flips(true, 5, (0.0, 0.5), seed=seed)
        counts += torch.bincount(labels[1][flipped[1]], minlength=5)
        places += flipped[1]
    assert counts[2] == 0
    expected = 400 * 30 / 4
    assert ((counts[[0, 1, 3, 4]] - expected) ** 2 / expected).sum() < 16.3  # chi-squared, 3 degrees, 1/1000
    assert ((places - 200) / 10).abs().max() < 4.5  # binomial(400, 1/2), sixty looks


def test_flips_are_set_by_seed_and_run():
    true = torch.arange(30) % 3
    first = nested_flips(true, 3, LEVELS, seed=1)[0]
    assert torch.equal(first, nested_flips(true, 3, LEVELS, seed=1)[0])
    assert not torch.equal(first, nested_flips(true, 3, LEVELS, seed=2)[0])
    assert not torch.equal(first, nested_flips(true, 3, LEVELS, seed=1, run=5)[0])


def test_step_sizes_by_hand():
    assert step_sizes(6, 0.4, 2, 0.1) == pytest.approx([0.2, 0.4, 0.31, 0.22, 0.13, 0.04])
    assert step_sizes(3, 1.0, 0, 1.0) == [1.0, 1.0, 1.0]
    assert step_sizes(2, 1.0, 4, 0.1) == [0.25, 0.5]


def test_a_smaller_last_batch_is_left_out_or_kept():
    layer, sizes = random_layer(N=10), []
    start = layer.start(scale=0.5, seed=1)
    kept = layer.subset
    for drop_last, expected in ((True, [4, 4] * 2), (False, [4, 4, 2] * 2)):
        sizes.clear()
        object.__setattr__(layer, "subset", lambda rows: sizes.append(rows.tolist()) or kept(rows))
        train_selection(layer, labels_of(1, 10), start, steps=len(expected), batch=4, drop_last=drop_last)
        assert [len(rows) for rows in sizes] == expected
        for epoch in (sizes[: len(expected) // 2], sizes[len(expected) // 2 :]):  # without repetition
            assert len({row for rows in epoch for row in rows}) == sum(expected) // 2
        assert sizes[: len(expected) // 2] != sizes[len(expected) // 2 :]


@pytest.mark.parametrize(("steps", "warmup", "largest"), [(1, 4, 0.1), (1, 1, 0.4), (1, 0, 0.04)])
def test_training_takes_the_step_sizes_of_the_schedule(steps, warmup, largest):
    # Adam's first step moves every coordinate by the step size, whatever the gradient.
    layer = random_layer(N=8)
    start = layer.start(scale=0.5, seed=1)
    kept = [tensor.clone() for tensor in start.tensors()]
    trained, _ = train_selection(layer, labels_of(1, 8), start, steps=steps, step_size=0.4, warmup=warmup)
    assert all(torch.equal(a, b) for a, b in zip(kept, start.tensors(), strict=True))
    assert (trained.key - start.key).abs().max().item() == pytest.approx(largest, rel=1e-3)


def labels_of(runs, n=4):
    return torch.randint(0, 4, (runs, n), generator=torch.Generator().manual_seed(runs))


@pytest.mark.parametrize("batch", [None, 3])
def test_a_batch_of_runs_equals_the_runs_alone(batch):
    layer = random_layer(N=8, masked=True)
    labels = labels_of(3, 8)
    start = layer.start(scale=0.5, runs=3, seed=1)
    settings = {"steps": 12, "step_size": 0.05, "batch": batch, "seed": 6}
    together, _ = train_selection(layer, labels, start, **settings)
    for r in range(3):
        alone, _ = train_selection(layer, labels[r : r + 1], layer.start(scale=0.5, seed=1), **settings)
        for a, b in zip(alone.tensors(), together.tensors(), strict=True):
            torch.testing.assert_close(a[0], b[r], rtol=1e-3, atol=1e-4)
    assert not torch.allclose(together.key[0], together.key[1], atol=1e-2)


def test_observations_come_at_the_recorded_steps_without_gradients():
    layer = random_layer(N=8)
    start = layer.start(scale=0.5, seed=1)
    noted = []

    def observe(weights: QueryKey):
        noted.append(torch.is_grad_enabled())
        return weights.key.detach().clone()

    trained, path = train_selection(
        layer, labels_of(1, 8), start, steps=5, step_size=0.1, recorded=[5, 0, 2], observe=observe
    )
    assert noted == [False, False, False]
    assert torch.equal(path[0], start.key)
    assert torch.equal(path[2], trained.key)
    assert not torch.equal(path[1], path[2])


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


test_bad_noise_levels = refusing(
    (lambda: check_noise_levels((0.1, 0.2), 20), "must rise from 0, the clean-label baseline"),
    (check_noise_levels, {"n": 20}, {"noise_levels": [(), (0.0, 0.2, 0.1), (0.0, float("nan"))]}),
    (lambda: check_noise_levels((0.0, 0.01), 20), r"more of the n = 20 labels .* which flip \[0, 0\]: raise n"),
    (lambda: check_noise_levels((0.0, 1.2), 20), r"noise_levels must be in \[0, 1\]; got 1.2"),
)
