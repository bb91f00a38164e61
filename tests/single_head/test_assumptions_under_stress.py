"""Page I.7: the sweep under its claims says what it measured."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from attnbook.single_head.assumptions_under_stress import study as stress
from attnbook.single_head.assumptions_under_stress.study import (
    benign,
    holds_over,
    measure,
    measure_tokens,
)
from attnbook.single_head.variants import StressedLaw
from attnlib.single_head.summary import summarise
from attnlib.single_head.training import gradient_descent

PAPER = StressedLaw(200, 40_000, 30.0, 0.05)


def test_rows_are_the_summary_of_the_same_draws():
    row = measure(PAPER, 0.025, 0.05, draws=5, seed=3)
    summary = summarise(PAPER, 0.025, draws=5, seed=3)
    assert torch.equal(row.interpolates, summary.interpolates)
    mean = torch.log10((10**row.log10_error).mean(1))
    torch.testing.assert_close(mean, summary.log10_clean_error, rtol=1e-9, atol=1e-9)


def test_rows_do_not_depend_on_the_chunk(monkeypatch):
    law = StressedLaw(10, 200, 4.0, 0.2, cosine=0.5)
    whole = measure(law, 0.2, 0.5, draws=5, seed=0)
    monkeypatch.setattr(stress, "_CHUNK_BYTES", 1)
    single = measure(law, 0.2, 0.5, draws=5, seed=0)
    for name in ("log10_error", "mean_field", "preference", "signal_pull", "cross_term", "crude_bound"):
        a, b = getattr(single, name), getattr(whole, name)
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, equal_nan=True)


def test_cross_terms_by_hand():
    law = StressedLaw(6, 50, 4.0, 0.2)
    row = measure(law, 0.2, 0.0, draws=2, seed=7)
    for r in range(2):
        sample = law.draw(7, first_run=r)
        noise, y = sample.noise_tokens()[0, :, 0], sample.labels[0]
        pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
        sums = [abs(sum(y[j] * noise[j] @ noise[i] for j in range(6) if j != i)) for i in range(6)]
        assert row.cross_term[r] == pytest.approx(max(sums).item() / 50)
        assert row.crude_bound[r] == pytest.approx(6 * max(abs(noise[i] @ noise[j]) for i, j in pairs).item() / 50)


def test_two_tokens_are_measured_exactly_and_more_with_a_standard_error():
    law = StressedLaw(20, 400, 4.0, 0.1)
    two = measure_tokens(law, 0.2, 2, draws=3, seed=0, count=100)
    torch.testing.assert_close(two.error, 10 ** summarise(law, 0.2, draws=3).log10_clean_error)
    assert two.standard_error.tolist() == [0, 0, 0]
    four = measure_tokens(law, 0.2, 4, draws=3, seed=0, count=100)
    assert (four.standard_error > 0).all()
    sample = replace(law, tokens=4).draw(0, 3)
    path = gradient_descent(sample, 0.4, 2)
    assert torch.equal(four.interpolates, path.interpolates[2])
    assert torch.equal(four.fits_after_one, path.interpolates[1])


def _row(value, errors, fits=True):
    return SimpleNamespace(
        value=value, interpolates=torch.tensor([True, fits]), log10_error=torch.tensor([errors, errors])
    )


def test_benign_means_all_labels_fitted_and_each_class_below_one_per_cent():
    assert benign(_row(0.0, [-3.0, -2.1]))
    assert not benign(_row(0.0, [-3.0, -1.9]))
    assert not benign(_row(0.0, [-3.0, -3.0], fits=False))


def test_the_range_is_the_unbroken_run_around_the_start():
    errors = [-3.0, -1.0, -3.0, -4.0, -3.0, -0.5, -9.0]
    rows = [_row(float(i), [e, e]) for i, e in enumerate(errors)]
    assert holds_over(rows, 3.0) == (2.0, 4.0)
    assert holds_over(rows, 0.0) == (0.0, 0.0)
    assert holds_over(rows, 1.0) is None
