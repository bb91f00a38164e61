"""One function for every data set of the real-data experiment: `load(name)`.

The digits come with scikit-learn. Every other set is read from a folder of the published files where one is named, and comes
through the library that people know where none is: torchvision, medmnist or datasets (extra `real`), which download and keep
it. A set is never replaced by another one, and a file that is there but damaged is an error, not a reason to look elsewhere.
A folder of one's own pictures is a data set, too (`load_pictures`): a subfolder a class, read by Pillow (extra `real`).
"""

import hashlib
import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from attnbook.token_selection.real_data import formats
from attnbook.token_selection.real_data.fixed_tokens import cache_folder, progress_bar
from attnlib import checks
from attnlib.extras import extra
from bookkit.parser import say

FEWEST = 20  # pictures of a class of one's own


class DataSetNotFound(LookupError):
    """The data set is not where it was looked for: where that was, and what to do."""


@dataclass(frozen=True)
class Split:
    """One official split: x is uint8 images (N, C, H, W) or N texts; y is int64 (N,), counted from 0.

    files: name and sha256 of each file it was read from; empty where a library gave it.
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
        """Images of a split as float32 (N, C, H, W) in [0, 1]."""
        return self.split(name).x.astype(np.float32) / self.white


def told(program: str, work: Callable[[], None]) -> int:
    """Exit code of a command: 0 done, 2 the request cannot be carried out (one line says why), 130 interrupted."""
    try:
        work()
    except (ValueError, DataSetNotFound, OSError, ModuleNotFoundError) as error:
        say(f"{program}: error: {error}", error=True)
        return 2
    except KeyboardInterrupt:
        say(f"{program}: interrupted; what is finished is kept, the same command goes on from there", error=True)
        return 130
    return 0


Found = Iterator[tuple[str, Any, Any, list[Path]]]  # split, images or texts, labels, the files they were read from


@dataclass(frozen=True)
class DataSet:
    """What a data set is, and the two ways to it: `read` the published `files` in a folder, or `fetch` them by a library.

    shape: of one picture, (H, W) or (H, W, 3); () for texts. recorded: what stored tables call the set.
    shared: a second folder, which holds the files of several sets.
    """

    class_names: tuple[str, ...]
    shape: tuple[int, ...]
    fetch: Callable[[], Found]
    library: str
    recorded: str
    files: str = ""
    read: Callable[[Path], Found] | None = None
    shared: str = ""
    white: int | None = 255

    @property
    def kind(self) -> str:
        return "image" if self.shape else "text"


# --- From a folder --------------------------------------------------------------------------------------------------------


def _read_mnist(folder: Path) -> Found:
    for split, prefix in (("train", "train"), ("test", "t10k")):
        names = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
        pair = [next((p for p in (folder / f"{n}.gz", folder / n) if p.is_file()), folder / n) for n in names]
        if any(path.is_file() for path in pair):
            if missing := [path for path in pair if not path.is_file()]:
                raise formats.FormatError(missing[0], "is missing beside its other half", "add it")
            yield split, formats.read_idx(pair[0], axes=3), formats.read_idx(pair[1], axes=1), pair


def _read_npz(classes: int, *names: str, splits: tuple[str, ...] = ("train", "val", "test")) -> Callable[[Path], Found]:
    def read(folder: Path) -> Found:
        for path in [folder / name for name in names if (folder / name).is_file()][:1]:
            for split in splits:
                x, y = formats.read_npz(path, split)
                if split == "train" and len(np.unique(y)) != classes:
                    problem = f"{len(np.unique(y))} classes, not {classes}"
                    raise formats.FormatError(
                        path, problem, "another data set: for pictures of your own, attnlib real FOLDER"
                    )
                yield split, x, y, [path]

    return read


def _read_cifar10(folder: Path) -> Found:
    for path in (folder / "cifar-10-batches-py", folder / "cifar-10-python.tar.gz"):
        if path.exists():
            for split, names in (("train", [f"data_batch_{k}" for k in range(1, 6)]), ("test", ["test_batch"])):
                yield (
                    split,
                    *formats.read_cifar10(path, *names),
                    [path / name for name in names] if path.is_dir() else [path],
                )
            return
    yield from _read_npz(10, "cifar10.npz", "cifar10_part.npz", splits=("train", "test"))(folder)


def _read_texts(reader: Callable[[Path], tuple], **files: str) -> Callable[[Path], Found]:
    def read(folder: Path) -> Found:
        for split, name in files.items():
            if (folder / name).is_file():
                yield split, *reader(folder / name), [folder / name]

    return read


# --- Through a library ----------------------------------------------------------------------------------------------------


def _digits() -> Found:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    yield "all", bunch.images.astype(np.uint8), bunch.target, []


def _torchvision(name: str) -> Callable[[], Found]:
    def fetch() -> Found:
        from torchvision import datasets

        for split in ("train", "test"):
            found = getattr(datasets, name)(cache_folder() / "data", train=split == "train", download=True)
            yield split, found.data, found.targets, []

    return fetch


def _medmnist(name: str) -> Callable[[], Found]:
    def fetch() -> Found:
        import medmnist

        for split in ("train", "val", "test"):
            found = getattr(medmnist, name)(split=split, download=True)
            yield split, found.imgs, found.labels, []

    return fetch


def _datasets(name: str, labels: str, class_names: tuple[str, ...], **options: str) -> Callable[[], Found]:
    def fetch() -> Found:
        from datasets import load_dataset

        found = load_dataset(name, **options)
        for split in ("train", "test"):
            names = getattr(found[split].features[labels], "names", class_names)
            if tuple(names) != class_names:
                raise ValueError(f"its classes are {', '.join(names)}, not {', '.join(class_names)}")
            yield split, tuple(found[split]["text"][:]), found[split][labels][:], []

    return fetch


_DIGITS = tuple("0123456789")
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_AG_NEWS = ("World", "Sports", "Business", "Sci/Tech")
_MEDMNIST = "albertvillanova/medmnist-v2"

DATA_SETS = {
    "digits": DataSet(_DIGITS, (8, 8), _digits, "scikit-learn", "scikit-learn's digits", white=16),
    "mnist": DataSet(
        _DIGITS, (28, 28), _torchvision("MNIST"), "torchvision", "ylecun/mnist",
        "train-images-idx3-ubyte[.gz] and its labels, t10k-... or both", _read_mnist,
    ),
    "cifar10": DataSet(
        _CIFAR10, (32, 32, 3), _torchvision("CIFAR10"), "torchvision", "uoft-cs/cifar10",
        "cifar-10-python.tar.gz, its folder cifar-10-batches-py or cifar10.npz", _read_cifar10,
    ),
    "pneumonia_mnist": DataSet(
        ("normal", "pneumonia"), (28, 28), _medmnist("PneumoniaMNIST"), "medmnist", _MEDMNIST,
        "pneumoniamnist.npz", _read_npz(2, "pneumoniamnist.npz"), shared="medmnist",
    ),
    "breast_mnist": DataSet(
        ("malignant", "normal or benign"), (28, 28), _medmnist("BreastMNIST"), "medmnist", _MEDMNIST,
        "breastmnist.npz", _read_npz(2, "breastmnist.npz"), shared="medmnist",
    ),
    "ag_news": DataSet(
        _AG_NEWS, (), _datasets("fancyzhx/ag_news", "label", _AG_NEWS), "datasets", "fancyzhx/ag_news",
        "train.csv, test.csv or both", _read_texts(formats.read_ag_news, train="train.csv", test="test.csv"), white=None,
    ),
    "trec": DataSet(  # its repository holds a script, which `datasets` runs no more, and a converted copy under this name
        formats.TREC_CLASSES, (),
        _datasets("CogComp/trec", "coarse_label", formats.TREC_CLASSES, revision="refs/convert/parquet"),
        "datasets", "CogComp/trec", "train_5500.label, TREC_10.label or both",
        _read_texts(formats.read_trec, train="train_5500.label", test="TREC_10.label"), white=None,
    ),
}  # fmt: skip


def _from_folder(name: str, data_set: DataSet, root: Path) -> list[tuple]:
    places = [root / place for place in (name, data_set.shared) if place]
    for place in places:
        if found := list(data_set.read(place)):  # an empty folder of its own hides nothing
            return found
    raise DataSetNotFound(
        f"{name} was not found in {' or '.join(map(str, places))}: put {data_set.files} there, or name no folder and unset "
        f"ATTNLIB_DATA to have it downloaded by {data_set.library}"
    )


def _from_library(name: str, data_set: DataSet) -> list[tuple]:
    other = f", or put {data_set.files} into FOLDER/{name} and set ATTNLIB_DATA=FOLDER" if data_set.read else ""
    does, advice = f"{data_set.library} does not start", f"python -m pip install --upgrade torch {data_set.library}"
    try:
        with extra("real"):
            if data_set.read:  # it may be there and not fit the torch beside it
                importlib.import_module(data_set.library)
            does, advice = f"{name} was not given by {data_set.library}", "connect once"
            return list(data_set.fetch())
    except (
        OSError,
        ValueError,
        RuntimeError,
        LookupError,
        AttributeError,
    ) as error:  # offline, other columns: all seen
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise DataSetNotFound(f"{does} ({reason[0]}): {advice}{other}") from error


def load(name: str, folder: str | Path | None = None) -> RealData:
    """A data set by name.

    Args:
        name: one of digits, mnist, cifar10, pneumonia_mnist, breast_mnist, ag_news, trec.
        folder: holds a folder of published files for each set, called like it; None takes $ATTNLIB_DATA, and where that is
            not set the set comes through its library. The digits always come from scikit-learn.

    Returns `RealData`: the official splits that were found, class names, and the source used.
    Raises ValueError for an unknown name, FormatError for damaged data, DataSetNotFound when the set is not there, and
    ModuleNotFoundError when a library is missing.
    """
    data_set = DATA_SETS[checks.one_of("name", name, tuple(DATA_SETS))]
    root = folder or os.environ.get("ATTNLIB_DATA")
    if root and data_set.read:
        source, found = "folder of published files", _from_folder(name, data_set, Path(root).expanduser())
    else:
        source, found = data_set.library, _from_library(name, data_set)
    splits = {}
    for split, x, y, paths in found:
        where = f"{' and '.join(map(str, paths)) or f'{name} by {source}'} ({split})"
        x, y = formats.checked(where, x, y, data_set.shape, len(data_set.class_names))
        splits[split] = Split(x, y, {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths})
    return RealData(name, data_set.kind, splits, data_set.class_names, data_set.white, source)


# --- One's own pictures ----------------------------------------------------------------------------------------------------


def load_pictures(folder: Path, side: int, *, progress: bool = False) -> RealData:
    """All pictures of the subfolders, in colour, resized to `side` x `side` pixels; a class is called as its subfolder.

    Hidden files and files whose ending Pillow does not know are passed over. Raises FormatError, before anything else is done, for fewer
    than two classes, a class of fewer than `FEWEST` pictures, and pictures that cannot be read, which it names.
    """
    with extra("real"):
        from PIL import Image, ImageOps

    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    known = Image.registered_extensions()
    files = [
        [p for p in sorted(one.iterdir()) if p.suffix.lower() in known and not p.name.startswith(".")]
        for one in classes
    ]
    if len(classes) < 2:
        raise formats.FormatError(
            folder, f"holds {len(classes)} classes", "make a subfolder of pictures for each class, two or more"
        )
    if few := [f"{one.name} {len(own)}" for one, own in zip(classes, files, strict=True) if len(own) < FEWEST]:
        raise formats.FormatError(
            folder, f"too few pictures: {', '.join(few)}", f"each class needs {FEWEST}: add some, or take it out"
        )
    x, y, broken = [], [], []
    digest = hashlib.sha256()
    for label, path in progress_bar([(k, p) for k, own in enumerate(files) for p in own], "pictures", progress):
        try:
            with Image.open(path) as picture:
                if picture.mode[0] in "IF":
                    raise ValueError(f"more than 8 bits a pixel, mode {picture.mode}")
                x.append(np.asarray(ImageOps.exif_transpose(picture).convert("RGB").resize((side, side))))
        except Exception as error:  # a damaged picture raises almost anything
            broken.append(f"{path} ({type(error).__name__}: {error})")
        y.append(label)
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())
    if broken:
        more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
        raise formats.FormatError(
            folder, f"cannot be read: {', '.join(broken[:3])}{more}", "save again with 8 bits a pixel, or remove"
        )
    split = Split(np.stack(x).transpose(0, 3, 1, 2), np.array(y, np.int64), {"pictures": digest.hexdigest()})
    return RealData(
        "own pictures", "image", {"all": split}, tuple(one.name for one in classes), 255, "a folder of pictures"
    )
