"""Readers of the files in which data sets are published: IDX (MNIST), CIFAR-10's batches, npz (MedMNIST), AG-news CSV, TREC labels.

Each checks its file as a whole before it returns anything, and raises `FormatError`, which names the file, what was expected
and what was found. No code of a file is run.
"""

import csv
import gzip
import io
import pickle
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

TREC_CLASSES = ("ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM")  # the order of the data set's card


class FormatError(ValueError):
    """Data are not what their name says: where, what was expected, what was found, what to do."""

    def __init__(self, where: str | Path, problem: str, advice: str = "damaged, or another file: download it again"):
        super().__init__(where, problem, advice)

    def __str__(self) -> str:
        return ": ".join(map(str, self.args))


def checked(where: str | Path, x: Any, y: Any, shape: tuple[int, ...], classes: int) -> tuple[Any, np.ndarray]:
    """Images uint8 (N, C, H, W) or a tuple of N texts, and labels int64 (N,) in 0..classes - 1.

    x: images (N, *shape), `shape` = (H, W) or (H, W, 3), or N texts, `shape` = (). y: labels (N,) or (N, 1).
    Raises FormatError, which names `where`, for anything else.
    """
    y = np.asarray(y)
    if shape:
        x = np.asarray(x)
        if x.dtype != np.uint8 or x.shape[1:] != shape:
            wanted = ", ".join(("N", *map(str, shape)))
            raise FormatError(where, f"images are {x.dtype} {x.shape}, not uint8 ({wanted})")
        x = x[:, None] if len(shape) == 2 else x.transpose(0, 3, 1, 2)  # a colour is the last axis in every file
    if not len(x) or y.shape not in ((len(x),), (len(x), 1)):
        raise FormatError(where, f"labels have shape {y.shape} for {len(x)} samples")
    y = y.reshape(-1).astype(np.int64)
    if len(bad := np.flatnonzero((y < 0) | (y >= classes))):
        raise FormatError(where, f"label {y[bad[0]]} in row {bad[0] + 1} is outside 0..{classes - 1}")
    return x, y


def read_idx(path: Path, *, axes: int) -> np.ndarray:
    """An IDX file of unsigned bytes, plain or .gz, as uint8 of `axes` axes (images 3, labels 1).

    Format: bytes 0 0 8 `axes`, then one big-endian 32-bit size per axis, then the data. Raises FormatError.
    """
    raw = path.read_bytes()
    if path.suffix == ".gz":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(path, f"is not one whole gzip stream ({error})") from error
    shape = tuple(np.frombuffer(raw[4 : 4 + 4 * axes].ljust(4 * axes, b"\0"), ">u4").tolist())
    data = np.frombuffer(raw, np.uint8)[4 + 4 * axes :]
    if raw[:4] != bytes((0, 0, 8, axes)) or len(raw) < 4 + 4 * axes or data.size != np.prod(shape, dtype=object):
        raise FormatError(
            path, f"not an IDX file of {axes} axes: {len(raw)} bytes that begin {raw[:4].hex(' ')}, {shape}"
        )
    return data.reshape(shape)


def read_npz(path: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """`{split}_images` and `{split}_labels` of an npz file as MedMNIST publishes it. Raises FormatError."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            return archive[f"{split}_images"], archive[f"{split}_labels"]
    except Exception as error:  # a damaged archive raises almost anything
        raise FormatError(path, f"not an npz file with {split}_images and {split}_labels ({error})") from error


class _Arrays(pickle.Unpickler):
    """Reads plain values and numpy's arrays, and nothing that could run."""

    def find_class(self, module: str, name: str) -> Any:
        known = {"_reconstruct": np.zeros(0).__reduce__()[0], "ndarray": np.ndarray, "dtype": np.dtype}
        if name not in known:  # whatever module calls it so, what it gets is numpy's
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        return known[name]


def read_cifar10(path: Path, *batches: str) -> tuple[np.ndarray, np.ndarray]:
    """Batches of CIFAR-10 as published for Python: images (N, 32, 32, 3), labels (N,). Raises FormatError.

    path: `cifar-10-python.tar.gz`, or the folder `cifar-10-batches-py` that it holds. A batch is a pickled table, b"data" uint8 (N, 3072),
    channel by channel, and b"labels".
    """
    try:
        if path.is_dir():
            raw = [(path / name).read_bytes() for name in batches]
        else:
            with tarfile.open(path) as archive:
                raw = [archive.extractfile(f"cifar-10-batches-py/{name}").read() for name in batches]
        found = [_Arrays(io.BytesIO(one), encoding="bytes").load() for one in raw]
        x, y = (np.concatenate([one[key] for one in found]) for key in (b"data", b"labels"))
        return x.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), y
    except Exception as error:  # a damaged pickle raises almost anything
        raise FormatError(path, f"not CIFAR-10's {', '.join(batches)} ({type(error).__name__}: {error})") from error


def read_ag_news(path: Path) -> tuple[tuple[str, ...], np.ndarray]:
    """AG-news CSV: texts (title, a space, description: as on the hub) and labels counted from 0.

    Format: utf-8, no header, every field quoted: class 1-4, title, description. Backslashes (which stand for line breaks)
    and HTML leftovers (#39; and the like) are kept, as on the hub. Raises FormatError with the row.
    """
    try:
        rows = list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(path, f"not a utf-8 CSV file ({error})") from error
    for number, row in enumerate(rows, start=1):
        if len(row) != 3 or row[0] not in ("1", "2", "3", "4"):
            raise FormatError(path, f'row {number} is not "class 1-4","title","description" but {str(row)[:80]}')
    return tuple(f"{title} {description}" for _, title, description in rows), np.array(
        [int(row[0]) - 1 for row in rows]
    )


def read_trec(path: Path) -> tuple[tuple[str, ...], np.ndarray]:
    """A TREC label file: questions, and coarse labels in the order of `TREC_CLASSES`.

    Format: latin-1 (the training file holds a byte that utf-8 refuses), one question per line, `COARSE:fine question`.
    Raises FormatError with the line.
    """
    texts, labels = [], []
    # Only \n and \r\n end a line: str.splitlines would also cut at latin-1 bytes such as 0x85.
    for number, line in enumerate(path.read_bytes().decode("latin-1").replace("\r\n", "\n").split("\n"), start=1):
        if not line.strip():
            continue
        label, _, question = line.partition(" ")
        group, colon, _ = label.partition(":")
        if not colon or not question.strip() or group not in TREC_CLASSES:
            raise FormatError(
                path,
                f"line {number} is not `COARSE:fine question`, COARSE one of {', '.join(TREC_CLASSES)}, but {line[:60]!r}",
            )
        texts.append(question.strip())
        labels.append(TREC_CLASSES.index(group))
    return tuple(texts), np.array(labels)
