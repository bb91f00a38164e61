"""Which modules a source reads: those of this repository that it imports, and those that they import, from their syntax trees.

Nothing is imported to find out. An import inside a function counts, and one for types alone.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

OWN = ("attnlib", "attnbook")  # packages whose modules are followed; what else is installed has a version


def reads(text: str, within: str = "") -> dict[str, Path]:
    """Name and file of all modules that a source reads, itself not among them. `within`: the package that relative imports mean."""
    found: dict[str, Path] = {}
    waiting = list(_imported(text, within))
    while waiting:
        name = waiting.pop()
        if name not in found and (path := _file(name)):
            found[name] = path
            package = name if path.stem == "__init__" else name.rpartition(".")[0]
            waiting += _imported(path.read_text(encoding="utf-8"), package)
    return dict(sorted(found.items()))


def digest(text: str) -> str:
    """SHA-256 over a source and all that it reads."""
    whole = hashlib.sha256(text.encode())
    for name, path in reads(text).items():
        whole.update(f"\0{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
    return whole.hexdigest()


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
    if top not in OWN or (home := _home(top)) is None:
        return None
    path = home.joinpath(*rest)
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@functools.cache
def _home(top: str) -> Path | None:
    spec = find_spec(top)
    return Path(spec.origin).parent if spec and spec.origin else None
