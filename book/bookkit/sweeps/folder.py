"""The folder of a sweep: one small file per finished point, written whole or not at all, and the tables made of them.

    sweep.json        page, hashes, versions, the grid asked last and every point ever asked, in order
    rows/ID.json      what became of a point; a file that is not a whole row counts as missing, and its point runs again
    notebooks/ID.ipynb
    results.parquet   the table, renewed when a sweep ends
    results.nc        the labelled array of the last grid (netCDF-4)
    .lock             held while a sweep writes; the system lets go of it when the process ends, however it ends

Everything is written under another name (`*.part`) and renamed, so a reader needs no lock. Rows of another page, page version or
package version never meet in one folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bookkit.files import written_aside
from bookkit.pages.catalogue import UserError
from bookkit.pages.parameters import parameter_cells, parse_parameters
from bookkit.results import plain
from bookkit.sweeps.identity import Job, Outcome, Point, versions
from bookkit.sweeps.reading import (
    FORMAT,
    LOCK,
    NOTEBOOKS,
    ROWS,
    SWEEP,
    Status,
    Sweep,
    elsewhere,
    is_locked,
    open_sweep,
    read_content,
    read_rows,
    told,
)

if TYPE_CHECKING:
    from bookkit.sweeps.grid import Grid

__all__ = ["Status", "Sweep", "SweepFolder", "open_sweep"]

TABLE, ARRAY = "results.parquet", "results.nc"


# --- writing --------------------------------------------------------------------------------------------------------


class SweepFolder:
    """A sweep's folder while its lock is held: made by `begin`, filled by `write`, closed by `publish`."""

    def __init__(self, path: Path, points: Sequence[Point]) -> None:
        self.path = path
        self._points = {point.id: point.parameters for point in points}

    @staticmethod
    def check(path: Path, job: Job) -> None:
        """Whether a sweep of `job` can be written to `path`; makes nothing.

        Raises `UserError` when the parent is missing, when `path` is a file, a folder of something else, a sweep of another page or
        version, or one that cannot be read, when it cannot be written, and when another sweep writes there now.
        """
        with told(path):
            if not path.parent.is_dir():
                raise UserError(f"output {path} must lie in a folder that exists: make {path.parent} first")
            if not os.path.lexists(path):
                _require_writable(path.parent)
                return
            if not path.is_dir():
                raise UserError(f"output must be a folder; {path} is a file: give another name, {elsewhere(path)}")
            if content := read_content(path):
                _require_same(path, content, job)
            elif found := _strange(path):
                raise UserError(f"output {path} holds {found} and is no sweep: give a new folder, {elsewhere(path)}")
            for folder in (path, path / ROWS, path / NOTEBOOKS):
                if folder.is_dir():
                    _require_writable(folder)
            if is_locked(path):
                raise _in_use(path)

    @classmethod
    @contextmanager
    def begin(cls, path: Path, job: Job, grid: Grid, points: Sequence[Point]) -> Iterator[SweepFolder]:
        """Make the folder or join the sweep in it, and hold its lock: points asked before stay, new ones are added.

        What killed writes left behind is removed. Raises `UserError` as `check` does, and when the disk is full; a folder that was
        made for this is gone again then.
        """
        cls.check(path, job)
        with told(path):
            made = not path.exists()
            path.mkdir(exist_ok=True)
            lock = (path / LOCK).open("a")
        with lock:
            _take(lock, path)
            try:
                with told(path):
                    folder = cls(path, _prepare(path, job, grid, points))
            except BaseException:
                _unmake(path, made)
                raise
            yield folder

    def write(self, outcome: Outcome, attempts: int) -> None:
        """Keep an outcome as the row of its point, and its notebook; in the place of an earlier one, if there is one.

        Raises `UserError` when the disk is full or cannot be written, `ValueError` for a point that was not asked and for results
        that are not plain (`bookkit.results.plain`).
        """
        point = outcome.point
        if point.id not in self._points:
            raise ValueError(f"point must be one of those the sweep began with; got {point.id}")
        results = outcome.results
        row = {
            "id": point.id,
            "status": outcome.status,
            "parameters": point.parameters,
            "results": None if results is None else {name: plain(name, value) for name, value in results.items()},
            "attempts": attempts,
            "seconds": outcome.seconds,
            "memory": outcome.memory,
            "engine": outcome.backend,
            "finished": outcome.finished,
            "versions": outcome.versions,
            "error": outcome.error,
            "traceback": outcome.traceback,
        }
        notebook = self.path / NOTEBOOKS / f"{point.id}.ipynb"
        with told(self.path):
            if outcome.notebook is not None:
                _write(notebook, outcome.notebook)
            _write(self.path / ROWS / f"{point.id}.json", json.dumps(row, ensure_ascii=False, allow_nan=False))
            if outcome.notebook is None:
                notebook.unlink(missing_ok=True)  # of an earlier attempt: it is not the one of this row

    def rows(self) -> dict[str, dict[str, Any]]:
        """All whole rows on disk by id, in the order of the points."""
        with told(self.path):
            return read_rows(self.path, self._points)

    def publish(self) -> None:
        """Write the table and the labelled array of all rows. Raises `UserError` when the disk is full; old ones stay whole."""
        from bookkit.sweeps import tables

        sweep = open_sweep(self.path)
        if sweep.rows:
            with told(self.path):
                # Made in memory, so that a full disk is met by a plain write and not inside the libraries.
                for name, content in ((TABLE, tables.parquet(sweep.table)), (ARRAY, tables.netcdf(sweep.array))):
                    _write(self.path / name, content)


def _prepare(path: Path, job: Job, grid: Grid, points: Sequence[Point]) -> list[Point]:
    """Under the lock: make what is missing, remove leftovers, write sweep.json; all points asked up to now."""
    if before := read_content(path):
        _require_same(path, before, job)  # again: it may have been made since
    asked = {point["id"]: point["parameters"] for point in (before or {}).get("points", [])}
    asked |= {point.id: point.parameters for point in points}
    for folder in (path, path / ROWS, path / NOTEBOOKS):
        folder.mkdir(exist_ok=True)
        for left in folder.glob("*.part"):
            left.unlink(missing_ok=True)
    content = {
        "format": FORMAT,
        "page": job.page,
        "page_hash": job.page_hash,
        "package_hash": job.package_hash,
        "versions": versions(job.distributions),
        "help": _parameter_help(job.source),
        "grid": grid.as_json(),
        "points": [{"id": id_, "parameters": parameters} for id_, parameters in asked.items()],
    }
    # To the disk before any row: without it the rows could not be told from those of another version.
    _write(path / SWEEP, json.dumps(content, ensure_ascii=False, allow_nan=False), durable=True)
    return [Point(id_, parameters) for id_, parameters in asked.items()]


def _parameter_help(source: str) -> dict[str, str]:
    """What the page says about its parameters, for the labels of the array; nothing where it cannot be read."""
    from bookkit.pages.execution import read_source  # a third of a second that reading need not spend

    try:
        (cell,) = parameter_cells(read_source(source))
        return {parameter.name: parameter.help for parameter in parse_parameters(cell.source)}
    except ValueError:
        return {}


def _unmake(path: Path, made: bool) -> None:
    """Remove what `begin` made where there is no sweep yet; never a file of somebody."""
    if (path / SWEEP).exists():
        return
    with contextlib.suppress(OSError):
        for folder in (path / ROWS, path / NOTEBOOKS):
            if folder.is_dir():
                folder.rmdir()
        (path / LOCK).unlink(missing_ok=True)
        if made:
            path.rmdir()


def _write(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    # "replace": error texts can hold halves of surrogate pairs, which no file format takes.
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    with written_aside(path) as temporary, temporary.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


# --- refusals -------------------------------------------------------------------------------------------------------


def _require_same(path: Path, content: Mapping[str, Any], job: Job) -> None:
    """Raises `UserError` when the sweep in `path` is of another page, page version or code version; says which."""
    if content["page"] != job.page:
        what = f"of page {content['page']}, not {job.page}"
    else:
        changed = {"the page": "page_hash", "the code": "package_hash"}
        other = {name: key for name, key in changed.items() if content[key] != getattr(job, key)}
        if not other:
            return
        shown = [f"{name} ({content[key][:8]}, now {getattr(job, key)[:8]})" for name, key in other.items()]
        what = f"with another version of {' and of '.join(shown)}"
    raise UserError(f"output {path} holds a sweep {what}: give a new folder, {elsewhere(path)}")


def _strange(path: Path) -> str | None:
    """A name in `path` that a sweep killed at its very start does not leave."""
    for entry in sorted(path.iterdir()):
        if entry.name in (ROWS, NOTEBOOKS) and entry.is_dir() and not any(entry.iterdir()):
            continue
        if entry.name != LOCK and not re.fullmatch(rf"{re.escape(SWEEP)}\.\d+\.part", entry.name):
            return entry.name
    return None


def _require_writable(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    with tempfile.TemporaryFile(dir=folder):  # says what access() cannot: a read-only or a full disk
        pass


# --- the lock -------------------------------------------------------------------------------------------------------


def _in_use(path: Path) -> UserError:
    return UserError(
        f"output {path} is in use by another sweep: wait for it to end, or give another, {elsewhere(path)}"
    )


def _take(lock: IO[str], path: Path) -> None:
    """Raises `UserError` when another process holds it, or the file system has no locks."""
    for _ in range(5):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.05)  # `running` of a reader holds it for a moment
        except OSError as error:
            raise UserError(
                f"output {path} cannot be locked ({error.strerror}): give a folder on another disk"
            ) from error
    raise _in_use(path)
