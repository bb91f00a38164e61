"""Random Fourier features of windows: the kernel they stand for, the cells, and what they may not depend on; all by numpy loops."""

import inspect
import math

import numpy as np
import pytest

from attnbook.token_selection.real_data.random_features import RandomFeatures
from tests.bad_input import refusing


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


SIZES = {"image": 8, "cell": 4, "window": 4, "stride": 2}

test_sizes_that_do_not_fit_are_refused_at_once = refusing(
    (RandomFeatures, SIZES, {"image": 0, "cell": 0, "features": 0, "stride": 0, "window": 2.5, "gamma": 0.0}),
    (lambda: RandomFeatures(**SIZES | {"cell": 3}), "cell must divide image; got cell 3 and image 8"),
    (lambda: RandomFeatures(**SIZES | {"window": 9}), r"window must lie in 2\.\.8, the width of the pictures; got 9"),
    (lambda: RandomFeatures(8, 2, window=4, stride=4), "every cell needs a window; got cell 2, window 4, stride 4"),
    (lambda: RandomFeatures(8, 4, window=3).transform(np.zeros((2, 1, 8, 8), np.float32)), r"call fit\(images\) first"),
)


def test_pictures_of_another_size_are_refused():
    fixed = RandomFeatures(8, 4, features=3, window=4)
    for wrong in (np.zeros((5, 1, 8, 7)), np.zeros((5, 1, 9, 9)), np.zeros((5, 8, 8))):
        for step in (fixed.fit, fixed.transform):
            with pytest.raises(ValueError, match=r"images must have shape \(N, C, 8, 8\); got \(5, "):
                step(wrong)
