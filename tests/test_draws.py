"""A median and a share of draws: intervals found a second way, their coverage counted, and what a mean of logarithms does instead."""

import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm, ttest_1samp

from attnbook.draws import Estimate, about, mean, median, share
from tests.bad_input import refusing


@pytest.mark.parametrize("total", [1, 2, 10, 40, 333])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_interval_of_a_share_is_clopper_and_pearsons(total, confidence) -> None:
    for count in {0, 1, total // 3, total - 1, total}:
        found = share(count, total, confidence)
        wanted = binomtest(count, total).proportion_ci(confidence, method="exact")
        assert found.value == count / total
        assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("draws", range(1, 61))
def test_the_interval_of_a_median_is_the_narrowest_that_covers(draws) -> None:
    values = np.random.default_rng(draws).permutation(draws).astype(float)  # order statistic k is k - 1
    found = median(values, 0.95)
    assert found.value == (draws - 1) / 2
    missed = [2 * binom.cdf(rank, draws, 0.5) for rank in range(draws)]  # fewer than rank + 1 draws on a side
    narrow = sum(each <= 0.05 for each in missed[: (draws + 1) // 2])
    wanted = (narrow - 1, draws - narrow) if narrow else (-math.inf, math.inf)
    assert (found.low, found.high) == wanted
    assert (found.low == -math.inf) == (draws < 6)


def test_ranks_by_the_printed_table() -> None:
    # Conover, Practical Nonparametric Statistics: 95 % for the median of 10, 25 and 100 draws from the 2nd, 8th and 40th.
    for draws, rank in ((10, 2), (25, 8), (100, 40)):
        assert median(np.arange(1.0, draws + 1)).low == rank
    assert median(np.arange(1.0, 5001.0)).low == pytest.approx(2500 - 1.96 * math.sqrt(5000) / 2, abs=1.5)


@pytest.mark.parametrize(("law", "truth"), [("lognormal", 1.0), ("standard_cauchy", 0.0)])
def test_the_median_is_covered_as_often_as_said(law, truth) -> None:
    rng = np.random.default_rng(1)
    found = [median(getattr(rng, law)(size=15)) for _ in range(2000)]
    covered = np.mean([each.low <= truth <= each.high for each in found])
    assert covered == pytest.approx(1 - 2 * binom.cdf(3, 15, 0.5), abs=0.015)  # 0.9648; the 5th of 15 would give 0.88


@pytest.mark.parametrize(("draws", "confidence"), [(2, 0.95), (5, 0.5), (40, 0.999)])
def test_the_interval_of_a_mean_is_students(draws, confidence) -> None:
    values = np.random.default_rng(draws).normal(3.0, 2.0, draws)
    found = mean([*values, math.nan], confidence)  # nothing was measured there
    wanted = ttest_1samp(values, 0.0).confidence_interval(confidence)
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), wanted.low, wanted.high), rel=1e-12)


def test_a_known_standard_error_gives_the_normal_interval() -> None:
    found = about(2.0, 0.5)
    assert found.value == 2.0
    assert norm.cdf([(found.low - 2.0) / 0.5, (found.high - 2.0) / 0.5]) == pytest.approx([0.025, 0.975], rel=1e-12)


def test_a_mean_of_one_draw_has_no_interval_and_of_none_is_nothing() -> None:
    assert mean([2.0, math.nan]) == Estimate(2.0, -math.inf, math.inf)
    assert all(math.isnan(each) for each in mean([math.nan]).named("x").values())


def test_ties_and_order_do_not_matter() -> None:
    assert median([0.0] * 9) == Estimate(0.0, 0.0, 0.0)
    assert median([3.0, 1.0, 2.0]).value == 2.0
    assert median([1.0, 2.0, 3.0, 10.0]).value == 2.5


def test_a_draw_that_is_nan_leaves_nothing_known() -> None:
    assert all(math.isnan(each) for each in median([1.0, math.nan, 2.0]).named("x").values())


def test_an_estimate_prints_and_names_its_ends() -> None:
    found = Estimate(0.5, 0.25, 0.75)
    assert f"{found:.2f}" == "0.50 [0.25, 0.75]"
    assert found.named("benign_share") == {"benign_share": 0.5, "benign_share_low": 0.25, "benign_share_high": 0.75}


test_bad_arguments_are_named = refusing(
    (lambda: median([]), r"values must be \(draws,\) with one draw or more; got shape \(0,\)"),
    (lambda: median([[1.0]]), r"got shape \(1, 1\)"),
    (lambda: median([1.0], 1.0), "confidence must be"),
    (lambda: mean([]), r"values must be \(draws,\) with one draw or more; got shape \(0,\)"),
    (lambda: mean([1.0], 0.0), "confidence must be"),
    (lambda: share(3, 2), "count must be at most total = 2; got 3"),
    (share, (0, 2), {"total": 0, "count": -1, "confidence": 0.0}),
)
