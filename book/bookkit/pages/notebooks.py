"""Renew the stored outputs (`make notebooks`): every .md is executed, its .ipynb rewritten where it changed.

The same sources give the same bytes: cell ids are hashes of the cells, and nothing that tells the time or the machine
is kept (`execution` sees to both). So a changed notebook in a diff means a changed page. Pages run as on a machine of 2008
(`processors.STORING`), so that whoever compares them on a processor with AVX runs another one.

A renewed .ipynb has the time of its .md, as Jupyter has it: one that is newer was written by another program. And it keeps what was run
and what came out, as hashes (`as_it_ran`): code that was changed since, or an output that was edited, shows itself without a run.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from bookkit.code import code_of
from bookkit.ledger.records import read_page_checks
from bookkit.pages import tolerances
from bookkit.pages.catalogue import (
    Page,
    UserError,
    find_pages,
    find_root,
    read_page,
    require_writable,
    resolve_page,
    write_atomically,
)
from bookkit.pages.execution import PagesFailed, execute_pages
from bookkit.pages.one_page import as_text, cell_ids, code_cells
from bookkit.pages.processors import storing
from bookkit.pages.stored_outputs import compare_outputs
from bookkit.parser import Parser, complain, program, say
from bookkit.settings import settings

MOVED = 12  # differences that are told of one page


def renew(
    root: Path,
    check: bool = False,
    jobs: int = 2,
    cache_dir: Path | None = None,
    only: Sequence[str] = (),
    force: bool = False,
) -> dict[Path, list[str]]:
    """Execute the pages of the book in `root`, or `only` those named; return stored notebooks whose bytes differ, and what moved.

    Paths are relative to `root`. They are rewritten, each in one step, unless `check`. A page comes from `cache_dir` when
    nothing that it depends on changed. Raises `PagesFailed`, before anything is written, when a page fails, and
    `UserError`, before any page is run, when one would lose an edit of its .ipynb (unless `force`).
    """
    wanted = [resolve_page(name, root) for name in only] or find_pages(root)
    pages = {page.source: page for page in wanted}
    edited = [str(page.stored.relative_to(root)) for page in wanted if edited_alone(page)]
    if edited and not (check or force):
        raise UserError(
            f"edited, and their .md have other cells: {' '.join(edited)}; keep what the .ipynb say with "
            f"`python -m jupytext --to md:myst {' '.join(edited)}`, or what the .md say with --force"
        )
    ages = {source: source.stat() for source in pages}
    before = {
        source: (_notebook(page.stored), tolerances.read(page.stored, edited=True)) for source, page in pages.items()
    }
    if not check:
        require_writable({page.stored.parent for page in wanted})
    machine, environment = storing()
    results = execute_pages(list(pages), jobs, cache_dir, root, environment=environment)
    changed = {}
    for source, page in pages.items():
        content = nbformat.reads(results[source].notebook, as_version=4)
        # Who ran it: it must be compared on another machine. Not below "bookkit", which jupytext would carry into the .md.
        content.metadata["stored_on"] = machine
        content.metadata["ran"] = as_it_ran(content)
        fresh = as_text(content)
        if not page.stored.is_file() or page.stored.read_bytes() != fresh.encode():
            changed[page.stored.relative_to(root)] = moved(*before[source], content)
            if not check:
                write_atomically(page.stored, fresh)
                os.utime(page.stored, ns=(ages[source].st_atime_ns, ages[source].st_mtime_ns))
    return changed


def moved(stored: NotebookNode | None, known: tolerances.Tolerances, fresh: NotebookNode) -> list[str]:
    """What a run shows otherwise than the stored one did, beyond its tolerances: whoever meant to change one figure sees all of them."""
    if stored is None or len(code_cells(stored)) != len(code_cells(fresh)):
        return []
    pairs = compared(stored, fresh)
    return [f"code cell {n}, {one}" for n, a, b in pairs for one in compare_outputs(a.outputs, b.outputs, known, n)]


def compared(stored: NotebookNode, fresh: NotebookNode) -> Iterator[tuple[int, NotebookNode, NotebookNode]]:
    """Number, stored and fresh form of each code cell whose outputs are compared."""
    for number, (old, new) in enumerate(zip(code_cells(stored), code_cells(fresh), strict=True), start=1):
        if "nbval-ignore-output" not in old.metadata.get("tags", []):
            yield number, old, new


def _notebook(path: Path) -> NotebookNode | None:
    try:
        return nbformat.read(path, as_version=4)
    except Exception:  # none yet, or no notebook, such as one with the marks of a merge
        return None


def edited_alone(page: Page) -> bool:
    """Whether the .ipynb has cells that the .md lacks and that no renewal wrote: newer ones, or with ids that are not theirs."""
    if (stored := _notebook(page.stored)) is None:
        return False
    theirs, ours = ([(cell.cell_type, cell.source) for cell in each.cells] for each in (stored, read_page(page)))
    if theirs == ours:
        return False
    own = [cell.get("id") for cell in stored.cells] == [*cell_ids(stored)]
    return not own or page.stored.stat().st_mtime_ns > page.source.stat().st_mtime_ns


def stored_on(path: Path) -> str:
    """The machine that ran a stored notebook; empty where it does not say."""
    return json.loads(path.read_text(encoding="utf-8"))["metadata"].get("stored_on", "")


def as_it_ran(notebook: NotebookNode) -> dict[str, str]:
    """SHA-256 of a notebook's code and of its outputs: what a renewal keeps as the metadata `ran`."""
    cells = code_cells(notebook)
    parts = {"code": [cell.source for cell in cells], "outputs": [cell.outputs for cell in cells]}
    return {name: hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest() for name, part in parts.items()}


def stale(notebook: NotebookNode, page: str, root: Path | None = None) -> str:
    """A sentence where a stored notebook is not as `page` ran, or a table that it read is another now in the book in `root`.

    Empty otherwise. It finds what happens by accident, and edits by hand. Whoever also writes the hashes anew is found by running the
    page (nbval).
    """
    command = f"`{settings().program} notebooks {page}`"
    kept, now = notebook.metadata.get("ran", {}), as_it_ran(notebook)
    said = {"code": "the code of {} changed after it was run", "outputs": "outputs of {} were edited after it was run"}
    for part, what in said.items():
        if kept.get(part) != now[part]:
            return f"{what.format(page)}: {command}"
    for name, known in notebook.metadata.get("tables", {}).items():
        files = [folder / name for folder in code_of(root or find_root()).folders if (folder / name).is_file()]
        if known not in [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]:
            return f"{page} read the table {name}, which changed since: {command}"
    return ""


def surprising(path: Path) -> list[dict[str, Any]]:
    """The claims of a stored notebook whose verdict is not the expected one."""
    return [record for record in read_page_checks(path) if record["verdict"] != record["expected"]]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of the command `notebooks`. Returns 1 when a page fails, a verdict is unexpected, or `--check` finds a change, else 0."""
    parser = Parser(prog=f"{program()} notebooks", description="Renew the stored outputs of all pages.")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="only these pages (default: all)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a stored notebook would change")
    parser.add_argument("--force", action="store_true", help="overwrite a .ipynb that was edited in another program")
    parser.add_argument("--no-cache", action="store_true", help="execute every page, whatever `make book` has kept")
    parser.add_jobs("pages run", 2)
    options = parser.parse_args(argv)
    root = find_root()
    try:
        cache = None if options.no_cache else root / "_build" / "cache"
        changed = renew(root, options.check, options.jobs, cache, options.pages, options.force)
    except PagesFailed as error:
        return complain(error, 1)
    word = "would change" if options.check else "renewed"
    for path, told in changed.items():
        more = [f"  ... and {len(told) - MOVED} more"] if len(told) > MOVED else []
        say(f"{word}: {path}", *(f"  {each}" for each in told[:MOVED]), *more)
    if not changed:
        say("Stored notebooks are up to date.")
    surprises = [record for path in changed if not options.check for record in surprising(root / path)]
    for record in surprises:
        said = f"{record['id']}: {record['verdict']}, expected {record['expected']}; measured {record['measured']}"
        say(f"{said}. The book is not built with it", error=True)
    return int(bool(surprises) or (options.check and bool(changed)))
