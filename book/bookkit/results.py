"""Named results of a page: what a sweep collects, readable without executing anything.

A page calls `record(name=value, ...)`. The output it leaves in the notebook holds a JSON object, a text and a small HTML table;
`read_results` finds the object again in any executed copy.
"""

import html
import math
from typing import Any

from bookkit import DISTRIBUTION

CLAIMS_TYPE = f"application/vnd.{DISTRIBUTION}.claims+json"
RESULTS_TYPE = f"application/vnd.{DISTRIBUTION}.results+json"


def plain(name: str, value: Any) -> Any:
    """`value` as JSON can hold it: number, string, bool, None or a list of those. nan and inf become None.

    Accepts torch and numpy scalars and arrays. Raises ValueError for anything else.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(name, item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    raise ValueError(f"result {name} must be a number, a string or a list of them; got {type(value).__name__}")


def publish(mime_type: str, payload: Any, text: str, table: str) -> None:
    """Show an output that people read as a table and programs read as JSON. Needs IPython (every notebook has it)."""
    from IPython.display import display

    display({mime_type: payload, "text/plain": text, "text/html": table}, raw=True)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return "n/a" if value is None else str(value)


def record(**values: Any) -> None:
    """Show named results and leave them in the notebook. Raises ValueError when one is not plain."""
    payload = {name: plain(name, value) for name, value in values.items()}
    publish(RESULTS_TYPE, payload, *shown(payload))


def shown(payload: dict[str, Any]) -> tuple[str, str]:
    """Named results as text and as a table in HTML."""
    text = "\n".join(f"{name} = {_short(value)}" for name, value in payload.items())
    rows = "".join(
        f"<tr><th scope='row'><code>{html.escape(k)}</code></th><td>{html.escape(_short(v))}</td></tr>"
        for k, v in payload.items()
    )
    head = "<thead><tr><th scope='col'>named result</th><th scope='col'>value</th></tr></thead>"
    return text, f"<table class='named-results'>{head}<tbody>{rows}</tbody></table>"


def read(notebook: Any, mime_type: str) -> list[Any]:
    """Every payload of one type in an nbformat notebook (a NotebookNode or the plain dict), in order."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return [output["data"][mime_type] for output in outputs if mime_type in output.get("data", {})]


def read_results(notebook: Any) -> dict[str, Any]:
    """The named results of an executed notebook; later records of a name win. Empty when it has none."""
    merged: dict[str, Any] = {}
    for payload in read(notebook, RESULTS_TYPE):
        merged.update(payload)
    return merged
