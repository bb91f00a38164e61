"""What a page records, by its own cells, run here instead of in a kernel: parameters, the cells asked for, and `record(...)`."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from bookkit.pages.catalogue import read_page, resolve_page
from bookkit.pages.parameters import page_parameters, parameter_cells
from bookkit.results import plain

ROOT = Path(__file__).parents[2]


def recorded_by_page(
    page: str, parameters: Mapping[str, Any], *cells: str, between: Callable[[dict], None] | None = None
) -> dict[str, Any]:
    """Named results of a page at `parameters`, as stored.

    Of its code cells only the parameters, the one that imports `record`, those with a text of `cells` and the one that calls
    `record` are run; `between` may add to the names before the last.
    """
    notebook = read_page(resolve_page(page, ROOT))
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    names: dict[str, Any] = {}
    exec(parameter_cells(notebook)[0].source, names)
    assert set(parameters) <= set(names), "the test knows parameters that the page has not"
    names |= parameters
    with plt.rc_context():
        exec(next(cell for cell in code if "import record" in cell), names)
    for text in cells:
        exec(next(cell for cell in code if text in cell), names)
    if between is not None:
        between(names)
    recorded: dict[str, Any] = {}
    names["record"] = lambda **values: recorded.update({name: plain(name, value) for name, value in values.items()})
    exec(next(cell for cell in code if "\nrecord(" in f"\n{cell}"), names)
    return recorded


@cache  # reading a page takes a tenth of a second, and every worker collects every test
def _defaults(page: str) -> dict[str, Any]:
    return {parameter.name: parameter.default for parameter in page_parameters(resolve_page(page, ROOT))}


def complete(page: str, **changes: Any) -> dict[str, Any]:
    """All parameters of a page, at their defaults but for `changes`."""
    defaults = _defaults(page)
    assert set(changes) <= set(defaults)
    return defaults | changes


def as_stored(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What becomes of a batched function's answer in a sweep's rows."""
    return [{name: plain(name, value) for name, value in named.items()} for named in results]
