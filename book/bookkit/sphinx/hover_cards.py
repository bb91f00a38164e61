"""Hover cards: what a claim, a theorem or a symbol says, shown beside the link. All cards of a book lie in one script file.

`_static/cards_data.js` is made from the built pages; book/assets/cards.js, on every page, asks for it when the first link is
pointed at, and shows the cards. Without scripts the links are links.

    window.bookCards = {links: {"book/ledger.html#claim-c8": HTML, ...}, symbols: {"single_head": {"\\\\rho": HTML}, "": {...}}}

A symbol has a card where the notation's table of its part gives it one meaning; `""` holds the symbols of every part. A citation
needs no card of its own: its link says in its title what it leads to.
"""

import html as escaping
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

from bookkit.formulas.drawing import FormulaError, element, with_formulas
from bookkit.ledger.page import BADGES
from bookkit.ledger.records import shown
from bookkit.ledger.words import signs, verdict_words
from bookkit.pages.catalogue import write_atomically
from bookkit.settings import settings

logger = logging.getLogger(__name__)

DATA = "_static/cards_data.js"
NOTATION = "book/notation.html"
MEASURED = 140  # letters

BOX = re.compile(
    r'<div class="proof (?P<kind>\w+) admonition" id="(?P<label>[^"]+)">\s*<p class="admonition-title">(?P<title>.*?)</p>.*?'
    r'<section class="[\w-]+-content"[^>]*>\s*(?P<text>(?:<p>.*?</p>\s*)?(?:<div class="math[^>]*>.*?</div>)?)',
    re.DOTALL,
)
SECTION = re.compile(r"<h2>(?P<title>.*?)<a class=\"headerlink\"", re.DOTALL)
ROW = re.compile(r"<tr[^>]*>(.*?)</tr>", re.DOTALL)
CELL = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.DOTALL)
FORMULA = re.compile(r'<span class="math[^>]*data-tex="([^"]*)"')
KEPT = ("p", "em", "strong", "code", "div")


def bare(markup: str) -> str:
    """The markup without links, names and pictures: text, emphasis and formulas, once more on another page."""
    markup = re.sub(r'<span class="eqno">.*?</span>(?=<span class="formula")', "", markup, flags=re.DOTALL)
    closing: list[str] = []  # what ends the spans that are open: nothing, where the span itself was left out
    kept = []
    for part in re.split(r"(<math\b.*?</math>|<[^>]*>)", markup, flags=re.DOTALL):
        name = part.strip("</>").split(" ")[0]
        if part == "</span>":
            part = closing.pop() if closing else ""
        elif name in ("span", "div") and not part.startswith("</"):
            formula = 'class="math' in part
            closing += ["</span>" if formula else ""] if name == "span" else []
            part = f'<{name} class="math">' if formula else ""
        elif part.startswith("<") and name not in KEPT and not part.startswith("<math"):
            part = ""
        kept.append(part)
    return " ".join("".join(kept).split())


def bare_formulas(markup: str) -> str:
    """Formulas without their TeX: nobody asks a card for a card."""
    return re.sub(r'<span class="math[^>]*>', '<span class="math">', markup)


def _formulas(text: str) -> str:
    return bare_formulas(with_formulas(escaping.escape(text)))


def claim_card(record: dict[str, Any]) -> str:
    """Id, title, verdict, statement, and what was measured, in a line."""
    measured = record["measured"]
    if len(measured) > MEASURED:
        measured = measured[:MEASURED].rsplit(" ", 1)[0] + " ..."
    # Without Markdown's signs, but for those of formulas.
    statement = re.sub(r"(\$[^$\n]+\$)|[`*]|\{[\w:-]+\}", lambda found: found[1] or "", record["statement"])
    return (
        f'<p class="card-title">{escaping.escape(shown(record["id"], record["part"]))}: {_formulas(record["title"])} '
        f'<span class="verdict {BADGES.get(record["verdict"], "verdict-fails")}">{verdict_words(record)}</span></p>'
        f"<p>{_formulas(statement)}</p>"
        f'<p class="card-measured">Measured: {escaping.escape(signs(measured))}</p>'
    )


def boxes(page: str) -> Iterator[tuple[str, str]]:
    """(label, card) of every labelled box of a page: its title and the first paragraph with its formula."""
    for found in BOX.finditer(page):
        yield found["label"], f'<p class="card-title">{bare(found["title"])}</p>{bare(found["text"])}'


def _names(formula: str) -> list[str]:
    """The symbols that a cell `a=...` or `\\mu_1,\\mu_2` explains, as they are written alone."""
    left = re.split(r"(?<![<>\\])=", escaping.unescape(formula))[0]
    return [
        name.replace(" ", "")
        for name in (left.split(",") if not re.search(r"[(\[{]", left) else [left])
        if name.strip()
    ]


def symbols(page: str) -> dict[str, dict[str, str]]:
    """Part -> symbol -> card, from the tables of the notation: those whose part gives them one meaning."""
    parts = {part.title: part_name for part_name, part in settings().parts.items()}
    found: dict[tuple[str, str], set[str]] = {}
    for section in re.split(r"(?=<h2>)", page):
        title = SECTION.search(section)
        if title is None or "different meaning" in title["title"]:
            continue
        words = re.sub("<[^>]*>", "", title["title"])
        part_name = next((folder for name, folder in parts.items() if name in words), "")
        for table in re.findall(r"<table.*?</table>", section, flags=re.DOTALL):
            head, *rows = [CELL.findall(row) for row in ROW.findall(table)]
            names = [re.sub("<[^>]*>", "", cell).strip() for cell in head]
            column = next((place for place, name in enumerate(names) if name in ("meaning", "axis")), None)
            for cells in rows if column is not None else ():
                for formula in FORMULA.findall(cells[0]):
                    meaning = bare(re.sub("</?p>", "", cells[column]))
                    card = f"<p>{bare_formulas(element(escaping.unescape(formula)))}: {meaning}</p>"
                    for name in _names(formula):
                        found.setdefault((part_name, name), set()).add(card)
    told: dict[str, dict[str, str]] = {}
    for (part_name, name), cards in found.items():
        if len(cards) == 1:
            told.setdefault(part_name, {})[name] = next(iter(cards))
    return told


def cards(html: Path) -> dict[str, Any]:
    """All cards of the built book in the folder `html`."""
    links: dict[str, str] = {}
    if (html / "ledger.json").is_file():
        for record in json.loads((html / "ledger.json").read_text(encoding="utf-8")):
            links[record["permalink"]] = claim_card(record)
    for path in sorted(html.glob("book/*.html")):
        name = path.relative_to(html).as_posix()
        links |= {f"{name}#{label}": card for label, card in boxes(path.read_text(encoding="utf-8"))}
    known = symbols((html / NOTATION).read_text(encoding="utf-8")) if (html / NOTATION).is_file() else {}
    return {"links": links, "symbols": known}


def _write(app: Sphinx, exception: Exception | None) -> None:
    """Write the script file with all cards."""
    if exception is None and app.builder.name == "html":
        html = Path(app.outdir)
        try:
            text = json.dumps(cards(html), ensure_ascii=False, sort_keys=True, indent=0)
        except FormulaError as error:
            logger.warning("hover cards: %s", error, type="attnlib", subtype="formula")
        else:
            write_atomically(html / DATA, f"window.bookCards = {text};\n")


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_js_file("cards.js", loading_method="defer")
    app.connect("build-finished", _write, priority=800)  # the ledger is written; `light` comes after
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
