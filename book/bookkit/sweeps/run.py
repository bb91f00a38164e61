"""A sweep: a page at every point of a grid, a small file for each point that is finished, and one table of all.

    point-ID.json     parameters, named results, seconds, error; ID is the hash of the page's source, the packages' and the parameters
    results.parquet   the table, written whenever a sweep ends in an orderly way

joblib gives the points to processes of this machine, or to the workers of a Dask cluster; the command alone writes, aside and
renamed. A row has the name of its own version of page and code, so another version's row is never read: it stays, unread.
"""

import asyncio
import hashlib
import json
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
from filelock import FileLock, Timeout
from tqdm import tqdm

from bookkit.code import code_of, imported
from bookkit.files import written_aside
from bookkit.pages.catalogue import UserError, find_root, one_line, require_writable, resolve_page
from bookkit.pages.one_page import PageError, run_in_folder
from bookkit.pages.parameters import require_room
from bookkit.pages.rerun import RunError, told
from bookkit.parser import Parser, complain, harmless, program, say
from bookkit.results import plain, read_results
from bookkit.sweeps.grid import read_grid

if TYPE_CHECKING:
    import pandas
    import pyarrow

Grid = Path | str | Mapping[str, Any]
Row = dict[str, Any]  # parameters, results, status (done, failed, missing), seconds, error (None unless failed)
SAFE = "all rows so far are safe: give the same command again"
AHEAD, CONNECT = (
    1000,
    10,
)  # points that a cluster, which may grow, holds at a time; seconds in which a scheduler must answer
_alone = threading.Lock()  # papermill changes the working directory of its process


@dataclass(frozen=True)
class Sweep:
    """What is asked for: a page, the code that it imports, the points of a grid and the folder of their rows."""

    page: str
    source: str  # MyST
    packages: tuple[str, ...]
    code: str  # hash of the packages
    version: str  # hash of the code and the source
    points: Sequence[Row]
    folder: Path

    def path(self, parameters: Row) -> Path:
        """Where the row of a point is kept."""
        return self.folder / f"point-{_hash([self.version, parameters])[:16]}.json"

    def rows(self) -> list[Row]:
        """The row of every point."""
        return [_read(self.path(parameters), parameters) for parameters in self.points]


def sweep(
    page: str, grid: Grid, output: Path | str, *, jobs: int | None = None, dask: str | None = None, status: bool = False
) -> "pandas.DataFrame":
    """Run `page` at every point of `grid` that is not done in the folder `output`, and return the table of all points.

    Args:
        page: as the command `rerun` takes it.
        grid: a YAML file, or the mapping that it would hold.
        output: folder of the rows; made where there is none, gone on with where there is one.
        jobs: points run at a time, in processes of this machine (default: one per core).
        dask: address of a Dask scheduler, whose workers run the points instead.
        status: run and write nothing, return what there is.

    Returns a line for each point, in the order of the grid: parameters and named results under their names (`result_NAME` where
    a parameter has the name), `run_status` (done, failed, missing), `run_seconds` and `run_error`.

    Raises `UserError`, before anything runs, for whatever is wrong with the request. Raises `RunError` when workers are lost or the
    folder cannot be written; the rows so far are safe then.
    """
    asked = _asked(page, grid, output, jobs, dask)
    if not status:
        _run(asked, jobs, dask)
    return _table(asked.rows()).to_pandas()


def _asked(page: str, grid: Grid, output: Path | str, jobs: int | None, dask: str | None) -> Sweep:
    if jobs is not None and (dask is not None or type(jobs) is not int or jobs < 1):
        raise UserError(f"jobs must be a whole number from 1, and is left out with dask; got {jobs!r}")
    root, folder = find_root(), Path(output).absolute()
    found, code = resolve_page(page, root), code_of(root)
    points = read_grid(grid, found)
    require_room(found, points, root)
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise UserError(f"output {output} needs a folder, and {there} is a file: give another")
    names = [each.name for each in folder.glob("*")]
    if names and not any(name.startswith(("point-", ".lock")) for name in names):
        raise UserError(f"output {output} holds {min(names)} and no sweep: give a new folder")
    require_writable([there])
    source, hashed = found.source.read_text(encoding="utf-8"), code.hash()
    return Sweep(found.name, source, code.names, hashed, _hash([source, hashed]), points, folder)


def _run(asked: Sweep, jobs: int | None, dask: str | None) -> None:
    """Run what is missing and what failed before; each row is written the moment it is there, the table on every way out."""
    todo = [row["parameters"] for row in asked.rows() if row["status"] != "done"]
    try:
        with ExitStack() as stack:
            client = stack.enter_context(_client(dask)) if dask is not None and todo else None
            asked.folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(asked.folder / ".lock").acquire(timeout=0))
            for left in asked.folder.glob("*.part"):  # of a sweep that was killed
                left.unlink()
            stack.callback(_publish, asked)
            made = stack.enter_context(closing(_made(asked, todo, jobs or joblib.cpu_count(), client)))
            for row in stack.enter_context(tqdm(made, total=len(todo), unit="point", disable=None)):
                with written_aside(asked.path(row["parameters"])) as aside:
                    aside.write_bytes(json.dumps(row).encode())
    except Timeout:
        raise UserError(f"output {asked.folder} is in use by another sweep: wait, or give another") from None
    except OSError as error:
        raise RunError(f"{asked.folder} cannot be written ({error.strerror or error}): make room; {SAFE}") from error


def _made(asked: Sweep, todo: Sequence[Row], jobs: int, client: Any) -> Iterator[Row]:
    """Rows as they come. Raises `RunError` where workers are lost, `UserError` where no point can run."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", UserWarning)  # joblib's, of points that are given up on Ctrl-C
        if client is None:
            jobs = max(1, min(jobs, len(todo)))
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="sweep-", ignore_cleanup_errors=True))
            stack.enter_context(joblib.parallel_config("loky", initializer=_end_with, initargs=(os.getpid(), scratch)))
        else:
            jobs, scratch = AHEAD, None
            stack.enter_context(joblib.parallel_config(_on_dask(client)))
        # Two processes at least: for one, joblib would run the pages in this process, and papermill take its Ctrl-C.
        parallel = joblib.Parallel(max(jobs, 2), return_as="generator_unordered", batch_size=1, pre_dispatch=jobs)
        work = (asked.page, asked.source, asked.packages, asked.code, scratch)
        try:
            with _deaf():
                rows = parallel(joblib.delayed(run_point)(parameters, *work) for parameters in todo)
            yield from rows
        except UserError:
            raise
        except Exception as error:
            raise RunError(f"workers were lost ({type(error).__name__}: {one_line(error)}); {SAFE}") from error


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that start inside never hear Ctrl-C, which a terminal sends to all: they could only complain. We hear it after."""
    mask = getattr(signal, "pthread_sigmask", lambda *_: None)  # not on Windows
    if os.name == "posix":
        resource_tracker.ensure_running()  # its start would let the signal through again
    before = mask(getattr(signal, "SIG_BLOCK", None), {signal.SIGINT})
    try:
        yield
    finally:
        mask(getattr(signal, "SIG_SETMASK", None), before)


def run_point(parameters: Row, page: str, source: str, packages: Sequence[str], code: str, scratch: Any) -> Row:
    """In a worker: run the page at one point, in an empty folder that is deleted again. A page that fails is a row with its error.

    Raises `UserError` when the packages here are not those of the sweep: a worker has others, or they were edited meanwhile.
    """
    from jupyter_core.utils import ensure_event_loop

    start, results, error = time.monotonic(), {}, None
    try:
        with _alone, tempfile.TemporaryDirectory(prefix="point-", dir=scratch, ignore_cleanup_errors=True) as folder:
            notebook = run_in_folder(Path(folder), source, parameters, page, imported(packages), saving=False)
        results = {name: plain(name, value) for name, value in read_results(notebook).items()}
        error = None if results else "the page recorded no named results (bookkit.results.record)"
    except UserError:  # no point can run here
        raise
    except Exception as failure:  # of the page, or a full disk: the points after this one are worth trying
        what = told(failure) if isinstance(failure, PageError) else f"{type(failure).__name__}: {one_line(failure)}"
        error = harmless(what.partition("\n")[0])
    ensure_event_loop().close()  # papermill leaves it open in this thread: a worker would run out of sockets
    asyncio.set_event_loop(None)
    if imported(packages).hash() != code:
        raise UserError(f"a worker has another {' or '.join(packages)}, or it was edited since the start; {SAFE}")
    how = {"status": "failed" if error else "done", "seconds": time.monotonic() - start, "error": error}
    return {"parameters": parameters, "results": results, **how}


def _end_with(parent: int, scratch: str) -> None:
    """In a worker of this machine: end as soon as the command is gone, and with this process its kernel, which looks for its parent too."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _client(address: str) -> Any:
    from distributed import Client

    for name in ("distributed", "distributed.client"):  # a lost connection is told in one line, not in its log
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        return Client(str(address), set_as_default=False, timeout=CONNECT)
    except (OSError, ValueError) as error:  # ValueError: an address that is none
        raise UserError(f"no scheduler answers at {address}: is it running? ({one_line(error, 120)})") from error


def _on_dask(client: Any) -> Any:
    """joblib's backend; it alone would run pages in this process if the cluster had one core, and wait forever for workers that died."""
    from joblib._dask import DaskDistributedBackend

    class OnDask(DaskDistributedBackend):
        def effective_n_jobs(self, n_jobs: int) -> int:
            return AHEAD

        def submit(self, func: Any, callback: Any = None) -> Any:
            future = super().submit(func, callback)
            future.add_done_callback(lambda done: done.exception() and callback(done.exception()))
            return future

    return OnDask(client=client)


# --- rows and their table -----------------------------------------------------------------------------------------------


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(path: Path, parameters: Row) -> Row:
    """The row of a point; status missing where there is none, or no whole one of this very point."""
    missing = {"parameters": parameters, "results": {}, "status": "missing", "seconds": None, "error": None}
    try:
        row = json.loads(path.read_bytes())
        whole = row.keys() == missing.keys() and isinstance(row["results"], dict)
        return row if whole and row["parameters"] == parameters else missing
    except (OSError, ValueError, RecursionError, AttributeError):
        return missing


def _table(rows: Sequence[Row]) -> "pyarrow.Table":
    """A line for each point; what no column of one type can hold stands as JSON."""
    import pyarrow

    columns: dict[str, Any] = {name: [row["parameters"][name] for row in rows] for name in rows[0]["parameters"]}
    for name in {name: None for row in rows for name in row["results"]}:
        free = f"result_{name}" if name in rows[0]["parameters"] or name.startswith("run_") else name
        columns[free] = [row["results"].get(name) for row in rows]
    columns |= {f"run_{name}": [row[name] for row in rows] for name in ("status", "seconds", "error")}
    for name, values in columns.items():
        try:
            columns[name] = pyarrow.array(values)
        except (pyarrow.ArrowException, TypeError, OverflowError):
            columns[name] = [None if value is None else json.dumps(value) for value in values]
    return pyarrow.table(columns)


def _publish(asked: Sweep) -> None:
    import pyarrow.parquet

    with written_aside(asked.folder / "results.parquet") as aside:
        pyarrow.parquet.write_table(_table(asked.rows()), aside)


# --- the command --------------------------------------------------------------------------------------------------------


def parser() -> Parser:
    """Options of the command."""
    what = "Execute a page at every point of a grid. Stop it whenever you like: the same command goes on."
    top = Parser(prog=f"{program()} sweep", description=what)
    top.add_argument("page", metavar="PAGE", help="as in rerun")
    top.add_argument("grid", metavar="GRID", type=Path, help="YAML: product, zip, seeds, fixed")
    top.add_argument("-o", dest="output", metavar="FOLDER", type=Path, required=True, help="of rows and table")
    top.add_jobs("points")
    top.add_argument("--dask", metavar="ADDRESS", help="of a Dask scheduler, whose workers run the points")
    top.add_argument("--status", action="store_true", help="say what there is, run and write nothing")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `sweep`; returns its exit code: 0, or 1 where a point failed or the sweep came to no end."""
    options = parser().parse_intermixed_args(arguments)
    asked = _asked(options.page, options.grid, options.output, options.jobs, options.dask)
    try:
        if not options.status:
            _run(asked, options.jobs, options.dask)
    except RunError as error:
        return complain(str(error), 1)
    except KeyboardInterrupt as end:
        end.args = ("interrupted; rows are safe, the same command goes on",)
        raise
    rows = asked.rows()
    words = [row["status"] for row in rows]
    counts = (f"{words.count(word)} {word}" for word in ("done", "failed", "missing"))
    say(", ".join([f"{asked.page}: {len(rows)} points", *counts]))
    varied = [name for name in asked.points[0] if len({point[name] for point in asked.points}) > 1]
    for row in [row for row in rows if row["error"]][:5]:
        setting = [f"{name}={row['parameters'][name]!r}" for name in varied]
        say(f"  {', '.join(setting)}: {row['error']}")
    return 1 if "failed" in words and not options.status else 0
