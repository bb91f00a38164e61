"""Result files of long computations: whole or not there, at a place that is checked before any work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bookkit.files import written_aside

__all__ = ["require_writable", "write_arrays"]


def require_writable(path: Path) -> None:
    """A file can be made at `path`. Raises ValueError otherwise, to be called before any work."""
    if path.is_dir() or not path.parent.is_dir():
        what = "a folder" if path.is_dir() else "in a folder that does not exist"
        raise ValueError(f"save must be a file in a folder that exists; got {path.name!r}, {what}: make it first")
    probe = path.with_name(f"{path.name}.{os.getpid()}.part")  # beside what may be there
    try:
        probe.touch()
    except OSError as error:
        raise ValueError(
            f"save must be in a folder that can be written; got {path.name!r} ({error.strerror})"
        ) from None
    probe.unlink()


def write_arrays(path: Path, *, compressed: bool = False, **arrays: NDArray[Any]) -> None:
    """Arrays as an .npz under exactly this name, written aside and renamed: a killed write leaves the last whole file."""
    save: Callable[..., None] = np.savez_compressed if compressed else np.savez
    with written_aside(path) as temporary, temporary.open("wb") as file:
        save(file, **arrays)
