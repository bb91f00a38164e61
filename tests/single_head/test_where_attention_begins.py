"""Page I.13: a fit finds a known curve, and says where there is none; regimes of the claims."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from attnbook.single_head.where_attention_begins.claims import CLAIMS
from attnbook.single_head.where_attention_begins.study import fit_threshold, preference_study
from bookkit.claims import Verdict


def test_fit_finds_a_known_curve_rising_and_falling():
    x, rng = np.geomspace(0.1, 10, 30), np.random.default_rng(0)
    offsets = 0.1 * rng.standard_normal(60)
    shares = ndtr((np.log(x)[:, None] - math.log(1.7) - offsets) / 0.3)
    for values in (shares, 1 - shares):
        fit = fit_threshold(x, values)
        assert fit.verdict == "inside"
        assert fit.location == pytest.approx(1.7 * math.exp(offsets.mean()), rel=0.01)
        assert fit.low < fit.location < fit.high
        assert fit.width == pytest.approx(math.hypot(0.3, 0.1), rel=0.05)
        assert math.log(fit.high / fit.low) / 2 == pytest.approx(1.96 * 0.1 / 60**0.5, rel=0.3)


def test_threshold_off_the_grid_is_a_verdict_not_a_number():
    x = np.geomspace(1, 2, 5)
    fit = fit_threshold(x, np.full((5, 3), 0.1) + np.linspace(0, 0.2, 5)[:, None])
    assert fit.verdict == "outside"
    assert math.isnan(fit.location)
    assert "no crossing of 1/2 between 1 and 2" in fit.reason


def test_few_draws_and_no_flips_are_outside_the_regimes():
    study = preference_study(40, 4000, 0.0, 0.05, draws=4)
    for id, violated in (
        ("S1", "needs 30 draws or more for a standard error of the fit; here 4"),
        ("S3", "needs label noise; here eta = 0"),
    ):
        check = CLAIMS[id].check(study)
        assert (check.verdict, check.violated) == (Verdict.OUTSIDE, violated)
