"""Where the points of a sweep run: processes of this machine, a Dask cluster that is already there, or SLURM.

One way for all three: a `distributed.Client` whose workers have the very packages of the book. The scheduling is Dask's.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from bookkit.code import imported
from bookkit.pages.catalogue import UserError, one_line
from bookkit.pages.rerun import RunError
from bookkit.sweeps.slurm import check_slurm, start_slurm

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["check_request", "check_workers", "connected", "worker_threads"]

CONNECT = 10.0  # seconds in which a scheduler must answer
FIRST_WORKER = 60.0  # seconds an address may be without a worker; SLURM's queue has no such limit

Tell = Callable[[str], None]
Kind = Literal["local", "address", "file", "slurm"]


def check_request(cluster: str | Path | None, workers: int | None) -> Kind:
    """What kind of cluster is asked for. Raises `UserError` where the request cannot be meant, before anything starts."""
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise UserError(f"workers must be a whole number >= 1; got {workers!r}")
    if cluster is None:
        return "local"
    text = str(cluster).strip()
    if text == "slurm":
        check_slurm()
        return "slurm"
    if workers is not None:
        raise UserError(f"workers={workers} is for local processes and SLURM: cluster {text} has its own workers")
    if re.fullmatch(r"[a-z]+://\S+", text) or re.fullmatch(r"[\w.-]+:\d+", text):
        return "address"
    if text.endswith(".json"):
        _check_scheduler_file(Path(text))
        return "file"
    raise UserError(
        f"cluster must be an address (tcp://127.0.0.1:8786), a scheduler file (.json) or slurm; got {text!r}"
    )


@contextmanager
def connected(
    cluster: str | Path | None, workers: int | None, at_most: int, tell: Tell, packages: Sequence[str]
) -> Iterator[Client]:
    """A client with at least one worker, all of which have these very `packages`; what was started here ends on the way out.

    `workers` is the number of local processes (default: one per core, never more than `at_most`, the points to run) or
    of SLURM jobs (default: 1). `tell` gets a line when there is something to wait for.

    Raises `UserError` when the scheduler does not answer, no worker comes, or a worker lacks one of `packages`.
    """
    from distributed import Client

    kind = check_request(cluster, workers)
    with _quiet(), ExitStack() as stack:
        if kind in ("local", "slurm"):
            scratch = stack.enter_context(TemporaryDirectory(prefix="sweep-", ignore_cleanup_errors=True))
            started = start_slurm(workers or 1) if kind == "slurm" else _start_local(workers, at_most, scratch)
            stack.callback(_stop, started)
            client = Client(started, set_as_default=False, timeout=CONNECT)
        else:
            how = {"address": str(cluster)} if kind == "address" else {"scheduler_file": str(cluster)}
            try:
                client = Client(**how, set_as_default=False, timeout=CONNECT)
            except (OSError, ValueError) as error:  # ValueError: an address that is none
                answer = one_line(error, 120)
                raise UserError(f"cluster {cluster} does not answer ({answer}): is its scheduler running?") from error
        stack.callback(client.close, timeout=2)
        yield _ready(client, f"cluster {cluster or 'local'}", None if kind == "slurm" else FIRST_WORKER, tell, packages)


def worker_threads(client: Client) -> dict[str, int]:
    """The workers there are now, and the threads of each. Raises `RunError` when the scheduler is gone."""
    if client.status != "running":
        raise RunError(LOST)
    try:
        return dict(client.nthreads())
    except OSError as error:
        raise RunError(LOST) from error


LOST = "the connection to the scheduler was lost; all rows so far are safe: give the same command again"


def check_workers(client: Client, packages: Sequence[str]) -> None:
    """Raise `UserError` that names the first worker without these very `packages`."""
    here, names = _hash_here(packages), " or ".join(packages)
    for address, found in sorted(client.run(_hash_here, packages, on_error="return").items()):
        if isinstance(found, BaseException):
            raise UserError(
                f"worker {address} {lacks(found, packages) or f'cannot run {names}: {one_line(repr(found))}'}"
            )
        if found != here:
            raise UserError(f"worker {address} has another {names} than this command: install this very version there")


def _hash_here(packages: Sequence[str]) -> str:
    return imported(packages).hash()


def lacks(error: BaseException, packages: Sequence[str]) -> str | None:
    """What to say of a worker that answers with this error because a package is missing there; None for other errors."""
    # Dask hands on the text of an error that came while it read a call.
    name = error.name if isinstance(error, ImportError) else None
    if name is None and (match := re.search(r"No module named '([\w.]+)'", str(error))):
        name = match[1]
    if name is None:
        return None
    if name.split(".")[0] in (*packages, __package__.split(".")[0]):
        return f"has no {name}: install this very version there"
    return f"lacks {name}: install what sweeps need there, as on this machine"


def _ready(client: Client, name: str, limit: float | None, tell: Tell, packages: Sequence[str]) -> Client:
    """Wait for a first worker, then check all there are."""
    start, told = time.monotonic(), False
    while not (threads := worker_threads(client)):
        if limit is not None and time.monotonic() - start > limit:
            raise UserError(
                f"{name} has had no worker for {limit:.0f} s: start workers (dask worker ADDRESS --nthreads 1)"
            )
        if not told and time.monotonic() - start > 1:
            tell(f"{name} has no worker yet: waiting" + (f" up to {limit:.0f} s" if limit is not None else ""))
            told = True
        time.sleep(0.2)
    check_workers(client, packages)
    if several := sum(count > 1 for count in threads.values()):
        tell(
            f"{several} of {len(threads)} workers have several threads, but a worker process runs one point at a time: "
            "start them with --nworkers N --nthreads 1"
        )
    return client


# --- this machine ---------------------------------------------------------------------------------------------------


def _start_local(workers: int | None, at_most: int, scratch: str) -> Any:
    from dask.system import CPU_COUNT
    from distributed import LocalCluster

    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # A new process begins by importing the script that started it, and would start processes of its own.
        raise UserError(MAIN)
    try:
        return LocalCluster(
            n_workers=max(1, min(workers or CPU_COUNT, at_most)),
            threads_per_worker=1,  # papermill changes the working directory of its whole process
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # else it takes, or warns about, port 8787
            memory_limit=0,  # the kernels' memory is watched, point by point; a worker holds next to nothing
            silence_logs=logging.CRITICAL,
            local_directory=scratch,  # what processes that are killed leave behind goes with the folder
            env={"TMPDIR": scratch},
        )
    except RuntimeError as error:
        raise UserError(f"local processes did not start ({one_line(error, 100)}): {MAIN}") from error
    except OSError as error:
        raise UserError(f"local processes did not start ({one_line(error)}): ask for fewer with workers") from error


MAIN = 'call sweep in a script under `if __name__ == "__main__":`, as all code that starts processes'


def _stop(cluster: Any) -> None:
    """End a cluster at once: whoever leaves early does not wait for the points that run. SLURM ends its jobs itself."""
    import psutil

    for worker in cluster.workers.values():
        if (process := getattr(worker, "process", None)) is not None and process.pid:
            worker.auto_restart = False
            with suppress(psutil.NoSuchProcess):
                parent = psutil.Process(process.pid)
                for each in (*parent.children(recursive=True), parent):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
    cluster.close(timeout=10)


# --- small things ---------------------------------------------------------------------------------------------------


def _check_scheduler_file(path: Path) -> None:
    # Dask would wait for the file to appear.
    try:
        address = json.loads(path.read_text(encoding="utf-8"))["address"]
    except OSError as error:
        raise UserError(f"scheduler file {path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"scheduler file {path} is not one: `dask scheduler --scheduler-file` writes it") from error
    if not isinstance(address, str):
        raise UserError(f"scheduler file {path} is not one: its address must be a text; got {address!r}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Hush Dask's own remarks on workers and connections that end: the sweep says what matters in a line of its own."""
    import distributed  # noqa: F401  (it sets up its handlers on import)

    loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict if _DASK.match(name)]
    handlers = {handler: handler.level for logger in loggers for handler in logger.handlers}
    for handler in handlers:
        handler.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for handler, level in handlers.items():
            handler.setLevel(level)


_DASK = re.compile(r"(distributed|tornado|bokeh)(\.|$)")
