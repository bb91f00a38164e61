"""Many points of a page in one process, by the batched function that the page declares.

A kernel for every point costs seconds that the numbers do not need. A page whose named results a package of the book can compute for many
points at once says so in the header of its .md, in a key of its own:

    bookkit:
      batched: attnbook.single_head.batched:two_steps

jupytext keeps that key where it is told to: `notebook_metadata_filter = "bookkit"` in the book's jupytext.toml, or in the header.
The function takes complete parameter sets and returns, in the same order, the named results of each: those that the page's
`record(...)` would leave, with the same numbers.
"""

from __future__ import annotations

import importlib
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bookkit.pages.catalogue import UserError, one_line
from bookkit.results import plain
from bookkit.sweeps.identity import Job, Outcome, Point, require_version, versions

__all__ = ["Batched", "batched_function", "run_batched"]

Batched = Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]]

_FORM = re.compile(r"([A-Za-z_]\w*)(\.[A-Za-z_]\w*)+:[A-Za-z_]\w*")
_FIRST, _LARGEST = 8, 4096  # points of the first chunk, and of any
_SECONDS = 4.0  # aimed at for one chunk: what an interruption costs at most


def batched_function(source: str, packages: Sequence[str]) -> Batched | None:
    """The batched function that a page's source declares, or None.

    Raises `UserError` for a declaration that is not `module:function` inside one of `packages`, or names what is not there.
    """
    import jupytext

    try:
        declared = jupytext.reads(source, fmt="md:myst").metadata.get("bookkit")
    except Exception as error:  # of its YAML, or of what jupytext makes of an empty entry
        raise UserError(f"the page's header cannot be read: {type(error).__name__}: {one_line(error)}") from None
    if declared is None:
        return None
    if not isinstance(declared, Mapping):
        raise UserError(
            f"the page's header must say `bookkit: {{batched: module:function}}`; got bookkit: {declared!r}"
        )
    if "batched" not in declared:
        return None
    name = declared["batched"]
    match = _FORM.fullmatch(name) if isinstance(name, str) else None
    if match is None or match[1] not in packages:
        raise UserError(
            f"batched in the page's header must be module:function inside {' or '.join(packages) or 'a package of the book'}, "
            f"as in mypackage.batched:mean; got {one_line(repr(name))}"
        )
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the module imports is not installed
        raise UserError(
            f"the page's header names the batched function {name}, but there is no module {error.name}"
        ) from None
    if not callable(found):
        raise UserError(
            f"the page's header names the batched function {name}, but {module} has no function {function!r}"
        )
    return found


def run_batched(job: Job, points: Sequence[Point], write: Callable[[Outcome, int], None]) -> None:
    """Call the page's batched function on `points`, chunk by chunk; `write(outcome, attempts)` gets each point's row in order.

    Chunks grow or shrink to a few seconds each, so an interruption loses no more; a point's numbers do not depend on its chunk.
    When a chunk raises, its points are tried one by one, and those that raise again are written as failed. Everything runs
    on one thread, as a page's kernel does: sums are added in the same order and give the same digits. A job's limits of time
    and memory are for kernels and are not looked at.

    Raises `UserError` when the page declares no function, or one that does not return one dict of plain named results per
    point, and `OtherVersion` when the package is not, or no longer, the job's. What `write` raises passes through.
    """
    from threadpoolctl import threadpool_limits

    function = batched_function(job.source, job.packages)
    if function is None:
        raise UserError(f"page {job.page} declares no batched function: sweep it without --batched")
    done, size = 0, _FIRST
    with threadpool_limits(1):
        while done < len(points):
            chunk = points[done : done + size]
            start = time.perf_counter()
            for outcome, attempts in _outcomes(job, function, chunk):
                write(outcome, attempts)
            seconds = time.perf_counter() - start
            done += len(chunk)
            size = min(_LARGEST, 4 * size, max(1, int(size * _SECONDS / seconds)))


def _outcomes(job: Job, function: Batched, chunk: Sequence[Point]) -> Iterator[tuple[Outcome, int]]:
    """What became of the points of a chunk, and in how many attempts."""
    start = time.perf_counter()
    try:
        results = _results(job, function, chunk)
    except UserError:
        raise
    except Exception:
        # Also of a chunk of one: a point that fails is tried twice, here as in a kernel.
        yield from (_alone(job, function, point) for point in chunk)
        return
    seconds = (time.perf_counter() - start) / len(chunk)
    yield from ((_done(job, point, seconds, named), 1) for point, named in zip(chunk, results, strict=True))


def _alone(job: Job, function: Batched, point: Point) -> tuple[Outcome, int]:
    """A point whose chunk failed, tried again by itself."""
    start = time.perf_counter()
    try:
        results = _results(job, function, [point])
    except UserError:
        raise
    except Exception as error:
        text = one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        seconds = time.perf_counter() - start
        found, trace = versions(job.distributions), traceback.format_exc()
        return Outcome(point, "failed", "batched", seconds, _now(), found, error=text, traceback=trace), 2
    return _done(job, point, time.perf_counter() - start, results[0]), 2


def _done(job: Job, point: Point, seconds: float, results: dict[str, Any]) -> Outcome:
    return Outcome(point, "done", "batched", seconds, _now(), versions(job.distributions), results=results)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _results(job: Job, function: Batched, points: Sequence[Point]) -> list[dict[str, Any]]:
    """The named results of `points` as `record` would leave them. Raises `UserError` for what is no such list."""
    require_version(job)
    # Copies: a function that changed a point's parameters would change what its row says.
    found = function([dict(point.parameters) for point in points])
    require_version(job)
    if not isinstance(found, list) or len(found) != len(points) or not all(isinstance(x, dict) and x for x in found):
        got = f"a list of {len(found)}" if isinstance(found, list) else type(found).__name__
        raise UserError(
            f"the batched function of page {job.page} must return a list with one dict of named results for each of "
            f"{len(points)} points; got {got}"
            + (", not all of them such dicts" if got == f"a list of {len(points)}" else "")
        )
    try:
        return [{name: plain(name, value) for name, value in named.items()} for named in found]
    except ValueError as error:
        raise UserError(f"the batched function of page {job.page}: {one_line(error)}") from None
