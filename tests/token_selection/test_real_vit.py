"""The small vision transformer: its start, its training, its late-CLS form (that it is a transformer: test_real_frozen); random features.

Random Fourier features of windows: the kernel they stand for, the cells, and what they may not depend on; all by numpy loops.
"""

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from attnbook.token_selection.real_data.vit import RandomFeatures, SmallViT, ViTShape, train_vit
from attnlib.randomness import stream

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
def test_the_shape_of_a_sample_is_what_is_taken(change, sample):
    shape = replace(SHAPE, image=6, **change)
    assert shape.sample == sample
    labels = torch.arange(8) % 3
    model = train_vit(torch.zeros(8, *sample), labels, shape, epochs=1, batch=4)
    assert model(torch.zeros(2, *sample)).shape == (2, 3)
    assert len(model.freeze(torch.zeros(2, *sample))) == 2


# --- Random features ------------------------------------------------------------------------------------------------------


def pictures(count, width=8, channels=1, seed=0):
    """Smooth pictures: neighbouring pixels agree, so that the whitening has something to do."""
    noise = np.random.default_rng(seed).random((count, channels, width + 2, width + 2))
    rows = noise[..., :-2, :] + noise[..., 1:-1, :] + noise[..., 2:, :]
    return ((rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]) / 9).astype(np.float32)


def window_by_hand(picture, row, column, size):
    """One contrast-normalised window of a picture (C, H, W): channel by channel, row by row; float64."""
    cut = picture[:, row : row + size, column : column + size].astype(np.float64).ravel()
    cut = cut - cut.sum() / len(cut)
    return cut / math.sqrt((cut**2).sum() / (len(cut) - 1) + 0.01)


def whitened_by_hand(windows, components):
    """Coordinates along the largest eigenvectors of the covariance, each divided by its standard deviation."""
    centred = windows - windows.mean(0)
    eigenvalues, eigenvectors = np.linalg.eigh(centred.T @ centred / (len(windows) - 1))
    return centred @ eigenvectors[:, ::-1][:, :components] / np.sqrt(eigenvalues[::-1][:components])


@pytest.mark.parametrize(("channels", "gamma", "components"), [(1, 1.2, 15), (3, 0.6, 40)])
def test_products_of_features_are_the_gaussian_kernel_of_whitened_windows(channels, gamma, components):
    # One window per cell, so a token is a feature; 48 numbers per window in colour, of which at most 40 directions are kept.
    images = pictures(60, channels=channels)
    many = 8000
    fixed = RandomFeatures(8, 4, features=many, window=4, stride=4, gamma=gamma, seed=3).fit(images)
    tokens = fixed.transform(images[:12]).numpy().reshape(48, many).astype(np.float64)
    windows = [window_by_hand(picture, row, column, 4) for picture in images for row in (0, 4) for column in (0, 4)]
    z = whitened_by_hand(np.array(windows), components)[:48]
    squares = ((z[:, None] - z) ** 2).sum(-1)

    def error(rate):
        return ((tokens @ tokens.T - np.exp(-rate * squares)) ** 2).mean() ** 0.5

    # A product is a mean of `many` numbers 2 cos a cos b, of variance at most 3/2.
    assert error(gamma / components) < (1.5 / many) ** 0.5
    for wrong in (0.85, 1.15):
        assert error(wrong * gamma / components) > (1.5 / many) ** 0.5
    assert np.abs(tokens).max() <= math.sqrt(2 / many) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("image", "cell", "window", "stride", "channels"),
    [(9, 3, 3, 1, 1), (10, 5, 4, 2, 3), (15, 5, 4, 1, 2), (12, 4, 5, 3, 1), (7, 7, 2, 2, 3)],
)
def test_a_token_is_the_mean_over_the_windows_whose_centre_lies_in_its_cell(image, cell, window, stride, channels):
    images = pictures(4, image, channels, seed=1)
    fixed = RandomFeatures(image, cell, features=11, window=window, stride=stride, seed=2).fit(images)
    tokens = fixed.transform(images)
    side = image // cell
    assert tokens.shape == (4, side**2, 11)
    assert str(tokens.dtype) == "torch.float32"
    for n, picture in enumerate(images):
        members = [[] for _ in range(side**2)]
        for row in range(0, image - window + 1, stride):
            for column in range(0, image - window + 1, stride):
                down, across = (int((first + (window - 1) / 2) / cell) for first in (row, column))
                found = fixed.whitening.transform(window_by_hand(picture, row, column, window)[None])
                phase = found @ fixed.sampler.random_weights_ + fixed.sampler.random_offset_
                members[down * side + across].append(np.sqrt(2 / 11) * np.cos(phase[0]))
        assert sum(map(len, members)) == ((image - window) // stride + 1) ** 2
        expected = np.array([np.mean(own, axis=0) for own in members])
        np.testing.assert_allclose(tokens[n].numpy(), expected, rtol=0, atol=2e-4)


def test_batches_do_not_matter():
    images = pictures(207, 6, 2)
    fixed = RandomFeatures(6, 3, features=5, window=3, stride=1).fit(images[:50])
    whole = fixed.transform(images).numpy()
    assert whole.shape == (207, 4, 5)
    for part in (slice(0, 1), slice(95, 108), slice(200, 207)):
        np.testing.assert_allclose(fixed.transform(images[part]).numpy(), whole[part], rtol=0, atol=1e-5)
    assert np.abs(whole[1:] - whole[:-1]).max(axis=(1, 2)).min() > 1e-3  # no picture stands in another's place


def test_the_seed_and_the_pictures_are_all_that_enters():
    images = pictures(20)
    before = np.random.get_state()[1].copy()  # noqa: NPY002  (the global state must not be used)
    one, again, other = (
        RandomFeatures(8, 4, features=6, window=3, seed=seed).fit(images).transform(images).numpy()
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.1
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert list(inspect.signature(RandomFeatures.fit).parameters) == ["self", "images"]  # no labels
    brighter = RandomFeatures(8, 4, features=6, window=3).fit(images[:10]).transform(images).numpy()
    assert np.abs(one - brighter).max() > 1e-3  # the whitening is that of the pictures it was given
