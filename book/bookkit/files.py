"""Result files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["written_aside"]


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Inside, write to the path that is given; then it takes the place of `path`, or is gone if anything was raised."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
