"""A claim is an object: a statement, where it comes from, when it should hold, and a judge that measures it.

    claim  --check(study)-->  Check: predicted, measured, verdict, and the verdict of its negative control

The judge is a function of a study and returns Evidence. A *negative control* is the same judge in a wrong world: `wrong` is a change of
the study (`bookkit.worlds`: two measurements exchanged, a prediction 1.2 times as large). Where only the formula's own constant is wrong,
`wrong` may be that number: the judge then takes a second argument, `constant`, which multiplies the formula's own; 1 is the claim. Where
a claim has several parts, each needs a control that refuses it: `wrong=(1.2, 0.8)` are two. A check that cannot tell them apart has no
power, and says so. The judge applies one of the rules of `bookkit.rules`, which say how often chance alone would overturn a verdict.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bookkit.results import CLAIMS_TYPE, plain, publish
from bookkit.rules import Evidence, NothingToMeasure
from bookkit.sharpness import Mean, NoNumber, Part
from bookkit.verdicts import by_number, html_table, text_table
from bookkit.worlds import Change

OPEN_CLAIMS = 12  # on one page; a reader compares no more
Judge = Callable[..., Evidence]  # of a study, and of a constant where a control is one
Wrong = float | Change


class Verdict(StrEnum):
    HOLDS = "holds"
    UNDECIDED = "not contradicted"  # accepted, but the draws do not exclude that half of what is claimed is true
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
    controls: tuple[Evidence, ...]  # one for each of the claim's `wrong` values
    violated: str  # the regime's condition that is not met, in numbers; empty inside the regime

    @property
    def verdict(self) -> Verdict:
        if self.violated:
            return Verdict.OUTSIDE
        if not self.evidence.holds:
            return Verdict.FAILS
        return Verdict.HOLDS if all(part.decided for part in self.evidence.parts) else Verdict.UNDECIDED

    @property
    def control(self) -> Evidence:
        """The first negative control; most claims have one."""
        return self.controls[0]

    @property
    def has_power(self) -> bool:
        """The negative controls came out the other way, and not for want of numbers."""
        told = (control.holds != self.evidence.holds and not control.mute for control in self.controls)
        return all(told) and not self.evidence.mute

    @property
    def told(self) -> list[bool]:
        """Of each part of the verdict, whether a negative control refuses it; empty where a control is judged by other rules."""
        count = len(self.evidence.parts)
        if any(len(control.parts) != count for control in self.controls):
            return []
        return [any(_refuses(control.parts[i]) for control in self.controls) for i in range(count)]

    @property
    def as_expected(self) -> bool:
        return self.verdict == self.claim.expected

    @property
    def impossible(self) -> bool:
        """Whether no data could make a negative control hold: it asks for a mean in [2.2, 2.1]."""
        return any(isinstance(part, Mean) and part.empty for control in self.controls for part in control.parts)

    def as_record(self) -> dict[str, Any]:
        c, e = self.claim, self.evidence
        lost = dict.fromkeys(
            part.words for part in e.parts if isinstance(part, NoNumber) and part.words not in e.measured
        )
        return {
            "id": c.id, "title": c.title, "statement": c.statement, "source": str(c.source), "part": c.part, "regime": c.regime,
            "predicted": e.predicted, "measured": "; ".join([*lost, e.measured]), "rule": e.rule,
            "draws": e.draws, "false_alarm": e.false_alarm,
            "verdict": str(self.verdict), "expected": str(c.expected), "violated": self.violated,
            "negative_control": {
                "wrong": c.wrong_text,
                "verdict": str(Verdict.HOLDS if any(control.holds for control in self.controls) else Verdict.FAILS),
                "told": self.told,
            }
            | ({"impossible": True} if self.impossible else {})
            | ({"no_number": True} if any(control.mute for control in self.controls) else {}),
            "function": f"{c.judge.__module__}.{c.judge.__qualname__}",
            "numbers": {name: plain(name, value) for name, value in e.numbers.items()},
            "parts": [part.as_record() for part in e.parts],
        } | ({"coarse": c.coarse} if c.coarse else {})  # fmt: skip


def _refuses(part: Part) -> bool:
    return not part.holds and not isinstance(part, NoNumber)


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
    part: str
    judge: Judge
    wrong: Wrong | tuple[Wrong, ...]  # several where no one control refuses every part
    wrong_text: str
    regime: str = ""
    violation: Callable[[Any], str] = lambda study: ""
    expected: Verdict = Verdict.HOLDS
    box: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    coarse: str | dict[str, str] = ""  # why the rule cannot see less, where it sees little; by the number of the part

    @property
    def wrongs(self) -> tuple[Wrong, ...]:
        """One for each negative control."""
        return self.wrong if isinstance(self.wrong, tuple) else (self.wrong,)

    def seen(self, study: Any, wrong: Wrong = 1.0) -> Evidence:
        """What the judge sees in the study, or with one of `wrongs`: in a changed study, or by a wrong constant."""
        if callable(wrong):
            study, wrong = wrong(study), 1.0
        return self.judge(study) if all(map(callable, self.wrongs)) else self.judge(study, wrong)

    def check(self, study: Any) -> Check:
        """Judge the claim and its negative controls on the same study."""
        try:
            controls = tuple(self.seen(study, wrong) for wrong in self.wrongs)
            return Check(self, self.seen(study), controls, self.violation(study))
        except NothingToMeasure as reason:
            nothing = Evidence(False, "n/a", "n/a", "not judged", 0)
            return Check(self, nothing, (nothing,), self.violation(study) or str(reason))


class ClaimSet(dict[str, Claim]):
    """The claims of one subject, by id, in the order in which they were written down; `source` is that of claims that name none."""

    def __init__(self, part: str, source: Source = Source.DERIVED) -> None:
        super().__init__()
        self.part, self.source = part, source

    def claim(
        self,
        id: str,
        words: str = "",
        *,
        wrong: Wrong | tuple[Wrong, ...],
        source: Source | None = None,
        regime: str = "",
        box: str = "",
        uses: str = "",
        **more: Any,
    ) -> Callable[[Judge], Judge]:
        r"""Decorator: the function below is the judge, and its docstring says the claim. Facts for programs stand in the decorator.

            @CLAIMS.claim("C1", wrong=0.4, box="claim-theory-c1", uses="R2")
            def noise_norms(study: TwoStepStudy, constant: float) -> Evidence:
                r'''the norms of the noise tokens concentrate
                $||\xi_i|^2/d - 1| \le 2\sqrt{L/d} + 2L/d + 2/d$ for all $i$, with probability at least $1-\delta$
                regime: $d \ge L$
                wrong: 0.4 times the bound
                coarse: five draws take two minutes'''
                return within(...)

        The first line is the title; what follows is the statement, up to the regime (where there is one) and what the negative control
        changes; `coarse` says why a rule cannot see less than it does (see `bookkit.sharpness.too_coarse`). A claim of several parts
        gives each its own reason: `coarse 2: ...`, `coarse 1, 3: ...`, in the order of `Evidence.parts`. `words` says the same for a
        judge that is made for several claims; `regime` one that several claims share. box, uses:
        names between spaces. more: `violation` and `expected`. Raises ValueError for an id in use, and for words that lack a line.
        """

        def register(judge: Judge) -> Judge:
            if id in self:
                raise ValueError(f"claim id must be new; got {id!r} twice: ids are permanent names in the ledger")
            said = _said(words or judge.__doc__ or "")
            if missing := [item for item in ("title", "statement", "wrong") if not said[item]]:
                wanted = "a title, a statement and a line 'wrong: ...'"
                dropped = "" if __debug__ else ": python -OO and PYTHONOPTIMIZE=2 drop docstrings"
                raise ValueError(f"docstring of the judge of {id} must hold {wanted}; got no {missing[0]}{dropped}")
            facts = (source or self.source, self.part, judge, wrong, said["wrong"], regime or said["regime"])
            links = {"box": tuple(box.split()), "uses": tuple(uses.split())}
            self[id] = Claim(id, said["title"], said["statement"], *facts, **links, coarse=_reasons(said), **more)
            return judge

        return register

    def check(self, study: Any, ids: str = "") -> list[Check]:
        """Judge every claim and its negative control on one study; of `ids`, names between spaces, those only.

        Raises KeyError for an id that is not in the set.
        """
        return [self[id].check(study) for id in ids.split() or self]


def _said(words: str) -> dict[str, str]:
    """The lines of a docstring by what they say; those that are wrapped are one."""
    title, _, rest = inspect.cleandoc(words).partition("\n")
    said, item = {"title": title, "statement": "", "regime": "", "wrong": "", "coarse": ""}, "statement"
    for line in map(str.strip, rest.splitlines()):
        if found := re.match(r"(regime|wrong|coarse(?: \d+(?:, \d+)*)?): ", line):
            item, line = found[1], line[found.end() :]
        said[item] = f"{said.get(item, '')} {line}".strip()
    return said


def _reasons(said: dict[str, str]) -> str | dict[str, str]:
    """Why a claim is coarse: words, or words by the number of its part."""
    by_part = {
        number: text
        for item, text in said.items()
        if item.startswith("coarse ")
        for number in item.removeprefix("coarse ").split(", ")
    }
    if by_part and said["coarse"]:
        raise ValueError(f"coarse must name its part in each line, or in none; got both: {said['coarse']!r}")
    return by_part or said["coarse"]


# --- on a page -------------------------------------------------------------------------------------------------------------


def verdict_table(results: Sequence[Check], further: Sequence[Check] = ()) -> None:
    """Show the closing table of a page, in the order of the ids, and leave the checks in the notebook for the ledger.

    A page shows at most twelve claims openly. The others stand in `further`: a folded list, "Further claims", at the table's end.
    Their records are stored as those of the others are.

        main = "T2 T4 M1 M3 M4"
        verdict_table(CLAIMS.check(study, main), further=CLAIMS.check(study, "M13 M14 M15"))

    Raises ValueError for no check, and for more than twelve in `results`.
    """
    if not 0 < len(results) <= OPEN_CLAIMS:
        raise ValueError(
            f"verdict_table needs 1 to {OPEN_CLAIMS} checks to show openly; got {len(results)}: put the rest into further=[...]"
        )
    shown, folded = (by_number([result.as_record() for result in part]) for part in (results, further))
    records = by_number([*shown, *folded])
    publish(CLAIMS_TYPE, records, text_table(records), html_table(shown, folded))
