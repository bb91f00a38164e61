"""Exercises of pages, gathered on another one: text and solution stand once, on the page that asks.

    ```{gathered-exercises}
    notebooks/single_head/02_two_steps 1 2
    ```

Each row names a page and its exercises. All must be in the table of answers: what is gathered can be checked. An edition without
solutions has none here either.
"""

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

import nbformat
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from bookkit.exercises.checking import precision
from bookkit.exercises.table import page_prefix, read
from bookkit.pages.catalogue import find_root
from bookkit.settings import settings

logger = logging.getLogger(__name__)

HEADING = "\n## Exercises\n"


def points(text: str, folded: bool = False) -> dict[int, str]:
    """The numbered exercises in the Markdown of a page, or their folded solutions."""
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    given, _, solutions = section.partition("<details>")
    parts = re.split(r"^(\d+)\. ", solutions.partition("</details>")[0] if folded else given, flags=re.M)
    # What stands behind the list begins its line.
    return {int(n): re.split(r"\n\n(?=\S)", part)[0].strip() for n, part in zip(parts[1::2], parts[2::2], strict=True)}


def as_item(number: int, page: str, exercise: int, text: str, entry: dict, here: str) -> str:
    """One exercise as Markdown, for a document `here`. Raises KeyError for one that the page does not have."""
    title = re.search(r"^# (.+)$", text, flags=re.M)[1]  # type: ignore[index]
    link = f"[{title}]({relpath(page, dirname(here))}.ipynb#exercises)"
    given, solved = points(text)[exercise], points(text, folded=True).get(exercise)
    asked = (
        f"*Asked for:* {entry['asks'].removesuffix('.')} ({precision(entry['digits'])}), exercise {exercise} of {link}."
    )
    lines = [_moved(given, page, here), "", asked]
    if solved:
        lines += ["", "<details>", "<summary>Solution</summary>", "", _moved(solved, page, here), "", "</details>"]
    indented = re.sub(r"^(?=.)", "    ", "\n".join(lines), flags=re.M)
    return f"{number}.{indented[len(str(number)) + 1 :]}\n"


def _moved(text: str, page: str, here: str) -> str:
    """Text of a page for another document: links to pages beside it, and lines that began as those of a list."""
    text = re.sub(r"^ {1,4}", "", text, flags=re.M)
    return re.sub(
        r"\]\((?![a-z]+:|#)([^)\s]+)\)",
        lambda link: f"]({relpath(normpath(f'{dirname(page)}/{link[1]}'), dirname(here))})",
        text,
    )


class GatheredExercises(SphinxDirective):
    """The exercises named, one after the other, under numbers of this page."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return a numbered list; a warning for a page or an exercise that is not there, or that cannot be checked."""
        root = find_root()
        entries, _ = read(root / settings(root).exercises)
        items: list[str] = []
        for row in self.content:
            page, *numbers = row.split()
            path = Path(self.env.srcdir) / f"{page}.ipynb"
            self.env.note_dependency(str(path))
            for exercise in map(int, numbers):
                try:
                    cells = nbformat.read(path, as_version=4).cells
                    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
                    entry = entries[f"{page_prefix(page)}{exercise}"]
                    items.append(as_item(len(items) + 1, page, exercise, text, entry, self.env.docname))
                except (OSError, KeyError) as error:
                    told = f"gathered-exercises: {page} has no exercise {exercise} that can be checked"
                    logger.warning("%s (%r)", told, error, location=self.get_location())
        held = nodes.container(classes=["gathered-exercises"])
        self.state.nested_parse(StringList("\n".join(items).splitlines(), self.env.docname), self.content_offset, held)
        return [held]


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_directive("gathered-exercises", GatheredExercises)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
