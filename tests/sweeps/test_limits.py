"""Limits hold against whatever a page does, and nothing outlives its point: not after a limit, not after a kill -9."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from bookkit.sweeps import limits
from bookkit.sweeps.limits import Watch, processes_of
from tests.sweeps.processes import PATIENCE
from tests.sweeps.processes import wait_for as wait_until
from tests.sweeps.test_point import RECORD, Sweep
from tests.tiny_book import REPOSITORY

MIB = 2**20

# Catches and blocks whatever can be, and starts a child that leaves the kernel's group and loses its parent.
STUBBORN = """
import os, signal, subprocess, sys, time
print("begun")
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {{signal.SIGKILL}})
script = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True)"
away = subprocess.run([sys.executable, "-c", script], stdout=open({pids!r}, "w"), start_new_session=True)
beside = subprocess.Popen(["sleep", "600"])
print(os.getpid(), beside.pid, file=open({pids!r}, "a", buffering=1))
"""
BEGUN = "open({begun!r}, 'w').close()\n"  # tells the test that the cell runs
FOREVER = BEGUN + "while True:\n    try:\n        time.sleep(600)\n    except BaseException:\n        pass"
HOLD_THE_LOCK = BEGUN + "import ctypes\nctypes.PyDLL(None).sleep(600)"  # no other thread of the kernel gets a turn


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


def living(pids: list[int]) -> list[int]:
    """Those that still run; one that has ended and waits for its parent to notice does not."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def wait_for(path: Path, count: int) -> list[int]:
    """The `count` numbers that a page writes to `path` once it is where the test wants it."""
    wait_until(lambda: path.exists() and len(path.read_text().split()) >= count, f"{path} is written")
    return [int(word) for word in path.read_text().split()]


@pytest.fixture
def hour_passes_when(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], bool]], None]:
    """Sets the watch's clock an hour ahead from the moment that a condition holds: no time limit is met before, each after."""

    def arrange(condition: Callable[[], bool]) -> None:
        passed = []

        def monotonic() -> float:
            if not passed and condition():
                passed.append(3600.0)
            return time.monotonic() + sum(passed)

        clock = SimpleNamespace(monotonic=monotonic, thread_time=time.thread_time)
        monkeypatch.setattr(limits, "time", clock)

    return arrange


# --- pages ----------------------------------------------------------------------------------------------------------


def test_a_page_over_its_time_is_killed_with_all_that_it_started(sweep: Sweep, hour_passes_when) -> None:
    pids, begun = sweep.root / "pids", sweep.root / "begun"
    hour_passes_when(begun.exists)
    outcome = sweep.run(STUBBORN.format(pids=str(pids)), FOREVER.format(begun=str(begun)), RECORD, time_limit=1800)
    started = wait_for(pids, 3)
    assert len(set(started)) == 3
    assert living(started) == []
    assert (outcome.status, outcome.results) == ("failed", None)
    assert outcome.error == "time limit of 1800 s exceeded in code cell 3"
    assert outcome.memory > 0
    assert '"begun\\n"' in outcome.notebook


def test_a_page_over_its_memory_is_killed(sweep: Sweep) -> None:
    outcome = sweep.run(
        "x = b'x' * (10 * 2**20)", "y = []\nwhile True:\n    y.append(b'y' * 2**20)", memory_limit=400 * MIB
    )
    assert outcome.error == "memory limit of 400 MiB exceeded in code cell 3"
    assert outcome.memory > 400 * MIB


def test_a_kernel_that_hangs_in_its_start_is_over_its_time_too(sweep: Sweep, hour_passes_when) -> None:
    hang = f"import os, time\nopen({str(sweep.root / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    (sweep.root / "sitecustomize.py").write_text(hang)  # beside the package: only the kernel looks there
    hour_passes_when((sweep.root / "pid").exists)
    outcome = sweep.run(RECORD, time_limit=1800)
    assert outcome.error == "time limit of 1800 s exceeded before the first code cell"
    assert living(wait_for(sweep.root / "pid", 1)) == []


def test_within_its_limits_a_page_runs_and_leaves_no_process(sweep: Sweep) -> None:
    pids = sweep.root / "pids"
    outcome = sweep.run(STUBBORN.format(pids=str(pids)), RECORD, time_limit=PATIENCE, memory_limit=1000 * MIB)
    assert outcome.results == {"twice": 10, "powers": [5, 25], "name": "a"}
    assert living(wait_for(pids, 3)) == []


WORKER = """
import sys
from pathlib import Path
import tempfile
tempfile.tempdir = sys.argv[2]
from bookkit.sweeps.point import run_point
from bookkit.sweeps.identity import Point
from tests.sweeps.test_point import Sweep
Sweep(Path(sys.argv[1])).run(*sys.argv[3:])
"""


def test_when_the_worker_is_killed_its_kernel_ends_even_in_a_long_call(sweep: Sweep) -> None:
    pids, begun, folders = (sweep.root / name for name in ("pids", "begun", "folders"))
    folders.mkdir()
    cells = STUBBORN.format(pids=str(pids)), HOLD_THE_LOCK.format(begun=str(begun))
    command = [sys.executable, "-c", WORKER, sweep.root, folders, *cells]
    with subprocess.Popen(command, cwd=REPOSITORY) as worker:
        try:
            started = wait_for(pids, 3)
            wait_until(begun.exists, "the next cell")
            assert living(started) == started
            assert len(list(folders.iterdir())) == 1
        finally:
            worker.kill()
    wait_until(lambda: not living(started) and not any(folders.iterdir()), "end of kernel, children and folder")


# --- the watch alone ------------------------------------------------------------------------------------------------


class Program:
    """A Python program in place of a kernel, started as Jupyter starts one."""

    def __init__(self, folder: Path, text: str) -> None:
        environment = {**os.environ, "IPYTHONDIR": str(folder / "ipython")}
        self.process = subprocess.Popen([sys.executable, "-c", text], env=environment, start_new_session=True)

    def __enter__(self) -> subprocess.Popen:
        return self.process

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()


def watched(folder: Path, text: str, seen: int | None = None, **limits: float) -> Watch:
    """Watch a program until the watch ends it, or until the peak is `seen`: how often the watch looks is the machine's affair."""
    with Watch(folder, **limits) as watch, Program(folder, text) as process:
        watch.begin(process.pid)
        if seen is None:
            process.wait(timeout=PATIENCE)
        else:
            wait_until(lambda: (watch.peak or 0) > seen, f"a peak above {seen} bytes")
    return watch


def test_memory_is_that_of_the_program_and_its_children_together(tmp_path: Path) -> None:
    child = "import time; x = b'x' * (100 * 2**20); time.sleep(600)"
    both = f"import subprocess, sys; x = b'x' * (150 * 2**20); subprocess.run([sys.executable, '-c', {child!r}])"
    watch = watched(tmp_path, both, seen=250 * MIB)
    assert watch.exceeded is None
    assert 250 * MIB < watch.peak < 300 * MIB  # two Pythons of 10 MiB each
    watch = watched(tmp_path, both, memory_limit=230 * MIB)
    assert watch.exceeded == "memory limit of 230 MiB"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux keeps the largest memory of a process")
def test_a_peak_between_two_looks_is_seen(tmp_path: Path) -> None:
    short = "import time; x = b'x' * (200 * 2**20); del x; time.sleep(600)"
    assert 200 * MIB < watched(tmp_path, short, seen=200 * MIB).peak < 250 * MIB


def test_the_clock_starts_with_the_watch_and_whatever_starts_later_is_killed(tmp_path: Path) -> None:
    begun = time.monotonic()
    with Watch(tmp_path, time_limit=0.5) as watch:
        wait_until(lambda: watch.exceeded, "the time limit")
        assert time.monotonic() >= begun + 0.5
        for _ in range(2):  # a kernel that is started again, because its ports were taken
            with Program(tmp_path, "import time; time.sleep(600)") as process:
                watch.begin(process.pid)
                process.wait(timeout=PATIENCE)
    assert watch.exceeded == "time limit of 0.5 s"


@pytest.mark.parametrize(
    ("limit", "words"),
    [(3 * 2**30, "3 GiB"), (1500 * MIB, "1.465 GiB"), (2 * MIB, "2 MiB"), (1024, "1 KiB"), (9, "9 bytes")],
)
def test_a_memory_limit_is_said_in_its_unit(tmp_path: Path, limit: int, words: str) -> None:
    from bookkit.sweeps.limits import _size

    assert _size(limit) == words


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen]:
    # Right after `Popen` the system may still show an empty environment (in 20 of 400 starts on a busy machine):
    # the new program's text is in place before its environment is. Once it has written, it has one.
    begun = tmp_path / "begun"
    with Program(
        tmp_path, f"import os, time; open({str(begun)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    ) as process:
        assert wait_for(begun, 1) == [process.pid]
        yield process


def test_only_processes_that_name_the_folder_are_found(tmp_path: Path, sleeper: subprocess.Popen) -> None:
    assert [process.pid for process in processes_of(str(tmp_path))] == [sleeper.pid]
    assert processes_of(str(tmp_path / "other")) == []
