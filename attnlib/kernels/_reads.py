"""Which modules a source reads: those of this repository that it imports, and those that they import, from their syntax trees.

Nothing is imported to find out. An import inside a function counts, and one for types alone. Who imports a package reads the modules
beside its face as well: it may choose among them when it runs.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import tokenize
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

OWN = ("attnlib", "attnbook")  # packages whose modules are followed; what else is installed has a version


def reads(text: str, within: str = "", own: Sequence[str] = OWN) -> dict[str, Path]:
    """Name and file of all modules that a source reads, itself not among them.

    within: the package that relative imports mean. own: packages whose modules are followed.
    """
    found: dict[str, Path] = {}
    waiting = list(_imported(text, within))
    while waiting:
        name = waiting.pop()
        if name not in found and any(f"{name}.".startswith(f"{package}.") for package in own) and (path := _file(name)):
            found[name] = path
            face = path.stem == "__init__"
            waiting += [f"{name}.{beside.stem}" for beside in path.parent.glob("*.py") if face and beside != path]
            waiting += _imported(path.read_text(encoding="utf-8"), name if face else name.rpartition(".")[0])
    return dict(sorted(found.items()))


def digest(text: str) -> str:
    """SHA-256 over a source and all that it reads."""
    whole = hashlib.sha256(text.encode())
    for name, path in reads(text).items():
        whole.update(f"\0{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
    return whole.hexdigest()


@functools.cache
def programs(module: str, own: tuple[str, ...]) -> str:
    """SHA-256 over the code of a module and of all that it reads in the packages `own`: comments and docstrings do not count."""
    read = reads(f"import {module}", own=own)
    code = "".join(f"{name}\0{_code(path.read_text(encoding='utf-8'))}\0" for name, path in read.items())
    return hashlib.sha256(code.encode()).hexdigest()


def _code(text: str) -> str:
    """The lines of a source that hold code, as they stand: a syntax tree would be written otherwise by another Python."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            said = node.body[0]
            first, last = said.lineno - 1, said.end_lineno or said.lineno
            if not lines[first][: said.col_offset].strip():  # else it stands beside code
                lines[first:last] = [""] * (last - first)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _imported(text: str, within: str) -> Iterator[str]:
    """Names of modules that one source imports. A name that is taken from a package may be a module of it or stand in it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = within.split(".")[: len(within.split(".")) - node.level + 1] if node.level else []
            package = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inside = f"{package}.{alias.name}"
                yield inside if _file(inside) else package


def _file(name: str) -> Path | None:
    """Where a module of our own packages lies; None for what is not one."""
    top, *rest = name.split(".")
    if top not in OWN or "" in rest or (home := _home(top)) is None:
        return None
    path = home.joinpath(*rest)
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@functools.cache
def _home(top: str) -> Path | None:
    spec = find_spec(top)
    return Path(spec.origin).parent if spec and spec.origin else None
