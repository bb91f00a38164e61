"""Tolerance rules, verdicts and records: each rule accepts what it should and refuses the wrong constant."""

import json
import math

import numpy as np
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookkit import claims
from bookkit.claims import (
    CLAIMS_TYPE,
    ClaimSet,
    NothingToMeasure,
    Source,
    Verdict,
    agrees,
    binomial_tail,
    both,
    exactly,
    read_checks,
    within,
)

RNG = np.random.default_rng(0)


def _tensor(*shape):
    return torch.as_tensor(RNG.standard_normal(shape))


def test_exactly_is_relative_and_hides_rounding_noise():
    x = 1e6 * _tensor(5, 3)
    assert exactly(x * (1 + 1e-13), x).holds
    assert exactly(x * (1 + 1e-13), x).measured == exactly(x, x).measured == "equal to 1e-10"
    assert not exactly(x * (1 + 1e-9), x).holds
    assert not exactly(torch.tensor([1e-9]), 0.0).holds
    assert "off by" in exactly(2 * x, x).measured


def test_within_counts_draws_not_entries():
    values = torch.tensor([[0.0, 1.0], [0.5, 3.0], [0.2, math.nan]])
    evidence = within(values, low=0.0, high=2.0)
    assert not evidence.holds
    assert evidence.numbers["failures"] == 1
    assert evidence.measured.endswith("inside in 2 of 3 draws")
    assert within(values, high=3.0).holds
    assert not within(values, high=3.0, strict=True).holds
    assert within(values, high=torch.tensor([[1.0], [3.0], [0.2]])).holds
    assert not within(values, high=torch.tensor([[1.0], [3.0], [0.1]])).holds


def test_within_allows_failures_at_the_stated_rate_only():
    values = torch.zeros(1000)
    values[:10] = 1.0  # exactly one in a hundred
    assert within(values, high=0.5, failure_probability=0.01).holds
    assert not within(values, high=0.5, failure_probability=0.002).holds
    assert not within(values, high=0.5).holds


@pytest.mark.parametrize(("draws", "p", "k"), [(10, 0.3, 4), (40, 0.01, 1), (3, 0.5, 3), (5, 0.2, 0)])
def test_binomial_tail_by_hand(draws, p, k):
    by_hand = sum(math.comb(draws, j) * p**j * (1 - p) ** (draws - j) for j in range(k, draws + 1))
    assert binomial_tail(draws, p, k) == pytest.approx(by_hand, rel=1e-12)


def test_binomial_tail_ends():
    assert binomial_tail(10, 0.0, 1) == 0.0
    assert binomial_tail(10, 0.0, 0) == 1.0
    assert binomial_tail(5000, 0.01, 100) < 1e-6


def test_agrees_uses_paired_differences_and_ignores_silent_draws():
    truth = 5 * _tensor(400)
    measured = truth + 0.1 * _tensor(400)
    evidence = agrees(measured, truth)
    assert evidence.holds
    assert evidence.numbers["standard_error_of_difference"] == pytest.approx(0.1 / 20, rel=0.1)
    assert not agrees(measured + 0.03, truth).holds
    assert agrees(measured + 0.03, truth, allowance=0.05, allowance_text="because").holds
    measured[::2] = math.nan
    assert agrees(measured, truth).draws == 200
    with pytest.raises(NothingToMeasure, match="two draws or more"):
        agrees(torch.tensor([1.0, math.nan]), 1.0)
    with pytest.raises(NothingToMeasure, match="at least one sample"):
        within(torch.full((3, 2), math.nan), low=0.0)


def test_both_needs_both():
    good, bad = exactly(torch.ones(4), 1.0), within(torch.ones(3), high=0.0)
    assert both(good, good).holds
    joined = both(good, bad)
    assert not joined.holds
    assert joined.draws == 3
    assert "equality" in joined.predicted
    assert "<=" in joined.predicted
    assert joined.numbers["failures_2"] == 3


@pytest.fixture
def family():
    family = ClaimSet("test wing")

    @family.claim("X1", "ones", "$x = 1$", source=Source.PAPER, wrong=1.1, wrong_text="1.1")
    def ones(study, constant):
        return exactly(study, constant * torch.ones_like(study))

    @family.claim("X2", "twos", "$x = 2$", wrong=0.5, wrong_text="half of it", expected=Verdict.FAILS,
                  regime="$x > 0$", violation=lambda s: "" if (s > 0).all() else f"needs x > 0; here {s.min():.1f}")  # fmt: skip
    def twos(study, constant):
        return exactly(study, 2 * constant * torch.ones_like(study))

    return family


def test_verdicts_twins_and_expectations(family):
    first, second = family.check(torch.ones(3))
    assert (first.verdict, first.has_power, first.as_expected) == (Verdict.HOLDS, True, True)
    assert (second.verdict, second.has_power, second.as_expected) == (Verdict.FAILS, True, True)
    first, second = family.check(2 * torch.ones(3))
    assert (first.verdict, first.as_expected) == (Verdict.FAILS, False)
    assert not first.has_power  # both the claim and its twin fail: the check says nothing
    assert (second.verdict, second.as_expected) == (Verdict.HOLDS, False)
    outside = family["X2"].check(-torch.ones(3))
    assert outside.verdict == Verdict.OUTSIDE
    assert outside.as_record()["violated"] == "needs x > 0; here -1.0"


def test_nothing_to_measure_is_outside_not_a_crash(family):
    family.claim("X3", "mean", "", wrong=2.0, wrong_text="2")(lambda study, constant: agrees(study, constant))
    result = family["X3"].check(torch.ones(1))
    assert result.verdict == Verdict.OUTSIDE
    assert "two draws or more" in result.violated


def test_ids_are_used_once(family):
    with pytest.raises(ValueError, match="'X1' twice"):
        family.claim("X1", "again", "", wrong=1.0, wrong_text="")(lambda s, c: None)


def test_records_survive_json_and_a_notebook(family, capsys):
    shown = {}
    original = claims.publish
    try:
        claims.publish = lambda kind, payload, text, table: shown.update(
            kind=kind, payload=payload, text=text, table=table
        )
        claims.verdict_table(family.check(torch.ones(3)))
    finally:
        claims.publish = original
    payload = json.loads(json.dumps(shown["payload"], allow_nan=False))
    output = new_output("display_data", data={CLAIMS_TYPE: payload, "text/plain": shown["text"]})
    notebook = new_notebook(cells=[new_code_cell("1"), new_code_cell("2", outputs=[output])])
    records = read_checks(notebook)
    assert [record["id"] for record in records] == ["X1", "X2"]
    assert records[0]["source"] == "paper"
    assert records[0]["power_twin"] == {"wrong": "1.1", "verdict": "fails"}
    assert records[1]["expected"] == "fails"
    assert records[1]["function"].endswith("twos")
    assert "verdict-fails" in shown["table"]
    assert "as expected" in shown["text"]
    with pytest.raises(ValueError, match="at least one check"):
        claims.verdict_table([])
