"""Results of a page as a table, not as printed lines: `show_table(rows, columns, caption)`.

    show_table(
        [("plain", 0.6674, 0.0002), ("centred", 0.6742, 0.0001)],
        {"step": "", "risk": ".4f", "standard error": ".1g"},
    )

The numbers are formatted here, so that a page holds none of it. A notebook shows the HTML, a terminal the text; both have one line for
each row, with the same words and numbers, so that stored outputs are compared row by row.
"""

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bookkit.ledger.words import signs

NOTHING = "–"  # in place of nan, which is no number that was measured
# What is set to the right: numbers with their errors, ranges, signs and units; nothing else than these.
FIGURE = re.compile(r"(?:[\d.,−+±\[\]()%*<>≤≥∞–×⁻⁰¹²³⁴⁵⁶⁷⁸⁹ -]|e(?=[-+−\d])|of|to)*")


def show_table(
    rows: Iterable[Sequence[Any]] | Mapping[str, Any], columns: Mapping[str, str] | Sequence[str], caption: str = ""
) -> None:
    """Show rows as a table. Needs IPython (every notebook has it).

    Args:
        rows: one sequence for each row, or a mapping from a row's name to its only value. A cell is a text, a number, None
            (empty), a pair (value, error), written value ± error, or three (value, low, high), written value [low, high].
            Numbers may be tensors or arrays of one entry.
        columns: the heads, each with the format of its numbers (`{"risk": ".3f"}`), or the heads alone. A head, a text and
            the caption may hold $formulas$.
        caption: a line above the table.
    """
    formats = dict(columns) if isinstance(columns, Mapping) else dict.fromkeys(columns, "")
    listed = list(rows.items()) if isinstance(rows, Mapping) else [tuple(row) for row in rows]
    cells = [[written(cell, spec) for cell, spec in zip(row, formats.values(), strict=True)] for row in listed]

    from IPython.display import display

    display(
        {"text/plain": as_text(cells, list(formats), caption), "text/html": as_html(cells, list(formats), caption)},
        raw=True,
    )


def written(value: Any, spec: str = "") -> str:
    """A cell as people read it: numbers by `spec`, ± between a value and its error, signs instead of ASCII."""
    if isinstance(value, tuple):
        middle, *rest = (written(part, spec) for part in value)
        if len(rest) == 2:
            return f"{middle} [{rest[0]}, {rest[1]}]"
        return middle if rest[0] in ("", NOTHING) else f"{middle} ± {rest[0]}"
    if hasattr(value, "item"):
        value = value.item()
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if math.isnan(value):
            return NOTHING
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        value = format(value, spec)
        value = re.sub(r"^-(0?[.]?0*%?)$", r"\1", value)  # minus nothing
    return signs(str(value))


def _numeric(cells: Sequence[Sequence[str]], column: int) -> bool:
    return all(FIGURE.fullmatch(row[column]) for row in cells) and any(re.search(r"\d", row[column]) for row in cells)


def as_text(cells: Sequence[Sequence[str]], heads: Sequence[str], caption: str = "") -> str:
    """Columns of a fixed width, numbers to the right."""
    lines = [list(heads), *cells] if any(heads) else list(cells)
    right = [_numeric(cells, column) for column in range(len(heads))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    padded = (
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join([caption] * bool(caption) + list(padded))


def as_html(cells: Sequence[Sequence[str]], heads: Sequence[str], caption: str = "") -> str:
    """The table as HTML: one line for the caption, one for the heads, one for each row."""
    right = [" style='text-align: right'" if _numeric(cells, column) else "" for column in range(len(heads))]
    named = not right[0]  # a first column of words names the rows
    lines = [f"<caption>{html.escape(caption)}</caption>"] if caption else []
    if any(heads):
        row = "".join(
            f"<th scope='col'{side}>{html.escape(head)}</th>" for head, side in zip(heads, right, strict=True)
        )
        lines.append(f"<thead><tr>{row}</tr></thead>")
    body = [
        "".join(
            f"<th scope='row'>{html.escape(cell)}</th>"
            if named and not column
            else f"<td{side}>{html.escape(cell)}</td>"
            for column, (cell, side) in enumerate(zip(row, right, strict=True))
        )
        for row in cells
    ]
    lines.append("<tbody>" + "\n".join(f"<tr>{row}</tr>" for row in body) + "</tbody>")
    return "<table class='result-table'>" + "\n".join(lines) + "</table>"
