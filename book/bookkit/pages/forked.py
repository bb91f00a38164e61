"""Kernels that begin as copies of a process which has imported the large libraries: pages in a row wait for these once, not each.

A kernel is otherwise its own: nothing that one page does reaches another. Only for nbval (conftest.py), which compares pages that a
fresh Python has run; readers' kernels start as Jupyter starts them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import current_process, get_context, parent_process
from multiprocessing.connection import Connection
from unittest.mock import patch

LIBRARIES = ("ipykernel.kernelapp", "matplotlib.pyplot", "numba", "scipy.stats", "torch")
# As ipykernel says where figures go. Matplotlib reads it when it is imported: here before the kernel is one.
FIGURES = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}


def fork_kernels(libraries: Sequence[str] = LIBRARIES) -> None:
    """From now on in this process jupyter_client starts kernels so. What libraries read of the environment, they read at the first.

    On a system that cannot fork nothing changes.
    """
    if not hasattr(os, "fork"):
        return
    from jupyter_client.provisioning import local_provisioner  # nbval brings it

    server = get_context("forkserver")
    server.set_forkserver_preload(list(libraries))
    # A fresh Python's, without what pytest adds.
    ask = [sys.executable, "-c", "import sys; print(*sys.path[1:], sep='\\n')"]
    path = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.splitlines()

    def launch(cmd: Sequence[str], *, cwd: str, env: Mapping[str, str], **_: object) -> _Kernel:
        ours, its = server.Pipe()
        arguments = (its, list(cmd[cmd.index("-f") :]), cwd, dict(env), path)
        process = server.Process(target=_be_kernel, args=arguments, daemon=True)  # daemon: it ends with us
        # The first start makes a socket among the temporary files; its whole name may have a hundred letters.
        folder = tempfile.gettempdir()
        with patch.dict(os.environ, FIGURES), patch.object(tempfile, "tempdir", folder if len(folder) < 70 else "/tmp"):
            process.start()
        its.close()
        ours.recv()  # Until it leads a group of its own, whoever ends its group ends us.
        return _Kernel(process)

    local_provisioner.launch_kernel = launch


def _be_kernel(ready: Connection, arguments: list[str], cwd: str, env: Mapping[str, str], path: list[str]) -> None:
    os.setsid()
    ready.send(None)
    current_process().daemon = False  # a page may start processes
    # It ends also with a parent that was killed.
    threading.Thread(target=lambda: (parent_process().join(), os._exit(1)), daemon=True).start()
    os.environ.clear()
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
    os.chdir(cwd)
    sys.path[:] = path
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance(argv=arguments)


class _Kernel:
    """A process in the words of subprocess.Popen, as far as jupyter_client uses them."""

    stdin = stdout = stderr = None

    def __init__(self, process) -> None:
        self._process = process
        self.pid = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)
