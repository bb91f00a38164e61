"""Claims I21-I29: what breaks them, and where they are silent."""

import dataclasses

import pytest
import torch

from attnbook.in_context.training.claims import CLAIMS
from attnbook.in_context.training.study import TrainingStudy, Watched, training_study
from attnlib.in_context.experiment import Experiment
from bookkit.claims import Verdict

E = Experiment(steps=120, runs=3, records=20, seed=7)


@pytest.fixture(scope="module")
def study() -> TrainingStudy:
    return training_study(E)


def scaled(watched: Watched, mu: float) -> Watched:
    """The same runs with all mu multiplied."""
    history = watched.history
    value = history.circuits.output_value.clone()
    value[..., -1] *= mu
    circuits = dataclasses.replace(history.circuits, output_value=value)
    return dataclasses.replace(watched, history=dataclasses.replace(history, circuits=circuits))


def verdict(study: TrainingStudy, id: str, **changes) -> Verdict:
    return CLAIMS[id].check(dataclasses.replace(study, **changes)).verdict


@pytest.mark.weekly
def test_other_measurements_break_the_claims(study: TrainingStudy) -> None:
    one, two = study.full[1], study.full[2]
    assert verdict(study, "I22", full={1: one, 2: scaled(two, 1.03)}) == Verdict.FAILS
    assert verdict(study, "I29", decays=(study.decays[0], study.decays[2], study.decays[1])) == Verdict.FAILS
    swapped = dataclasses.replace(study.resumed, resumed=study.resumed.forgetful)
    assert verdict(study, "I26", resumed=swapped) == Verdict.FAILS


@pytest.mark.weekly
def test_silence_where_there_is_nothing_to_say(study: TrainingStudy) -> None:
    whole = dataclasses.replace(study.resumed, interrupted_at=0)
    assert verdict(study, "I26", resumed=whole) == Verdict.OUTSIDE
    history = study.full[2].history
    trapped = ~torch.tensor([True] * history.experiment.runs)
    value = history.circuits.output_value.clone()
    value[~trapped, -1, :, -1] = 1.0
    caught = dataclasses.replace(history, circuits=dataclasses.replace(history.circuits, output_value=value))
    full = {1: study.full[1], 2: dataclasses.replace(study.full[2], history=caught)}
    result = CLAIMS["I22"].check(dataclasses.replace(study, full=full))
    assert result.verdict == Verdict.OUTSIDE
    assert "two runs or more whose heads cancel" in result.violated
