"""Stored results of the real-data experiment: one small JSON file per data set, one record per finished (seed, n) cell.

A file is rewritten as a whole under a temporary name and then renamed, so an interrupted run leaves what was finished.
All cells of a file share their settings; a cell measured with other settings is refused.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnbook.stored import seal, sealed
from attnlib import checks
from bookkit.files import written_aside

TABLES = Path(__file__).with_name("tables")


# Test accuracy in percent (mean, s.d. over 3 seeds) of the authors' runs with ViT-B and BERT-base, as read from the deleted notebook
# of their repository: None key is head-only, then (eta, n).
def _published(
    head_only: float, clean: list[tuple[float, float]], noisy: list[tuple[float, float]]
) -> dict[Any, tuple[float, float | None]]:
    """By key, from the rows of eta = 0 and of eta = 0.2; a row has n = 20, 200 and, on large sets, 1000."""
    rows = {
        (eta, n): cell
        for eta, row in ((0.0, clean), (0.2, noisy))
        for n, cell in zip((20, 200, 1000), row, strict=False)
    }
    return {None: (head_only, None), **rows}


PUBLISHED = {
    "mnist": _published(95.03, [(90.8, 1.5), (91.8, 0.1), (93.9, 0.1)], [(84.0, 7.2), (87.3, 1.2), (88.4, 0.1)]),
    "cifar10": _published(96.19, [(96.0, 0.1), (95.9, 0.1), (96.3, 0.1)], [(95.5, 0.4), (94.3, 0.3), (93.2, 0.1)]),
    "pneumonia_mnist": _published(
        83.33, [(80.4, 3.1), (79.0, 2.0), (81.5, 0.9)], [(79.2, 7.0), (81.2, 2.2), (82.5, 0.7)]
    ),
    "breast_mnist": _published(77.14, [(74.4, 1.4), (78.4, 1.1)], [(74.8, 2.0), (76.3, 2.3)]),
    "ag_news": _published(83.05, [(84.0, 0.3), (85.9, 0.5), (85.5, 0.3)], [(82.5, 0.7), (77.8, 0.6), (69.6, 1.1)]),
    "trec": _published(82.87, [(81.4, 0.3), (78.7, 0.5), (82.8, 0.4)], [(79.2, 2.4), (73.3, 0.8), (69.1, 1.7)]),
}

# Measured quantities of a cell and the axes each has: E noise levels, S recorded steps, 3 groups (noisy, clean, test).
_AXES = {
    "test_accuracy": "ES",
    "fit_noisy": "ES",
    "fit_clean": "ES",
    "train_loss": "ES",
    "max_attention": "E3",
    "twin_distance": "E3",
    "linear_head": "E",
    "linear_head_fit": "E",
    "head_only": "",
    "reset": "",
    "reach": "",
}
_ROUNDED = 6e-6  # what five decimals leave out


@dataclass(frozen=True)
class Cell:
    """One finished run: seed, n, the steps recorded, and the measured arrays by name (see `NoiseStudy` for each)."""

    seed: int
    n: int
    recorded: tuple[int, ...]
    seconds: float  # processor time, one thread, phase 1 excluded
    values: Mapping[str, np.ndarray]
    tested: np.ndarray | None = (
        None  # (M,) row numbers of the test samples in their split; None in older tables, as hits
    )
    hits: np.ndarray | None = None  # (E, M) bool, True where the trained network gives a test sample its true label


@dataclass(frozen=True)
class ResultTable:
    """A data set's stored results. settings: what was run (command, versions, date, backbone, optimiser, horizon, ...)."""

    name: str
    settings: Mapping[str, Any]
    noise_levels: tuple[float, ...]
    cells: tuple[Cell, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of n that have a finished cell, rising."""
        return tuple(sorted({cell.n for cell in self.cells}))

    def seeds(self, n: int) -> tuple[int, ...]:
        """Seeds finished at this n."""
        return tuple(cell.seed for cell in self.cells if cell.n == n)

    def values(self, what: str, n: int) -> np.ndarray:
        """One quantity at one n, seeds first: (R, E, S), (R, E, 3), (R, E) or (R,). Raises KeyError when nothing is stored."""
        checks.one_of("what", what, tuple(_AXES))
        chosen = [cell.values[what] for cell in self.cells if cell.n == n]
        if not chosen:
            raise KeyError(f"{self.name} has no finished run at n = {n}: finished are {self.sizes}")
        return np.stack(chosen)

    def final(self, what: str, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (n - 1) over seeds of a quantity, at the last recorded step where it has steps."""
        values = self.values(what, n)
        values = values[..., -1] if _AXES[what] == "ES" else values
        return values.mean(0), values.std(0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)


def _plain(value: Any) -> Any:
    """JSON value rounded to five decimals; nan becomes null."""
    array = np.asarray(value, dtype=float)
    if array.ndim:
        return [_plain(item) for item in array]
    number = float(array)
    return round(number, 5) if math.isfinite(number) else None


def cell_record(study: Any, *, seconds: float) -> dict[str, Any]:
    """A `NoiseStudy` as a JSON record, numbers rounded to five decimals."""
    record = {"seed": study.seed, "n": study.n, "recorded": [int(step) for step in study.recorded]}
    record["seconds"] = round(seconds, 1)
    for name in _AXES:
        value = getattr(study, name)
        record[name] = _plain(value.numpy() if hasattr(value, "numpy") else value)
    return record


def _packed(bits: np.ndarray) -> str:
    """Booleans (M,) as hexadecimal digits, eight a byte, the first in the highest bit."""
    return np.packbits(bits).tobytes().hex()


def _unpacked(digits: str) -> np.ndarray:
    return np.unpackbits(np.frombuffer(bytes.fromhex(digits), dtype=np.uint8)).astype(bool)


def hits_record(hits: Any, tested: Sequence[int]) -> dict[str, Any]:
    """What a cell stores of single test samples: hits (E, M) bool, and their rising row numbers (M,) in the split."""
    return {
        "tested": _packed(np.isin(np.arange(tested[-1] + 1), tested)),
        "hits": [_packed(row) for row in np.asarray(hits)],
    }


def stored_tables(folder: str | Path | None = None) -> tuple[str, ...]:
    """Names of the tables that are stored."""
    return tuple(sorted(path.stem for path in Path(folder or TABLES).glob("*.json")))


def _load(path: Path) -> dict[str, Any]:
    path = sealed(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if set(document) != {"name", "settings", "noise_levels", "cells"}:
            raise ValueError(f"entries {sorted(document)}")
    except ValueError as error:
        raise ValueError(f"{path} is not a stored table ({error}): delete it and run the command again") from error
    return document


def read_table(name: str, folder: str | Path | None = None) -> ResultTable:
    """The stored results of a data set; folder None takes the tables that came with the package.

    Raises FileNotFoundError that lists what is stored, ValueError for a file that is not a table or a cell of the wrong shape.
    """
    path = Path(folder or TABLES) / f"{name}.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"no stored table {name!r}: stored are {', '.join(stored_tables(folder)) or 'none'}; "
            f"make it with attnlib real {name}"
        )
    document = _load(path)
    levels, cells = tuple(document["noise_levels"]), []
    for record in document["cells"]:
        sizes = {"E": len(levels), "S": len(record["recorded"]), "3": 3}
        values = {}
        for what, axes in _AXES.items():
            array = np.array(record[what], dtype=float)
            if array.shape != tuple(sizes[axis] for axis in axes):
                raise ValueError(
                    f"{path}: {what} of seed {record['seed']}, n {record['n']} has shape {array.shape}: "
                    "delete the file and run the command again"
                )
            values[what] = array
        singly = {}
        if "hits" in record:
            tested = np.flatnonzero(_unpacked(record["tested"]))
            singly = {"tested": tested, "hits": np.stack([_unpacked(row)[: len(tested)] for row in record["hits"]])}
            if np.abs(singly["hits"].mean(1) - values["test_accuracy"][:, -1]).max() > _ROUNDED:
                raise ValueError(
                    f"{path}: hits of seed {record['seed']}, n {record['n']} give another test accuracy than the one beside "
                    "them: delete the file and run the command again"
                )
        cells.append(Cell(record["seed"], record["n"], tuple(record["recorded"]), record["seconds"], values, **singly))
    return ResultTable(document["name"], document["settings"], levels, tuple(cells))


def add_cell(
    path: Path, name: str, settings: Mapping[str, Any], noise_levels: tuple[float, ...], record: Mapping[str, Any]
) -> Path:
    """Write one finished cell; the file is replaced as a whole. A cell of the same (seed, n) is replaced too.

    Raises ValueError when the file was measured with other settings (versions and date are kept from the first cell and may
    differ).
    """
    document = {"name": name, "settings": dict(settings), "noise_levels": list(noise_levels), "cells": []}
    if path.is_file():
        old = _load(path)
        check_settings(old, document, path)
        document["settings"], document["cells"] = old["settings"], old["cells"]
    key = (record["n"], record["seed"])
    kept = [cell for cell in document["cells"] if (cell["n"], cell["seed"]) != key]
    document["cells"] = sorted([*kept, dict(record)], key=lambda cell: (cell["n"], cell["seed"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as temporary:
        temporary.write_text(_text(document), encoding="utf-8", newline="\n")
    seal(path)
    return path


def check_settings(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
    """Raises ValueError, naming the settings that differ, unless two tables may share a file."""
    a, b = (
        json.loads(json.dumps({**table["settings"], **{key: table[key] for key in ("name", "noise_levels")}}))
        for table in (old, new)
    )
    differ = [key for key in sorted(a | b) if key not in ("versions", "date", "command") and a.get(key) != b.get(key)]
    if differ:
        raise ValueError(
            f"{path} was measured with other settings ({', '.join(differ)}): delete it, or write to another file by -o"
        )


def _text(document: Mapping[str, Any]) -> str:
    """One line per cell, so that a finished cell is one line of a diff."""
    head = json.dumps({key: document[key] for key in ("name", "settings", "noise_levels")}, indent=1)
    cells = ",\n".join("  " + json.dumps(cell, separators=(",", ":")) for cell in document["cells"])
    return f'{head[:-2]},\n "cells": [\n{cells}\n ]\n}}\n'
