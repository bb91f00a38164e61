"""What a verdict says of its own sharpness, against worlds that are off by as much: refused as often as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bookkit import rules
from bookkit.rules import Evidence
from bookkit.sharpness import (
    Fixed,
    Mean,
    NoNumber,
    Resolution,
    coarseness,
    of_record,
    pooled,
    resolutions,
    too_coarse,
    weakest,
)
from bookkit.widths import CONFIDENCE, POWER, binomial_tail, least_share, seen_shift

DRAWS = (5, 20, 100, 800)
TRIALS = 600
NOISE = 4 * math.sqrt(POWER * (1 - POWER) / TRIALS)  # four standard errors of a counted power


def typical(draws: int, mean: float = 0.0) -> torch.Tensor:
    """Draws whose mean and standard deviation are those of their law."""
    x = torch.from_numpy(stats.norm.ppf((np.arange(draws) + 0.5) / draws))
    return (x - x.mean()) / x.std() + mean


def power(judge, draw) -> float:
    """How often `judge` refuses what `draw` makes."""
    rng = np.random.default_rng(7)
    return sum(not judge(torch.from_numpy(draw(rng))).holds for _ in range(TRIALS)) / TRIALS


def only(evidence: Evidence, kind: str) -> float:
    (found,) = (seen.value for seen in resolutions(evidence.parts) if seen.kind == kind)
    return found


@pytest.mark.parametrize("draws", [3, *DRAWS])
def test_the_shift_is_that_of_the_noncentral_law(draws: int) -> None:
    multiple = rules.student(draws)
    assert 1 - stats.nct.cdf(multiple, draws - 1, seen_shift(draws, multiple)) == pytest.approx(POWER, abs=1e-5)


@pytest.mark.parametrize("draws", DRAWS)
def test_a_mean_off_by_what_is_stated_is_refused(draws: int) -> None:
    """A predicted mean, one end and a band; each judged at the spread for which the sharpness was stated."""
    claimed, seen = 3.0, {}
    seen["equality"] = only(rules.agrees(typical(draws, claimed), claimed, allowance=0.1), "factor")
    seen["band"] = only(rules.mean_within(typical(draws, claimed), 2.8, 3.2), "factor")
    seen["end"] = only(rules.mean_within(typical(draws, claimed), 0.5), "room")
    judges = {
        "equality": (lambda x: rules.agrees(x, claimed, allowance=0.1), claimed * (1 + seen["equality"])),
        "band": (lambda x: rules.mean_within(x, 2.8, 3.2), claimed * (1 - seen["band"])),
        "end": (lambda x: rules.mean_within(x, 0.5 * (1 + seen["end"])), claimed),
    }
    for name, (judge, mean) in judges.items():
        assert power(judge, lambda rng, mean=mean: rng.normal(mean, 1, draws)) == pytest.approx(POWER, abs=NOISE), name
        # Half as much is not seen so often: what is stated is no larger than it must be.
        less = (claimed + mean) / 2
        if name == "equality":
            assert power(judge, lambda rng, less=less: rng.normal(less, 1, draws)) < POWER - NOISE


def test_a_wrong_factor_on_predictions_that_differ_is_refused_as_often_as_stated() -> None:
    """Each draw has a prediction of its own: the factor spreads the differences as well as it moves their mean."""
    draws, own = 40, typical(40, 5.0)  # predictions of mean 5 and standard deviation 1
    difference = 0.3 * typical(40)[torch.randperm(40, generator=torch.Generator().manual_seed(2))]
    seen = only(rules.agrees(own + difference, own, allowance=0.1), "factor")
    moved, rng = 1 + seen, np.random.default_rng(5)
    refused = 0
    for _ in range(TRIALS):
        predicted = torch.from_numpy(rng.normal(5, 1, draws))
        measured = predicted + torch.from_numpy(rng.normal(0, 0.3, draws))
        refused += not rules.agrees(measured, moved * predicted, allowance=0.1).holds
    assert refused / TRIALS == pytest.approx(POWER, abs=NOISE + 0.03)
    # Predictions that differ by more than their mean: no factor is refused, and none is stated.
    assert resolutions(rules.agrees(typical(5, 0.1), typical(5, 0.1) + 0.01).parts)[0].kind == "shift"


@pytest.mark.parametrize("draws", DRAWS)
def test_separate_draws_and_several_means(draws: int) -> None:
    first, second = typical(draws, 2.0), typical(2 * draws, 1.0)
    stated = 1 * (1 + only(rules.difference_within(first, second, 0.5, 1.5), "factor"))
    rng, refused = np.random.default_rng(3), 0
    for _ in range(TRIALS):
        one, other = (torch.from_numpy(rng.normal(m, 1, n)) for m, n in ((1 + stated, draws), (1, 2 * draws)))
        refused += not rules.difference_within(one, other, 0.5, 1.5).holds
    # Satterthwaite's degrees of freedom are themselves measured: with five draws a little less is refused.
    assert refused / TRIALS == pytest.approx(POWER, abs=NOISE + 0.5 / draws)
    value, error = torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64) / math.sqrt(draws)
    found = rules.estimate_within(value, error, draws, low=0.2, quantity="x")
    tighter = 0.2 * (1 + only(found, "room"))

    def refuses(x: torch.Tensor) -> Evidence:
        return rules.estimate_within(
            x.mean()[None], x.std()[None] / math.sqrt(draws), draws, low=tighter, quantity="x", level=rules.LEVEL / 2
        )  # fmt: skip

    assert power(refuses, lambda rng: rng.normal(1, 1, draws)) == pytest.approx(POWER, abs=NOISE)


@pytest.mark.parametrize("trials", [20, 100, 800])
def test_shares_of_trials(trials: int) -> None:
    hits = round(0.8 * trials)
    stated = {
        "low": 0.5 * (1 + only(rules.share_within(hits, trials, 0.5), "room")),
        "high": 0.5 / (1 + only(rules.share_within(trials - hits, trials, None, 0.5), "room")),
        "band": 0.75 * (1 - only(rules.share_within(hits, trials, 0.7, 0.8), "factor")),
    }
    assert stated["high"] == pytest.approx(1 - stated["low"])  # what misses is counted as well as what hits
    counted = np.random.default_rng(1).binomial(trials, 0.8, 2000)
    assert np.mean([not rules.share_within(int(k), trials, stated["low"]).holds for k in counted]) >= POWER - NOISE
    off = np.random.default_rng(2).binomial(trials, max(stated["band"], 0), 2000)
    assert np.mean([not rules.share_within(int(k), trials, 0.7, 0.8).holds for k in off]) >= POWER - NOISE


@pytest.mark.parametrize("draws", [20, 100, 800])
def test_medians(draws: int) -> None:
    values = torch.from_numpy(stats.expon.ppf((np.arange(draws) + 0.5) / draws))
    stated = 0.1 * (1 + only(rules.median_within(values, 0.1), "room"))
    refused = power(lambda x: rules.median_within(x, stated), lambda rng: rng.exponential(size=draws))
    assert refused == pytest.approx(POWER, abs=NOISE + 2 / draws)


@pytest.mark.parametrize("draws", [100, 800])
def test_a_bound_on_draws(draws: int) -> None:
    values = torch.from_numpy((np.arange(draws) + 0.5) / draws)
    found = rules.within(values, high=2.0, share=0.9)
    tighter = 2 / (1 + only(found, "room"))
    assert tighter < 1
    refused = power(lambda x: rules.within(x, high=tighter, share=0.9), lambda rng: rng.uniform(size=draws))
    assert refused == pytest.approx(POWER, abs=NOISE + 2 / draws)


def test_a_bound_without_chance_has_the_room_that_it_leaves() -> None:
    values = torch.tensor([[0.5, 0.8], [0.4, 0.4]], dtype=torch.float64)
    bounds = {"low": 0.1, "high": 1.0}
    silent = torch.tensor([[False, False], [False, True]])
    far = values.masked_fill(silent, 99.0)
    assert only(rules.within(far, **bounds, share=1, silent=silent), "room") == pytest.approx(3.0)
    assert only(rules.within(values, **bounds, share=1), "room") == pytest.approx(3.0)  # the coarser: .4 against .1
    for end, factor in (("low", 4.0), ("high", 0.8)):
        for tighter, holds in ((1 - 1e-9, True), (1 + 1e-9, False)):
            bound = bounds[end] * factor**tighter if end == "low" else bounds[end] * factor / tighter
            assert rules.within(values, **{end: bound}, share=1).holds is holds
    assert only(rules.within(-values, high=0.0, share=1), "shift") == pytest.approx(0.4)
    assert only(rules.within(-values, low=-1.0, share=1), "room") == pytest.approx(0.25)


@pytest.mark.parametrize(("inside", "draws", "low"), [(5, 5, 0.5493), (100, 100, 0.9705), (9, 10, 0.6058), (0, 4, 0.0)])
def test_the_share_that_draws_do_not_exclude(inside: int, draws: int, low: float) -> None:
    found = least_share(inside, draws)
    assert round(found, 4) == low
    if inside:  # so many or more have probability 1 - CONFIDENCE there
        assert stats.binom.sf(inside - 1, draws, found) == pytest.approx(1 - CONFIDENCE)
    assert Resolution("draws", found, 0.95).coarseness == pytest.approx(max(0.0, 0.95 - found), abs=1e-12)


def test_several_parts_are_as_sharp_as_the_weakest() -> None:
    parts = (
        Resolution("factor", 0.1),
        Resolution("factor", 0.03),
        Resolution("draws", least_share(5, 5), 0.5),
        Resolution("draws", least_share(5, 5), 0.95),
        Resolution("exact", 0),
    )
    assert weakest(parts) == (parts[0], parts[3], parts[4])
    assert [part.words for part in parts[1:4]] == [
        "to 3 %",
        "at least 54.9 % of draws; claimed 50 %",
        "at least 54.9 % of draws; claimed 95 %",
    ]
    x = torch.ones(4, 1, dtype=torch.float64)
    assert resolutions(rules.both(rules.exactly(x, 1.0), rules.within(x, low=0.5, share=1)).parts) == (
        Resolution("digits", 1e-10), Resolution("room", 1.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Resolution("factor", 0.031), "to 3.1 %"),
        (Resolution("factor", 1.5), "to a factor of 2.5"),
        (Resolution("room", 0.25), "with room of 25 %"),
        (Resolution("shift", 0.0123), "to ± 0.012"),
        (Resolution("digits", 1e-10), "to 1e-10"),
        (Resolution("enclosure", 2e-7), "enclosed to 2e-07"),
        (Resolution("enclosure", 0.4), "enclosed to 40 %"),
        (Resolution("room", 0.0), "exactly"),
        (Resolution("grid", 0.05), "to 5 %, the grid's step"),
        (Resolution("grid", 1.0), "to a factor of 2, the grid's step"),
    ],
)
def test_words(value: Resolution, words: str) -> None:
    assert value.words == words


def test_seeds_are_pooled_by_the_rule_that_judged_each() -> None:
    """A mean counts seeds, the other rules count all draws; draws that are the same at every seed count once."""
    rng = np.random.default_rng(11)
    x = torch.from_numpy(rng.normal(3.0, 1.0, (20, 5)))

    def parts(judge, rows=x):
        return [judge(row).parts for row in rows]

    (mean,) = pooled(parts(lambda row: rules.agrees(row, 3.1, allowance=0.01)))
    assert mean.holds
    assert mean.centre == pytest.approx(x.mean().item() - 3.1)
    assert (mean.draws, mean.error) == (20, pytest.approx(x.mean(1).std().item() / math.sqrt(20)))
    assert resolutions([mean])[0].value < 0.3 * only(rules.agrees(x[0], 3.1, allowance=0.01), "factor")
    (far,) = pooled(parts(lambda row: rules.mean_within(row, low=5.0)))
    assert [part.holds for (part,) in parts(lambda row: rules.mean_within(row, low=5.0))].count(True) > 10
    assert not far.holds
    moved = x + torch.linspace(-3, 3, 20)[:, None]  # something that draws of one seed have in common
    (seeds,) = pooled(parts(lambda row: rules.agrees(row, 3.1), moved))
    assert (seeds.draws, seeds.error) == (20, pytest.approx(moved.mean(1).std().item() / math.sqrt(20)))
    (same,) = pooled(parts(lambda row: rules.agrees(x[0], 3.1)))
    assert (same.error, same.draws) == (pytest.approx(x[0].std().item() / math.sqrt(5)), 5)
    (share,) = pooled(parts(lambda row: rules.within(row, low=1.5, share=0.9)))
    outside = int((x < 1.5).sum())
    assert (share.draws, share.outside, share.least) == (100, outside, least_share(100 - outside, 100))
    hits = rng.integers(8, 15, 20).tolist()
    (trials,) = pooled([rules.share_within(h, 30, 0.1, 0.7).parts for h in hits])
    assert (trials.hits, trials.trials) == (sum(hits), 600)
    rows = torch.from_numpy(rng.exponential(size=(20, 15)))
    (middle,) = pooled([rules.median_within(row, 0.5).parts for row in rows])
    assert (middle.draws, middle.below, middle.above) == (300, int((rows < 0.5).sum()), 0)
    (bound,) = pooled(parts(lambda row: rules.within(row, high=9.0, share=1)))
    assert bound.value == pytest.approx(9.0 / x.max().item() - 1)
    assert not pooled([rules.exactly(torch.ones(2, 1), c).parts for c in (1.0, 1.1)])[0].holds
    with pytest.raises(ValueError, match="same rules at every seed"):
        pooled([rules.exactly(torch.ones(2, 1), 1.0).parts, (share,)])


@pytest.mark.parametrize("common", [0.0, 0.15, 0.3])
def test_seeds_together_reject_what_is_true_as_often_as_they_say(common: float) -> None:
    """Whatever draws of one seed have in common: of 1500 true claims at level 0.01 some fifteen are rejected.

    Twenty seeds of forty draws each; the seeds' means spread 1, 1.4 and 2.1 times as far as each seed says of its own error.
    """
    rng, worlds, level = np.random.default_rng(5), 1500, 0.01
    draws = rng.normal(size=(worlds, 20, 40)) + common * rng.normal(size=(worlds, 20, 1))
    means, errors = draws.mean(2), draws.std(2, ddof=1) / math.sqrt(40)
    rejected = 0
    for centres, own in zip(means.tolist(), errors.tolist(), strict=True):
        seeds = [Mean.of(c, e, 40, 0.0, 0.0, level=level) for c, e in zip(centres, own, strict=True)]
        rejected += not Mean.pooled(seeds).holds
    assert binomial_tail(worlds, level, rejected) > 1e-4
    assert binomial_tail(worlds, 1 - level, worlds - rejected) > 1e-4  # nor more seldom: it is no wider than it must be


def test_what_is_found_on_a_grid_is_no_sharper_than_its_step() -> None:
    """A count that is exact, a mean to 2 %, one to 16 %, and a share of draws; at several seeds and from a record."""
    x = torch.from_numpy(np.random.default_rng(5).normal(1, 0.01, (20, 40)))
    count = Evidence(True, "", "", "", 1, parts=(Fixed(True),))
    sharp, coarse = rules.mean_within(x[0], 0.99, 1.01), rules.mean_within(x[0], 0.85, 1.15)
    share = rules.within(x[0], low=0.0, share=0.9)
    grid = Resolution("grid", 0.05)
    for evidence, seen in ((count, (grid,)), (sharp, (grid,)), (coarse, (*resolutions(coarse.parts), grid))):
        found = rules.on_grid(evidence, 0.05)
        assert (found.holds, found.measured, resolutions(found.parts)) == (True, evidence.measured, seen)
        assert "exactly" not in "; ".join(each.words for each in resolutions(found.parts))
    assert only(rules.on_grid(share, 0.05), "draws") == only(share, "draws")
    assert [too_coarse(rules.on_grid(count, step).parts) for step in (0.1, 0.11)] == ["", "to 11 %, the grid's step"]
    seeds = pooled([rules.on_grid(rules.mean_within(row, 0.99, 1.01), 0.05).parts for row in x])
    assert resolutions(seeds) == (grid,)
    assert coarseness(seeds) == 0.05
    assert of_record({"parts": [part.as_record() for part in seeds]}) == seeds
    assert "grid" not in sharp.parts[0].as_record()


def test_what_is_no_number_at_one_seed_refuses_all() -> None:
    x = torch.from_numpy(np.random.default_rng(5).normal(1, 0.01, (20, 40)))
    x[7, 3] = math.nan
    parts = [rules.both(rules.mean_within(row, 0.9), rules.exactly(torch.ones(2, 1), 1.0)).parts for row in x]
    assert pooled(parts) == (NoNumber(False, 1, 40), Fixed(True, "digits", 1e-10))
    assert pooled([p[:1] for p in parts[:7]])[0].holds
    assert pooled(parts)[0].words == "1 of 40 values is no number"
    assert of_record({"parts": [part.as_record() for part in pooled(parts)]}) == pooled(parts)
    assert resolutions(pooled(parts)[:1]) == ()


def test_too_few_draws_decide_nothing() -> None:
    """Three of five inside are accepted at the level of the ledger, and do not say that half of what is claimed is true."""
    x = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0])
    assert (rules.within(x, low=0.0).holds, rules.within(x, low=0.0).parts[0].decided) == (True, False)
    assert rules.within(torch.ones(5), low=0.0).parts[0].decided
    assert Fixed(True).decided


def test_parts_come_back_from_their_records() -> None:
    judged = rules.mean_within(torch.linspace(0, 1, 9), np.float64(0.1), np.float64(2.0))  # bounds that numpy made
    assert {type(value) for value in judged.parts[0].as_record().values()} == {str, bool, float, int}
    x = torch.linspace(0, 1, 40, dtype=torch.float64)
    judged = rules.both(
        rules.exactly(x[:, None], x[:, None]), rules.within(x, high=2.0), rules.agrees(x, 0.5), rules.share_within(9, 30, 0.1, 0.7),
        rules.median_within(x, 0.1), rules.estimate_within(x[:2], x[1:3], 40, low=-1.0, quantity="x"),
    )  # fmt: skip
    assert of_record({"parts": [part.as_record() for part in judged.parts]}) == judged.parts
    assert len(judged.parts) == 7
    assert coarseness(judged.parts) == max(r.coarseness or 0 for r in resolutions(judged.parts))
    assert all(part.holds for part in judged.parts) is judged.holds
