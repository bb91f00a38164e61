"""The cached last layer is the last layer: against torch's own transformer, against autograd through the whole network."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from attnbook.token_selection.real_data.frozen import FrozenLastLayer, QueryKey
from attnbook.token_selection.real_data.selection import train_selection
from attnbook.token_selection.real_data.vit import SmallViT, ViTShape
from tests.bad_input import refusing, refusing_changes

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
        own = cached.finish.own_selection()
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


@pytest.mark.parametrize("masked", [False, True])
def test_scores_attention_and_mean_by_loops(masked):
    layer = random_layer(masked=masked)
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


test_bad_layers = refusing_changes(
    FrozenLastLayer,
    vars(random_layer()),
    ({"tokens": torch.zeros(4, 6)}, "tokens must have shape"),
    ({"values": torch.zeros(4, 5, 6)}, "values must have shape"),
    ({"residual": torch.zeros(3, 5)}, "residual must have shape"),
    ({"values": torch.zeros(4, 6, 6, dtype=torch.float64)}, "values must have dtype"),
    ({"heads": 4}, "heads must divide the width of values; got 4 heads and width 6"),
    ({"heads": 0}, "heads must be a whole number >= 1"),
    ({"mask": torch.ones(4, 5, dtype=torch.bool)}, "mask must be a bool tensor of shape"),
    ({"mask": torch.ones(4, 6)}, "mask must be a bool tensor of shape"),
    ({"mask": torch.zeros(4, 6, dtype=torch.bool)}, "at least one position"),
)


test_bad_starts = refusing((random_layer().start, (), {"scale": 0.0, "runs": 0}))
