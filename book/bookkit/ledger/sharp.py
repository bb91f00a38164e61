"""How sharp the verdicts of the whole ledger are: a table of how many see how much, the weakest ones with their reasons, the medians.

    ```{ledger-sharpness}          how many claims that hold see a change of what size
    ```
    ```{ledger-weakest}            the weakest of them, with the reason that each gives
    :claims: 20
    ```

{ledger-sharp}`median`            the median over all claims that hold and have a scale; `numbers`, `bounds`, `fractions`: of those alone
"""

from collections.abc import Sequence
from statistics import median

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from bookkit.ledger import page
from bookkit.ledger.records import anchor, shown
from bookkit.ledger.sizes import ASKED, KINDS, ROWS, row_of, sizes, weakest
from bookkit.ledger.words import coarse_words
from bookkit.sharpness import of_record, resolutions
from bookkit.sphinx.html_elements import element

logger = logging.getLogger(__name__)


class Sharpness(SphinxDirective):
    """A row for each size, a column for each kind of rule; a bar says how many."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        records = page.records_for(self.env, None, self.get_location())
        columns = {kind: [row_of(size) for size in sizes(records, kind)] for kind in KINDS}
        head = element("tr", element("th", "it would have refused"), *(element("th", kind) for kind in KINDS))
        body = []
        for name in ROWS:
            cells = [_bar(rows.count(name), len(rows)) for rows in columns.values()]
            body.append(element("tr", element("th", name, scope="row"), *cells))
        counted = [element("td", str(len(rows))) for rows in columns.values()]
        total = element("tr", element("th", "claims", scope="row"), *counted)
        return [element("table", element("thead", head), element("tbody", *body, total), class_="ledger-sharpness")]


def _bar(count: int, total: int) -> nodes.Element:
    if not count:
        return element("td")
    return element("td", element("span", str(count)), style=f"--part: {100 * count / total:.0f}%")


class Weakest(SphinxDirective):
    """The coarsest claims, each with its reason."""

    option_spec = {"claims": directives.positive_int}  # noqa: RUF012 (docutils reads it)

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        records = page.records_for(self.env, None, self.get_location())
        head = element("tr", *(element("th", words) for words in ("claim", "it holds", "why no sharper")))
        rows = []
        for record in weakest(records)[: self.options.get("claims", 20)]:
            link = element("a", shown(record["id"], record["part"]), href=f"#{anchor(record['id'])}")
            said = "; ".join(seen.words for seen in resolutions(of_record(record)))
            row = [element("td", link, f" {record['title']}"), element("td", said), element("td", coarse_words(record))]
            rows.append(element("tr", *row))
        return [element("table", element("thead", head), element("tbody", *rows), class_="ledger-weakest")]


def percent(values: Sequence[float]) -> str:
    """The median, in per cent, with the two digits that stand."""
    return f"{100 * median(values):.2g} %" if values else "not known"


class SharpWord(SphinxRole):
    """A median."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the words; a warning, and a question mark, for a word that is unknown."""
        records = page.records_for(self.env, None, self.get_location())
        if self.text not in ASKED:
            logger.warning("ledger-sharp %r: there are %s", self.text, ", ".join(ASKED), location=self.get_location())
            return [nodes.Text("?")], []
        return [nodes.inline("", percent(sizes(records, ASKED[self.text])), classes=["ledger-counts"])], []


def register(app: Sphinx) -> None:
    """Both directives and the role."""
    app.add_directive("ledger-sharpness", Sharpness)
    app.add_directive("ledger-weakest", Weakest)
    app.add_role("ledger-sharp", SharpWord())
