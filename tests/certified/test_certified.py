"""Certified numbers: the formula a second way, the model against it, the claim and its negative control, and refused input."""

import math

import numpy as np
import pytest
import torch

from attnbook.certified.claims import CLAIMS
from attnbook.certified.study import GAPS, make_study
from attnlib.certified import GapLaw, mean_attention, mean_attention_sampled


@pytest.mark.parametrize("a", [1e-6, 0.5, 4.0, 30.0, 1e4])
def test_the_formula_is_an_integral(a: float) -> None:
    """By Gauss-Legendre quadrature on panels, which ends where the attention is one to rounding."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    edges = np.linspace(0, min(a, 40.0), 41)
    half = np.diff(edges)[:, None] / 2
    gaps = edges[:-1, None] + half * (1 + nodes)
    integral = (half * weights / (1 + np.exp(-gaps))).sum() + max(a - 40.0, 0.0)
    assert mean_attention(GapLaw(a)) == pytest.approx(integral / a, rel=1e-13)


def test_the_ends() -> None:
    assert mean_attention(GapLaw(1e-9)) == pytest.approx(0.5, abs=1e-9)
    assert mean_attention(GapLaw(1e6)) == pytest.approx(1 - math.log(2) / 1e6, rel=1e-15)


def test_samples_are_gaps_and_runs_are_separate() -> None:
    law = GapLaw(3.0)
    scores = law.draw(5, runs=3, samples=400)
    assert scores.shape == (3, 400, 2)
    assert scores.dtype == torch.float64
    assert (scores[..., 1] == 0).all()
    assert 0 <= scores.min() <= scores.max() <= 3
    assert not torch.equal(scores[0], scores[1])
    by_hand = (1 / (1 + torch.exp(-scores[..., 0]))).mean(1)
    torch.testing.assert_close(mean_attention_sampled(law, 5, runs=3, samples=400), by_hand)


@pytest.mark.parametrize("seed", range(3))
def test_the_claim_holds_and_its_negative_control_does_not(seed: int) -> None:
    study = make_study(4.0, samples=2000, draws=12, seed=seed)
    assert study.ladder.shape == (12, len(GAPS))
    (check,) = CLAIMS.check(study)
    assert check.as_expected
    assert not check.control.holds


@pytest.mark.parametrize("gap", [0.0, -1.0, math.inf, math.nan, "wide"])
def test_a_gap_that_is_no_size_is_refused(gap: object) -> None:
    with pytest.raises(ValueError, match="largest_gap must be a finite number > 0; got"):
        GapLaw(gap)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [{"runs": 0, "samples": 1}, {"runs": 1, "samples": 0}])
def test_empty_draws_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be a whole number >= 1; got 0"):
        GapLaw(1.0).draw(0, **sizes)
