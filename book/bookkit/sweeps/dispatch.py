"""Points out to the workers, outcomes back, and the count of both. Dask decides which worker runs what."""

from __future__ import annotations

import queue
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from bookkit.pages.catalogue import UserError, one_line
from bookkit.pages.rerun import RunError
from bookkit.sweeps.cluster import LOST, lacks, worker_threads
from bookkit.sweeps.identity import Job, OtherVersion, Outcome, Point, versions
from bookkit.sweeps.point import run_point

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Course", "Keep", "Progress", "drive"]

Keep = Callable[[Outcome, int], None]  # an outcome, and after how many attempts

ATTEMPTS = 2  # a point that fails is tried once more, after all others
PATIENCE = 600.0  # seconds without any worker after which a running sweep gives up
_TICK = 0.5  # seconds between looks at the workers
_GATHER = 30.0  # seconds to wait for an outcome whose worker may be dying


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


class Course:
    """Counts what happens, and reports it."""

    def __init__(self, total: int, skipped: int, report: Callable[[Progress], None]) -> None:
        self.total, self.skipped = total, skipped
        self.done = self.failed = self.running = self.retrying = self.workers = 0
        self.start = time.monotonic()
        self.report = report

    def say(self, message: str | None = None) -> None:
        """Report the state, with a line to show."""
        counts = (self.total, self.skipped, self.done, self.failed, self.running, self.retrying, self.workers)
        self.report(Progress(*counts, time.monotonic() - self.start, message))

    def keeping(self, write: Keep) -> Keep:
        """`write`, which makes a row of an outcome, and then the count and report of it. The clock starts."""
        self.start = time.monotonic()
        self.say()

        def keep(outcome: Outcome, attempts: int) -> None:
            write(outcome, attempts)
            if outcome.status == "done":
                self.done += 1
            else:
                self.failed += 1
            self.say()

        return keep


def drive(
    client: Client, job: Job, points: Sequence[Point], backend: Literal["local", "dask"], course: Course, keep: Keep
) -> None:
    """Hand out the points, one for every worker, and keep the outcomes as they come.

    No more than that: a worker that dies casts suspicion on every point it holds, and failures go to the end of the
    queue. Which worker runs what is Dask's.
    """
    waiting = deque((point, 1) for point in points)
    running: dict[Future, tuple[Point, int, float]] = {}
    finished: queue.SimpleQueue[Future] = queue.SimpleQueue()
    watch = Watch(client, course)

    def hand_out() -> None:
        workers = watch.look()
        while waiting and len(running) < max(workers, 1):
            point, attempt = waiting.popleft()
            key = f"point-{point.id}-{attempt}-{time.time_ns()}"  # its own: a cluster remembers the failed ones
            future = client.submit(run_point, job, point, backend, key=key, pure=False)
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
                outcome = _outcome(client, future, job, point, backend, begun)
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
        if running:
            with suppress(Exception):  # a cluster that is gone cannot be asked
                client.cancel(list(running))


def _outcome(
    client: Client, future: Future, job: Job, point: Point, backend: Literal["local", "dask"], begun: float
) -> Outcome:
    """What became of a point. A worker that died under it several times is a failure of the point.

    Raises `OtherVersion`, `UserError` for a worker that lacks a package, `RunError` when the cluster is lost, and
    `TimeoutError` when the outcome was lost with its worker: Dask then runs the point again.
    """
    from distributed import CancelledError, KilledWorker

    try:
        return future.result(timeout=_GATHER)
    except CancelledError as cancelled:  # Dask does so with all points when it loses the scheduler
        raise RunError(LOST) from cancelled
    except Exception as caught:
        if client.status != "running":
            raise RunError(LOST) from caught
        if future.status != "error":
            raise TimeoutError from caught
        error = caught
    if isinstance(error, OtherVersion):
        raise error
    if missing := lacks(error, job.packages):
        raise UserError(f"a worker that joined late {missing}") from error
    if isinstance(error, KilledWorker):
        why = f"the worker process died {error.allowed_failures + 1} times while it ran this point (out of memory?)"
    else:
        why = f"{type(error).__name__}: {one_line(error)}"
    trace = "".join(traceback.format_exception(error))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Outcome(
        point, "failed", backend, time.monotonic() - begun, now, versions(job.distributions), error=why, traceback=trace
    )


class Watch:
    """Looks at the workers now and then: how many there are, whether any was lost."""

    def __init__(self, client: Client, course: Course) -> None:
        self.client, self.course = client, course
        self.known: set[str] = set()
        self.looked, self.alone = -float("inf"), time.monotonic()

    def look(self) -> int:
        """The number of workers. Raises `RunError` when the scheduler is gone, or no worker came for long."""
        now = time.monotonic()
        if now - self.looked < _TICK:
            return len(self.known)
        self.looked = now
        found = set(worker_threads(self.client))
        if found:
            self.alone = now  # since when no worker was seen
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
