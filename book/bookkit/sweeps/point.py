"""One attempt at one point: its page, run by papermill in a kernel of its own, within limits, and what came of it."""

from __future__ import annotations

import ast
import asyncio
import tempfile
import threading
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bookkit.code import Code, imported
from bookkit.pages.catalogue import one_line
from bookkit.pages.one_page import PageError, as_text, read_source, run_in_folder
from bookkit.results import read_results
from bookkit.sweeps.identity import Job, Outcome, Point, require_version, versions
from bookkit.sweeps.limits import Watch

if TYPE_CHECKING:
    from nbformat import NotebookNode

__all__ = ["records_results", "run_point"]

NO_RESULTS = "the page recorded no named results: call bookkit.results.record(name=value) in one of its cells"

_one_at_a_time = threading.Lock()  # papermill changes the working directory and the environment of the process


def run_point(job: Job, point: Point, backend: Literal["local", "dask"], code: Code | None = None) -> Outcome:
    """Run the page of `job` with the parameters of `point` and say what came of it. A failing page is no error.

    May be called from any thread; calls in one process wait for each other. `code` is what the page
    imports (default: the job's packages, as imported here). Nothing is left behind: no process, no file.

    Raises `OtherVersion` when the code here is not the one of the job, before the page or after it.
    """
    code = code or imported(job.packages)
    with _one_at_a_time:
        require_version(job, code)
        start = time.monotonic()
        outcome = _attempt(job, point, code)
        seconds = time.monotonic() - start
        require_version(job, code)
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    status = "failed" if outcome.get("error") else "done"
    return Outcome(point, status, backend, seconds, finished, versions(job.distributions), **outcome)


def _attempt(job: Job, point: Point, code: Code) -> dict[str, Any]:
    """What is known of an attempt but its time: results, or error and traceback; memory; notebook if it is kept."""
    notebook = watch = None
    try:
        with tempfile.TemporaryDirectory(prefix="point-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            with Watch(folder, job.time_limit, job.memory_limit) as watch:
                notebook = run_in_folder(folder, job.source, point.parameters, job.page, code, watch.begin)
        found = _results(notebook)
        if watch.exceeded:  # between the end of the page and that of its kernel
            found = {"error": f"{watch.exceeded} exceeded in the last code cell"}
    except PageError as error:
        notebook = error.notebook
        found = {"error": error.what, "traceback": error.traceback or error.what}
        if watch is not None and watch.exceeded:
            where = f"in code cell {error.cell}" if error.cell else "before the first code cell"
            found["error"] = f"{watch.exceeded} exceeded {where}"
    except Exception as error:  # a full disk, say: the points after this one are still worth trying
        found = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    finally:
        _close_event_loop()
    if "error" in found:
        found["error"] = one_line(found["error"], width=1000)
    if notebook is not None and (job.notebooks == "all" or (job.notebooks == "failed" and "error" in found)):
        found["notebook"] = as_text(notebook)
    return found | {"memory": watch.peak if watch is not None else None}


def _results(notebook: NotebookNode) -> dict[str, Any]:
    try:
        results = read_results(notebook)
    except (KeyError, TypeError, ValueError) as error:  # something else was shown under their type
        what = f"the page's named results cannot be read: {type(error).__name__}: {error}"
        return {"error": what, "traceback": traceback.format_exc()}
    return {"results": results} if results else {"error": NO_RESULTS}


def _close_event_loop() -> None:
    """The loop that papermill leaves open in this thread: every point would leave one more, with its sockets."""
    from jupyter_core.utils import ensure_event_loop

    loop = ensure_event_loop()
    if not loop.is_running():
        loop.close()
        asyncio.set_event_loop(None)


def records_results(source: str) -> bool:
    """Whether some code cell of a page calls `record(...)`: read from its source, nothing is executed."""
    from IPython.core.inputtransformer2 import TransformerManager

    for cell in read_source(source).cells:
        if cell.cell_type != "code":
            continue
        text = cell.source.partition("\n")[2] if cell.source.lstrip().startswith("%%") else cell.source
        try:
            nodes = ast.walk(ast.parse(TransformerManager().transform_cell(text)))
        except SyntaxError:
            continue  # the kernel will say so, with the line
        for node in nodes:
            if isinstance(node, ast.Call):
                called = node.func
                name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
                if name == "record":
                    return True
    return False
