"""The max-margin claims: expected verdict at the page's defaults, power twins the other way, and what lies outside."""

import pytest
import torch

from attnbook.single_head.max_margin.claims import CLAIMS, cost_table
from attnbook.single_head.max_margin.study import margin_study
from attnlib.single_head.law import SignalNoiseLaw
from bookkit.claims import Verdict


@pytest.fixture(scope="module")
def study():
    return margin_study(SignalNoiseLaw(60, 24_000, 50.0, 0.1), draws=5, seed=3, search_samples=16, search_draws=4)


@pytest.mark.parametrize("id", CLAIMS)
def test_margin_claims(study, id):
    result = CLAIMS[id].check(study)
    assert result.as_expected, (result.verdict, result.violated, result.evidence)
    assert result.has_power, result.twin


def test_cost_table_is_sorted_and_led_by_the_best_pattern(study):
    table = cost_table(study)
    assert [row[1] for row in table] == sorted(row[1] for row in table)
    assert table[0][0] == "SS"
    assert len(table) == 9


def test_below_the_threshold_the_benign_claim_is_outside_its_regime():
    weak = margin_study(SignalNoiseLaw(24, 9600, 10.0, 0.1), draws=4, search_samples=8, search_draws=4)
    assert set(weak.patterns) == {"XX"}
    result = CLAIMS["T2"].check(weak)
    assert result.verdict == Verdict.OUTSIDE
    assert result.violated.startswith("needs rho > 1.3 sqrt(d/E|C_k|)")
    for id in ("M4", "M5", "T4", "M13", "M20"):
        assert CLAIMS[id].check(weak).verdict == Verdict.HOLDS, id


def test_without_label_noise_claims_about_flips_say_so():
    clean = margin_study(SignalNoiseLaw(24, 9600, 50.0, 0.0), draws=2, search_samples=8, search_draws=1)
    for id in ("M2", "M9", "M12", "M21"):
        result = CLAIMS[id].check(clean)
        assert result.verdict == Verdict.OUTSIDE, id
        assert result.violated == "needs label noise; here eta = 0"
    assert CLAIMS["M1"].check(clean).verdict == Verdict.HOLDS
    assert torch.isnan(clean["mixing_noisy"]).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"law": "paper"}, "law must be a SignalNoiseLaw"),
        ({"law": SignalNoiseLaw(10, 500, 5.0, tokens=3)}, "law must be a SignalNoiseLaw with two tokens"),
        ({"law": SignalNoiseLaw(10, 15, 5.0)}, "d must be at least 2 n"),
        ({"radius": 0.0}, "radius must be"),
        ({"draws": 1}, "draws must be"),
        ({"search_samples": 5}, "search_samples must be"),
        ({"search_draws": 0}, "search_draws must be"),
    ],
)
def test_bad_studies(arguments, message):
    with pytest.raises(ValueError, match=message):
        margin_study(**({"law": SignalNoiseLaw(10, 500, 5.0)} | arguments))
