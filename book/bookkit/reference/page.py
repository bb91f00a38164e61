"""The reference: an entry for every public name, made from docstrings, pages and claims.

    ```{reference} attnlib.single_head      a list of the names of a face, then a section for each
    ```

    {api}`attnlib.single_head.two_steps`    a link to the entry of a name, or of a method of a class

Sections have permanent names: `reference/single_head.html#two-steps`. Signatures are those of Sphinx' Python domain, sections
of docstrings are read by napoleon. A name that lacks something (`entries.problems`), a face that no page shows, a link to
what is not public: each is a Sphinx warning, and the book is built with warnings as errors.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from bookkit.code import code_of
from bookkit.ledger.records import anchor as claim_anchor
from bookkit.ledger.records import in_reading_order, read_ledger
from bookkit.pages.catalogue import UserError, find_root
from bookkit.reference.entries import Entry, Field, anchor, exported, fields_in, fields_of, problems
from bookkit.reference.reach import Reach, core, page_module
from bookkit.reference.sources import Definition, Module, Sources
from bookkit.settings import settings
from bookkit.sphinx.html_elements import element

logger = logging.getLogger(__name__)

FEW = 12  # claims that are listed in the open
_FENCE = "`" * 8  # longer than any fence in a docstring


class Faces:
    """The public names of a book, who uses them and what checks them."""

    def __init__(self, root: Path, source: Path) -> None:
        code = code_of(root)
        self.sources = Sources.of(code)
        self.faces = {face: exported(self.sources, face) for face in settings(root).faces}
        every = [entry.made for entries in self.faces.values() for entry in entries]
        records = in_reading_order(read_ledger(source))
        judging = {record["function"].partition(".")[0] for record in records}
        library = {made.name for name in code.names if name not in judging for made in self.sources.modules(name)}
        reach = Reach(self.sources, library | {made.module for made in every}, code.names)
        inner = Counter(made for entry in every if (made := core(self.sources, entry)))
        # An inner function that several public ones hand their arguments to is none of them.
        self._cores = {
            entry: made for entry in every if inner[made := core(self.sources, entry)] == 1 and made not in every
        }
        self.pages = {name: reach.used(page) for name, page in _pages(source)}
        self.claims: list[tuple[dict, set[Definition]]] = []
        known: dict[str, set[Definition]] = {}
        for record in records:
            judge = record["function"]
            if judge not in known:
                made = self.sources.find(judge)
                known[judge] = reach.checked(made) if made else set()
            self.claims.append((record, known[judge]))

    def using(self, entry: Entry) -> list[str]:
        """Pages that use a name."""
        return [name for name, used in self.pages.items() if self._meant(entry) & used]

    def checking(self, entry: Entry) -> list[dict]:
        """Records of the claims that check it."""
        return [record for record, checked in self.claims if self._meant(entry) & checked]

    def _meant(self, entry: Entry) -> set[Definition]:
        return {entry.made, self._cores.get(entry.made, entry.made)}

    def type_address(self, entry: Entry, words: str) -> str:
        """`face.Class` that a type in the signature of `entry` means; empty for what is not public."""
        head, *rest = words.split(".")
        found = self.sources.resolve(self.sources.module(entry.made.module), head)
        for word in rest:
            found = self.sources.resolve(found, word) if isinstance(found, Module) else None
        for entries in self.faces.values():
            for other in entries:
                if other.made == found:
                    return f"{other.face}.{other.name}"
        return ""

    def address(self, words: str, face: str = "") -> str:
        """`face.name` or `face.Class.method` that is meant by `words` in a text about `face`; empty if none is."""
        found = [
            f"{entry.face}.{entry.name}{rest}"
            for entries in self.faces.values()
            for entry in entries
            for rest in ("", *(f".{method.name}" for method in entry.methods))
            if words in (f"{entry.name}{rest}", f"{entry.face}.{entry.name}{rest}")
        ]
        own = [name for name in found if name.startswith(f"{face}.")]
        return own[0] if face and own else found[0] if len(found) == 1 else ""


def _pages(source: Path):
    paths = sorted((source / "notebooks").rglob("*.ipynb"))
    for path in paths:
        inside = path.relative_to(source)
        if not any(part.startswith(".") for part in inside.parts):
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
            yield inside.with_suffix("").as_posix(), page_module(inside.with_suffix("").as_posix(), code)


@lru_cache(maxsize=1)  # one process of Sphinx renders one book
def _faces(source: Path) -> Faces:
    return Faces(find_root(), source)


def faces_of(env: BuildEnvironment) -> Faces:
    """Those of the book that is being rendered."""
    return _faces(Path(env.srcdir))


class Reference(SphinxDirective):
    """All entries of one face."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """A list of the names, then a section for each. Warns of names that lack something."""
        face = self.arguments[0]
        try:
            known = faces_of(self.env)
        except (LookupError, UserError) as error:
            logger.warning("reference: %s", error, location=self.get_location())
            return []
        if face not in known.faces:
            there = ", ".join(known.faces) or "none"
            logger.warning(
                "reference: faces of [tool.bookkit] are %s; got %s", there, face, location=self.get_location()
            )
            return []
        self.env.metadata[self.env.docname]["reference"] = face
        entries = known.faces[face]
        for problem in problems(entries):
            logger.warning("reference: %s", problem, location=self.get_location())
        glance = "\n".join(f"- {{api}}`{face}.{e.name}`: {_first_sentence(e.docstring)}" for e in entries)
        return [*self._markdown(glance, known, face), *(self._section(known, entry) for entry in entries)]

    def _section(self, known: Faces, entry: Entry) -> nodes.section:
        title = nodes.title("", "", nodes.literal(entry.name, entry.name))
        section = nodes.section("", title, ids=[entry.anchor], names=[entry.anchor])
        text = _described(known, entry)
        section += self._markdown(text, known, entry.face)
        _link_types(known, entry, section)
        domain = self.env.get_domain("py")
        domain.note_object(f"{entry.face}.{entry.name}", entry.kind, entry.anchor, location=section)
        described = list(section.findall(addnodes.desc))
        for method, made in zip(entry.methods, described[1:], strict=True):
            name = anchor(entry.name, method.name)
            made[0]["ids"] = [name]
            domain.note_object(f"{entry.face}.{entry.name}.{method.name}", "method", name, location=section)
        if described:
            described[0][-1] += [*self._users(known.using(entry)), *self._checks(known.checking(entry))]
            described[0]["classes"].append("reference-entry")
        return section

    def _users(self, pages: Sequence[str]) -> list[nodes.Node]:
        links = ", ".join(f"{{doc}}`/{page}`" for page in pages)
        text = f"Used by: {links}" if pages else "Used by: no page directly"
        return [nodes.paragraph("", "", *self.parse_inline(text)[0], classes=["reference-users"])]

    def _checks(self, records: Sequence[dict]) -> list[nodes.Node]:
        if not records:
            return []
        pages: dict[str, list[dict]] = {}
        for record in records:
            pages.setdefault(record["page"], []).append(record)
        lines = [f"{{doc}}`/{page}`: {', '.join(map(_claim, own))}" for page, own in pages.items()]
        listed = element("ul", *(element("li", *self.parse_inline(line)[0]) for line in lines))
        if len(records) <= FEW:
            text = f"Checked by: {'; '.join(lines)}"
            return [nodes.paragraph("", "", *self.parse_inline(text)[0], classes=["reference-checks"])]
        where = f"on {len(pages)} pages" if len(pages) > 1 else "on one page"
        summary = element("summary", f"Checked by {len(records)} claims {where}")
        return [element("details", summary, listed, class_="reference-checks")]

    def _markdown(self, text: str, known: Faces, face: str) -> list[nodes.Node]:
        holder = nodes.container()
        self.state.nested_parse(StringList(text.splitlines(), source=face), self.content_offset, holder)
        for literal in list(holder.findall(nodes.literal)):
            if not isinstance(literal.parent, addnodes.pending_xref) and (link := self._link(known, face, literal)):
                literal.replace_self(link)
        return holder.children

    def _link(self, known: Faces, face: str, literal: nodes.literal) -> nodes.Node | None:
        """Code that is the name of an entry or of a page, as a link to it."""
        words = literal.astext()
        if address := known.address(words, face):
            return _reference("py", "obj", address, self.env.docname, literal.deepcopy())
        page = next((n for n in self.env.found_docs if "/" in words and f"/{n}".endswith(f"/{words}")), None)
        return _reference("std", "doc", f"/{page}", self.env.docname, nodes.inline(page, page), False) if page else None


def _reference(
    domain: str, kind: str, target: str, docname: str, shown: nodes.Node, explicit: bool = True
) -> addnodes.pending_xref:
    return addnodes.pending_xref(
        "", shown, refdomain=domain, reftype=kind, reftarget=target, refexplicit=explicit, refwarn=True, refdoc=docname
    )


def _link_types(known: Faces, entry: Entry, section: nodes.section) -> None:
    """Types and errors lead to their entries; those that have none are words. Sphinx would guess by the last name alone."""
    for link in list(section.findall(addnodes.pending_xref)):
        if (link["refdomain"] == "py" and link["reftype"] in ("class", "exc")) or "py:module" in link:
            if address := known.type_address(entry, link["reftarget"]):
                link["reftype"], link["reftarget"], link["refexplicit"] = "obj", address, True
            else:
                link.replace_self(link.children)


def _claim(record: dict) -> str:
    return f"{{ref}}`{claim_anchor(record['id'])}`"


def _first_sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s(?=[A-Z`$])", paragraph, maxsplit=1)[0].rstrip(":.")


def _described(known: Faces, entry: Entry) -> str:
    """MyST of an entry: its signature, its docstring, its fields and methods."""
    body = [*_arxiv(entry.body), ""]
    told = [":Fields:", *_listed(entry.fields)] if entry.fields else []
    if given := _given_back(known, entry):
        name, fields = given
        told = [f":Fields of {name}:", *_listed(fields)]
    after = next(number for number, line in enumerate([*body, ":Source:"]) if re.match(":(raises|Source)", line))
    body[after:after] = [*told, ""] if told else []
    body += _code_block(entry.example)
    for method in entry.methods:
        kind = "property" if method.kind == "property" else "method"
        signature = method.name if kind == "property" else f"{method.name}{method.signature}"
        options = [":no-contents-entry:", *([":classmethod:"] if method.kind == "classmethod" else [])]
        if kind == "property":
            options += [f":type: {returned}"] if (returned := method.signature.partition(" -> ")[2]) else []
        body += _directive(f"py:{kind}", signature, options, fields_of(method.docstring), _FENCE[:-1])
    kind = {"function": "py:function", "class": "py:class", "data": "py:data"}[entry.kind]
    signature, options = entry.signature, []
    if entry.kind == "data":
        signature, _, value = signature.partition(" = ")
        options.append(f":value: {value}")
    return "\n".join(_directive(kind, signature, options, body, _FENCE))


def _directive(kind: str, signature: str, options: Iterable[str], body: Iterable[str], fence: str) -> list[str]:
    return [f"{fence}{{{kind}}} {signature}", ":no-index:", *options, "", *body, fence, ""]


def _listed(fields: Iterable[Field]) -> list[str]:
    return [f"  - **{f.name}** (`{f.type}`){f': {f.comment}' if f.comment else ''}" for f in fields]


def _given_back(known: Faces, entry: Entry) -> tuple[str, tuple[Field, ...]] | None:
    """Name and fields of what a function returns, where that is a class which is no entry itself."""
    returned = getattr(entry.made.node, "returns", None)
    if not isinstance(returned, ast.Name) or known.address(returned.id, entry.face):
        return None
    found = known.sources.resolve(known.sources.module(entry.made.module), returned.id)
    fields = fields_in(known.sources.module(found.module), found.node) if isinstance(found, Definition) else ()
    return (returned.id, fields) if fields else None


def _code_block(example: str) -> list[str]:
    return ["```{code-block} pycon", example, "```", ""] if example else []


def _arxiv(lines: Iterable[str]) -> list[str]:
    """Numbers of papers as links."""
    return [re.sub(r"arXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", line) for line in lines]


class Api(SphinxRole):
    """A link to an entry: the whole name, shown without the name of the package."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """A warning for what is not public."""
        known = faces_of(self.env)
        address = known.address(self.text)
        if address != self.text:
            logger.warning(
                "api: %r is no public name; faces: %s", self.text, ", ".join(known.faces), location=self.get_location()
            )
            return [nodes.literal(self.text, self.text)], []
        face = next(face for face in known.faces if address.startswith(f"{face}."))
        shown = address.removeprefix(f"{face}.")
        return [_reference("py", "obj", address, self.env.docname, nodes.literal(shown, shown))], []


def _every_face_is_shown(app: Sphinx, env: BuildEnvironment) -> None:
    shown = {data["reference"] for data in env.metadata.values() if "reference" in data}
    for face in settings().faces if shown else ():
        if face not in shown:
            logger.warning("reference: no page shows the face %s", face)


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.setup_extension("bookkit.sphinx.extension")  # labels of the claims, HTML elements
    app.add_directive("reference", Reference)
    app.add_role("api", Api())
    app.connect("env-updated", _every_face_is_shown)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
