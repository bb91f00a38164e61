"""Claims TS11-TS18: regimes, and a law with more helpful tokens."""

from dataclasses import replace

import pytest

from attnbook.token_selection.setting.claims import CLAIMS
from attnbook.token_selection.setting.study import setting_study, uniform_accuracy_measured
from attnlib.token_selection.law import TokenLaw
from bookkit.claims import Verdict


@pytest.fixture(scope="module")
def study():
    return setting_study(TokenLaw(20, 2000, 8, 20.0), 5e-3, dense_d=50, steps=60, runs=1, draws=200, seed=4)


def test_the_floor_leaves_its_regime_at_a_small_signal(study):
    result = CLAIMS["TS16"].check(replace(study, law=TokenLaw(4, 100, 5, 2.0, label_noise=0.5)))
    assert result.verdict == Verdict.OUTSIDE
    assert result.violated == "needs head_scale 1 and signal_norm >= 5 noise_std; here 1 and 2"
    assert CLAIMS["TS16"].check(study).violated == ""


def test_where_the_control_is_true_it_holds_and_the_claim_fails(study):
    sampling, runs = study.sampling, study.long_runs
    bigger = replace(sampling, drawn=sampling.drawn_wrong, drawn_wrong=sampling.drawn)
    exchanged = {"stable": runs["naive"], "naive": runs["stable"]}
    for id, world in (("TS14", replace(study, sampling=bigger)), ("TS18", replace(study, long_runs=exchanged))):
        check = CLAIMS[id].check(world)
        assert (check.evidence.holds, check.control.holds) == (False, True), id


def test_uniform_attention_with_more_helpful_tokens(study):
    law = TokenLaw(4, 100, 6, 5.0, weak_signal=0.5, label_noise=0.5, same_class_tokens=3)
    measured = uniform_accuracy_measured(law, study.signal_norms.tolist(), 20_000, 5, 0)
    result = CLAIMS["TS15"].check(replace(study, law=law, uniform_accuracy=measured))
    assert result.verdict == Verdict.HOLDS
    assert result.has_power
