"""A claim is an object: a statement, where it comes from, when it should hold, and a judge that measures it.

    claim  --check(study)-->  Check: predicted, measured, verdict, and the verdict of its power twin

The judge is a function (study, constant) -> Evidence in which `constant` multiplies the formula's own constant: 1 is the claim,
the claim's `wrong` value is its *power twin*. A check that cannot tell the two apart has no power, and says so. The judge applies one of
the rules of `bookkit.rules`, which say how often chance alone would overturn a verdict.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bookkit.results import plain, publish, read
from bookkit.rules import Evidence, NothingToMeasure

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
    DERIVED = "derived"
    MEASURED = "measured"
    CONJECTURE = "conjecture"


@dataclass(frozen=True)
class Check:
    """A claim and what became of it. `as_record()` is what pages store and the ledger shows."""

    claim: Claim
    evidence: Evidence
    twin: Evidence
    violated: str  # the regime's condition that is not met, in numbers; empty inside the regime

    @property
    def verdict(self) -> Verdict:
        if self.violated:
            return Verdict.OUTSIDE
        return Verdict.HOLDS if self.evidence.holds else Verdict.FAILS

    @property
    def has_power(self) -> bool:
        """The power twin came out the other way."""
        return self.twin.holds != self.evidence.holds

    @property
    def as_expected(self) -> bool:
        return self.verdict == self.claim.expected

    def as_record(self) -> dict[str, Any]:
        c, e = self.claim, self.evidence
        return {
            "id": c.id, "title": c.title, "statement": c.statement, "source": str(c.source), "wing": c.wing, "regime": c.regime,
            "predicted": e.predicted, "measured": e.measured, "rule": e.rule, "draws": e.draws, "false_alarm": e.false_alarm,
            "verdict": str(self.verdict), "expected": str(c.expected), "violated": self.violated,
            "power_twin": {"wrong": c.wrong_text, "verdict": str(Verdict.HOLDS if self.twin.holds else Verdict.FAILS)},
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
        """Judge the claim and its power twin on the same study."""
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
        """Judge every claim and its power twin on one study."""
        return [claim.check(study) for claim in self.values()]


# --- on a page -------------------------------------------------------------------------------------------------------------

_CLASS = {Verdict.HOLDS: "verdict-holds", Verdict.FAILS: "verdict-fails", Verdict.OUTSIDE: "verdict-outside"}


def _typeset(text: str) -> str:
    """HTML of a plain-text figure: +- and inequalities as the signs people read."""
    for plain_sign, sign in (("+-", "±"), ("<=", "≤"), (">=", "≥")):
        text = text.replace(plain_sign, sign)
    return html.escape(text)


def verdict_table(results: Sequence[Check]) -> None:
    """Show the closing table of a page and leave the checks in the notebook for the ledger."""
    if not results:
        raise ValueError("verdict_table needs at least one check; got none")
    lines, rows, labels = [], [], ("predicted", "measured")
    width = max(5, 1 + max(len(result.claim.id) for result in results))
    for result in results:
        record = result.as_record()
        note = "" if result.as_expected else " (otherwise at the book's defaults)"
        known = " (as expected)" if result.as_expected and result.verdict is not Verdict.HOLDS else ""
        power = "tells it apart" if result.has_power else "not told apart here"
        verdict = f"{record['verdict']}{known}{note}"
        lines.append(
            f"{record['id']:<{width}}{verdict:<33} {record['title']}: predicted {record['predicted']}; measured {record['measured']}"
        )
        if result.violated:
            lines.append(f"{'':<{width}}regime: {result.violated}")
        cells = (record["predicted"], record["measured"] + (f" [{result.violated}]" if result.violated else ""))
        rows.append(
            f"<tr><th scope='row'>{record['id']}</th><td>{html.escape(record['title'])}</td>"
            + "".join(
                f"<td data-label='{name}'>{_typeset(cell)}</td>" for name, cell in zip(labels, cells, strict=True)
            )
            + f"<td><span class='verdict {_CLASS[result.verdict]}'>{html.escape(record['verdict'])}</span>{html.escape(known + note)}</td>"
            + f"<td data-label='power twin'>{html.escape(record['power_twin']['wrong'])}: {power}</td></tr>"
        )
    titles = ("claim", "what it says", "predicted", "measured", "verdict", "power twin")
    head = "<thead><tr>" + "".join(f"<th scope='col'>{title}</th>" for title in titles) + "</tr></thead>"
    table = f"<table class='verdict-table'>{head}<tbody>{''.join(rows)}</tbody></table>"
    publish(CLAIMS_TYPE, [result.as_record() for result in results], "\n".join(lines), table)


def read_checks(notebook: Any) -> list[dict[str, Any]]:
    """The check records of an executed notebook, in order."""
    return [record for payload in read(notebook, CLAIMS_TYPE) for record in payload]
