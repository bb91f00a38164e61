"""The path through the book: each of its pages says how far along one is, and behind the last one nothing follows.

    {path}`hours`      "three hours": what reading the whole path takes; {path}`pages` is the number of its pages

See `bookkit.toc`. "Next" at the foot of a page needs no help: it follows `_toc.yml`.
"""

import html
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

from bookkit.settings import settings
from bookkit.toc import Way, way

logger = logging.getLogger(__name__)


@cache
def the_path(source: str) -> Way:
    """The path of the book in this folder; without pages where it has none."""
    return way(Path(source), settings().path)


class PathRole(SphinxRole):
    """How long the path is."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the words; a warning, and a question mark, for anything else."""
        path = the_path(str(self.env.srcdir))
        words = {"hours": path.hours, "pages": str(len(path.pages))}
        if self.text not in words or not path.pages:
            logger.warning("path: knows hours and pages of a path; got %r", self.text, location=self.get_location())
        return [nodes.Text(words.get(self.text, "?"))], []


def place_line(app: Sphinx, pagename: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """The line under the title of a page of the path."""
    path = the_path(str(app.srcdir))
    if pagename not in path.minutes:
        return
    if pagename == path.pages[-1]:
        context["next"] = None
    place, total = path.pages.index(pagename) + 1, len(path.pages)
    about = max(5, 5 * round(path.minutes[pagename] / 5))
    first = html.escape(app.builder.get_relative_uri(pagename, path.pages[0]))
    line = (
        f'<p class="path-line screen-only" style="--done: {place / total:.0%}">'
        f'<a href="{first}">{html.escape(path.caption)}</a> · {place} of {total} · about {about} minutes</p>'
    )
    context["body"] = context["body"].replace("</h1>", f"</h1>\n{line}", 1)


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_role("path", PathRole())
    app.connect("html-page-context", place_line)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
