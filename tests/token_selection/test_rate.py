"""Distance from the mean field: the flow on vectors, and the bound by its own numbers."""

import math
from dataclasses import replace

import pytest
import torch

from attnbook.token_selection.mean_field import mean_field
from attnbook.token_selection.time_laws.rate import distance_bound, mean_field_distance
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import TokenLaw
from attnlib.token_selection.model import forces

LAW = TokenLaw(n=10, d=2000, tokens=5, signal_norm=10.0)


def test_distance_is_that_of_plain_descent():
    gram, theta, steps = draw_gram(LAW, 4, 2), 5.0, 2000
    kernel = gram.kernel[:, :50, :50]
    unit = LAW.n / (LAW.d * LAW.head_norm * LAW.signal_norm)  # one step of size 1 is 1 / unit of theta
    scores = torch.zeros(2, 10, 5, dtype=torch.float64)
    for _ in range(steps):
        c = forces(scores, gram.head_scores, gram.labels.observed)
        scores = scores + theta * unit / steps * (kernel @ c.flatten(1).unsqueeze(-1)).view_as(scores)
    limit = mean_field(replace(LAW, d=10**9, signal_norm=10 * math.sqrt(10**9 / 2000)), 1e-3, weight_scale=1.0, finite_size=False,
                       horizon=1e3 * theta * LAW.n / (10**9 * LAW.head_norm * LAW.signal_norm))  # fmt: skip
    expected = [
        max(
            (scores[r, i] - torch.as_tensor(limit.scores[-1][int(gram.labels.noisy[r, i])])).abs().max().item()
            for i in range(10)
        )
        for r in range(2)
    ]
    assert mean_field_distance(LAW, theta, runs=2, seed=4).tolist() == pytest.approx(expected, rel=0.02)


def test_bound_by_hand():
    x = math.log(4 * 50**2 / 0.05)
    values = math.sqrt(2 * x) / 10
    reach = 1.1 / math.sqrt(2) + 2 * values
    rate = 1.5 * reach * (1.5 + reach / 16)
    products = 2 * math.sqrt(x / 2000) + x / 1000 + 2 * math.sqrt(0.1 * x / 2000)
    source = 1.5 * (2 + reach / 8) * values + 5 * reach * products
    assert distance_bound(LAW, 2.0) == pytest.approx((math.exp(2 * rate) - 1) / rate * source)


def test_the_bound_holds_where_it_says_something():
    small = 0.02
    distance = mean_field_distance(LAW, small, runs=20, seed=1)
    bound = distance_bound(LAW, small)
    assert distance.max() < bound < 200 * distance.max()


def test_bad_arguments():
    with pytest.raises(ValueError, match="theta must be"):
        mean_field_distance(LAW, 0.0, runs=1, seed=0)
    with pytest.raises(ValueError, match="balanced labels"):
        mean_field_distance(replace(LAW, balanced=False), 1.0, runs=1, seed=0)
