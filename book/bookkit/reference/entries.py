"""The public names of a face: a package whose `__all__` says what readers import. What each says of itself, and what it lacks.

A docstring is Markdown: one sentence, formulas, then sections in Google's style. Fields of a class are described by the
comment behind each.

    Args:                       every parameter by its name: symbol, shape, unit
    Returns:
    Raises:                     of a function with parameters
    Source:                     paper and equation, or the page that derives it
    Example:                    doctest; what the face exports is imported, and so are numpy (np) and torch
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sphinx.ext.napoleon import Config, GoogleDocstring

from bookkit.reference.sources import Definition, Module, Sources

__all__ = ["Entry", "Field", "Method", "anchor", "exported", "fields_in", "fields_of", "problems"]

_CONFIG = Config(napoleon_use_rtype=False, napoleon_custom_sections=[("Source", "returns_style")])
_EXAMPLE = re.compile(r"^Example:\n((?:[ \t]+.*\n?|\n)+)", flags=re.M)
_SECTION = re.compile(r"^(Args|Returns|Raises|Source|Example):$", flags=re.M)


@dataclass(frozen=True)
class Field:
    """An annotated name in the body of a class. `default` begins with =, where there is one."""

    name: str
    type: str
    default: str
    comment: str


@dataclass(frozen=True)
class Method:
    """A public method or property of a class."""

    name: str
    signature: str
    docstring: str
    kind: str  # "method", "property" or "classmethod"


@dataclass(frozen=True)
class Entry:
    """A name of a face and the definition that it stands for. `kind` is "function", "class" or "data"."""

    face: str
    name: str
    made: Definition
    kind: str
    docstring: str
    signature: str
    fields: tuple[Field, ...] = ()
    methods: tuple[Method, ...] = ()

    @property
    def anchor(self) -> str:
        """Permanent name of the entry on its page: two_steps -> two-steps."""
        return anchor(self.name)

    @property
    def example(self) -> str:
        """The doctest, without its margin; empty if there is none."""
        found = _EXAMPLE.search(self.docstring + "\n")
        return inspect.cleandoc(found[1]) if found else ""

    @property
    def body(self) -> list[str]:
        """The docstring without its example: Markdown with field lists, as napoleon writes them."""
        return fields_of(_EXAMPLE.sub("", self.docstring + "\n"))


def anchor(*names: str) -> str:
    """Of an entry, or of a method in its class: SignalNoiseLaw, draw -> signalnoiselaw-draw."""
    return "-".join(names).lower().replace("_", "-")


def fields_of(docstring: str) -> list[str]:
    """A docstring with its sections as field lists."""
    return GoogleDocstring(docstring, _CONFIG).lines()


def exported(sources: Sources, face: str) -> list[Entry]:
    """The entries of `face`, in the order of its `__all__`. Raises LookupError for a name that means nothing there."""
    module = sources.module(face)
    if module is None or "__all__" not in module.definitions:
        raise LookupError(f"a face must be a module of the book's packages with an __all__; got {face}")
    names = ast.literal_eval(module.definitions["__all__"].node.value)
    return [_entry(sources, module, name) for name in names]


def _entry(sources: Sources, face: Module, name: str) -> Entry:
    made = sources.resolve(face, name)
    if not isinstance(made, Definition):
        raise LookupError(f"{face.name} exports {name}, which is defined nowhere in it")
    module, node = sources.module(made.module), made.node
    if isinstance(node, ast.ClassDef):
        fields = fields_in(module, node)
        given = ", ".join(f"{field.name}{field.default}" for field in fields)
        return Entry(face.name, name, made, "class", _doc(node), f"{name}({given})", fields, _methods(node))
    if isinstance(node, ast.FunctionDef):
        return Entry(face.name, name, made, "function", _doc(node), f"{name}{_signature(node)}")
    value = ast.unparse(node.value) if node.value else ""
    return Entry(face.name, name, made, "data", _doc_after(module, node), f"{name} = {value}")


def _doc(node: ast.FunctionDef | ast.ClassDef) -> str:
    return ast.get_docstring(node) or ""


def _doc_after(module: Module, node: ast.stmt) -> str:
    """The text that stands below an assignment."""
    after = next((other for other in module.tree.body if other.lineno > node.end_lineno), None)
    value = getattr(after, "value", None) if isinstance(after, ast.Expr) else None
    return inspect.cleandoc(value.value) if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _signature(node: ast.FunctionDef, *, method: bool = False) -> str:
    given = ast.unparse(node.args)
    if method:
        given = given.partition(", ")[2] if ", " in given else ""
    return f"({given})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


def fields_in(module: Module, node: ast.stmt) -> tuple[Field, ...]:
    """The public fields of a dataclass; none of anything else."""
    return tuple(
        Field(part.target.id, ast.unparse(part.annotation), f"={ast.unparse(part.value)}" if part.value else "", module.after(part))
        for part in (node.body if isinstance(node, ast.ClassDef) else ())
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        and not part.target.id.startswith("_") and not ast.unparse(part.annotation).startswith("ClassVar")
    )  # fmt: skip


def _methods(node: ast.ClassDef) -> tuple[Method, ...]:
    found = []
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            marks = {ast.unparse(mark).rpartition(".")[2] for mark in part.decorator_list}
            kind = "property" if marks & {"property", "cached_property"} else "method"
            kind = "classmethod" if "classmethod" in marks else kind
            found.append(Method(part.name, _signature(part, method=True), _doc(part), kind))
    return tuple(found)


def problems(entries: Sequence[Entry]) -> list[str]:
    """What entries lack, a sentence each: sections, parameters, comments of fields, docstrings of methods."""
    return [f"{entry.face}.{entry.name}: {lack}" for entry in entries for lack in _lacks(entry)]


def _lacks(entry: Entry) -> list[str]:
    if not entry.docstring:
        where = "below its assignment" if entry.kind == "data" else "that says what it is"
        return [f"needs a docstring {where}"]
    body = "\n".join(entry.body)
    sections = set(_SECTION.findall(entry.docstring))
    needed = {"Source", "Example"}
    found = []
    if isinstance(entry.made.node, ast.FunctionDef):
        names = [argument.arg for argument in entry.made.parameters]
        needed |= {"Returns"} | ({"Args", "Raises"} if names else set())
        told = re.findall(r"^:param \\?\**([\w]+):", body, flags=re.M)
        if "Args" in sections and told != names:
            found.append(f"Args must describe {', '.join(names)}, in this order; got {', '.join(told) or 'none'}")
    # napoleon takes what stands before a colon for a type.
    found += [
        f"{name} must hold no colon; got {text}"
        for name, text in re.findall(r"^:(returns|Source): (\*.*)$", body, re.M)
    ]
    found += [f"field {field.name} needs a comment behind it" for field in entry.fields if not field.comment]
    found += [f"{method.kind} {method.name} needs a docstring" for method in entry.methods if not method.docstring]
    lacking = ", ".join(
        f"{name}:" for name in ("Args", "Returns", "Raises", "Source", "Example") if name in needed - sections
    )
    return [*found, *([f"needs the section {lacking}"] if lacking else [])]
