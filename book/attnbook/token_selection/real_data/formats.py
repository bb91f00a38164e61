"""Readers of the files in which the data sets are published: IDX, CIFAR-10 batches, MedMNIST npz, AG-news CSV, TREC labels.

Each reader checks its file as a whole before it returns anything, and raises `FormatError`, which names the file, what was
expected, what was found and what to do. Nothing is unpickled except CIFAR-10's python batches, and those by a reader that
knows numpy arrays and nothing else.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import pickle
import zlib
from pathlib import Path

import numpy as np

__all__ = [
    "AG_NEWS_CLASSES",
    "CIFAR10_CLASSES",
    "TREC_CLASSES",
    "FormatError",
    "labels_within",
    "read_ag_news",
    "read_cifar10_binary",
    "read_cifar10_python",
    "read_idx",
    "read_medmnist",
    "read_trec",
]

AG_NEWS_CLASSES = ("World", "Sports", "Business", "Sci/Tech")
TREC_CLASSES = ("ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM")  # the order of the data set's card on the hub
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_GZIP_MAGIC = b"\x1f\x8b"
_AGAIN = "the file is damaged or cut short: download it again"


class FormatError(ValueError):
    """A data file is not what its name says: file, what was expected, what was found, what to do."""

    def __init__(self, path: str | Path, problem: str, advice: str = _AGAIN):
        super().__init__(f"{path}: {problem}: {advice}")


def _bytes(path: Path) -> bytes:
    """The file's bytes; a name ending in .gz is unpacked, and only such a name."""
    raw = path.read_bytes()
    if path.suffix != ".gz":
        if raw[:2] == _GZIP_MAGIC:
            raise FormatError(path, "holds gzip data, but its name does not end in .gz", "rename it, or unpack it")
        return raw
    try:
        return gzip.decompress(raw)
    except gzip.BadGzipFile as error:
        raise FormatError(
            path, f"is named .gz but is not gzip ({error})", "drop .gz from the name if it was unpacked"
        ) from error
    except (EOFError, zlib.error) as error:
        raise FormatError(path, f"ends before the gzip stream does ({error})") from error


def read_idx(path: str | Path, *, dimensions: int) -> np.ndarray:
    """An IDX file of unsigned bytes (MNIST), plain or .gz, as uint8 of `dimensions` axes.

    Format: bytes 0 0 8 `dimensions`, then one big-endian 32-bit size per axis, then the data. Images: 3 axes, labels: 1.
    Raises FormatError for another magic number, or when the sizes in the header do not match the data.
    """
    path = Path(path)
    raw = _bytes(path)
    magic = bytes((0, 0, 8, dimensions))
    if raw[:4] != magic:
        found = int.from_bytes(raw[:4], "big")
        kind = {1: "labels", 3: "images"}.get(dimensions, f"{dimensions} axes")
        advice = "images and labels exchanged?" if raw[:3] == magic[:3] else "is it an IDX file?"
        raise FormatError(path, f"magic number {found} instead of {int.from_bytes(magic, 'big')} ({kind})", advice)
    if len(raw) < 4 + 4 * dimensions:
        raise FormatError(path, "ends inside the header")
    shape = tuple(np.frombuffer(raw, ">u4", dimensions, 4).tolist())
    wanted, found = math.prod(shape), len(raw) - 4 - 4 * dimensions
    if wanted != found:
        raise FormatError(path, f"header says {wanted} bytes of shape {shape}, the file holds {found}")
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def labels_within(path: Path, labels: np.ndarray, classes: int, first: int = 0) -> np.ndarray:
    """Labels as int64 counted from 0; an error that names the first one outside first..first + classes - 1."""
    labels = np.asarray(labels).astype(np.int64) - first
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(bad):
        row = int(bad[0])
        raise FormatError(
            path,
            f"label {labels[row] + first} in row {row + 1} is outside {first}..{first + classes - 1}",
            "wrong file?",
        )
    return labels


def read_cifar10_binary(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """One batch of CIFAR-10's binary version: images uint8 (N, 3, 32, 32), labels int64 (N,).

    Format: records of 3073 bytes, the label, then red, green and blue planes row by row.
    Raises FormatError when the size is no multiple of 3073 or a label is above 9.
    """
    path = Path(path)
    raw = np.frombuffer(_bytes(path), np.uint8)
    if len(raw) == 0 or len(raw) % 3073:
        raise FormatError(path, f"{len(raw)} bytes, not a multiple of 3073 (1 label and 3 x 32 x 32 pixels)")
    records = raw.reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), labels_within(path, records[:, 0], 10)


class _ArraysOnly(pickle.Unpickler):
    """An unpickler for arrays of numbers: any other global is refused, so a file can run no code."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return np._core.multiarray._reconstruct
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # how protocol 2 of Python 3 writes bytes
            return lambda text, encoding: text.encode("latin-1")
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a data file")


def read_cifar10_python(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """One batch of CIFAR-10's python version, as `read_cifar10_binary` returns it.

    Format: a pickled dict with `data` uint8 (N, 3072) and `labels`, a list. Only numbers, texts and numpy arrays are
    accepted. Raises FormatError for anything else.
    """
    path = Path(path)
    try:
        batch = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises almost anything
        raise FormatError(
            path, f"not a CIFAR-10 python batch ({type(error).__name__}: {error})", "take the binary version instead"
        ) from error
    fields = (
        {(k.decode() if isinstance(k, bytes) else k): v for k, v in batch.items()} if isinstance(batch, dict) else {}
    )
    data, labels = fields.get("data"), fields.get("labels")
    fits = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2 and data.shape[1] == 3072
    if not fits or not isinstance(labels, list) or len(labels) != len(data):
        raise FormatError(
            path, "no `data` uint8 (N, 3072) with `labels`, a list of N", "take the binary version instead"
        )
    return data.reshape(-1, 3, 32, 32), labels_within(path, labels, 10)


def read_medmnist(
    path: str | Path, *, classes: int, splits: tuple[str, ...] = ("train", "val", "test")
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """A MedMNIST .npz file, or another of its form: splits -> images uint8 (N, H, W) or (N, H, W, 3), labels int64 (N,).

    Format: `{split}_images` and `{split}_labels`, labels of shape (N, 1), or (N,) in copies that were saved anew. Read with
    allow_pickle=False.
    Raises FormatError for missing entries, other shapes, or a label outside 0..classes-1.
    """
    path = Path(path)
    raw, arrays = path.read_bytes(), {}
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            for split in splits:
                arrays[split] = archive[f"{split}_images"], archive[f"{split}_labels"]
    except KeyError as error:
        raise FormatError(path, f"no entry {error.args[0]}", "is it a MedMNIST file?") from error
    except Exception as error:  # a damaged archive raises almost anything
        raise FormatError(path, f"not an npz file of plain arrays ({error})") from error
    result = {}
    for split, (images, labels) in arrays.items():
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)):
            raise FormatError(
                path,
                f"{split}_images is {images.dtype} {images.shape}, not uint8 (N, H, W) or (N, H, W, 3)",
                "wrong file?",
            )
        if labels.shape not in ((len(images), 1), (len(images),)):
            raise FormatError(path, f"{split}_labels has shape {labels.shape}, not ({len(images)}, 1)", "wrong file?")
        result[split] = images, labels_within(path, labels.reshape(-1), classes)
    return result


def read_ag_news(path: str | Path) -> tuple[tuple[str, ...], np.ndarray]:
    """AG-news CSV: texts (title, a space, description: as on the hub) and labels int64 counted from 0.

    Format: utf-8, no header, every field quoted: class 1-4, title, description. Backslashes (which stand for line breaks)
    and HTML leftovers (#39; and the like) are kept, as on the hub. Raises FormatError with the row.
    """
    path = Path(path)
    texts, labels = [], []
    try:
        rows = list(csv.reader(io.StringIO(_bytes(path).decode("utf-8"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(path, f"not a utf-8 CSV file ({error})") from error
    for number, row in enumerate(rows, start=1):
        if len(row) != 3 or not row[0].strip().isdecimal():
            raise FormatError(path, f'row {number} is not "class","title","description" but {str(row)[:80]}')
        labels.append(int(row[0]))
        texts.append(f"{row[1]} {row[2]}")
    if not rows:
        raise FormatError(path, "no rows")
    return tuple(texts), labels_within(path, np.array(labels), len(AG_NEWS_CLASSES), first=1)


def read_trec(path: str | Path) -> tuple[tuple[str, ...], np.ndarray, tuple[str, ...]]:
    """A TREC label file: questions, coarse labels int64 in the order of `TREC_CLASSES`, and the fine labels as texts.

    Format: latin-1 (the training file holds a byte that utf-8 refuses), one question per line, `COARSE:fine question`.
    Raises FormatError with the line.
    """
    path = Path(path)
    texts, coarse, fine = [], [], []
    # Only \n and \r\n end a line: str.splitlines would also cut at latin-1 bytes such as 0x85.
    for number, line in enumerate(_bytes(path).decode("latin-1").replace("\r\n", "\n").split("\n"), start=1):
        if not line.strip():
            continue
        label, _, question = line.partition(" ")
        group, colon, kind = label.partition(":")
        if not colon or not question.strip():
            raise FormatError(path, f"line {number} is not `COARSE:fine question` but {line[:60]!r}")
        if group not in TREC_CLASSES:
            raise FormatError(
                path, f"class {group!r} in line {number} is none of {', '.join(TREC_CLASSES)}", "wrong file?"
            )
        texts.append(question.strip())
        coarse.append(TREC_CLASSES.index(group))
        fine.append(f"{group}:{kind}")
    if not texts:
        raise FormatError(path, "no questions")
    return tuple(texts), np.array(coarse, dtype=np.int64), tuple(fine)
