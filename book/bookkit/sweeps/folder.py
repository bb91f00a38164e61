"""The folder of a sweep: one small file per finished point, written whole or not at all, and the tables made of them.

    sweep.json        page, hashes and the grid asked last
    rows/ID.json      what became of a point; ID is the hash of page, code and parameters
    notebooks/ID.ipynb
    results.parquet   the table, renewed when a sweep ends
    results.nc        the labelled array (netCDF-4)
    .lock             held while a sweep writes; the system lets go of it when the process ends, however it ends

Everything is written under another name (`*.part`) and renamed, and a row carries a checksum over its content: a row that is
damaged, or that stands under another name than its own, counts as missing and is said to.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock, Timeout

from bookkit.files import written_aside
from bookkit.pages.catalogue import UserError, require_writable
from bookkit.sweeps.grid import Grid

if TYPE_CHECKING:
    import pandas
    import xarray

FORMAT = 2
SWEEP, ROWS, NOTEBOOKS, LOCK = "sweep.json", "rows", "notebooks", ".lock"


class Status(NamedTuple):
    """How many points the grid has, and what became of them."""

    total: int
    done: int
    failed: int
    missing: int


@dataclass(frozen=True)
class Sweep:
    """A page at the points of a grid, and the rows of those that are finished, as they were when they were first looked at."""

    path: Path
    page: str  # as in single_head/02_two_steps
    page_hash: str
    package_hash: str
    grid: Grid
    help: dict[str, str]  # what the page says of its parameters

    @cached_property
    def points(self) -> dict[str, dict[str, Any]]:
        """Parameters of every point of the grid, by the sixteen digits that name it: a hash of page, code and parameters."""
        return {
            _hash([self.page_hash, self.package_hash, parameters])[:16]: parameters
            for parameters in self.grid.parameters
        }

    @cached_property
    def _found(self) -> dict[str, dict[str, Any] | None]:
        """What stands under the names of points: a whole row of that very point, or None."""
        names = {path.stem for path in (self.path / ROWS).glob("*.json")}
        found = {id_: _read(self.path / ROWS / f"{id_}.json") for id_ in self.points if id_ in names}
        own = {id_: {"id": id_, "parameters": parameters} for id_, parameters in self.points.items()}
        return {id_: row if row is not None and row.items() >= own[id_].items() else None for id_, row in found.items()}

    @cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows of finished and failed points, in the order of the grid."""
        return {id_: row for id_, row in self._found.items() if row is not None}

    @property
    def damaged(self) -> list[str]:
        """Points whose row is there but not whole, or another's: they count as missing."""
        return [id_ for id_, row in self._found.items() if row is None]

    @cached_property
    def table(self) -> pandas.DataFrame:
        """One line per finished or failed point: parameters, named results, and the record of the run (`run_...`)."""
        from bookkit.sweeps import tables

        return tables.table(self.grid, list(self.rows.values()), self._about)

    @cached_property
    def array(self) -> xarray.Dataset:
        """The named results over the axes of the grid; what is missing is NaN."""
        from bookkit.sweeps import tables

        return tables.array(self.grid, [self.rows.get(id_) for id_ in self.points], self._about, self.help)

    @property
    def _about(self) -> dict[str, str]:
        return {"page": self.page, "page_hash": self.page_hash, "package_hash": self.package_hash}

    @property
    def status(self) -> Status:
        """Counts over the points of the grid."""
        done = sum(row["status"] == "done" for row in self.rows.values())
        return Status(len(self.points), done, len(self.rows) - done, len(self.points) - len(self.rows))


def open_sweep(path: Path | str) -> Sweep:
    """Read the sweep in a folder, also while it runs. Raises `UserError` when there is none or it cannot be read."""
    path = Path(path)
    if not path.is_dir():
        raise UserError(f"sweep folder {path} does not exist: give the folder named by -o when the sweep was started")
    if not (path / SWEEP).is_file():
        raise UserError(f"folder {path} holds no sweep ({SWEEP} is missing): give the folder named by -o")
    stored = _read(path / SWEEP)
    if stored is None or stored.get("format") != FORMAT:
        why = "it is damaged" if stored is None else f"format {stored.get('format')!r}, this version reads {FORMAT}"
        raise UserError(f"{path / SWEEP} cannot be read ({why}): give a new folder, {_elsewhere(path)}")
    names = ("page", "page_hash", "package_hash", "help")
    try:
        return Sweep(path, grid=Grid.from_json(stored["grid"]), **{name: stored[name] for name in names})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path / SWEEP} is not that of a sweep: give a new folder, {_elsewhere(path)}") from error


def require_folder(asked: Sweep) -> None:
    """Raise `UserError` where the folder of a sweep cannot take it: it is a file, or holds something else. Makes nothing."""
    path = asked.path
    if path.exists() and not path.is_dir():
        raise UserError(f"output {path} is a file: give a folder, {_elsewhere(path)}")
    if not path.exists():
        if not path.absolute().parent.is_dir():
            raise UserError(f"output {path} must lie in a folder that exists: make {path.parent} first")
        require_writable([path.absolute().parent])
        return
    require_writable([path])
    if not (path / SWEEP).exists():
        # A sweep that was killed at its very start leaves its lock and half a sweep.json.
        if strange := [each.name for each in path.iterdir() if each.name != LOCK and each.suffix != ".part"]:
            raise UserError(
                f"output {path} holds {min(strange)} and is no sweep: give a new folder, {_elsewhere(path)}"
            )
        return
    there = open_sweep(path)
    what = f"of page {there.page}, not {asked.page}" if there.page != asked.page else ""
    other = {"the page": (there.page_hash, asked.page_hash), "the code": (there.package_hash, asked.package_hash)}
    if not what and (changed := {name: pair for name, pair in other.items() if pair[0] != pair[1]}):
        shown = [f"{name} ({before[:8]}, now {now[:8]})" for name, (before, now) in changed.items()]
        what = f"with another version of {' and of '.join(shown)}"
    if what:
        raise UserError(f"output {path} holds a sweep {what}: give a new folder, {_elsewhere(path)}")


@contextmanager
def locked(asked: Sweep) -> Iterator[Path]:
    """Make the folder, or join the sweep in it, and hold its lock: rows are written inside, tables made on every way out.

    Gives the whole path: a page that runs in a thread of this process changes the working directory meanwhile.

    Raises `UserError` as `require_folder` does, when another sweep writes there, and when the disk is full or read-only.
    """
    path = asked.path.absolute()
    with told(path):
        path.mkdir(exist_ok=True)
        try:
            alone = FileLock(path / LOCK).acquire(timeout=0)
        except Timeout:
            raise UserError(
                f"output {path} is in use by another sweep: wait for it to end, or give another, {_elsewhere(path)}"
            ) from None
    with alone:
        require_folder(asked)  # again: it may have been made since
        with told(path):
            for left in (*path.glob("*.part"), *path.glob("*/*.part")):
                left.unlink(missing_ok=True)
            content = {**asked._about, "help": asked.help, "grid": asked.grid.as_json()}
            _write(path / SWEEP, {"format": FORMAT, **content})
            for name in (ROWS, NOTEBOOKS):
                (path / name).mkdir(exist_ok=True)
        try:
            yield path
        except BaseException:
            with suppress(UserError):  # what stopped the sweep is the better news
                _publish(path)
            raise
        _publish(path)


def write_row(path: Path, row: dict[str, Any], notebook: str | None) -> None:
    """Keep what became of a point, and its notebook, in the place of what was there. Raises `UserError` for a full disk."""
    kept = path / NOTEBOOKS / f"{row['id']}.ipynb"
    with told(path):
        if notebook is None:
            kept.unlink(missing_ok=True)  # of an earlier attempt: it is not the one of this row
        else:
            with written_aside(kept) as temporary:
                temporary.write_text(notebook, encoding="utf-8", newline="\n", errors="replace")
        _write(path / ROWS / f"{row['id']}.json", row)


def _publish(path: Path) -> None:
    """The table and the array of all rows, as files."""
    found = open_sweep(path)
    if found.rows:
        with told(path):
            with written_aside(path / "results.parquet") as temporary:
                found.table.to_parquet(temporary, engine="pyarrow", index=False)
            with written_aside(path / "results.nc") as temporary:
                found.array.to_netcdf(temporary, engine="h5netcdf")


# --- files with a checksum ----------------------------------------------------------------------------------------------


def _hash(content: Any) -> str:
    """SHA-256 of the JSON text of `content`, names sorted."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with written_aside(path) as temporary, temporary.open("w", encoding="ascii", newline="\n") as file:
        json.dump({**content, "checksum": _hash(content)}, file, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> dict[str, Any] | None:
    """What `_write` wrote, or None: not there, cut off, changed, or something else."""
    try:
        content = json.loads(path.read_bytes())
        return content if content.pop("checksum") == _hash(content) else None
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return None


# --- words of refusals --------------------------------------------------------------------------------------------------


def _elsewhere(path: Path) -> str:
    """A folder name that nobody has, as the option that asks for it."""
    base, number = path.absolute() if path.name in ("", "..") else path, 2
    while os.path.lexists(base.with_name(f"{base.name}-{number}")):
        number += 1
    return f"as in -o {base.with_name(f'{base.name}-{number}')}"


@contextmanager
def told(path: Path) -> Iterator[None]:
    """An error of the disk inside becomes one line: what happened, what is safe, what to do."""
    try:
        yield
    except OSError as error:
        safe = len(list((path / ROWS).glob("*.json")))
        raise UserError(
            f"sweep folder {path} cannot be written ({error.strerror or error}); rows safe in it: {safe}; mend this (free space, "
            f"or permission) and give the same command again, or another folder, {_elsewhere(path)}"
        ) from error
