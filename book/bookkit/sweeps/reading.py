"""A sweep read from its folder: rows, table and labelled array, also while it still runs.

`told` and `elsewhere` give every refusal about a sweep's folder its words, here and in `folder`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bookkit.pages.catalogue import UserError, one_line
from bookkit.sweeps.identity import Point, point_id

if TYPE_CHECKING:
    import pandas
    import xarray

    from bookkit.sweeps.grid import Grid

__all__ = ["Status", "Sweep", "open_sweep"]

FORMAT = 1
SWEEP, ROWS, NOTEBOOKS, LOCK = "sweep.json", "rows", "notebooks", ".lock"
CONTENT = {
    "page": str,
    "page_hash": str,
    "package_hash": str,
    "versions": dict,
    "help": dict,
    "grid": dict,
    "points": list,
}
ROW = {
    "attempts": int,
    "seconds": (int, float),
    "memory": (int, type(None)),
    "engine": str,
    "finished": str,
    "versions": dict,
    "error": (str, type(None)),
    "traceback": (str, type(None)),
}


@dataclass(frozen=True)
class Status:
    """How many points were ever asked, and what became of them."""

    total: int
    done: int
    failed: int
    missing: int


@dataclass(frozen=True)
class Sweep:
    """A sweep as its folder held it when it was read; open it again for news.

    `grid` is the one asked last; `points` are all that were ever asked.
    """

    path: Path
    page: str
    page_hash: str
    package_hash: str
    versions: dict[str, str]
    help: dict[str, str]
    grid: Grid
    points: tuple[Point, ...]

    @cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows of finished and failed points by id, in the order of the points."""
        with told(self.path):
            return read_rows(self.path, {point.id: point.parameters for point in self.points})

    @cached_property
    def table(self) -> pandas.DataFrame:
        """One line per finished or failed point: parameters, named results, and the record of the run (`run_...`)."""
        from bookkit.sweeps import tables

        return tables.table(self)

    @cached_property
    def array(self) -> xarray.Dataset:
        """The named results over the axes of the last grid; what is missing is NaN."""
        from bookkit.sweeps import tables

        hashes = self.page_hash, self.package_hash
        return tables.array(self, [point_id(*hashes, parameters) for parameters in self.grid.parameters])

    @cached_property
    def status(self) -> Status:
        """Counts over all points ever asked."""
        done = sum(row["status"] == "done" for row in self.rows.values())
        return Status(len(self.points), done, len(self.rows) - done, len(self.points) - len(self.rows))

    @property
    def running(self) -> bool:
        """Whether a sweep writes to the folder at this moment."""
        with told(self.path):
            return is_locked(self.path)


def open_sweep(path: Path | str) -> Sweep:
    """Read the sweep in a folder, also while it runs. Raises `UserError` when there is none or it cannot be read."""
    from bookkit.sweeps.grid import Grid

    path = Path(path)
    with told(path):
        if not path.is_dir():
            raise UserError(
                f"sweep folder {path} does not exist: give the folder named by -o when the sweep was started"
            )
        content = read_content(path)
    if content is None:
        raise UserError(f"folder {path} holds no sweep ({SWEEP} is missing): give the folder named by -o")
    try:
        grid = Grid.from_json(content["grid"])
        points = tuple(Point(point["id"], point["parameters"]) for point in content["points"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(path, error) from error
    own = {name: content[name] for name in ("page", "page_hash", "package_hash", "versions", "help")}
    return Sweep(path=path, grid=grid, points=points, **own)


# --- files ----------------------------------------------------------------------------------------------------------


def read_content(path: Path) -> dict[str, Any] | None:
    """sweep.json, None where there is none. Raises `UserError` when it is not whole or of a later format."""
    try:
        content = json.loads((path / SWEEP).read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(content, dict):
        raise _unreadable(path, "it holds no mapping")
    if content.get("format") != FORMAT:
        raise _unreadable(path, f"format {content.get('format')!r}, this version reads {FORMAT}")
    for name, kind in CONTENT.items():
        if not isinstance(content.get(name), kind):
            raise _unreadable(path, f"no {name}")
    return content


def _unreadable(path: Path, why: object) -> UserError:
    return UserError(f"{path / SWEEP} cannot be read ({one_line(str(why), 100)}): give a new folder, {elsewhere(path)}")


def read_rows(path: Path, points: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    rows = path / ROWS
    present = {name.removesuffix(".json") for name in os.listdir(rows)} if rows.is_dir() else set()
    found = {id_: _read_row(f"{rows}/{id_}.json", id_, points[id_]) for id_ in points if id_ in present}
    return {id_: row for id_, row in found.items() if row is not None}


def _read_row(path: str, id_: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """A whole row of this point, or None: it is not there, is cut off, or is something else."""
    try:
        with open(path, "rb") as file:  # half the time of Path.read_bytes, and there may be ten thousand
            row = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or row.get("id") != id_ or row.get("parameters") != parameters:
        return None
    if not all(isinstance(row.get(name), kind) for name, kind in ROW.items()):
        return None
    whole = {"done": isinstance(row.get("results"), dict), "failed": isinstance(row.get("error"), str)}
    return row if whole.get(row.get("status")) else None


def is_locked(path: Path) -> bool:
    try:
        with (path / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


# --- words of refusals -----------------------------------------------------------------------------------------------


def elsewhere(path: Path) -> str:
    """A folder name that nobody has, as the option that asks for it."""
    base = path if path.name not in ("", "..") else path.resolve()
    number = 2
    while os.path.lexists(base.with_name(f"{base.name}-{number}")):
        number += 1
    return f"as in -o {base.with_name(f'{base.name}-{number}')}"


@contextmanager
def told(path: Path) -> Iterator[None]:
    """An error of the system inside becomes one line: what happened, what is safe, what to do."""
    try:
        yield
    except OSError as error:
        what, advice = error.strerror or one_line(error), "mend this and give the same command again"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what, advice = f"disk full ({what})", "free space and give the same command again"
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            what, advice = f"cannot be written ({what})", f"make it writable or give another folder, {elsewhere(path)}"
        raise UserError(f"sweep folder {path}: {what}; rows safe in it: {_count(path)}; {advice}") from error


def _count(path: Path) -> int:
    try:
        return sum(name.endswith(".json") for name in os.listdir(path / ROWS))
    except OSError:
        return 0
