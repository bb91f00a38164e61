"""Streams cannot mix; Bartlett's triangle has the right law."""

import itertools

import numpy as np
import pytest

from attnlib.gaussian import bartlett_rows
from attnlib.randomness import ROLES, stream


def test_streams_differ_by_seed_role_and_run():
    draws = {
        key: tuple(stream(*key).integers(0, 2**63, 4)) for key in itertools.product((0, 1, 12345), ROLES, (0, 1, 7))
    }
    assert len(set(draws.values())) == len(draws) == 3 * len(ROLES) * 3


def test_a_stream_is_reproducible():
    np.testing.assert_array_equal(stream(3, "noise", 2).standard_normal(5), stream(3, "noise", 2).standard_normal(5))


@pytest.mark.parametrize(("rows", "dimension"), [(5, 11), (7, 7), (9, 4), (1, 3), (3, 1)])
def test_bartlett_shape_and_zeros(rows, dimension):
    a = bartlett_rows(stream(0, "noise"), rows, dimension)
    assert a.shape == (rows, min(rows, dimension))
    assert np.all(a[np.triu_indices(rows, 1, a.shape[1])] == 0)
    assert np.all(np.diagonal(a) > 0)


@pytest.mark.parametrize(("rows", "dimension"), [(3, 8), (5, 4)])
def test_bartlett_gram_has_wishart_moments(rows, dimension):
    """E G_ij = D delta_ij, Var G_ii = 2D, Var G_ij = D (Wishart), within 4.5 standard errors; 10 % more dimensions fail."""
    rng, draws = stream(1, "noise"), 20_000
    grams = np.stack([(a := bartlett_rows(rng, rows, dimension)) @ a.T for _ in range(draws)])
    diagonal = np.eye(rows, dtype=bool)

    def z_scores(D):
        mean_z = (grams.mean(0) - D * diagonal) / np.sqrt(np.where(diagonal, 2 * D, D) / draws)
        square = (grams - grams.mean(0)) ** 2
        var_z = (square.mean(0) - np.where(diagonal, 2 * D, D)) / (square.std(0) / np.sqrt(draws))
        return np.abs(np.stack([mean_z, var_z])).max()

    assert z_scores(dimension) < 4.5
    assert z_scores(1.1 * dimension) > 4.5


def test_rows_in_two_calls_have_the_law_of_rows_in_one():
    """Rows appended later (start vectors) are Gaussian: mean squared norm D, uncorrelated with the first rows."""
    rng, draws, D = stream(2, "start"), 20_000, 6
    norms, overlaps = [], []
    for _ in range(draws):
        first = bartlett_rows(rng, 3, D, columns=5)
        last = bartlett_rows(rng, 2, D, first=3)
        norms.append((last**2).sum(1))
        overlaps.append(first @ last.T)
    for values, expected in ((np.array(norms), D), (np.array(overlaps), 0), (np.array(overlaps) ** 2, D)):
        z = (values.mean(0) - expected) / (values.std(0) / np.sqrt(draws))
        assert np.abs(z).max() < 4.5


def test_dimension_a_billion_costs_nothing_and_keeps_the_normals():
    near, far = (bartlett_rows(stream(0, "noise"), 6, D) for D in (1000, 10**9))
    below = np.tril_indices(6, -1)
    np.testing.assert_array_equal(near[below], far[below])
    np.testing.assert_allclose(np.diagonal(far), np.sqrt(1e9), rtol=3e-4)
