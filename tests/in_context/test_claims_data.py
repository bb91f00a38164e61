"""Claims I11-I19 at small sizes, and where they are silent."""

from attnbook.in_context.data_and_model.claims import CLAIMS
from attnbook.in_context.data_and_model.study import data_study
from attnlib.in_context.experiment import Experiment
from bookkit.claims import Verdict

AUTHORS = Experiment(steps=40, records=2, runs=2, shared_data=True, seed=4)


def test_ids_belong_to_the_page():
    assert list(CLAIMS) == [f"I{number}" for number in range(11, 20)]


def test_one_head_and_other_sizes():
    small = Experiment(heads=1, d=3, length=9, noise_std=0.5, batch=25, steps=5, records=2, runs=1, optimiser="SGD")
    for result in CLAIMS.check(data_study(small, count=2000)):
        assert result.as_expected, (result.claim.id, result.evidence)
        assert result.has_power, (result.claim.id, result.control)


def test_weight_decay_moves_the_column():
    decayed = data_study(AUTHORS.replace(optimiser="AdamW", weight_decay=None, steps=5), count=10, redraws=10)
    result = CLAIMS["I12"].check(decayed)
    assert result.verdict == Verdict.OUTSIDE
    assert result.violated == "needs weight_decay 0; here 0.01"
    assert not result.evidence.holds


def test_one_dimension_has_no_dictionary():
    line = data_study(AUTHORS.replace(d=1, length=6, steps=1), count=10, redraws=10)
    assert CLAIMS["I15"].check(line).verdict == Verdict.OUTSIDE


def test_one_example_has_no_centred_step():
    single = data_study(AUTHORS.replace(length=1, steps=1), count=10, redraws=10)
    assert CLAIMS["I17"].check(single).verdict == Verdict.OUTSIDE
