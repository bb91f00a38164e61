"""What a claim says of the theory: the boxes that it checks, and what it uses. Read off the text of the judge's module.

    @CLAIMS.claim("C8", wrong=1.1, box="claim-theory-c8 prop-mean-field", uses="C7 claim-theory-c5")

Importing the judges would import all that they need; a build of the book needs none of it.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bookkit.ledger.records import source_line
from bookkit.pages.catalogue import UserError


@dataclass(frozen=True)
class Links:
    """Labels of the boxes that a claim checks; claims and boxes that it uses."""

    box: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


def links_of(record: Mapping[str, Any], root: Path) -> Links:
    """The links of a claim, from its stored record. None of both where its judge stands in no module of the book.

    Raises `UserError` where `box` or `uses` is computed.
    """
    found = source_line(record["function"], root)
    if not found:
        return Links()
    path = root / found[0]
    return _written(path, path.stat().st_mtime_ns).get(record["id"], Links())


@cache
def _written(path: Path, changed: int) -> dict[str, Links]:
    """By claim: of every call in a module whose first argument is a string, what its keywords `box` and `uses` hold."""
    found: dict[str, Links] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            named = {word.arg: word.value for word in node.keywords if word.arg in ("box", "uses")}
            if named and isinstance(node.args[0].value, str):
                claim = node.args[0].value
                found[claim] = Links(**{str(name): _names(path, claim, value) for name, value in named.items()})
    return found


def _names(path: Path, claim: str, value: ast.expr) -> tuple[str, ...]:
    try:
        names = ast.literal_eval(value)
    except ValueError:
        names = None
    if not isinstance(names, str):
        raise UserError(f"{path.name}: box and uses of claim {claim} must be names between spaces, written out")
    return tuple(names.split())
