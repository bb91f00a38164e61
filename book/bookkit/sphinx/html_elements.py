"""HTML elements that docutils has no node for: `element("details", element("summary", "C8"), class_="claim")`."""

import html
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


class tag(nodes.General, nodes.TextElement):
    """One HTML element around its children: `tag("", "", *children, name="details", attributes={...})`."""


class verbatim(tag, nodes.FixedTextElement):
    """Code: Sphinx leaves its quotes and dashes alone."""


def element(name: str, *children: nodes.Node | str, **attributes: str) -> tag:
    """`<name class=...>`; words among the children become text. `class_` is class, `data_page` is data-page."""
    made = (verbatim if name == "code" else tag)(
        name=name, attributes={key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    )
    made += [nodes.Text(child) if isinstance(child, str) else child for child in children]
    return made


def _open(self: Any, node: tag) -> None:
    attributes = "".join(f' {key}="{html.escape(value)}"' for key, value in node["attributes"].items())
    self.body.append(f"<{node['name']}{attributes}>")


def _close(self: Any, node: tag) -> None:
    block = node["name"] in ("details", "div", "dl", "li", "nav", "summary", "ul")
    if node["name"] != "br":
        self.body.append(f"</{node['name']}>" + ("\n" if block else ""))


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_node(tag, html=(_open, _close))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
