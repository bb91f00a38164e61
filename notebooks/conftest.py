"""nbval's kernels run in the environment of every page, and start again when another process took one of their ports between choice
and use; no cell is ever tried twice."""

import atexit
import shutil
import tempfile
from pathlib import Path

import nbval.kernel

from bookkit.pages.environment import page_environment

_STARTS = 3
_FOLDER = Path(tempfile.mkdtemp(prefix="nbval-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
_start_once = nbval.kernel.start_new_kernel


def start_new_kernel(*arguments, **options):
    """As nbval's, tried up to three times while the kernel dies before it answers; no cell has run by then."""
    options["env"] = page_environment(_FOLDER)
    for attempt in range(_STARTS):
        try:
            return _start_once(*arguments, **options)
        except RuntimeError:
            if attempt + 1 == _STARTS:
                raise


nbval.kernel.start_new_kernel = start_new_kernel
