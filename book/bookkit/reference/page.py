"""The reference: an entry for every public name, made from docstrings, pages and claims.

    ```{reference} attnlib.single_head      a list of the names of a face, then a section for each
    ```

    {api}`attnlib.single_head.two_steps`    a link to the entry of a name, or of a method of a class

Sections have permanent names: `reference/single_head.html#two-steps`. Signatures are those of Sphinx' Python domain, sections
of docstrings are read by napoleon. A link to what is not public is a Sphinx warning, and the book is built with warnings as
errors. The faces are imported; what an entry lacks is told by the tests.
"""

import contextlib
import importlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from bookkit.code import code_of
from bookkit.ledger.records import anchor as claim_anchor
from bookkit.ledger.records import in_reading_order, notebooks, read_ledger
from bookkit.pages.catalogue import UserError, find_root
from bookkit.reference.entries import Entry, Field, anchor, exported, fields_in, fields_of
from bookkit.reference.reach import Reach, core
from bookkit.settings import settings
from bookkit.sphinx.html_elements import element

logger = logging.getLogger(__name__)

FEW = 12  # claims that are listed in the open
_FENCE = "`" * 8  # longer than any fence in a docstring


class Faces:
    """The public names of a book, who uses them and what checks them."""

    def __init__(self, root: Path, source: Path) -> None:
        code = code_of(root)
        self.faces = {face: exported(face) for face in settings(root).faces}
        records = in_reading_order(read_ledger(source))
        judging = {record["function"].partition(".")[0] for record in records}
        every = [entry for entries in self.faces.values() for entry in entries]
        public = {entry.module.__name__ for entry in every}
        reach = Reach(code.names, lambda name: name in public or name.partition(".")[0] not in judging)
        self._pages = {name: reach.used(_code(path)) for name, path in notebooks(source)}
        judges = {name: _found(name) for name in dict.fromkeys(record["function"] for record in records)}
        checked = {name: reach.checked(judge) for name, judge in judges.items()}
        self._claims = [(record, checked[record["function"]]) for record in records]
        self._types = {id(e.thing): f"{e.face}.{e.name}" for e in reversed(every) if e.kind != "data"}
        things = {id(entry.thing) for entry in every}
        inner = {id(entry.thing): id(made) for entry in every if (made := core(entry.thing))}
        shared = Counter(inner.values())
        # An inner function that several public ones hand their arguments to is none of them.
        self._meant = {
            thing: {thing, inner[thing]}
            if thing in inner and shared[inner[thing]] == 1 and inner[thing] not in things
            else {thing}
            for thing in things
        }

    def using(self, entry: Entry) -> list[str]:
        """Pages that use a name."""
        return [name for name, used in self._pages.items() if self._meant[id(entry.thing)] & used]

    def checking(self, entry: Entry) -> list[dict]:
        """Records of the claims that check it."""
        return [record for record, checked in self._claims if self._meant[id(entry.thing)] & checked]

    def type_address(self, entry: Entry, words: str) -> str:
        """`face.Class` that a type in the signature of `entry` means; empty for what is not public."""
        found: Any = entry.module
        for word in words.split("."):
            found = getattr(found, word, None)
        return self._types.get(id(found), "")

    def address(self, words: str, face: str = "") -> str:
        """`face.name` or `face.Class.method` that is meant by `words` in a text about `face`; empty if none is."""
        found = self._addresses.get(words, [])
        own = [name for name in found if name.startswith(f"{face}.")]
        return own[0] if face and own else found[0] if len(found) == 1 else ""

    @cached_property
    def _addresses(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for entry in (entry for entries in self.faces.values() for entry in entries):
            for rest in ("", *(f".{method.name}" for method in entry.methods)):
                whole = f"{entry.face}.{entry.name}{rest}"
                found.setdefault(whole, []).append(whole)
                found.setdefault(f"{entry.name}{rest}", []).append(whole)
        return found


def _found(dotted: str) -> Any:
    """The thing at the top of a module in which `package.module.name.inner` lies."""
    words = dotted.split(".")
    for cut in range(len(words) - 1, 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            return getattr(importlib.import_module(".".join(words[:cut])), words[cut], None)
    return None


def _code(notebook: Path) -> list[str]:
    """The code cells of a page."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


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
            if face not in known.faces:
                raise LookupError(f"faces of [tool.bookkit] are {', '.join(known.faces) or 'none'}; got {face}")
        except (LookupError, ImportError, UserError) as error:
            logger.warning("reference: %s", error, location=self.get_location())
            return []
        entries = known.faces[face]
        glance = "\n".join(f"- {{api}}`{face}.{e.name}`: {_first_sentence(e.docstring)}" for e in entries)
        return [*self._markdown(glance, known, face), *(self._section(known, entry) for entry in entries)]

    def _section(self, known: Faces, entry: Entry) -> nodes.section:
        title = nodes.title("", "", nodes.literal(entry.name, entry.name))
        section = nodes.section("", title, ids=[anchor(entry.name)], names=[anchor(entry.name)])
        text = _described(known, entry)
        section += self._markdown(text, known, entry.face)
        _link_types(known, entry, section)
        domain = self.env.get_domain("py")
        domain.note_object(f"{entry.face}.{entry.name}", entry.kind, anchor(entry.name), location=section)
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
    if not known.address(entry.returned, entry.face):
        fields = fields_in(getattr(entry.module, entry.returned, None))  # of a class which is no entry itself
        told = [f":Fields of {entry.returned}:", *_listed(fields)] if fields else told
    after = next(number for number, line in enumerate([*body, ":Source:"]) if re.match(":(raises|Source)", line))
    body[after:after] = [*told, ""] if told else []
    body += ["```{code-block} pycon", entry.example, "```", ""] if entry.example else []
    for method in entry.methods:
        options, signature, kind = [":no-contents-entry:"], f"{method.name}{method.signature}", "method"
        if method.kind == "property":
            options += [f":type: {type_}"] if (type_ := method.signature.partition(" -> ")[2]) else []
            signature, kind = method.name, "property"
        options += [":classmethod:"] if method.kind == "classmethod" else []
        body += _directive(f"py:{kind}", signature, options, fields_of(method.docstring), _FENCE[:-1])
    signature, _, value = entry.signature.partition(" = ") if entry.kind == "data" else (entry.signature, "", "")
    return "\n".join(_directive(f"py:{entry.kind}", signature, [f":value: {value}"] if value else [], body, _FENCE))


def _directive(kind: str, signature: str, options: Iterable[str], body: Iterable[str], fence: str) -> list[str]:
    return [f"{fence}{{{kind}}} {signature}", ":no-index:", *options, "", *body, fence, ""]


def _listed(fields: Iterable[Field]) -> list[str]:
    return [f"  - **{f.name}** (`{f.type}`){f': {f.comment}' if f.comment else ''}" for f in fields]


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


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.setup_extension("bookkit.sphinx.extension")  # labels of the claims, HTML elements
    app.add_directive("reference", Reference)
    app.add_role("api", Api())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
