"""The small vision transformer: its start, its training, its late-CLS form. (That it is a transformer: test_real_frozen.)"""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from attnbook.token_selection.real_data.vit import SmallViT, ViTShape, train_vit
from attnlib.randomness import stream
from tests.bad_input import refusing, refusing_changes

SHAPE = ViTShape(image=4, patch=2, width=8, heads=2, layers=2, hidden=12, classes=3)


def stripes(count, seed=0):
    """Images whose brightest row names the class."""
    generator = torch.Generator().manual_seed(seed)
    images = 0.3 * torch.rand(count, 4, 4, generator=generator)
    labels = torch.randint(0, 3, (count,), generator=generator)
    images[torch.arange(count), labels] += 0.7
    return images, labels


def test_the_same_seed_gives_the_same_bits_and_leaves_torchs_random_state_alone():
    images, labels = stripes(40)
    state = torch.random.get_rng_state()
    first, again = (train_vit(images, labels, SHAPE, seed=2, epochs=2, batch=16) for _ in range(2))
    other = train_vit(images, labels, SHAPE, seed=3, epochs=2, batch=16)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.head.weight, other.head.weight)


def test_start_is_uniform_by_fan_in_with_zero_biases():
    model = SmallViT(ViTShape(width=64, hidden=256), seed=0)
    for layer in model.stack:
        assert layer.down.weight.abs().max() < 1 / 16
        assert layer.down.weight.abs().max() > 0.99 / 16
        assert layer.query.weight.abs().max() > 0.99 / 8
        assert not layer.query.bias.any()
        assert torch.equal(layer.norm1.weight, torch.ones(64))
    assert model.positions.std().item() == pytest.approx(0.2, rel=0.1)


def test_phase_one_by_hand():
    """Two epochs of two batches, written out with torch's AdamW and the one-cycle schedule.

    A key's bias adds the same number to every score of a query: its gradient is rounding, which AdamW divides by its own size. It is
    left out, for it stands elsewhere on every processor; no output changes with it.
    """
    images, labels = stripes(50)
    trained = train_vit(images, labels, SHAPE, seed=4, epochs=2, batch=20, step_size=0.01, weight_decay=0.1)
    model, keys = SmallViT(SHAPE, seed=4), []
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.01, total_steps=4)
    draws = stream(4, "batches")
    for _ in range(2):
        order = torch.from_numpy(draws.permutation(50))
        for chosen in (order[:20], order[20:40]):
            optimiser.zero_grad()
            functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            keys += [layer.key.bias.grad.abs().max().item() for layer in model.stack]
            optimiser.step()
            schedule.step()
    assert max(keys) == pytest.approx(0, abs=1e-7)
    for (name, a), b in zip(trained.named_parameters(), model.parameters(), strict=True):
        if not name.endswith("key.bias"):
            # Measured: 1.5e-8; a step size of 0.0101 gives more than 2e-6.
            assert (a - b).abs().mean().item() == pytest.approx(0, abs=1e-6), name
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert not trained.training
    assert not any(parameter.requires_grad for parameter in trained.parameters())


def test_a_late_cls_has_one_query_for_all_samples():
    images, _ = stripes(5)
    for late in (False, True):
        layer = SmallViT(replace(SHAPE, late_cls=late), seed=0).freeze(images)
        same = bool((layer.tokens[:, 0] == layer.tokens[:1, 0]).all())
        assert same == late
        assert layer.tokens.shape == (5, 5, 8)


def test_a_late_cls_is_not_seen_by_lower_layers():
    images, _ = stripes(5)
    model = SmallViT(replace(SHAPE, late_cls=True), seed=0)
    before = model.last_input(images)[:, 1:]
    model.cls.data += 1
    assert torch.equal(model.last_input(images)[:, 1:], before)


# --- Pictures in colour, and tokens of a fixed backbone -------------------------------------------------------------------


def patches_by_hand(picture, patch):
    """(C, H, W) to (patches, C patch^2): channel by channel, row by row, patches row by row."""
    channels, height, width = picture.shape
    return torch.tensor(
        [
            [picture[c, top + i, left + j].item() for c in range(channels) for i in range(patch) for j in range(patch)]
            for top in range(0, height, patch)
            for left in range(0, width, patch)
        ]
    )


@pytest.mark.parametrize(("channels", "patch"), [(1, 2), (3, 2), (3, 3)])
def test_a_token_is_a_patch_cut_by_hand(channels, patch):
    shape = replace(SHAPE, image=6, channels=channels, patch=patch)
    images = torch.rand(4, channels, 6, 6, generator=torch.Generator().manual_seed(0))
    model = SmallViT(shape, seed=0)
    assert model.embed.weight.shape == (8, channels * patch**2)
    expected = torch.stack([patches_by_hand(picture, patch) for picture in images])
    images = images.reshape(4, *shape.sample)
    assert torch.equal(model._tokens(images), expected)
    embedded = expected @ model.embed.weight.T + model.embed.bias + model.positions
    first = SmallViT(replace(shape, layers=1), seed=0)  # the entrance of the last layer is that of the first
    first.load_state_dict(model.state_dict(), strict=False)
    torch.testing.assert_close(first.last_input(images)[:, 1:], embedded, rtol=0, atol=1e-6)


def test_tokens_of_a_fixed_backbone_are_taken_as_they_are():
    shape = replace(SHAPE, image=6, features=7)
    tokens = torch.randn(5, 9, 7, generator=torch.Generator().manual_seed(3))
    model = SmallViT(shape, seed=0)
    assert torch.equal(model._tokens(tokens), tokens)
    first = SmallViT(replace(shape, layers=1), seed=0)
    expected = torch.einsum("nlf,df->nld", tokens, first.embed.weight) + first.positions
    torch.testing.assert_close(first.last_input(tokens)[:, 1:], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "sample"),
    [
        ({}, (6, 6)),
        ({"channels": 3}, (3, 6, 6)),
        ({"features": 7}, (9, 7)),
        ({"features": 7, "channels": 3, "patch": 3}, (4, 7)),
    ],
)
def test_the_shape_of_a_sample_is_what_is_taken_and_nothing_else(change, sample):
    shape = replace(SHAPE, image=6, **change)
    assert shape.sample == sample
    labels = torch.arange(8) % 3
    model = train_vit(torch.zeros(8, *sample), labels, shape, epochs=1, batch=4)
    assert model(torch.zeros(2, *sample)).shape == (2, 3)
    assert len(model.freeze(torch.zeros(2, *sample))) == 2
    for wrong in {(6, 6), (3, 6, 6), (1, 6, 6), (6, 6, 3), (9, 7), (7, 9), (4, 7)} - {sample}:
        with pytest.raises(ValueError, match="images must have shape"):
            train_vit(torch.zeros(8, *wrong), labels, shape, epochs=1, batch=4)


test_bad_shapes = refusing(
    (replace, (SHAPE,), {"layers": 0, "classes": 1, "channels": 0, "features": -1}),
    (lambda: replace(SHAPE, patch=3), "patch must divide image; got patch 3 and image 4"),
    (lambda: replace(SHAPE, heads=3), "heads must divide width; got 3 heads and width 8"),
    (lambda: replace(SHAPE, padded=True), "features must be at least 1 where tokens or padded is given; got 0"),
)


test_bad_training_arguments = refusing_changes(
    train_vit,
    dict(zip(("images", "labels"), stripes(40), strict=True)) | {"shape": SHAPE},
    ({"images": torch.zeros(40, 4, 5)}, "images must have shape"),
    ({"labels": torch.zeros(39, dtype=torch.int64)}, r"labels must be an int64 tensor of shape \(40,\)"),
    ({"labels": torch.zeros(40)}, "labels must be an int64 tensor"),
    ({"labels": [0] * 40}, "got list"),
    ({"labels": torch.full((40,), 3)}, r"labels must lie in 0..2; got 3..3: number the classes from 0"),
    ({"epochs": 0}, "epochs must be"),
    ({"batch": 0}, "batch must be"),
    ({"step_size": 0.0}, "step_size must be"),
)
