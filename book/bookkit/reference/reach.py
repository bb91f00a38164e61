"""Who uses a public name, and which claims check it: two rules, read off the text of pages and packages.

*Mentions.* A definition mentions what its body names, under whatever name it was imported; annotations and decorators do
not count. An object that decorates functions, such as a set of claims, mentions those functions.

*Pages.* A page uses a name if its code cells mention it, or lead to a definition of the book's own packages that does.

*Claims.* A claim checks a name if its judge leads to it in the same way, or a function leads to it that makes what the
judge is given: one whose return type names the type of an argument of the judge.

The library, which is every package without judges and the modules in which public names are defined, is not followed: what it calls
inside is its own affair. A public function that checks
its arguments and hands them to another one of its module is that one, too (`core`).
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property

from bookkit.reference.sources import Definition, Module, Sources

__all__ = ["Reach", "core", "page_module"]

_SHELL = re.compile(r"^(\s*)[%!].*$", flags=re.M)  # lines for IPython


def page_module(name: str, cells: Iterable[str]) -> Module:
    """The code cells of a page as one module."""
    return Module(name, "\n".join(_SHELL.sub(r"\1pass", cell) for cell in cells))


def core(sources: Sources, made: Definition) -> Definition | None:
    """The function of the same module that a function calls at its end with its own first argument; None if there is none."""
    last = made.node.body[-1] if isinstance(made.node, ast.FunctionDef) else None
    call = last.value if isinstance(last, ast.Return) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args and made.parameters):
        return None
    given, found = call.args[0], sources.module(made.module).definitions.get(call.func.id)
    handed_on = isinstance(given, ast.Name) and given.id == made.parameters[0].arg
    return found if handed_on and found and isinstance(found.node, ast.FunctionDef) else None


class Reach:
    """The two rules, for the packages of one book."""

    def __init__(self, sources: Sources, library: Iterable[str], packages: Iterable[str]) -> None:
        self._sources = sources
        self._library = set(library)
        self._packages = tuple(packages)
        self._mentioned: dict[Definition, set[Definition]] = {}

    def used(self, page: Module) -> set[Definition]:
        """What a page uses of the library."""
        self._sources.add(page)
        return self._reached(self._mentions(page, page.tree))

    def checked(self, judge: Definition) -> set[Definition]:
        """What a claim checks of the library, by its judge."""
        return self._reached([judge, *self._makers_for(judge)])

    def _makers_for(self, judge: Definition) -> Iterator[Definition]:
        module = self._sources.module(judge.module)
        for argument in judge.parameters:
            for given in self._mentions(module, argument.annotation) if argument.annotation else ():
                yield from self._makers.get(given, ())

    @cached_property
    def _makers(self) -> dict[Definition, list[Definition]]:
        """Class -> functions of the book whose return type names it."""
        found = defaultdict(list)
        for module in self._own:
            for made in module.definitions.values():
                if isinstance(made.node, ast.FunctionDef) and made.node.returns is not None:
                    for kind in self._mentions(module, made.node.returns):
                        found[kind].append(made)
        return found

    @cached_property
    def _registered(self) -> dict[Definition, list[Definition]]:
        """Object -> the functions that it decorates."""
        found = defaultdict(list)
        for module in self._own:
            for made in module.definitions.values():
                for decorator in getattr(made.node, "decorator_list", ()):
                    root = next((part.id for part in ast.walk(decorator) if isinstance(part, ast.Name)), "")
                    holder = self._sources.resolve(module, root)
                    if isinstance(holder, Definition) and not isinstance(holder.node, ast.FunctionDef):
                        found[holder].append(made)
        return found

    @cached_property
    def _own(self) -> list[Module]:
        """Modules of the book's packages, those of the library left out."""
        every = (made for name in self._packages for made in self._sources.modules(name))
        return [made for made in every if made.name not in self._library]

    def _reached(self, start: Iterable[Definition]) -> set[Definition]:
        """Definitions of the library to which those of the book lead."""
        found: set[Definition] = set()
        waiting = list(start)
        while waiting:
            current = waiting.pop()
            if current not in found:
                found.add(current)
                waiting += () if current.module in self._library else self._next(current)
        return {made for made in found if made.module in self._library}

    def _next(self, made: Definition) -> set[Definition]:
        if made not in self._mentioned:
            module = self._sources.module(made.module)
            self._mentioned[made] = self._mentions(module, made.node) | set(self._registered.get(made, ()))
        return self._mentioned[made]

    def _mentions(self, module: Module, node: ast.AST) -> set[Definition]:
        """What `node` names in `module`, whatever the module's own names for it are."""
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
        if text is not None:  # an annotation in quotation marks
            node = ast.parse(text, mode="eval")
        own = _bound(node) if isinstance(node, ast.FunctionDef) else set()
        found = {self._meaning(module, part) for part in _code(node) if _root(part) not in own}
        return {meaning for meaning in found if isinstance(meaning, Definition)}

    def _meaning(self, module: Module, node: ast.AST) -> Definition | Module | None:
        if isinstance(node, ast.Name):
            return self._sources.resolve(module, node.id)
        if isinstance(node, ast.Attribute):
            holder = self._meaning(module, node.value)
            return self._sources.resolve(holder, node.attr) if isinstance(holder, Module) else None
        return None


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _bound(node: ast.FunctionDef) -> set[str]:
    """Names that a function gives to its arguments and variables: they hide those of the module."""
    stored = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return stored | {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and what lies in it, without annotations and decorators."""
    yield node
    left_out = {"annotation", "returns", "decorator_list"}
    for name, value in ast.iter_fields(node):
        if name not in left_out:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _code(child)
