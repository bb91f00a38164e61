"""What long computations over a grid of cells need: a progress bar on request, and result files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlib.extras import extra

__all__ = ["progress_bar", "require_writable", "write_arrays", "written_aside"]


def progress_bar(wanted: bool, total: int, what: str, *, unit: str = "cell") -> contextlib.AbstractContextManager[Any]:
    """A tqdm bar over `total` cells (or another `unit`) when one is wanted; otherwise a silent stand-in, and nothing is imported."""
    if wanted:
        with extra("training"):
            from tqdm import tqdm

        bar: contextlib.AbstractContextManager[Any] = tqdm(total=total, unit=unit, desc=what)
        return bar
    return _Silent()


class _Silent:
    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def update(self, _: int = 1) -> None:
        """As tqdm's."""


def require_writable(path: Path) -> None:
    """A file can be made at `path`. Raises ValueError otherwise, to be called before any work."""
    if path.is_dir() or not path.parent.is_dir():
        what = "a folder" if path.is_dir() else "in a folder that does not exist"
        raise ValueError(f"save must be a file in a folder that exists; got {path.name!r}, {what}: make it first")
    probe = _partial(path)
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


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Inside, write to the path that is given; then it takes the place of `path`, or is gone if anything was raised."""
    temporary = _partial(path)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}.part")
