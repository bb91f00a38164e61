"""Claims I61-I69: what breaks them, and the world in which a negative control holds."""

import dataclasses

import pytest
import torch

from attnbook.in_context.heads_study import HeadsStudy, heads_study
from attnbook.in_context.how_many_heads.claims import CLAIMS
from attnlib.in_context.experiment import Experiment
from bookkit.claims import Verdict


@pytest.fixture(scope="module")
def study() -> HeadsStudy:
    return heads_study(Experiment(steps=20, runs=5, records=5, seed=3, first_run=1000))


def verdict(study: HeadsStudy, id: str, **changes) -> Verdict:
    return CLAIMS[id].check(dataclasses.replace(study, **changes)).verdict


def with_ends(study: HeadsStudy, heads: int, **changes) -> dict:
    return study.ends | {heads: dataclasses.replace(study.ends[heads], **changes)}


@pytest.mark.weekly
def test_other_measurements_break_the_claims(study: HeadsStudy) -> None:
    one, eight = study.ends[1], study.ends[8]
    assert verdict(study, "I61", ends=with_ends(study, 1, risk=1.03 * one.risk)) == Verdict.FAILS
    assert verdict(study, "I62", ends=with_ends(study, 8, risk=1.03 * eight.risk)) == Verdict.FAILS
    two_heads = torch.cat([eight.mu[:, :2], 0 * eight.mu[:, 2:]], 1)
    ends = with_ends(study, 8, mu=two_heads) | {4: dataclasses.replace(study.ends[4], mu=two_heads[:, :4])}
    assert verdict(study, "I67", ends=ends) == Verdict.HOLDS


@pytest.mark.weekly
def test_silence_without_a_run_that_cancels(study: HeadsStudy) -> None:
    none = with_ends(study, 2, kept=torch.zeros(len(study.ends[2].kept), dtype=torch.bool))
    assert verdict(study, "I62", ends=none) == Verdict.OUTSIDE
