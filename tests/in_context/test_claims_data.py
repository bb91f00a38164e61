"""Claims I12, I15 and I17 say nothing where there is nothing to say."""

import pytest

from attnbook.in_context.data_and_model.claims import CLAIMS
from attnbook.in_context.data_and_model.study import data_study
from attnlib.in_context.experiment import Experiment
from bookkit.claims import Verdict


@pytest.mark.parametrize(
    ("id", "change", "reason"),
    [
        ("I12", {"optimiser": "AdamW", "weight_decay": None}, "needs weight_decay 0; here 0.01"),
        ("I15", {"d": 1, "length": 6}, "needs d > 1"),  # one dimension has no dictionary
        ("I17", {"length": 1}, "needs length > 1"),  # one example has no centred step
    ],
)
def test_outside_the_regime(id: str, change: dict, reason: str) -> None:
    experiment = Experiment(steps=5, records=2, runs=2, shared_data=True, seed=4, **change)
    result = CLAIMS[id].check(data_study(experiment, count=10, redraws=10))
    assert result.verdict == Verdict.OUTSIDE
    assert reason in result.violated
