"""A claim is an object: a statement, where it comes from, when it should hold, and a judge that measures it.

    claim  --check(study)-->  Check: predicted, measured, verdict, and the verdict of its power twin

The judge is a function (study, constant) -> Evidence in which `constant` multiplies the formula's own constant: 1 is the claim,
the claim's `wrong` value is its *power twin*. A check that cannot tell the two apart has no power, and says so.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch

from bookkit.results import plain, publish, read

__all__ = [
    "CLAIMS_TYPE",
    "Check",
    "Claim",
    "ClaimSet",
    "Evidence",
    "NothingToMeasure",
    "Source",
    "Verdict",
    "agrees",
    "binomial_tail",
    "both",
    "exactly",
    "read_checks",
    "verdict_table",
    "within",
]

CLAIMS_TYPE = "application/vnd.attnlib.claims+json"


class NothingToMeasure(Exception):
    """A judge's word that these draws cannot speak for or against the claim; the verdict is then *outside its regime*."""


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
class Evidence:
    """What a tolerance rule found: prediction and measurement in words, the rule, the number of draws, and the numbers."""

    holds: bool
    predicted: str
    measured: str
    rule: str
    draws: int
    numbers: dict[str, float] = field(default_factory=dict)


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
            "predicted": e.predicted, "measured": e.measured, "rule": e.rule, "draws": e.draws,
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


# --- tolerance rules -------------------------------------------------------------------------------------------------------


def exactly(
    measured: torch.Tensor, predicted: torch.Tensor | float, *, tolerance: float = 1e-10, draws: int | None = None
) -> Evidence:
    """Algebra: max |measured - predicted| <= tolerance x (largest |predicted|, or 1 where the prediction is zero)."""
    predicted = torch.as_tensor(predicted, dtype=measured.dtype).expand_as(measured)
    scale = predicted.abs().max().item() or 1.0
    deviation = (measured - predicted).abs().max().item() / scale
    # Rounding noise differs between machines: below the tolerance it is not printed.
    shown = f"equal to {tolerance:.0e}" if deviation <= tolerance else f"off by {deviation:.2g} relative"
    return Evidence(
        deviation <= tolerance,
        "equality",
        shown,
        f"algebra: relative deviation <= {tolerance:.0e}",
        draws or measured.shape[0],
    )


def within(
    measured: torch.Tensor,
    low: torch.Tensor | float | None = None,
    high: torch.Tensor | float | None = None,
    *,
    quantity: str = "",
    failure_probability: float = 0.0,
    strict: bool = False,
) -> Evidence:
    """Bounds: every value of a draw lies in [low, high] ((low, high) with `strict`), draw by draw.

    measured: (draws, ...), nan where there is nothing to say; bounds broadcast against it. With `failure_probability` delta > 0
    a draw may break the bound with that probability: the rule rejects when as many failures as seen have probability < 1/1000
    under Binomial(draws, delta).
    """
    values = measured.flatten(1) if measured.ndim > 1 else measured.unsqueeze(1)
    silent = values.isnan()
    if silent.all():
        raise NothingToMeasure("needs at least one sample to look at; these draws have none")
    inside, text = torch.ones_like(values, dtype=torch.bool), []
    numbers = {"min": values[~silent].min().item(), "max": values[~silent].max().item()}
    for name, bound, sign in (("low", low, 1), ("high", high, -1)):
        if bound is None:
            continue
        bound = torch.as_tensor(bound, dtype=values.dtype).expand_as(measured).reshape(values.shape)
        room = sign * (values - bound)
        inside &= (room > 0 if strict else room >= 0) | silent
        known = bound[~bound.isnan()]
        first, last = known.min().item(), known.max().item()
        numbers[name] = first if sign > 0 else last
        shown = f"{first:.4g}" if first == last else f"{first:.4g}..{last:.4g} (own bound per draw)"
        text.append(f"{'>' if sign > 0 else '<'}{'' if strict else '='} {shown}")
    draws = values.shape[0]
    failures = int((~inside.all(1)).sum())
    numbers["failures"] = failures
    accepted = failures == 0 or binomial_tail(draws, failure_probability, failures) >= 1e-3
    promise = f"with probability >= {1 - failure_probability:g}" if failure_probability else "in every draw"
    rule = f"bound per draw, {promise}" + ("; binomial test at 1/1000" if failure_probability else "")
    shown = f"[{numbers['min']:.4g}, {numbers['max']:.4g}]; inside in {draws - failures} of {draws} draws"
    predicted = (f"{quantity} " if quantity else "") + " and ".join(text)
    return Evidence(accepted, predicted, shown, rule, draws, numbers)


def agrees(
    measured: torch.Tensor,
    predicted: torch.Tensor | float,
    *,
    allowance: float = 0.0,
    allowance_text: str = "",
    multiple: float = 4.0,
) -> Evidence:
    """Statistics: |mean of (measured - predicted) over draws| <= multiple x its standard error + a stated allowance.

    measured: (draws,), nan where a draw has nothing to say. Differences are paired: predicted may differ from draw to draw.
    Raises NothingToMeasure with fewer than two draws.
    """
    predicted = torch.as_tensor(predicted, dtype=measured.dtype).expand_as(measured)
    keep = ~(measured.isnan() | predicted.isnan())
    measured, predicted = measured[keep], predicted[keep]
    draws = measured.shape[0]
    if draws < 2:
        raise NothingToMeasure(f"needs two draws or more for a standard error; here {draws} with something to measure")
    difference = measured - predicted
    error = difference.std().item() / math.sqrt(draws)
    gap = abs(difference.mean().item())
    rule = f"statistics: |mean difference| <= {multiple:g} s.e." + (
        f" + {allowance:.2g} ({allowance_text})" if allowance else ""
    )
    spread = measured.std().item() / math.sqrt(draws)
    numbers = {
        "predicted": predicted.mean().item(),
        "measured": measured.mean().item(),
        "standard_error": spread,
        "mean_difference": difference.mean().item(),
        "standard_error_of_difference": error,
    }
    holds = gap <= multiple * error + allowance
    shown = f"{numbers['measured']:.4g} +- {spread:.1g}; difference {numbers['mean_difference']:.1g} +- {error:.1g}"
    return Evidence(holds, f"{numbers['predicted']:.4g}", shown, rule, draws, numbers)


def both(*parts: Evidence) -> Evidence:
    """All parts must hold; their words are joined. For claims that speak of clean and of noisy samples."""
    return Evidence(
        all(part.holds for part in parts),
        "; ".join(dict.fromkeys(part.predicted for part in parts)),
        "; ".join(dict.fromkeys(part.measured for part in parts)),
        " and ".join(dict.fromkeys(part.rule for part in parts)),
        min(part.draws for part in parts),
        {f"{name}_{i}": value for i, part in enumerate(parts, 1) for name, value in part.numbers.items()},
    )


def binomial_tail(draws: int, probability: float, at_least: int) -> float:
    """P(Binomial(draws, probability) >= at_least)."""
    if at_least <= 0 or probability >= 1:
        return 1.0
    if probability <= 0:
        return 0.0
    log_choose = [
        math.lgamma(draws + 1) - math.lgamma(j + 1) - math.lgamma(draws - j + 1) for j in range(at_least, draws + 1)
    ]
    odds = math.log(probability), math.log1p(-probability)
    return math.fsum(
        math.exp(c + j * odds[0] + (draws - j) * odds[1])
        for c, j in zip(log_choose, range(at_least, draws + 1), strict=True)
    )


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
