"""Running pages: many in parallel, results kept by content. How one page runs: `one_page`.

A result is kept under everything that can change it: the page's source, its parameters, the source of the book's packages (`code`), the
pinned requirements, the Python that runs them and the environment given to it. So a changed package can never show an old number.
"""

import hashlib
import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import joblib
from tqdm import tqdm

from bookkit.code import Code, code_of
from bookkit.pages.catalogue import find_root
from bookkit.pages.one_page import PageError, as_text, run_source

__all__ = ["PageResult", "PagesFailed", "execute_pages", "pins_hash"]

CACHE_LIMIT = "1G"  # an edit of the code makes every entry stale; the oldest go first


class PagesFailed(Exception):
    """At least one page of a build failed. `str()` holds one line per page."""


@dataclass(frozen=True)
class PageResult:
    """An executed page: its notebook as JSON text, the seconds it took when it ran, and whether it ran just now."""

    notebook: str
    seconds: float
    cached: bool


# --- what a result depends on ---------------------------------------------------------------------------------------


def pins_hash(root: Path) -> str:
    """SHA-256 over `requirements.txt` of `root` and the version and machine type of the running Python."""
    pins = root / "requirements.txt"
    if not pins.is_file():
        raise FileNotFoundError(f"root must hold requirements.txt, whose pins key every result; got {root}")
    machine = f"{sys.version}\0{sys.platform}\0{os.uname().machine}"
    return hashlib.sha256(pins.read_bytes() + machine.encode()).hexdigest()


# --- many pages -------------------------------------------------------------------------------------------------------


def execute_pages(
    pages: Sequence[Path],
    parameters: Mapping[str, object] | None = None,
    jobs: int = 1,
    cache_dir: Path | None = None,
    root: Path | None = None,
    code: Code | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[Path, PageResult]:
    """Run the `.md` sources `pages`, `jobs` at a time in processes of their own, and return a result for each.

    Results come from `cache_dir` where page, parameters, code, pins and Python are what they were (None: no cache).
    A progress bar and one line per page go to stderr. `root` (default: the book around this folder) holds
    requirements.txt and shortens the pages' names in messages; `code`: what the pages import
    (default: as the book says). `environment`: further variables of the kernels, as of another processor.

    Raises `PagesFailed` after all pages have been tried, with one line for each that failed; the results of the
    others are in the cache by then.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be a whole number >= 1; got {jobs}")
    if missing := [str(path) for path in pages if not path.is_file()]:
        raise FileNotFoundError(f"pages must be files that exist; got {', '.join(missing)}")
    root = root or find_root()
    code = code or code_of(root)
    key = {"code_hash": code.hash(), "pins_hash": pins_hash(root)}
    calls = {
        path: {
            "source": path.read_text(encoding="utf-8"),
            "parameters": dict(parameters or {}),
            "page": path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name,
            "code": code,
            "environment": dict(environment or {}),
            **key,
        }
        for path in pages
    }
    memory = joblib.Memory(cache_dir, verbose=0)
    results: dict[Path, PageResult] = {}
    failures: dict[Path, str] = {}
    with tqdm(total=len(pages), unit="page", file=sys.stderr) as bar:

        def report(path: Path, word: str) -> None:
            bar.write(f"{calls[path]['page']}  {word}", file=sys.stderr)
            bar.update()

        for path, call in calls.items():
            if (kept := _recall(memory, call)) is not None:
                results[path] = kept
                report(path, f"cached (ran {kept.seconds:.1f} s)")
        todo = [path for path in pages if path not in results]
        # Processes, never threads: papermill changes the working directory of its whole process.
        parallel = joblib.Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1)
        for path, outcome in parallel(joblib.delayed(_run_and_keep)(path, memory, calls[path]) for path in todo):
            if isinstance(outcome, PageResult):
                results[path] = outcome
                report(path, f"{outcome.seconds:.1f} s")
            else:
                failures[path] = outcome
                report(path, "FAILED")
    if failures:
        raise PagesFailed("\n".join(failures[path] for path in pages if path in failures))
    if cache_dir is not None:
        memory.reduce_size(bytes_limit=CACHE_LIMIT)
    return {path: results[path] for path in pages}


def _timed_page(
    source: str, parameters: dict, code_hash: str, pins_hash: str, page: str, code: Code, environment: dict
) -> tuple[str, float, str]:
    """What the cache keeps: notebook text, seconds, and a checksum of both (see `_recall`). The two hashes only name it."""
    start = time.perf_counter()
    text = as_text(run_source(source, parameters, page, code, environment))
    seconds = time.perf_counter() - start
    return text, seconds, _checksum(text, seconds)


def _remember(memory: joblib.Memory) -> joblib.memory.MemorizedFunc:
    # Name and place of a page do not change its numbers; `code_hash` stands for the content of its folders.
    return memory.cache(_timed_page, ignore=["page", "code"])


def _run_and_keep(path: Path, memory: joblib.Memory, call: dict) -> tuple[Path, PageResult | str]:
    """In a worker process: run the page whatever the cache holds, and keep the result. A failure comes back as text."""
    try:
        (text, seconds, _), _ = _remember(memory).call(**call)
    except PageError as error:
        return path, str(error)
    return path, PageResult(text, seconds, cached=False)


def _recall(memory: joblib.Memory, call: dict) -> PageResult | None:
    """The kept result of `call`, or None. Half-written and garbled entries are thrown away, never trusted."""
    if memory.location is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unreadable entry is no news: the page simply runs again
        try:
            cached = _remember(memory)
            if not cached.check_call_in_cache(**call):
                return None
            entry = cached.call_and_shelve(**call)
        except Exception:
            # joblib's own record is unreadable (its `func_code.py`): nothing in the folder can be relied on.
            shutil.rmtree(memory.location, ignore_errors=True)
            return None
        try:
            text, seconds, checksum = entry.get()
            # A changed byte inside the text unpickles without complaint, so the content is checked too.
            if checksum == _checksum(text, seconds):
                return PageResult(text, seconds, cached=True)
        except Exception:
            pass
        entry.clear()
        return None


def _checksum(text: str, seconds: float) -> str:
    return hashlib.sha256(json.dumps([text, seconds]).encode()).hexdigest()
