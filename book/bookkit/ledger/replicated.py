"""How often a verdict came out the same: what the ledger, the pages and the preface say of registration and replication.

{ledger-replication}`all`                    a sentence on all claims that were judged at fresh seeds
{ledger-replication}`single_head`            of a part, or of a page as in single_head/02_two_steps
{ledger-replication}`all claims`             a number alone; also seeds, unexpected, chance, level, rules
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

from bookkit.ledger.records import page_name, read_ledger, tables_of
from bookkit.ledger.words import spoken
from bookkit.pages import tolerances
from bookkit.pages.catalogue import UserError, find_root, one_line
from bookkit.parser import program
from bookkit.replication import counts
from bookkit.replication.registration import Registered, registered
from bookkit.widths import LEDGER

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Standing:
    """What is known of a claim beside its verdict. `counts` are those of the claim and of its page as they are now, or None."""

    registered: Registered | None
    counts: counts.Counts | None
    restated: str = ""  # what the claim said before, and why it says something else now
    stale: str = ""  # why what was seen at fresh seeds does not speak of the page as it is now

    @property
    def held(self) -> str:
        """ "20/20", for a row of the ledger; empty where the claim was not judged at fresh seeds."""
        return f"{self.counts.as_expected}/{self.counts.seeds}" if self.counts else ""

    @property
    def replicated_words(self) -> str:
        """ "verdict as expected at 20 of 20 fresh seeds, negative control told apart at 20; fraction 0.97 to 1"."""
        if (found := self.counts) is None:
            return f"stale, so nothing is counted: {self.stale}" if self.stale else ""
        words = f"verdict as expected at {found.as_expected} of {found.seeds} fresh seeds"
        words += f" (outside its regime at {found.outside})" if found.outside else ""
        words += f", negative control told apart at {found.control_told}"
        if found.low is None or found.high is None:
            return words
        return f"{words}; {spoken(found.number)} {found.low:.4g} to {found.high:.4g}"

    @property
    def registered_words(self) -> str:
        """ "2026-11-22", or "again on 2026-11-30, because ..."."""
        if (found := self.registered) is None:
            return ""
        return found.day if found.times == 1 else f"again on {found.day}, because {found.because}"

    def as_published(self) -> dict[str, Any]:
        """Two keys of `ledger.json`; null for what is not known."""
        said = {
            "registered": ("day", "times", "because"),
            "replication": ("seeds", "as_expected", "outside", "control_told"),
        }
        known = {"registered": self.registered, "replication": self.counts}
        return {
            key: known[key] and {name: getattr(known[key], name) for name in names} for key, names in said.items()
        } | ({"stale": self.stale} if self.stale else {})


def standings(root: Path | None = None) -> dict[str, Standing]:
    """By claim.

    Counts that are stale are left out, and why is said: the claim was registered anew since, so that they speak of another one or of seeds
    that somebody had looked at; or the page's own numbers, or the tables that it reads, are others now.
    """
    root = root or find_root()
    known, table, said = registered(root), counts.read(root), restated(root)
    records = {record["id"]: record for record in read_ledger(root)}
    found = {}
    for claim in {**known, **(table.claims if table else {}), **said}:
        each, fixed, record = (table.claims.get(claim) if table else None), known.get(claim), records.get(claim)
        if each and fixed and (each.fingerprint != fixed.fingerprint or each.first < fixed.unseen):
            found[claim] = Standing(fixed, None, said.get(claim, ""), "the claim was registered anew since")
            continue
        found[claim] = Standing(fixed, each, said.get(claim, ""))
        if each and record:
            path = root / f"{record['page']}.ipynb"
            if stale := each.stale(record, tables_of(path), tolerances.read(path)):
                found[claim] = replace(found[claim], counts=None, stale=stale)
    return found


def stale_words(known: Mapping[str, Standing]) -> str:
    """How many claims are stale, which, and what helps; empty for none."""
    if not (stale := [claim for claim, standing in known.items() if standing.stale]):
        return ""
    return (
        f"{len(stale)} claims were judged at fresh seeds before they or their pages changed, and show no count ({', '.join(stale[:8])}"
        f"{', ...' if len(stale) > 8 else ''}): {program()} replicate PAGE --seeds 20 --write"
    )


def ledger(source: Path) -> list[dict[str, Any]]:
    """The records of the stored pages under `source`; `pooled` beside what the page says: what the draws of all seeds say together."""
    known = standings()
    return [together(record, known.get(record["id"])) for record in read_ledger(source)]


def together(record: dict[str, Any], standing: Standing | None) -> dict[str, Any]:
    """One record, as `ledger` has it: nothing of the page's own is replaced."""
    found = standing.counts if standing else None
    if not found or not found.fresh or not found.verdict:
        return record
    parts = [part.as_record() for part in found.parts]
    return {**record, "pooled": {"verdict": found.verdict, "seeds": found.seeds, "parts": parts}}


def restated(root: Path) -> dict[str, str]:
    """By claim: what it said before it was changed, and the reason, as book/restated.json has them. Empty without that file.

    Raises `UserError` for a file that holds anything else.
    """
    path = root / "book" / "restated.json"
    if not path.is_file():
        return {}
    try:
        claims = json.loads(path.read_text(encoding="utf-8"))["claims"]
        return {claim: f"It {said['before'].rstrip('.')}. {said['because']}" for claim, said in claims.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        told = "what each claim said `before`, and `because` of what it says something else now: take it back from git"
        raise UserError(f"book/restated.json must hold {told} ({one_line(error)})") from None


def level_problem(records: Iterable[Mapping[str, Any]]) -> str:
    """What is wrong where the rules of all claims together may reject what is true more often than the ledger says."""
    total = sum(record.get("false_alarm", 0.0) for record in records)
    if total <= LEDGER * (1 + 1e-9):
        return ""
    return (
        f"the false alarms of all rules add up to {total:.3g}, more than the ledger's level {LEDGER:g}: "
        "fewer rules, or a smaller LEVEL in bookkit.rules"
    )


def sentence(records: Iterable[Mapping[str, Any]], known: Mapping[str, Standing]) -> str:
    """On the claims among `records` that were judged at fresh seeds; empty where none was."""
    found = _replicated(records, known)
    if not found:
        return ""
    total, seeds = counts.tally(found), _seeds(found)
    same = "all" if total.unexpected == 0 else f"{total.judged - total.unexpected} of"
    return (
        f"at {seeds} fresh seeds, {same} {total.judged} verdicts on {total.claims} claims came out as expected; "
        f"chance alone would change at most {total.expected:.2g} of them, on average"
    )


def _replicated(records: Iterable[Mapping[str, Any]], known: Mapping[str, Standing]) -> list[counts.Counts]:
    return [each for r in records if (standing := known.get(r["id"])) and (each := standing.counts)]


def _seeds(found: Iterable[counts.Counts]) -> str:
    """ "20", or "5 to 20" where pages were run at more or fewer; what chance has no part in is left out, if there is anything else."""
    many = sorted({each.seeds for each in found if each.fresh} or {each.seeds for each in found})
    return f"{many[0]} to {many[-1]}" if len(many) > 1 else str(many[0] if many else 0)


class ReplicationWords(SphinxRole):
    """Role: the sentence, or one of its numbers."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the words; a warning, and a question mark, for a place or a number that is unknown."""
        self.env.metadata[self.env.docname]["reads_ledger"] = True
        place, _, ask = self.text.strip().partition(" ")
        records = ledger(Path(self.env.srcdir))
        try:
            text = _answer([each for each in records if place in ("all", each["part"], page_name(each))], ask)
        except LookupError as error:
            logger.warning("ledger-replication %r: %s", self.text, error.args[0], location=self.get_location())
            text = "?"
        return [nodes.inline("", text, classes=["ledger-counts"])], []


def _answer(records: list[dict[str, Any]], ask: str) -> str:
    if not records:
        raise LookupError("no claim there; places: all, a part, a page as in single_head/02_two_steps")
    if ask == "level":
        return f"{LEDGER:g}"
    if ask == "rules":
        return f"{sum(record.get('false_alarm', 0.0) for record in records):.2g}"
    known = standings()
    if not ask:
        return sentence(records, known) or "not judged at fresh seeds yet"
    found = _replicated(records, known)
    total = counts.tally(found)
    numbers = {
        "claims": str(total.claims),
        "seeds": _seeds(found),
        "unexpected": str(total.unexpected),
        "chance": f"{total.expected:.2g}",
    }
    if ask not in numbers:
        raise LookupError(f"unknown word {ask!r}; there are level, rules, {', '.join(numbers)}")
    return numbers[ask]


def register(app: Sphinx) -> None:
    """The role."""
    app.add_role("ledger-replication", ReplicationWords())
