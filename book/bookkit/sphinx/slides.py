"""A lecture on a page: each slide beside what is said to it.

    ```{slide} story/panel-head.svg
    :title: Before training, the head looks at both tokens alike
    :minutes: 4
    :line: All scores are zero, so both weights are $\tfrac12$.
    What the speaker says, draws and asks.
    ```

The argument is a picture below book/assets, an SVG, or nothing. Title and line are on the slide, the text is not.
"""

from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)


class Slide(SphinxDirective):
    """One slide: title, minutes, picture and line; its content is for the speaker."""

    optional_arguments = 1
    has_content = True
    option_spec: ClassVar = {
        "title": directives.unchanged_required,
        "minutes": directives.positive_int,
        "line": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        if missing := [name for name in ("title", "minutes", "line") if name not in self.options]:
            logger.warning("slide: option %s is missing", ", ".join(missing), location=self.get_location())
            return []
        shown = nodes.container(classes=["slide-shown"])
        shown += self._said("title")
        for name in self.arguments:
            path = Path(self.env.srcdir) / "book" / "assets" / name
            if path.suffix != ".svg" or not path.is_file():
                logger.warning("slide: no picture %s in book/assets", name, location=self.get_location())
                return []
            self.env.note_dependency(str(path))
            shown += nodes.raw(
                "", f'<div class="slide-picture">{path.read_text(encoding="utf-8")}</div>', format="html"
            )
        shown += self._said("line")
        minutes = self.options["minutes"]
        spoken = nodes.container(classes=["slide-spoken"])
        spoken += nodes.paragraph("", f"{minutes} minute{'s' if minutes > 1 else ''}", classes=["slide-minutes"])
        self.state.nested_parse(self.content, self.content_offset, spoken)
        return [nodes.container("", shown, spoken, classes=["slide"])]

    def _said(self, name: str) -> nodes.paragraph:
        text = self.options[name]
        return nodes.paragraph(text, "", *self.parse_inline(text)[0], classes=[f"slide-{name}"])


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_directive("slide", Slide)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
