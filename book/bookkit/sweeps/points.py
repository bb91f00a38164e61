"""One point of a sweep: its page, run by papermill in a kernel, or many by its batched function; what comes of it is a row."""

import asyncio
import hashlib
import importlib
import os
import platform
import re
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from bookkit.code import imported
from bookkit.pages.catalogue import UserError, one_line
from bookkit.pages.one_page import PageError, as_text, read_source, run_in_folder
from bookkit.results import plain, read_results

NO_RESULTS = "the page recorded no named results: call bookkit.results.record(name=value) in one of its cells"
FIRST, LARGEST, SECONDS = 8, 4096, 4.0  # points of the first batch, and of any; seconds from which batches do not grow

Row = dict[str, Any]
_folders: set[str] = set()  # of the point that runs
_one_at_a_time = threading.Lock()  # papermill changes the working directory and the environment of the process


@dataclass(frozen=True)
class Job:
    """What all points of a sweep share."""

    page: str  # as in single_head/02_two_steps
    source: str  # MyST source of the page
    package_hash: str
    packages: tuple[str, ...]  # what the page imports of the book's own
    distributions: tuple[str, ...] = ()  # whose versions are kept beside every result
    notebooks: Literal["none", "failed", "all"] = "failed"
    time_limit: int | None = None  # seconds for a cell

    @property
    def page_hash(self) -> str:
        """SHA-256 of the page's source."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @cached_property
    def versions(self) -> dict[str, str]:
        """Python and the distributions, as installed here."""
        found = {"python": platform.python_version()}
        for name in self.distributions:
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = "not installed"
        return found

    def require_version(self) -> None:
        """Raise `UserError` when the packages here are not those of the sweep: a worker has others, or they were edited meanwhile."""
        if (here := imported(self.packages).hash()) != self.package_hash:
            raise UserError(
                f"the {' and '.join(self.packages)} here is not that of the sweep ({here[:12]}, not {self.package_hash[:12]}): do "
                "not edit it while a sweep runs, and start the sweep again"
            )

    def row(self, id_: str, parameters: Mapping[str, Any], engine: str, seconds: float, **found: Any) -> Row:
        """The row of a point: `found` holds its results, or an error and its traceback."""
        row = {"id": id_, "status": "done", "parameters": dict(parameters), "results": None, "engine": engine}
        row |= {
            "seconds": seconds,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": self.versions,
        }
        row |= {"error": None, "traceback": None} | found
        if row["error"] is not None:
            row |= {"status": "failed", "results": None, "error": one_line(row["error"], width=1000)}
        return row


def run_point(job: Job, id_: str, parameters: Mapping[str, Any], engine: str = "local") -> tuple[Row, str | None]:
    """Run the page of `job` at one point: its row, and its notebook where it is to be kept. A failing page is no error.

    May be called from any thread; calls in one process wait for each other. Nothing is left behind: no kernel, no file.

    Raises `UserError` when the packages here are not those of the job, before the page or after it.
    """
    notebook, found = None, {}
    with _one_at_a_time:
        job.require_version()
        start = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="point-", ignore_cleanup_errors=True) as name:
                _folders.add(name)
                where = (Path(name), job.source, parameters, job.page, imported(job.packages))
                notebook = run_in_folder(*where, time_limit=job.time_limit)
            results = {key: plain(key, value) for key, value in read_results(notebook).items()}
            found = {"results": results} if results or job.notebooks == "all" else {"error": NO_RESULTS}
        except PageError as error:
            notebook = error.notebook
            found = {"error": error.what, "traceback": error.traceback or error.what}
        except UserError:  # no point can run here
            raise
        except Exception as error:  # results of another form, a full disk: the points after this one are worth trying
            found = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        seconds = time.monotonic() - start
        _folders.clear()
        _close_event_loop()
        job.require_version()
    row = job.row(id_, parameters, engine, seconds, **found)
    keep = job.notebooks == "all" or (job.notebooks == "failed" and row["status"] == "failed")
    return row, as_text(notebook) if keep and notebook is not None else None


def end_with(parent: int) -> None:
    """In a worker process: end as soon as the command is gone, and with this process its kernel, which looks for its parent too."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        for folder in [*_folders] * 100:  # again where papermill saved a page into it meanwhile
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _close_event_loop() -> None:
    """The loop that papermill leaves open in this thread, with its sockets."""
    from jupyter_core.utils import ensure_event_loop

    loop = ensure_event_loop()
    if not loop.is_running():
        loop.close()
        asyncio.set_event_loop(None)


def records_results(source: str) -> bool:
    """Whether some code cell of a page calls `record(...)`, by its text: nothing is executed."""
    cells = (cell.source for cell in read_source(source).cells if cell.cell_type == "code")
    return any(re.search(r"^[^#\n]*\brecord\(", cell, re.MULTILINE) for cell in cells)


# --- batched ------------------------------------------------------------------------------------------------------------


def batched_function(source: str, packages: Sequence[str]) -> Callable[[list[dict]], list[dict]] | None:
    """The function that a page's header declares for many points at once, or None::

        bookkit:
          batched: attnbook.single_head.batched:two_steps

    It takes complete parameter sets and returns, in the same order, the named results of each: those that the page's
    `record(...)` would leave, with the same numbers.

    Raises `UserError` for a declaration that is not `module:function` inside one of `packages`, or names what is not there.
    """
    import jupytext

    try:
        header = jupytext.reads(source, fmt="md:myst").metadata.get("bookkit", {})
    except Exception as error:  # of its YAML, or of what jupytext makes of an empty entry
        raise UserError(f"the page's header cannot be read: {type(error).__name__}: {one_line(error)}") from None
    name = header.get("batched") if isinstance(header, Mapping) else header
    if name is None:
        return None
    if not re.fullmatch(rf"({'|'.join(packages)})(\.\w+)+:\w+", str(name)) or not packages:
        raise UserError(
            f"the page's header must say `bookkit: {{batched: module:function}}`, of a module inside "
            f"{' or '.join(packages) or 'a package of the book'}; got {one_line(repr(name))}"
        )
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the module imports is not installed
        raise UserError(f"the page's header names the batched function {name}: {one_line(error)}") from None


def run_batched(job: Job, points: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[Row, None]]:
    """Rows of `points` by the page's batched function, batch by batch, in order.

    Batches grow until one takes some seconds, so an interruption loses no more; a point's numbers do not depend on its batch.
    When a batch raises, its points are tried one by one, and those that raise again are failed. Everything runs on one thread,
    as a page's kernel does: sums are added in the same order and give the same digits.

    Raises `UserError` when the function does not return one dict of plain named results per point, and when the package is not,
    or no longer, the job's.
    """
    from threadpoolctl import threadpool_limits

    function = batched_function(job.source, job.packages)

    def rows(batch: list[str]) -> Iterator[tuple[Row, None]]:
        start = time.perf_counter()
        try:
            # Copies: a function that changed a point's parameters would change what its row says.
            all_found = _named(job, function([dict(points[id_]) for id_ in batch]), len(batch))
        except UserError:
            raise
        except Exception as error:
            if len(batch) > 1:
                for id_ in batch:
                    yield from rows([id_])
                return
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            found = {"error": text, "traceback": traceback.format_exc()}
            yield job.row(batch[0], points[batch[0]], "batched", time.perf_counter() - start, **found), None
            return
        seconds = (time.perf_counter() - start) / len(batch)
        for id_, results in zip(batch, all_found, strict=True):
            yield job.row(id_, points[id_], "batched", seconds, results=results), None

    left, size = list(points), FIRST
    while left:
        batch, left = left[:size], left[size:]
        start = time.perf_counter()
        job.require_version()
        with threadpool_limits(1):
            made = list(rows(batch))
        job.require_version()
        yield from made
        size = min(2 * size, LARGEST) if time.perf_counter() - start < SECONDS else size


def _named(job: Job, found: Any, points: int) -> list[dict[str, Any]]:
    """The answer of a batched function as `record` would leave it. Raises `UserError` for what is no such list."""
    if (
        not isinstance(found, list)
        or len(found) != points
        or not all(isinstance(each, dict) and each for each in found)
    ):
        got = f"a list of {len(found)}" if isinstance(found, list) else type(found).__name__
        raise UserError(
            f"the batched function of page {job.page} must return a list with one dict of named results for each of "
            f"{points} points; got {got}"
        )
    try:
        return [{name: plain(name, value) for name, value in named.items()} for named in found]
    except ValueError as error:
        raise UserError(f"the batched function of page {job.page}: {one_line(error)}") from None
