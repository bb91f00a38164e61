"""A sweep: what is asked for is checked, what is missing is run, every row is written the moment it is there.

The command alone writes to the folder. Workers get points and answer outcomes; Dask decides which worker runs which.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnlib.publishing.pages import UserError, find_root, one_line, resolve_page
from attnlib.publishing.rerun import RunError
from attnlib.sweeps.batched import batched_function, run_batched
from attnlib.sweeps.cluster import LOST, check_request, connected, lacks, worker_threads
from attnlib.sweeps.folder import SweepFolder, open_sweep
from attnlib.sweeps.grid import Grid, make_grid, read_grid
from attnlib.sweeps.identity import Job, OtherVersion, Outcome, Point, package_hash, page_hash, point_id, versions
from attnlib.sweeps.point import records_results, run_point

if TYPE_CHECKING:
    from distributed import Client, Future

    from attnlib.sweeps.folder import Sweep

__all__ = ["Plan", "Progress", "plan", "sweep"]

ATTEMPTS = 2  # a point that fails is tried once more, after all others
PATIENCE = 600.0  # seconds without any worker after which a running sweep gives up
_TICK = 0.5  # seconds between looks at the workers while nothing finishes
_GATHER = 30.0  # seconds to wait for an outcome whose worker may be dying


@dataclass(frozen=True)
class Plan:
    """What a sweep would do. `points` are those of the grid; `todo`, `done` and `failed` part them."""

    page: str
    job: Job
    grid: Grid
    points: tuple[Point, ...]
    todo: tuple[Point, ...]
    done: tuple[Point, ...]
    failed: tuple[Point, ...]  # kept as they are: not to run


@dataclass(frozen=True)
class Progress:
    """How far a sweep is. `total` = `skipped` + `done` + `failed` + `left`, the last with `running` and `retrying`."""

    total: int
    skipped: int = 0  # rows that were there when it began
    done: int = 0
    failed: int = 0
    running: int = 0  # handed to workers
    retrying: int = 0  # failed once, to be tried again
    workers: int = 0
    seconds: float = 0.0
    message: str | None = None  # a line to show once

    @property
    def left(self) -> int:
        """Points without a row."""
        return self.total - self.skipped - self.done - self.failed


def sweep(
    page: str,
    grid: Path | str | Mapping[str, Any],
    output: Path | str,
    *,
    fixed: Mapping[str, Any] | None = None,
    cluster: str | Path | None = None,
    workers: int | None = None,
    batched: bool = False,
    notebooks: Literal["none", "failed", "all"] = "failed",
    time_limit: float | None = None,
    memory_limit: int | None = None,
    retry_failed: bool = False,
    progress: Callable[[Progress], None] | bool = False,
    root: Path | None = None,
) -> Sweep:
    """Run `page` at every point of `grid` that has no row in the folder `output` yet, and return what is there then.

    Args:
        page: as in `attnlib rerun`.
        grid: a YAML file, or the mapping it would hold.
        output: folder of the sweep; made where there is none, gone on with where there is one.
        fixed: parameters that have one value everywhere; override those of the grid's `fixed`.
        cluster: None for processes of this machine; address of a Dask scheduler, its scheduler file, or "slurm".
        workers: local processes (default: one per core), or SLURM jobs (default: one).
        batched: by the page's batched function, in this process, where the page declares one.
        notebooks: which executed notebooks are kept.
        time_limit: seconds for a point.
        memory_limit: bytes for a point.
        retry_failed: run points again that failed in an earlier call.
        progress: called with a `Progress` after every change; True shows a bar.
        root: folder of the book (default: the nearest at or above here).

    Raises `UserError`, before anything runs, for whatever is wrong with the request; later for a full disk and for a
    package that changes on the way. Raises `RunError` when the cluster is lost. However it ends, rows are never lost,
    and the same call goes on with what is missing.
    """
    _check_options(cluster, workers, batched, notebooks, time_limit, memory_limit)
    ready = _prepare(page, grid, output, fixed, batched, retry_failed, root, notebooks, time_limit, memory_limit)
    output = Path(output)
    with _reporter(progress) as report, _signals_raise():
        course = _Course(ready, report)
        if not ready.todo:
            with SweepFolder.begin(output, ready.job, ready.grid, ready.points) as folder:
                folder.publish()
        elif batched:
            with _begun(output, ready) as folder:
                run_batched(ready.job, ready.todo, course.keeping(folder))
        else:
            with (
                connected(cluster, workers, len(ready.todo), course.say) as client,
                _begun(output, ready) as folder,
            ):
                _drive(client, ready, "local" if cluster is None else "dask", course, course.keeping(folder))
    return open_sweep(output)


def plan(
    page: str,
    grid: Path | str | Mapping[str, Any],
    output: Path | str,
    *,
    fixed: Mapping[str, Any] | None = None,
    batched: bool = False,
    retry_failed: bool = False,
    root: Path | None = None,
) -> Plan:
    """What `sweep` would do with the same arguments. Nothing is run or written. Raises `UserError` as `sweep` does."""
    return _prepare(page, grid, output, fixed, batched, retry_failed, root)


# --- before anything runs -------------------------------------------------------------------------------------------


def _check_options(
    cluster: str | Path | None,
    workers: int | None,
    batched: bool,
    notebooks: str,
    time_limit: float | None,
    memory_limit: int | None,
) -> None:
    if notebooks not in ("none", "failed", "all"):
        raise UserError(f"notebooks must be none, failed or all; got {notebooks!r}")
    for name, limit, unit in (("time_limit", time_limit, "seconds"), ("memory_limit", memory_limit, "bytes")):
        if limit is not None and not (type(limit) in (int, float) and 0 < limit < float("inf")):
            raise UserError(f"{name} must be a positive number of {unit}; got {limit!r}")
    if batched:
        given = {"cluster": cluster, "workers": workers, "time_limit": time_limit, "memory_limit": memory_limit}
        if senseless := [name for name, value in given.items() if value is not None]:
            raise UserError(f"batched runs in this process, all points at once: leave out {' and '.join(senseless)}")
        if notebooks == "all":
            raise UserError("batched executes no notebooks: leave out notebooks='all'")
    else:
        check_request(cluster, workers)


def _prepare(
    page: str,
    grid: Path | str | Mapping[str, Any],
    output: Path | str,
    fixed: Mapping[str, Any] | None,
    batched: bool,
    retry_failed: bool,
    root: Path | None,
    notebooks: Literal["none", "failed", "all"] = "failed",
    time_limit: float | None = None,
    memory_limit: int | None = None,
) -> Plan:
    """Check page, grid and folder, and part the points. Makes nothing."""
    found = resolve_page(page, root or find_root())
    source = found.source.read_text(encoding="utf-8")
    made = (
        make_grid(grid, found, fixed or {}) if isinstance(grid, Mapping) else read_grid(Path(grid), found, fixed or {})
    )
    if not records_results(source):
        raise UserError(f"page {found.name} records no named results: a sweep would have nothing to collect")
    if batched and batched_function(source) is None:
        raise UserError(f"page {found.name} declares no batched function: leave out batched")
    job = Job(found.name, source, page_hash(source), package_hash(), time_limit, memory_limit, notebooks)
    points = tuple(Point(point_id(job.page_hash, job.package_hash, values), values) for values in made.parameters)
    SweepFolder.check(Path(output), job)
    rows = open_sweep(Path(output)).rows if (Path(output) / "sweep.json").exists() else {}
    parts: dict[str, list[Point]] = {"todo": [], "done": [], "failed": []}
    for point in points:
        parts[_part(rows.get(point.id), retry_failed)].append(point)
    return Plan(found.name, job, made, points, **{name: tuple(part) for name, part in parts.items()})


def _part(row: Mapping[str, Any] | None, retry_failed: bool) -> str:
    status = row["status"] if row else None
    return "done" if status == "done" else "failed" if status == "failed" and not retry_failed else "todo"


# --- while it runs --------------------------------------------------------------------------------------------------


class _Course:
    """Counts what happens, and reports it."""

    def __init__(self, ready: Plan, report: Callable[[Progress], None]) -> None:
        self.total = len(ready.points)
        self.skipped = len(ready.done) + len(ready.failed)
        self.done = self.failed = self.running = self.retrying = self.workers = 0
        self.start = time.monotonic()
        self.report = report

    def say(self, message: str | None = None) -> None:
        """Report the state, with a line to show."""
        counts = (self.total, self.skipped, self.done, self.failed, self.running, self.retrying, self.workers)
        self.report(Progress(*counts, time.monotonic() - self.start, message))

    def keeping(self, folder: SweepFolder) -> Callable[[Outcome, int], None]:
        """A function that writes an outcome as a row, counts and reports it."""
        self.start = time.monotonic()
        self.say()

        def keep(outcome: Outcome, attempts: int) -> None:
            folder.write(outcome, attempts)
            if outcome.status == "done":
                self.done += 1
            else:
                self.failed += 1
            self.say()

        return keep


@contextmanager
def _begun(output: Path, ready: Plan) -> Iterator[SweepFolder]:
    """The folder, open for writing; its tables are made anew on every way out."""
    with SweepFolder.begin(output, ready.job, ready.grid, ready.points) as folder:
        try:
            yield folder
        except BaseException:
            with suppress(UserError):  # what stopped the sweep is the better news
                folder.publish()
            raise
        folder.publish()


def _drive(
    client: Client, ready: Plan, engine: Literal["local", "dask"], course: _Course, keep: Callable[[Outcome, int], None]
) -> None:
    """Hand out the points, one for every worker, and keep the outcomes as they come.

    No more than that: a worker that dies casts suspicion on every point it holds, and failures go to the end of the
    queue. Which worker runs what is Dask's.
    """
    waiting = deque((point, 1) for point in ready.todo)
    running: dict[Future, tuple[Point, int, float]] = {}
    finished: queue.SimpleQueue[Future] = queue.SimpleQueue()
    watch = _Watch(client, course)

    def hand_out() -> None:
        workers = watch.look()
        while waiting and len(running) < max(workers, 1):
            point, attempt = waiting.popleft()
            key = f"attnlib-{point.id}-{attempt}-{time.time_ns()}"  # its own: a cluster remembers the failed ones
            future = client.submit(run_point, ready.job, point, engine, key=key, pure=False)
            running[future] = (point, attempt, time.monotonic())
            future.add_done_callback(finished.put)
        course.running, course.retrying = min(len(running), workers), sum(attempt > 1 for _, attempt in waiting)

    try:
        while waiting or running:
            hand_out()
            try:
                future = finished.get(timeout=_TICK)
            except queue.Empty:
                continue
            point, attempt, begun = running.pop(future)
            hand_out()  # the worker need not wait while its outcome is fetched and written
            try:
                outcome = _outcome(client, future, point, engine, begun)
            except TimeoutError:
                running[future] = (point, attempt, begun)
                future.add_done_callback(finished.put)
                continue
            if outcome.status == "failed" and attempt < ATTEMPTS:
                waiting.append((point, attempt + 1))
                course.retrying += 1
                course.say()
            else:
                keep(outcome, attempt)
    finally:
        with suppress(Exception):  # a cluster that is gone cannot be asked
            client.cancel(list(running))


def _outcome(client: Client, future: Future, point: Point, engine: Literal["local", "dask"], begun: float) -> Outcome:
    """What became of a point. A worker that died under it several times is a failure of the point.

    Raises `OtherVersion`, `UserError` for a worker that lacks the package, `RunError` when the cluster is lost, and
    `TimeoutError` when the outcome was lost with its worker: Dask then runs the point again.
    """
    from distributed import KilledWorker

    if future.status == "cancelled" or client.status != "running":
        raise RunError(LOST)
    if future.status != "error":
        return future.result(timeout=_GATHER)
    error = future.exception()
    if isinstance(error, OtherVersion):
        raise error
    if isinstance(error, ImportError):
        raise UserError(lacks("that joined late", error)) from error
    if isinstance(error, KilledWorker):
        why = f"the worker process died {error.allowed_failures + 1} times while it ran this point (out of memory?)"
    else:
        why = f"{type(error).__name__}: {one_line(error)}"
    trace = "".join(traceback.format_exception(type(error), error, future.traceback()))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Outcome(point, "failed", engine, time.monotonic() - begun, now, versions(), error=why, traceback=trace)


class _Watch:
    """Looks at the workers now and then: how many there are, whether any was lost."""

    def __init__(self, client: Client, course: _Course) -> None:
        self.client, self.course = client, course
        self.known: set[str] = set()
        self.looked = self.alone = -float("inf")

    def look(self) -> int:
        """The number of workers. Raises `RunError` when the scheduler is gone, or no worker came for long."""
        now = time.monotonic()
        if now - self.looked < _TICK:
            return len(self.known)
        self.looked = now
        found = set(worker_threads(self.client))
        if found:
            self.alone = now
        elif now - self.alone > PATIENCE:
            raise RunError(f"no worker for {PATIENCE:.0f} s; all rows so far are safe: give the same command again")
        self.course.workers = len(found)
        if gone := len(self.known - found):
            left = f"{len(found)} left" if found else f"none left, waiting up to {PATIENCE:.0f} s for others"
            self.course.say(f"lost {gone} worker{'s' * (gone > 1)} ({left}): what ran there runs again")
        elif found != self.known:
            self.course.say()
        self.known = found
        return len(found)


# --- small things ---------------------------------------------------------------------------------------------------


@contextmanager
def _reporter(progress: Callable[[Progress], None] | bool) -> Iterator[Callable[[Progress], None]]:
    if progress is True:
        from attnlib.sweeps.report import Bar

        with Bar() as bar:
            yield bar
    else:
        yield progress or (lambda state: None)


@contextmanager
def _signals_raise() -> Iterator[None]:
    """A polite end from outside (SIGTERM of a batch system, SIGHUP of a lost terminal) leaves by the way of Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
