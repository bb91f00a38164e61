"""Registration: a claim's judge, threshold and sizes are written down, with the date, before they are judged at fresh seeds.

    book/registered.json    one line a claim: its fingerprint, and when it was registered; above them, one line a registration: why, and
                            the number of the first seed at which nobody had looked (`bookkit.replication.seeds`)

Only seeds from there on count: a judge that was changed after results had been seen at some seeds is not judged at these.

A fingerprint reads what decides the verdict: the code of the judge with the constants and helpers of its own module that it names, the
wrong constant of its negative control, the expected verdict, the condition of its regime, and the page's default parameters. Words are
left out (docstrings, comments, types, layout, and what the rules are told to say): a better sentence is no other claim. The numbers of
the sentence are not: "between 2.1 and 2.2" is another claim than "between 2.3 and 2.4". A test compares every judge with what was
registered of it last.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from bookkit.files import one_line_each, written_aside
from bookkit.ledger.records import page_name, source_line
from bookkit.pages.catalogue import Page, UserError, one_line
from bookkit.pages.parameters import page_parameters
from bookkit.parser import program
from bookkit.replication import counts
from bookkit.verdicts import as_counted

FILE = "book/registered.json"
FORMAT = 3
# Where a claim is registered with its set, by a decorator or a call that names its id: what decides, and what does not.
DECIDING = ("wrong", "expected", "violation")
WORDS = ("title", "statement", "words", "regime", "wrong_text", "coarse", "source", "box", "uses")
# Keywords of the rules and of `Evidence` whose strings are words.
SAID = ("quantity", "what", "allowance_text", "predicted", "measured", "rule")
UNDECIDING = ("parts",)  # keywords of `Evidence` that no verdict depends on
# Fields of syntax trees that differ between versions of Python, or say nothing about what is computed.
UNREAD = {"type_params", "type_comment", "kind", "returns", "annotation", "ctx"}


@dataclass(frozen=True)
class Registered:
    """What was registered of a claim last: its fingerprint, the day, how often, the reason of a change, and the first unseen seed."""

    fingerprint: str
    day: str
    times: int
    because: str
    unseen: int


# --- what is fixed ----------------------------------------------------------------------------------------------------------


def fingerprint(record: Mapping[str, Any], root: Path) -> str:
    """Sixteen hexadecimal digits that change when what decides the claim's verdict does; see the module.

    `record`: what the page stored of the claim (`bookkit.ledger.records`). A judge that is written in the page itself goes by the
    claim's statement and rule.
    """
    found = source_line(record["function"], root)
    if found:
        path = root / found[0]
        tree = _parsed(path, path.stat().st_mtime_ns)
        judge = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.lineno == found[1])
        shapes = [_shape(node, record["id"]) for node in _reached(tree, judge, record["id"])]
        decides: list[Any] = [record["function"].rpartition(".")[2], *shapes]
    else:
        decides = [record["statement"], record["rule"]]
    decides.append(re.findall(r"\d+(?:\.\d+)?", record["statement"]))
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


def _reached(tree: ast.Module, judge: ast.FunctionDef, claim: str) -> list[ast.AST]:
    """The judge, and every definition of its module that it names, or that one of those names; in the order of the module.

    A judge made by another function is told from its sisters by the statement of the module that holds the claim's id.
    """
    named = {name: node for node in tree.body for name in _names_of(node)}
    makers = [n for n in tree.body if isinstance(n, ast.Expr | ast.For | ast.Assign) and _holds(n, claim)]
    found: dict[int, ast.AST] = {}
    todo: list[ast.AST] = [judge, *makers]
    while todo:
        node = todo.pop()
        found[id(node)] = node
        for name in ast.walk(node):
            other = named.get(name.id) if isinstance(name, ast.Name) else None
            # The set of claims itself, named by every decorator, says nothing.
            if other is not None and id(other) not in found and not _is_claim_set(other):
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


def _shape(node: Any, claim: str, said: bool = False) -> Any:
    """A syntax tree as lists, without places, words, and what differs between versions of Python."""
    if isinstance(node, list):
        return [_shape(item, claim, said) for item in node]
    if said and isinstance(node, ast.Constant) and isinstance(node.value, str):
        return "words"
    said = said or (isinstance(node, ast.keyword) and node.arg in SAID)
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if name not in UNREAD and value not in (None, [])}
    if isinstance(node, ast.FunctionDef):
        fields["decorator_list"] = [_deciding(each) for each in node.decorator_list]
        if ast.get_docstring(node) is not None:
            fields["body"] = node.body[1:]
    if (
        isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == claim
    ):
        fields["keywords"] = [word for word in node.keywords if word.arg not in WORDS]
    elif isinstance(node, ast.Call) and any(word.arg in UNDECIDING for word in node.keywords):
        left = [word for word in node.keywords if word.arg not in UNDECIDING]
        fields = {name: value for name, value in fields.items() if name != "keywords"} | (
            {"keywords": left} if left else {}
        )
    return [type(node).__name__, *([name, _shape(value, claim, said)] for name, value in sorted(fields.items()))]


def _deciding(decorator: ast.expr) -> ast.expr:
    if not isinstance(decorator, ast.Call):
        return decorator
    words = {word.arg: word for word in decorator.keywords}
    return ast.Call(decorator.func, [], [words[name] for name in DECIDING if name in words])


# --- what was registered ------------------------------------------------------------------------------------------------------


def registered(root: Path) -> dict[str, Registered]:
    """By claim, what was registered last. Raises `UserError` for a file that is none of ours."""
    why, claims = _read(root)
    return {
        claim: Registered(mark, days[-1][:10], len(days), str(why[days[-1]][0]), int(why[days[-1]][1]))
        for claim, (mark, *days) in claims.items()
    }


def unregistered(records: Iterable[Mapping[str, Any]], root: Path) -> list[Mapping[str, Any]]:
    """Records of claims that are not registered as they stand: new ones, and those whose judge or sizes changed since."""
    known = registered(root)
    return [r for r in records if r["id"] not in known or known[r["id"]].fingerprint != fingerprint(r, root)]


def register(
    records: Iterable[Mapping[str, Any]], root: Path, why: str, today: date, unseen: int | None = None
) -> list[str]:
    """Register every claim that is not, with the reason; their ids. Writes nothing where all are.

    unseen: the number of the first seed at which nobody has looked; by default the first after those of the table. What is registered on
    one day for one reason is one registration; a second one of the day is named 2026-11-22-2. Raises `UserError` without a reason, or
    for seeds that the table has.
    """
    if not (why := why.strip()):
        raise UserError('because must say why claims are registered, or again; as in --because "first registration"')
    table = counts.read(root)
    looked = table.looked if table else 0
    unseen = looked if unseen is None else unseen
    if unseen < looked:
        raise UserError(f"unseen must be {looked} or more, for {counts.FILE} has the seeds before; got {unseen}")
    because, claims = _read(root)
    new = unregistered(records, root)
    if new:
        name = next(name for name in _free(today) if because.setdefault(name, [why, unseen]) == [why, unseen])
        for record in new:
            _, *days = claims.get(record["id"], [""])
            claims[record["id"]] = [fingerprint(record, root), *days, name]
        _write(root, because, claims)
    return [record["id"] for record in new]


def _free(today: date) -> Iterator[str]:
    """2026-11-22, 2026-11-22-2, ..."""
    yield str(today)
    yield from (f"{today}-{number}" for number in count(2))


def _read(root: Path) -> tuple[dict[str, list[str | int]], dict[str, list[str]]]:
    """By registration, its reason and first unseen seed; by claim, its fingerprint and its registrations."""
    path = root / FILE
    if not path.is_file():
        return {}, {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        because = content["because"]
        if content.pop("seal", None) != counts.sealed(content):
            raise ValueError("edited by hand")
        if content["format"] != FORMAT or not all(days[-1] in because for days in content["claims"].values()):
            raise ValueError("another format, or a registration without its reason")
        if not all(isinstance(why, str) and type(unseen) is int for why, unseen in because.values()):
            raise ValueError("a registration that does not say why, or which seed was the first unseen one")
        if any(later[1] < earlier[1] for earlier, later in pairwise(because.values())):
            raise ValueError("a first unseen seed that lies before that of an earlier registration")
        return because, content["claims"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        back = f"take it back from git, for `{program()} register` alone writes it"
        raise UserError(f"{FILE} is no registration: {one_line(error)}: {back}") from None


def _write(root: Path, because: dict[str, list[str | int]], claims: dict[str, list[str]]) -> None:
    ordered = {claim: claims[claim] for claim in sorted(claims, key=as_counted)}
    content: dict[str, Any] = {"format": FORMAT, "because": because, "claims": ordered}
    with written_aside(root / FILE) as temporary:
        text = one_line_each({**content, "seal": counts.sealed(content)})
        temporary.write_text(text, encoding="utf-8", newline="\n")
