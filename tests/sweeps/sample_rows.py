"""Jobs, grids and outcomes for tests of a sweep's folder: no page is run, no kernel starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bookkit.pages.catalogue import UserError
from bookkit.sweeps.folder import SweepFolder
from bookkit.sweeps.grid import Grid
from bookkit.sweeps.identity import Job, Outcome, Point, point_id
from tests.tiny_page import PAGE

FIRST = {"n": 200, "label_noise": 0.05, "step_size": 0.025, "mode": "reduced", "verbose": False}
VERSIONS = {"python": "3.11.7", "attnlib": "0.1.0", "numpy": "2.0.0", "torch": "2.9.0", "papermill": "2.7.0"}


def job(page: str = "wing/01_tiny", page_hash: str = "a" * 64, package_hash: str = "b" * 64) -> Job:
    """What the points of a sweep share; the source is that of a real page."""
    return Job(page, PAGE, page_hash, package_hash, ("attnlib",), distributions=tuple(VERSIONS)[1:])


def grid(*axes: Mapping[str, Sequence[Any]], first: Mapping[str, Any] = FIRST) -> Grid:
    """One axis per mapping: parameter -> values; several parameters in one mapping move together."""
    stored = [
        {
            "name": "+".join(axis),
            "parameters": list(axis),
            "values": [list(v) for v in zip(*axis.values(), strict=True)],
        }
        for axis in axes
    ]
    start = {name: values[0] for axis in axes for name, values in axis.items()}
    return Grid.from_json({"axes": stored, "fixed": {}, "first": {**first, **start}})


def points_of(of: Grid, of_job: Job | None = None) -> list[Point]:
    """The points of a grid under a job."""
    hashes = (of_job or job()).page_hash, (of_job or job()).package_hash
    return [Point(point_id(*hashes, parameters), parameters) for parameters in of.parameters]


def done(point: Point, results: Mapping[str, Any], **more: Any) -> Outcome:
    """A point that ran."""
    given = {
        "backend": "local",
        "seconds": 1.5,
        "finished": "2026-01-02T03:04:05+00:00",
        "versions": VERSIONS,
        "memory": 2**20,
    }
    return Outcome(point, "done", **{**given, **more}, results=dict(results))


def failed(point: Point, error: str = "ValueError: no", **more: Any) -> Outcome:
    """A point that ran and failed."""
    given = {"backend": "local", "seconds": 0.5, "finished": "2026-01-02T03:04:06+00:00", "versions": VERSIONS}
    return Outcome(point, "failed", **{**given, "traceback": f"Traceback\n{error}", **more}, error=error)


Answer = Callable[[Mapping[str, Any]], Mapping[str, Any] | str | None]


def fill(path: Path, of: Grid, results: Answer, *, publish: bool = False) -> None:
    """A sweep over a grid; `results` of the parameters of a point (None: it is not run, a text: it fails with it)."""
    points = points_of(of)
    with SweepFolder.begin(path, job(), of, points) as folder:
        for point in points:
            found = results(point.parameters)
            if found is not None:
                folder.write(failed(point, found) if isinstance(found, str) else done(point, found), 1)
        if publish:
            folder.publish()


def begin(path: Path, of: Grid, of_job: Job | None = None) -> None:
    """Begin a sweep and end it at once."""
    with SweepFolder.begin(path, of_job or job(), of, points_of(of, of_job)):
        pass


def refused(call: Callable, *arguments: Any) -> str:
    """The message of the `UserError` that a call must raise; it is one line."""
    with pytest.raises(UserError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def tree(path: Path) -> dict[str, bytes | None]:
    """Everything below a folder: name -> bytes (None: a folder)."""
    return {
        str(entry.relative_to(path)): entry.read_bytes() if entry.is_file() else None
        for entry in sorted(path.rglob("*"))
    }
