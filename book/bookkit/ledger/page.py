"""The list of the ledger: one `<details>` per claim.

    ```{ledger}                     the claims of every part, one list per part and source; the page gets ledger.js
    :part: single_head              (optional) of this part only
    ```

    <div class="ledger-group" data-part="single_head" data-source="derived">
    <div class="ledger-page" data-page="single_head/02_two_steps"> the page and the command that runs it again
    <details class="claim" id="claim-c8">
    <summary> C8 | title | verdict </summary>
    <div class="claim-body"> statement, then a list of facts: regime, predicted, measured, ... </div></details> ...

Hundreds of claims stand on one page, so what claims share is said once, above them. The style sheet repeats source and
part in each row, and ledger.js repeats page, commands and links in each claim that is opened.
"""

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from bookkit.ledger.records import (
    SOURCES,
    VERDICTS,
    anchor,
    commands,
    in_reading_order,
    page_name,
    part_of,
    shown,
    source_line,
)
from bookkit.ledger.replicated import Standing, ledger, standings
from bookkit.ledger.sizes import group_of, size_of
from bookkit.ledger.words import (
    coarse_words,
    control_words,
    number_lines,
    rule_words,
    sharpness_words,
    signs,
    verdict_words,
)
from bookkit.map.graph import rendered_map
from bookkit.sharpness import ACCEPTED
from bookkit.sphinx.html_elements import element, tag
from bookkit.verdicts import BADGES

logger = logging.getLogger(__name__)

SCRIPT = "ledger.js"


def records_for(env: BuildEnvironment, part_name: str | None, location: Any) -> list[dict]:
    """The records, in reading order; the page that asks is read again on every build. Warns of a part without any."""
    env.metadata[env.docname]["reads_ledger"] = True
    records = in_reading_order(ledger(Path(env.srcdir)))
    if part_name is None:
        return records
    found = [record for record in records if record["part"] == part_name]
    if not found:
        known = ", ".join(sorted({record["part"] for record in records})) or "none"
        logger.warning("ledger: no check of part %r; parts: %s", part_name, known, location=location)
    return found


class Ledger(SphinxDirective):
    """All claims, or those of one part: one list per part and source."""

    has_content = False
    option_spec = {"part": directives.unchanged_required}  # noqa: RUF012 (docutils reads it)

    def run(self) -> list[nodes.Node]:
        """Return a heading and a list per group; every claim gets its label, so that prose can write {ref}`claim-c8`."""
        records = records_for(self.env, self.options.get("part"), self.get_location())
        self.env.metadata[self.env.docname]["asks_ledger"] = True
        self.known = standings()
        self.map = rendered_map(Path(self.env.srcdir))
        labels = self.env.get_domain("std").labels
        for record in records:
            labels.setdefault(anchor(record["id"]), (self.env.docname, anchor(record["id"]), _shown(record)))
        groups = product(dict.fromkeys(record["part"] for record in records), SOURCES)
        chosen = ((group, [r for r in records if (r["part"], r["source"]) == group]) for group in groups)
        return [self._group(*group, found) for group, found in chosen if found]

    def _group(self, part_name: str, source: str, records: list[dict]) -> tag:
        part = part_of(part_name)
        what = SOURCES[source] if "part" in self.options else f"{part.title}: {SOURCES[source].lower()}"
        group = element("div", class_="ledger-group", data_part=part_name, data_source=source)
        # What the style sheet writes into each row: the source tag and the part.
        group["attributes"]["style"] = f"--source: '{_css(source)}'; --part: '{_css(_part_tag(part_name))}'"
        if address := self._repository():
            group["attributes"]["data-repository"] = address
        group += element("h3", f"{what} ", element("span", str(len(records))), class_="ledger-head")
        for page in dict.fromkeys(record["page"] for record in records):
            group += self._page([record for record in records if record["page"] == page])
        return group

    def _page(self, records: list[dict]) -> tag:
        first = records[0]
        if first["page"] not in self.env.found_docs:
            logger.warning("ledger: page %s is not in the book", first["page"], location=self.get_location())
        address = self.env.app.builder.get_relative_uri(self.env.docname, first["page"])
        again, read = commands(first)
        read = read.rpartition(" ")[0]  # the number of the claim is to be written by the reader, or by ledger.js
        run = element("span", "Run it: ", element("code", again), ", then ", element("code", read), " and the number.")
        head = element("p", element("a", first["page_title"], href=address), run, class_="ledger-from")
        claims = (self._claim(record) for record in records)
        return element("div", head, *claims, class_="ledger-page", data_page=page_name(first))

    def _claim(self, record: dict) -> tag:
        standing = self.known.get(record["id"], Standing(None, None))
        told = {"title": standing.replicated_words} if standing.replicated_words else {}
        held = element("i", standing.held or ("stale" if standing.stale else ""), **told)
        # The verdict is a badge, with its sign from the style sheet.
        badge = nodes.inline("", verdict_words(record), classes=["verdict", BADGES[record["verdict"]]])
        summary = element("summary", element("b", _shown(record)), element("span", record["title"]), held, badge)
        says = [element("p", *self._markdown(text)) for text in record["statement"].split("\n\n")]
        body = element("div", *says, self._facts(record, standing), class_="claim-body")
        marks = {} if record["verdict"] == "holds" else {"data_verdict": VERDICTS[record["verdict"]][0]}
        marks |= {"data_sharpness": group_of(record)}
        if record["verdict"] in ACCEPTED and (size := size_of(record)) is not None:
            marks |= {"data_size": f"{size:.2g}"}
        return element("details", summary, body, class_="claim", id=anchor(record["id"]), **marks)

    def _facts(self, record: dict, standing: Standing) -> tag:
        lines = number_lines(record.get("numbers", {}), record.get("standing"))
        facts: dict[str, list[nodes.Node | str]] = {
            "Box": self._links([box.label for box in self.map.boxes_of(record["id"])]),
            "Uses": self._links(self.map.uses(record["id"])),
            "Regime": self._regime(record),
            "Predicted": [*self._inline(signs(record["predicted"]))],
            "Measured": [*self._inline(signs(record["measured"]))],
            "Rule": [*self._inline(rule_words(record))],
            "Sharpness": [*self._inline(_sharpness(record))],
            "Negative control": [*self._inline(control_words(record))] if record.get("negative_control") else [],
            "Numbers": [part for text in lines for part in (element("br"), text)][1:],
            "Replicated": [*self._inline(signs(standing.replicated_words))],
            "Registered": [*self._inline(standing.registered_words)],
            "Restated": [*self._inline(signs(standing.restated))],
            "Function": [self._function(record)],
        }
        listed = element("dl")
        for name, said in facts.items():
            if said:
                listed += [element("dt", name), element("dd", *said)]
        return listed

    def _links(self, names: Iterable[str]) -> list[nodes.Node | str]:
        """Links to boxes, which have their proofs below them, and to claims."""
        said: list[nodes.Node | str] = []
        for name in names:
            box = self.map.boxes.get(name)
            start = self.env.app.builder.get_relative_uri(self.env.docname, box.document) if box else ""
            address = f"{start}#{name}" if box else f"#{anchor(name)}"
            words = box.title if box else _shown(self.map.claims[name])
            said += [", " if said else "", element("a", *self._inline(words), href=address)]
        return said

    def _function(self, record: dict) -> tag:
        """The dotted name, with the place of its def for ledger.js: a line of its module, or file#L and line."""
        found = source_line(record["function"])
        if not found:
            return element("code", record["function"])
        path, line = found
        usual = record["function"].rpartition(".")[0].replace(".", "/") + ".py"
        return element("code", record["function"], data_at=str(line) if path == usual else f"{path}#L{line}")

    def _repository(self) -> str:
        """Where the repository shows its files; empty for a book without one."""
        theme = self.config.html_theme_options
        url = theme.get("repository_url")
        return f"{url}/blob/{self.config.html_context.get('code_version', 'main')}/" if url else ""

    def _regime(self, record: dict) -> list[nodes.Node | str]:
        said: list[nodes.Node | str] = [*self._inline(signs(record.get("regime", "")))]
        if record.get("violated"):
            broken = self._inline(signs(record["violated"]))
            said += [*([". "] if said else []), element("strong", "Broken here: "), *broken]
        return said

    def _inline(self, text: str) -> list[nodes.Node]:
        """Words and numbers as they are; read as Markdown only where they hold $maths$."""
        return self._markdown(text) if "$" in text else [nodes.Text(text)] if text else []

    def _markdown(self, text: str) -> list[nodes.Node]:
        holder = nodes.container()
        self.state.nested_parse(StringList(text.splitlines(), source="ledger"), self.content_offset, holder)
        for raw in list(holder.findall(nodes.raw)):  # a record's HTML is words, and no part of the page
            words = nodes.Text(raw.astext())
            raw.replace_self(nodes.paragraph("", "", words) if raw.parent is holder else words)
        return [node for child in holder.children for node in child.children]


def _sharpness(record: dict) -> str:
    """What the rule could have seen, with the draws of all seeds where there are some, and why it sees little."""
    said = sharpness_words(record)
    if pooled := record.get("pooled"):
        own = sharpness_words({name: value for name, value in record.items() if name != "pooled"})
        said = f"on the page: {own}; all draws of {pooled['seeds']} seeds together: {pooled['verdict']}, {said}"
    reason = coarse_words(record)
    return f"{said}. Why no sharper: {reason}" if said and reason else said


def _shown(record: dict) -> str:
    return shown(record["id"], record["part"])


def _part_tag(part_name: str) -> str:
    part = part_of(part_name)
    return f"Part {part.number}" if part.number else part.title


def _css(text: str) -> str:
    """Words inside a string of a style sheet."""
    return text.replace("\\", "").replace("'", "\\'")


def add_script(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """ledger.js, on pages that show the ledger alone."""
    if app.env.metadata.get(pagename, {}).get("asks_ledger"):
        app.add_js_file(SCRIPT, loading_method="defer")


def register(app: Sphinx) -> None:
    """The directive, and its script."""
    app.add_directive("ledger", Ledger)
    app.connect("html-page-context", add_script)
