"""Sphinx side of the book's checks: the ledger, its counts in prose, its JSON, and what pages say of their own claims.

    ```{ledger}, ```{ledger-overview}, ```{ledger-filter}       see `ledger_page`, `ledger_overview`
    the strip under a notebook's title                          see `page_claims`
    the picture on its first screen                             see `lead_figure`
    cells that are hidden, in blocks                            see `folds`

    {ledger-counts}`all`                    "18 claims: 14 hold, 2 fail as expected, ..."
    {ledger-counts}`single_head derived`    of a part, an arXiv number or a page; of a source
    {ledger-counts}`all holds`              "14": a number alone; also claims, pages, fails, outside

A verdict of a page that is not the expected one, whatever other seeds say, a negative control that holds (a check that cannot fail), and an
id used twice are Sphinx warnings; the book is built with warnings as errors. How many claims are stale is said, and stops nothing.
"""

import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

from bookkit.ledger import overview as ledger_overview
from bookkit.ledger import page as ledger_page
from bookkit.ledger import page_claims, replicated, sharp
from bookkit.ledger.records import as_published, counted, problems
from bookkit.map.graph import rendered_map
from bookkit.pages.catalogue import write_atomically
from bookkit.parser import say
from bookkit.sphinx import book_map, folds, lead_figure

logger = logging.getLogger(__name__)


class LedgerCounts(SphinxRole):
    """Role: how many claims hold, fail, or are outside their regime."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the sentence or the number that `ledger_records.counted` makes."""
        records = ledger_page.records_for(self.env, None, self.get_location())
        try:
            text = counted(self.text, records)
        except LookupError as error:
            logger.warning("ledger-counts %r: %s", self.text, error.args[0], location=self.get_location())
            text = "?"
        return [nodes.inline("", text, classes=["ledger-counts"])], []


# --- events ---------------------------------------------------------------------------------------------------------


def _reread(app: Sphinx, env: BuildEnvironment, added: set, changed: set, removed: set) -> list[str]:
    """Pages showing the ledger are read on every build: a notebook that is new is not among their dependencies."""
    return [name for name, data in env.metadata.items() if data.get("reads_ledger") and name in env.all_docs]


def _check_ledger(app: Sphinx, env: BuildEnvironment) -> None:
    """Once per build, whether or not a page shows the ledger: report what it must not hold."""
    records = replicated.ledger(Path(app.srcdir))
    for problem in filter(
        None, [*problems(records), replicated.level_problem(records), *rendered_map(Path(app.srcdir)).problems()]
    ):
        logger.warning("ledger: %s", problem, type="attnlib", subtype="ledger")
    if stale := replicated.stale_words(replicated.standings()):
        say(f"ledger: {stale}")  # not a warning: the numbers on the pages are right


def _number_figures(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Figures are numbered within their page, and not through the book: "Fig. 1" is the first of its page."""
    for kinds in env.toc_fignumbers.values():
        names = kinds.get("figure", {})
        names.update((name, (number,)) for number, name in enumerate(names, 1))
    return []  # nothing has to be read once more for it


def _names_once(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """sphinx-proof gives all boxes and all proofs of a page the same two ids, to which nothing links."""
    for node in doctree.findall(nodes.Element):
        if node.get("ids") in (["proof-content"], ["proof"]):
            node["ids"] = []


def _write_ledger(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        known, unknown = replicated.standings(), replicated.Standing(None, None)
        records = [
            as_published(record, app.builder.get_target_uri) | known.get(record["id"], unknown).as_published()
            for record in replicated.ledger(Path(app.srcdir))
        ]
        text = json.dumps(records, indent=1, ensure_ascii=False, sort_keys=True)
        write_atomically(Path(app.outdir) / "ledger.json", text + "\n")


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    ledger_parts = (ledger_page, ledger_overview, page_claims, replicated, sharp)
    app.setup_extension("bookkit.sphinx.html_elements")
    for part in (*ledger_parts, book_map, lead_figure, folds):
        part.register(app)
    app.add_role("ledger-counts", LedgerCounts())
    app.connect("doctree-resolved", _names_once)
    app.connect("env-get-outdated", _reread)
    app.connect("env-get-updated", _number_figures, priority=900)  # after Sphinx has numbered
    app.connect("env-updated", _check_ledger)
    app.connect("build-finished", _write_ledger)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
