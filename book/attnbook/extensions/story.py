"""A page that tells a story beside a drawing: the drawing stays in view, short texts pass by.

    ```{story-stage}
    ```                                 once, under the title: the place of the drawing

    ```{story-panel} head
    [Theorem](...), [explorer](...)
    ```                                 at the end of each section: its still picture, and a line of links

    {drawn}`head.margins.1.0 .2f`       a number that is drawn, with a Python format; `power` writes ten to that power, `digits` 40 000
    {glyph}`sample`                     a small sign

Everything lies in book/assets/story/: `run.json` (the numbers), `story.js`, and by the same drawing code `panel-NAME.svg` and
`glyph-NAME.svg`. Still pictures stand in the page itself, so that they take its colours. What is missing is a Sphinx warning.
"""

import json
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

logger = logging.getLogger(__name__)

FOLDER = "story"  # below the static folder
# The place is kept while the script loads; where it does not run, it is given back. In the oldest syntax.
COMING = (
    "<script>(function(s){var e=s.parentNode,p=e.parentNode;p.className+=' is-story';window.addEventListener('load',function(){"
    "if(e.getAttribute('data-state')!=='live')p.className=p.className.replace(' is-story','')})})(document.currentScript)</script>"
)


def story_file(root: str | Path, name: str) -> Path:
    """A file of the story. Raises LookupError where there is none."""
    path = Path(root) / "book" / "assets" / FOLDER / name
    if not re.fullmatch(r"[a-z0-9_-]+\.[a-z]+", name) or not path.is_file():
        raise LookupError(f"no file {name} in book/assets/{FOLDER}")
    return path


def number(data: object, name: str) -> float:
    """The number at `name`, words and indices with dots between. Raises LookupError."""
    for part in name.split("."):
        try:
            data = data[int(part)] if isinstance(data, list) else data[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError, ValueError):
            raise LookupError(f"the run has no number {name!r}: nothing is called {part!r}") from None
    if not isinstance(data, int | float):
        raise LookupError(f"{name!r} is not a number")
    return data


def written(value: float, spec: str) -> list[nodes.Node]:
    """The number as text; `power`: ten to that power. Raises ValueError for a format that does not exist."""
    if spec == "power":
        return [nodes.Text("10"), nodes.superscript("", f"{value:.0f}".replace("-", "\N{MINUS SIGN}"))]
    text = f"{value:,.0f}".replace(",", "\N{NO-BREAK SPACE}") if spec == "digits" else format(value, spec)
    return [nodes.Text(text.replace("-", "\N{MINUS SIGN}"))]


class Drawn(SphinxRole):
    """A number of the run."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        name, _, spec = self.text.partition(" ")
        try:
            path = story_file(self.env.srcdir, "run.json")
            self.env.note_dependency(str(path))
            found = written(number(json.loads(path.read_text(encoding="utf-8")), name), spec.strip())
        except (LookupError, ValueError) as error:
            logger.warning("drawn %s: %s", self.text, error.args[0], location=self.get_location())
            found = [nodes.Text("?")]
        return [nodes.inline("", "", *found, classes=["drawn"])], []


class Glyph(SphinxRole):
    """A small sign within the text; it says its own name to those who do not see it."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        try:
            path = story_file(self.env.srcdir, f"glyph-{self.text}.svg")
        except LookupError as error:
            logger.warning("glyph %s: %s", self.text, error.args[0], location=self.get_location())
            return [], []
        self.env.note_dependency(str(path))
        return [nodes.raw("", f'<span class="glyph">{_inline(path)}</span>', format="html")], []


def _inline(path: Path) -> str:
    return path.read_text(encoding="utf-8").replace("\n", "")


class Stage(SphinxDirective):
    """The place of the drawing, with its numbers."""

    def run(self) -> list[nodes.Node]:
        try:
            numbers = story_file(self.env.srcdir, "run.json")
            story_file(self.env.srcdir, "story.js")
        except LookupError as error:
            logger.warning("story-stage: %s", error.args[0], location=self.get_location())
            return []
        self.env.note_dependency(str(numbers))
        self.env.metadata[self.env.docname]["story"] = True
        data = numbers.read_text(encoding="utf-8").strip().replace("<", "\\u003c")
        return [
            nodes.raw(
                "",
                f'<div class="story-stage screen-only" data-story=""><script type="application/json">{data}</script>{COMING}</div>',
                format="html",
            )
        ]


class Panel(SphinxDirective):
    """The still picture of a panel, and the links that close it."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        (name,) = self.arguments
        try:
            path = story_file(self.env.srcdir, f"panel-{name}.svg")
        except LookupError as error:
            logger.warning("story-panel %s: %s", name, error.args[0], location=self.get_location())
            return []
        self.env.note_dependency(str(path))
        still = nodes.raw(
            "", f'<div class="story-panel" data-panel="{name}">{path.read_text(encoding="utf-8")}</div>', format="html"
        )
        if not self.content:
            return [still]
        text = " ".join(self.content)
        return [still, nodes.paragraph(text, "", *self.parse_inline(text)[0], classes=["story-links"])]


def _load_script(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    if app.env.metadata.get(pagename, {}).get("story"):
        app.add_js_file(f"{FOLDER}/story.js", loading_method="defer")


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_directive("story-stage", Stage)
    app.add_directive("story-panel", Panel)
    app.add_role("drawn", Drawn())
    app.add_role("glyph", Glyph())
    app.connect("html-page-context", _load_script)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
