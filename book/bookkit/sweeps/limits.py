"""Limits of a running page: a thread that measures the kernel's processes, and ends them all when they take too much.

Nothing here asks the kernel to do anything: a cell may catch interrupts, block signals or hold Python's lock for hours.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import psutil

__all__ = ["Watch", "processes_of"]

_PAUSE = 0.1  # seconds between two looks
_SHARE = 50  # a look takes one part in so many of a core: finding the children reads the table of all processes
_KILLING = 5.0  # seconds after which a process that does not go (it waits for a dead disk, say) is left alone

# Reads until the process that holds the other end of the pipe is gone, however it went. Then: the kernel's group, what
# has left the group, the folder. ipykernel looks for its parent too, but not while a cell holds Python's lock, and
# without a thought for what the cell has started.
_GUARD = """
read -r _
kill -9 -- "-$1"
grep -lsaF -- "$2" /proc/[0-9]*/environ | cut -d/ -f3 | xargs kill -9
rm -rf -- "$2"
"""


class Watch:
    """Context that measures a kernel, and kills it and all that it started when a limit is exceeded.

    `folder` is the private folder of the run, which the kernel's environment names and that of nothing else. The clock
    runs from `__enter__`, so that a kernel that hangs in its start is found too. On the way out, every process that the
    kernel has left behind is killed. If this process is killed first, a small shell that waits for that does the same
    and removes `folder`.

    `exceeded` says which limit was exceeded ("time limit of 60 s"), `peak` is the largest resident memory seen in bytes.
    """

    def __init__(self, folder: Path, time_limit: float | None = None, memory_limit: int | None = None) -> None:
        self.folder, self.time_limit, self.memory_limit = str(folder), time_limit, memory_limit
        self.exceeded: str | None = None
        self.peak: int | None = None
        self._kernel: psutil.Process | None = None
        self._guard: subprocess.Popen | None = None
        self._seen: set[psutil.Process] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def begin(self, pid: int) -> None:
        """Watch the kernel with this process id from now on. It leads a process group, as Jupyter starts it."""
        self._end_guard()
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", str(pid), self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt from the terminal is not for it
            cwd="/",
            env={"PATH": os.defpath},  # without the folder's name: it would kill itself
        )
        try:
            self._kernel = psutil.Process(pid)
        except psutil.NoSuchProcess:  # died at once, as its own error will say
            self._kernel = None

    def __enter__(self) -> Watch:
        self._begun = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        self._kill()
        self._end_guard()

    def _end_guard(self) -> None:
        if self._guard is not None:
            with self._guard:  # closes the pipe and waits, after the kill
                self._guard.kill()
            self._guard = None

    def _watch(self) -> None:
        pause = 0.0
        while not self._end.wait(pause):
            begun = time.thread_time()
            if self.exceeded is None:
                self._measure()
                if self.time_limit is not None and time.monotonic() - self._begun >= self.time_limit:
                    self.exceeded = f"time limit of {self.time_limit:g} s"
                elif self.memory_limit is not None and (self.peak or 0) > self.memory_limit:
                    self.exceeded = f"memory limit of {_size(self.memory_limit)}"
            if self.exceeded is not None:
                self._kill()  # again at every turn: a new kernel may have been started meanwhile
            pause = max(_PAUSE, _SHARE * (time.thread_time() - begun))
            if self.time_limit is not None and self.exceeded is None:
                pause = min(pause, max(0.0, self._begun + self.time_limit - time.monotonic()))

    def _measure(self) -> None:
        """Look at the kernel and its children: which they are, and the largest memory so far."""
        if self._kernel is None:
            return
        try:
            found = [self._kernel, *self._kernel.children(recursive=True)]
        except psutil.Error:
            return
        self._seen.update(found)
        sizes = [_resident(process) for process in found]
        self.peak = max(self.peak or 0, sum(now for now, _ in sizes), *(largest for _, largest in sizes))

    def _kill(self) -> None:
        """Kill the kernel's group in one step, then whatever has left the group, until nothing is found."""
        if self._kernel is not None and self._kernel.is_running():
            try:
                os.killpg(self._kernel.pid, signal.SIGKILL)
            except OSError:
                pass
        deadline = time.monotonic() + _KILLING
        while found := [process for process in {*self._seen, *processes_of(self.folder)} if _alive(process)]:
            for process in found:
                try:
                    process.kill()
                except psutil.Error:
                    pass
            psutil.wait_procs(found, timeout=1)
            if time.monotonic() > deadline:
                return


def processes_of(folder: str) -> list[psutil.Process]:
    """Processes of this user whose environment names `folder`, however they were started and whoever is their parent."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(folder in value for value in process.environ().values()):
                found.append(process)
        except (psutil.Error, OSError):  # another user's, or gone
            continue
    return found


def _resident(process: psutil.Process) -> tuple[int, int]:
    """Resident memory of a process now, and the largest it ever had (on Linux: a short peak falls between two looks)."""
    try:
        now = process.memory_info().rss
        high = re.search(r"^VmHWM:\s*(\d+) kB", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    except psutil.Error:
        return 0, 0
    except OSError:
        return now, now
    return now, int(high[1]) * 1024 if high else now


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _size(size: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"
