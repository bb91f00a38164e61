"""Claims TS11-TS18: verdicts as expected at another seed than the page's, and power twins that come out the other way."""

import pytest

from attnlib.claims import Verdict
from attnlib.token_selection.claims_setting import CLAIMS
from attnlib.token_selection.law import TokenLaw
from attnlib.token_selection.setting_study import setting_study


@pytest.fixture(scope="module")
def study():
    return setting_study(TokenLaw(20, 2000, 8, 20.0), 5e-3, steps=200, seed=4)


@pytest.mark.parametrize("id", CLAIMS)
def test_claims_at_the_page_size_at_another_seed(study, id):
    result = CLAIMS[id].check(study)
    assert result.as_expected, (result.verdict, result.evidence)
    assert result.has_power, result.twin


def test_ids_belong_to_the_page():
    assert set(CLAIMS) == {f"TS{number}" for number in range(11, 19)}


def test_the_floor_leaves_its_regime_at_a_small_signal(study):
    small = setting_study(TokenLaw(4, 100, 5, 2.0, label_noise=0.5), 0.01, dense_d=20, steps=5, runs=1, draws=200)
    result = CLAIMS["TS16"].check(small)
    assert result.verdict == Verdict.OUTSIDE
    assert result.violated == "needs head_scale 1 and signal_norm >= 5 noise_std; here 1 and 2"
    assert CLAIMS["TS16"].check(study).violated == ""


def test_uniform_attention_with_more_helpful_tokens():
    helped = setting_study(
        TokenLaw(4, 100, 6, 5.0, weak_signal=0.5, label_noise=0.5, same_class_tokens=3),
        0.01,
        dense_d=20,
        steps=5,
        runs=1,
        draws=200,
    )
    result = CLAIMS["TS15"].check(helped)
    assert result.verdict == Verdict.HOLDS
    assert result.has_power
