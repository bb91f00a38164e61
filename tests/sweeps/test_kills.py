"""Whatever is killed: rows are safe, nothing runs on, and the same command runs what is missing, no more."""

import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from bookkit.sweeps import open_sweep
from tests.sweeps.counting import CountingBook
from tests.sweeps.killing import prove
from tests.sweeps.processes import PATIENCE, Scheduler, ending, is_running, sweep, wait_for


@pytest.fixture
def book(tmp_path: Path) -> CountingBook:
    """A book with a page that counts its executions."""
    return CountingBook(tmp_path / "book")


def start(book: CountingBook, *options: str) -> subprocess.Popen:
    """The sweep of the book in the background, a process group of its own as in a terminal."""
    return subprocess.Popen(
        book.command(*options),
        cwd=book.root,
        env=book.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def rows(book: CountingBook) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in (book.root / "out" / "rows").glob("*.json")}


def said(errors: str) -> list[str]:
    """Lines on stderr that are not states of the bar."""
    lines = [line.strip() for line in re.sub(r"\r|(?=bookkit: error)", "\n", errors).splitlines()]
    return [line for line in lines if line and "point/s" not in line and "s/point" not in line]


def test_kills_of_worker_command_and_everything_lose_no_row(book) -> None:
    # The same with 300 points and 10 kills: python -m tests.sweeps.killing
    told: list[str] = []
    proof = prove(book, points=9, kills=3, pause=0.05, tell=told.append)
    assert sorted(proof.kills) == ["command", "everything", "worker"]
    assert len(told) == 3
    assert 9 <= proof.executions <= 9 + 1 + 2 + 2


def test_ctrl_c_ends_before_the_rest_has_run_with_rows_and_tables_and_nothing_runs_on(book) -> None:
    book.grid(6, pause=1.0)
    process = start(book, "--workers", "2")
    with ending(process):
        wait_for(lambda: len(rows(book)) >= 2, "two rows")
        family = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    (line,) = said(errors)
    assert line.startswith("bookkit: error: interrupted; ")
    wait_for(lambda: not any(is_running(pid) for pid in family), "end of workers and kernels")
    safe = rows(book)
    assert 2 <= len(safe) < 6
    assert len(open_sweep(book.root / "out").table) == len(safe)
    assert (book.root / "out" / "results.parquet").exists()
    again = sweep(book, "--workers", "2")
    assert again.returncode == 0, again.stderr
    assert {name: rows(book)[name] for name in safe} == safe
    assert len(rows(book)) == 6
    # Two ran when it was interrupted, at most.
    assert book.executions("begin").total() <= 6 + 2


def test_a_cluster_that_dies_piece_by_piece_costs_no_row(book) -> None:
    book.grid(7, pause=0.3)
    scheduler = Scheduler(book)
    worker = scheduler.worker("--nthreads", "1", "--no-nanny")
    process = start(book, "--cluster", scheduler.address)
    with ending(process, worker, scheduler.process):
        wait_for(lambda: len(rows(book)) >= 1, "a row")
        worker.kill()
        worker.wait()
        late = scheduler.worker("--nthreads", "1", "--no-nanny")
        with ending(late):
            wait_for(lambda: len(rows(book)) >= 3, "rows from the worker that joined late")
            before = rows(book)
            scheduler.process.kill()
            _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    lines = said(errors)
    assert lines[-1].startswith("bookkit: error: the connection to the scheduler was lost; all rows so far are safe")
    assert any(line.startswith("lost 1 worker (") for line in lines)
    assert len(lines) <= 3, errors  # the first may be that there is no worker yet
    assert {name: rows(book)[name] for name in before} == before
    # What is left moves to this machine; rows of both kinds stand in one table.
    began_before = book.executions("begin").total()
    here = sweep(book, "--workers", "2")
    assert here.returncode == 0, here.stderr
    table = open_sweep(book.root / "out").table
    assert table["square"].tolist() == [n**2 for n in range(7)]
    assert set(table["run_engine"]) == {"dask", "local"}
    assert book.executions("begin").total() - began_before == (table["run_engine"] == "local").sum()
