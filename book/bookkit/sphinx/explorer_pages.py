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

from bookkit.sphinx.html_elements import element
from bookkit.sphinx.notebook_quotes import quoted_figure

logger = logging.getLogger(__name__)

SCRIPTS = "explorers"  # below the static folder
STILL = "Where scripts run, this picture moves: sliders, a point to drag, values computed as you look."


# Keeps room while the scripts load; where they cannot be read, the room is given back. In the oldest syntax.
COMING = (
    "\n<script>(function(e){e.className+=' is-coming';window.addEventListener('load',function(){"
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
            still = quoted_figure(self, page, figure.strip(), caption)
        except (OSError, LookupError) as error:
            logger.warning("explorer %s: %s", name, error, location=self.get_location())
            return []
        own = self.env.metadata[self.env.docname]
        own.setdefault("explorers", []).append(name)
        own["html_theme.sidebar_secondary.remove"] = True  # the picture takes the room beside the text
        note = nodes.paragraph(STILL, STILL, classes=["explorer-still-note"])
        content = nodes.container("", still, note, classes=["explorer-still"])
        return [element("div", nodes.raw("", COMING, format="html"), content, class_="explorer", data_explorer=name)]


def _script(root: Path, name: str) -> Path:
    return root / "book" / "assets" / SCRIPTS / f"{name}.js"


def _load_scripts(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Load the scripts of a page's own explorers, after the text is there."""
    for name in dict.fromkeys(app.env.metadata.get(pagename, {}).get("explorers", [])):
        for file in (f"{SCRIPTS}/data/{name}.js", f"{SCRIPTS}/{name}.js"):
            if (Path(app.srcdir) / "book" / "assets" / file).is_file():
                app.add_js_file(file, loading_method="defer")


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.setup_extension("bookkit.sphinx.html_elements")
    app.add_directive("explorer", Explorer)
    app.connect("html-page-context", _load_scripts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
