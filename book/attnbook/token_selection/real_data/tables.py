"""Stored results of the real-data experiment: one small JSON file per plan, one record per finished (seed, n) cell; read, and made.

A file is rewritten as a whole under a temporary name and then renamed, so an interrupted run leaves what was finished, and goes on there.
All cells of a file share their settings; a cell measured with other settings is refused. The command is in `door`.
"""

import datetime
import importlib.metadata
import json
import math
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnbook.stored import seal, sealed
from attnbook.token_selection.real_data.experiment import NoiseStudy, check_noise_levels
from attnbook.token_selection.real_data.fixed_tokens import progress_bar
from attnbook.token_selection.real_data.loaders import DATA_SETS, RealData, load
from attnbook.token_selection.real_data.plans import PLANS, Plan
from attnbook.token_selection.real_data.setups import Rows, Setup, prepare
from attnlib import checks
from bookkit.files import written_aside

TABLES = Path(__file__).with_name("tables")


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
        chosen = [cell.values[what] for cell in self.cells if cell.n == n]
        if not chosen:
            raise KeyError(f"{self.name} has no finished run at n = {n}: finished are {self.sizes}")
        return np.stack(chosen)

    def final(self, what: str, n: int) -> np.ndarray:
        """Mean over seeds of a quantity, at the last recorded step where it has steps."""
        values = self.values(what, n)
        return (values[..., -1] if _AXES[what] == "ES" else values).mean(0)


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


# --- Making one -----------------------------------------------------------------------------------------------------------


def _versions(pretrained: bool) -> dict[str, str]:
    names = ("attnlib", "torch", "numpy", *(("transformers", "tokenizers") if pretrained else ("scikit-learn",)))
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def settings_of(name: str, plan: Plan, backbone: Mapping[str, Any], rows: Rows, data: RealData) -> dict[str, Any]:
    """What a stored table says about how it was measured: plain values, no paths."""
    phase2 = {
        "trained": "query weight and bias and key weight of the last layer, from normal weights of s.d. 0.02, bias zero",
        "optimiser": "Adam, no weight decay, 20 warm-up steps, then linear to a tenth",
        "step_size": plan.step_size,
        "steps": {str(n): steps for n, steps in plan.steps.items()},
        "batch": {str(n): batch or "all" for n, batch in plan.batch.items()},
    }
    if plan.schedule:
        phase2["optimiser"] = "AdamW without weight decay, no warm-up, linear to zero"
        phase2["trained"] = phase2["trained"].replace("0.02", f"{plan.schedule['start_scale']:.3g}")
        phase2["epoch"] = "all samples, the last batch smaller"
    parts = {"phase 1": plan.phase1, "pool": plan.pool, "test": plan.test or "the official test split"}
    if plan.test_split and (plan.test is not None or plan.balanced):
        parts["test_split"] = plan.test_split
    if plan.balanced:
        parts["balanced"] = "equally many samples of each class"
    pretrained, known = "weights_sha256" in backbone, DATA_SETS.get(plan.data or name)
    return {
        "command": f"attnlib real {name if known else 'FOLDER'}" + (" --backbone MODEL" if pretrained else ""),
        "date": datetime.date.today().isoformat(),
        "versions": _versions(plan.kind == "text" or pretrained),
        **({"data": known.recorded} if known else {"data": data.name, "class_names": list(data.class_names)}),
        "official_split": plan.official,
        "rows": rows.counts,
        "sha256": rows.files,
        "tested": rows.tested,
        "parts": parts,
        "backbone": dict(backbone),
        "phase1": {"optimiser": "AdamW", "step_size": plan.head_step_size, "epochs": plan.epochs, "batch": 64}
        | ({"confidence": plan.confidence} if plan.confidence else {}),
        "phase2": phase2,
        "max_length": plan.max_length or None,
    }


def run_cell(setup: Setup, plan: Plan, n: int, seed: int) -> NoiseStudy:
    """Phase 2 of one (seed, n), at all noise levels."""
    steps = plan.steps[n]
    recorded = [step for step in plan.recorded if step < steps]
    return setup.study(
        n, plan.noise, seed=seed, step_size=plan.step_size, steps=steps, batch=plan.batch[n], recorded=recorded,
        **plan.schedule,
    )  # fmt: skip


def _checked(
    name: str, plan: Plan, backbone: Mapping[str, Any], rows: Rows, data: RealData, device: Any, out: Path
) -> dict:
    """The settings of a run, which must be those of the file that is there."""
    own = settings_of(name, plan, backbone, rows, data)
    if str(device) != "cpu":
        own["device"] = f"{torch.device(device).type}, float32"
    if out.is_file():
        done = read_table(out.stem, out.parent)
        old = {"name": done.name, "settings": done.settings, "noise_levels": done.noise_levels}
        check_settings(old, {"name": name, "settings": own, "noise_levels": plan.noise}, out)
    return own


def left_to_do(
    name: str, plan: Plan, data: RealData, seeds: Sequence[int], sizes: Sequence[int], out: Path, device: Any = "cpu"
) -> list[tuple[int, int]]:
    """The (seed, n) that a table does not hold yet. Raises ValueError for what cannot be run, or for a file with other settings."""
    for what, given in (("seeds", seeds), ("n", sizes)):
        if len(set(given)) < len(given):
            raise ValueError(f"{what} must be told once each; got {' '.join(map(str, given))}")
    for n in sizes:
        if n not in plan.steps or n > plan.pool:
            raise ValueError(f"n must be one of {', '.join(map(str, plan.steps))} for {name}; got {n}")
        check_noise_levels(plan.noise, n)
    seeds = [checks.whole_number("seed", seed, at_least=0) for seed in seeds]
    done = read_table(out.stem, out.parent) if out.is_file() else None
    finished = {(cell.seed, cell.n) for cell in done.cells} if done else set()
    todo = [(seed, n) for seed in seeds for n in sizes if (seed, n) not in finished]
    if todo:
        rows = Rows.of(data, plan, seeds[0])
        _checked(name, plan, done.settings["backbone"] if done else {}, rows, data, device, out)
    return todo


def remake(
    name: str,
    *,
    plan: Plan | None = None,
    data: RealData | str | Path | None = None,
    seeds: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    out: Path | None = None,
    progress: bool = False,
    device: Any = "cpu",
    **options: Any,
) -> ResultTable:
    """Run every (seed, n) cell of a plan that its table does not hold yet, and return the table.

    plan: None takes that of `PLANS`. data, device, options: see `prepare`. seeds, sizes: None takes those of the plan. out: the table's
    file; None: that of the package. Each finished cell is written at once; phase 1 of a seed is trained once for all its n.
    Raises as `left_to_do`.
    """
    plan, out = plan or PLANS[name], out or TABLES / f"{name}.json"
    found = data if isinstance(data, RealData) else load(plan.data or name, data)
    seeds = plan.all_seeds if seeds is None else seeds
    todo = left_to_do(name, plan, found, seeds, sizes or plan.sizes, out, device)
    prepared: dict[int, Setup] = {}  # of the seed at work
    for seed, n in progress_bar(todo, name, progress):
        if seed not in prepared:
            prepared.clear()  # frees the last seed's caches first
            prepared[seed] = prepare(name, seed, plan=plan, data=found, progress=progress, device=device, **options)
        setup = prepared[seed]
        settings = _checked(name, plan, setup.backbone, setup.rows, found, device, out)  # before the work, not after it
        begin = time.process_time()
        study = run_cell(setup, plan, n, seed)
        record = cell_record(study, seconds=time.process_time() - begin) | {"rows_sha256": setup.rows.drawn}
        add_cell(out, name, settings, plan.noise, record | hits_record(study.hits, setup.rows.test))
    return read_table(out.stem, out.parent)
