"""The claims of one executed notebook on a terminal: ``python -m bookkit claims out.ipynb C8``."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bookkit.ledger.records import checks_of, counts_sentence, whole
from bookkit.ledger.words import rule_words, verdict_words
from bookkit.pages.catalogue import UserError
from bookkit.pages.rerun import read_notebook


def stored_claims(path: Path, ids: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The records of the claims in a notebook, all of them or those named, in the order asked for.

    Raises `UserError` for what is no notebook, holds no claims, or not the one named. Capitals do not matter.
    """
    records = checks_of(read_notebook(path))
    if not whole(records, path):
        raise UserError(f"{path} holds no checked claims: execute a page that checks some first")
    known = {record["id"].lower(): record for record in records}
    for name in ids:
        if name.lower() not in known:
            close = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean {known[close[0]]['id']}? " if close else ""
            there = ", ".join(record["id"] for record in records)
            raise UserError(f"{path} checks no claim {name!r}; {hint}it checks {there}")
    return [known[name.lower()] for name in ids] or records


def as_text(records: Sequence[dict[str, Any]]) -> str:
    """One block per claim, and a last line that counts them where there are several.

    C8  holds  margins after one step
        statement  mean margins are ...
        predicted  1.904; -0.6336
    """
    blocks = [_block(record) for record in records]
    if len(records) > 1:
        blocks.append(counts_sentence(list(records)))
    return "\n\n".join(blocks)


def _block(record: dict[str, Any]) -> str:
    control = record["negative_control"]
    facts = {
        "statement": record["statement"],
        "regime": record["regime"],
        "broken here": record["violated"],
        "predicted": record["predicted"],
        "measured": record["measured"],
        "rule": rule_words(record),
        "control": f"{control['wrong']}: {control['verdict']}",
        "function": record["function"],
    }
    said = [f"    {name:<12}{' '.join(text.split())}" for name, text in facts.items() if text]
    return "\n".join([f"{record['id']}  {verdict_words(record)}  {record['title']}", *said])
