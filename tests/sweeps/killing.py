"""A sweep under random kills of its workers and of its command: no row is lost, none stands twice, nothing runs on.

    python -m tests.sweeps.killing --points 300 --kills 10

Prints what was killed when, and what was found at the end. Any loss is an AssertionError.
"""

import argparse
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import psutil
import xarray as xr

from bookkit.sweeps import open_sweep
from tests.sweeps.counting import CountingBook

WORKERS = 2
KINDS = ("worker", "command", "everything")
ENDING = 300.0  # seconds: a guard against processes that never end; how long they took is told, not judged


@dataclass(frozen=True)
class Proof:
    """What a sweep survived: kills by kind, executions of all points together, and seconds until orphans had ended."""

    points: int
    kills: tuple[str, ...]
    executions: int
    slowest_ending: float
    seconds: float


def prove(
    book: CountingBook, points: int, kills: int, seed: int = 0, pause: float = 0.1, tell: Callable[[str], None] = print
) -> Proof:
    """Run `points` points with `kills` random kills, the command being given again whenever it was the victim.

    Raises AssertionError when a row is lost, doubled, changed or wrong, when a process outlives its command, and when
    more was executed than what the kills interrupted.
    """
    rng = random.Random(seed)
    book.grid(points, pause)
    rows = book.root / "out" / "rows"
    moments = sorted(rng.sample(range(1, points - WORKERS), kills))
    killed: list[str] = []
    slowest = 0.0
    began = time.monotonic()
    process = _start(book)
    kinds = [KINDS[k % len(KINDS)] for k in range(kills)]
    rng.shuffle(kinds)
    for moment, kind in zip(moments, kinds, strict=True):
        _wait(lambda moment=moment: _count(rows) >= moment, process)
        time.sleep(rng.uniform(0, 0.5))
        before = _contents(rows)
        family = psutil.Process(process.pid).children(recursive=True)
        if kind == "worker":
            # A moment after an earlier kill there may be none, and the next look may find none again.
            found: list[psutil.Process] = []
            _wait(lambda pid=process.pid, found=found: found.extend(_workers(pid)) or found, process)
            _kill(rng.choice(found))
        else:
            for victim in [psutil.Process(process.pid), *(family if kind == "everything" else [])]:
                _kill(victim)
            process.wait()
            start = time.monotonic()
            _, alive = psutil.wait_procs(family, timeout=ENDING)
            assert not alive, f"these outlived their command by {ENDING} s: {alive}"
            slowest = max(slowest, time.monotonic() - start)
            process.stderr.close()
        after = _contents(rows)
        assert {name: after[name] for name in before} == before, "a row was lost or changed by a kill"
        tell(
            f"{time.monotonic() - began:6.1f} s  {_count(rows):4d} rows  killed: {kind}; all ended after {slowest:.1f} s at most"
        )
        killed.append(kind)
        if kind != "worker":
            process = _start(book)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    _check(book, points, killed)
    return Proof(points, tuple(killed), book.executions().total(), slowest, time.monotonic() - began)


def _check(book: CountingBook, points: int, killed: list[str]) -> None:
    found = open_sweep(book.root / "out")
    assert (found.status.total, found.status.done) == (points, points)
    assert sorted(path.stem for path in (found.path / "rows").iterdir()) == sorted(point.id for point in found.points)
    for table in (found.table, pd.read_parquet(found.path / "results.parquet")):
        assert table["n"].tolist() == list(range(points))
        assert table["square"].tolist() == [n**2 for n in range(points)]
        assert table["run_id"].is_unique
    with xr.open_dataset(found.path / "results.nc", engine="h5netcdf") as array:
        assert array["square"].sel(n=points - 1) == (points - 1) ** 2
        assert array["square"].sizes == {"n": points}
    executions = book.executions()
    assert set(executions) == set(range(points))
    # A worker takes one point with it, a command those of all its workers.
    lost = sum(1 if kind == "worker" else WORKERS for kind in killed)
    assert book.executions("begin").total() <= points + lost, "more ran again than what the kills interrupted"


def _start(book: CountingBook) -> subprocess.Popen:
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(book.command("--workers", str(WORKERS)), cwd=book.root, env=book.environment, **options)


def _wait(condition: Callable[[], object], process: subprocess.Popen, limit: float = 1200.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        if process.poll() is not None:
            raise AssertionError(f"the command ended with {process.returncode}: {process.communicate()[1]}")
        assert time.monotonic() < deadline, f"nothing happened for {limit} s"
        time.sleep(0.02)


def _workers(pid: int) -> list[psutil.Process]:
    """Worker processes of a command, in what state ever."""
    return [child for child in psutil.Process(pid).children() if "spawn_main" in " ".join(_words(child))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _kill(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        pass


def _count(rows: Path) -> int:
    return sum(1 for _ in rows.glob("*.json"))


def _contents(rows: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in rows.glob("*.json")}


def main() -> None:
    """The proof at any size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds each page takes, beyond the kernel's start")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        book = CountingBook(Path(folder) / "book")
        print(prove(book, **vars(options)))


if __name__ == "__main__":
    main()
