"""Prose pages quote notebooks instead of repeating them: a figure or a number stands once, in the page that computes it.

    ```{notebook-figure} notebooks/single_head/02_two_steps fig-two-steps-margins
    ```

    {named-result}`notebooks/single_head/02_two_steps train_accuracy .2f`
    {named-result}`notebooks/single_head/02_two_steps log10_clean_error_median power`  ten to that power
    {named-result}`notebooks/single_head/02_two_steps train_accuracy .2f interval`     0.98 [0.97, 0.99]: with NAME_low and NAME_high

Options of a figure: another `caption`; `small`, for a list of pictures. A figure, result or format that does not exist is a Sphinx
warning; the book is built with warnings as errors.
"""

import base64
import os
from hashlib import sha256
from pathlib import Path

import nbformat
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from bookkit.files import written_aside
from bookkit.results import read_results

logger = logging.getLogger(__name__)


def find_figure(notebook: nbformat.NotebookNode, name: str) -> tuple[bytes, str, str, int | None]:
    """PNG bytes, caption, alt text and CSS width of the figure called `name`. Raises LookupError when there is none."""
    for cell in notebook.cells:
        meta = cell.metadata.get("mystnb", {})
        if meta.get("figure", {}).get("name") != name:
            continue
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                width = output.get("metadata", {}).get("image/png", {}).get("width")
                png = base64.b64decode(output["data"]["image/png"])
                return png, meta["figure"].get("caption", ""), meta.get("image", {}).get("alt", ""), width
    raise LookupError(f"no figure called {name!r} with a picture")


def format_result(notebook: nbformat.NotebookNode, name: str, spec: str, *, interval: bool = False) -> str:
    """The named result as text, with the ends of its interval if these are asked for.

    Raises LookupError or ValueError when the name or the format is wrong, TypeError for a result without a value.
    """
    results = read_results(notebook)
    names = [name, f"{name}_low", f"{name}_high"] if interval else [name]
    if missing := [each for each in names if each not in results]:
        raise LookupError(f"no result called {missing[0]!r}; there are {', '.join(results) or 'none'}")
    value, *ends = (format(results[each], spec) for each in names)
    return f"{value} [{', '.join(ends)}]" if ends else value


def page_notebook(env: BuildEnvironment, page: str) -> nbformat.NotebookNode:
    """The notebook `page` as it is rendered. Raises OSError when there is none."""
    path = Path(env.srcdir) / f"{page}.ipynb"
    env.note_dependency(str(path))  # the prose page is read again when the notebook changes
    return nbformat.read(path, as_version=4)


def kept_image(env: BuildEnvironment, folder: str, suffix: str, data: bytes) -> str:
    """Write an image under its content's name beside the output; returns its address from the page that is being read."""
    target = Path(env.app.outdir).parent / folder / f"{sha256(data).hexdigest()[:16]}{suffix}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(target) as aside:
        aside.write_bytes(data)
    return os.path.relpath(target, Path(env.doc2path(env.docname)).parent)


def quoted_figure(
    directive: SphinxDirective, page: str, name: str, caption: str | None = None, small: bool = False
) -> nodes.figure:
    """The figure `name` of a page, with its own caption if none is given. Raises OSError or LookupError when there is none."""
    env = directive.env
    png, own, alt, width = find_figure(page_notebook(env, page), name)
    image = nodes.image(uri=kept_image(env, "notebook_figures", ".png", png), alt=alt)
    if small:
        image["classes"].append("small-picture")
    elif width:
        image["width"] = f"{width}px"
    text = own if caption is None else caption
    figure = nodes.figure("", image, nodes.caption(text, "", *directive.parse_inline(text)[0]), align="center")
    figure["notebook"] = (
        f"{page.removeprefix('notebooks/')} {name}"  # for the line that says how it was made: `provenance`
    )
    return figure


class NotebookFigure(SphinxDirective):
    """A figure of a notebook, with its caption and alt text."""

    required_arguments = 2
    option_spec = {"caption": directives.unchanged, "small": directives.flag}  # noqa: RUF012 (docutils reads it from the class)

    def run(self) -> list[nodes.Node]:
        page, name = self.arguments
        try:
            return [quoted_figure(self, page, name, self.options.get("caption"), small="small" in self.options)]
        except (OSError, LookupError) as error:
            logger.warning("notebook-figure %s: %s", page, error, location=self.get_location())
            return []


class NamedResult(SphinxRole):
    """A named result of a notebook: page, name, an optional Python format, and after that the word `interval` if its ends are wanted."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        page, name, spec, ends, *more = [*self.text.split(), "", "", ""]
        try:
            if ends not in ("", "interval") or any(more):
                raise ValueError("after page, name and format only the word interval may follow")
            power = spec == "power" and not ends
            text = format_result(page_notebook(self.env, page), name, ".0f" if power else spec, interval=bool(ends))
        except (OSError, LookupError, ValueError, TypeError) as error:
            logger.warning("named-result %s: %s", self.text, error, location=self.get_location())
            text, power = "?", False
        told = text.replace("-", "\N{MINUS SIGN}")
        shown = [nodes.Text("10"), nodes.superscript("", told)] if power else [nodes.Text(told)]
        return [nodes.inline(text, "", *shown, classes=["named-result"])], []


def setup(app: Sphinx) -> dict:
    """Register the directive and the role."""
    app.add_directive("notebook-figure", NotebookFigure)
    app.add_role("named-result", NamedResult())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
