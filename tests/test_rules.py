"""Rules: each rejects what is true as often as it says, derived a second way or simulated, and refuses a wrong constant."""

import math

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
    one_more_run,
    share_within,
    statistic_within,
    stored_within,
    student,
    within,
)

DRAWS = (2, 5, 10, 40)


def _tensor(rng, *shape):
    return torch.as_tensor(rng.standard_normal(shape))


def _rate(rejects, level, repeats):
    """The number of rejections is what Binomial(repeats, level) gives, to four standard deviations."""
    expected = repeats * level
    assert abs(rejects - expected) < 4 * math.sqrt(expected), (rejects, expected)


# --- how often a true claim is rejected ---------------------------------------------------------------------------------


@pytest.mark.parametrize("draws", DRAWS)
def test_means_reject_at_the_level(draws):
    # At the ledger's own level, in one go: 2 million means, 200 of which are rejected.
    rng, repeats = np.random.default_rng([draws, 1]), 2_000_000
    rejects = 0
    for _ in range(20):
        x = rng.standard_normal((repeats // 20, draws))
        rejects += int((np.abs(x.mean(1)) > student(draws) * x.std(1, ddof=1) / math.sqrt(draws)).sum())
    _rate(rejects, LEVEL, repeats)


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("rule", ["agrees", "mean_within", "mean_within, two ends", "statistic_within"])
def test_rules_of_means_use_that_width(draws, rule):
    rng, repeats, level = np.random.default_rng([draws, 2]), 2500, 0.04
    judge = {
        "agrees": lambda x: agrees(x + 3, 3.0, level=level),
        "mean_within": lambda x: mean_within(x, low=0.0, level=level),
        # Half of the level for either end: at an end of [0, 9] only that half can be met.
        "mean_within, two ends": lambda x: mean_within(x, low=0.0, high=9.0, level=2 * level),
        "statistic_within": lambda x: statistic_within(lambda a: a.mean().item() * 2 + 1, x, low=1.0, level=level),
    }[rule]
    rejects = sum(not judge(x).holds for x in _tensor(rng, repeats, draws))
    _rate(rejects, level, repeats)


@pytest.mark.parametrize(("first", "second"), [(5, 40), (10, 10), (40, 5)])
def test_difference_is_welchs_test(first, second):
    rng, repeats, level = np.random.default_rng([first, 3]), 2500, 0.04
    rejects = 0
    for _ in range(repeats):
        a, b = 1 + 3 * _tensor(rng, first), _tensor(rng, second)
        mine = difference_within(a, b, low=1.0, level=level).holds
        theirs = stats.ttest_ind(a.numpy(), b.numpy() + 1, equal_var=False, alternative="less").pvalue > level
        assert mine == theirs
        rejects += not mine
    assert rejects / repeats < 1.6 * level  # Welch's level is approximate with five draws


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("share", [0.95, 0.8])
def test_shares_reject_at_most_at_the_level(draws, share):
    if draws < fewest_draws(share, 0.02):
        with pytest.raises(NothingToMeasure, match=f"needs {fewest_draws(share, 0.02)} draws"):
            within(torch.zeros(draws), high=1.0, share=share, level=0.02)
        return
    rng, repeats = np.random.default_rng([draws, 4]), 2500
    outside = torch.as_tensor(rng.random((repeats, draws)) > share).double()
    rejects = sum(not within(row, high=0.5, share=share, level=0.02).holds for row in outside)
    # By summation over all outcomes, without the tail function of the rule.
    outcomes = [math.comb(draws, k) * (1 - share) ** k * share ** (draws - k) for k in range(draws + 1)]
    exact = sum(p for k, p in enumerate(outcomes) if sum(outcomes[k:]) <= 0.02)
    assert exact <= 0.02
    _rate(rejects, exact, repeats)


@pytest.mark.parametrize("draws", [10, 40])
def test_medians_reject_at_most_at_the_level(draws):
    rng, repeats, level = np.random.default_rng([draws, 5]), 2500, 0.05
    rejects = sum(
        not median_within(x.exp(), low=1.0, high=1.0, level=level).holds for x in _tensor(rng, repeats, draws)
    )
    k = median_interval(draws, level)
    exact = 2 * sum(math.comb(draws, j) for j in range(k)) / 2**draws
    assert exact <= level < 2 * sum(math.comb(draws, j) for j in range(k + 1)) / 2**draws
    _rate(rejects, exact, repeats)


def test_a_counted_probability_is_clopper_and_pearsons():
    for hits, trials, probability in [(3, 40, 0.3), (9, 40, 0.3), (38, 40, 0.5), (0, 30, 0.3), (30, 30, 0.5)]:
        test = stats.binomtest(hits, trials, probability, alternative="less")
        assert share_within(hits, trials, low=probability).holds == (test.pvalue > LEVEL)
        test = stats.binomtest(hits, trials, probability, alternative="greater")
        assert share_within(hits, trials, high=probability).holds == (test.pvalue > LEVEL)
    assert share_within(20, 40, 0.3, 0.7).false_alarm == LEVEL
    with pytest.raises(NothingToMeasure, match="more trials"):
        share_within(2, 3, low=0.5)
    with pytest.raises(NothingToMeasure, match="at least one trial"):
        share_within(0, 0, low=0.5)


# --- widths by hand --------------------------------------------------------------------------------------------------------


def test_widths_by_hand():
    # Two draws: Cauchy's law, P(|T| > t) = 1 - 2 atan(t) / pi. Many: the normal law.
    assert student(2, 0.1) == pytest.approx(math.tan(math.pi * 0.45), rel=1e-9)
    assert student(10**7, 0.05) == pytest.approx(1.959964, rel=1e-6)
    assert student(2, 0.05, sides=1) == pytest.approx(student(2, 0.1), rel=1e-9)
    assert [fewest_draws(share) for share in (0.95, 0.9, 0.5, 1.0)] == [4, 4, 14, 1]
    assert 0.05 ** (fewest_draws(0.95) - 1) > LEVEL >= 0.05 ** fewest_draws(0.95)
    assert [median_interval(n) for n in (14, 15, 20, 40)] == [0, 1, 2, 8]
    assert LEDGER == 500 * LEVEL


@pytest.mark.parametrize(("draws", "p", "k"), [(10, 0.3, 4), (40, 0.01, 1), (3, 0.5, 3), (5, 0.2, 0), (40, 0.05, 10)])
def test_binomial_tail_by_hand(draws, p, k):
    by_hand = sum(math.comb(draws, j) * p**j * (1 - p) ** (draws - j) for j in range(k, draws + 1))
    assert binomial_tail(draws, p, k) == pytest.approx(by_hand, rel=1e-10)


def test_binomial_tail_ends():
    assert binomial_tail(10, 0.0, 1) == 0.0
    assert binomial_tail(10, 0.0, 0) == 1.0
    assert binomial_tail(10, 0.5, 11) == 0.0
    assert binomial_tail(5000, 0.01, 100) < 1e-6


# --- what each rule looks at -------------------------------------------------------------------------------------------------


def test_exactly_is_relative_and_hides_rounding_noise():
    x = 1e6 * _tensor(np.random.default_rng(0), 5, 3)
    assert exactly(x * (1 + 1e-13), x).holds
    assert exactly(x * (1 + 1e-13), x).measured == exactly(x, x).measured == "equal to 1e-10"
    assert not exactly(x * (1 + 1e-9), x).holds
    assert not exactly(torch.tensor([1e-9]), 0.0).holds
    assert "off by" in exactly(2 * x, x).measured
    assert exactly(x, x).false_alarm == 0


def test_within_counts_draws_not_entries():
    values = torch.tensor([[0.0, 1.0], [0.5, 3.0], [0.2, math.nan]])
    evidence = within(values, low=0.0, high=2.0, share=1)
    assert not evidence.holds
    assert (evidence.numbers["failures"], evidence.false_alarm) == (1, 0)
    assert evidence.measured.endswith("inside in 2 of 3 draws")
    assert within(values, high=3.0, share=1).holds
    assert not within(values, high=3.0, share=1, strict=True).holds
    assert within(values, high=torch.tensor([[1.0], [3.0], [0.2]]), share=1).holds
    assert not within(values, high=torch.tensor([[1.0], [3.0], [0.1]]), share=1).holds


def test_within_allows_as_many_failures_as_the_share_makes_likely():
    values = torch.zeros(40)
    values[:9] = 1.0
    assert within(values, high=0.5).holds  # P(Binomial(40, .05) >= 9) = 1.4e-4
    values[9] = 1.0
    assert not within(values, high=0.5).holds  # 10 or more: 2.8e-5
    assert within(values, high=0.5, share=0.75).holds
    assert not within(values[:4], high=0.5).holds  # four of four: .05^4
    silent = torch.full((8,), math.nan)
    silent[:4] = 1.0
    assert within(silent, high=2.0).draws == 4  # draws with nothing to say are not counted
    assert not within(silent, high=0.5).holds
    with pytest.raises(NothingToMeasure, match="needs 4 draws or more to refute a fraction of 95%; here 3"):
        within(torch.ones(3), high=2.0)
    with pytest.raises(NothingToMeasure, match="at least one sample"):
        within(torch.full((3, 2), math.nan), low=0.0)


def test_agrees_uses_paired_differences_and_ignores_silent_draws():
    rng = np.random.default_rng(0)
    truth = 5 * _tensor(rng, 400)
    measured = truth + 0.1 * _tensor(rng, 400)
    evidence = agrees(measured, truth)
    assert evidence.holds
    assert evidence.numbers["standard_error_of_difference"] == pytest.approx(0.1 / 20, rel=0.1)
    assert not agrees(measured + 0.03, truth).holds
    assert agrees(measured + 0.03, truth, allowance=0.05, allowance_text="because").holds
    measured[::2] = math.nan
    assert agrees(measured, truth).draws == 200
    with pytest.raises(NothingToMeasure, match="two draws or more"):
        agrees(torch.tensor([1.0, math.nan]), 1.0)


def test_means_medians_and_statistics_refuse_what_is_outside():
    rng = np.random.default_rng(1)
    x = 2 + 0.1 * _tensor(rng, 40)
    assert mean_within(x, 1.99, 2.01).holds
    assert not mean_within(x, low=2.2).holds
    assert not mean_within(x, high=1.8).holds
    assert median_within(x, 1.99, 2.01).holds
    assert not median_within(x, low=2.2).holds
    assert not median_within(x, high=1.8).holds
    with pytest.raises(NothingToMeasure, match="needs 15 draws or more; here 14"):
        median_within(x[:14], low=1.0)
    y = 3 * x + 0.01 * _tensor(rng, 40)

    def ratio(a, b):
        return (b.mean() / a.mean()).item()

    assert statistic_within(ratio, x, y, low=3.0, high=3.0).holds
    assert not statistic_within(ratio, x, y, low=3.02).holds
    assert difference_within(y, x, 3.9, 4.1).holds
    assert not difference_within(y, x, high=3.5).holds
    for rule in (mean_within, median_within):
        with pytest.raises(ValueError, match="low, high"):
            rule(x)


def test_the_jackknife_is_exact_for_a_mean_and_known_for_a_ratio():
    rng = np.random.default_rng(2)
    x, y = 5 + _tensor(rng, 30), 10 + 2 * _tensor(rng, 30)
    one = statistic_within(lambda a: a.mean().item(), x, low=0.0).numbers
    assert one["standard_error"] == pytest.approx(x.std().item() / math.sqrt(30), rel=1e-9)
    # The delta method: var(y/x) = var(y - r x) / (n x^2), to the order 1/n.
    found = statistic_within(lambda a, b: (b.mean() / a.mean()).item(), x, y, low=0.0).numbers["standard_error"]
    r = y.mean() / x.mean()
    assert found == pytest.approx(((y - r * x).std() / math.sqrt(30) / x.mean()).item(), rel=0.1)


def test_both_needs_both_and_adds_false_alarms():
    good, bad = exactly(torch.ones(4), 1.0), within(torch.ones(5), high=0.0)
    assert both(good, good).holds
    joined = both(good, bad, bad)
    assert not joined.holds
    assert joined.draws == 4
    assert "equality" in joined.predicted
    assert "<=" in joined.predicted
    assert joined.numbers["failures_2"] == 5
    assert joined.false_alarm == 2 * LEVEL


# --- stored rows, one published run, and means known by their errors -------------------------------------------------------


def test_one_stored_run_outside_rejects():
    values = torch.tensor([1.0, 2.0, math.nan, 3.0], dtype=torch.float64)
    assert stored_within(values, 1.0, 3.0).holds
    found = stored_within(values, 1.0, 2.9)
    assert not found.holds
    assert (found.draws, found.numbers["failures"], found.false_alarm) == (3, 1, 0)


def test_one_more_run_has_the_width_of_a_prediction_interval():
    """scipy's t for the edge: mean 2, s.d. 1 of three runs, s.d. of one more run minus the mean sqrt(4/3)."""
    runs = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    edge = stats.t.ppf(1 - LEVEL / 2, 2) * math.sqrt(4 / 3) + 0.5
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
    width = stats.t.ppf(1 - LEVEL / 4, 29)
    value, error = torch.tensor([1.0, 5.0], dtype=torch.float64), torch.tensor([0.1, 0.2], dtype=torch.float64)
    found = estimate_within(value, error, 30, high=5 - 0.999 * 0.2 * width, quantity="x")
    assert found.holds
    assert found.numbers == pytest.approx({"min": 1.0, "max": 5.0, "high": 5 - 0.999 * 0.2 * width, "failures": 0})
    assert (found.draws, found.false_alarm) == (30, LEVEL)
    assert not estimate_within(value, error, 30, high=5 - 1.001 * 0.2 * width, quantity="x").holds
    assert estimate_within(value, error, 30, low=1 + 0.999 * 0.1 * width, quantity="x").holds
    assert not estimate_within(value, error, 30, low=1 + 1.001 * 0.1 * width, quantity="x").holds


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("means", [1, 4])
def test_means_known_by_their_errors_reject_at_most_at_the_level(draws, means):
    """Separate means at the very end of their bound: each is rejected on one side, so half of the level in all, or a little less."""
    rng, repeats, level = np.random.default_rng([draws, means, 6]), 1000, 0.08
    x = _tensor(rng, repeats, means, draws)
    value, error = x.mean(-1), x.std(-1) / math.sqrt(draws)
    rejects = sum(
        not estimate_within(v, e, draws, low=0.0, quantity="x", level=level).holds
        for v, e in zip(value, error, strict=True)
    )
    _rate(rejects, 1 - (1 - level / (2 * means)) ** means, repeats)
    rejects = sum(
        not estimate_within(v, e, draws, 0.0, 0.0, quantity="x", level=level).holds
        for v, e in zip(value, error, strict=True)
    )
    _rate(rejects, 1 - (1 - level / means) ** means, repeats)
