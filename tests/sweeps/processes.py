"""Schedulers, workers and sweeps as processes of their own, and what tests ask of them."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.sweeps.counting import CountingBook

# Seconds. A guard against what never comes, on a machine however busy; no test measures speed by it.
PATIENCE = 300.0


def dask(*words: str, environment: dict[str, str], log: Path) -> subprocess.Popen:
    """A `dask` command in the background."""
    with log.open("ab") as file:
        command = [str(Path(sys.executable).with_name("dask")), *words]
        return subprocess.Popen(command, env=environment, cwd=log.parent, stdout=file, stderr=file)


@contextmanager
def ending(*processes: subprocess.Popen):
    """Ends the processes, and all they started, on the way out."""
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
                for each in family:
                    try:
                        each.kill()
                    except psutil.NoSuchProcess:
                        pass
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until `condition()`. Raises AssertionError when it never comes."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: nothing after {PATIENCE:g} s"
        time.sleep(0.05)


def sweep(book: CountingBook, *options: str, output: str = "out") -> subprocess.CompletedProcess:
    command = book.command(*options, output=output)
    return subprocess.run(command, cwd=book.root, env=book.environment, capture_output=True, text=True, check=False)


class Scheduler:
    """`dask scheduler` as the book documents it, on a free port."""

    def __init__(self, book: CountingBook, *options: str) -> None:
        self.address = f"tcp://127.0.0.1:{(port := free_port())}"
        self.log = book.root / "dask.log"
        self.environment = book.environment
        words = ["scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", *options]
        self.process = dask(*words, environment=self.environment, log=self.log)

    def worker(self, *options: str, **environment: str) -> subprocess.Popen:
        """`dask worker` at this scheduler."""
        words = ["worker", self.address, "--no-dashboard", *options]
        return dask(*words, environment={**self.environment, **environment}, log=self.log)
