"""Registration: a claim's judge, threshold and sizes are written down, with the date, before they are judged at fresh seeds.

    book/registered/2026-11-22.json    what was registered on that day, and why: new claims, and changed ones once more

What is fixed is what decides the verdict: the judge's code with the constants and helpers of its own module, the wrong constant of its
negative control, the expected verdict, the condition of its regime, and the page's default parameters. Words are not: a better sentence
is no other claim. A test compares every judge with what was registered of it last.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from bookkit.files import written_aside
from bookkit.ledger.records import page_name, source_line
from bookkit.pages.catalogue import Page, UserError, one_line
from bookkit.pages.parameters import page_parameters

__all__ = ["FOLDER", "Registered", "fingerprint", "register", "registered", "unregistered"]

FOLDER = "book/registered"
FORMAT = 1
# Of the decorator that makes a judge a claim: what decides. Its other arguments are words.
DECIDING = ("wrong", "expected", "violation")
# Fields of syntax trees that differ between versions of Python, or say nothing about what is computed.
UNREAD = {"type_params", "type_comment", "kind", "returns", "annotation", "ctx"}


@dataclass(frozen=True)
class Registered:
    """What was registered of a claim last: its fingerprint, the day, how often before, and the reason of a change."""

    fingerprint: str
    day: str
    times: int
    because: str


# --- what is fixed ----------------------------------------------------------------------------------------------------------


def fingerprint(record: Mapping[str, Any], root: Path) -> str:
    """Sixteen hexadecimal digits that change when what decides the claim's verdict does; see the module.

    `record`: what the page stored of the claim (`bookkit.ledger.records`). A judge that is written in the page itself goes by the
    claim's statement and rule.
    """
    found = source_line(record["function"], root)
    if found:
        tree = _module(root / found[0])
        judge = _definition(tree, found[1])
        decides: Any = [record["function"].rpartition(".")[2], *map(_shape, _reached(tree, judge, record["id"]))]
    else:
        decides = [record["statement"], record["rule"]]
    source = root / "notebooks" / f"{page_name(record)}.md"
    text = json.dumps([decides, _sizes(source, source.stat().st_mtime_ns)], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _sizes(source: Path, changed: int) -> list[list[Any]]:
    """The page's parameters at their defaults, but for the seed."""
    page = Page(source.stem, source, source.with_suffix(".ipynb"))
    return sorted([p.name, p.default] for p in page_parameters(page) if p.name != "seed")


@cache
def _parsed(path: Path, changed: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _module(path: Path) -> ast.Module:
    return _parsed(path, path.stat().st_mtime_ns)


def _definition(tree: ast.Module, line: int) -> ast.FunctionDef:
    return next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.lineno == line)


def _reached(tree: ast.Module, judge: ast.FunctionDef, claim: str) -> list[ast.AST]:
    """The judge, and every definition of its module that it names, or that one of those names; in the order of the module.

    A judge made by another function is told from its sisters by the statement of the module that holds the claim's id.
    """
    named = {name: node for node in tree.body for name in _names_of(node)}
    judges = {id(node) for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list}
    found: dict[int, ast.AST] = {}
    makers = [n for n in tree.body if isinstance(n, ast.Expr | ast.For) and _holds(n, claim)]
    todo: list[ast.AST] = [judge, *makers]
    while todo:
        node = todo.pop()
        found[id(node)] = node
        for name in ast.walk(node):
            other = named.get(name.id) if isinstance(name, ast.Name) else None
            # One judge may call another; the set of claims itself, named by every decorator, says nothing.
            if other is not None and id(other) not in found and (id(other) in judges or not _is_claim_set(other)):
                todo.append(other)
    return sorted(found.values(), key=lambda node: node.lineno)  # type: ignore[attr-defined]


def _holds(node: ast.AST, text: str) -> bool:
    return any(isinstance(part, ast.Constant) and part.value == text for part in ast.walk(node))


def _names_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _is_claim_set(node: ast.AST) -> bool:
    value = getattr(node, "value", None)
    called = value.func if isinstance(value, ast.Call) else None
    return isinstance(called, ast.Name) and called.id == "ClaimSet"


def _shape(node: Any) -> Any:
    """A syntax tree as lists, without places, words of claims, docstrings, and what differs between versions of Python."""
    if isinstance(node, list):
        return [_shape(item) for item in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if name not in UNREAD and value not in (None, [])}
    if isinstance(node, ast.FunctionDef):
        fields["decorator_list"] = [_deciding(each) for each in node.decorator_list]
        if ast.get_docstring(node) is not None:
            fields["body"] = node.body[1:]
    return [type(node).__name__, *([name, _shape(value)] for name, value in sorted(fields.items()))]


def _deciding(decorator: ast.expr) -> ast.expr:
    if not isinstance(decorator, ast.Call):
        return decorator
    return ast.Call(decorator.func, [], [word for word in decorator.keywords if word.arg in DECIDING])


# --- what was registered ------------------------------------------------------------------------------------------------------


def registered(root: Path) -> dict[str, Registered]:
    """By claim, what was registered last. Raises `UserError` for a file that is none of ours."""
    found: dict[str, Registered] = {}
    for path in sorted((root / FOLDER).glob("*.json"), key=_order):
        content = _read(path)
        for claim, entry in content["claims"].items():
            times = found[claim].times + 1 if claim in found else 1
            found[claim] = Registered(entry["fingerprint"], path.stem[:10], times, content["because"])
    return found


def unregistered(records: Iterable[Mapping[str, Any]], root: Path) -> list[Mapping[str, Any]]:
    """Records of claims that are not registered as they stand: new ones, and those whose judge or sizes changed since."""
    known = registered(root)
    return [r for r in records if r["id"] not in known or known[r["id"]].fingerprint != fingerprint(r, root)]


def register(records: Iterable[Mapping[str, Any]], root: Path, because: str, today: date) -> tuple[Path, list[str]]:
    """Register every claim that is not, with the reason; the file of the day, and the claims' ids. Writes nothing where all are.

    One file holds what was registered for one reason; a second one of the day is named 2026-11-22-2. Raises `UserError` without a
    reason.
    """
    if not because.strip():
        raise UserError('because must say why claims are registered, or again; as in --because "first registration"')
    new = unregistered(records, root)
    folder = root / FOLDER
    path = _free(folder, today)
    if not new:
        return path, []
    claims = {
        record["id"]: {
            "page": page_name(record),
            "fingerprint": fingerprint(record, root),
            "statement": record["statement"],
            "rule": record["rule"],
            "predicted": record["predicted"],
            "draws": record["draws"],
            "expected": record["expected"],
            "wrong": record["negative_control"]["wrong"],
        }
        for record in new
    }
    folder.mkdir(parents=True, exist_ok=True)
    content = {"format": FORMAT, "because": because.strip(), "claims": claims}
    with written_aside(path) as temporary:
        temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path, list(claims)


def _order(path: Path) -> tuple[str, int]:
    return path.stem[:10], int(path.stem[11:] or 1)


def _free(folder: Path, today: date) -> Path:
    """2026-11-22.json, or the next free one of that day."""
    names = (f"{today}.json", *(f"{today}-{number}.json" for number in range(2, 100)))
    return next(path for name in names if not (path := folder / name).exists())


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT or not isinstance(content["claims"], dict):
            raise ValueError(f"format {content['format']}")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path.name} in {FOLDER} is no registration: {one_line(error)}") from None
    return content
