"""nbval's kernels run in the environment of every page, and start again when another process took one of their ports between choice
and use; no cell is ever tried twice. A kernel that dies is told at once."""

import atexit
import shutil
import tempfile
import time
from pathlib import Path
from queue import Empty

import nbval.kernel

from bookkit.code import code_of
from bookkit.pages.environment import page_environment

_STARTS = 3
_FOLDER = Path(tempfile.mkdtemp(prefix="nbval-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
_start_once, _await_once = nbval.kernel.start_new_kernel, nbval.kernel.RunningKernel.await_reply


def start_new_kernel(*arguments, **options):
    """As nbval's, tried up to three times while the kernel dies before it answers; no cell has run by then."""
    options["env"] = page_environment(_FOLDER, code_of(Path(__file__).parents[1]))
    for attempt in range(_STARTS):
        try:
            return _start_once(*arguments, **options)
        except RuntimeError:
            if attempt + 1 == _STARTS:
                raise


def await_reply(kernel, msg_id, timeout=None):
    """As nbval's, which would wait for the answer of a dead kernel, half an hour for each cell."""
    end = time.monotonic() + timeout
    while True:
        try:
            return _await_once(kernel, msg_id, timeout=1)
        except Empty:
            if not kernel.is_alive():
                raise RuntimeError("the kernel died in this cell (out of memory?)") from None
            if time.monotonic() > end:
                raise


nbval.kernel.start_new_kernel = start_new_kernel
nbval.kernel.RunningKernel.await_reply = await_reply
