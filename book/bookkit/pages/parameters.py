"""Parameters of a page: read from its cell tagged ``parameters``, and checked before any kernel starts.

The cell holds one literal per line, and is the only place where a parameter is described::

    n: int = 200  # training samples [at least 1]
    label_noise: float = 0.05  # probability that a label is flipped, eta [0, 0.5]
    mode: str = "reduced"  # law to draw from [reduced | dense]

Ranges: ``[lo, hi]`` (closed), ``[at least x]``, ``[> x]``, ``[a | b | c]`` (one of); a ``bool`` needs none. ``[>= x]`` is read too,
but papermill's own reader takes no line with a second ``=`` for a parameter.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import io
import math
import re
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bookkit.pages.catalogue import Page, UserError, one_line, read_page
from bookkit.settings import settings

if TYPE_CHECKING:
    from nbformat import NotebookNode

TYPES = {"int": int, "float": float, "str": str, "bool": bool}
WORDS = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}


@dataclass(frozen=True)
class Range:
    """Values a parameter may take: an interval, or a finite list of ``choices``."""

    text: str
    low: float = -math.inf
    high: float = math.inf
    low_is_open: bool = False
    choices: tuple[Any, ...] = ()

    def __contains__(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        return (value > self.low if self.low_is_open else value >= self.low) and value <= self.high

    def __str__(self) -> str:
        if self.choices:
            return f"one of {self.text}"
        return f"in [{self.text}]" if math.isfinite(self.high) else self.text


@dataclass(frozen=True)
class Parameter:
    """One line of a parameters cell."""

    name: str
    type: type
    default: Any
    help: str
    range: Range | None

    @property
    def expectation(self) -> str:
        """What a value must be, in words: ``an integer >= 1``, ``one of reduced | dense``."""
        if self.range is None:
            return WORDS[self.type]
        return str(self.range) if self.range.choices else f"{WORDS[self.type]} {self.range}"


def parameter_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Code cells tagged ``parameters``; a page has exactly one."""
    return [c for c in notebook.cells if c.cell_type == "code" and "parameters" in c.metadata.get("tags", [])]


def page_parameters(page: Page) -> list[Parameter]:
    """Parameters of a page in the order of its cell. Raises `UserError` when the cell is not well formed."""
    cells = parameter_cells(read_page(page))
    if len(cells) != 1:
        raise UserError(f"page {page.name} must have exactly one code cell tagged 'parameters'; it has {len(cells)}")
    try:
        return parse_parameters(cells[0].source)
    except ValueError as error:
        raise UserError(f"page {page.name}: {error}") from error


def parse_parameters(source: str) -> list[Parameter]:
    """Read a parameters cell. Raises `ValueError` that quotes the first line which does not follow the form above."""
    try:
        statements = ast.parse(source).body
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, tokenize.TokenError) as error:
        raise ValueError(f"parameters cell is not Python: {one_line(error)}") from error
    comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    lines = source.splitlines()
    parameters: list[Parameter] = []
    for statement in statements:
        try:
            parameter = _parse_line(statement, comments.get(statement.end_lineno or 0, ""))
            if parameter.name in {other.name for other in parameters}:
                raise ValueError("the name is taken by a line above")
        except ValueError as error:
            raise ValueError(f"parameters cell, line {lines[statement.lineno - 1].strip()!r}: {error}") from error
        parameters.append(parameter)
    return parameters


def _parse_line(statement: ast.stmt, comment: str) -> Parameter:
    if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value):
        raise ValueError("expected `name: type = value  # meaning [range]`")
    annotation = ast.unparse(statement.annotation)
    if annotation not in TYPES:
        raise ValueError(f"type must be one of {', '.join(TYPES)}; got {annotation}")
    kind = TYPES[annotation]
    try:
        default = ast.literal_eval(statement.value)
    except ValueError:
        raise ValueError(f"value must be a literal; got {ast.unparse(statement.value)}") from None
    match = re.fullmatch(r"#\s*(?P<help>.*?)\s*(\[(?P<range>[^\[\]]*)\])?\s*", comment)
    if not match or not match["help"]:
        raise ValueError("a comment must say what the parameter means")
    if match["range"] is None and kind is not bool:
        raise ValueError(
            "the comment must end with the range in brackets, as in [0, 0.5], [at least 1], [> 0] or [a | b]"
        )
    allowed = None if match["range"] is None else parse_range(match["range"], kind)
    parameter = Parameter(statement.target.id, kind, default, match["help"].rstrip(" ,"), allowed)
    return Parameter(parameter.name, kind, check_value(parameter, default), parameter.help, allowed)


def parse_range(text: str, kind: type) -> Range:
    """``0, 0.5`` | ``at least 1`` | ``> 0`` | ``a | b | c`` -> `Range`. Raises `ValueError` on anything else."""
    text = " ".join(text.split())
    if "|" in text:
        choices = tuple(part.strip() for part in text.split("|"))
        if "" in choices or len(set(choices)) < len(choices):
            raise ValueError(f"range [{text}] has an empty or a repeated choice")
        return Range(text, choices=choices if kind is str else tuple(kind(_finite(part)) for part in choices))
    if kind not in (int, float):
        raise ValueError(f"range [{text}] of a {kind.__name__} must list its choices, as in [a | b]")
    if match := re.fullmatch(r"(at least |>=?) ?(\S+)", text):
        sign = ">" if match[1] == ">" else ">="
        return Range(f"{sign} {match[2]}", low=_finite(match[2]), low_is_open=sign == ">")
    if match := re.fullmatch(r"(\S+), (\S+)", text):
        low, high = _finite(match[1]), _finite(match[2])
        if low > high:
            raise ValueError(f"range [{text}] is empty")
        return Range(text, low=low, high=high)
    raise ValueError(f"range [{text}] is none of [lo, hi], [at least x], [> x], [a | b]")


def _finite(text: str) -> float:
    value = number_from_text(text)
    if value is None or not math.isfinite(value):
        raise ValueError(f"a bound of a range must be a finite number; got {text!r}")
    return value


# Decimal, and nothing that languages and versions of YAML read in two ways, as 0100 and 1_000. inf and nan are read, and refused as such.
NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]+)?\Z|[-+]?\.?(inf|nan)\Z", re.I)


def number_from_text(text: str) -> int | float | None:
    """A number as people write it, or None. ``1e9`` is the integer it is, so that it may stand for a dimension."""
    if not NUMBER.match(text):
        return None
    if text.lstrip("-+").isdigit() and len(text) < 400:
        return int(text)
    exact = Decimal(text if text[-1] not in "fFnN" else text.replace(".", ""))
    # The bound on the size keeps 1e999999999 from being written out digit by digit; as a float it is inf, and refused.
    if exact.is_finite() and abs(exact.adjusted()) < 300 and "e" in text.lower() and exact == exact.to_integral_value():
        return int(exact)
    return float(exact)


def value_from_text(parameter: Parameter, text: str) -> Any:
    """A value typed on the command line, read by the parameter's type; what cannot be read stays text."""
    if parameter.type in (int, float):
        number = number_from_text(text.strip())
        return text if number is None else number
    if parameter.type is bool:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    return text


def check_value(parameter: Parameter, value: Any) -> Any:
    """`value` as the parameter's type. Raises `UserError` naming the parameter, what it must be, and the value."""

    def refuse(why: str = "") -> UserError:
        return UserError(f"parameter {parameter.name} must be {parameter.expectation}; got {shown(value)}{why}")

    if parameter.type is bool or parameter.type is str:
        if not isinstance(value, parameter.type):
            raise refuse()
    else:
        if isinstance(value, str) and re.fullmatch("[-+]?[0-9](_?[0-9]){0,20}", value):  # 0100, 1_000, '3'
            raise refuse(f": write {int(value)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refuse()
        if isinstance(value, int) and abs(value) >= 2**63:
            raise refuse(", which is too large")
        if not math.isfinite(value):
            raise refuse(", which is not finite")
        if parameter.type is int and isinstance(value, float):
            raise refuse(f": write {int(value)}" if value.is_integer() else "")
        value = parameter.type(value)
    if parameter.range is not None and value not in parameter.range:
        raise refuse()
    return value


def check_parameters(page: Page, values: Mapping[str, Any]) -> dict[str, Any]:
    """Check `values` against the page's parameters cell, before any kernel starts.

    Returns the values, each of its declared type (an int given for a float becomes one). Raises `UserError` (which is a
    `ValueError`) with one line: page, parameter, expectation, value; for an unknown name the nearest one and all names.
    """
    known = {parameter.name: parameter for parameter in page_parameters(page)}
    checked = {}
    for name, value in values.items():
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UserError(f"page {page.name} has no parameter {name!r}; {hint}it takes: {', '.join(known) or 'none'}")
        try:
            checked[name] = check_value(known[name], value)
        except UserError as error:
            raise UserError(f"page {page.name}: {error}") from None
    return checked


def require_room(page: Page, points: Iterable[Mapping[str, Any]], root: Path) -> None:
    """Raise `UserError` if the page cannot be run here at one of `points`, by the book's own estimate: `room` of its `settings`.

    What a point does not name has the page's own value; the page as it is stored is not asked about.
    """
    module, _, function = settings(root).room.partition(":")
    own = {parameter.name: parameter.default for parameter in page_parameters(page)}
    for values in points:
        if module and not values.items() <= own.items():
            try:
                getattr(importlib.import_module(module), function)(own | {**values})
            except ValueError as error:
                raise UserError(f"page {page.name}: {error}") from error


def shown(value: Any, width: int = 60) -> str:
    """A value as it stands in a message: short, on one line."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out integers of more than some thousand digits
        text = f"a {type(value).__name__} too long to show"
    return one_line(text, width)
