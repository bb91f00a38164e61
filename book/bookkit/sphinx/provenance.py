"""Under every figure, folded: how it was made. Command, parameters, what is left to chance, time.

The line is added to each figure that comes from a notebook, in the notebook's own page and where prose quotes it. Nothing of it
is typed: parameters are read from the cell tagged `parameters`, the cell is found by the figure's name, seconds come from the
build that ran the page or from `page_times`.

A figure that is quoted elsewhere asks for the line by `figure["notebook"] = "single_head/02_two_steps fig-two-steps-margins"`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.nodes import clean_astext

from bookkit.pages.parameters import Parameter, parameter_cells, parse_parameters
from bookkit.pages.times import PageTime, page_times
from bookkit.settings import settings
from bookkit.sphinx.html_elements import element, tag

logger = logging.getLogger(__name__)

TITLE = "How this figure was made"
PYTHON = ".venv/bin/python -m"

# Parameters that are about chance: where the random streams start, and how many of them there are.
SEEDS = {"seed"}
DRAWS = {"draws", "runs", "seeds", "search_draws", "few_draws"}


@dataclass(frozen=True)
class Provenance:
    """What made one figure: `page` as in single_head/02_two_steps, `cell` counted among the page's code cells."""

    page: str
    cell: int
    parameters: tuple[Parameter, ...]
    time: PageTime | None

    @property
    def command(self) -> str:
        """What a reader types to make the page, and this figure with it, again."""
        return f".venv/bin/{settings().program} rerun {self.page} -o out.ipynb --force"


def provenance(source: Path, page: str, name: str) -> Provenance:
    """How the figure `name` of `page` was made, from the notebook below `source`/notebooks.

    Raises LookupError where the page has no such figure, ValueError for a parameters cell that is not well formed.
    """
    path = source / "notebooks" / f"{page}.ipynb"
    cells, parameters = _read(path, path.stat().st_mtime_ns)
    if name not in cells:
        raise LookupError(f"no figure called {name!r} in page {page}; there are {', '.join(cells) or 'none'}")
    return Provenance(page, cells[name], parameters, page_times(source).get(page))


@lru_cache(maxsize=8)  # a page has many figures
def _read(path: Path, changed: int) -> tuple[dict[str, int], tuple[Parameter, ...]]:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    names = [cell.metadata.get("mystnb", {}).get("figure", {}).get("name") for cell in code]
    parameters = [p for cell in parameter_cells(notebook) for p in parse_parameters(cell.source)]
    return {name: number for number, name in enumerate(names, start=1) if name}, tuple(parameters)


def chance(parameters: Sequence[Parameter]) -> list[str]:
    """What is random: seeds and numbers of draws with their meaning. Empty where the page has neither."""
    return [f"{p.name} = {p.default!r} ({p.help})" for p in parameters if p.name in SEEDS | DRAWS]


# --- nodes ----------------------------------------------------------------------------------------------------------


def folded(of: str, *children: nodes.Node) -> tag:
    """The folded line of the figure whose caption begins with `of`."""
    # Screen readers list such lines one after another: each says whose it is (unseen, see book.css).
    words = re.sub(r"[\\${}]", "", of)  # of a formula what can be read aloud
    hidden = nodes.inline("", f": {words}", classes=["provenance-of"])
    return element("details", element("summary", TITLE, hidden), *children, class_="provenance")


def command(line: str) -> nodes.literal_block:
    return nodes.literal_block(line, line, language="bash")


def sentence(*parts: str | nodes.Node) -> nodes.paragraph:
    children = [nodes.Text(part) if isinstance(part, str) else part for part in parts]
    return nodes.paragraph("", "", *children)


def notebook_nodes(made: Provenance, figure: nodes.figure, link: str | nodes.Node = "this page") -> tag:
    """The folded line of `figure`; `link` leads to it, where it is quoted."""
    parts = [
        sentence(f"Code cell {made.cell} of ", link, ". To run the page again, on your machine:"),
        command(made.command),
    ]
    if made.parameters:
        listed: list[str | nodes.Node] = []
        for p in made.parameters:
            # Paper gets the values without their meanings, see book.css: these stand in the parameters cell.
            meaning = nodes.inline("", f" {p.help}", classes=["provenance-meaning"])
            listed += [nodes.literal("", f"{p.name} = {p.default!r}"), meaning, "; "]
        parts.append(sentence("Parameters, to be changed by -p NAME VALUE: ", *listed[:-1], "."))
    if random := chance(made.parameters):
        parts.append(sentence(f"Random: {'; '.join(random)}."))
        parts[-1]["classes"].append("provenance-random")
    if kept := settings().kept.get(made.page):
        parts.append(sentence("Some results of the page come from long runs that are stored. To make those again:"))
        parts.append(command("\n".join(f"{PYTHON} {each}" for each in kept)))
    parts.append(sentence(f"Time of the whole page: {made.time.sentence if made.time else 'not measured yet'}."))
    caption = next(iter(figure.findall(nodes.caption)), nodes.Text("figure")).astext()
    return folded(re.split(r"(?<=[a-z])[.:;,]\s", caption, maxsplit=1)[0][:80], *parts)


# --- Sphinx ---------------------------------------------------------------------------------------------------------


class AddProvenance(SphinxPostTransform):
    """Put the folded line after each figure that was computed."""

    default_priority = 5  # after myst-nb has chosen among outputs (4)

    def run(self, **options: object) -> None:
        """Raise a Sphinx warning for a figure whose page or name is wrong."""
        docname = self.env.docname
        for figure in list(self.document.findall(nodes.figure)):
            given = figure.get("notebook", "")
            own = [name for name in [*figure["names"], *figure["ids"]] if name.startswith("fig-")]
            if not given and own and docname.startswith("notebooks/"):  # it stands in its own notebook
                given = f"{docname.removeprefix('notebooks/')} {own[0]}"
            if not given:
                continue
            page, _, name = given.partition(" ")
            try:
                link = "this page" if docname == f"notebooks/{page}" else self._link(f"notebooks/{page}", name)
                made = notebook_nodes(provenance(Path(self.env.srcdir), page, name), figure, link)
            except (OSError, LookupError, ValueError) as error:
                logger.warning("provenance of %s: %s", given, error, location=docname)
                continue
            figure.parent.insert(figure.parent.index(figure) + 1, made)

    def _link(self, page: str, name: str) -> nodes.reference:
        """As Sphinx writes a link to a page; it ends at the figure."""
        title = clean_astext(self.env.titles[page])
        address = f"{self.app.builder.get_relative_uri(self.env.docname, page)}#{name}"
        return nodes.reference("", "", nodes.inline("", title, classes=["doc"]), internal=True, refuri=address)


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.setup_extension("bookkit.sphinx.html_elements")
    app.add_post_transform(AddProvenance)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
