"""Sphinx side of the book: the ledger of claims, made from the checks stored in the notebooks that are rendered.

    ```{ledger}                     a table of the claims of every wing; writes `ledger.json` beside the HTML
    :wing: single_head              (optional) of this wing only
    :apart:                         (optional) one table per source: derived, measured, conjecture, ...
    ```

    {ledger-counts}`all`            "18 claims: 14 hold, 2 fail as expected, ..." (or the name of a wing)
    {ledger-counts}`single_head derived`    of one source

A verdict that is not the expected one, a power twin that holds (a check that cannot fail), and an id used twice are
Sphinx warnings; the book is built with warnings as errors.
"""

import json
import re
from collections import Counter
from pathlib import Path

import nbformat
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from attnlib.publishing.pages import write_atomically
from attnlib.results import read

logger = logging.getLogger(__name__)

CLAIMS_TYPE = "application/vnd.attnlib.claims+json"  # of `attnlib.claims`; a test holds the two together

COLUMNS = {"Claim": 16, "Statement": 42, "Predicted, measured": 22, "Verdict": 20}  # relative widths
BADGES = {"holds": "verdict-holds", "fails": "verdict-fails", "outside its regime": "verdict-outside"}
# Source tags of `attnlib.claims`, in the order in which they are shown apart; a test holds the two together.
SOURCES = {
    "paper": "Said by a paper",
    "paper, second-hand": "Said of a paper",
    "authors' code": "Read off the authors' code",
    "derived": "Derived",
    "measured": "Measured",
    "conjecture": "Conjectures",
}
# (one claim, several claims), with the verdict expected
COUNTED = {
    "holds": ("holds", "hold"),
    "fails": ("fails as expected", "fail as expected"),
    "outside its regime": ("is outside its regime", "are outside their regime"),
}


# --- records --------------------------------------------------------------------------------------------------------


def read_ledger(source: Path) -> list[dict]:
    """Check records stored in the notebooks under `source`/notebooks, in reading order, each with its `page`.

    `page` is the path of the notebook below `source`, without suffix.
    """
    records = []
    for path in sorted((source / "notebooks").rglob("*.ipynb")):
        inside = path.relative_to(source)
        if not any(part.startswith(".") for part in inside.parts):
            notebook = nbformat.read(path, as_version=4)
            records += [{**check, "page": inside.with_suffix("").as_posix()} for check in _checks(notebook)]
    return records


def _checks(notebook: nbformat.NotebookNode) -> list[dict]:
    """As `attnlib.claims.read_checks`, which would import torch for the sake of a table."""
    return [record for payload in read(notebook, CLAIMS_TYPE) for record in payload]


def anchor(claim_id: str) -> str:
    """Permanent name of a claim in the HTML: C8 -> claim-c8. Links from outside rely on it."""
    return "claim-" + re.sub(r"[^a-z0-9]+", "-", claim_id.lower()).strip("-")


def problems(records: list[dict]) -> list[str]:
    """What a ledger must not hold, in words: verdicts against expectation, checks without power, ids used twice."""
    found = []
    for record in records:
        where = f"claim {record['id']} ({record['page']})"
        if record["verdict"] != record["expected"]:
            reason = f"; {record['violated']}" if record.get("violated") else ""
            found.append(
                f"{where}: verdict is {record['verdict']!r}, expected {record['expected']!r} "
                f"[predicted {record['predicted']}; measured {record['measured']}{reason}]"
            )
        twin = record.get("power_twin")
        if twin and record["verdict"] == twin["verdict"] == "holds":
            found.append(f"{where}: the power twin ({twin['wrong']}) holds too: this check would not notice an error")
    pages: dict[str, list[str]] = {}
    for record in records:
        pages.setdefault(anchor(record["id"]), []).append(record["page"])
    for name, places in pages.items():
        if len(places) > 1:
            found.append(f"{name} is recorded {len(places)} times ({', '.join(places)}): each check needs its own id")
    return found


def counts_sentence(records: list[dict]) -> str:
    """As in "18 claims: 14 hold, 2 fail as expected, 2 are outside their regime"."""
    total = f"{len(records)} claim{'' if len(records) == 1 else 's'}"
    if not records:
        return total
    as_expected = Counter(r["verdict"] for r in records if r["verdict"] == r["expected"])
    parts = [
        f"{as_expected[verdict]} {one if as_expected[verdict] == 1 else several}"
        for verdict, (one, several) in COUNTED.items()
        if as_expected[verdict]
    ]
    if surprises := len(records) - as_expected.total():
        parts.append(f"{surprises} against expectation")
    return f"{total}: {', '.join(parts)}"


# --- directive and role ---------------------------------------------------------------------------------------------


class Ledger(SphinxDirective):
    """Table of claims, one per wing, or one per wing and source."""

    has_content = False
    option_spec = {"wing": directives.unchanged_required, "apart": directives.flag}  # noqa: RUF012 (docutils reads it)

    def run(self) -> list[nodes.Node]:
        """Return one table per wing, each row with the claim's permanent anchor."""
        records = _records_for(self.env, self.options.get("wing"), self.get_location())
        tables: dict[str, list[dict]] = {}
        apart = "apart" in self.options
        for record in sorted(records, key=lambda r: list(SOURCES).index(r["source"])) if apart else records:
            title = record["wing"].replace("_", " ").capitalize() + (
                f": {SOURCES[record['source']].lower()}" if apart else ""
            )
            tables.setdefault(title, []).append(record)
        made: list[nodes.Node] = []
        for title, checks in tables.items():
            made.append(nodes.rubric(title, title, classes=["ledger-wing"]))
            made.append(self._table(checks))
            labels = self.env.get_domain("std").labels  # so that prose can write {ref}`claim-c8`
            for check in checks:
                labels.setdefault(anchor(check["id"]), (self.env.docname, anchor(check["id"]), check["id"]))
        return made

    def _table(self, checks: list[dict]) -> nodes.table:
        group = nodes.tgroup(cols=len(COLUMNS))
        group += [nodes.colspec(colwidth=width) for width in COLUMNS.values()]
        group += nodes.thead("", nodes.row("", *[_entry(nodes.paragraph(name, name)) for name in COLUMNS]))
        group += nodes.tbody("", *[self._row(check) for check in checks])
        return nodes.table("", group, classes=["ledger", "colwidths-given"])

    def _row(self, check: dict) -> nodes.row:
        name = anchor(check["id"])
        link = nodes.reference("", check["id"], refuri=f"#{name}", internal=True, classes=["ledger-id"])
        # The page's own title is the text of this link.
        page = addnodes.pending_xref(
            "",
            nodes.inline("", check["page"]),
            refdomain="std",
            reftype="doc",
            reftarget=f"/{check['page']}",
            refexplicit=False,
            refwarn=True,
            refdoc=self.env.docname,
        )
        row = nodes.row(
            "",
            _entry(
                nodes.paragraph("", "", link),
                nodes.paragraph(check["title"], check["title"]),
                nodes.paragraph("", "", page, classes=["ledger-note"]),
            ),
            _entry(
                *self._markdown(check["statement"]),
                *self._regime(check),
                self._source(check["source"]),
                *self._text(f"Rule: {check['rule']} ({check['draws']} draws)", ["ledger-note"]),
            ),
            _entry(
                _note("predicted"),
                *self._text(check["predicted"]),
                _note("measured"),
                *self._text(check["measured"]),
            ),
            _entry(*self._verdict(check)),
        )
        row["ids"].append(name)
        return row

    def _source(self, source: str) -> nodes.paragraph:
        badge = nodes.inline("", source, classes=["source", "source-" + re.sub(r"[^a-z]+", "-", source)])
        return nodes.paragraph("", "", nodes.Text("Source: "), badge, classes=["ledger-note"])

    def _regime(self, check: dict) -> list[nodes.Node]:
        if not check.get("regime"):
            return []
        return self._text(f"Regime: {check['regime']}", ["ledger-note"])

    def _verdict(self, check: dict) -> list[nodes.Node]:
        verdict = check["verdict"]
        badge = nodes.inline("", verdict, classes=["verdict", BADGES.get(verdict, "verdict-fails")])
        made: list[nodes.Node] = [nodes.paragraph("", "", badge)]
        if check["expected"] != "holds" or verdict != "holds":
            word = "as expected" if verdict == check["expected"] else f"expected: {check['expected']}"
            made.append(_note(word))
        if check.get("violated"):
            made += self._text(check["violated"], ["ledger-note"])
        if twin := check.get("power_twin"):
            made += self._text(f"Power twin, {twin['wrong']}: {twin['verdict']}", ["ledger-note"])
        return made

    def _text(self, text: str, classes: list[str] | None = None) -> list[nodes.Node]:
        """Words and numbers as they are; read as Markdown only where they hold $maths$."""
        if "$" in text:
            return self._markdown(text, classes)
        text = text.replace("+-", "±").replace("<=", "≤").replace(">=", "≥")
        return [nodes.paragraph(text, text, classes=classes or [])]

    def _markdown(self, text: str, classes: list[str] | None = None) -> list[nodes.Node]:
        """Markdown with $maths$ as nodes."""
        holder = nodes.container()
        self.state.nested_parse(StringList(text.splitlines() or [""], source="ledger"), self.content_offset, holder)
        for child in holder.children:
            if isinstance(child, nodes.Element):
                child["classes"] += classes or []
        return holder.children


class LedgerCounts(SphinxRole):
    """Role: how many claims hold, fail, or are outside their regime."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the sentence for the wing named, or for `all`; a second word is a source."""
        wing, _, source = self.text.strip().partition(" ")
        records = _records_for(self.env, None if wing == "all" else wing, self.get_location())
        sentence = counts_sentence([r for r in records if not source or r["source"] == source])
        return [nodes.inline("", sentence, classes=["ledger-counts"])], []


def _records_for(env: BuildEnvironment, wing: str | None, location: str) -> list[dict]:
    env.metadata[env.docname]["reads_ledger"] = True
    records = read_ledger(Path(env.srcdir))
    wings = sorted({record["wing"] for record in records})
    if wing is not None:
        records = [record for record in records if record["wing"] == wing]
    if not records:
        wanted = "no page stores a check" if wing is None else f"no check of wing {wing!r}; wings: {', '.join(wings)}"
        logger.warning("ledger: %s", wanted, location=location, type="attnlib", subtype="ledger")
    return records


def _entry(*children: nodes.Node) -> nodes.entry:
    return nodes.entry("", *children)


def _note(text: str) -> nodes.paragraph:
    return nodes.paragraph(text, text, classes=["ledger-note"])


# --- events ---------------------------------------------------------------------------------------------------------


def _reread(app: Sphinx, env: BuildEnvironment, added: set, changed: set, removed: set) -> list[str]:
    """Pages showing the ledger are read on every build: a notebook that is new is not among their dependencies."""
    return [name for name, data in env.metadata.items() if data.get("reads_ledger") and name in env.all_docs]


def _check_ledger(app: Sphinx, env: BuildEnvironment) -> None:
    """Once per build, whether or not a page shows the ledger: report what it must not hold."""
    for problem in problems(read_ledger(Path(app.srcdir))):
        logger.warning("ledger: %s", problem, type="attnlib", subtype="ledger")


def _write_ledger(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        records = [{**r, "page": app.builder.get_target_uri(r["page"])} for r in read_ledger(Path(app.srcdir))]
        text = json.dumps(records, indent=1, ensure_ascii=False, sort_keys=True)
        write_atomically(Path(app.outdir) / "ledger.json", text + "\n")


def _drop_thebe(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Drop the scripts of sphinx-thebe: unused here, declared twice (an error in every page), from another host."""

    def is_thebe(script) -> bool:
        body = getattr(script, "attributes", {}).get("body") or ""
        return "thebe" in f"{getattr(script, 'filename', script) or ''}{body}".lower()

    context["script_files"] = [script for script in context.get("script_files", []) if not is_thebe(script)]


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_directive("ledger", Ledger)
    app.add_role("ledger-counts", LedgerCounts())
    app.connect("env-get-outdated", _reread)
    app.connect("env-updated", _check_ledger)
    app.connect("build-finished", _write_ledger)
    app.connect("html-page-context", _drop_thebe, priority=900)  # after sphinx-thebe and the theme
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
