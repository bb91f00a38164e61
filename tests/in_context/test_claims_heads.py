"""Claims I61-I69: what breaks them, and the world in which a negative control holds."""

import dataclasses

import numpy as np
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


def with_runs(study: HeadsStudy, heads: int, **changes) -> object:
    runs = dataclasses.replace(study.table.by_heads[heads], **changes)
    return dataclasses.replace(study.table, by_heads=study.table.by_heads | {heads: runs})


@pytest.mark.weekly
def test_other_measurements_break_the_claims(study: HeadsStudy) -> None:
    one, eight = study.ends[1], study.ends[8]
    assert verdict(study, "I61", ends=with_ends(study, 1, risk=1.03 * one.risk)) == Verdict.FAILS
    assert verdict(study, "I62", ends=with_ends(study, 8, risk=1.03 * eight.risk)) == Verdict.FAILS
    assert verdict(study, "I68", ends=with_ends(study, 8, merged_risk=1.01 * eight.plain_risk)) == Verdict.FAILS
    two_heads = torch.cat([eight.mu[:, :2], 0 * eight.mu[:, 2:]], 1)
    ends = with_ends(study, 8, mu=two_heads) | {4: dataclasses.replace(study.ends[4], mu=two_heads[:, :4])}
    assert verdict(study, "I67", ends=ends) == Verdict.HOLDS
    runs = study.table.by_heads[2]
    assert verdict(study, "I63", table=with_runs(study, 2, mu=np.abs(runs.mu))) == Verdict.FAILS
    assert verdict(study, "I64", table=with_runs(study, 2, mu=runs.mu[:, ::-1])) == Verdict.FAILS
    caught = np.abs(study.table.by_heads[3].mu[:1]), study.table.by_heads[3].mu[1:]
    assert verdict(study, "I66", table=with_runs(study, 3, mu=np.concatenate(caught))) == Verdict.FAILS
    long = dataclasses.replace(study.table.long, loss=0.98 * study.table.long.loss)
    assert verdict(study, "I65", table=dataclasses.replace(study.table, long=long)) == Verdict.FAILS
    free = dataclasses.replace(study.free, risk_three=study.free.risk_pair)
    assert verdict(study, "I69", free=free) == Verdict.FAILS


@pytest.mark.weekly
def test_silence_without_a_run_that_cancels(study: HeadsStudy) -> None:
    none = with_ends(study, 2, kept=torch.zeros(len(study.ends[2].kept), dtype=torch.bool))
    assert verdict(study, "I62", ends=none) == Verdict.OUTSIDE
