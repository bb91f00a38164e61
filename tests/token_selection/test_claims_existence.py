"""Claims TS51-TS58: silence where the window is closed, and worlds in which the controls are true."""

from dataclasses import replace

import pytest
import torch

from attnbook.token_selection.existence.claims import CLAIMS
from attnbook.token_selection.existence.study import existence_study
from attnbook.token_selection.theory import existence_window
from attnlib.token_selection.law import TokenLaw
from bookkit.claims import Verdict


@pytest.fixture(scope="module")
def small():
    law = TokenLaw(40, 60, 5, 5.0, label_noise=0.2)
    return existence_study(law, (0.1, 1.0), step_size=0.1, steps=20, runs=4, count=400)


def test_a_closed_window_is_outside_the_regime(small):
    verdicts = {result.claim.id: result for result in CLAIMS.check(small)}
    assert verdicts["TS54"].verdict == verdicts["TS55"].verdict == Verdict.OUTSIDE
    assert verdicts["TS54"].violated.startswith("needs upper >= 4 lower; here the window is [")
    assert verdicts["TS53"].violated == "needs the author's sizes; here others"


def ladder(one, train, fresh):
    """A ladder with these accuracies in every training set."""
    rows = {"train": torch.tensor([train] * 4).double(), "fresh": torch.tensor([fresh] * 4).double()}
    return replace(one, **{f"{name}_{kind}": rows[name] for name in rows for kind in ("argmax", "softmax")})


def descent(study, strength, train, fresh):
    """Where gradient descent ends: strength in units of the window's lower end."""
    end = torch.ones(1, 4, dtype=torch.float64)
    run = replace(
        study.descent,
        strength=strength * existence_window(OPEN)[0] * end,
        train_accuracy=train * end,
        fresh_softmax=fresh * end,
    )
    return replace(study, descent=run, law=OPEN)


OPEN = TokenLaw(100, 10_000, 8, 20.0)
PANELS = (0.8, 1.0, 1.0), (1.0, 1.0, 0.62)


def rolled(study, by):
    return replace(study, law=OPEN, authors=ladder(study.authors, *(row[-by:] + row[:-by] for row in PANELS)))


def outside(study, train, fresh):
    return replace(study, law=OPEN, middle=ladder(study.middle, train, fresh))


# A world, and whether the claim and each of its controls hold in it.
WORLDS = [
    ("TS53", lambda s: rolled(s, 0), [True, False, False]), ("TS53", lambda s: rolled(s, 2), [False, True, False]),
    ("TS53", lambda s: rolled(s, 1), [False, False, True]),
    ("TS54", lambda s: outside(s, (1.0, 0.9, 0.9), (1.0, 0.9, 0.9)), [True, False, False]),
    ("TS54", lambda s: outside(s, (0.9, 1.0, 0.9), (0.9, 1.0, 0.9)), [False, True, False]),
    ("TS54", lambda s: outside(s, (1.0, 1.0, 1.0), (0.9, 0.9, 1.0)), [False, False, True]),
    ("TS55", lambda s: descent(outside(s, (1.0, 1.0, 0.8), (1.0, 0.6, 1.0)), 1.4, 1.0, 1.0), [True, False, False]),
    ("TS55", lambda s: descent(outside(s, (1.0, 1.0, 0.8), (1.0, 0.6, 1.0)), 5.0, 1.0, 1.0), [False, True, False]),
    ("TS55", lambda s: descent(outside(s, (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)), 1.4, 0.9, 0.9), [False, False, True]),
]  # fmt: skip


@pytest.mark.parametrize(("id", "world", "holds"), WORLDS)
def test_in_each_world_the_claim_or_the_control_that_is_true_of_it_holds(small, id, world, holds):
    check = CLAIMS[id].check(world(small))
    assert [check.evidence.holds, *(control.holds for control in check.controls)] == holds
