"""Claims I51-I59: regimes, judges on made numbers, and the pieces of the study."""

import math

import numpy as np
import pytest
import torch

from attnbook.in_context.two_numbers_per_head.claims import CLAIMS, _bounded
from attnbook.in_context.two_numbers_per_head.study import (
    dense_risk_per_batch,
    jitter_price,
    optimum_scan,
    reduction_check,
    stored_runs,
    stored_sizes,
    two_numbers_study,
)
from attnlib.in_context.circuits import Circuits, predict, two_number_circuits
from attnlib.in_context.law import RegressionLaw
from bookkit.claims import Verdict
from tests.bad_input import refusing


@pytest.fixture(scope="module")
def study():
    return two_numbers_study(RegressionLaw(), prompts=12_000, steps=20_000, runs=6, seed=4)


def test_other_lengths_and_rates_are_outside_the_regimes():
    small = two_numbers_study(
        RegressionLaw(5, 6, 0.2), prompts=2000, steps=200, runs=2, learning_rates=(0.004, 0.002), seed=1
    )
    found = {result.claim.id: result for result in CLAIMS.check(small)}
    assert found["I53"].verdict == found["I56"].verdict == found["I57"].verdict == Verdict.OUTSIDE
    assert found["I53"].violated == "needs L = 40; here 6"
    assert found["I57"].violated == "needs rates a factor of ten apart; here 2"


def test_dense_check_uses_the_model_and_the_label_noise():
    law = RegressionLaw(3, 5, 0.6)
    omega, mu = torch.tensor([[0.4, -0.2]], dtype=torch.float64), torch.tensor([[0.8, -0.5]], dtype=torch.float64)
    found = dense_risk_per_batch(omega, mu, law, prompts=300, batches=2, seed=9)
    prompts = law.draw(300, 9, run=1001)
    error = (predict(two_number_circuits(omega[0], mu[0], 3), prompts) - prompts.clean_target) ** 2
    assert found.shape == (2, 1)
    assert found[1, 0].item() == pytest.approx(error.mean().item())


def test_wrong_reduction_is_the_orthogonal_part_a_quarter_larger():
    law = RegressionLaw(4, 9, 0.3, "repository")
    check = reduction_check(law, prompts=20, seed=2)
    # risk = a + (d - 1 + s2) b; the share's part is found from a law with no noise
    silent = reduction_check(RegressionLaw(4, 9, 0.0, "repository"), prompts=20, seed=2)
    share = (check.reduced - silent.reduced) / law.noise_variance
    torch.testing.assert_close(
        check.wrong - check.reduced, 0.25 * (3 + law.noise_variance) * share, rtol=1e-6, atol=1e-9
    )


def test_price_of_jitter_is_the_second_moment_of_the_gradient():
    d, length, omega, mu = 3, 17, 1e-3, 2.0
    law = RegressionLaw(d, length, 0.5)
    prompts = law.draw(40_000, 3)
    shape = torch.zeros(2, d + 1, d + 1, dtype=torch.float64)
    still = two_number_circuits(torch.tensor([omega, -omega]).double(), torch.tensor([mu, -mu]).double(), d)
    total, step = torch.zeros(40_000, dtype=torch.float64), 1e-5
    for j in range(d):
        for k in range(d):
            moved = shape.clone()
            moved[0, j, k] = step
            change = predict(Circuits(still.key_query + moved, still.output_value), prompts) - predict(still, prompts)
            total += (change / step) ** 2
    measured = 2 * total / mu**2  # two heads
    error = measured.std().item() / math.sqrt(len(measured))
    assert abs(measured.mean().item() - jitter_price(law)) < 4 * error
    assert error < 0.05 * jitter_price(law)
    assert jitter_price(law) == pytest.approx(2 * 9 * 16 * (17 + 3 + 0.75) / 289)


def test_scan_and_stored_runs():
    scan = optimum_scan([2, 3], [4, 8], noise_std=0.1, prompts=800, seed=1)
    sizes = np.array([[one.omega for one in scan[d]] for d in (2, 3)])
    assert (sizes[:, 1] < sizes[:, 0]).all()
    assert stored_runs(RegressionLaw(5, 41)) == {}
    assert stored_sizes(RegressionLaw(5, 41)) == {}
    ends = {rate: sizes[:, -1] for rate, (_, sizes) in stored_sizes(RegressionLaw()).items()}
    assert list(ends) == [0.01, 0.003, 0.001, 0.0003, 0.0001]
    for rate, size in ((0.01, 0.233), (0.003, 0.178), (0.001, 0.140)):
        assert len(ends[rate]) >= 3
        assert (ends[rate] - size).abs().max() < 0.01
    assert ends[0.0003].max() < ends[0.001].min()


LAW = RegressionLaw(2, 6)
test_bad_arguments_are_named = refusing(
    (two_numbers_study, (LAW,), {"learning_rates": [(0.01,), (0.001, 0.01)], "runs": 1}),
    (lambda: two_numbers_study(LAW.with_length(1)), "length must be a whole number >= 2"),
)


def test_trained_numbers_are_judged_before_they_are_rounded():
    values = torch.full((9,), 1.16, dtype=torch.float64)  # 1.2 with one decimal
    found = _bounded(values, 1, low=1.2)
    assert not found.holds
    assert found.measured == "[1.2, 1.2]; inside in 0 of 9 draws"
    assert (found.numbers["min"], found.numbers["failures"]) == (1.2, 9)
    assert _bounded(values, 1, low=1.15).holds
