"""Formulas on pages: Sphinx's own place for a renderer of mathematics, taken by `drawing`.

Numbers of equations and links to them are Sphinx's. A formula that cannot be drawn is a Sphinx warning with page and line; the book is
built with warnings as errors.
"""

import html
import re
from collections.abc import Callable

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

from bookkit.formulas.drawing import AFTER, BEFORE, CLASSES, FormulaError, displayed, mathml, with_formulas

logger = logging.getLogger(__name__)

STYLE = "formulas/formulas.css"  # in book/assets


def drawn(tex: str, location: object, draw: Callable[[str], str]) -> str:
    """What `draw` makes of it, or the TeX as it stands after a warning that says where."""
    try:
        return draw(tex)
    except FormulaError as error:
        logger.warning("%s", error, location=location, type="attnlib", subtype="formula")
        return html.escape(tex)


def draw_tables(app: Sphinx, doctree: nodes.document) -> None:
    """Formulas in the HTML of outputs: tables, and what a page says of its claims."""
    for node in list(doctree.findall(nodes.raw)):
        text = node.astext()
        if "html" not in node.get("format", "").split() or ("<table" not in text and "verdict-table" not in text):
            continue
        try:
            node.replace_self(nodes.raw("", with_formulas(text), **node.attributes))
        except FormulaError as error:
            logger.warning("in the HTML of an output, %s", error, location=node, type="attnlib", subtype="formula")


def keep_together(app: Sphinx, doctree: nodes.document) -> None:
    """The same in prose as `unbroken` in HTML."""
    for node in list(doctree.findall(nodes.math)):
        parent, place = node.parent, node.parent.index(node)
        texts = [parent[i] if 0 <= i < len(parent) else None for i in (place - 1, place + 1)]
        before, after = (str(text) if isinstance(text, nodes.Text) else "" for text in texts)
        opening, closing = re.search(f"{BEFORE}$", before)[0], re.match(AFTER, after)[0]
        if opening or closing:
            signs = [nodes.Text(sign) if sign else None for sign in (opening, closing)]
            together = nodes.inline("", "", *filter(None, (signs[0], node.deepcopy(), signs[1])), classes=["unbroken"])
            rest = (before[: len(before) - len(opening)], after[len(closing) :])
            parent[place] = together
            for i, text, left in ((place - 1, before, rest[0]), (place + 1, after, rest[1])):
                if text:
                    parent[i] = nodes.Text(left)


def whole(tex: str) -> str:
    """The TeX of a block as one formula: blank lines part equations, as in Sphinx."""
    parts = [part for part in tex.split("\n\n") if part.strip()]
    parts = [rf"\begin{{split}}{part}\end{{split}}" if r"\\" in part else part for part in parts]
    lines = r"\\".join(parts)
    return lines if len(parts) == 1 else rf"\begin{{aligned}}{lines}\end{{aligned}}"


def _visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    tex = node.astext()
    self.body.append(self.starttag(node, "span", "", CLASS=CLASSES, **{"data-tex": " ".join(tex.split())}))
    self.body.append(f"{drawn(tex, node, mathml)}</span>")
    raise nodes.SkipNode


def _visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    tex = node.astext() if node["nowrap"] else whole(node.astext())
    self.body.append(self.starttag(node, "div", CLASS=CLASSES, **{"data-tex": " ".join(tex.split())}))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    # What is wider than the page scrolls in itself, its number does not.
    self.body.append(f"{drawn(tex, node, displayed)}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_html_math_renderer("book", inline_renderers=(_visit_inline, None), block_renderers=(_visit_block, None))
    app.add_css_file(STYLE)
    app.connect("doctree-read", draw_tables)
    app.connect("doctree-read", keep_together)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
