"""How a data set is found: the published files, the hub's names of its columns, and what its classes are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Found", "Recipe"]

Found = Iterator[tuple[str, Any, np.ndarray, list[Path]]]


@dataclass(frozen=True)
class Recipe:
    """How one data set is found. `folder` reads the published files: split, x, y, paths. The hub's columns are tried in the order
    given. `shared`: a second folder of $ATTNLIB_DATA, which holds the files of several sets."""

    kind: str
    class_names: tuple[str, ...]
    white: int | None = None
    files: str = ""  # what the folder must hold, for the error
    folder: Callable[[Path], Found] | None = None
    hub: str | None = None  # as the authors name it where they use the set
    configuration: str | None = None
    inputs: tuple[str, ...] = ("image", "img", "text")
    labels: tuple[str, ...] = ("label", "coarse_label")
    built_in: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None
    shared: str = ""
