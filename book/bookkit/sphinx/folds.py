"""Cells of which nothing is seen, one block where several follow each other, with a summary in plain words.

On top of a page these are its imports and parameters; at its end the table of verdicts, and the numbers for other pages with the
versions. A link that leads into a block opens it (book/assets/light.js, and newer browsers by themselves); paper shows it open.
"""

import re
from itertools import groupby
from pathlib import Path

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx

from bookkit.ledger.records import counts_sentence, read_page_checks
from bookkit.sphinx.html_elements import element

CODE, IMPORTS = "Code", "Imports and parameters"
VERDICTS, NUMBERS = "Verdicts, claim by claim", "Numbers for reruns and sweeps, versions"


def fold(doctree: nodes.document, counts: str = "") -> None:
    """Put neighbouring hidden cells into one block each. `counts`: what the summary of the verdicts says of them."""
    for section in list(doctree.findall(nodes.section)):
        for kind, cells in [(kind, list(cells)) for kind, cells in groupby(section.children, _kind)]:
            if not kind:
                continue
            words = IMPORTS if any("tag_parameters" in cell["classes"] for cell in cells) else kind
            words = f"{kind}: {counts}" if kind == VERDICTS and counts else words
            block = element(
                "details", element("summary", words), class_="hide verdicts" if kind == VERDICTS else "hide"
            )
            section.insert(section.index(cells[0]), block)
            for cell in cells:
                section.remove(cell)
                inside = cell.children[0].children
                cell.clear()
                cell += inside
                block += cell


def _kind(node: nodes.Node) -> str:
    """What a cell of which nothing is seen is for; empty for all that is not one."""
    if len(node.children) != 1 or not isinstance(node.children[0], HideCodeCellNode):
        return ""
    if any("class='verdict-table'" in raw.astext() for raw in node.findall(nodes.raw)):
        return VERDICTS
    return NUMBERS if re.search(r"\brecord\(|\bversions\b", node.astext()) else CODE


def fold_page(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Of pages that are notebooks."""
    path = Path(app.env.doc2path(docname))
    if path.suffix == ".ipynb":
        fold(doctree, counts_sentence(read_page_checks(path)).partition(": ")[2])


def register(app: Sphinx) -> None:
    """After `page_claims` has put its links into the table."""
    app.connect("doctree-resolved", fold_page, priority=600)
