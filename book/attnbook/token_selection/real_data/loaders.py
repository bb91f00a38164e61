"""One function for every data set of the real-data experiment: `load(name)`.

A set is looked for in a fixed order: built in (the digits of scikit-learn), a folder (`$ATTNLIB_DATA/<name>`, the files as
they were published), the hub (`datasets`, extra `real`). An error lists what was tried, in that order, and what to do. A set is
never replaced by another one, and a file that is there but damaged is an error, not a reason to look elsewhere.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from attnbook.token_selection.real_data import formats, hub_data
from attnbook.token_selection.real_data.recipes import Found, Recipe
from attnlib import checks

__all__ = ["DATA_SETS", "SOURCES", "DataSetNotFound", "RealData", "Split", "load"]

SOURCES = ("auto", "built-in", "folder", "hub")
_INSTALL = "python -m pip install 'attnlib[real]'"


class DataSetNotFound(LookupError):
    """No source could give the data set: what was tried, in order, and what to do."""


@dataclass(frozen=True)
class Split:
    """One official split: x is uint8 images (N, C, H, W) or N texts; y is int64 (N,), counted from 0.

    files: name and sha256 of each file it was read from; empty where there was none.
    """

    x: np.ndarray | tuple[str, ...]
    y: np.ndarray
    files: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class RealData:
    """A data set as it was published.

    splits: the official splits that were found, in the order train, val, test (digits has none: "all").
    white: pixel value of white (255, digits 16); None for texts.
    source: where it came from, in words, without any path.
    """

    name: str
    kind: str  # "image" or "text"
    splits: Mapping[str, Split]
    class_names: tuple[str, ...]
    white: int | None
    source: str

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def split(self, name: str) -> Split:
        """One official split, or several joined: "val+test". Raises DataSetNotFound that says which were found."""
        names = name.split("+")
        for one in names:
            if one not in self.splits:
                raise DataSetNotFound(
                    f"{self.name} from {self.source} has no split {one!r}: found {', '.join(self.splits)}"
                )
        found = [self.splits[one] for one in names]
        if len(found) == 1:
            return found[0]
        texts = self.kind == "text"
        x = tuple(text for part in found for text in part.x) if texts else np.concatenate([part.x for part in found])
        files = {file: digest for part in found for file, digest in part.files.items()}
        return Split(x, np.concatenate([part.y for part in found]), files)

    def pixels(self, name: str) -> np.ndarray:
        """Images of a split as float32 (N, C, H, W) in [0, 1]. Raises ValueError for a data set of texts."""
        if self.white is None:
            raise ValueError(f"pixels needs a data set of images; got {self.name}, a data set of texts")
        return self.split(name).x.astype(np.float32) / self.white


def _first(folder: Path, *names: str) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _mnist(folder: Path) -> Found:
    for split, prefix in (("train", "train"), ("test", "t10k")):
        names = [f"{prefix}-{what}" for what in ("images-idx3-ubyte", "labels-idx1-ubyte")]
        found = [_first(folder, f"{name}.gz", name) for name in names]
        if found == [None, None]:
            continue
        for path, name in zip(found, names, strict=True):
            if path is None:
                raise formats.FormatError(folder / f"{name}.gz", "is missing beside its other half", "add it")
        images, labels = formats.read_idx(found[0], dimensions=3), formats.read_idx(found[1], dimensions=1)
        if len(images) != len(labels):
            raise formats.FormatError(found[1], f"{len(labels)} labels for {len(images)} images", "mixed files?")
        yield split, images[:, None], formats.labels_within(found[1], labels, 10), found


def _cifar10(folder: Path) -> Found:
    for sub, end, read in (
        ("cifar-10-batches-bin", ".bin", formats.read_cifar10_binary),
        ("cifar-10-batches-py", "", formats.read_cifar10_python),
    ):
        for place in (folder, folder / sub):
            groups = {
                "train": [path for k in range(1, 6) if (path := _first(place, f"data_batch_{k}{end}"))],
                "test": [path for path in [_first(place, f"test_batch{end}")] if path],
            }
            for split, paths in groups.items():
                if paths:
                    batches = [read(path) for path in paths]
                    x, y = (np.concatenate(column) for column in zip(*batches, strict=True))
                    yield split, x, y, paths
            if any(groups.values()):
                return
    if path := _first(folder, "cifar10.npz", "cifar10_part.npz"):
        arrays = formats.read_medmnist(path, classes=10, splits=("train", "test"))
        for split, (images, labels) in arrays.items():
            if images.ndim == 3:
                raise formats.FormatError(path, f"{split}_images is grey, {images.shape}", "wrong file?")
            yield split, images.transpose(0, 3, 1, 2), labels, [path]


def _medmnist(name: str) -> Callable[[Path], Found]:
    def read(folder: Path) -> Found:
        path = _first(folder, f"{name}.npz")
        for split, (images, labels) in (formats.read_medmnist(path, classes=2) if path else {}).items():
            yield split, images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2), labels, [path]

    return read


def _ag_news(folder: Path) -> Found:
    for split in ("train", "test"):
        if path := _first(folder, f"{split}.csv"):
            yield split, *formats.read_ag_news(path), [path]


def _trec(folder: Path) -> Found:
    for split, name in (("train", "train_5500.label"), ("test", "TREC_10.label")):
        if path := _first(folder, name):
            yield split, *formats.read_trec(path)[:2], [path]


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.images.astype(np.uint8)[:, None], bunch.target.astype(np.int64)


_DIGITS = tuple("0123456789")

DATA_SETS = {
    "digits": Recipe("image", _DIGITS, 16, built_in=_digits),
    "mnist": Recipe(
        "image", _DIGITS, 255, "train-images-idx3-ubyte[.gz] and its labels, t10k-... or both", _mnist, "ylecun/mnist"
    ),
    "cifar10": Recipe(
        "image",
        formats.CIFAR10_CLASSES,
        255,
        "data_batch_1.bin .. 5 and test_batch.bin (or the python version), also inside cifar-10-batches-bin, or cifar10.npz",
        _cifar10,
        "uoft-cs/cifar10",
    ),
    "pneumonia_mnist": Recipe(
        "image",
        ("normal", "pneumonia"),
        255,
        "pneumoniamnist.npz",
        _medmnist("pneumoniamnist"),
        "albertvillanova/medmnist-v2",
        "pneumoniamnist",
        shared="medmnist",
    ),
    "breast_mnist": Recipe(
        "image",
        ("malignant", "normal or benign"),
        255,
        "breastmnist.npz",
        _medmnist("breastmnist"),
        "albertvillanova/medmnist-v2",
        "breastmnist",
        shared="medmnist",
    ),
    "ag_news": Recipe(
        "text", formats.AG_NEWS_CLASSES, None, "train.csv, test.csv or both", _ag_news, "fancyzhx/ag_news"
    ),
    "trec": Recipe(
        "text", formats.TREC_CLASSES, None, "train_5500.label, TREC_10.label or both", _trec, "CogComp/trec"
    ),
}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _listed(places: list[Path], one: str, several: str) -> str:
    return f"{' and '.join(map(str, places))} {one if len(places) == 1 else several}"


def _load_built_in(name: str, recipe: Recipe) -> RealData:
    if recipe.built_in is None:
        raise DataSetNotFound("built-in: only the digits of scikit-learn are")
    try:
        x, y = recipe.built_in()
    except ModuleNotFoundError as error:
        raise DataSetNotFound(f"built-in: needs {error.name}, which is not installed; {_INSTALL}") from error
    return RealData(name, recipe.kind, {"all": Split(x, y)}, recipe.class_names, recipe.white, "scikit-learn")


def _load_folder(name: str, recipe: Recipe) -> RealData:
    if recipe.folder is None:
        raise DataSetNotFound("folder: not published as files of its own")
    root = os.environ.get("ATTNLIB_DATA")
    if not root:
        raise DataSetNotFound("folder: the environment variable ATTNLIB_DATA is not set")
    places = [Path(root).expanduser() / folder for folder in (name, recipe.shared) if folder]
    there = [place for place in places if place.is_dir()]
    if not there:
        raise DataSetNotFound(f"folder: {_listed(places, 'is', 'are')} not there (ATTNLIB_DATA={root})")
    splits: dict[str, Split] = {}
    for place in there:
        for split, x, y, paths in recipe.folder(place) if not splits else ():
            splits[split] = Split(x, y, {path.name: _sha256(path) for path in paths})
    if not splits:
        raise DataSetNotFound(f"folder: {_listed(there, 'holds', 'hold')} none of the files")
    return RealData(name, recipe.kind, splits, recipe.class_names, recipe.white, "folder of published files")


def _load_hub(name: str, recipe: Recipe) -> RealData:
    if recipe.hub is None:
        raise DataSetNotFound("hub: not fetched from there")
    try:
        found = hub_data.fetch(recipe)
    except hub_data.HubError as error:
        raise DataSetNotFound(f"hub: {error}") from error
    splits = {split: Split(x, y) for split, (x, y) in found.items()}
    return RealData(name, recipe.kind, splits, recipe.class_names, recipe.white, f"hub, {recipe.hub}")


def load(name: str, source: str = "auto") -> RealData:
    """A data set by name.

    Args:
        name: one of digits, mnist, cifar10, pneumonia_mnist, breast_mnist, ag_news, trec.
        source: "auto" tries built-in, folder, hub in this order; or one of them alone.

    Returns `RealData`: the official splits that were found, class names, and the source used.
    Raises ValueError for an unknown name or source, FormatError for a damaged file, DataSetNotFound when no source has it.
    """
    recipe = DATA_SETS[checks.one_of("name", name, tuple(DATA_SETS))]
    checks.one_of("source", source, SOURCES)
    ways = {"built-in": _load_built_in, "folder": _load_folder, "hub": _load_hub}
    tried = []
    for way in ways if source == "auto" else (source,):
        try:
            return ways[way](name, recipe)
        except DataSetNotFound as error:
            tried.append(str(error))
    steps = [f"put {recipe.files} into $ATTNLIB_DATA/{name}"] if recipe.folder else []
    steps += [f"{_INSTALL} and connect to the network"] if recipe.hub else []
    steps += [_INSTALL] if recipe.built_in else []
    raise DataSetNotFound(f"data set {name} was not found. Tried {'; '.join(tried)}. To do: {'; or '.join(steps)}")
