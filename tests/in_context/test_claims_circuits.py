"""Claims I31-I39: a changed circuit of a stored training is noticed; other settings are outside the regime."""

from dataclasses import replace

import pytest

from attnbook.in_context.circuits.claims import CLAIMS
from attnbook.in_context.circuits.study import circuit_study
from attnlib.in_context.circuits import Circuits
from attnlib.in_context.experiment import Experiment
from bookkit.claims import Verdict

AUTHORS = Experiment(steps=16_792, records=10, runs=8, seed=6)  # the end is a recorded step of the stored trainings


@pytest.fixture(scope="module")
def study():
    return circuit_study(AUTHORS.replace(steps=5, runs=2))  # the live training is another test's


def changed(study, heads, change):
    """The study with other circuits in the last record of one stored training."""
    history = study.stored[heads]
    key_query, output_value = history.circuits.key_query.clone(), history.circuits.output_value.clone()
    change(key_query[:, -1], output_value[:, -1])
    other = replace(history, circuits=Circuits(key_query, output_value))
    return replace(study, stored={**study.stored, heads: other})


@pytest.mark.parametrize(
    ("id", "change"),
    [
        ("I31", lambda M, V: M[0, :, 0, 1].add_(0.03)),  # one entry off the diagonal of one run
        ("I31", lambda M, V: M[0, 0, 2, 2].sub_(0.06)),  # one entry of the diagonal
        ("I32", lambda M, V: V[0, :, 2].add_(0.2)),
        ("I33", lambda M, V: V[0, :, -1].add_(0.5)),
        ("I34", lambda M, V: V[0].neg_()),
        ("I35", lambda M, V: M[:, 0].mul_(1.5)),  # one head of every run sharper
        ("I36", lambda M, V: M[0, :, 5, 0].add_(0.05)),
        ("I37", lambda M, V: M[..., 5].zero_()),
        ("I38", lambda M, V: M.mul_(1.2)),
    ],
)
def test_a_changed_circuit_is_noticed(study, id, change):
    result = CLAIMS[id].check(changed(study, 2, change))
    assert result.verdict == Verdict.FAILS


def test_other_settings_are_outside_the_regime_of_the_comparison(study):
    for other in (AUTHORS.replace(d=3, length=40, steps=5), AUTHORS.replace(learning_rate=0.01, steps=1000, runs=2)):
        live = circuit_study(other, stored=study.stored)
        assert CLAIMS["I39"].check(live).verdict == Verdict.OUTSIDE
    early = circuit_study(AUTHORS.replace(steps=5), stored=study.stored)
    assert len(early.live_omega()[0]) == 0  # no head carries weight yet
    assert CLAIMS["I39"].check(early).violated == "needs 1000 to 500001 steps; here 5"
