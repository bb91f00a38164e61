"""Docstrings in the reference: Sphinx's autodoc reads them, napoleon their sections, and MyST their Markdown.

    ```{eval-rst}
    .. automodule:: attnlib.single_head
    ```

Fields of a dataclass are described by the comment behind each. A type in a signature leads to its entry, where it has one.
"""

import dataclasses
import importlib
import inspect
import re
from functools import cache
from typing import Any

from docutils import nodes
from docutils.utils import new_document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from bookkit.settings import settings

FENCED = r"```pycon\n\1\n```"


def fields_of(thing: Any) -> dict[str, str]:
    """Public fields of a dataclass, and the comment behind each; nothing of anything else."""
    if not (inspect.isclass(thing) and dataclasses.is_dataclass(thing)):
        return {}
    names = [field.name for field in dataclasses.fields(thing) if not field.name.startswith("_")]
    source = inspect.getsource(thing)
    comments = {name: re.search(rf"^    {name}: .*?  # (.+)", source, re.M) for name in names}
    return {name: found[1] if found else "" for name, found in comments.items()}


class Markdown(SphinxDirective):
    """What MyST makes of the content, in a text that is not Markdown."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Its nodes, as if they stood here."""
        inner = new_document(self.env.doc2path(self.env.docname), self.state.document.settings)
        MystParser().parse("\n".join(self.content), inner)
        return inner.children


def write_markdown(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Of what napoleon made: an example as code, numbers of papers as links, and the fields of a class before its source."""
    if what == "module":  # the page says it
        lines.clear()
        return
    if what == "property":  # napoleon takes "(R, n): ..." for a type
        lines[:] = inspect.getdoc(thing).splitlines()
    text = re.sub(r"^\.\. rubric:: Example\n\n((?:.+\n)*.+)", FENCED, "\n".join(lines), flags=re.M)
    text = re.sub(r"arXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", text)
    text = re.sub(r"^(:[^:]+: )>", r"\1\\>", text, flags=re.M)  # ">= 0" is no quotation
    if what == "function":  # of the class that it returns, where that has no entry of its own
        thing = vars(inspect.getmodule(thing)).get(inspect.signature(thing).return_annotation)
        thing = None if thing in entries() else thing
    if fields := [f"  - **{field}**: {comment}" for field, comment in fields_of(thing).items() if comment]:
        place = re.search(r"^:(raises|Source)|\Z", text, re.M).start()
        title = ":Fields:" if what == "class" else f":Fields of {thing.__name__}:"
        text = "\n".join([text[:place], title, *fields, "", text[place:]])
    lines[:] = [".. markdown::", "", *(f"   {line}" for line in text.splitlines())]


@cache
def entries() -> dict[Any, str]:
    """Public classes, and what the reference calls each."""
    faces = [importlib.import_module(face) for face in settings().faces]
    every = {f"{face.__name__}.{name}": vars(face)[name] for face in faces for name in face.__all__}
    return {thing: name for name, thing in every.items() if inspect.isclass(thing)}


def link_type(app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Node) -> nodes.Node | None:
    """Lead from the module in which a class is made to its entry; a type that has none is a word."""
    if node.get("refdomain") != "py" or node["reftype"] not in ("class", "exc"):
        return None
    known = {f"{kind.__module__}.{kind.__qualname__}": name for kind, name in entries().items()}
    if target := known.get(node["reftarget"]):
        return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, shown)
    return shown


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    for extension in ("sphinx.ext.autodoc", "sphinx.ext.napoleon"):
        app.setup_extension(extension)
    app.add_directive("markdown", Markdown)
    app.connect("autodoc-process-docstring", write_markdown, priority=600)  # after napoleon
    app.connect("missing-reference", link_type)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
