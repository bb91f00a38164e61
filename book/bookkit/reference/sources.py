"""Python packages as text: modules, their definitions, what a name in them means. Nothing is imported or run.

A *definition* is a function, a class or an assignment at the top of a module. `Sources.resolve` follows imports from
module to module until it finds one; names from packages that the book does not name mean nothing here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bookkit.code import Code

__all__ = ["Definition", "Module", "Sources"]


@dataclass(frozen=True)
class Definition:
    """A function, a class or an assignment at the top of `module`."""

    module: str
    name: str
    node: ast.stmt = field(compare=False, repr=False)

    @property
    def package(self) -> str:
        """The first word of its address."""
        return self.module.partition(".")[0]

    @property
    def parameters(self) -> list[ast.arg]:
        """Of a function, in their order."""
        return _parameters(self.node) if isinstance(self.node, ast.FunctionDef) else []


def _parameters(node: ast.FunctionDef) -> list[ast.arg]:
    given = node.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [argument for argument in every if argument is not None]


class Module:
    """One file, or the code of one page."""

    def __init__(self, name: str, text: str, package: bool = False) -> None:
        self.name = name
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self._home = name if package else name.rpartition(".")[0]

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """By name; of a name given twice, the last."""
        found = {}
        for node in _statements(self.tree.body):
            for name in _names(node):
                found[name] = Definition(self.name, name, node)
        return found

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Name -> (module, name in it, or "" for the module itself), those inside functions too."""
        found: dict[str, tuple[str, str]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    whole = alias.name if alias.asname else alias.name.partition(".")[0]
                    found[alias.asname or whole] = (whole, "")
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    up = self._home.split(".")[: len(self._home.split(".")) - node.level + 1]
                    base = ".".join([*up, *([base] if base else [])])
                for alias in node.names:
                    found[alias.asname or alias.name] = (base, alias.name)
        return found

    def after(self, node: ast.stmt) -> str:
        """The comment at the end of a statement's last line."""
        line = self.lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
        return line.partition("#")[2].strip()


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under `if` and `try` too."""
    for node in body:
        if isinstance(node, ast.If | ast.Try | ast.With):
            for inner in (node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])):
                yield from _statements(inner)
        else:
            yield node


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


class Sources:
    """The packages of a book, and of its pages."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._modules: dict[str, Module | None] = {}

    @classmethod
    def of(cls, code: Code) -> Sources:
        """Those that a book names in its settings."""
        return cls(dict(zip(code.names, code.folders, strict=True)))

    def module(self, name: str) -> Module | None:
        """By its dotted name; None for what is no module of these packages."""
        if name not in self._modules:
            first, *rest = name.split(".")
            stem = self._folders[first].joinpath(*rest) if first in self._folders else None
            files = [stem / "__init__.py", stem.with_suffix(".py")] if stem else []
            path = next((path for path in files if path.is_file()), None)
            made = path and Module(name, path.read_text(encoding="utf-8"), path.name == "__init__.py")
            self._modules[name] = made
        return self._modules[name]

    def add(self, module: Module) -> None:
        """Make known what lies in no folder: the code of a page."""
        self._modules[module.name] = module

    def modules(self, package: str) -> Iterator[Module]:
        """All modules of one package."""
        folder = self._folders[package]
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder.parent).with_suffix("").parts
            if made := self.module(".".join(inside[:-1] if inside[-1] == "__init__" else inside)):
                yield made

    def resolve(self, module: Module, name: str) -> Definition | Module | None:
        """What `name` means in `module`; None for what is neither defined nor imported there from these packages."""
        seen = set()
        while module.name not in seen:  # modules may import each other
            seen.add(module.name)
            if name in module.definitions:
                return module.definitions[name]
            if name not in module.imports:
                return self.module(f"{module.name}.{name}")
            base, inner = module.imports[name]
            if not inner:
                return self.module(base)
            target = self.module(base)
            if target is None:
                return None
            module, name = target, inner
        return self.module(f"{module.name}.{name}")

    def find(self, dotted: str) -> Definition | None:
        """The definition at the top of a module in which `package.module.name.inner` lies."""
        words = dotted.split(".")
        for cut in range(len(words) - 1, 0, -1):
            if module := self.module(".".join(words[:cut])):
                return module.definitions.get(words[cut])
        return None
