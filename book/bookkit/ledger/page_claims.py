"""What a notebook's own page says of its claims: a strip under the title, and links in its verdict table.

The stored outputs stay as they are; all of this is made when the page is rendered.
"""

import html
import re
from collections.abc import Iterable, Mapping, Set
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from bookkit.formulas.drawing import with_formulas
from bookkit.ledger.records import anchor, counts_sentence, read_page_checks, shown
from bookkit.ledger.replicated import Standing, sentence, standings
from bookkit.ledger.words import verdict_words
from bookkit.map.boxes import Box
from bookkit.map.graph import rendered_map
from bookkit.sphinx.html_elements import element
from bookkit.verdicts import BADGES

# As `bookkit.verdicts` writes the id of a claim, and what stands after it up to the end of its facts.
CLAIM = re.compile(r"<b>([^<]+)</b>(<details>.*?)</dl>", re.S)
HINT = re.compile(r"<div class='verdict-table'><p>[^<]*</p>")
HEAD = "<div class='verdict-head'><span>claim</span><span>measured</span><span>verdict</span></div>"
MEASURED = re.compile(r"(<span class='verdict-measured'>)([^<]*)")


def strip(records: list[dict], to_ledger: str = "", known: Mapping[str, Standing] | None = None) -> nodes.Element:
    """ "12 claims checked here: 11 hold, 1 fails as expected"; it opens to what fresh seeds say, and a small badge per claim.

    A badge is a link where there is a ledger. `known`: what is known of replication.
    """
    said = element("summary", counts_sentence(records, "claim checked here"))
    seeds = sentence(records, known or {})
    badges = element("ul", *(element("li", badge(record, to_ledger, known)) for record in records))
    return element(
        "details", said, *([f"{seeds[0].upper()}{seeds[1:]}."] if seeds else []), badges, class_="page-claims"
    )


def badge(record: dict, to_ledger: str = "", known: Mapping[str, Standing] | None = None) -> nodes.Element:
    """The id of a claim in the colour of its verdict, a link where there is a ledger. In running text `mark` stands instead."""
    held = known[record["id"]].held if known and record["id"] in known else ""
    seeds = f", as expected at {held} fresh seeds" if held else ""
    marks = {"class_": BADGES[record["verdict"]], "title": f"{record['title']}: {verdict_words(record)}{seeds}"}
    words = [nodes.Text(shown(record["id"], record["part"]))]
    if record["verdict"] != "holds":  # colour and sign are for the eye
        words.append(element("span", f" {verdict_words(record)}", class_="visually-hidden"))
    link = {"href": f"{to_ledger}#{anchor(record['id'])}"} if to_ledger else {}
    return element("a" if to_ledger else "span", *words, **marks, **link)


def mark(record: dict, to_ledger: str) -> nodes.Element:
    """The sign of a claim's verdict, for running text: colour and sign for the eye, words for the ear; a table shows the id, too."""
    name, verdict = shown(record["id"], record["part"]), verdict_words(record)
    words = [element("span", f"{name} ", class_="claim-id"), element("span", verdict, class_="visually-hidden")]
    marks = {"class_": BADGES[record["verdict"]], "title": f"{name}, {record['title']}: {verdict}"}
    return element("a", *words, **marks, href=f"{to_ledger}#{anchor(record['id'])}")


def linked(table: str, known: Mapping[str, str], to_ledger: str, boxes: Mapping[str, str] | None = None) -> str:
    """A verdict table with heads, whose ids are links to the ledger, with links to the boxes that each claim checks.

    Other tables and unknown ids stay as they are. `known`: of a claim, its id as readers see it. `boxes`: its boxes as HTML.
    Where a line gives several numbers and does not say which is which, they are left to the whole below it.
    """
    if "class='verdict-table'" not in table or not to_ledger:
        return table

    def link(match: re.Match) -> str:
        claim = html.unescape(match[1])
        if claim not in known:
            return match[0]
        box = f"<dt>Box</dt><dd>{boxes[claim]}</dd>" if boxes and boxes.get(claim) else ""
        facts = MEASURED.sub(lambda found: found[1] + ("" if unnamed(found[2]) else found[2]), match[2])
        return f"<b><a href='{to_ledger}#{anchor(claim)}'>{html.escape(known[claim])}</a></b>{facts}{box}</dl>"

    return HINT.sub(lambda found: found[0] + HEAD, CLAIM.sub(link, table))


def unnamed(measured: str) -> bool:
    """Whether these are several numbers without a word: "[0.1, 0.2]; [0.3, 0.4]; …"."""
    return bool(re.search("[;,…]", measured)) and not re.search("[A-Za-z]{3}", measured)


# --- Sphinx ---------------------------------------------------------------------------------------------------------


def ledger_address(app: Sphinx, docname: str, claims: Iterable[str]) -> str:
    """Where the ledger that registered one of the claims stands, seen from a page; empty for a book without one."""
    labels = app.env.get_domain("std").labels
    ledger = next((labels[name][0] for claim in claims if (name := anchor(claim)) in labels), None)
    return app.builder.get_relative_uri(docname, ledger) if ledger else ""


def show_claims(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """The strip under the title of a page with checks, and the links of its verdict tables."""
    path = Path(app.env.doc2path(docname))
    if not docname.startswith("notebooks/") or path.suffix != ".ipynb":
        return
    records = read_page_checks(path)
    section = next(doctree.findall(nodes.section), None)
    if not records or section is None:
        return
    to_ledger = ledger_address(app, docname, (record["id"] for record in records))
    section.insert(1, strip(records, to_ledger, standings()))
    known = {record["id"]: shown(record["id"], record["part"]) for record in records}
    boxes = _boxes(app, docname, known.keys())
    for node in list(doctree.findall(nodes.raw)):
        if "html" in node.get("format", "").split() and "class='verdict-table'" in node.astext():
            text = linked(node.astext(), known, to_ledger, boxes)
            node.parent.replace(node, nodes.raw(text, text, **node.attributes))


def _boxes(app: Sphinx, docname: str, claims: Set[str]) -> dict[str, str]:
    """Of each claim, links to the boxes of the theory that it checks; a box has its proof below it."""
    drawn = rendered_map(Path(app.srcdir))

    def link(box: Box) -> str:
        address = app.builder.get_relative_uri(docname, box.document)
        return f"<a href='{address}#{box.label}'>{with_formulas(html.escape(box.title))}</a>"

    return {claim: ", ".join(map(link, drawn.boxes_of(claim))) for claim in claims & set(drawn.links)}


def register(app: Sphinx) -> None:
    """Connect: links are made when the ledger's place is known."""
    app.connect("doctree-resolved", show_claims)
