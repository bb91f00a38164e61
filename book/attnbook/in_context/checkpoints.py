"""Trainings on disk: tensors in a safetensors file, settings in its header, and a JSON copy of the settings for people.

A file is written aside and renamed, so there is always one whole checkpoint. One checksum seals all that is read back, tensors and
settings: a file that differs in a bit is refused, not resumed. Needs safetensors (extra `training`).
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlib import checks
from attnlib.arrays import Arrays
from attnlib.extras import extra

VERSION = 2
_KIND = "attnlib in-context training"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says why and what to do."""


def _checksum(tensors: Mapping[str, NDArray[Any]], record: Mapping[str, Any]) -> str:
    sealed = {name: value for name, value in record.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(sealed, sort_keys=True).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def write_checkpoint(path: Path, tensors: Mapping[str, NDArray[Any]], settings: Mapping[str, Any]) -> None:
    """Write `path` (.safetensors) and `path` with .json. `settings` are plain values; both files are whole or not there.

    Raises ValueError for another suffix or a folder that does not exist, CheckpointError for a file that cannot be written.
    """
    with extra("training"):
        from safetensors.numpy import save

    path = _path(path)
    record = {**settings, "kind": _KIND, "version": VERSION}
    record["sha256"] = _checksum(tensors, record)
    arrays = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    _write_whole(path, save(arrays, {"settings": json.dumps(record, sort_keys=True)}))
    _write_whole(path.with_suffix(".json"), (json.dumps(record, indent=2, sort_keys=True) + "\n").encode())


def _write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        raise CheckpointError(f"checkpoint {path.name!r} cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


@checks.checked
def read_checkpoint(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Tensors and settings of a checkpoint. Raises CheckpointError for one that is damaged, foreign, or of another version."""
    with extra("training"):
        from safetensors import SafetensorError, safe_open

    path = _path(path)
    if not path.is_file():
        raise CheckpointError(
            f"checkpoint must be an existing file; got {path.name!r}: train with checkpoint=... first"
        )
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        settings = json.loads(header.get("settings", "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path.name!r} is damaged ({error}): delete it and train again") from None
    if not isinstance(settings, dict) or settings.get("kind") != _KIND:
        raise CheckpointError(
            f"checkpoint {path.name!r} was not written by a training of this package: choose another file"
        )
    if settings.get("version") != VERSION:
        raise CheckpointError(
            f"checkpoint {path.name!r} has version {settings.get('version')!r}, this package reads {VERSION}: train again"
        )
    if settings.get("sha256") != _checksum(tensors, settings):
        raise CheckpointError(
            f"checkpoint {path.name!r} is damaged (its content does not match its checksum): delete it and train again"
        )
    return tensors, {name: value for name, value in settings.items() if name != "sha256"}


def _path(path: Path) -> Path:
    path = Path(path)
    if path.suffix != ".safetensors" or not path.parent.is_dir():
        raise ValueError(
            f"checkpoint must be a .safetensors file in a folder that exists; got {path.name!r} in {path.parent.name!r}"
        )
    return path
