"""A sweep: what is asked for is checked, what is missing is run, every row is written the moment it is there.

An executor takes the points: processes of this machine that joblib starts, or the workers of a Dask cluster. The command alone writes.
"""

import itertools
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor
from joblib.parallel import get_active_backend
from tqdm import tqdm

from bookkit.code import code_of
from bookkit.pages.catalogue import UserError, find_root, one_line, resolve_page
from bookkit.pages.parameters import page_parameters, require_room
from bookkit.pages.rerun import RunError
from bookkit.parser import MOST_JOBS
from bookkit.settings import settings
from bookkit.sweeps.folder import Sweep, locked, open_sweep, require_folder, write_row
from bookkit.sweeps.grid import make_grid, read_grid
from bookkit.sweeps.points import Job, Row, batched_function, end_with, records_results, run_batched, run_point

SAFE = "all rows so far are safe: give the same command again"
CONNECT, FIRST_WORKER = 10, 60  # seconds in which a scheduler must answer, and may be without a worker
AHEAD = 1000  # points that a cluster holds at a time: it may grow while it works


@dataclass(frozen=True)
class Plan:
    """What a sweep would do: the sweep as asked, with the rows that are there, and the points that would run."""

    job: Job
    asked: Sweep
    todo: dict[str, dict[str, Any]]


def sweep(
    page: str,
    grid: Path | str | Mapping[str, Any],
    output: Path | str,
    *,
    fixed: Mapping[str, Any] | None = None,
    cluster: str | Path | None = None,
    jobs: int | None = None,
    batched: bool = False,
    notebooks: Literal["none", "failed", "all"] = "failed",
    time_limit: int | None = None,
    retry_failed: bool = False,
    progress: bool = False,
    root: Path | None = None,
) -> Sweep:
    """Run `page` at every point of `grid` that has no row in the folder `output` yet, and return what is there then.

    Args:
        page: as the command `rerun` takes it.
        grid: a YAML file, or the mapping it would hold.
        output: folder of the sweep; made where there is none, gone on with where there is one.
        fixed: parameters that have one value everywhere; override those of the grid's `fixed`.
        cluster: address of a Dask scheduler, or its scheduler file. Left out: processes of this machine, or the cluster of
            `joblib.parallel_config(backend="dask")` around the call.
        jobs: points run at a time, in processes of this machine (default: one per core).
        batched: by the page's batched function, in this process, where the page declares one.
        notebooks: which executed notebooks are kept.
        time_limit: seconds for each cell of the page.
        retry_failed: run points again that failed in an earlier call.
        progress: show a bar on stderr.
        root: folder of the book (default: the nearest at or above here).

    Raises `UserError`, before anything runs, for whatever is wrong with the request; later for a full disk and for a
    package that changes on the way. Raises `RunError` when workers or the cluster are lost. However it ends, rows are never
    lost, and the same call goes on with what is missing.
    """
    _check_options(cluster, jobs, batched, notebooks, time_limit)
    ready = plan(
        page, grid, output, fixed=fixed, batched=batched, retry_failed=retry_failed, root=root,
        notebooks=notebooks, time_limit=time_limit,
    )  # fmt: skip
    asked, todo = ready.asked, ready.todo
    if asked.damaged:
        print(
            f"{len(asked.damaged)} rows in {asked.path} are damaged ({asked.damaged[0]}.json): run again",
            file=sys.stderr,
        )
    with ExitStack() as stack:
        if batched:
            made = run_batched(ready.job, todo)
        elif todo:  # where points run is known before a folder is made
            made = _kernels(ready.job, todo, *stack.enter_context(_workers(ready.job, cluster, jobs, len(todo))))
        else:
            made = (row for row in ())
        path = stack.enter_context(locked(asked))
        bar = tqdm(total=len(asked.points), initial=len(asked.points) - len(todo), unit="point", disable=not progress)
        stack.enter_context(bar)
        stack.enter_context(closing(made))
        failed = 0
        for row, notebook in made:
            write_row(path, row, notebook)
            failed += row["status"] == "failed"
            bar.set_postfix(failed=failed, refresh=False)
            bar.update()
    return open_sweep(asked.path)


def plan(
    page: str,
    grid: Path | str | Mapping[str, Any],
    output: Path | str,
    *,
    fixed: Mapping[str, Any] | None = None,
    batched: bool = False,
    retry_failed: bool = False,
    root: Path | None = None,
    **of_job: Any,
) -> Plan:
    """What `sweep` would do with the same arguments. Nothing is run or written. Raises `UserError` as `sweep` does."""
    root = root or find_root()
    found, code = resolve_page(page, root), code_of(root)
    source = found.source.read_text(encoding="utf-8")
    made = make_grid(grid, found, fixed) if isinstance(grid, Mapping) else read_grid(Path(grid), found, fixed)
    if not records_results(source) and of_job.get("notebooks") != "all":
        raise UserError(
            f"page {found.name} records no named results: a sweep would have nothing to collect but its notebooks (notebooks 'all')"
        )
    if batched and batched_function(source, code.names) is None:
        raise UserError(f"page {found.name} declares no batched function: leave out batched")
    job = Job(found.name, source, code.hash(), code.names, (*settings(root).versions, "papermill"), **of_job)
    meanings = {parameter.name: parameter.help for parameter in page_parameters(found)}
    asked = Sweep(Path(output), job.page, job.page_hash, job.package_hash, made, meanings)
    require_folder(asked)
    kept = {id_ for id_, row in asked.rows.items() if row["status"] == "done" or not retry_failed}
    todo = {id_: each for id_, each in asked.points.items() if id_ not in kept}
    require_room(found, todo.values(), root)
    return Plan(job, asked, todo)


def _check_options(
    cluster: str | Path | None, jobs: int | None, batched: bool, notebooks: str, time_limit: int | None
) -> None:
    if notebooks not in ("none", "failed", "all"):
        raise UserError(f"notebooks must be none, failed or all; got {notebooks!r}")
    for name, value, most in (("jobs", jobs, MOST_JOBS), ("time_limit", time_limit, 10**7)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
            raise UserError(f"{name} must be a whole number from 1 to {most}; got {value!r}")
    if batched:
        given = {"cluster": cluster, "jobs": jobs, "time_limit": time_limit}
        if senseless := [name for name, value in given.items() if value is not None]:
            raise UserError(f"batched runs in this process, all points at once: leave out {' and '.join(senseless)}")
        if notebooks == "all":
            raise UserError("batched executes no notebooks: leave out notebooks='all'")
    if jobs is not None and cluster is not None:
        raise UserError(f"jobs={jobs} is for local processes: cluster {cluster} has its own workers")


# --- where points run -----------------------------------------------------------------------------------------------------


def _kernels(
    job: Job, todo: Mapping[str, Mapping[str, Any]], executor: Executor, ahead: int, engine: str
) -> Iterator[tuple[Row, str | None]]:
    """Rows and notebooks of points as they come, by a kernel each; `executor` holds `ahead` points at a time.

    Raises `RunError` when workers or the cluster are lost.
    """
    waiting, running = iter(todo.items()), {}
    while True:
        for point in itertools.islice(waiting, ahead - len(running)):
            running[executor.submit(run_point, job, *point, engine)] = point
        if not running:
            return
        # Not for ever: Windows hears Ctrl-C in between only.
        for future in wait(running, timeout=1, return_when=FIRST_COMPLETED).done:
            point = running.pop(future)
            try:
                found = future.result()
            except BrokenProcessPool as error:
                raise RunError(f"a worker process died (out of memory?); {SAFE}") from error
            except CancelledError as error:
                raise RunError(f"the connection to the scheduler was lost; {SAFE}") from error
            except Exception as error:
                from distributed import KilledWorker

                if not isinstance(error, KilledWorker):
                    raise
                text = "the worker processes died under this point again and again (out of memory?)"
                found = job.row(*point, engine, 0.0, error=text, traceback=text), None
            yield found


@contextmanager
def _workers(
    job: Job, cluster: str | Path | None, jobs: int | None, at_most: int
) -> Iterator[tuple[Executor, int, str]]:
    """What the points of a sweep are given to, how many at a time, and the word for where they run."""
    active, _ = get_active_backend()
    with ExitStack() as stack:
        client = stack.enter_context(_client(cluster)) if cluster is not None else getattr(active, "client", None)
        if client is not None:
            _require_workers(client, job)
            executor = client.get_executor(pure=False)
            try:
                yield executor, AHEAD, "dask"
            finally:
                if client.status == "running":  # one that has lost its scheduler has nothing to take back
                    executor.shutdown(wait=False)
            return
        if getattr(active, "uses_threads", False):
            raise UserError("a page needs a process of its own: joblib's backend must be loky or dask, and no threads")
        number = max(1, min(jobs or joblib.cpu_count(), at_most))
        executor = ProcessPoolExecutor(number, initializer=end_with, initargs=(os.getpid(),))
        stack.callback(executor.shutdown, kill_workers=True)
        yield executor, number, "local"


def _client(cluster: str | Path) -> Any:
    """A client of the scheduler at an address, or that a scheduler file names. Raises `UserError` when none answers."""
    from distributed import Client

    for name in ("distributed", "distributed.client"):  # a lost connection is told in one line, not in its log
        logging.getLogger(name).setLevel(logging.CRITICAL)
    address: Any = str(cluster)
    if address.endswith(".json"):
        try:  # Dask itself would wait for the file to appear
            address = json.loads(Path(address).read_text(encoding="utf-8"))["address"]
        except OSError as error:
            raise UserError(f"scheduler file {cluster} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(
                f"scheduler file {cluster} is not one: `dask scheduler --scheduler-file` writes it"
            ) from error
    if not isinstance(address, str) or ":" not in address:
        raise UserError(
            f"cluster must be an address (tcp://127.0.0.1:8786) or a scheduler file (.json); got {address!r}"
        )
    try:
        return Client(address, set_as_default=False, timeout=CONNECT)
    except (OSError, ValueError) as error:  # ValueError: an address that is none
        raise UserError(
            f"cluster {cluster} does not answer ({one_line(error, 120)}): is its scheduler running?"
        ) from error


def _require_workers(client: Any, job: Job) -> None:
    """Wait for a first worker. Raises `UserError` when none comes, or one has other packages than the sweep, or none."""
    try:
        client.wait_for_workers(1, timeout=FIRST_WORKER)
    except TimeoutError:
        raise UserError(
            f"the cluster has had no worker for {FIRST_WORKER} s: dask worker ADDRESS --nthreads 1"
        ) from None
    for address, error in sorted(client.run(job.require_version, on_error="return").items()):
        if error is not None:
            raise UserError(
                f"worker {address} cannot run points ({one_line(error)}): install the very packages of this command there"
            )
