"""Data sets from the hub through `datasets` (extra `real`): one table of columns, checked labels, errors that say what to do.

Some repositories still hold a loading script, which `datasets` 4 and later refuses to run. Their automatic conversion to
parquet (revision refs/convert/parquet) is tried next; where it is missing, the published files are the way (`ATTNLIB_DATA`).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from attnbook.token_selection.real_data.recipes import Recipe

__all__ = ["PARQUET_REVISION", "SPLITS", "HubError", "arrays", "fetch"]

PARQUET_REVISION = "refs/convert/parquet"
SPLITS = {"train": "train", "validation": "val", "val": "val", "test": "test"}  # the hub's word -> ours, in our order


class HubError(RuntimeError):
    """The hub could not give a data set: why, in one sentence."""


def fetch(recipe: Recipe, *, path: str | os.PathLike | None = None) -> dict[str, tuple[Any, np.ndarray]]:
    """Every official split of a data set on the hub: {split: (uint8 images (N, C, H, W) or texts, labels int64 (N,))}.

    path: a local folder in the hub's layout instead of the hub. Raises HubError.
    """
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise HubError(f"needs {error.name}, which is not installed") from error
    where = str(path) if path is not None else recipe.hub
    configuration = (recipe.configuration,) if recipe.configuration and path is None else ()
    try:
        try:
            found = datasets.load_dataset(where, *configuration)
        except RuntimeError as error:
            if "scripts are no longer supported" not in str(error):
                raise
            found = datasets.load_dataset(where, *configuration, revision=PARQUET_REVISION)
    except (OSError, ValueError, RuntimeError) as error:  # offline, unknown name or branch, refused script: all seen
        raise HubError(f"{where} could not be loaded ({type(error).__name__}: {str(error).splitlines()[0]})") from error
    wanted = [split for split in SPLITS if split in found]
    if not wanted:
        raise HubError(f"{where} has none of the splits {', '.join(SPLITS)}: found {', '.join(found)}")
    return {SPLITS[split]: arrays(found[split], recipe, where) for split in wanted}


def _column(table: Any, candidates: tuple[str, ...], where: str) -> str:
    for name in candidates:
        if name in table.column_names:
            return name
    raise HubError(f"{where} has none of the columns {', '.join(candidates)}: found {', '.join(table.column_names)}")


def arrays(table: Any, recipe: Recipe, where: str) -> tuple[Any, np.ndarray]:
    """One split of `datasets` as arrays, with its columns found by name and its labels checked. Raises HubError."""
    inputs, labels = _column(table, recipe.inputs, where), _column(table, recipe.labels, where)
    y = np.array(table[labels][:], dtype=np.int64).reshape(-1)  # MedMNIST keeps one label in a list
    classes = len(recipe.class_names)
    if len(y) != len(table) or y.min() < 0 or y.max() >= classes:
        raise HubError(f"{where}: column {labels} holds {len(y)} labels in {y.min()}..{y.max()}, not 0..{classes - 1}")
    names = getattr(table.features[labels], "names", None)
    if names is not None and len(names) != classes:
        raise HubError(f"{where}: column {labels} names {len(names)} classes, not {classes}: {', '.join(names)}")
    ours = [name.lower() for name in recipe.class_names]
    if names is not None and {name.lower() for name in names} == set(ours) and [name.lower() for name in names] != ours:
        raise HubError(f"{where}: column {labels} has the classes in another order: {', '.join(names)}")
    if recipe.kind == "text":
        return tuple(table[inputs][:]), y
    images = [np.asarray(image, dtype=np.uint8) for image in table[inputs]]
    if len({image.shape for image in images}) != 1:
        raise HubError(f"{where}: images of different sizes")
    x = np.stack(images)
    return (x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)), y
