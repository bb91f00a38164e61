"""The max-margin claims: worlds in which a negative control holds and its claim does not, and what lies outside."""

from dataclasses import replace

import pytest
import torch

from attnbook.single_head.max_margin.claims import CLAIMS
from attnbook.single_head.max_margin.fresh_study import fresh_study
from attnbook.single_head.max_margin.optimum_study import optimum_study
from attnbook.single_head.max_margin.study import margin_study
from attnlib.single_head.law import SignalNoiseLaw
from bookkit.claims import Verdict
from tests.bad_input import refusing

LAW = SignalNoiseLaw(60, 24_000, 50.0, 0.1)


@pytest.fixture(scope="module")
def studies():
    return {
        "exact": margin_study(LAW, draws=5, seed=3),
        "optimum": optimum_study(LAW, draws=5, seed=3, search_samples=16, search_draws=4),
    }


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("id", "column", "swap"),
    [("T2", "above", "low"), ("T4", "low", "above"), ("M20", "low", "above"), ("M14", "above_cosine", "above_rival_cosine"),
     ("M26", "threshold_exact", "threshold_predicted")],
)  # fmt: skip
def test_a_negative_control_holds_in_its_own_world(studies, id, column, swap):
    """Data as the control would have them: then the control holds and the claim does not. None is false whatever is measured."""
    study = studies["exact" if id == "M26" else "optimum"]
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
    wrong = CLAIMS[id].wrong
    assert CLAIMS[id].judge(swapped, wrong[0] if isinstance(wrong, tuple) else wrong).holds
    assert not CLAIMS[id].judge(swapped, 1.0).holds


def test_without_label_noise_claims_about_flips_say_so():
    law = SignalNoiseLaw(24, 9600, 50.0, 0.0)
    exact, fresh = margin_study(law, draws=2), fresh_study(law, draws=2, few_samples=8, few_draws=1)
    optimum = optimum_study(law, draws=2, search_samples=8, search_draws=1)
    for id, study in (("M2", exact), ("M9", exact), ("M12", optimum), ("M21", fresh)):
        result = CLAIMS[id].check(study)
        assert result.verdict == Verdict.OUTSIDE, id
        assert result.violated == "needs label noise; here eta = 0"
    assert CLAIMS["M1"].check(exact).verdict == Verdict.HOLDS
    assert torch.isnan(exact["mixing_noisy"]).all()


SMALL = SignalNoiseLaw(10, 500, 5.0)
test_bad_studies = refusing(
    (margin_study, (SMALL,), {"law": "paper", "draws": 1}),
    (optimum_study, (SMALL,), {"radius": 0.0, "draws": 1, "search_samples": 5, "search_draws": 0}),
    (fresh_study, (SMALL,), {"draws": 1, "few_samples": 5, "few_draws": 0}),
    (lambda: optimum_study(replace(SMALL, tokens=3)), "law must be a SignalNoiseLaw with two tokens"),
    (lambda: fresh_study(replace(SMALL, d=15)), "d must be at least 2 n"),
)
