"""The public names of a face: a package whose `__all__` says what readers import. What each says of itself, and what it lacks.

A docstring is Markdown: one sentence, formulas, then sections in Google's style. Fields of a class are described by the
comment behind each.

    Args:                       every parameter by its name: symbol, shape, unit
    Returns:
    Raises:                     of a function with parameters
    Source:                     paper and equation, or the page that derives it
    Example:                    doctest; what the face exports is imported, and so are numpy (np) and torch
"""

import ast
import importlib
import inspect
import re
import textwrap
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.pycode import ModuleAnalyzer

_CONFIG = Config(napoleon_use_rtype=False, napoleon_custom_sections=[("Source", "returns_style")])
_EXAMPLE = re.compile(r"^Example:\n((?:[ \t]+.*\n?|\n)+)", flags=re.M)


@dataclass(frozen=True)
class Field:
    """An annotated name in the body of a class, with the comment behind it. `default` begins with =, where there is one."""

    name: str
    type: str
    default: str
    comment: str


@dataclass(frozen=True)
class Method:
    """A public method, property or classmethod of a class."""

    name: str
    kind: str
    signature: str
    docstring: str


@dataclass(frozen=True)
class Entry:
    """What a face calls `name`. `kind` is "function", "class" or "data"."""

    face: str
    name: str
    thing: Any

    @property
    def kind(self) -> str:
        return "class" if inspect.isclass(self.thing) else "function" if callable(self.thing) else "data"

    @property
    def module(self) -> Any:
        """Where the words of its signature mean something."""
        return importlib.import_module(self.face if self.kind == "data" else self.thing.__module__)

    @cached_property
    def docstring(self) -> str:
        return _below(self.face, self.name) if self.kind == "data" else _doc(self.thing)

    @property
    def signature(self) -> str:
        """As it stands in the source: `train(gram: Gram, steps: int=100) -> Trajectory`; of data, its value."""
        if self.kind == "data":
            return f"{self.name} = {self.thing!r}"
        if self.kind == "class":
            return f"{self.name}({', '.join(f'{field.name}{field.default}' for field in self.fields)})"
        return f"{self.name}{_given(_node(self.thing))}"

    @property
    def returned(self) -> str:
        """The type that a function returns, in words."""
        return self.signature.rpartition(" -> ")[2] if self.kind == "function" else ""

    @property
    def example(self) -> str:
        """The doctest, without its margin; empty if there is none."""
        found = _EXAMPLE.search(self.docstring + "\n")
        return inspect.cleandoc(found[1]) if found else ""

    @property
    def body(self) -> list[str]:
        """The docstring without its example: Markdown with field lists, as napoleon writes them."""
        return fields_of(_EXAMPLE.sub("", self.docstring + "\n"))

    @property
    def fields(self) -> tuple[Field, ...]:
        return fields_in(self.thing)

    @property
    def methods(self) -> tuple[Method, ...]:
        found = []
        for part in _node(self.thing).body if self.kind == "class" else ():
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                marks = {ast.unparse(mark).rpartition(".")[2] for mark in part.decorator_list}
                kind = (
                    "property"
                    if marks & {"property", "cached_property"}
                    else "classmethod"
                    if "classmethod" in marks
                    else "method"
                )
                part.args.args = part.args.args[1:]  # self
                found.append(Method(part.name, kind, _given(part), ast.get_docstring(part) or ""))
        return tuple(found)


def anchor(*names: str) -> str:
    """Permanent name of an entry, or of a method in its class: SignalNoiseLaw, draw -> signalnoiselaw-draw."""
    return "-".join(names).lower().replace("_", "-")


def fields_of(docstring: str) -> list[str]:
    """A docstring with its sections as field lists."""
    lines = GoogleDocstring(docstring, _CONFIG).lines()
    return [re.sub(r"^(:[^:]+: )>", r"\1\\>", line) for line in lines]  # ">= 0" is no quotation


def exported(face: str) -> list[Entry]:
    """The entries of `face`, in the order of its `__all__`. Raises LookupError for a name that means nothing there."""
    module = importlib.import_module(face)
    if not hasattr(module, "__all__"):
        raise LookupError(f"a face must be a module with an __all__; got {face}")
    if missing := [name for name in module.__all__ if not hasattr(module, name)]:
        raise LookupError(f"{face} exports {missing[0]}, which is defined nowhere in it")
    return [Entry(face, name, getattr(module, name)) for name in module.__all__]


@lru_cache(maxsize=256)
def _source(thing: Any) -> str:
    return textwrap.dedent(inspect.getsource(thing))


def _node(thing: Any) -> Any:
    return ast.parse(_source(thing)).body[0]


def _given(node: ast.FunctionDef) -> str:
    return f"({ast.unparse(node.args)})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


def _doc(thing: Any) -> str:
    """Its own words, not those that Python writes for a dataclass."""
    return ast.get_docstring(_node(thing)) or ""


def _below(module: str, name: str) -> str:
    """The text that stands below the assignment of `name`, in this module or in the one that it is imported from."""
    analyzer = ModuleAnalyzer.for_module(module)
    if found := analyzer.find_attr_docs().get(("", name)):
        return "\n".join(found).strip()
    for node in ast.walk(ast.parse(analyzer.code)):
        for alias in node.names if isinstance(node, ast.ImportFrom) and node.module else ():
            if (alias.asname or alias.name) == name:
                return _below(node.module, alias.name)
    return ""


def fields_in(thing: Any) -> tuple[Field, ...]:
    """The public fields of a dataclass; none of anything else."""
    if not inspect.isclass(thing) or not hasattr(thing, "__dataclass_fields__"):
        return ()
    lines, found = _source(thing).splitlines(), []
    for part in _node(thing).body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and not part.target.id.startswith("_"):
            type_, value = ast.unparse(part.annotation), f"={ast.unparse(part.value)}" if part.value else ""
            after = lines[part.end_lineno - 1].encode()[part.end_col_offset :].decode().partition("#")[2].strip()
            found += [] if type_.startswith("ClassVar") else [Field(part.target.id, type_, value, after)]
    return tuple(found)
