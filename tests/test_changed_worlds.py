"""A control's world: a changed copy of a study, through attributes, keys and places; the study itself stays."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from bookkit.claims import ClaimSet
from bookkit.rules import exactly
from bookkit.worlds import changed, exchange, instead, times, together


@dataclass(frozen=True)
class Study:
    svm: float
    rows: dict
    moves: tuple

    @property
    def twice(self):
        return 2 * self.svm


def study():
    return Study(3.0, {1000: SimpleNamespace(error=5.0, heads=[7.0, 8.0]), "first pass": {"p": 11.0}}, (13.0, 17.0))


def seen(it):
    return (it.svm, it.twice, it.rows[1000].error, *it.rows[1000].heads, it.rows["first pass"]["p"], *it.moves)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (exchange("svm", "rows.1000.error"), (5, 10, 3, 7, 8, 11, 13, 17)),
        (exchange("rows.1000.heads.0", "rows.first pass.p"), (3, 6, 5, 11, 8, 7, 13, 17)),
        (exchange("moves.0", "moves.1"), (3, 6, 5, 7, 8, 11, 17, 13)),
        (instead("moves.1", "svm"), (3, 6, 5, 7, 8, 11, 13, 3)),
        (times(1.5, "svm", "rows.1000.heads.1"), (4.5, 9, 5, 7, 12, 11, 13, 17)),
        (changed(lambda p: p - 1, "rows.first pass.p"), (3, 6, 5, 7, 8, 10, 13, 17)),
        (together(times(2, "svm"), instead("moves.1", "svm")), (6, 12, 5, 7, 8, 11, 13, 6)),
    ],
)
def test_a_world_differs_in_what_is_named_and_the_study_stays(change, expected):
    own = study()
    assert seen(change(own)) == expected
    assert seen(own) == seen(study())


@pytest.mark.parametrize(
    "change", [times(2, "svn"), times(2, "rows.100.error"), exchange("svm", "moves.2"), times(2, "rows.1000.eror")]
)
def test_a_name_that_leads_nowhere_is_an_error(change):
    with pytest.raises((AttributeError, StopIteration)):
        change(study())


def test_a_control_is_the_judge_in_a_wrong_world_and_a_wrong_number_is_handed_over():
    claims = ClaimSet("tests")

    @claims.claim("A1", wrong=(exchange("one", "two"), times(2, "one")))
    def _(study):
        """one is three
        $1 = 3$
        wrong: one and two exchanged; one doubled"""
        return exactly(torch.tensor([study.one]), 3.0)

    @claims.claim("A2", wrong=(2.0, exchange("one", "two")))
    def _(study, constant):
        """one is three
        $1 = 3$
        wrong: six; one and two exchanged"""
        return exactly(torch.tensor([study.one]), 3.0 * constant)

    for found in claims.check(SimpleNamespace(one=3.0, two=4.0)):
        assert (found.evidence.holds, [control.holds for control in found.controls]) == (True, [False, False])
    assert claims["A2"].seen(SimpleNamespace(one=6.0, two=3.0), 2.0).holds
    assert claims["A2"].seen(SimpleNamespace(one=6.0, two=3.0), claims["A2"].wrongs[1]).holds
