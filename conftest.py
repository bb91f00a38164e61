"""How pytest runs the pages: `pytest --nbval notebooks`.

nbval executes each code cell of a stored notebook and compares. What counts as equal is the book's own rule,
`bookkit.pages.stored_outputs`, so it replaces nbval's comparison, which knows only exact texts.
"""

import os

import pytest
from nbval.plugin import IPyNbCell

from bookkit.pages.forked import fork_kernels
from bookkit.pages.notebooks import stored_on
from bookkit.pages.one_page import OUTPUT_LIMIT
from bookkit.pages.processors import another
from bookkit.pages.stored_outputs import compare_outputs
from bookkit.pages.tolerances import read
from bookkit.settings import settings


def pytest_configure(config: pytest.Config) -> None:
    """A page must not be stable on the processor of its author only: nbval runs on another machine than the one that stored."""
    if config.option.nbval and (root := config.rootpath / "notebooks").is_dir():
        os.environ.update(another({stored_on(path) for path in root.rglob("[!.]*.ipynb")}))
        fork_kernels()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, IPyNbCell):
            item.compare_outputs = _comparison_for(item)
            item.output_timeout = OUTPUT_LIMIT


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    # nbval compares nothing where the execution count is missing: a notebook cleared of all outputs would pass.
    if isinstance(item, IPyNbCell) and item.cell.execution_count is None:
        item.raise_cell_error("this cell was never executed: run `make notebooks`")


def _comparison_for(item: IPyNbCell):
    def compare(fresh, stored, skip_compare=None) -> bool:
        # nbval counts code cells from 0, the book from 1.
        found = compare_outputs(stored, fresh, read(item.path), item.cell_num + 1)
        renew = f"`{settings().program} notebooks {item.path.parent.name}/{item.path.stem}` stores what is shown now"
        item.comparison_traceback = [*found, renew] if found else []
        return not found

    return compare
