"""Result files of long computations: whole or not there, at a place that is checked before any work."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bookkit.files import written_aside


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


def read_arrays(path: Path, kind: str, *needed: str) -> dict[str, NDArray[Any]]:
    """What `write_arrays` wrote, these names among it. Raises ValueError for a file of another kind."""
    try:
        # Opened here: numpy leaves a file that is no zip open.
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            stored = {name: file[name] for name in file.files}
        return {name: stored[name] for name in needed} | stored
    except Exception as error:  # whatever a file of another kind makes numpy and zipfile raise
        raise ValueError(
            f"save must be a new file or one of this {kind}; got {path.name}, not a readable {kind} "
            f"({type(error).__name__}): delete it or choose another name"
        ) from None


def rising(name: str, values: Any, *, at_least: int) -> NDArray[np.float64]:
    """An axis of a grid: finite numbers that rise strictly, `at_least` so many. Raises ValueError that names the argument."""
    try:
        axis = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a list of numbers; got {values!r}") from None
    if axis.ndim != 1 or len(axis) < at_least:
        raise ValueError(f"{name} must be a list of {at_least} numbers or more; got shape {axis.shape}: widen the grid")
    if not np.isfinite(axis).all() or (np.diff(axis) <= 0).any():
        raise ValueError(f"{name} must be finite and strictly rising; got {axis.tolist()}: sort it, drop repeats")
    return axis
