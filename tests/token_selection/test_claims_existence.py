"""Claims TS51-TS58: verdicts as expected on fewer training sets, at another seed than the page's; negative controls, silence elsewhere."""

import numpy as np
import pytest

from attnbook.token_selection.existence.claims import CLAIMS
from attnbook.token_selection.existence.study import existence_study
from attnlib.token_selection.law import TokenLaw
from bookkit.claims import Source, Verdict


@pytest.fixture(scope="module")
def study():
    law = TokenLaw(100, 10_000, 8, 20.0, weak_signal=0.2)
    # The page's law and its time of descent, in a quarter of the steps; few training sets and few strengths.
    return existence_study(law, np.geomspace(0.008, 1, 9), step_size=2e-2, steps=100, runs=8, seed=3, count=2000)


@pytest.mark.parametrize("id", CLAIMS)
def test_claims_at_another_seed(study, id):
    result = CLAIMS[id].check(study)
    assert result.as_expected, (result.verdict, result.evidence)
    assert result.has_power, result.control


def test_ids_belong_to_the_page():
    assert set(CLAIMS) == {f"TS{number}" for number in range(51, 59)}


def test_the_first_versions_theorem_is_second_hand_and_nothing_is_called_the_papers():
    assert {id for id, claim in CLAIMS.items() if claim.source == Source.PAPER_SECOND_HAND} == {"TS54"}
    assert not any(claim.source == Source.PAPER for claim in CLAIMS.values())


def test_a_closed_window_is_outside_the_regime():
    small = existence_study(
        TokenLaw(40, 60, 5, 5.0, label_noise=0.2), (0.1, 1.0), step_size=0.1, steps=20, runs=2, count=400
    )
    verdicts = {result.claim.id: result for result in CLAIMS.check(small)}
    assert verdicts["TS54"].verdict == verdicts["TS55"].verdict == Verdict.OUTSIDE
    assert verdicts["TS54"].violated.startswith("needs upper >= 4 lower; here the window is [")
    assert verdicts["TS53"].violated == "needs the author's sizes; here others"
