"""Rules: each is the test that scipy or a sum over outcomes makes of the same draws, and refuses a wrong constant."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from bookkit.rules import (
    LEDGER,
    LEVEL,
    NothingToMeasure,
    agrees,
    binomial_tail,
    both,
    difference_within,
    estimate_within,
    exactly,
    fewest_draws,
    mean_within,
    median_interval,
    median_within,
    share_within,
    statistic_within,
    stored_within,
    student,
    within,
)
from bookkit.sharpness import NoNumber

DRAWS = (2, 5, 10, 40)


def _tensor(rng, *shape):
    return torch.as_tensor(rng.standard_normal(shape))


# --- when a claim is rejected -------------------------------------------------------------------------------


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize(
    "rule", ["agrees", "mean_within", "mean_within, two ends", "statistic_within", "difference_within"]
)
def test_rules_of_means_are_students_and_welchs_tests(draws, rule):
    rng, level, seen = np.random.default_rng([draws, 2]), 0.2, set()
    for x in _tensor(rng, 200, draws):
        other = 1 + 3 * _tensor(rng, 7)
        mine = {
            "agrees": lambda x=x: agrees(x + 3, 3.0, level=level),
            "mean_within": lambda x=x: mean_within(x, low=0.0, level=level),
            # Half of the level for either end: at an end of [0, 9] only that half can be met.
            "mean_within, two ends": lambda x=x: mean_within(x, low=0.0, high=9.0, level=2 * level),
            "statistic_within": lambda x=x: statistic_within(lambda a: a.mean() * 2 + 1, x, low=1.0, level=level),
            "difference_within": lambda x=x, other=other: difference_within(x, other, low=-1.0, level=level),
        }[rule]()
        if rule == "difference_within":
            test = stats.ttest_ind(x.numpy(), other.numpy() - 1, equal_var=False, alternative="less")
        else:
            test = stats.ttest_1samp(x.numpy(), 0, alternative="two-sided" if rule == "agrees" else "less")
        assert mine.holds == (test.pvalue > level)
        seen.add(mine.holds)
    assert seen == {True, False}


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("share", [0.95, 0.8])
def test_shares_are_the_exact_binomial_test(draws, share):
    if draws < fewest_draws(share, 0.02):
        with pytest.raises(NothingToMeasure, match=f"needs {fewest_draws(share, 0.02)} draws"):
            within(torch.zeros(draws), high=1.0, share=share, level=0.02)
        return
    for outside in range(draws + 1):
        values = (torch.arange(draws) < outside).double()
        test = stats.binomtest(outside, draws, 1 - share, alternative="greater")
        assert within(values, high=0.5, share=share, level=0.02).holds == (test.pvalue > 0.02)


@pytest.mark.parametrize("draws", [10, 15, 40])
def test_medians_reject_at_most_at_the_level(draws):
    level = 0.05
    k = median_interval(draws, level)
    # Fewer than k draws on one side of the median: a sum over outcomes.
    outcomes = [2 * math.comb(draws, j) / 2**draws for j in range(k + 1)]
    assert sum(outcomes[:k]) <= level < sum(outcomes)
    found = median_within(torch.arange(1.0, draws + 1).flip(0), low=0.0, level=level).numbers
    assert found == {"median": (draws + 1) / 2, "interval_low": k, "interval_high": draws + 1 - k}


def test_a_counted_probability_is_clopper_and_pearsons():
    for hits, trials, probability in [(3, 40, 0.3), (9, 40, 0.3), (38, 40, 0.5), (0, 30, 0.3), (30, 30, 0.5)]:
        for alternative, ends in (("less", {"low": probability}), ("greater", {"high": probability})):
            test = stats.binomtest(hits, trials, probability, alternative=alternative)
            assert share_within(hits, trials, **ends).holds == (test.pvalue > LEVEL)
    # Both ends: each has half of the level.
    pvalue = stats.binomtest(9, 40, 0.5, alternative="less").pvalue
    for level, holds in ((1.99 * pvalue, True), (2.01 * pvalue, False)):
        found = share_within(9, 40, 0.5, 0.9, level=level)
        assert (found.holds, found.false_alarm) == (holds, level)
    with pytest.raises(NothingToMeasure, match="more trials"):
        share_within(2, 3, low=0.5)
    with pytest.raises(NothingToMeasure, match="at least one trial"):
        share_within(0, 0, low=0.5)


# --- widths by hand ---------------------------------------------------------------------------------------------------


def test_widths_by_hand():
    # Two draws: Cauchy's law, P(|T| > t) = 1 - 2 atan(t) / pi. Many: the normal law.
    assert student(2, 0.1) == pytest.approx(math.tan(math.pi * 0.45), rel=1e-9)
    assert student(10**7, 0.05) == pytest.approx(1.959964, rel=1e-6)
    assert student(2, 0.05, sides=1) == pytest.approx(student(2, 0.1), rel=1e-9)
    assert [fewest_draws(share) for share in (0.95, 0.9, 0.5, 1.0)] == [4, 4, 14, 1]
    assert 0.05 ** (fewest_draws(0.95) - 1) > LEVEL >= 0.05 ** fewest_draws(0.95)
    assert [median_interval(n) for n in (14, 15, 20, 40)] == [0, 1, 2, 8]
    assert LEDGER == 500 * LEVEL
    for draws, p, k in [(10, 0.3, 4), (40, 0.01, 1), (3, 0.5, 3), (5, 0.2, 0), (40, 0.05, 10)]:
        by_hand = sum(math.comb(draws, j) * p**j * (1 - p) ** (draws - j) for j in range(k, draws + 1))
        assert binomial_tail(draws, p, k) == pytest.approx(by_hand, rel=1e-10)
    ends = [binomial_tail(10, 0.0, 1), binomial_tail(10, 0.0, 0), binomial_tail(10, 0.5, 11), binomial_tail(10, 1.0, 9)]
    assert ends == [0.0, 1.0, 0.0, 1.0]


# --- values that are no number ----------------------------------------------------------------------------------------


NAN = torch.cat([torch.full((37,), 1.0, dtype=torch.float64), torch.full((3,), math.nan, dtype=torch.float64)])
OPEN = {"low": -9.0, "high": 9.0}
RULES = {  # each with bounds that any number meets
    "within": lambda x, **more: within(x, **OPEN, **more),
    "within, every draw": lambda x, **more: within(x[:, None].expand(-1, 2), **OPEN, share=1, **more),
    "stored_within": lambda x, **more: stored_within(x, **OPEN, **more),
    "median_within": lambda x, **more: median_within(x, **OPEN, **more),
    "agrees": lambda x, **more: agrees(x, 1.0, allowance=9.0, **more),
    "mean_within": lambda x, **more: mean_within(x, **OPEN, **more),
    "statistic_within": lambda x, **more: statistic_within(
        lambda a, b: a.nanmean() / b.mean(), x, 1 + 0 * x, **OPEN, **more
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_value_that_is_no_number_refuses_unless_the_claim_is_silent_there(rule):
    judge, silent = RULES[rule], NAN.isnan()
    assert judge(NAN[:37]).holds
    heard = judge(NAN, silent=silent)
    assert (heard.holds, heard.draws) == (True, 37)
    assert heard == replace(judge(NAN[:37]), draws=37)  # as if only those had been drawn
    refused = judge(NAN)
    each = refused.parts[0].values // 40
    assert refused.parts == (NoNumber(False, 3 * each, 40 * each),)
    assert (refused.holds, refused.mute) == (False, True)
    assert refused.measured == f"{3 * each} of {40 * each} values are no number"
    # A mask that leaves one of them out, as one that is made of another cause may.
    assert judge(NAN, silent=silent & (torch.arange(40) < 39)).parts == (NoNumber(False, each, 38 * each),)
    assert judge(NAN * math.nan).mute


def test_other_ways_to_be_no_number():
    """In one of two samples, a bound, a statistic of good draws, a mean that is stored with its error; and beside a part that holds."""
    x, nan = torch.linspace(1, 2, 20, dtype=torch.float64), torch.tensor(math.nan, dtype=torch.float64)
    assert difference_within(x, NAN, **OPEN).mute
    bound = torch.full((20,), 3.0).index_fill(0, torch.tensor([4]), math.nan)
    assert within(x, high=bound).measured == "1 of 20 values is no number"
    assert within(x, high=bound, silent=bound.isnan()).draws == 19
    assert agrees(x, bound, allowance=9.0).mute
    assert statistic_within(lambda a: a.mean().neg().log(), x, **OPEN).mute
    found = estimate_within(torch.stack([x[0], nan]), x[:2], 20, quantity="x", **OPEN)
    assert [part.missing for part in found.parts] == [1, 1]
    assert exactly(NAN[30:], 1.0).mute
    joined = both(agrees(x, 1.5), agrees(NAN, 1.0), within(x, high=0.0))
    assert "no number" in joined.measured
    assert [type(part).__name__ for part in joined.parts] == ["Mean", "NoNumber", "Share"]
    assert not joined.mute  # the third part refuses by what it measured
    assert math.isnan(agrees(NAN, 1.0).numbers["measured"])  # a judge that reads its numbers finds none


# --- what each rule looks at ------------------------------------------------------------------------------------------


def test_exactly_is_relative_and_hides_rounding_noise():
    x = 1e6 * _tensor(np.random.default_rng(0), 5, 3)
    assert exactly(x * (1 + 1e-13), x).holds
    assert exactly(x * (1 + 1e-13), x).measured == exactly(x, x).measured == "equal to 1e-10"
    assert not exactly(x * (1 + 1e-9), x).holds
    assert not exactly(torch.tensor([1e-9]), 0.0).holds
    assert "off by" in exactly(2 * x, x).measured
    assert exactly(x, x).false_alarm == 0


def test_within_counts_draws_not_entries():
    values, silent = torch.tensor([[0.0, 1.0], [0.5, 3.0], [0.2, 9.0]]), torch.zeros(3, 2, dtype=torch.bool)
    silent[2, 1] = True
    evidence = within(values, low=0.0, high=2.0, share=1, silent=silent)
    assert not evidence.holds
    assert (evidence.numbers["failures"], evidence.false_alarm) == (1, 0)
    assert evidence.measured == "[0, 3]; inside in 2 of 3 draws"
    assert within(values, high=3.0, share=1, silent=silent).holds
    assert not within(values, high=3.0, share=1).holds
    assert not within(values, high=3.0, share=1, strict=True, silent=silent).holds
    assert within(values, high=torch.tensor([[1.0], [3.0], [0.2]]), share=1, silent=silent).holds
    assert not within(values, high=torch.tensor([[1.0], [3.0], [0.1]]), share=1, silent=silent).holds


def test_within_allows_as_many_failures_as_the_share_makes_likely():
    values = (torch.arange(40) < 9).double()
    assert within(values, high=0.5).holds  # P(Binomial(40, .05) >= 9) = 1.4e-4
    values[9] = 1.0
    assert not within(values, high=0.5).holds  # 10 or more: 2.8e-5
    assert within(values, high=0.5, share=0.75).holds
    assert not within(values[:4], high=0.5).holds  # four of four: .05^4
    silent = torch.arange(8) >= 4
    assert within(torch.ones(8), high=2.0, silent=silent).draws == 4  # draws with nothing to say are not counted
    assert not within(torch.ones(8), high=0.5, silent=silent).holds
    with pytest.raises(NothingToMeasure, match="needs 4 draws or more to refute a fraction of 95%; here 3"):
        within(torch.ones(3), high=2.0)
    with pytest.raises(NothingToMeasure, match="at least one sample"):
        within(torch.ones(3, 2), low=0.0, silent=torch.ones(3, dtype=torch.bool))


def test_one_stored_run_outside_rejects():
    values = torch.tensor([1.0, 2.0, math.nan, 3.0], dtype=torch.float64)
    assert stored_within(values, 1.0, 3.0, silent=values.isnan()).holds
    found = stored_within(values, 1.0, 2.9, silent=values.isnan())
    assert (found.holds, found.draws, found.numbers["failures"], found.false_alarm) == (False, 3, 1, 0)


def test_agrees_uses_paired_differences_and_ignores_silent_draws():
    rng = np.random.default_rng(0)
    truth = 5 * _tensor(rng, 400)
    measured = truth + 0.1 * _tensor(rng, 400)
    evidence = agrees(measured, truth)
    assert evidence.holds
    assert evidence.numbers["standard_error_of_difference"] == pytest.approx(0.1 / 20, rel=0.1)
    assert not agrees(measured + 0.03, truth).holds
    assert agrees(measured + 0.03, truth, allowance=0.05, allowance_text="because").holds
    silent = torch.arange(400) % 2 == 0
    measured[::2] = math.nan
    assert agrees(measured, truth, silent=silent).draws == 200
    with pytest.raises(NothingToMeasure, match="two draws or more"):
        agrees(torch.tensor([1.0, 9.0]), 1.0, silent=torch.tensor([False, True]))


def test_means_medians_and_statistics_refuse_what_is_outside():
    rng = np.random.default_rng(1)
    x = 2 + 0.1 * _tensor(rng, 40)
    y = 3 * x + 0.01 * _tensor(rng, 40)
    for rule in (mean_within, median_within):
        assert rule(x, 1.99, 2.01).holds
        assert not rule(x, low=2.2).holds
        assert not rule(x, high=1.8).holds
        with pytest.raises(ValueError, match="low, high"):
            rule(x)
    assert statistic_within(lambda a, b: b.mean() / a.mean(), x, y, low=3.0, high=3.0).holds
    assert not statistic_within(lambda a, b: b.mean() / a.mean(), x, y, low=3.02).holds
    assert difference_within(y, x, 3.9, 4.1).holds
    assert not difference_within(y, x, high=3.5).holds
    with pytest.raises(NothingToMeasure, match="needs 15 draws or more; here 14"):
        median_within(x[:14], low=1.0)
    with pytest.raises(NothingToMeasure, match="two draws or more"):
        statistic_within(lambda a: a.mean(), x[:1], low=1.0)


def test_the_jackknife_is_known_for_a_ratio():
    rng = np.random.default_rng(2)
    x, y = 5 + _tensor(rng, 30), 10 + 2 * _tensor(rng, 30)
    # The delta method: var(y/x) = var(y - r x) / (n x^2), to the order 1/n.
    found = statistic_within(lambda a, b: b.mean() / a.mean(), x, y, low=0.0).numbers["standard_error"]
    r = y.mean() / x.mean()
    assert found == pytest.approx(((y - r * x).std() / math.sqrt(30) / x.mean()).item(), rel=0.1)


def test_bounds_on_means_that_are_known_by_their_errors():
    """Two means of 30 draws: each gets half of the level, on two sides."""
    width = stats.t.ppf(1 - LEVEL / 4, 29)
    value, error = torch.tensor([1.0, 5.0], dtype=torch.float64), torch.tensor([0.1, 0.2], dtype=torch.float64)
    found = estimate_within(value, error, 30, high=5 - 0.999 * 0.2 * width, quantity="x")
    assert found.holds
    assert found.numbers == pytest.approx({"min": 1.0, "max": 5.0, "high": 5 - 0.999 * 0.2 * width, "failures": 0})
    assert (found.draws, found.false_alarm) == (30, LEVEL)
    assert not estimate_within(value, error, 30, high=5 - 1.001 * 0.2 * width, quantity="x").holds
    assert estimate_within(value, error, 30, low=1 + 0.999 * 0.1 * width, quantity="x").holds
    assert not estimate_within(value, error, 30, low=1 + 1.001 * 0.1 * width, quantity="x").holds


def test_both_needs_both_and_adds_false_alarms():
    good, bad = exactly(torch.ones(4), 1.0), within(torch.ones(5), high=0.0)
    assert both(good, good).holds
    joined = both(good, bad, bad)
    assert (joined.holds, joined.draws, joined.false_alarm) == (False, 4, 2 * LEVEL)
    assert joined.predicted == "equality; <= 0"
    assert joined.numbers["failures_2"] == 5
