"""Explorers: pages that compute in the reader's browser, with a still picture wherever no script runs.

    ```{explorer} two_steps
    :figure: notebooks/single_head/05_phase_diagram fig-phase-snr-step
    One sentence: what the still picture shows.
    ```

The still picture is quoted from a notebook (see `notebook_quotes`). The scripts lie in `book/assets/explorers/`; they are loaded
by the page that asks for them and by no other: the data first, where there are any, then the explorer. Both are classic
scripts, because pages are also opened from disk. An explorer, figure or sentence that is missing is a Sphinx warning.
"""

import re
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from bookkit.sphinx.notebook_quotes import find_figure, kept_image, page_notebook

logger = logging.getLogger(__name__)

SCRIPTS = "explorers"  # below the static folder
STILL = "Where scripts run, this picture moves: sliders, a point to drag, values computed as you look."


class explorer(nodes.General, nodes.Element):
    """The place of an explorer; its children are the still picture and a sentence."""


# Keeps room while the scripts load; where they cannot be read, the room is given back. In the oldest syntax.
COMING = (
    "<script>(function(e){e.className+=' is-coming';window.addEventListener('load',function(){"
    "e.className=e.className.replace(' is-coming','')})})(document.currentScript.parentNode)</script>\n"
)


class Explorer(SphinxDirective):
    """Put an explorer and its still picture on the page."""

    required_arguments = 1
    has_content = True
    option_spec = {"figure": directives.unchanged_required}  # noqa: RUF012 (docutils reads it from the class)

    def run(self) -> list[nodes.Node]:
        (name,) = self.arguments
        caption = " ".join(self.content)
        page, _, figure = self.options.get("figure", "").partition(" ")
        try:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or not _script(Path(self.env.srcdir), name).is_file():
                there = sorted(path.stem for path in _script(Path(self.env.srcdir), name).parent.glob("*.js"))
                raise LookupError(
                    f"no explorer of this name in book/assets/explorers; there are {', '.join(there) or 'none'}"
                )
            if not figure:
                raise LookupError("the option `figure` must name a notebook and one of its figures")
            if not caption:
                raise LookupError("a sentence must say what the still picture shows")
            png, _, alt, width = find_figure(page_notebook(self.env, page), figure.strip())
        except (OSError, LookupError) as error:
            logger.warning("explorer %s: %s", name, error, location=self.get_location())
            return []
        own = self.env.metadata[self.env.docname]
        own.setdefault("explorers", []).append(name)
        own["html_theme.sidebar_secondary.remove"] = True  # the picture takes the room beside the text
        image = nodes.image(uri=kept_image(self.env, "notebook_figures", ".png", png), alt=alt)
        if width:
            image["width"] = f"{width}px"
        still = nodes.figure("", image, nodes.caption(caption, "", *self.parse_inline(caption)[0]), align="center")
        # For the line that says how it was made.
        still["notebook"] = f"{page.removeprefix('notebooks/')} {figure.strip()}"
        note = nodes.paragraph(STILL, STILL, classes=["explorer-still-note"])
        return [explorer("", nodes.container("", still, note, classes=["explorer-still"]), name=name)]


def _script(root: Path, name: str) -> Path:
    return root / "book" / "assets" / SCRIPTS / f"{name}.js"


def _open(self: nodes.NodeVisitor, node: explorer) -> None:
    self.body.append(self.starttag(node, "div", CLASS="explorer", **{"data-explorer": node["name"]}) + COMING)


def _close(self: nodes.NodeVisitor, node: explorer) -> None:
    self.body.append("</div>\n")


def _nothing(self: nodes.NodeVisitor, node: explorer) -> None:
    """Other formats show the still picture alone."""


def _load_scripts(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Load the scripts of a page's own explorers, after the text is there."""
    for name in dict.fromkeys(app.env.metadata.get(pagename, {}).get("explorers", [])):
        for file in (f"{SCRIPTS}/data/{name}.js", f"{SCRIPTS}/{name}.js"):
            if (Path(app.srcdir) / "book" / "assets" / file).is_file():
                app.add_js_file(file, loading_method="defer")


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_node(explorer, html=(_open, _close), latex=(_nothing, _nothing), text=(_nothing, _nothing))
    app.add_directive("explorer", Explorer)
    app.connect("html-page-context", _load_scripts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
