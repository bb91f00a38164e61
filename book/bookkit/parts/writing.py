"""All files or none: each is written beside its place, then all are put in place; what fails on the way is undone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["write_all"]


def write_all(texts: Mapping[Path, str]) -> None:
    """Write every text to its path, making folders. If anything is raised, files and folders are as before."""
    before = {path: path.read_bytes() if path.exists() else None for path in texts}
    beside = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in texts}
    made: list[Path] = []
    placed: list[Path] = []
    try:
        for path, text in texts.items():
            made += _make(path.parent)
            beside[path].write_text(text, encoding="utf-8", newline="\n")
            if before[path] is not None:
                beside[path].chmod(path.stat().st_mode)
        for path in texts:
            placed.append(path)
            os.replace(beside[path], path)
    except BaseException:
        for path in placed:
            _restore(path, before[path])
        for path in beside.values():
            path.unlink(missing_ok=True)
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # somebody else has put a file there
                folder.rmdir()
        raise


def _make(folder: Path) -> list[Path]:
    """The folders that were made, the outer ones first."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()][::-1]
    for each in missing:
        each.mkdir()
    return missing


def _restore(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    elif path.read_bytes() != content:
        path.write_bytes(content)
