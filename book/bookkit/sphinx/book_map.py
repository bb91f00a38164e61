"""The map on a page, and what a box says of its own claims.

    ```{book-map} single_head       a row per box of the part, with the claims that check it, and arcs to what its proof uses
    ```

    {claim}`C8`                     a claim in running text: the sign of its verdict, a link to the ledger; in a table its id, too

Under the title of every box stands one line: the claims that check it, with their verdicts, or why there is none.

A row of the map is some lines high, counted here, so that arcs meet their rows without a script; a phone shows a list in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from bookkit.ledger.page_claims import badge, ledger_address, mark
from bookkit.ledger.records import LEDGER
from bookkit.ledger.replicated import ledger
from bookkit.map.boxes import Box
from bookkit.map.graph import Map, rendered_map
from bookkit.sphinx.html_elements import element, tag
from bookkit.toc import groups

logger = logging.getLogger(__name__)

CLAIMS_PER_LINE = 4  # as many as fit beside a title on a narrow desktop
LINE = 2.1  # em; the style sheet has the same number


def chapters_of(part_name: str, root: Path) -> list[str]:
    """Chapters of a part in reading order: documents of book/ whose name begins with the part's."""
    return [name for _, files in groups(root) for name in files if name.startswith(f"book/{part_name}_")]


class BookMap(SphinxDirective):
    """The boxes and claims of one part."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a list of rows: chapters, their boxes in order, then pages with the claims that check no box."""
        root = Path(self.env.srcdir)
        self.env.metadata[self.env.docname]["reads_ledger"] = True
        self.map = rendered_map(root)
        part_name = self.arguments[0]
        chapters = chapters_of(part_name, root)
        rows = [row for chapter in chapters for row in self._chapter(chapter)]
        rows += self._others([record for record in self.map.claims.values() if record["part"] == part_name])
        if not rows:
            logger.warning("book-map: no box and no claim of part %r", part_name, location=self.get_location())
        return [element("ol", *_with_arcs(rows, self._address(LEDGER)), class_="book-map")]

    def _chapter(self, chapter: str) -> Iterator[Row]:
        boxes = [box for box in self.map.boxes.values() if box.document == chapter]
        if boxes:
            address = self._address(chapter)
            title = _title(Path(self.env.srcdir) / f"{chapter}.md")
            yield Row([element("a", title, href=address)], [], "map-chapter")
        for box in boxes:
            claims = self.map.checked_by(box.label)
            own = {record["id"] for record in claims}
            theirs = [each for record in claims for each in self.map.uses(record["id"]) if each not in own]
            used = dict.fromkeys([*box.uses, *map(self._home, theirs)])
            link = element("a", *self.parse_inline(box.title)[0], href=f"{self._address(chapter)}#{box.label}")
            words = [link, element("small", f"{box.kind}, {box.tag}" if box.tag else box.kind)]
            uses = tuple(each for each in used if each and each != box.label)
            yield Row(words, claims, "map-box", box.label, uses, box.unchecked, box.source)

    def _home(self, name: str) -> str:
        """The box of a name: itself, or the first that the claim checks; empty for a claim without a box."""
        return name if name in self.map.boxes else next(iter(self.map.links[name].box), "")

    def _others(self, records: list[dict[str, Any]]) -> Iterator[Row]:
        alone = [record for record in records if not self.map.links[record["id"]].box]
        if alone:
            yield Row(["Seen in computation: claims that check no box"], [], "map-chapter")
        for page in dict.fromkeys(record["page"] for record in alone):
            here = [record for record in alone if record["page"] == page]
            yield Row([element("a", here[0]["page_title"], href=self._address(page))], here, "map-box")

    def _address(self, document: str) -> str:
        return self.env.app.builder.get_relative_uri(self.env.docname, document)


def _title(chapter: Path) -> str:
    """The first heading of a chapter; Sphinx may not have read it yet."""
    found = re.search(r"^# +(.+?)\s*$", chapter.read_text(encoding="utf-8"), flags=re.M)
    return found[1] if found else chapter.stem


@dataclass
class Row:
    """One row of the map, before its place is known; of a box, its label and why no claim checks it."""

    words: list[nodes.Node | str]
    claims: list[dict[str, Any]]
    kind: str
    label: str = ""
    uses: tuple[str, ...] = ()
    why: str = ""
    source: str = ""

    @property
    def lines(self) -> int:
        return max(1, -(-len(self.claims) // CLAIMS_PER_LINE))


def _with_arcs(rows: list[Row], to_ledger: str) -> Iterator[tag]:
    heights = accumulate((row.lines * LINE for row in rows), initial=0.0)
    tops = dict(zip([row.label for row in rows], heights, strict=False))  # the last height is below all rows
    names = {row.label: row.words[0].astext() for row in rows if row.label}
    for row in rows:
        parts: list[nodes.Node | str] = [element("span", *row.words, class_="map-title")]
        known = [label for label in row.uses if label in tops]
        if row.claims:
            parts.append(element("span", *(badge(record, to_ledger) for record in row.claims), class_="map-claims"))
        elif row.why:
            parts.append(element("span", f"not checked: {row.why}", class_="map-why"))
        if known:
            links: list[nodes.Node | str] = []
            for label in known:
                links += [", " if links else "uses ", element("a", names[label], href=f"#map-{label}")]
            parts.append(element("span", *links, class_="map-uses"))
            here = tops[row.label]
            parts.append(nodes.raw("", _arcs([tops[label] - here for label in known]), format="html"))
        marks = {"id": f"map-{row.label}"} if row.label else {}
        if row.source:
            marks["data_source"] = row.source
        yield element("li", *parts, class_=row.kind, style=f"--lines: {row.lines}", **marks)


def _arcs(distances: Iterable[float]) -> str:
    """Arcs from the middle of a row's first line to lines that are so many em below (above, if negative)."""
    paths = []
    for distance in distances:
        reach, end = 8 + 9 * abs(distance) ** 0.5, 10 * distance
        paths.append(
            f'<path d="M0 0C{-reach:.0f} 0 {-reach:.0f} {end:.0f} -3 {end:.0f}"/><path class="head" d="M0 {end:.0f}l-5-2.5v5z"/>'
        )
    return f'<svg class="map-arcs" viewBox="0 0 10 10" aria-hidden="true">{"".join(paths)}</svg>'


class ClaimBadge(SphinxRole):
    """A claim by its id."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the mark; a warning, and the id alone, for a claim that no page checks."""
        self.env.metadata[self.env.docname]["reads_ledger"] = True
        record = next((each for each in ledger(Path(self.env.srcdir)) if each["id"] == self.text), None)
        if record is None:
            logger.warning("no page checks a claim %r", self.text, location=self.get_location())
            return [nodes.Text(self.text)], []
        to_ledger = self.env.app.builder.get_relative_uri(self.env.docname, LEDGER)
        return [element("span", mark(record, to_ledger), class_="claim-mark")], []


# --- under a box's title ----------------------------------------------------------------------------------------------------


def box_line(box: Box, known: Map, to_ledger: str) -> tag | None:
    """ "Checked by C8 C8b", or why by none; None for a definition that no claim checks."""
    if claims := known.checked_by(box.label):
        return element("p", "Checked by ", *(badge(record, to_ledger) for record in claims), class_="box-claims")
    return element("p", f"Checked by no claim: {box.unchecked}", class_="box-claims") if box.unchecked else None


def show_box_lines(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """One line under the title of each labelled box of a chapter."""
    boxes = [node for node in doctree.findall(nodes.Element) if node.get("realtype") and node.get("label")]
    if not boxes:
        return
    known = rendered_map(Path(app.srcdir))
    to_ledger = ledger_address(app, docname, known.claims)
    for node in boxes:
        box = known.boxes.get(node["label"])
        line = box_line(box, known, to_ledger) if box else None
        if line is not None:
            node.insert(1, line)


def mark_chapters(app: Sphinx, doctree: nodes.document) -> None:
    """A chapter with boxes is read again on every build: its lines speak of stored checks."""
    if any(node.get("realtype") and node.get("label") for node in doctree.findall(nodes.Element)):
        app.env.metadata[app.env.docname]["reads_ledger"] = True


def register(app: Sphinx) -> None:
    """The directive, and the lines."""
    app.add_directive("book-map", BookMap)
    app.add_role("claim", ClaimBadge())
    app.connect("doctree-read", mark_chapters)
    app.connect("doctree-resolved", show_box_lines)
