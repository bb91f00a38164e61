"""Claims TS51-TS58: sources, and silence where the window is closed."""

from attnbook.token_selection.existence.claims import CLAIMS
from attnbook.token_selection.existence.study import existence_study
from attnlib.token_selection.law import TokenLaw
from bookkit.claims import Verdict


def test_a_closed_window_is_outside_the_regime():
    small = existence_study(
        TokenLaw(40, 60, 5, 5.0, label_noise=0.2), (0.1, 1.0), step_size=0.1, steps=20, runs=2, count=400
    )
    verdicts = {result.claim.id: result for result in CLAIMS.check(small)}
    assert verdicts["TS54"].verdict == verdicts["TS55"].verdict == Verdict.OUTSIDE
    assert verdicts["TS54"].violated.startswith("needs upper >= 4 lower; here the window is [")
    assert verdicts["TS53"].violated == "needs the author's sizes; here others"
