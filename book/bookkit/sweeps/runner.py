"""A sweep: what is asked for is checked, what is missing is run, every row is written the moment it is there.

The command alone writes to the folder. Workers get points and answer outcomes; Dask decides which worker runs which.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bookkit.code import code_of
from bookkit.pages.catalogue import UserError, find_root, resolve_page
from bookkit.settings import settings
from bookkit.sweeps.batched import batched_function, run_batched
from bookkit.sweeps.cluster import check_request, connected
from bookkit.sweeps.dispatch import Course, Progress, drive
from bookkit.sweeps.folder import SweepFolder, open_sweep
from bookkit.sweeps.grid import Grid, make_grid, read_grid
from bookkit.sweeps.identity import Job, Point, page_hash, point_id
from bookkit.sweeps.point import records_results

if TYPE_CHECKING:
    from bookkit.sweeps.folder import Sweep

__all__ = ["Plan", "Progress", "plan", "sweep"]


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
        page: as the command `rerun` takes it.
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
        course = Course(len(ready.points), len(ready.done) + len(ready.failed), report)
        if not ready.todo:
            course.say()
            with SweepFolder.begin(output, ready.job, ready.grid, ready.points) as folder:
                folder.publish()
        elif batched:
            with _begun(output, ready) as folder:
                run_batched(ready.job, ready.todo, course.keeping(folder.write))
        else:
            with (
                connected(cluster, workers, len(ready.todo), course.say, ready.job.packages) as client,
                _begun(output, ready) as folder,
            ):
                backend = "local" if cluster is None else "dask"
                drive(client, ready.job, ready.todo, backend, course, course.keeping(folder.write))
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
    root = root or find_root()
    found, code = resolve_page(page, root), code_of(root)
    source = found.source.read_text(encoding="utf-8")
    made = (
        make_grid(grid, found, fixed or {}) if isinstance(grid, Mapping) else read_grid(Path(grid), found, fixed or {})
    )
    if not records_results(source):
        raise UserError(f"page {found.name} records no named results: a sweep would have nothing to collect")
    if batched and batched_function(source, code.names) is None:
        raise UserError(f"page {found.name} declares no batched function: leave out batched")
    distributions = *settings(root).versions, "papermill"
    job = Job(
        found.name,
        source,
        page_hash(source),
        code.hash(),
        code.names,
        time_limit,
        memory_limit,
        notebooks,
        distributions,
    )
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


# --- small things ---------------------------------------------------------------------------------------------------


@contextmanager
def _reporter(progress: Callable[[Progress], None] | bool) -> Iterator[Callable[[Progress], None]]:
    if progress is True:
        from bookkit.sweeps.bar import Bar

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

    # Others stay as they are: nohup ignores SIGHUP, and a program that calls `sweep` may have handlers of its own.
    taken = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
