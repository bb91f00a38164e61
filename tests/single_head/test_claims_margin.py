"""The max-margin claims: worlds in which a negative control holds and its claim does not, and what lies outside."""

from dataclasses import replace

import pytest
import torch

from attnbook.single_head.max_margin.claims import CLAIMS
from attnbook.single_head.max_margin.study import margin_study
from attnlib.single_head.law import SignalNoiseLaw
from bookkit.claims import Verdict


@pytest.fixture(scope="module")
def study():
    return margin_study(SignalNoiseLaw(60, 24_000, 50.0, 0.1), draws=5, seed=3, search_samples=16, search_draws=4)


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("id", "column", "swap"),
    [("T2", "above", "low"), ("T4", "low", "above"), ("M20", "low", "above"), ("M14", "above_cosine", "above_rival_cosine"),
     ("M26", "threshold_exact", "threshold_predicted")],
)  # fmt: skip
def test_a_negative_control_holds_in_its_own_world(study, id, column, swap):
    """Data as the control would have them: then the control holds and the claim does not. None is false whatever is measured."""
    numbers = dict(study.numbers)
    if id == "M26":
        numbers["threshold_measured"] = numbers["threshold_predicted"]
    for name in study.numbers:
        if name == column or (name.startswith(column + "_") and column in ("above", "low")):
            other = swap + name[len(column) :] if column in ("above", "low") else swap
            if other in study.numbers:
                numbers[name], numbers[other] = study.numbers[other], study.numbers[name]
    if id == "M26":
        numbers["threshold_exact"], numbers["threshold_predicted"] = (
            study["threshold_exact"],
            study["threshold_predicted"],
        )
    swapped = replace(study, numbers=numbers)
    assert CLAIMS[id].judge(study, 1.0).holds
    assert CLAIMS[id].judge(swapped, CLAIMS[id].wrong).holds
    assert not CLAIMS[id].judge(swapped, 1.0).holds


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
