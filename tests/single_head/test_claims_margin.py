"""The max-margin claims: what lies outside their regime, and studies that are refused."""

from dataclasses import replace

import torch

from attnbook.single_head.max_margin.claims import CLAIMS
from attnbook.single_head.max_margin.fresh_study import fresh_study
from attnbook.single_head.max_margin.optimum_study import optimum_study
from attnbook.single_head.max_margin.study import margin_study
from attnlib.single_head.law import SignalNoiseLaw
from bookkit.claims import Verdict
from tests.bad_input import refusing


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
