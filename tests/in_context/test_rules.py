"""Rules for stored trainings, one published run, and means known by their errors: by hand, at their edges, and their false alarms."""

import math

import pytest
import torch
from scipy.stats import t

from attnbook.in_context.rules import estimate_within, one_more_run, stored_within
from bookkit.rules import LEVEL, NothingToMeasure


def test_one_stored_run_outside_rejects():
    values = torch.tensor([1.0, 2.0, math.nan, 3.0], dtype=torch.float64)
    assert stored_within(values, 1.0, 3.0).holds
    found = stored_within(values, 1.0, 2.9)
    assert not found.holds
    assert (found.draws, found.numbers["failures"], found.false_alarm) == (3, 1, 0)


def test_one_more_run_has_the_width_of_a_prediction_interval():
    """scipy's t for the edge: mean 2, s.d. 1 of three runs, s.d. of one more run minus the mean sqrt(4/3)."""
    runs = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    edge = t.ppf(1 - LEVEL / 2, 2) * math.sqrt(4 / 3) + 0.5
    assert one_more_run(runs, 2 + 0.999 * edge, half_digit=0.5, quantity="x").holds
    assert not one_more_run(runs, 2 - 1.001 * edge, half_digit=0.5, quantity="x").holds
    assert one_more_run(runs, 2.0, half_digit=0.0, quantity="x").numbers == pytest.approx(
        {"published": 2.0, "mean": 2.0, "standard_deviation": 1.0}
    )
    with pytest.raises(NothingToMeasure, match="needs two runs or more"):
        one_more_run(runs[:1], 2.0, half_digit=0.0, quantity="x")


def test_one_more_run_rejects_a_true_one_at_its_level():
    generator = torch.Generator().manual_seed(5)
    level, trials = 0.05, 4000
    draws = torch.randn(trials, 8, generator=generator, dtype=torch.float64)
    rejected = sum(
        not one_more_run(row[:7], row[7].item(), half_digit=0.0, quantity="x", level=level).holds for row in draws
    )
    assert abs(rejected / trials - level) < 4 * math.sqrt(level / trials)


def test_bounds_on_means_that_are_known_by_their_errors():
    """Two means of 30 draws: each gets half of the level, on two sides."""
    width = t.ppf(1 - LEVEL / 4, 29)
    value, error = torch.tensor([1.0, 5.0], dtype=torch.float64), torch.tensor([0.1, 0.2], dtype=torch.float64)
    found = estimate_within(value, error, 30, high=5 - 0.999 * 0.2 * width, quantity="x")
    assert found.holds
    assert found.numbers == pytest.approx({"min": 1.0, "max": 5.0, "high": 5 - 0.999 * 0.2 * width, "failures": 0})
    assert (found.draws, found.false_alarm) == (30, LEVEL)
    assert not estimate_within(value, error, 30, high=5 - 1.001 * 0.2 * width, quantity="x").holds
    assert estimate_within(value, error, 30, low=1 + 0.999 * 0.1 * width, quantity="x").holds
    assert not estimate_within(value, error, 30, low=1 + 1.001 * 0.1 * width, quantity="x").holds
