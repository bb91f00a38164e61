"""The closing table of a page: one line for each claim, which opens. Made of records alone (`Check.as_record`).

    <div class='verdict-table'>
    <div class='verdict-row'><b>C8</b><details>
    <summary><span>title</span> <span>measured, in short</span> <span><span class='verdict'>holds</span></span></summary>
    <dl> prediction, rule, measured in full, source, negative control </dl></details></div> ...
    <details class='verdict-further'><summary><span>Further claims (5)</span></summary> rows like those above </details></div>

The id stands beside what opens, for in the book it is a link, and no link may stand inside a `<summary>`. `<details>` opens without
scripts, in the book as in Colab. The book adds what a notebook cannot know: links to the ledger and to the boxes of the theory
(`bookkit.ledger.page_claims`).
"""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bookkit.ledger.words import control_words, rule_words, sharpness_words, signs, told_apart, verdict_words

BADGES = {
    "holds": "verdict-holds",
    "not contradicted": "verdict-undecided",
    "fails": "verdict-fails",
    "outside its regime": "verdict-outside",
}
ELSEWHERE = "otherwise at the book's defaults"  # a reader who changed parameters may well see another verdict
NOT_TOLD = "its negative control is not told apart here"
ROW = "<div class='verdict-row' style='display: flex; gap: 0.6em'>"  # in Colab there is no style sheet
HINT = "Each line opens: prediction, rule, measurement, source, negative control."


def by_number(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The records in the order of their ids, as people count: Q2, Q2b, Q10."""
    return sorted(records, key=lambda record: as_counted(record["id"]))


def as_counted(claim_id: str) -> list[tuple[int, str]]:
    """The id as a key for sorting."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|\D+", claim_id)]


def shortened(measured: str) -> str:
    """The first two of the numbers that were measured; differences and counts of draws are left to the whole.

    What is left out depends on the words alone, never on how many digits a number has: stored texts are compared.
    """
    parts = [p for p in measured.split("; ") if not p.startswith(("difference", "inside in"))] or [measured]
    first = re.split(r", (?![^\[(]*[\])])", parts[0])
    if len(first) > 3:
        return signs(", ".join(first[:2])) + ", …"
    return signs("; ".join(parts[:2])) + ("; …" if len(parts) > 2 else "")


def text_table(records: Sequence[Mapping[str, Any]]) -> str:
    """For terminals: a line for each claim, and one for a regime that is left."""
    width = max(5, 1 + max(len(record["id"]) for record in records))
    lines = []
    for record in records:
        note = "" if record["verdict"] == record["expected"] else f" ({ELSEWHERE})"
        said = f"{record['title']}: predicted {record['predicted']}; measured {record['measured']}"
        lines.append(f"{record['id']:<{width}}{_verdict(record) + note:<33} {said}")
        if sharp := sharpness_words(dict(record)):
            lines.append(f"{'':<{width}}holds {sharp}")
        if record["violated"]:
            lines.append(f"{'':<{width}}regime: {record['violated']}")
    return "\n".join(lines)


def html_table(records: Sequence[Mapping[str, Any]], further: Sequence[Mapping[str, Any]] = ()) -> str:
    """For browsers: a line for each claim that opens; those of `further` stand in a folded list at the end."""
    rows, folded = ("\n".join(map(_row, part)) for part in (records, further))
    if folded:
        summary = f"<summary><span>Further claims ({len(further)})</span></summary>"
        rows += f"\n<details class='verdict-further'>{summary}\n{folded}</details>"
    return f"<div class='verdict-table'><p>{HINT}</p>\n{rows}</div>"


def _verdict(record: Mapping[str, Any]) -> str:
    return verdict_words(dict(record)) if record["verdict"] == record["expected"] else record["verdict"]


def _row(record: Mapping[str, Any]) -> str:
    badge = f"<span class='verdict {BADGES[record['verdict']]}'>{html.escape(_verdict(record))}</span>"
    remarks = [ELSEWHERE] * (record["verdict"] != record["expected"]) + [NOT_TOLD] * (not told_apart(record))
    if sharp := sharpness_words(dict(record)):
        remarks.insert(0, sharp.partition("; ")[0])
    remark = f" <small>{html.escape('; '.join(remarks))}</small>" if remarks else ""
    summary = (
        f"<summary><span>{html.escape(record['title'])}</span> "
        f"<span class='verdict-measured'>{html.escape(shortened(record['measured']))}</span> <span>{badge}{remark}</span></summary>"
    )
    facts = {
        "Predicted": signs(record["predicted"]),
        "Measured": signs(record["measured"]),
        "Rule": rule_words(dict(record)),
        "Sharpness": sharpness_words(dict(record)),
        "Outside its regime": signs(record["violated"]),
        "Source": record["source"],
        "Negative control": control_words(dict(record)),
    }
    listed = "".join(f"<dt>{name}</dt><dd>{html.escape(said)}</dd>" for name, said in facts.items() if said)
    return f"{ROW}<b>{html.escape(record['id'])}</b><details>{summary}<dl>{listed}</dl></details></div>"
