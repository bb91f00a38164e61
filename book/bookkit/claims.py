"""A claim is an object: a statement, where it comes from, when it should hold, and a judge that measures it.

    claim  --check(study)-->  Check: predicted, measured, verdict, and the verdict of its negative control

The judge is a function (study, constant) -> Evidence in which `constant` multiplies the formula's own constant: 1 is the claim,
the claim's `wrong` value is its *negative control*. A check that cannot tell the two apart has no power, and says so. The judge applies
one of the rules of `bookkit.rules`, which say how often chance alone would overturn a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bookkit.results import plain, publish, read
from bookkit.rules import Evidence, NothingToMeasure
from bookkit.verdicts import by_number, html_table, text_table

__all__ = [
    "CLAIMS_TYPE",
    "Check",
    "Claim",
    "ClaimSet",
    "Source",
    "Verdict",
    "read_checks",
    "verdict_table",
]

CLAIMS_TYPE = "application/vnd.attnlib.claims+json"


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    OUTSIDE = "outside its regime"


class Source(StrEnum):
    PAPER = "paper"
    PAPER_SECOND_HAND = "paper, second-hand"
    CODE = "authors' code"
    CERTIFIED = "certified"
    DERIVED = "derived"
    MEASURED = "measured"
    CONJECTURE = "conjecture"


@dataclass(frozen=True)
class Check:
    """A claim and what became of it. `as_record()` is what pages store and the ledger shows."""

    claim: Claim
    evidence: Evidence
    control: Evidence
    violated: str  # the regime's condition that is not met, in numbers; empty inside the regime

    @property
    def verdict(self) -> Verdict:
        if self.violated:
            return Verdict.OUTSIDE
        return Verdict.HOLDS if self.evidence.holds else Verdict.FAILS

    @property
    def has_power(self) -> bool:
        """The negative control came out the other way."""
        return self.control.holds != self.evidence.holds

    @property
    def as_expected(self) -> bool:
        return self.verdict == self.claim.expected

    def as_record(self) -> dict[str, Any]:
        c, e = self.claim, self.evidence
        return {
            "id": c.id, "title": c.title, "statement": c.statement, "source": str(c.source), "wing": c.wing, "regime": c.regime,
            "predicted": e.predicted, "measured": e.measured, "rule": e.rule, "draws": e.draws, "false_alarm": e.false_alarm,
            "verdict": str(self.verdict), "expected": str(c.expected), "violated": self.violated,
            "negative_control": {"wrong": c.wrong_text, "verdict": str(Verdict.HOLDS if self.control.holds else Verdict.FAILS)},
            "function": f"{c.judge.__module__}.{c.judge.__qualname__}",
            "numbers": {name: plain(name, value) for name, value in e.numbers.items()},
        }  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """A checkable statement.

    `violation(study)` returns the regime's broken condition in numbers, or "". `expected` is the verdict at the defaults of
    the page that checks it: a claim known to be false there is expected to fail, and a book in which it holds is wrong.
    `box` names the labels of the theory's boxes that it checks, `uses` the ids of other claims without which it would say nothing.
    """

    id: str
    title: str
    statement: str  # Markdown with $LaTeX$
    source: Source
    wing: str
    judge: Callable[[Any, float], Evidence]
    wrong: float
    wrong_text: str
    regime: str = ""
    violation: Callable[[Any], str] = lambda study: ""
    expected: Verdict = Verdict.HOLDS
    box: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()

    def check(self, study: Any) -> Check:
        """Judge the claim and its negative control on the same study."""
        try:
            return Check(self, self.judge(study, 1.0), self.judge(study, self.wrong), self.violation(study))
        except NothingToMeasure as reason:
            nothing = Evidence(False, "n/a", "n/a", "not judged", 0)
            return Check(self, nothing, nothing, self.violation(study) or str(reason))


class ClaimSet(dict[str, Claim]):
    """The claims of one subject, by id, in the order in which they were written down."""

    def __init__(self, wing: str) -> None:
        super().__init__()
        self.wing = wing

    def claim(self, id: str, title: str, statement: str, *, source: Source = Source.DERIVED, **kwargs: Any):
        """Decorator: the function below is the judge. Keyword arguments are `Claim`'s. Raises ValueError for an id in use."""

        def register(judge: Callable[[Any, float], Evidence]) -> Callable[[Any, float], Evidence]:
            if id in self:
                raise ValueError(f"claim id must be new; got {id!r} twice: ids are permanent names in the ledger")
            self[id] = Claim(id, title, statement, source, self.wing, judge, **kwargs)
            return judge

        return register

    def check(self, study: Any) -> list[Check]:
        """Judge every claim and its negative control on one study."""
        return [claim.check(study) for claim in self.values()]


# --- on a page -------------------------------------------------------------------------------------------------------------


def verdict_table(results: Sequence[Check]) -> None:
    """Show the closing table of a page, in the order of the ids, and leave the checks in the notebook for the ledger."""
    if not results:
        raise ValueError("verdict_table needs at least one check; got none")
    records = by_number([result.as_record() for result in results])
    publish(CLAIMS_TYPE, records, text_table(records), html_table(records))


def read_checks(notebook: Any) -> list[dict[str, Any]]:
    """The check records of an executed notebook, in order."""
    return [record for payload in read(notebook, CLAIMS_TYPE) for record in payload]
