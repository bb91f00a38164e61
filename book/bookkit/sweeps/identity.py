"""What a sweep is made of: points and their identity, what a worker is told, what it answers.

A point is its page's source, the source of the book's packages and the parameters, nothing else: the hash of the three is its name.
So a row can be found again after any interruption, and a changed page or package can never pass off an old number as its own.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from bookkit.code import Code, imported
from bookkit.pages.catalogue import UserError

__all__ = [
    "Job",
    "OtherVersion",
    "Outcome",
    "Point",
    "page_hash",
    "point_id",
    "require_version",
    "versions",
]


class OtherVersion(UserError):
    """A worker has other packages than the sweep, or they were edited while the sweep ran."""


@dataclass(frozen=True)
class Point:
    """One setting: all parameters of the page (also those left at their default), and the identity they give."""

    id: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What all points of a sweep share: page, versions, limits per point, and which notebooks come back."""

    page: str  # as in single_head/02_two_steps
    source: str  # MyST source of the page
    page_hash: str
    package_hash: str
    packages: tuple[str, ...]  # what the page imports of the book's own
    time_limit: float | None = None  # seconds from the start of the kernel to the end of the page
    memory_limit: int | None = None  # bytes of resident memory, kernel and its children together
    notebooks: Literal["none", "failed", "all"] = "failed"
    distributions: tuple[str, ...] = ()  # whose versions are kept beside every result


@dataclass(frozen=True)
class Outcome:
    """What became of one attempt at a point."""

    point: Point
    status: Literal["done", "failed"]
    backend: Literal["local", "dask", "batched"]
    seconds: float  # wall time of the attempt
    finished: str  # UTC, ISO 8601, seconds
    versions: dict[str, str]
    results: dict[str, Any] | None = None  # named results; None when failed
    error: str | None = None  # one line; None when done
    traceback: str | None = None
    memory: int | None = None  # largest resident memory seen, bytes
    notebook: str | None = None  # JSON text, when it is to be kept


def page_hash(source: str) -> str:
    """SHA-256 of a page's source."""
    return hashlib.sha256(source.encode()).hexdigest()


def require_version(job: Job, code: Code | None = None) -> None:
    """Raise `OtherVersion` when the code here is not that of the job."""
    here = (code or imported(job.packages)).hash()
    if here != job.package_hash:
        names = " and ".join(job.packages)
        raise OtherVersion(
            f"the {names} of this worker is not that of the sweep ({here[:12]}, not {job.package_hash[:12]}): "
            "install the same version everywhere, do not edit it while a sweep runs, and start the sweep again"
        )


def point_id(page_hash: str, package_hash: str, parameters: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits of the SHA-256 of page, package and parameters."""
    text = json.dumps([page_hash, package_hash, dict(parameters)], sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=8)
def versions(distributions: tuple[str, ...]) -> dict[str, str]:
    """Python and the named distributions, as installed here."""
    found = {"python": platform.python_version()}
    for name in distributions:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
